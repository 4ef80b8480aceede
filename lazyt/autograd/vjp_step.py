"""The step that pulls cotangents back, and how it and its kin are found or made."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.autograd.reachability import History, Reach
from lazyt.autograd.track import AGAIN, OWN, TRACK
from lazyt.errors import NotSupportedError
from lazyt.ir.graph import Node
from lazyt.ops.definition import OPS
from lazyt.tracing.call_site import user_line
from lazyt.tracing.current import restore_device, set_device
from lazyt.tracing.lower import Lowered
from lazyt.tracing.program import Slot
from lazyt.tracing.record import record
from lazyt.tracing.steps import follow, insert, new_step, new_tensor
from lazyt.tracing.tensor_state import Gradient, Handle
from lazyt.tracing.trace import Several, Step, Trace

if TYPE_CHECKING:
    from lazyt.autograd import reverse
else:
    reverse = on_demand.module("lazyt.autograd.reverse")

ref = weakref.ref


class VJP:
    """The kind of step that pulls cotangents back. statics: (create_graph, retain_graph, n outputs, cotangents given,
    n links); operands: the outputs, their cotangents if given, the linked pairs (see saved_segment.py), the wanted
    slots."""

    name = "backward"
    saves: tuple[int, ...] = ()
    differentiable = True
    fallible = False

    def expand(self, low: Lowered, s: Step) -> tuple[Node, ...]:
        """Write the backward graph; parts that nobody reads disappear with dead code."""
        create, _, n, given, links, _ = s.statics
        b = low.builder
        ops = [low.nodes[x] for x in s.operands[: n * 2 if given else n]]
        outputs = ops[:n]
        cotangents = ops[n:] if given else [b.expand_to(b.constant(1, o.dtype), o.shape) for o in outputs]
        rest = s.operands[len(ops) :]
        pairs = linked(low, rest[: 2 * links])
        groups = [[low.nodes[v] for v in versions] for versions in s.info]
        ends = [any(x in s.stops for x in versions) for versions in s.info]
        blocked = {n for nodes, is_end in zip(groups, ends, strict=True) if is_end for n in nodes}
        grads = _pull(b, outputs, cotangents, pairs, groups, blocked)
        return tuple(grads) if create else tuple(b.stop(x) for x in grads)

    def asked(self, s: Step) -> Iterator[Slot]:
        """The values whose cotangents it gives: each is tracked (see lower.py)."""
        return (x for group in s.info for x in group)

    def again(self, tr: Trace, s: Step, new: dict[Slot, Slot]) -> Step:
        """The same step on another trace, where `new` has its values; nothing is freed by it."""
        create, _, n, given, links, barriers = s.statics
        operands = [new[x] for x in s.operands]
        groups = tuple(tuple(new[x] for x in group) for group in s.info)
        statics = (create, True, n, given, links, frozenset(new[x] for x in barriers))
        made = special_step(tr, self, operands, statics, groups, lambda: [g[0] for g in groups])
        if made.leaves is None:
            made.stops = statics[5]
            for slot, old in zip(made.slots, s.slots, strict=True):
                slot.requires_grad = old.requires_grad
            # NOTE: last, for it says that the rest is there.
            made.leaves = ()
        return made


def linked(low: Lowered, slots: Sequence[Slot]) -> list[tuple[Node, Node]]:
    """Pairs of a leaf and the value that it stands for, whose extents have names of their own: they are equal."""
    pairs = [(low.nodes[leaf], low.nodes[origin]) for leaf, origin in zip(slots[::2], slots[1::2], strict=True)]
    for leaf, origin in pairs:
        for d, e in zip(leaf.shape, origin.shape, strict=True):
            low.scope.unify(d, e)
    return pairs


def _pull(
    b: Any, outputs: Sequence[Node], cotangents: Sequence[Node], pairs: Sequence[tuple[Node, Node]],
    groups: Sequence[list[Node]], blocked: set[Node],
) -> list[Node]:  # fmt: skip
    """Cotangents of each group; across a sync, a leaf of this trace hands its cotangent to the value it stands for."""
    # Leaves that stand for one value are one group: its cotangent is complete before it is pulled on, as in one trace.
    origins: dict[Node, list[Node]] = {}
    for leaf, origin in pairs:
        origins.setdefault(origin, []).append(leaf)
    wanted = [*groups, *origins.values()]
    grads, got = reverse.backward(b, outputs, cotangents, wanted, blocked)
    totals, seen = list(grads), list(got)
    for i, origin in enumerate(origins):
        if not seen[len(groups) + i]:
            continue
        grads, got = reverse.backward(b, [origin], [totals[len(groups) + i]], wanted, blocked)
        for j, (m, ok) in enumerate(zip(grads, got, strict=True)):
            if ok:
                totals[j] = b.add(totals[j], m) if seen[j] else m
                seen[j] = True
    return totals[: len(groups)]


BACKWARD = VJP()


def special_step(
    tr: Trace,
    op: Any,
    operands: Sequence[Slot],
    statics: tuple[Any, ...],
    extra: Any,
    make: Callable[[], Sequence[Slot]],
) -> Step:
    """The step of a special operation; `make` checks it and gives slots of its results when it is new."""
    while True:
        s = find_special(tr, op, operands, statics, extra, make)
        # NOTE: no call from here on. Behind what a handler of signals has recorded meanwhile it is another step.
        if s.parent is tr.pos:
            s.ext = tr.ext
            tr.results[s.index] = None
            tr.pos = s
            return s


def again_step(tr: Trace, slot: Slot, meta: Gradient) -> Step:
    """The step whose value, a view derived anew, stands for the one of an earlier trace that a record is of."""
    s = special_step(tr, AGAIN, (slot,), (), (), lambda: (slot,))
    s.requires_grad, s.leaf = True, s
    # NOTE: it must outlast a write to the tensor.
    tr.metas[s.index] = lambda: meta
    return s


def track_step(tr: Trace, slot: Slot) -> Step:
    """The step whose value is `slot`, as an identity of its own that a transform asks for gradients by."""
    s = special_step(tr, TRACK, (slot,), (OWN,), (), lambda: (slot,))
    s.requires_grad, s.leaf = True, s
    return s


def find_special(
    tr: Trace, op: Any, operands: Sequence[Slot], statics: tuple[Any, ...], extra: Any,
    make: Callable[[], Sequence[Slot]],
) -> Step:  # fmt: skip
    plain = (op, tuple(operands), statics, extra)
    key: Any = (*plain, *user_line(2)) if tr.pos.parent is None else plain
    s = follow(tr, key)
    pos = tr.pos
    if s is None:
        like = make()
        s = new_step(pos, op, tuple(operands), statics, key, len(like))
        s.ext = tr.ext
        for slot, x in zip(s.slots, like, strict=True):
            slot.dtype, slot.shape = x.dtype, x.shape
        s.info = extra
        s.like = tuple(like)
        insert(tr, s, key)
    else:
        for slot, x in zip(s.slots, s.like, strict=True):
            slot.shape = x.shape
    return s


# Whether gradients can be differentiated again; BY_OTHERS: by anything but what they are asked for, which is a
# transform's own.
Create = bool | str
BY_OTHERS = "others"

Groups = Sequence[tuple[Slot, ...]]
Links = Sequence[tuple[Slot, Slot]]


def vjp_step(
    tr: Trace, outputs: Sequence[Slot], cotangents: Sequence[Slot], groups: Groups, links: Links,
    create: Create, retain: bool, reach: Reach,
) -> list[Handle]:  # fmt: skip
    """Record one pull-back; checked against freed graphs and overwritten values when it is new."""
    operands = (*outputs, *cotangents, *(x for pair in links for x in pair))
    statics = (create, retain, len(outputs), bool(cotangents), len(links), frozenset(reach.barriers))

    def steps() -> Sequence[Step]:
        """Those that the cotangents pass: what lies before all that is wanted is neither read nor freed."""
        partly = not (links or reach.synced or reach.barriers)
        return reach.leading_to({x for g in groups for x in g}) if partly else reach.steps

    def make() -> Sequence[Slot]:
        if tr.history is None:
            tr.history = History()
        tr.history.reach(tr.pos)
        tr.history.check(steps())
        return [g[0] for g in groups]

    _check_calls(
        (reach, *(Reach([origin], None) for _, origin in links)), {x for some in (*groups, *links) for x in some}
    )
    s = special_step(tr, BACKWARD, operands, statics, tuple(groups), make)
    if s.leaves is None:
        s.stops = frozenset(reach.barriers)
        varies = create is True or (
            create == BY_OTHERS and (_varies(reach, groups) or any(c.requires_grad for c in cotangents))
        )
        for slot in s.slots:
            slot.requires_grad = varies
        # NOTE: last, for it says that the rest is there.
        s.leaves = () if retain else frozenset(steps())
    handles = [new_tensor(slot) for slot in s.slots[: len(groups)]]
    if len(handles) == 1:
        tr.refs[s.index] = ref(handles[0])
    elif handles:
        tr.refs[s.index] = Several(map(ref, handles))
    return handles


def may_refuse(steps: Sequence[Step]) -> bool:
    """Whether one of these steps has no gradient for some shapes or arguments."""
    return any(getattr(s.op, "refuses", None) is not None for s in steps)


def _check_calls(reaches: Sequence[Reach], wanted: set[Slot]) -> None:
    """Raise NotSupportedError where cotangents go to `wanted` through a step that has no gradient as it is called."""
    for reach in reaches:
        for s in reach.leading_to(wanted) if may_refuse(reach.steps) else ():
            refuses = getattr(s.op, "refuses", None)
            asked = [x.k for x in s.slots if x in reach.through]
            why = "" if refuses is None else refuses(s.statics, s.operands[0].shape, asked)
            if why:
                raise NotSupportedError(f"backward: {why} ({s.op.name}, recorded at {s.site})")


def zeros_of(slot: Slot) -> Handle:
    """The cotangent of what nothing depends on, on its device."""
    return _filled("zeros", slot)


def _filled(name: str, slot: Slot) -> Handle:
    before = set_device(slot.step.device)
    try:
        made: Handle = record(OPS[name], (), (slot.dtype,), slot.shape)
    finally:
        restore_device(before)
    return made


def _varies(reach: Reach, groups: Sequence[tuple[Slot, ...]]) -> bool:
    """Whether gradients by `groups` depend on a value that something else may differentiate by."""
    own = {s.leaf for g in groups for s in g if s.step.op is TRACK and s.step.statics}
    return bool(reach.synced or reach.barriers) or any(leaf not in own for leaf in reach.leaves)


def ones_of(slot: Slot) -> Handle:
    """The cotangent that a backward begins with."""
    return _filled("ones", slot)


def read_by(s: Step) -> set[Slot]:
    """The values that the expansion of a backward step reads: all that it passes through, to where it ends."""
    n = s.statics[2] * (2 if s.statics[3] else 1)
    todo: list[Any] = [*s.operands[: s.statics[2]], *s.operands[n:]]
    found: set[Slot] = set()
    while todo:
        x = todo.pop()
        if x in found or not x.requires_grad:
            continue
        found.add(x)
        if x in s.stops or (x.leaf is not None and x.step.op is not TRACK):
            continue
        todo += [y for y in x.step.operands if isinstance(y, Slot)]
        if x.step.op is BACKWARD:
            todo += read_by(x.step)
    return found
