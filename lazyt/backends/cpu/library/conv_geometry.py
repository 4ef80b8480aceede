"""Rows and columns of a convolution: of an image, of its copy with zeros around it, of places and the taps they meet.

A convolution along one axis has one row.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from lazyt.forking import cached_property
from lazyt.ir import graph as g

if TYPE_CHECKING:
    from lazyt.backends.common.products import Value
    from lazyt.ir.graph import Node


class Around(NamedTuple):
    """Where an image begins in its copy, with zeros around it, and the rows and columns of that."""

    top: int
    left: int
    tall: int
    wide: int


class Phase(NamedTuple):
    """Of an axis: places that meet the same taps, where each begins to read, and the taps, each so far from there.

    `first` is the first of the places, if there are any: a short image has fewer places than a step has phases.
    """

    first: int
    places: list[int]
    begins: list[int]
    taps: list[int]
    offsets: list[int]


class Geometry:
    """That of a node; `value` gives extents.

    NOTE: it takes numbers, so a binding that has such a node is not written out (symbolic_binding.py).
    """

    def __init__(self, n: Node, value: Value) -> None:
        a = n.attrs
        assert isinstance(a, g.Convolution)
        self.transposed = n.op == "convolve_image"
        self.sizes, self.strides, self.dilations = (two(of, 1) for of in (a.sizes, a.strides, a.dilations))
        self.padding = two(a.padding, 0)
        # The places of a transposed convolution are those of the image that it gives.
        result = n.operands[1] if n.op == "convolve_filter" else n
        self.plane, self.places = (two(tuple(value(d) for d in x.shape[2:]), 1) for x in (n.operands[0], result))
        self.taps = math.prod(self.sizes)

    @cached_property
    def around(self) -> Around:
        if not self.transposed:
            return Around(*self.padding, *(d + 2 * p for d, p in zip(self.plane, self.padding, strict=True)))
        before = [(k - 1) // s for k, s in zip(self.sizes, self.strides, strict=True)]
        last = [(e - 1 + p) // s for e, p, s in zip(self.places, self.padding, self.strides, strict=True)]
        tall, wide = (b + max(d, e + 1) for b, d, e in zip(before, self.plane, last, strict=True))
        return Around(before[0], before[1], tall, wide)

    @cached_property
    def phases(self) -> tuple[list[Phase], list[Phase]]:
        """Of rows and of columns. A convolution has one of each."""
        down, right = (self._phases_of(axis) for axis in (0, 1))
        return down, right

    def _phases_of(self, axis: int) -> list[Phase]:
        """Of a transposed convolution with a step s, place n meets the taps (n + padding) % s + j * s.

        It reads the j-th of them j places before (n + padding) // s.
        """
        size, step, padding, extent = (of[axis] for of in (self.sizes, self.strides, self.padding, self.places))
        if not self.transposed:
            offsets = [t * self.dilations[axis] for t in range(size)]
            return [Phase(0, list(range(extent)), [i * step for i in range(extent)], list(range(size)), offsets)]
        found = []
        for r in range(step):
            places, taps = list(range(r, extent, step)), list(range((r + padding) % step, size, step))
            begins = [(n + padding) // step + self.around[axis] for n in places]
            found.append(Phase(r, places, begins, taps, [-j for j in range(len(taps))]))
        return found

    @property
    def order(self) -> tuple[int, ...]:
        """The taps of one phase after another, by their numbers in the window: all, whatever the extents are."""
        down, right = self.phases
        return tuple(i * self.sizes[1] + j for y in down for x in right for i in y.taps for j in x.taps)


def two(of: tuple[int, ...], one: int) -> tuple[int, int]:
    """Of rows and columns, what is given of these or of columns alone."""
    assert len(of) in (1, 2), "a plane has two axes, or one"
    return (of[0], of[1]) if len(of) == 2 else (one, of[0])
