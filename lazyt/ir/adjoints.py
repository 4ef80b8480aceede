"""Adjoints of `slice`, `window` and `convolve`, for reverse mode and other users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir.symbolic import hint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir import graph as g
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Dim


def place(b: Builder, v: Node, shape: g.Shape, starts: g.Shape, steps: Sequence[int]) -> Node:
    """The adjoint of `slice`: zeros of `shape` with v at [start + i * step]."""
    zero = b.constant(0, v.dtype)
    if not all(abs(s) == 1 for s in steps):
        return b.update(b.expand_to(zero, shape), v, starts, steps)
    lo = tuple(p if s == 1 else p - (d - 1) for p, s, d in zip(starts, steps, v.shape, strict=True))
    upright = b.flip(v, [i for i, s in enumerate(steps) if s == -1])
    return b.pad(upright, lo, shape, zero)


def fold(b: Builder, windows: Node, shape: g.Shape, a: g.Window) -> Node:
    """The adjoint of `window`: adds every window where it was read, one windowed axis after another."""
    for axis, size, stride, dilation in reversed(list(zip(a.axes, a.sizes, a.strides, a.dilations, strict=True))):
        windows = _folded(b, windows, axis, shape[axis], [k * dilation for k in range(size)], stride)
    return windows


def _folded(b: Builder, windows: Node, axis: int, extent: int | Dim, starts: Sequence[int], stride: int) -> Node:
    """Add the windows along an axis, element k of each (the last axis) from starts[k] on.

    Places that are equal modulo the stride get the same elements of windows, without gaps. So each such class is a sum
    of padded slices, and one kernel writes all classes side by side.
    """
    last = windows.ndim - 1
    whole = windows.shape[:last]
    count = (extent + (stride - 1)) // stride
    target = tuple(count if i == axis else d for i, d in enumerate(whole))
    classes: list[Node] = []
    for r in range(stride):
        total: Node | None = None
        for k, start in enumerate(starts):
            if start % stride != r:
                continue
            piece = b.slice(windows, (*(0,) * last, k), (*whole, 1), (1,) * windows.ndim)
            at = tuple(start // stride if i == axis else 0 for i in range(last))
            term = place(b, b.reshape(piece, whole), target, at, (1,) * last)
            total = term if total is None else b.add(total, term)
        classes.append(b.expand_to(b.constant(0, windows.dtype), target) if total is None else total)
    if stride == 1:
        return classes[0]
    apart = [b.reshape(c, (*target[: axis + 1], 1, *target[axis + 1 :])) for c in classes]
    joined = b.reshape(b.concat(apart, axis + 1), tuple(d * stride if i == axis else d for i, d in enumerate(target)))
    found = tuple(extent if i == axis else d for i, d in enumerate(target))
    if hint(extent) % stride == 0:
        b.same(extent, count * stride)
        return b.reshape(joined, found)
    return b.slice(joined, (0,) * last, found, (1,) * last)


def image_of(b: Builder, y: Node, w: Node, a: g.Convolution, shape: g.Shape) -> Node:
    """The adjoint of `convolve` with w in its image, which has `shape`.

    That of a plain one is a convolution of y, padded, with w reversed.
    """
    if not a.is_plain or all(hint(d) == 1 for d in y.shape[2:]):
        # NOTE: of one place it is a product without zeros: see lower_convolution.py.
        return b.convolve_image(y, w, a, shape)
    wide = (*y.shape[:2], *(d + 2 * p for d, p in zip(y.shape[2:], a.reach, strict=True)))
    padded = b.pad(y, (0, 0, *a.reach), wide, b.constant(0, y.dtype))
    spatial = range(2, w.ndim)
    return b.convolve(padded, b.flip(b.permute(w, (1, 0, *spatial)), spatial), a)
