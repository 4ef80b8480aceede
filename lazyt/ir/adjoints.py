"""Adjoints of `slice`, `window` and `convolve`, for reverse mode and other users."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir import graph as g
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node


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
        last = windows.ndim - 1
        target = tuple(shape[axis] if i == axis else d for i, d in enumerate(windows.shape[:last]))
        steps = tuple(stride if i == axis else 1 for i in range(last))
        total: Node | None = None
        for k in range(size):
            piece = b.slice(windows, (*(0,) * last, k), (*windows.shape[:last], 1), (1,) * windows.ndim)
            starts = tuple(k * dilation if i == axis else 0 for i in range(last))
            term = place(b, b.reshape(piece, windows.shape[:last]), target, starts, steps)
            total = term if total is None else b.add(total, term)
        assert total is not None, "a window has at least one element"
        windows = total
    return windows


def image_of(b: Builder, y: Node, w: Node, a: g.Convolution, shape: g.Shape) -> Node:
    """The adjoint of `convolve` with w in its image, which has `shape`.

    That of a plain one is a convolution of y, padded, with w turned around.
    """
    if not a.is_plain:
        return b.convolve_image(y, w, a, shape)
    wide = (*y.shape[:2], *(d + 2 * p for d, p in zip(y.shape[2:], a.reach, strict=True)))
    padded = b.pad(y, (0, 0, *a.reach), wide, b.constant(0, y.dtype))
    spatial = range(2, w.ndim)
    return b.convolve(padded, b.flip(b.permute(w, (1, 0, *spatial)), spatial), a)
