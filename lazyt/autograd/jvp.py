"""Forward mode over the recorded program: pushing tangents forward is a step like any other, and runs nothing.

A function's inputs get an identity of their own (`PRIMAL`). The expansion of a `JVP` step pushes their tangents through
the primitives between them and the outputs, so a tangent is again part of the program.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.autograd.custom import inputs_of, sources_of
from lazyt.autograd.reachability import Reach, reach_of, refuse_again
from lazyt.autograd.saved_segment import Passed, link_synced
from lazyt.autograd.track import CUSTOM, TRACK
from lazyt.autograd.vjp_step import linked, special_step
from lazyt.errors import NotSupportedError
from lazyt.ops.definition import OpDef
from lazyt.tracing.commit import undisturbed
from lazyt.tracing.program import Slot
from lazyt.tracing.record import begin, record, slot_of
from lazyt.tracing.steps import new_tensor
from lazyt.tracing.tensor_state import Gradient, Handle
from lazyt.tracing.trace import Several, Step, Trace

if TYPE_CHECKING:
    from lazyt.autograd import forward
    from lazyt.autograd.rules import formula
    from lazyt.ir.graph import Node
    from lazyt.tracing.lower import Lowered
else:
    forward = on_demand.module("lazyt.autograd.forward")
    formula = on_demand.module("lazyt.autograd.rules.formula")

ref = weakref.ref
# A value on the way whose tangent is known.
Known = tuple[Handle, Handle]
STOP = OpDef("detach", lambda b, x: b.stop(x), differentiable=False)


class Primal:
    """The kind of step whose value is its operand, as the one that tangents are given for."""

    name = "primal"
    saves: tuple[int, ...] = ()
    differentiable = True
    fallible = False

    def expand(self, low: Lowered, s: Step) -> tuple[Node, ...]:
        """A `track` node."""
        return (low.track(low.nodes[s.operands[0]], s, 0),)

    def again(self, tr: Trace, s: Step, new: dict[Slot, Slot]) -> Step:
        """The same step on another trace, where `new` has its values."""
        return _primal_step(tr, new[s.operands[0]])


class JVP:
    """The kind of step that pushes tangents forward. statics: numbers of outputs, of inputs, of links; operands: the
    outputs, the inputs, a tangent for each input, the linked pairs (see saved_segment.py)."""

    name = "jvp"
    saves: tuple[int, ...] = ()
    differentiable = True
    fallible = False

    def expand(self, low: Lowered, s: Step) -> tuple[Node, ...]:
        """Write the graph of the tangents."""
        n, m, _ = s.statics
        b = low.builder
        nodes = [low.nodes[x] for x in s.operands[: n + 2 * m]]
        outputs, seeds = nodes[:n], dict(zip(nodes[n : n + m], nodes[n + m :], strict=True))
        # A leaf of this trace has the tangent of the value that it stands for: the earliest sync's first.
        for leaf, origin in reversed(linked(low, s.operands[n + 2 * m :])):
            (t,) = forward.push(b, [origin], list(seeds), list(seeds.values()))
            if t is not None:
                seeds[leaf] = t
        found = forward.push(b, outputs, list(seeds), list(seeds.values()))
        ts = [formula.zeros(b, y.shape, y.dtype) if t is None else t for t, y in zip(found, outputs, strict=True)]
        return stopped(b, s, ts)

    def again(self, tr: Trace, s: Step, new: dict[Slot, Slot]) -> Step:
        """The same step on another trace, where `new` has its values."""
        n, m, links = s.statics
        if links:
            raise refuse_again(s)
        return _jvp_step(tr, [new[x] for x in s.operands], (n, m, links), s.requires_grad)

    def reads(self, s: Step) -> set[Slot]:
        """The values that it reads besides its operands: all that it pushes through, and what they are made of."""
        n, m, links = s.statics
        ends: set[Any] = {*s.operands[n : n + m]}
        todo: list[Any] = [] if links else [*s.operands[:n]]
        found: set[Slot] = set()
        while todo:
            x = todo.pop()
            if x in found or not x.requires_grad:
                continue
            found.add(x)
            if x not in ends and (x.leaf is None or x.step.op is TRACK):
                todo += [y for y in x.step.operands if isinstance(y, Slot)]
        return found

    def opened_by(self, s: Step) -> list[Step]:
        """The steps behind which it pushes tangents through all; none where it is by leaves, across a sync."""
        n, m, links = s.statics
        return [] if links else [x.step for x in s.operands[n : n + m]]


PRIMAL, PUSH = Primal(), JVP()


def stopped(b: Any, s: Step, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The values of a special step: cut off where gradients were not recorded."""
    if any(isinstance(x, Slot) and x.requires_grad for x in s.operands):
        return tuple(n if slot.requires_grad else b.stop(n) for slot, n in zip(s.slots, nodes, strict=True))
    return tuple(nodes)


def _primal_step(tr: Trace, slot: Slot) -> Step:
    s = special_step(tr, PRIMAL, (slot,), (), (), lambda: (slot,))
    s.requires_grad = slot.requires_grad
    return s


def primal(x: Handle) -> Handle:
    """A new identity of x that tangents can be given for."""
    return _primal(begin(), x)


@undisturbed
def _primal(tr: Trace, x: Handle) -> Handle:
    s = _primal_step(tr, slot_of(tr, x))
    h = new_tensor(s)
    tr.refs[s.index] = ref(h)
    return h


def _jvp_step(tr: Trace, operands: Sequence[Slot], statics: tuple[int, int, int], varies: bool) -> Step:
    outputs = operands[: statics[0]]
    s = special_step(tr, PUSH, operands, statics, (), lambda: outputs)
    for slot in s.slots:
        slot.requires_grad = varies
    return s


def several(tr: Trace, s: Step) -> list[Handle]:
    """New handles for the values of a special step that was just taken."""
    handles = [new_tensor(slot) for slot in s.slots]
    if len(handles) == 1:
        tr.refs[s.index] = ref(handles[0])
    elif handles:
        tr.refs[s.index] = Several(map(ref, handles))
    return handles


class Linear:
    """A function of tensors at a point: its outputs there, and what tangents of its inputs make of them.

    tracked: the inputs as leaves, by which they are known again across a sync; primals: the values that the function
    got, on the trace of this number. It may have written them since.
    """

    def __init__(
        self, outputs: Sequence[Handle], tracked: Sequence[Handle], primals: Sequence[Slot], number: int
    ) -> None:  # fmt: skip
        self.outputs = list(outputs)
        self.tracked = list(tracked)
        self.primals, self.number = list(primals), number
        self.records: list[Any] = [x._meta for x in tracked]

    def values(self) -> list[Handle]:
        """The outputs, without a graph where nobody else may differentiate them."""
        return self.outputs if self._others() else [record(STOP, (y,)) for y in self.outputs]

    def close(self) -> None:
        """No more tangents are pushed: what rules of custom functions keep of the inputs is no graph of anybody's."""
        close(self.records)

    def _others(self) -> bool:
        return others_lead_to(begin(), self.outputs, self.records)

    def push(self, tangents: Sequence[Handle], grad: bool) -> list[Handle]:
        """The tangents of the outputs; `grad` says whether they may be differentiated in turn."""
        return _pushed(begin(), self, self.outputs, tangents, self._through_customs(tangents, grad), grad)

    def _through_customs(self, tangents: Sequence[Handle], grad: bool) -> list[Known]:
        """The results of custom functions on the way, with their tangents by their own rules."""
        found: list[Known] = []
        tr = begin()
        for step in _customs(tr, [slot_of(tr, y) for y in self.outputs], self.records):
            inputs, number = inputs_of(step), tr.number
            there = _pushed(tr, self, [new_tensor(x) for x in inputs], tangents, found, grad) if inputs else []
            results = [new_tensor(x) for x in step.slots]
            made = tr.customs[step].push(step, there)
            if made is None:
                raise NotSupportedError(
                    "not supported: jvp through a custom_vjp, an autograd.Function or a checkpoint (recorded at "
                    f"{step.site}), because its rule is for reverse mode alone; use vjp, grad or jacrev"
                )
            if tr.number != number:
                raise NotSupportedError(
                    f"not supported: jvp through a custom function (recorded at {step.site}) whose forward rule syncs, "
                    "because that ends the program that tangents are pushed through; take the sync out of it"
                )
            found += zip(results, made, strict=True)
        return found


def others_lead_to(tr: Trace, values: Sequence[Handle], records: Sequence[Gradient]) -> bool:
    """Whether values can be differentiated by anything but what these records are of."""
    return _is_of_others(tr, reach_of([slot_of(tr, y) for y in values]), records)


def _is_of_others(tr: Trace, reach: Reach, records: Sequence[Gradient]) -> bool:
    todo, met = [reach], set[Step]()
    while todo:
        r = todo.pop()
        if r.synced or any(_foreign(m, records) for m in _metas(tr, r)):
            return True
        for s in r.steps:
            if s.op is CUSTOM and s not in met:
                met.add(s)
                behind = sources_of(s)
                if not behind:
                    return True
                todo.append(Reach(behind, None))
    return False


def close(records: Sequence[Gradient]) -> None:
    """Nobody asks by these identities any more."""
    for m in records:
        m.closed = True


def _record(tr: Trace, leaf: Slot) -> Any:
    r = tr.metas.get(leaf.step.index)
    return None if r is None else r()


def _metas(tr: Trace, reach: Reach) -> list[Gradient]:
    """The records of the leaves by which somebody may ask for a gradient; of one whose tensor is gone nobody can."""
    return [m for leaf in reach.leaves if (m := _record(tr, leaf)) is not None and not m.closed]


def _foreign(m: Gradient, records: Sequence[Gradient]) -> bool:
    return not any(m is r for r in records)


@undisturbed
def _pushed(
    tr: Trace, f: Linear, outputs: Sequence[Handle], tangents: Sequence[Handle], known: Sequence[Known], grad: bool
) -> list[Handle]:  # fmt: skip
    outs = [slot_of(tr, y) for y in outputs]
    ts = [slot_of(tr, t) for t in tangents]
    passed = Passed()
    reach = Reach(outs, None)
    links, versions = link_synced(tr, reach, passed, whole=True)
    if any(m.crossing is not None for m in versions):
        raise NotSupportedError(
            "not supported: jvp of a function that moves values to another device, because a transfer ends the "
            "program; use vjp, or move them outside"
        )
    # NOTE: what was recorded again behind a sync has its custom functions again.
    if (passed or reach.synced) and (known or _customs(tr, [x for _, x in links], f.records)):
        raise NotSupportedError(
            "not supported: jvp through a custom function across a sync, because the program that tangents are pushed "
            "through ended there; push them before the sync, or use vjp or grad"
        )
    if passed or reach.synced or tr.number != f.number:
        pairs = [(x, t) for m, t in zip(f.records, ts, strict=True) for x in versions.get(m, ())]
    else:
        pairs = [*zip(f.primals, ts, strict=True)]
    others = any(_foreign(m, f.records) for m in versions if not m.closed) or any(t.requires_grad for t in ts)
    others = others or (any(s.op is CUSTOM for s in reach.steps) and _is_of_others(tr, reach, f.records))
    if known:
        pairs += [(slot_of(tr, x), slot_of(tr, t)) for x, t in known]
        # NOTE: a rule computes tangents of the inputs as they are tracked, by which nobody else differentiates.
        others = others or others_lead_to(tr, [t for _, t in known], f.records)
    varies = grad and others
    operands = (*outs, *(x for x, _ in pairs), *(t for _, t in pairs), *(x for pair in links for x in pair))
    s = _jvp_step(tr, operands, (len(outs), len(pairs), len(links)), varies)
    return several(tr, s)


def _customs(tr: Trace, outs: Sequence[Slot], records: Sequence[Gradient]) -> list[Step]:
    """The calls of custom functions that lead from what these records are of to the outputs, in order."""
    found: dict[Step, None] = {}
    todo = list(outs) if tr.customs else []
    while todo:
        steps = [x.step for x in Reach(todo).barriers if x.step not in found]
        found.update(dict.fromkeys(steps))
        todo = [x for s in steps for x in sources_of(s)]

    def depends(s: Step) -> bool:
        reach = Reach(sources_of(s), None)
        # NOTE: a value that was synced is known by its record alone.
        found = [*_metas(tr, reach), *(m for x in reach.synced if (m := _record(tr, x)) is not None)]
        return not sources_of(s) or any(not _foreign(m, records) for m in found)

    return sorted(filter(depends, found), key=lambda s: s.index)
