"""Reverse mode over the recorded program: `backward` and its kin are steps like any other, and run nothing.

A vector-Jacobian step asks for the cotangents of some of its program's values (`wanted`) given those of others. Its
expansion differentiates the primitives recorded so far, so a derivative is again part of the program.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any

from lazyt.autograd.hooks import retains_grad
from lazyt.autograd.parts import Parts, through_hooks
from lazyt.autograd.reachability import Reach, reach_of
from lazyt.autograd.saved_segment import (
    EMPTY,
    Asked,
    Passed,
    across_syncs,
    asked_here,
    consume,
    link_synced,
    refuse_elsewhere,
    retained,
)
from lazyt.autograd.track import TRACK, is_tracked
from lazyt.autograd.transfers import Totals, pull_across
from lazyt.autograd.vjp_step import (
    BACKWARD as BACKWARD,
    Create,
    find_special,
    may_refuse,
    ones_of,
    track_step,
    vjp_step,
)
from lazyt.errors import AutogradError, NotSupportedError, ShapeError
from lazyt.ops.definition import OPS, OpDef
from lazyt.ops.residuals import EARLIER
from lazyt.tracing.batched_writes import record_writes
from lazyt.tracing.call_site import user_site
from lazyt.tracing.commit import Change, carry_out, prepared, undisturbed
from lazyt.tracing.inplace import requires_grad
from lazyt.tracing.program import INPUT, Slot
from lazyt.tracing.record import advance, begin, meta_of, record_view, slot_of
from lazyt.tracing.steps import hooks, new_tensor, run_sync
from lazyt.tracing.tensor_state import Gradient, Handle, Holder
from lazyt.tracing.trace import Several, Step, Trace, local

ref = weakref.ref
_new = object.__new__
# References to the view of a value that was detached just now, as `getrefcount` has them; 0 where they are not counted.
_FRESH = 4 if getattr(sys, "_is_gil_enabled", lambda: True)() else 0
# Called with what each backward begins with and its gradients, once they are recorded (see gradients/anomaly.py).
watchers: list[Callable[[Sequence[Handle], list[Handle]], None]] = []


def track(x: Handle) -> Handle:
    """A new identity of x that gradients can be asked for."""
    return _track(begin(), x)


@undisturbed
def _track(tr: Trace, x: Handle) -> Handle:
    slot = slot_of(tr, x)
    s = tr.pos.next
    # Mostly the one that was recorded here the last time: `special_step`, in short. NOTE: no call in here.
    if s.op is TRACK and s.a is slot and s.statics and s.leaf is s:
        s.shape, s.ext = slot.shape, tr.ext
        tr.results[s.index] = None
        tr.pos = s
    else:
        s = track_step(tr, slot)
    h = new_tensor(s)
    # NOTE: after a sync this is how it is known again.
    h._meta = Gradient(True, is_leaf=False)
    if slot.requires_grad:  # a graph is behind it, which a sync keeps
        h._meta.slot = s
    tr.metas[s.index] = ref(h._meta)
    tr.refs[s.index] = ref(h)
    return h


def consumed_on(tr: Trace) -> frozenset[Step]:
    """The steps of this trace whose graph a backward has freed."""
    pos = tr.pos
    if pos.consumed is None:
        out: set[Step] = set()
        for s in pos.steps():
            if s.op is BACKWARD and s.leaves:
                out |= s.leaves
        pos.consumed = frozenset(out)
    found: frozenset[Step] = pos.consumed
    return found


def backward(
    loss: Handle, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
    inputs: Sequence[Handle] | None = None,
) -> None:  # fmt: skip
    """Accumulate d(loss)/d(leaf) into `.grad` of every leaf that requires it (see Tensor.backward)."""
    tr = begin()
    busy = tr.busy
    tr.busy = True
    try:
        received = _backward(tr, busy, loss, gradient, retain_graph, create_graph, inputs)
    finally:
        tr.busy = busy
    if received:
        _receive((loss,), received)
    if tr.eager:
        run_sync(tr, "eager", user_site())


def backward_of(
    outputs: Sequence[Handle], given: Sequence[Any], retain_graph: bool | None, create_graph: bool,
    inputs: Sequence[Handle] | None,
) -> None:  # fmt: skip
    """`backward` of the sum of several values."""
    tr = begin()
    busy = tr.busy
    tr.busy = True
    try:
        slots, cotangents = begin_at(tr, "backward", outputs, given)
        retain = create_graph if retain_graph is None else retain_graph
        wanted = _leaves_among(inputs)
        received = pull_all(tr, busy, slots, cotangents, reach_of(slots), wanted, create_graph, retain)
    finally:
        tr.busy = busy
    _receive(outputs, [*received.items()])
    if tr.eager:
        run_sync(tr, "eager", user_site())


def _receive(outputs: Sequence[Handle], received: Sequence[tuple[Gradient, Handle]]) -> None:
    """Leaves get their gradients, through their hooks."""
    for watch in watchers:
        watch(outputs, [h for _, h in received])
    _accumulate([(meta, _through_hooks(meta, h) if meta.hooks else h) for meta, h in received])
    for meta, _ in received:
        if meta.after:
            _after(meta)


def _leaves_among(inputs: Sequence[Handle] | None) -> Callable[[Gradient], bool]:
    """Whose gradients a backward accumulates: all leaves', or those of `inputs`; and of copies, to go on behind."""
    allowed = None if inputs is None else {id(_receiver(h)) for h in inputs}

    def is_wanted(m: Gradient) -> bool:
        # NOTE: a leaf that was frozen since then is left out.
        return m.crossing is not None or (m.is_leaf and m.requires_grad and (allowed is None or id(m) in allowed))

    return is_wanted


def _backward(
    tr: Trace, busy: bool, loss: Handle, gradient: Any, retain_graph: bool | None, create_graph: bool,
    inputs: Sequence[Handle] | None,
) -> list[tuple[Gradient, Handle]]:  # fmt: skip
    """Record the step of `backward`: what is to be received, by whom."""
    slot = slot_of(tr, loss)
    following = tr.pos.next
    pulled = following.pulled
    plain = gradient is None and inputs is None and not create_graph and not tr.more
    if plain and pulled is not None and pulled[:2] == (slot, bool(retain_graph)):
        found = _backward_again(tr, following, pulled[2])
        if found is not None:
            return found
    slots, cotangents = begin_at(tr, "backward", (loss,), (gradient,))
    retain = create_graph if retain_graph is None else retain_graph
    reach = reach_of([slot])
    received = pull_all(tr, busy, slots, cotangents, reach, _leaves_among(inputs), create_graph, retain)
    again = not (tr.more or reach.synced or may_refuse(reach.steps))
    if plain and again and 0 < len(received) == len(reach.leaves):
        tr.pos.pulled = slot, bool(retain), [leaf.step.index for leaf in reach.leaves]
    return [*received.items()]


def begin_at(tr: Trace, name: str, outputs: Sequence[Handle], given: Sequence[Any]) -> tuple[list[Slot], list[Slot]]:
    """The values that a backward begins with, and their cotangents; none of those if all are 1."""
    slots, cotangents = [], []
    for i, (x, ct) in enumerate(zip(outputs, given, strict=True)):
        slot = slot_of(tr, x)
        if not slot.requires_grad:
            raise AutogradError(f"{name}: element {i} of tensors does not require grad and does not have a grad_fn")
        if ct is not None:
            g = slot_of(tr, ct)
            if g.shape != slot.shape:
                raise ShapeError(f"{name}: gradient has shape {g.shape}, the tensor has {slot.shape}")
            cotangents.append(g)
        elif slot.shape != () and any(d != 1 for d in slot.shape):
            raise AutogradError(
                f"{name}: grad can be implicitly created only for scalar outputs, not for shape {slot.shape}; "
                f"pass {'gradient=' if name == 'backward' else 'grad_outputs='}"
            )
        elif len(outputs) > 1:
            cotangents.append(slot_of(tr, ones_of(slot)))
        slots.append(slot)
    return slots, cotangents


def pull_all(
    tr: Trace, busy: bool, slots: Sequence[Slot], cotangents: Sequence[Slot], reach: Reach,
    is_wanted: Callable[[Gradient], bool], create: bool, retain: bool, asked: Asked = EMPTY,
) -> Totals:  # fmt: skip
    """The cotangents of what is wanted, on other devices too; frees the graph unless it is retained.

    asked: intermediate values whose cotangents are wanted too, by the record that each is known by here.
    """
    passed = Passed()
    totals = pull(slots, cotangents, reach, passed, is_wanted, create, retain, True, asked)
    crosses = any(m.crossing is not None for m in totals)
    # NOTE: of copies from another device only those that keep their gradient, or were asked for.
    kept = {*tr.retained, *asked} if crosses else ()
    if crosses:
        # NOTE: a transfer is a sync, which ends this trace.
        tr.busy = busy
        pull_across(totals, passed, lambda x, ct, by: pull_behind(x, ct, by, is_wanted, create, retain, asked))
    if not retain:
        consume(passed)
    if not crosses:
        return totals
    return {m: h for m, h in totals.items() if m.crossing is None or m in kept}


def _through_hooks(meta: Gradient, h: Any) -> Any:
    """A gradient as the hooks of its leaf leave it; those of a copy from another device it went through before."""
    return h if meta.crossing is not None else through_hooks(list(meta.hooks), h)


def _backward_again(tr: Trace, s: Step, leaves: Sequence[int]) -> list[tuple[Gradient, Handle]] | None:
    """`backward` as the step s was recorded the last time: one leaf a gradient, and nothing on the way to them.

    None, and nothing done, if these leaves' records are others.
    """
    found = [tr.metas.get(i) for i in leaves]
    metas: list[Any] = [None if m is None else m() for m in found]
    for meta in metas:
        if meta is None or not meta.is_leaf or not meta.requires_grad or meta.crossing is not None:
            return None
    if len({*metas}) < len(metas):
        return None
    taken = take_again(tr, s)
    return None if taken is None else [*zip(metas, taken)]  # noqa: B905 - they are as many


def take_again(tr: Trace, s: Step) -> list[Handle] | None:
    """Take a pull-back that is predicted: handles for its values; None, and nothing done, if the trace has moved."""
    handles = []
    for slot, like in zip(s.slots, s.like):  # noqa: B905 - strict costs, and they are as many
        slot.shape = like.shape
        h = _new(hooks.tensor)
        h._slot = slot
        h._buffer = h._meta = h._storage = h._view = None
        h._writes = 0
        handles.append(h)
    held = Several(map(ref, handles)) if len(handles) > 1 else ref(handles[0])
    # NOTE: no call from here on.
    if s.parent is not tr.pos:
        return None
    tr.refs[s.index] = held
    tr.results[s.index] = None
    s.ext = tr.ext
    tr.pos = s
    return handles


def pull(
    outputs: Sequence[Slot], cotangents: Sequence[Slot], reach: Reach, passed: Passed,
    is_wanted: Callable[[Gradient], bool], create: Create, retain: bool, keeps: bool, asked: Asked = EMPTY,
) -> Totals:  # fmt: skip
    """The cotangents of what is wanted, up to other devices: one step, or parts where Python functions take part.

    Without `cotangents` those of the outputs are 1. keeps: whether intermediate values that retain theirs get them.
    """
    tr = local.trace
    _refuse_estimates(tr, reach)
    links, versions = link_synced(tr, reach, passed, asked)
    if keeps:
        refuse_elsewhere(tr, versions, is_wanted)
    if tr.slot_hooks or tr.customs:
        cts = [new_tensor(ct) for ct in cotangents] or [ones_of(x) for x in outputs]
        return Parts(tr, passed, is_wanted, create, retain, keeps, asked).run(outputs, cts)
    wanted: dict[Gradient, tuple[Slot, ...]] = {}
    if keeps and tr.more:
        wanted = {m: (s,) for m, s in tr.retained.items() if m.retains and s in reach.through}
        wanted |= retained(tr, passed)
    if asked:
        wanted |= {m: (s,) for m, s in asked_here(tr, asked, reach.through, passed).items()}
    for m, group in versions.items():
        if is_wanted(m):
            wanted[m] = tuple(group)
    handles = vjp_step(tr, outputs, cotangents, list(wanted.values()), links, create, retain, reach)
    return dict(zip(wanted, handles, strict=True))


def _refuse_estimates(tr: Trace, reach: Reach) -> None:
    """Raise NotSupportedError where gradients of gradients would be computed of what is kept in few bits."""
    for r, metas in across_syncs(tr, reach):
        for s in r.steps:
            if s.op is not BACKWARD:
                continue
            for inside, _ in across_syncs(tr, Reach([x for x in s.operands if x.requires_grad], None), metas):
                for x in inside.steps:
                    if x.mode.compress is not None or x.op is EARLIER:
                        raise NotSupportedError(
                            f"not supported: differentiating a gradient through {x.op.name} (recorded at {x.site}) "
                            "under lt.memory.compress, because it is an estimate, and derivatives of estimates are "
                            "biased; record the forward pass outside of the block"
                        )


def pull_behind(
    origin: Slot, ct: Slot, passed: Passed, is_wanted: Callable[[Gradient], bool], create: Create, retain: bool,
    asked: Asked = EMPTY,
) -> Totals:  # fmt: skip
    """The cotangents that a value which was made again on this trace hands on."""
    return pull([origin], [ct], Reach([origin], None), passed, is_wanted, create, retain, True, asked)


def gradients(
    outputs: Sequence[Handle], inputs: Sequence[Handle], given: Sequence[Any], retain: bool, create: bool
) -> list[Handle | None]:
    """The gradients of the sum of `outputs`, each with its cotangent, by `inputs`; None for one that it is not of."""
    tr = begin()
    busy = tr.busy
    tr.busy = True
    try:
        slots, cotangents = begin_at(tr, "grad", outputs, given)
        asked: dict[Gradient, tuple[Any, Slot]] = {}
        records: list[Gradient] = []
        for x in inputs:
            if not requires_grad(x):
                raise AutogradError("grad: one of the differentiated Tensors does not require grad")
            # NOTE: a view has no record: that of its storage is the whole value's.
            slot, meta = slot_of(tr, x), meta_of(x)
            if meta is not None and (meta.is_leaf or meta.crossing is not None or _is_identity(slot, meta)):
                records.append(meta)
            elif slot.step.op is INPUT and meta is not None:
                assert meta.slot is not None
                records.append(Gradient(True, is_leaf=False))
                asked[records[-1]] = (meta.segment, meta.slot)
            else:
                records.append(Gradient(True, is_leaf=False))
                asked[records[-1]] = (None, slot)
        totals = pull_all(
            tr, busy, slots, cotangents, reach_of(slots), lambda m: m.crossing is not None or m in records,
            create, retain, asked | {m: (None, None) for m in records if m.crossing is not None},
        )  # fmt: skip
    finally:
        tr.busy = busy
    found: list[Any] = [totals.get(m) for m in records]
    for watch in watchers:
        watch(outputs, [h for h in found if h is not None])
    if tr.eager:
        run_sync(tr, "eager", user_site())
    return [h if h is None else _through_hooks(m, h) for m, h in zip(records, found, strict=True)]


def _is_identity(slot: Slot, meta: Gradient) -> bool:
    """Whether a value is one that a transform tracks, here or before a sync: its record names it on every trace."""
    if slot.step.op is INPUT:
        return meta.slot is None or is_tracked(meta.slot)
    return slot.leaf is slot and slot.step.op is TRACK


def _receiver(x: Handle) -> Gradient | None:
    """The record that `.grad` of an input of `backward` is in."""
    meta = meta_of(x)
    if meta is None or not (meta.is_leaf or retains_grad(x)):
        raise AutogradError(
            "backward: not supported: `inputs` with a tensor that is no leaf and does not keep its gradient, because "
            "it has no .grad to accumulate in; call its retain_grad() before, or use lazyt.autograd.grad"
        )
    return meta


def _accumulate(received: Sequence[tuple[Gradient, Handle]]) -> None:
    """`.grad` is set the first time; after that the same tensor is added to in place: for all leaves, or for none."""
    first: list[Change] = [(meta, "grad", h) for meta, h in received if meta.grad is None]
    if len(first) == len(received):
        carry_out(prepared(first))
    else:
        add = OPS["add"]
        record_writes([(add, meta.grad, h) for meta, h in received if meta.grad is not None], first)


def _after(meta: Gradient) -> None:
    """`.grad` has received a gradient: tell who asked to know."""
    assert meta.after is not None
    for held, hook in list(meta.after):
        leaf = held()
        if leaf is not None:
            hook(leaf)


def detach(x: Handle) -> Any:
    """The same value outside the autograd graph."""
    out = record_view(DETACH, x)
    view, st = out._view, out._storage
    # NOTE: a write may set it apart, by its view (see tracing/detached.py): no other alias has the same one. Mostly
    # only the step, `out` and this function have it.
    if sys.getrefcount(view) > _FRESH and any(h is not out and h._view is view for _, h in st.alive()):
        out._view = copy(view)
    return out


DETACH = OpDef("detach", lambda b, x: b.stop(x), write=lambda b, base, value: value, differentiable=False)


def is_pending(holder: Holder) -> bool:
    """Whether a value is still to be computed in this thread; what another thread has pending is computed now."""
    while holder._buffer is None and (slot := holder._slot) is not None and slot.step.owner is not local.trace:
        hooks.compute_foreign(holder)
        holder = holder._storage or holder
    return holder._buffer is None


def make_leaf(holder: Holder) -> None:
    """Ask for gradients of a value: it is a leaf from here on."""
    _make_leaf(begin(), holder)


@undisturbed
def _make_leaf(tr: Trace, holder: Holder) -> None:
    while True:
        slot = holder._slot
        if slot is None:  # NOTE: computed, since it was asked
            return
        s = find_special(tr, TRACK, (slot,), (), (), partial(tuple, (slot,)))
        meta = Gradient(True) if holder._meta is None else holder._meta
        held, record, results = ref(holder), ref(meta), tr.results
        before, i = slot.step.index, s.index
        # NOTE: no call from here on.
        if s.parent is tr.pos and holder._slot is slot:
            break
    if results[before] is holder:  # its record dies with it
        results[before] = None
    s.requires_grad, s.leaf, s.ext = True, s, tr.ext
    tr.metas[i], tr.refs[i], results[i] = record, held, None
    meta.requires_grad = meta.is_leaf = True
    holder._meta, holder._slot, tr.pos = meta, s, s


def own_value(x: Handle) -> None:
    """Let a view hold its value by itself: gradients belong to a whole storage. Writes are no longer shared."""
    _own_value(begin(), x)


@undisturbed
def _own_value(tr: Trace, x: Handle) -> None:
    st = x._storage
    assert st is not None
    slot = slot_of(tr, x)
    i, held, meta = slot.step.index, ref(x), x._meta
    # NOTE: no call between: the view stands as it was, or by itself.
    x._view, x._storage, x._slot, x._buffer, x._writes = None, None, slot, None, st._writes
    tr.refs[i] = held
    if meta is not None and not meta.is_leaf:
        x._meta = None


def freeze(holder: Holder) -> None:
    """No more gradients of a leaf that is still pending: its value, cut off, stands in its place."""
    _freeze(begin(), holder)


@undisturbed
def _freeze(tr: Trace, holder: Holder) -> None:
    slot = holder._slot
    if slot is None:  # NOTE: computed, since it was asked
        return
    s = advance(tr, DETACH, [slot], (), None, None, ())
    i, held = s.index, ref(holder)
    # NOTE: no call between.
    tr.refs[i] = held
    holder._slot = s
    if holder._meta is not None:
        holder._meta.requires_grad = False
