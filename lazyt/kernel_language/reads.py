"""Reading arrays at indices: slices where an index is linear in the kernel's indices, gathers elsewhere.

What is read outside of an array follows `bounds`: 'error' (known now where the index is linear and no condition guards
it, else found at the sync), 'zero', 'clamp' (the nearest element) or 'wrap' (the index modulo the extent).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lazyt.errors import DTypeError
from lazyt.ir import dtypes
from lazyt.ir.builder import broadcast_shapes
from lazyt.ir.graph import Origin
from lazyt.ir.symbolic import hint
from lazyt.kernel_language.arithmetic import Arithmetic, Interval
from lazyt.kernel_language.values import Affine, Array, Axis, Truth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Dim

BOUNDS = ("error", "zero", "clamp", "wrap")
ZERO = Affine((), 0)


class OutOfBounds(Exception):  # becomes an IndexOutOfRange with the construct's place
    """A read that is outside for certain."""


class Reads(Arithmetic):
    """Reading with one rule for what is outside."""

    def __init__(self, b: Builder, bounds: str) -> None:
        super().__init__(b)
        self.bounds = bounds
        # Of arguments and their axes, how far reads went beyond the ends; and how far they are known to go.
        self.reached: dict[tuple[Node, int], list[int]] = {}
        self.reach: dict[tuple[Node, int], list[int]] = {}
        self._extended: dict[Node, Node] = {}
        # Whether what is outside is read by a gather: in a small part of a domain one kernel is worth more than slices.
        self.gathers = False
        self.leaves = False  # whether some read lies outside of its array
        self.reading = ""  # what is read, and where that stands: for errors at the sync
        self._is_narrow = False

    def read(self, x: Array, index: Sequence[Any]) -> Array:
        """x at an index for each of its first axes: a whole number, or None for the whole axis."""
        places = [Affine((), i) if isinstance(i, int) else i for i in index]
        for p in places:
            if isinstance(p, Affine):
                self.whole.of_position(p)
        axes = [t[0] for p in places if isinstance(p, Affine) for t in p.terms]
        is_affine = all(p is None or (isinstance(p, Affine) and len(p.terms) <= 1) for p in places)
        moves = any(not (isinstance(d, int) and d == 1) for d in x.node.shape[: x.frame])
        if is_affine and len(set(axes)) == len(axes) and not (moves and axes):
            found = self._sliced(x, places)
            if found is not None:
                return found
        if moves:
            raise DTypeError("a row that was computed is read at constant indices only")
        for k, p in enumerate(places):
            n = x.node.shape[x.frame + k]
            if self.bounds == "error" and isinstance(p, Affine) and not all(map(_is_zero, self._excess(p, n, {}))):
                self._check(p, k, n)
        return self._gathered(x, places)

    # Slices

    def _excess(self, p: Affine, n: int | Dim, ranges: dict[Axis, Interval]) -> tuple[int | Dim, int | Dim]:
        """How far an index lies before an axis of n, and behind it."""
        low, high = self.range_of_values(p, ranges)
        before = 0 if self.b.at_least(low, 0) else -low
        return before, 0 if self.b.at_least(n - 1 - high, 0) else high - n + 1

    def _known(self) -> dict[Axis, Interval]:
        """The ranges of indices under the conditions."""
        found: dict[Axis, Interval] = {}
        for fact in (f for c in self.path for f in c.true):
            if len(fact.terms) != 1 or abs(fact.terms[0][1]) != 1:
                continue
            axis, c = fact.terms[0]
            low, high = found.get(axis, (0, axis.extent - 1))
            if c == 1 and self.b.at_least(-fact.offset - low, 1):
                low = -fact.offset
            elif c == -1 and self.b.at_least(high - fact.offset, 1):
                high = fact.offset
            found[axis] = (low, high)
        return found

    def _sliced(self, x: Array, places: Sequence[Affine | None]) -> Array | None:
        """The read as a slice of x, extended where it reaches outside; None if it is none."""
        b, node, first = self.b, x.node, x.frame
        if first == 0 and (ready := self._ready(node, places)) is not None:
            node, places = ready
        for k, p in enumerate(places):
            if p is None:
                continue
            if p.terms and not b.at_least(p.terms[0][0].extent, 1):
                return self._nothing(x, places)
            a, n = first + k, node.shape[first + k]
            before, after = self._excess(p, n, {})
            if _is_zero(before) and _is_zero(after):
                continue
            self._note(p, n)
            if self.bounds == "error":
                self._check(p, a - first, n)
                if not all(map(_is_zero, self._excess(p, n, self._known()))):
                    return None
            elif self.gathers and self.bounds != "zero":
                return None
            elif self.bounds != "zero" and not b.at_least(n, 1):
                raise OutOfBounds(f"axis {a - first} has no elements")
            elif self.bounds == "wrap" and not (b.at_least(n - before, 0) and b.at_least(n - after, 0)):
                return None
            moved = list(places)
            if self.bounds in ("clamp", "wrap"):
                if len(places) > 1 and not self._is_narrow:
                    return self._narrowed(Array(node, first, x.weak), places)
                low, high = self.range_of_values(p, {})
                if isinstance(before, int) and isinstance(after, int) and not first:
                    reached = self.reached.setdefault((x.node, a), [0, 0])
                    reached[:] = max(reached[0], before), max(reached[1], after)
                node = self._beyond(node, a, low, high)
                moved[k] = p.plus(Affine((), low).times(-1))
            else:
                lo = tuple(before if i == a else 0 for i in range(node.ndim))
                shape = tuple(m + before + after if i == a else m for i, m in enumerate(node.shape))
                node = b.pad(node, lo, shape, b.constant(0, node.dtype))
                moved[k] = p.plus(Affine((), before))
            places = moved
        return self._arranged(node, first, places)

    def _narrowed(self, x: Array, places: Sequence[Affine | None]) -> Array | None:
        """The read of the part of x that is inside along other axes: what is extended is no larger than it must be."""
        node, moved = x.node, list(places)
        for k, p in enumerate(places):
            if p is None or not all(map(_is_zero, self._excess(p, node.shape[x.frame + k], {}))):
                continue
            low, high = self.range_of_values(p, {})
            starts = tuple(low if i == x.frame + k else 0 for i in range(node.ndim))
            sizes = tuple(high - low + 1 if i == x.frame + k else d for i, d in enumerate(node.shape))
            node = self.b.slice(node, starts, sizes, (1,) * node.ndim)
            moved[k] = p.plus(Affine((), low).times(-1))
        self._is_narrow = True
        try:
            return self._sliced(Array(node, x.frame, x.weak), moved)
        finally:
            self._is_narrow = False

    def _note(self, p: Affine, n: int | Dim) -> None:
        """Cut an index where what it reads leaves an axis of n."""
        self.leaves = True
        self.cut(p)
        self.cut(p.times(-1).plus(Affine((), n - 1)))

    def _ready(self, node: Node, places: Sequence[Affine | None]) -> tuple[Node, list[Affine | None]] | None:
        """An array that was extended once for all that is read of it, and the places in it; None if it was not."""
        reach = {a: r for (n, a), r in self.reach.items() if n is node}
        if not reach or any(a >= len(places) or places[a] is None for a in reach):
            return None
        if node not in self._extended:
            wide = node
            for a, (before, after) in reach.items():
                wide = self._beyond(wide, a, -before, node.shape[a] - 1 + after)
            self._extended[node] = wide
        wide = self._extended[node]
        moved = [p if p is None or a not in reach else p.plus(reach[a][0]) for a, p in enumerate(places)]
        inside = (_is_zero(e) for a in reach for e in self._excess(moved[a] or ZERO, wide.shape[a], {}))
        return (wide, moved) if all(inside) else None

    def _beyond(self, x: Node, a: int, low: int | Dim, high: int | Dim) -> Node:
        """What an index from `low` to `high` reads along an axis, by the rule for what is outside."""
        b, n, size = self.b, x.shape[a], high - low + 1
        parts = []

        def part(start: int | Dim, count: int | Dim) -> Node:
            starts = tuple(start if i == a else 0 for i in range(x.ndim))
            return b.slice(x, starts, tuple(count if i == a else d for i, d in enumerate(x.shape)), (1,) * x.ndim)

        def outside(edge: int | Dim, start: int | Dim, count: int | Dim) -> Node:
            if self.bounds == "wrap":
                return part(start, count)
            return b.expand(part(edge, 1), tuple(count if i == a else d for i, d in enumerate(x.shape)))

        if not b.at_least(high, 0):
            return outside(0, low + n, size)
        if not b.at_least(n - 1 - low, 0):
            return outside(n - 1, low - n, size)
        first, last = (low if b.at_least(low, 0) else 0), (high if b.at_least(n - 1 - high, 0) else n - 1)
        if first is not low:
            parts.append(outside(0, n + low, -low))
        parts.append(part(first, last - first + 1))
        if last is not high:
            parts.append(outside(n - 1, 0, high - n + 1))
        return b.concat(parts, a)

    def _check(self, p: Affine, axis: int, n: int | Dim) -> None:
        """OutOfBounds where no condition guards the read."""
        if self.path:
            return
        low, high = self.range_of_values(p, {})
        bad = low if not self.b.at_least(low, 0) else high
        where = ", ".join(
            f"{a.name} = {hint(a.start + (0 if (c > 0) == (bad is low) else a.extent - 1) * a.step)}"
            for a, c in p.terms
        )
        raise OutOfBounds(
            f"index {hint(bad)} is out of bounds for axis {axis} with size {hint(n)}{f', where {where}' * bool(where)}"
        )

    def _nothing(self, x: Array, places: Sequence[Affine | None]) -> Array:
        """The read of an index that takes no value."""
        extents = {t[0].place: t[0].extent for p in places if isinstance(p, Affine) for t in p.terms}
        rest = [n for n, p in zip(x.node.shape[x.frame :], places, strict=False) if p is None]
        rest += x.node.shape[x.frame + len(places) :]
        shape = (*(extents.get(i, 1) for i in range(len(self.axes))), *rest)
        return Array(self.b.expand_to(self.b.constant(0, x.dtype), shape), len(self.axes), x.weak)

    def _arranged(self, node: Node, first: int, places: Sequence[Affine | None]) -> Array:
        """Slice, and move the axes of indices to their places in front of what is left."""
        b = self.b
        starts: list[int | Dim] = [0] * node.ndim
        sizes, steps = list(node.shape), [1] * node.ndim
        place: dict[int, int] = {}
        gone = []
        for k, p in enumerate(places):
            if p is None:
                continue
            a = first + k
            starts[a], sizes[a] = p.offset, 1
            if p.terms:
                axis, steps[a] = p.terms[0]
                sizes[a] = axis.extent
                place[axis.place] = a
            else:
                gone.append(a)
        node = b.slice(node, tuple(starts), tuple(sizes), steps)
        depth = len(self.axes)
        kept = [a for a in range(first, node.ndim) if a not in gone and a not in place.values()]
        order = [*(place[i] for i in range(depth) if i in place), *range(first), *gone, *kept]
        shape = [node.shape[place[i]] if i in place else 1 for i in range(depth)]
        if not place and first:  # of a row: it depends on what the row depends on
            shape[:first] = node.shape[:first]
        node = b.permute(node, order)
        return Array(b.reshape(node, (*shape, *(node.shape[len(order) - len(kept) :]))), depth)

    # Gathers

    def _gathered(self, x: Array, places: Sequence[Any]) -> Array:
        b = self.b
        base = b.reshape(x.node, x.node.shape[x.frame :]) if x.frame else x.node
        axes = tuple(k for k, p in enumerate(places) if p is not None)
        inside: Truth | None = None
        found = []
        for k in axes:
            i = self._index(places[k])
            extent = Affine((), base.shape[k])
            if self.bounds == "clamp":
                i = self.apply("maximum", self.apply("minimum", i, extent.plus(-1)), 0)
            elif self.bounds == "wrap":
                i = self.apply("remainder", i, extent)
            elif self.bounds == "zero":
                here = self.both(self._holds("greater_equal", i, 0), self._holds("less", i, extent))
                inside = here if inside is None else self.both(inside, here)
            found.append(i)
        if inside is not None:
            if not all(b.at_least(base.shape[k], 1) for k in axes):
                return self._nothing(Array(base, 0), places)
            found = [self.select(inside, i, 0) for i in found]
        elif self.path and self.bounds == "error":
            found = [self.select(self.condition(), i, 0) for i in found]
        given, _ = self.nodes(found)
        shape = broadcast_shapes(b, "index", *(n.shape for n in given))
        site = b.site
        if isinstance(site, Origin):
            b.site = replace(site, construct=self.reading)
        node = b.gather(base, [b.expand_to(b.cast(n, dtypes.int64), shape) for n in given], axes)
        b.site = site
        y = Array(node, len(self.axes) if shape else 0, x.weak)
        return y if inside is None else self.select(inside, y, Array(b.constant(0, x.dtype), 0, x.weak))

    def _holds(self, name: str, x: Any, y: Any) -> Truth:
        found = self.apply(name, x, y)
        return Truth(found.node, found.frame)

    def _index(self, p: Any) -> Array:
        i = self.array(p)
        if dtypes.kind(i.dtype) not in "iu" or i.rows:
            raise DTypeError(f"an index is a whole number, got {i.dtype}{f' with {i.rows} axes' if i.rows else ''}")
        return i


def _is_zero(n: int | Dim) -> bool:
    return isinstance(n, int) and n == 0


__all__ = ["BOUNDS", "OutOfBounds", "Reads"]
