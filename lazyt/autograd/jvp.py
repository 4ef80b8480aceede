"""Forward mode over the recorded program: pushing tangents forward is a step like any other, and runs nothing.

A function's inputs get an identity of their own (`PRIMAL`). The expansion of a `JVP` step pushes their tangents through
the primitives between them and the outputs, so a tangent is again part of the program.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lazyt.autograd.custom import inputs_of
from lazyt.autograd.forward import push
from lazyt.autograd.reachability import Reach, refuse_again
from lazyt.autograd.rules.formula import zeros
from lazyt.autograd.saved_segment import Passed, link_synced
from lazyt.autograd.vjp_step import special_step
from lazyt.errors import NotSupportedError
from lazyt.ops.definition import OpDef
from lazyt.tracing.commit import undisturbed
from lazyt.tracing.record import begin, record, slot_of
from lazyt.tracing.steps import new_tensor
from lazyt.tracing.tensor_state import Gradient, Handle
from lazyt.tracing.trace import Several, Slot, Step, Trace

if TYPE_CHECKING:
    from lazyt.ir.graph import Node
    from lazyt.tracing.lower import Lowered

ref = weakref.ref
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
        nodes = [low.nodes[x] for x in s.operands]
        outputs, seeds = nodes[:n], dict(zip(nodes[n : n + m], nodes[n + m : n + 2 * m], strict=True))
        rest = nodes[n + 2 * m :]
        # A leaf of this trace has the tangent of the value that it stands for: the earliest sync's first.
        for leaf, origin in reversed([*zip(rest[::2], rest[1::2], strict=True)]):
            (t,) = push(b, [origin], list(seeds), list(seeds.values()))
            if t is not None:
                seeds[leaf] = t
        found = push(b, outputs, list(seeds), list(seeds.values()))
        ts = [zeros(b, y.shape, y.dtype) if t is None else t for t, y in zip(found, outputs, strict=True)]
        return stopped(b, s, ts)

    def again(self, tr: Trace, s: Step, new: dict[Slot, Slot]) -> Step:
        """The same step on another trace, where `new` has its values."""
        n, m, links = s.statics
        if links:
            raise refuse_again(s)
        return _jvp_step(tr, [new[x] for x in s.operands], (n, m, links), s.requires_grad)

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

    tracked: the inputs as leaves, by which they are known again across a sync; primals: the same, as the function got
    them.
    """

    def __init__(self, outputs: Sequence[Handle], tracked: Sequence[Handle], primals: Sequence[Handle]) -> None:
        self.outputs = list(outputs)
        self.tracked = list(tracked)
        self.primals = list(primals)
        self.records: list[Any] = [x._meta for x in tracked]

    def values(self) -> list[Handle]:
        """The outputs, without a graph where nobody else may differentiate them."""
        return self.outputs if self._others() else [record(STOP, (y,)) for y in self.outputs]

    def _others(self) -> bool:
        tr = begin()
        reach = Reach([slot_of(tr, y) for y in self.outputs], None)
        return bool(reach.synced) or any(_foreign(m, self.records) for m in _metas(tr, reach))

    def push(self, tangents: Sequence[Handle], grad: bool) -> list[Handle]:
        """The tangents of the outputs; `grad` says whether they may be differentiated in turn."""
        return _pushed(begin(), self, tangents, grad)


def _metas(tr: Trace, reach: Reach) -> list[Gradient]:
    """The records of the leaves; of one whose tensor is gone nobody can ask a gradient."""
    found = [tr.metas.get(leaf.step.index) for leaf in reach.leaves]
    return [m for r in found if r is not None and (m := r()) is not None]


def _foreign(m: Gradient, records: Sequence[Gradient]) -> bool:
    return not any(m is r for r in records)


@undisturbed
def _pushed(tr: Trace, f: Linear, tangents: Sequence[Handle], grad: bool) -> list[Handle]:
    outs = [slot_of(tr, y) for y in f.outputs]
    ts = [slot_of(tr, t) for t in tangents]
    _check_custom(tr, outs, f.records)
    passed = Passed()
    reach = Reach(outs, None)
    links, versions = link_synced(tr, reach, passed)
    if any(m.crossing is not None for m in versions):
        raise NotSupportedError(
            "not supported: jvp of a function that moves values to another device, because a transfer ends the "
            "program; use vjp, or move them outside"
        )
    if passed or reach.synced:
        pairs = [(x, t) for m, t in zip(f.records, ts, strict=True) for x in versions.get(m, ())]
    else:
        pairs = [(slot_of(tr, x), t) for x, t in zip(f.primals, ts, strict=True)]
    others = any(_foreign(m, f.records) for m in versions)
    varies = grad and (others or any(t.requires_grad for t in ts))
    operands = (*outs, *(x for x, _ in pairs), *(t for _, t in pairs), *(x for pair in links for x in pair))
    s = _jvp_step(tr, operands, (len(outs), len(pairs), len(links)), varies)
    return several(tr, s)


def _check_custom(tr: Trace, outs: Sequence[Slot], records: Sequence[Gradient]) -> None:
    """A rule for cotangents says nothing about tangents."""
    if not tr.customs:
        return
    for slot in Reach(outs).barriers:
        inputs = inputs_of(slot.step)
        metas = _metas(tr, Reach(inputs, None))
        # NOTE: a checkpoint has no inputs: what it depends on is found out when it is called again.
        if not inputs or any(not _foreign(m, records) for m in metas):
            raise NotSupportedError(
                f"not supported: jvp through a custom_vjp, an autograd.Function or a checkpoint (recorded at "
                f"{slot.step.site}), because its rule is for reverse mode alone; use vjp, grad or jacrev"
            )
