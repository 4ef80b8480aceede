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


# A window of so many elements is added block by block: element by element its code would be long.
LONG = 32
# More blocks than that are added by a loop.
MANY_BLOCKS = 64


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
        if size >= LONG and dilation == 1:
            windows = _folded_by_blocks(b, windows, axis, shape[axis], size, stride)
        else:
            windows = _folded(b, windows, axis, shape[axis], [k * dilation for k in range(size)], stride)
    return windows


def _folded_by_blocks(b: Builder, windows: Node, axis: int, extent: int | Dim, size: int, stride: int) -> Node:
    """Add the windows along an axis, each (the last axis) as blocks of `stride` neighbours.

    Block t of window o goes to block o + t of the result: a sum of as many padded slices as a window has blocks. Where
    these are many, with zeros before and behind, all blocks are one axis, and block t of window q - t is its element
    q * blocks - t * (blocks - 1): the sum of a dilated window.
    """
    blocks, last, zero = -(-size // stride), windows.ndim - 1, b.constant(0, windows.dtype)
    before, count, behind = windows.shape[:axis], windows.shape[axis], windows.shape[axis + 1 : last]
    order = (*range(axis + 1), last, *range(axis + 1, last))
    apart = b.permute(windows, order)  # before, windows, elements, behind
    none = (0,) * apart.ndim
    if blocks * stride != size:
        apart = b.pad(apart, none, (*before, count, blocks * stride, *behind), zero)
    # Behind the last window there are fewer elements than a block.
    found = count + (blocks - 1 if stride == 1 else blocks)
    if blocks <= MANY_BLOCKS:
        apart = b.reshape(apart, (*before, count, blocks, stride, *behind))
        whole, total = (*before, count, stride, *behind), None
        for t in range(blocks):
            at = tuple(t if i == axis + 1 else 0 for i in range(apart.ndim))
            piece = b.slice(apart, at, (*before, count, 1, stride, *behind), (1,) * apart.ndim)
            lo = tuple(t if i == axis else 0 for i in range(len(whole)))
            term = b.pad(b.reshape(piece, whole), lo, (*before, found, stride, *behind), zero)
            total = term if total is None else b.add(total, term)
    else:
        reach = (blocks - 1) ** 2
        apart = b.reshape(apart, (*before, count * blocks, stride, *behind))
        lo = tuple(reach if i == axis else 0 for i in range(apart.ndim))
        wide = b.pad(apart, lo, (*before, (found - 1) * blocks + reach + 1, stride, *behind), zero)
        total = b.reduce("sum", b.window(wide, (axis,), (blocks,), (blocks,), (blocks - 1,)), (wide.ndim,))
    assert total is not None, "a window has at least one block"
    joined = b.reshape(total, (*before, found * stride, *behind))
    if stride == 1:
        b.same(extent, found)
        return b.reshape(joined, (*before, extent, *behind))
    return b.slice(joined, (0,) * last, (*before, extent, *behind), (1,) * last)


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
