"""Regions of a buffer, in bytes, and their union: whether several make up one without a gap.

    region := offset + stride * i + ...    for 0 <= i < extent, one term an axis

Axes that continue each other are one axis, so equal regions are equal values. With a scope two extents are equal if
they are so for every binding of the plan; without one they are integers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from lazyt.ir.symbolic import Dim, guarded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Self

    from lazyt.ir.symbolic import Scope

    Extent = int | Dim
    Axes = dict[Extent, Extent]
    Key = tuple[Extent, Extent, frozenset[tuple[Extent, Extent]]]


class Region(NamedTuple):
    """A first byte, and axes as pairs of stride and extent. One axis always has stride 1."""

    offset: Extent
    axes: frozenset[tuple[Extent, Extent]]

    @classmethod
    def of(
        cls, scope: Scope | None, offset: Extent, strides: Iterable[Extent], extents: Iterable[Extent], itemsize: int
    ) -> Self | None:
        """The region of elements at these strides; None where an element is there twice."""
        axes: Axes = {1: itemsize}
        at = offset * itemsize
        for stride, extent in zip(strides, extents, strict=True):
            s, n = normal(scope, stride * itemsize), normal(scope, extent)
            if _is(n, 1):
                continue
            if _is(s, 0) and guarded(n) > 1:
                return None
            if guarded(s) < 0:
                at, s = at + s * (n + -1), normal(scope, -s)
            if s in axes and not (_is(s, 1) and itemsize == 1):
                return None
            axes[s] = n
        return cls(normal(scope, at), _merged(scope, axes))

    @classmethod
    def all_of(cls, scope: Scope | None, nbytes: Extent) -> Self:
        """The region of a whole buffer."""
        return cls(0, frozenset({(1, normal(scope, nbytes))}))

    @property
    def size(self) -> int:
        """Its bytes in the trace being planned."""
        return math.prod([guarded(n) for _, n in self.axes])

    def is_first(self, scope: Scope | None, nbytes: Extent) -> bool:
        """Whether this is so many bytes from 0 on, without a gap."""
        if not _is(self.offset, 0) or len(self.axes) != 1:
            return False
        ((stride, extent),) = self.axes
        return _is(stride, 1) and (extent == nbytes if scope is None else scope.proves_equal(extent, nbytes))

    def at_hints(self) -> Region:
        """The same in the trace being planned."""
        axes: Axes = {1: 1}
        for s, n in self.axes:
            if guarded(n) != 1:
                axes[guarded(s)] = guarded(n)
        return Region(guarded(self.offset), _merged(None, axes))

    def __str__(self) -> str:
        axes = sorted(self.axes, key=lambda axis: -guarded(axis[0]))
        return " + ".join([str(self.offset), *(f"{s}*i<{n}" for s, n in axes)])


def united(scope: Scope | None, regions: Iterable[Region], steps: Sequence[Extent]) -> list[Region]:
    """Regions merged with their neighbours, as far as possible: linear in their number.

    steps: strides of the buffer, along which regions of one element lie beside each other.
    """
    fronts: dict[Key, Region] = {}
    backs: dict[Key, Region] = {}
    known: dict[Region, list[tuple[Key, Key]]] = {}
    todo = [*regions][::-1]
    while todo:
        new = todo.pop()
        if new in known:
            continue
        keys = _keys(scope, new, steps)
        for front, back in keys:
            other = fronts.get(back) or backs.get(front)
            if other is not None:
                for f, b in known.pop(other):
                    fronts.pop(f, None)
                    backs.pop(b, None)
                todo.append(_beside(scope, new, other, front))
                break
        else:
            known[new] = keys
            for f, b in keys:
                fronts[f], backs[b] = new, new
    return [*known]


def normal(scope: Scope | None, a: Extent) -> Extent:
    """The normal form of `a`: one for all extents that are equal for every binding of the plan."""
    return a if scope is None else scope.normal(a)


def _is(a: Extent, n: int) -> bool:
    return isinstance(a, int) and a == n


def _merged(scope: Scope | None, axes: Axes) -> frozenset[tuple[Extent, Extent]]:
    """Axes with those that continue each other as one."""
    for stride in [*axes]:
        while stride in axes:
            behind = normal(scope, stride * axes[stride])
            if behind == stride or behind not in axes:
                break
            axes[stride] = normal(scope, axes[stride] * axes.pop(behind))
    return frozenset(axes.items())


def _keys(scope: Scope | None, region: Region, steps: Sequence[Extent]) -> list[tuple[Key, Key]]:
    """For each axis along which a region may have neighbours: keys of its first byte, and of that behind its last."""
    axes = dict(region.axes)
    found = []
    for s in (*axes, *(s for s in steps if s not in axes)):
        n = axes.get(s, 1)
        rest = region.axes - {(s, n)}
        found.append(((s, region.offset, rest), (s, normal(scope, region.offset + s * n), rest)))
    return found


def _beside(scope: Scope | None, a: Region, b: Region, front: Key) -> Region:
    """Two neighbours as one; front: the key of `a` along their axis."""
    s, offset, rest = front
    first, second = dict(a.axes).get(s, 1), dict(b.axes).get(s, 1)
    ends = normal(scope, offset + s * first) == b.offset
    axes = {**dict(rest), s: normal(scope, first + second)}
    return Region(offset if ends else b.offset, _merged(scope, axes))
