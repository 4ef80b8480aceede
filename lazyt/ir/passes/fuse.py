"""Fusion: decides which nodes share a kernel, and which are stored.

One walk over the graph from its end to its start. A node is visited after its readers (visit_order.py), so all groups
and places that want it are known. It is then *inlined* into those readers, or it becomes a *root*: stored by a group.
A group is one kernel: a domain of outer and row axes, the values it stores and the reductions it finishes.

Order. Groups are numbered as they are made, so a group with a higher number runs earlier. A root may join a group
only if that group runs no later than all its readers, which keeps the order total and the result free of cycles.

A boundary stands where:  a library call, a product or a scatter wants or gives an array;  an output is asked for;
  `places`     a value is wanted at several places or by several groups and is not cheap
  `repeated`   a value would be computed again along axes that it does not have
  `checks`     a part is read of what has checks: see partial_reads.py
  `axes`       an index map is not affine, even with an axis split
  `size`       the group has reached MAX_GROUP operations, or a chain MAX_DEPTH (so that a longer unroll of a loop
               reuses the kernels of its prefix)
  `packed`     what is kept in few bits is in memory from the forward pass on: stored early, and read from there alone
  `needs`      the kernel's code would need more stack, or compile time, than a backend lets it: see divide_kernels.py
Row fusion: a reduction whose readers spread it back over the same rows becomes an earlier stage of their kernel.
Sibling fusion: roots over one domain that read a common value become one kernel with several outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lazyt.ir import graph as g
from lazyt.ir.attention import is_attention
from lazyt.ir.extents import prefix_sums
from lazyt.ir.graph import Graph, Node
from lazyt.ir.passes.call_operands import attention_operands, buffer_of, operands_of_call, scattered
from lazyt.ir.passes.casts import widens
from lazyt.ir.passes.complex_words import are_halves
from lazyt.ir.passes.fusion_cost import CHEAP, COSTLY, FUSED, WRITES, Costs
from lazyt.ir.passes.fusion_result import Call, Fused, Group, Root, Unit
from lazyt.ir.passes.index_maps import AxisVar, Index, Place, Split, add, axes_of_digits, axis_index, through, whole
from lazyt.ir.passes.moments import NOTHING_HELD, Held
from lazyt.ir.passes.partial_reads import read_in_part
from lazyt.ir.passes.row_kernels import is_parallel, lanes_of, stands_apart
from lazyt.ir.passes.siblings import MAX_GROUP, Siblings, has_capacity, is_one
from lazyt.ir.passes.visit_order import readers_first
from lazyt.ir.prims import CONVOLUTIONS, ELEMENTWISE, MOVEMENT, REDUCTIONS, SOURCES
from lazyt.ir.symbolic import Dim, Scope, product
from lazyt.ir.target import Target

if TYPE_CHECKING:
    from lazyt.ir.passes.siblings import Form

# A concatenation that is a part of more is stored, and copied to them: its parts are not stored so often.
PLACES = 4

CALLS = frozenset({"matmul", *CONVOLUTIONS, "opaque", "scatter"})


def fuse(
    graph: Graph, scope: Scope | None, target: Target, enabled: bool = True, pieces: Mapping[Node, int] | None = None,
    held: Held = NOTHING_HELD, again: bool = True,
) -> Fused:  # fmt: skip
    """Divide a graph into groups and calls. With `enabled` off every operation is a kernel of its own.

    pieces: nodes of different numbers (0 where there is none) are stored by different groups; again: a cheap one is
    computed again by a group of another number.
    """
    return _Fuser(graph, scope, target, enabled, pieces or {}, held, again).run()


class _Fuser:
    def __init__(
        self, graph: Graph, scope: Scope | None, target: Target, enabled: bool, pieces: Mapping[Node, int], held: Held,
        again: bool,
    ) -> None:  # fmt: skip
        self.graph = graph
        self.pieces, self.again = pieces, again
        self.held = held
        self.scope = scope
        self.target = target
        self.enabled = enabled
        self.units: list[Unit] = []
        self.whole = read_in_part(graph, scope)
        self.siblings = Siblings(scope, graph.kept)
        # node -> group -> places it is wanted at in that group
        self.wanted: dict[Node, dict[Group, list[Place]]] = {}
        # node -> the highest number among units that read its whole buffer
        self.buffers: dict[Node, int] = {}
        self.stored: dict[Node, str] = dict.fromkeys(sorted(held.kept, key=lambda n: n.serial), "kept")  # -> why
        self.parts: dict[Node, list[tuple[Node, Place, int]]] = {}  # node -> (target, offsets, readers' number)
        costs = Costs(graph, target.light_functions)
        self.cost, self.at_each, self.users, self.is_light = costs.of, costs.at_each, costs.users, costs.is_light
        for n in costs.cut:
            self.stored[n] = "size"

    def run(self) -> Fused:
        for n in self.graph.outputs:
            self._store(buffer_of(n), -1, "output")
        for n in self.graph.kept:
            self._store(n, -1, "packed")
        for n in readers_first(self.graph, self.users, self.cost, CHEAP, CALLS):
            self._visit(n)
        self.units.sort(key=lambda u: -u.number)
        return Fused(self.units, set(self.stored), self.stored)

    def _store(self, n: Node, number: int, why: str) -> None:
        """n must have a buffer, written before the unit with this number."""
        n = buffer_of(n)
        self.buffers[n] = max(self.buffers.get(n, -1), number)
        if n.op != "input":
            self.stored.setdefault(n, why)

    def _number(self) -> int:
        return len(self.units)

    # One node

    def _visit(self, n: Node) -> None:
        wanted = self.wanted.pop(n, {})
        if n.op == "input":
            self._place_parts(n, {})
            return
        if n.op == "reshape" and n not in self.stored:
            if n in self.parts:
                self._root(n, wanted, "part")
            else:
                for group, places in wanted.items():
                    for p in places:
                        self._want_operand(group, n, p)
            return
        if n.op in CALLS:
            if n in self.stored or wanted or n in self.parts:
                self._place_parts(n, {})
                self._call(n)
        elif n.op == "item":
            if n in self.stored or wanted or n in self.parts:
                self._place_parts(n, {})
                self._store(n.operands[0], -1, "call")
                self.buffers[n.operands[0]] = max(self.buffers.get(n.operands[0], -1), self._latest(n, wanted))
                self.stored.setdefault(n, "call")
        elif n.op in WRITES:
            few = n.op == "concat" and self.enabled and 0 < len(self.parts.get(n, ())) <= PLACES
            # The parts of a part of other concatenations are parts of those. If others read it too, they are stored
            # twice, which is less than a copy of the whole.
            if few and ((n not in self.stored and not wanted) or all(buffer_of(x) is x for x in n.operands)):
                for target, at, number in self.parts.pop(n):
                    self._concat_into(n, target, at, number)
            if n in self.stored or wanted or n in self.parts:
                self._place_parts(n, {})
                self._write(n, wanted)
        elif n.op in REDUCTIONS:
            if n in self.stored or wanted or n in self.parts:
                self._reduction(n, wanted)
        elif n.op in SOURCES:
            if n in self.stored or n in self.parts:
                self._root(n, wanted, self.stored.get(n, "part"))
        elif n in self.stored or n in self.parts:
            self._root(n, wanted, self.stored.get(n, "part"))
        elif wanted:
            why = self._why_store(n, wanted)
            if why:
                self._root(n, wanted, why)
            else:
                for group, places in wanted.items():
                    for p in places:
                        self._inline(group, n, p)

    def _latest(self, n: Node, wanted: dict[Group, list[Place]]) -> int:
        """The number of the earliest-running unit that reads n."""
        return max([self.buffers.get(n, -1), *(gr.number for gr in wanted)])

    def _why_store(self, n: Node, wanted: dict[Group, list[Place]]) -> str:
        """Why this elementwise or movement value is stored; '' to inline it."""
        if n.op in MOVEMENT:
            return ""
        cheap = self.at_each[n] <= CHEAP
        places = sum(len(ps) for ps in wanted.values())
        if not self.enabled and (self.cost[n] > 0 or n.op == "cast"):
            return "fusion is off"
        if n in self.whole:
            return "checks"
        if widens(n):
            return ""
        if places > 1 and not cheap and not self.is_light(n, places) and not self._is_near_stored(n):
            return "places"
        piece = self._piece(n)
        for group, ps in wanted.items():
            if group.piece != piece and not (cheap and self.again):
                return "needs"
            if group.size >= MAX_GROUP:
                return "size"
            if not cheap and any(self._repeated(group, p, self.cost[n] >= COSTLY) for p in ps):
                return "repeated"
        return ""

    def _is_near_stored(self, n: Node) -> bool:
        """Whether n is cheap to compute from one costly operand that others read too, and that takes no more memory.

        That one is then stored, for all of them: 1 + tanh(x) is not stored where tanh(x) is.
        """
        costly = {x for x in n.operands if self.cost[x] > CHEAP}
        if len(costly) != 1 or self.users[n] < 2:
            return False
        (x,) = costly
        rest = self.cost[n] - n.operands.count(x) * self.cost[x]
        return (
            x.op in ELEMENTWISE
            and ELEMENTWISE[x.op].costly
            and self.users[x] > n.operands.count(x)
            and x.shape == n.shape
            and x.dtype.itemsize <= n.dtype.itemsize
            and rest <= CHEAP
        )

    def _piece(self, n: Node) -> int:
        return self.pieces.get(n, 0)

    def _repeated(self, group: Group, place: Place, rows: bool) -> bool:
        """Whether the value would be computed again along an outer axis that it lacks, with one that it has inside.

        Along inner axes that it lacks it is hoisted out of the loop. With `rows`, those are inside of all outer axes.
        """
        used = {a for x in group.normal(place).indices for a, _ in x.terms}
        missing = False
        for a in (*group.outer, *(group.rows if rows else ())):
            if a in used and missing:
                return True
            missing = missing or (a not in used and not is_one(a))
        return False

    # Requests

    def _want(self, group: Group, n: Node, place: Place) -> None:
        if n.op == "input":  # it is there, wherever it is read
            return
        if n in self.graph.kept and not any(r.node in self.graph.kept for r in group.roots):
            self._store(n, group.number, "packed")
            return
        places = self.wanted.setdefault(n, {}).setdefault(group, [])
        if place not in places:
            places.append(place)

    def _inline(self, group: Group, n: Node, place: Place) -> None:
        """Request what n needs at this place of the group."""
        group.size += 1 if n.op in FUSED else 0
        if n.op == "gather":
            x, *indices = n.operands
            if x.op != "iota":
                self._store(x, group.number, "gathered")
            k = indices[0].ndim
            for i in indices:
                self._want(group, i, Place(place.indices[:k], place.guards))
        elif n.op in MOVEMENT:
            self._want_operand(group, n, place)
            if n.op == "pad":
                self._want(group, n.operands[1], Place((), place.guards))
        else:
            group.costly += n.op in ELEMENTWISE and ELEMENTWISE[n.op].costly
            for x in n.operands:
                if not (
                    n.op in ("real", "imag") and buffer_of(x).op in ("input", "item", "matmul", "scalar", "concat")
                ):
                    self._want(group, x, place)
                elif x.op != "scalar":
                    self._store(x, group.number, "complex")

    def _want_operand(self, group: Group, n: Node, place: Place) -> None:
        """Through a movement operation: its operand at the mapped place, splitting an axis where that helps."""
        x = n.operands[0]
        if n.op == "reshape" and (buffer_of(x) in self.stored or buffer_of(x).op == "input"):
            self._store(x, group.number, "reshaped")
            return
        while True:
            p = through(self.scope, n, group.normal(place))
            if isinstance(p, Split) and p.axis in group.outer:
                self._split(group, p)
                continue
            break
        if isinstance(p, Place):
            self._want(group, x, p)
        else:
            self._store(x, group.number, "axes")

    def _split(self, group: Group, s: Split) -> None:
        axes = [AxisVar(e) for e in s.extents]
        i = group.outer.index(s.axis)
        group.outer[i : i + 1] = axes
        stride: int | Dim = 1
        terms = []
        for a in reversed(axes):
            terms.append(axis_index(a).times(stride))
            stride = stride * a.extent
        group.splits.append((s.axis, add(*terms)))
        self.siblings.reform(group)

    # Roots

    def _copy_group(self, n: Node, why: str) -> tuple[Group, Place]:
        """A group over n's elements, and over both words of each where a word is half an element."""
        outer, place = whole(n.shape)
        pair = AxisVar(2) if are_halves(n) else None
        group = self._new_group(n, outer if pair is None else (*outer, pair), (), "outer", why)
        group.pair = pair
        return group, place

    def _new_group(self, n: Node, outer: Sequence[AxisVar], rows: Sequence[AxisVar], vector: str, why: str) -> Group:
        """A group that will store n."""
        group = Group(self._number(), list(outer), list(rows), vector, why=why, piece=self._piece(n))
        group.late, group.moment = n in self.held.late, self.held.moments.get(n)
        self.units.append(group)
        return group

    def _root(self, n: Node, wanted: dict[Group, list[Place]], why: str) -> None:
        """Store n: in the newest group that reads it, in a sibling, or in a group of its own."""
        # A value that is only a part of concatenations is stored there, and nowhere else.
        if why != "part" or wanted:
            self.stored.setdefault(n, why)
        latest = self._latest(n, wanted)
        parts = self.parts.pop(n, [])
        latest = max([latest, *(num for _, _, num in parts)])
        exclusive = max([self.buffers.get(n, -1), *(num for _, _, num in parts)])
        # NOTE: what is copied by halves has an axis of its own for them, which no sibling has.
        group = self._joinable(n, wanted, latest, exclusive) if self.enabled and not are_halves(n) else None
        if group is None:
            found = self._copy_group(n, why)
        else:
            found = group
        gr, place = found
        if n in self.stored:
            gr.roots.append(Root(n, place, n))
        for target, at, _ in parts:
            gr.roots.append(Root(n, place, target, at))
        self.siblings.join(gr, n)
        if n.op in SOURCES:
            return
        self._inline(gr, n, place)

    def _place_parts(self, n: Node, wanted: dict[Group, list[Place]]) -> None:
        """Copy a buffer into the parts of concatenations that it makes up.

        NOTE: before what writes the buffer is numbered, so that the copies run after it.
        """
        for target, at, _ in self.parts.pop(n, []):
            gr, place = self._copy_group(n, "part")
            gr.roots.append(Root(n, place, target, at))
            self.buffers[n] = max(self.buffers.get(n, -1), gr.number)

    def _joinable(
        self, n: Node, wanted: dict[Group, list[Place]], latest: int, exclusive: int
    ) -> tuple[Group, Place] | None:
        """The newest group that n may be stored by: one that wants it at each of its points, or a sibling over them."""
        least = max(latest, exclusive + 1)
        sibling = self._sibling(n, ("map", self._piece(n), *n.shape), least, wanted)
        for group in self._readers_to_join(n, wanted, least if sibling is None else max(least, sibling.number + 1)):
            # NOTE: a chain cut for its length must not join what it was cut from.
            if len(wanted[group]) == 1 and self.stored.get(n) != "size":
                place = group.normal(wanted[group][0])
                if self._covers(group, n, place):
                    return group, place
        if sibling is None:
            return None
        same = self._identity([*sibling.outer, *sibling.rows], n.shape) or self._identity(sibling.outer, n.shape)
        assert same is not None, "it was found by its axes"
        return sibling, same

    def _sibling(self, n: Node, form: Form, least: int, wanted: dict[Group, list[Place]]) -> Group | None:
        """The newest group over n's axes that has an operand in common with it and does not read it."""
        late, moment = n in self.held.copies, self.held.moments.get(n)

        def takes(group: Group) -> bool:
            return (group.late or not late) and group.moment == moment

        return self.siblings.newest(n, form, least, wanted, takes)

    def _readers_to_join(self, n: Node, wanted: dict[Group, list[Place]], least: int) -> list[Group]:
        """The groups of n's piece with capacity among those that want it, from a number on; the newest first."""
        piece = self._piece(n)
        found = [group for group in wanted if group.number >= least and group.piece == piece and has_capacity(group)]
        return sorted(found, key=lambda group: -group.number)

    def _covers(self, group: Group, n: Node, p: Place) -> bool:
        """Whether p is one-to-one between all of n and all axes of the group, or its outer axes."""
        used = self._axes_over(n, p, whole=True)
        if used is None:
            return False
        covered = {a for a in used if not is_one(a)}
        outer = {a for a in group.outer if not is_one(a)}
        return covered in (outer, outer | {a for a in group.rows if not is_one(a)})

    def _axes_over(self, n: Node, p: Place, whole: bool) -> list[AxisVar] | None:
        """The axes whose digits p has as indices, each once; with `whole`, over all of n. None where it has others."""
        if p.guards:
            return None
        used: list[AxisVar] = []
        for x, d in zip(p.indices, n.shape, strict=True):
            own = axes_of_digits(x)
            # NOTE: a slice that starts at 0 is an index without an offset, over a part of n.
            if own is None or (whole and not self._equal(product(a.extent for a in own), d)):
                return None
            used.extend(own)
        return used if len(set(used)) == len(used) else None

    def _identity(self, axes: Sequence[AxisVar], shape: g.Shape) -> Place | None:
        """The place of a value whose axes are exactly these."""
        if not shape and all(is_one(a) for a in axes):
            return Place(())
        if len(axes) == len(shape) and all(self._equal(a.extent, d) for a, d in zip(axes, shape, strict=True)):
            return Place(tuple(axis_index(a) for a in axes))
        return None

    def _equal(self, a: int | Dim, b: int | Dim) -> bool:
        return a is b or a == b or (self.scope is not None and self.scope.known_equal(a, b))

    # Reductions

    def _reduction(self, n: Node, wanted: dict[Group, list[Place]]) -> None:
        assert isinstance(n.attrs, g.Axes)
        x, axes = n.operands[0], n.attrs.axes
        mode = lanes_of(n, self.scope)
        reduced = [x.shape[a] for a in axes]
        parts = self.parts.pop(n, [])
        latest = max([self._latest(n, wanted), *(num for _, _, num in parts)])
        exclusive = max([self.buffers.get(n, -1), *(num for _, _, num in parts)])
        stored = n in self.stored or bool(parts)
        found = self._row_group(n, wanted, latest, exclusive, mode, reduced, stored) if self.enabled else None
        if found is None:
            outer = [AxisVar(d) for d in n.shape] or [AxisVar(1)]
            rows = [AxisVar(d) for d in reduced]
            place = Place(tuple(axis_index(a) for a in outer[: n.ndim]))
            found = (self._new_group(n, outer, rows, mode, self.stored.get(n, "reduction")), place)
        group, place = found
        if stored or any(gr is not group for gr in wanted):
            divided = any(gr.piece != group.piece for gr in wanted)
            self.stored.setdefault(n, "needs" if divided else "reduction")
            group.roots.append(Root(n, place, n))
        for target, at, _ in parts:
            group.roots.append(Root(n, place, target, at))
        rows_iter = iter(group.rows)
        kept_iter = iter(place.indices)
        operand = Place(tuple(axis_index(next(rows_iter)) if i in axes else next(kept_iter) for i in range(x.ndim)))
        group.reductions[n] = operand
        group.size += 1
        self.siblings.join(group, n)
        self._want(group, x, operand)

    def _row_group(
        self, n: Node, wanted: dict[Group, list[Place]], latest: int, exclusive: int, mode: str,
        reduced: list[int | Dim], stored: bool,
    ) -> tuple[Group, Place] | None:  # fmt: skip
        least = max(latest, exclusive + 1)
        outer = n.shape or (1,)
        sibling = self._sibling(n, (mode, self._piece(n), len(outer), *outer, *reduced), least, wanted)
        for group in self._readers_to_join(n, wanted, least if sibling is None else max(least, sibling.number + 1)):
            if len(wanted[group]) == 1:
                place = group.normal(wanted[group][0])
                if self._stage(group, n, place, mode, reduced, stored or len(wanted) > 1):
                    self.siblings.reform(group)
                    return group, place
        if sibling is None:
            return None
        return sibling, Place(tuple(axis_index(a) for a in sibling.outer[: n.ndim]))

    def _stage(
        self, group: Group, n: Node, place: Place, mode: str, reduced: list[int | Dim], whole: bool
    ) -> bool:  # fmt: skip
        """Make n an earlier stage of the group that spreads it back over its rows, if their axes agree.

        whole: n is stored too, so the group has to compute all of it, not the part that it reads.
        """
        used = self._axes_over(n, place, whole)
        if used is None:
            return False
        if group.rows:
            outer = {a for a in group.outer if not is_one(a)}
            return (
                group.vector == mode
                and {a for a in used if not is_one(a)} == outer
                and len(group.rows) == len(reduced)
                and all(self._equal(a.extent, d) for a, d in zip(group.rows, reduced, strict=True))
            )
        rest = [a for a in group.outer if a not in used]
        if all(is_one(a) for a in rest) and reduced and not stands_apart(group.costly, used, mode, reduced):
            # The group only reads the result: it becomes the end of the reduction's own kernel.
            group.outer = used or [AxisVar(1)]
            group.rows = [AxisVar(d) for d in reduced]
            group.vector = mode
            return True
        if len(rest) > len(reduced):
            rest = [a for a in rest if not is_one(a)]
        if len(rest) != len(reduced) or not is_parallel(n, used, mode):
            return False
        if not all(self._equal(a.extent, d) for a, d in zip(rest, reduced, strict=True)):
            return False
        group.outer = used or [AxisVar(1)]
        group.rows = rest
        group.vector = mode
        return True

    # Calls and writes into parts

    def _call(self, n: Node) -> None:
        call = Call(self._number(), n)
        self.units.append(call)
        self.stored.setdefault(n, "call")
        if is_attention(n):
            for base, _, _ in attention_operands(self.scope, n):
                self._store(base, call.number, n.op)
            return
        product = n.op == "matmul" or n.op in CONVOLUTIONS
        views = operands_of_call(self.scope, n, self.target) if product else []
        for x in [base for base, _, _ in views] or (scattered(n) if n.op == "scatter" else n.operands):
            self._store(x, call.number, n.op)

    def _write(self, n: Node, wanted: dict[Group, list[Place]]) -> None:
        """concat and update: each operand is stored directly into its part of the result."""
        self.stored.setdefault(n, n.op)
        latest = self._latest(n, wanted)
        if n.op == "update":
            assert isinstance(n.attrs, g.Slice)
            x, v = n.operands
            outer, place = whole(v.shape)
            at = Place(
                tuple(i.times(s).plus(o) for i, s, o in zip(place.indices, n.attrs.steps, n.attrs.starts, strict=True))
            )
            over = self._new_group(n, outer, (), "outer", "update")
            over.roots.append(Root(v, place, n, at))
            self._want_root(over, v, place)
            outer, place = whole(x.shape)
            copy = self._new_group(n, outer, (), "outer", "update")
            copy.roots.append(Root(x, place, n))
            self._want_root(copy, x, place)
            return
        self._concat_into(n, n, Place((Index((), 0),) * n.ndim), latest)

    def _concat_into(self, n: Node, target: Node, at: Place, latest: int) -> None:
        """The operands of a concatenation, at their places of the buffer of `target`, where its own is from `at` on."""
        assert isinstance(n.attrs, g.Axis)
        axis = n.attrs.axis
        *begins, _ = prefix_sums([x.shape[axis] for x in n.operands])
        for x, begin in zip(n.operands, begins, strict=True):
            own = tuple(i.plus(begin) if k == axis else i for k, i in enumerate(at.indices))
            offsets = Place(own)
            base = buffer_of(x)
            if x is base:
                self.parts.setdefault(x, []).append((target, offsets, latest))
            else:
                gr, place = self._copy_group(x, "part")
                gr.roots.append(Root(x, place, target, offsets))
                self._want_root(gr, x, place)

    def _want_root(self, group: Group, x: Node, place: Place) -> None:
        """The value that a group of its own computes and stores somewhere."""
        if x.op in SOURCES:
            return
        self._want(group, x, place)
