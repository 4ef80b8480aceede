"""Reverse mode over the recorded program: `backward` and its kin are steps like any other, and run nothing.

A vector-Jacobian step asks for the cotangents of some of its program's values (`wanted`) given those of others. Its
expansion differentiates the primitives recorded so far, so a derivative is again part of the program.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from lazyt.autograd.reachability import History, Reach, refuse_again, refuse_hooks
from lazyt.autograd.reverse import backward as reverse
from lazyt.autograd.saved_segment import Passed, consume, link_synced, retained
from lazyt.autograd.track import CUSTOM, TRACK
from lazyt.autograd.transfers import Totals, pull_across
from lazyt.errors import AutogradError, NotSupportedError, ShapeError
from lazyt.ir.graph import Node
from lazyt.ops.definition import OPS, OpDef
from lazyt.tracing.batched_writes import record_writes
from lazyt.tracing.call_site import user_line, user_site
from lazyt.tracing.commit import Change, carry_out, prepared, undisturbed
from lazyt.tracing.current import restore_device, set_device
from lazyt.tracing.inplace import is_leaf, requires_grad
from lazyt.tracing.lower import Lowered
from lazyt.tracing.record import advance, begin, record, record_view, slot_of
from lazyt.tracing.steps import LEAF, follow, hooks, insert, new_tensor, plain_slots, run_sync
from lazyt.tracing.tensor_state import Gradient, Handle, Holder
from lazyt.tracing.trace import Several, Slot, Step, Trace, local

ref = weakref.ref
_new = object.__new__


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
        pairs = [(low.nodes[rest[2 * i]], low.nodes[rest[2 * i + 1]]) for i in range(links)]
        groups = [[low.nodes[v] for v in versions] for versions in s.info]
        blocked = {low.nodes[x] for versions in s.info for x in versions if x in s.stops}
        grads = _pull(b, outputs, cotangents, pairs, groups, blocked - set(outputs))
        return tuple(grads) if create else tuple(b.stop(x) for x in grads)

    def again(self, tr: Trace, s: Step, new: dict[Slot, Slot]) -> Step:
        """The same step on another walk, where `new` has its values."""
        create, _, n, given, links, barriers = s.statics
        if links or barriers:
            raise refuse_again(s)
        groups = tuple(tuple(new[x] for x in group) for group in s.info)
        statics = (create, True, n, given, 0, barriers)
        made = special_step(tr, self, [new[x] for x in s.operands], statics, groups, lambda: [x[0] for x in groups])
        if made.leaves is None:
            for x, y in zip(made.slots, s.slots, strict=True):
                x.requires_grad = y.requires_grad
            made.leaves = ()
        return made


def _pull(
    b: Any, outputs: Sequence[Node], cotangents: Sequence[Node], pairs: Sequence[tuple[Node, Node]],
    groups: Sequence[list[Node]], blocked: set[Node],
) -> list[Node]:  # fmt: skip
    """Cotangents of each group; across a sync, a leaf of this walk hands its cotangent to the value it stands for."""
    # Leaves that stand for one value are one group: its cotangent is complete before it is pulled on, as in one walk.
    origins: dict[Node, list[Node]] = {}
    for leaf, origin in pairs:
        origins.setdefault(origin, []).append(leaf)
    wanted = [*groups, *origins.values()]
    grads, got = reverse(b, outputs, cotangents, wanted, blocked)
    totals, seen = list(grads), list(got)
    for i, origin in enumerate(origins):
        if not seen[len(groups) + i]:
            continue
        grads, got = reverse(b, [origin], [totals[len(groups) + i]], wanted, blocked)
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
        s = _find_special(tr, op, operands, statics, extra, make)
        # NOTE: no call from here on. Behind what a handler of signals has recorded meanwhile it is another step.
        if s.parent is tr.pos:
            s.ext = tr.ext
            tr.results[s.index] = None
            tr.pos = s
            return s


def _find_special(
    tr: Trace, op: Any, operands: Sequence[Slot], statics: tuple[Any, ...], extra: Any,
    make: Callable[[], Sequence[Slot]],
) -> Step:  # fmt: skip
    plain = (op, tuple(operands), statics, extra)
    key: Any = (*plain, *user_line(2)) if tr.pos.parent is None else plain
    s = follow(tr, key)
    pos = tr.pos
    if s is None:
        like = make()
        s = Step(pos, op, tuple(operands), statics, key, pos.index + 1)
        s.site, s.ext = user_site(), tr.ext
        s.slots = tuple(s if k == 0 else Slot(s, k, None, False) for k in range(len(like)))
        for slot, x in zip(s.slots, like, strict=True):
            slot.dtype, slot.shape = x.dtype, x.shape
        s.info = extra
        s.like = tuple(like)
        names = tuple(tuple((v.step.index, v.k) for v in e) if isinstance(e, tuple) else e for e in extra)
        insert(tr, s, key, (op, plain_slots(operands), statics, names))
    else:
        for slot, x in zip(s.slots, s.like, strict=True):
            slot.shape = x.shape
    return s


def track(x: Handle) -> Handle:
    """A new identity of x that gradients can be asked for."""
    return _track(begin(), x)


@undisturbed
def _track(tr: Trace, x: Handle) -> Handle:
    slot = slot_of(tr, x)
    s = special_step(tr, TRACK, (slot,), (), (), lambda: (slot,))
    s.requires_grad, s.leaf = True, s
    h = new_tensor(s)
    # NOTE: after a sync this is how it is known again.
    h._meta = Gradient(True, is_leaf=False)
    tr.metas[s.index] = ref(h._meta)
    tr.refs[s.index] = ref(h)
    return h


Groups = Sequence[tuple[Slot, ...]]
Links = Sequence[tuple[Slot, Slot]]


def vjp_step(
    tr: Trace, outputs: Sequence[Slot], cotangents: Sequence[Slot], groups: Groups, links: Links,
    create: bool, retain: bool, reach: Reach,
) -> list[Handle]:  # fmt: skip
    """Record one pull-back; checked against freed graphs and overwritten values when it is new."""
    operands = (*outputs, *cotangents, *(x for pair in links for x in pair))
    statics = (create, retain, len(outputs), bool(cotangents), len(links), frozenset(reach.barriers))

    def make() -> Sequence[Slot]:
        if tr.history is None:
            tr.history = History()
        tr.history.reach(tr.pos)
        tr.history.check(reach)
        return [g[0] for g in groups]

    s = special_step(tr, BACKWARD, operands, statics, tuple(groups), make)
    if s.leaves is None:
        s.stops = frozenset(reach.barriers)
        varies = create and (_varies(reach, groups) or any(x.requires_grad for x in cotangents))
        for slot in s.slots:
            slot.requires_grad = varies
        # NOTE: last, for it says that the rest is there.
        s.leaves = () if retain else frozenset(reach.steps)
    handles = [new_tensor(slot) for slot in s.slots[: len(groups)]]
    if len(handles) == 1:
        tr.refs[s.index] = ref(handles[0])
    elif handles:
        tr.refs[s.index] = Several(map(ref, handles))
    return handles


def pull_back(
    tr: Trace, outputs: Sequence[Slot], cotangents: Sequence[Slot], groups: Groups, links: Links,
    create: bool, retain: bool, reach: Reach,
) -> list[Handle]:  # fmt: skip
    """The cotangents of `groups`: one step, or one between each two Python functions that take the cotangent over."""
    if not reach.barriers:
        return vjp_step(tr, outputs, cotangents, groups, links, create, retain, reach)
    if links:
        raise refuse_hooks()
    totals: list[Handle | None] = [None] * len(groups)
    waiting: dict[Slot, Handle] = {}
    work: list[tuple[Sequence[Slot], Sequence[Slot], Reach]] = [(outputs, cotangents, reach)]
    while work:
        outs, cts, r = work.pop()
        here = [i for i, group in enumerate(groups) if any(s in r.through and s not in r.barriers for s in group)]
        asked = [groups[i] for i in here] + [(s,) for s in r.barriers]
        got = vjp_step(tr, outs, cts, asked, (), create, retain, r)
        for i, h in zip(here, got, strict=False):
            before = totals[i]
            totals[i] = h if before is None else record(OPS["add"], (before, h))
        for s, h in zip(r.barriers, got[len(here) :], strict=True):
            waiting[s] = record(OPS["add"], (waiting[s], h)) if s in waiting else h
        if waiting:
            last = max(waiting, key=lambda s: s.step.index)
            sources, cots = _take_over(tr, last, waiting.pop(last))
            # NOTE: nothing to pass on still leaves other cotangents waiting.
            work.append((sources, cots, Reach(sources, tr.slot_hooks)))
    return [zeros_of(g[0]) if t is None else t for t, g in zip(totals, groups, strict=True)]


def zeros_of(slot: Slot) -> Handle:
    """The cotangent of what nothing depends on, on its device."""
    before = set_device(slot.step.device)
    try:
        made: Handle = record(OPS["zeros"], (), (slot.dtype,), slot.shape)
    finally:
        restore_device(before)
    return made


def _take_over(tr: Trace, slot: Slot, ct: Handle) -> tuple[list[Slot], list[Slot]]:
    """Run the Python functions at a barrier; the values behind it and their cotangents."""
    for hook in tr.slot_hooks.get(slot, ()):
        replaced = hook(ct)
        ct = ct if replaced is None else replaced
    custom = tr.customs.get(slot)
    if custom is None:
        return [slot], [slot_of(tr, ct)]
    inputs, rule = custom
    cts = rule(ct)
    pairs = [(x, c) for x, c in zip(inputs, cts, strict=True) if c is not None and x.requires_grad]
    return [x for x, _ in pairs], [slot_of(tr, c) for _, c in pairs]


def _varies(reach: Reach, groups: Sequence[tuple[Slot, ...]]) -> bool:
    """Whether gradients by `groups` depend on a value that somebody else may differentiate by."""
    own = {s.leaf for g in groups for s in g if s.step.op is TRACK}
    return bool(reach.synced) or any(leaf not in own for leaf in reach.leaves)


def consumed_on(tr: Trace) -> frozenset[Step]:
    """The steps of this walk whose graph a backward has freed."""
    pos = tr.pos
    if pos.consumed is None:
        out: set[Step] = set()
        for s in pos.steps():
            if s.op is BACKWARD and s.leaves:
                out |= s.leaves
        pos.consumed = frozenset(out)
    found: frozenset[Step] = pos.consumed
    return found


def _reach_of(slot: Slot) -> Reach:
    """What a backward from one value passes through, found once a program."""
    if slot.reach is None:
        slot.reach = Reach([slot], stops=None)
    found: Reach = slot.reach
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
        _accumulate([(meta, _through_hooks(meta, h) if meta.hooks else h) for meta, h in received])
    if tr.eager:
        run_sync(tr, "eager", user_site())


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
    if not slot.requires_grad:
        raise AutogradError("backward: element 0 of tensors does not require grad and does not have a grad_fn")
    cotangents: list[Slot] = []
    if gradient is not None:
        g = slot_of(tr, gradient)
        if g.shape != slot.shape:
            raise ShapeError(f"backward: gradient has shape {g.shape}, the tensor has {slot.shape}")
        cotangents.append(g)
    elif slot.shape != () and any(d != 1 for d in slot.shape):
        raise AutogradError(
            f"backward: grad can be implicitly created only for scalar outputs, not for shape {slot.shape}; "
            "pass gradient="
        )
    retain = create_graph if retain_graph is None else retain_graph
    reach = _reach_of(slot)
    passed: Passed = []
    links, versions = link_synced(tr, reach, passed)
    everything = reach
    if tr.slot_hooks or tr.customs:
        reach = Reach([slot], tr.slot_hooks)
    allowed = None if inputs is None else {id(_meta(h)) for h in inputs}

    def is_wanted(m: Gradient) -> bool:
        # NOTE: a leaf that was frozen since then is left out.
        return m.crossing is not None or (m.is_leaf and m.requires_grad and (allowed is None or id(m) in allowed))

    kept: dict[Gradient, tuple[Slot, ...]] = {m: (s,) for s, m in tr.retained.items() if s in everything.through}
    kept |= retained(tr, passed)
    wanted = kept | {m: tuple(group) for m, group in versions.items() if is_wanted(m)}
    handles = pull_back(tr, [slot], cotangents, list(wanted.values()), links, create_graph, retain, reach)
    totals: Totals = dict(zip(wanted, handles, strict=True))
    if plain and not (tr.more or reach.synced) and 0 < len(wanted) == len(reach.leaves):
        tr.pos.pulled = slot, bool(retain), [leaf.step.index for leaf in reach.leaves]
    crosses = any(m.crossing is not None for m in totals)
    if crosses:
        # NOTE: a transfer is a sync, which ends this walk.
        tr.busy = busy
        pull_across(totals, passed, lambda tr, x, ct, by: pull_behind(tr, x, ct, by, is_wanted, create_graph))
    if not retain:
        consume(passed)
    return [(m, h) for m, h in totals.items() if not (crosses and m.crossing is not None and m not in kept)]


def _through_hooks(meta: Gradient, h: Any) -> Any:
    """A gradient as the hooks of its leaf leave it."""
    for hook in meta.hooks:
        replaced = hook(h)
        h = h if replaced is None else replaced
    return h


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
    handles = []
    for slot, like in zip(s.slots, s.like):  # noqa: B905 - strict costs, and they are as many
        slot.shape = like.shape
        h = _new(hooks.tensor)
        h._slot = slot
        h._data = h._meta = h._storage = h._view = None
        h._writes = 0
        handles.append(h)
    held = Several(map(ref, handles)) if len(handles) > 1 else ref(handles[0])
    received = [*zip(metas, handles)]  # noqa: B905 - as above
    # NOTE: no call from here on.
    if s.parent is not tr.pos:
        return None
    tr.refs[s.index] = held
    tr.results[s.index] = None
    s.ext = tr.ext
    tr.pos = s
    return received


def pull_behind(
    tr: Trace, origin: Slot, ct: Slot, passed: Passed, is_wanted: Callable[[Gradient], bool], create: bool
) -> Totals:
    """The cotangents that a value which was made again on this walk hands on."""
    reach = Reach([origin])
    links, versions = link_synced(tr, reach, passed)
    wanted = {m: tuple(group) for m, group in versions.items() if is_wanted(m)}
    handles = pull_back(tr, [origin], [ct], list(wanted.values()), links, create, True, reach)
    return dict(zip(wanted, handles, strict=True))


def _meta(h: Handle) -> Any:
    return h._storage._meta if h._storage is not None else h._meta


def _accumulate(received: Sequence[tuple[Gradient, Handle]]) -> None:
    """`.grad` is set the first time; after that the same tensor is added to in place: for all leaves, or for none."""
    first: list[Change] = [(meta, "grad", h) for meta, h in received if meta.grad is None]
    if len(first) == len(received):
        carry_out(prepared(first))
    else:
        add = OPS["add"]
        record_writes([(add, meta.grad, h) for meta, h in received if meta.grad is not None], first)


def detach(x: Handle) -> Any:
    """The same value outside the autograd graph."""
    return record_view(DETACH, x)


DETACH = OpDef("detach", lambda b, x: b.stop(x), write=lambda b, base, value: value, differentiable=False)


def custom(out: Handle, inputs: Sequence[Handle], rule: Callable[[Any], list[Any]]) -> Handle:
    """`out` as a value whose cotangent `rule` turns into those of `inputs`."""
    return _custom(begin(), out, inputs, rule)


@undisturbed
def _custom(tr: Trace, out: Handle, inputs: Sequence[Handle], rule: Callable[[Any], list[Any]]) -> Handle:
    operands = [slot_of(tr, x) for x in inputs]
    slot = slot_of(tr, out)
    s = special_step(tr, CUSTOM, (slot, *operands), (), (), lambda: (slot,))
    s.requires_grad = True
    tr.more = True
    tr.customs[s] = (operands, rule)
    h = new_tensor(s)
    tr.refs[s.index] = ref(h)
    return h


def is_pending(holder: Holder) -> bool:
    """Whether a value is still to be computed in this thread; what another thread has pending is computed now."""
    while holder._data is None and (slot := holder._slot) is not None and slot.step.owner is not local.trace:
        hooks.compute_foreign(holder)
        holder = holder._storage or holder
    return holder._data is None


def make_leaf(holder: Holder) -> None:
    """Ask for gradients of a value: it is a leaf from here on."""
    _make_leaf(begin(), holder)


@undisturbed
def _make_leaf(tr: Trace, holder: Holder) -> None:
    while True:
        slot = holder._slot
        if slot is None:  # NOTE: computed, since it was asked
            return
        s = _find_special(tr, TRACK, (slot,), (), (), partial(tuple, (slot,)))
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
    i, held = slot.step.index, ref(x)
    # NOTE: no call between: the view stands as it was, or by itself.
    x._view, x._storage, x._slot, x._data, x._writes = None, None, slot, None, st._writes
    tr.refs[i] = held


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


class HookHandle:
    """Takes a hook off again."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks, self._hook = hooks, hook

    def remove(self) -> None:
        """No longer call the hook."""
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


def register_hook(x: Handle, hook: Callable[[Any], Any]) -> HookHandle:
    """Call `hook` with the gradient of x when it is recorded; what it returns, if anything, replaces it."""
    tr = begin()
    if not requires_grad(x):
        raise AutogradError("register_hook: cannot register a hook on a tensor that doesn't require gradient")
    if is_leaf(x):
        meta = _meta(x)
        meta.hooks.append(hook)
        return HookHandle(meta.hooks, hook)
    slot = slot_of(tr, x)
    if slot.step.op is LEAF:
        raise NotSupportedError(
            "not supported: register_hook on an intermediate value after it was synced, because its graph is kept for "
            "one plan; register the hook, and call backward, before the sync"
        )
    tr.more = True
    hooks = tr.slot_hooks.setdefault(slot, [])
    hooks.append(hook)
    return HookHandle(hooks, hook)


def retain_grad(x: Handle) -> None:
    """Keep the gradient of a non-leaf in its `.grad`."""
    tr = begin()
    if not requires_grad(x):
        raise AutogradError("retain_grad: can't retain_grad on a tensor that has requires_grad=False")
    if is_leaf(x):
        return
    slot = slot_of(tr, x)
    if x._meta is None:
        x._meta = Gradient(True, is_leaf=False)
    tr.more = True
    meta = tr.retained[slot] = x._meta
    if meta.segment is not None:
        # NOTE: by the value there, for what leads to the loss may start before it.
        meta.segment.retained[meta.slot] = ref(meta)
