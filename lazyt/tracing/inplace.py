"""Writing in place: a write records the next version of a value; nothing that was read before changes.

Aliasing follows NumPy, legality under grad mode follows PyTorch (`can_mutate_inplace`). A write through a view is
turned into a write of its base: each view operation knows how to put a value back (`OpDef.write`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from itertools import starmap
from operator import call, setitem
from typing import TYPE_CHECKING, Any, TypeVar

from lazyt import on_demand
from lazyt.errors import AutogradError, ShapeError
from lazyt.ir import dtypes
from lazyt.ops.definition import OpDef
from lazyt.tracing.assignments import KEEPS_LEAF, PUT, find_assign, kept_of, put_back
from lazyt.tracing.call_site import user_site
from lazyt.tracing.commit import carry_out, slot_held, storage_held, writer, writes_held
from lazyt.tracing.current import restore_grad_mode, restore_mode, set_grad_mode, set_mode
from lazyt.tracing.inference import check_write
from lazyt.tracing.program import ASSIGN, INPUT, Slot
from lazyt.tracing.record import advance, begin, meta_of, operand_slots, own_slot, record, slot_of
from lazyt.tracing.refusals import check_writable_dtype
from lazyt.tracing.steps import Moved, hooks, run_sync
from lazyt.tracing.tensor_state import EXTERNAL, Handle, Holder, Inference, View, detachment, is_detached
from lazyt.tracing.trace import Several, Trace, holding, local, several, waiting

if TYPE_CHECKING:
    from lazyt.tracing import detached
else:
    detached = on_demand.module("lazyt.tracing.detached")

ref = weakref.ref
T = TypeVar("T")


def requires_grad(h: Handle) -> bool:
    """Whether gradients flow into h's current value."""
    slot = h._slot
    if slot is None and h._storage is not None:
        if is_detached(h) or not (h._view is None or h._view.made_under_grad):
            return False
        holder: Holder = h._storage
        slot = holder._slot
    if slot is not None:
        return slot.requires_grad
    meta = h._storage._meta if h._storage is not None else h._meta
    return meta is not None and meta.requires_grad


def is_leaf(h: Handle) -> bool:
    """Whether h is an autograd leaf: a value of its own that requires grad, or one that does not."""
    if h._view is not None:
        return not requires_grad(h)
    meta = h._storage._meta if h._storage is not None else h._meta
    if meta is not None and meta.requires_grad:
        return meta.is_leaf
    return not requires_grad(h)


def check_legal(tr: Trace, name: str, x: Handle, value_grad: bool) -> None:
    """PyTorch's rules, in its order, before anything is recorded."""
    view = x._view
    v = view
    while v is not None:
        if not v.writable:
            raise ShapeError(
                f"{name}: not supported: writing to a view made by {v.op.name}, because more than one of its elements "
                "may refer to a single memory location; copy it first"
            )
        v = v.parent
    if Inference.used:
        check_write(tr, name, x)
    if not tr.mode.grad or not (value_grad or requires_grad(x) or _views_what_requires_grad(x)):
        return
    if view is not None:
        # NOTE: what is detached is no view to autograd, but what is viewed of it is.
        cut = detachment(x)
        if cut is view:
            return
        made_under_grad = view.made_under_grad or (cut is not None and not cut.made_under_grad)
        if not made_under_grad and view.inference:
            raise AutogradError(
                f"{name}: a view was created in inference mode and is being modified inplace in normal mode. Given "
                "that this use case is ambiguous and error-prone, it is forbidden; move both the view and the "
                "inplace operation inside the inference_mode block, or both outside"
            )
        if not made_under_grad:
            raise AutogradError(
                f"{name}: a view was created in no_grad mode and is being modified inplace with grad mode enabled. "
                "Given that this use case is ambiguous and error-prone, it is forbidden; move both the view and the "
                "inplace operation inside the no_grad block, or both outside"
            )
        v = view
        while v is not cut:
            assert v is not None
            if v.op.name in MULTI_OUTPUT:
                raise AutogradError(
                    f"{name}: this view is the output of {v.op.name}, a function that returns multiple views. Such "
                    "functions do not allow the output views to be modified inplace; use an out-of-place operation"
                )
            if v.op in IN_FUNCTION:
                raise AutogradError(
                    f"{name}: {v.op.name} is a view and is being modified inplace. This view was created inside a "
                    "custom Function (or because an input was returned as-is) and the autograd logic to handle "
                    "view+inplace would override the custom backward associated with the custom Function, leading to "
                    "incorrect gradients. You can fix this by cloning the output of the custom Function"
                )
            v = v.parent
        assert x._storage is not None
        meta = x._storage._meta
        if cut is None and meta is not None and meta.requires_grad and meta.is_leaf:
            raise AutogradError(
                f"{name}: a view of a leaf Variable that requires grad is being used in an in-place operation"
            )
    elif requires_grad(x) and is_leaf(x):
        raise AutogradError(f"{name}: a leaf Variable that requires grad is being used in an in-place operation")


def _views_what_requires_grad(h: Handle) -> bool:
    """Whether h is a view, made under no_grad, of a value that gradients flow into."""
    view, st = h._view, h._storage
    if view is None or st is None or view.made_under_grad or is_detached(h):
        return False
    return st._slot.requires_grad if st._slot is not None else st._meta is not None and st._meta.requires_grad


def puts_back(x: Handle, value: Any, how: tuple[OpDef, Any, Any, Any]) -> bool:
    """Whether `value` is the view of x that the operation `how` (op, statics, ints, offsets) would make, so that
    writing it there changes nothing. That is what `x[k] += v` ends with; it counts as a write.

    False where gradients flow: then a write of the same value has to be recorded.
    """
    st = x._storage
    if not isinstance(value, Handle) or st is None or value._storage is not st:
        return False
    v = value._view
    if v is None or v.parent is not x._view or (v.op, v.statics, v.ints, v.offsets) != how:
        return False
    return puts_back_view(x, value, v)


def puts_back_view(x: Handle, value: Any, v: View) -> bool:
    """`puts_back`, where `value` is known to be the view v of what x is, if they share a storage."""
    st = x._storage
    if st is None or value._storage is not st or not v.writable:
        return False
    base = st._slot
    # Mostly all is pending, which says it at once.
    if base is not None and not (
        base.requires_grad or (x._slot or base).requires_grad or (value._slot or base).requires_grad
    ):
        st._writes += 1
        return True
    if requires_grad(x) or requires_grad(value) or _views_what_requires_grad(value):
        return False
    st._writes += 1
    return True


MULTI_OUTPUT = frozenset({"unstack", "split", "array_split"})
# Results of custom functions that are views of something there (see autograd/custom.py).
IN_FUNCTION: set[OpDef] = set()


def _store(tr: Trace, holder: Holder, new: Slot, old: Slot, writes: int) -> Slot | None:
    """Let `holder` hold `new` in place of `old`, its value after so many `writes`; `Moved` if it holds another by now.

    None, and nothing done, if another thread has written it meanwhile, or somebody has made a storage of it.
    """
    meta = holder._meta
    after = None if meta is None else meta.successor()
    keeps = ""
    if not tr.mode.grad and (new.requires_grad or old.requires_grad):
        new, keeps = kept_of(tr, holder, new, old)
    held = ref(holder)
    before = holder._slot
    if before is not old and before is not None and before.step.owner is not tr and before.step.op is not INPUT:
        if id(tr) not in waiting:
            return None
        take_over(holder, before, held)
    # Mostly the step that was taken here the last time.
    s = tr.pos.next
    if s.op is not ASSIGN or s.a is not new or s.targets != (old,) or s.statics[0] != keeps:
        s = find_assign(tr, new, old, keeps)
    # NOTE: no call from here on: the trace and the holder go on together, or not.
    while s.parent is not tr.pos:
        s = find_assign(tr, new, old, keeps)
    now = holder._slot
    if now is not old and now is not None and now.step.owner is tr:
        raise Moved
    if holder._writes != writes or holder._storage is not None:
        return None
    results, i = tr.results, old.step.index
    s.shape, s.ext = new.shape, tr.ext
    tr.refs[s.index] = held
    results[s.index] = None
    if results[i] is holder:
        results[i] = None
    tr.pos = s
    holder._slot = s
    holder._buffer = None
    holder._writes = writes + 1
    if s.requires_grad and keeps != KEEPS_LEAF and meta is not None:
        holder._meta = after
        if after is not None:
            meta.retains, tr.retained[after], tr.more = False, s, True
    return s


# So many writes after a turn are computed soon: then a thread is taken to write alone.
TURNS = 256


def take_over(holder: Holder, slot: Slot, reference: Any) -> None:
    """What another thread has pending in `slot` will be written here: from now on it knows the holder weakly only.

    NOTE: a sync of its that asks for no lock looks for just that before it gives the holder a value (replay.py).
    """
    owner, i = slot.step.owner, slot.step.index
    results = owner.results
    if holder._slot is slot and results[i] is holder:
        owner.refs[i] = reference
        results[i] = None


class _Meanwhile(Exception):
    """Another thread has written what was to be written (see `rewrite`)."""


def _in_turn(tr: Trace, act: Callable[[], T]) -> T:
    """Do it while the others' writes wait: this thread writes what another has pending."""
    me = id(tr)
    with holding:
        first = me not in waiting
        try:
            if first:
                waiting.add(me)
            return act()
        finally:
            if first:
                waiting.discard(me)


def put(tr: Trace, x: Handle, value: Slot, writes: int = -1) -> bool:
    """Make `value` (x's shape and dtype) the new value of x, through its views where it has any.

    Returns whether another thread writes x too: then it should be computed soon.

    NOTE: writes are exact without a lock, because each goes back to the start if another came between. Where another
    thread's value is pending, which has to be computed first, there is a lock, and that thread's writes wait for it.
    Of a value that was made from x itself after so many `writes`, whoever made it has to go back: `_Meanwhile`.
    """
    st = x._storage
    known = x._writes if writes < 0 else writes  # NOTE: before the slot, which a write by another thread replaces
    slot = x._slot if st is None else st._slot
    mine = slot is not None and slot.step.owner is tr
    if (mine or slot is None or slot.step.op is INPUT) and (not waiting or id(tr) in waiting):
        if st is None and mine:
            assert slot is not None
            if _store(tr, x, value, slot, known) is not None:
                return False
        elif _put(tr, x, value, writes):
            if st is None or not st.shared:
                return False
            st.shared -= 1
            return True
    _in_turn(tr, partial(_put_again, tr, x, value, writes))
    if several and x._storage is not None:
        x._storage.shared = TURNS
    return bool(several)


def _put_again(tr: Trace, x: Handle, value: Slot, writes: int) -> None:
    while not _put(tr, x, value, writes):
        if writes >= 0:
            raise _Meanwhile


def _put(tr: Trace, x: Handle, value: Slot, writes: int = -1) -> bool:
    """`put`, unless another thread writes x meanwhile; False then."""
    st = x._storage
    if st is None:
        if writes < 0:
            writes = x._writes
        return _store(tr, x, value, slot_of(tr, x), writes) is not None
    if tr.mode.grad and is_detached(x):
        if value.requires_grad:
            return _put_apart(tr, x, value, writes)
        before = set_grad_mode(False)
        try:
            return _put(tr, x, value, writes)
        finally:
            restore_grad_mode(before)
    if writes < 0:
        writes = st._writes
    base = own_slot(tr, st)
    new = value if x._view is None else put_back(tr, x._view, base, value)
    here = tr.pos
    # Before the write: an alias that derives its value anew never sees half of one.
    st.invalidate(None)
    stored = _store(tr, st, new, base, writes)
    if stored is None:
        return False
    if several or tr.pos.parent is not here:
        st.invalidate(None)  # what another thread, or a handler of signals, has derived between
    # What was written is the view's value; its gradient goes through what it views.
    seen = stored if x._view is None else None if stored.requires_grad or value.requires_grad else value
    if st._slot is stored:
        x._slot = seen
    return True


def _put_apart(tr: Trace, x: Handle, value: Slot, writes: int) -> bool:
    """`_put` of a value with a graph into what is detached: that is apart from here on (see detached.py)."""
    st, rest = x._storage, Handle()
    assert st is not None
    rest._storage, rest._view = st, x._view
    if writes >= 0 and st._writes != writes:
        return False
    detached.set_apart(tr, x, value)
    before = set_grad_mode(False)
    try:
        while True:
            try:
                put(tr, rest, value)
                return True
            except Moved:  # x is written by now
                continue
    finally:
        restore_grad_mode(before)


def whole(attempt: Callable[..., Handle | None], a: Any, b: Any, c: Any, d: Any, e: Any = ()) -> None:
    """Record a write: again from the start if a handler of signals wrote to the same tensor meanwhile.

    An attempt returns what should be computed soon, because other threads write it too.
    """
    tr = begin()
    busy = tr.busy
    tr.busy = True
    try:
        while True:
            try:
                shared = attempt(tr, a, b, c, d, e)
                break
            except Moved:
                continue
    finally:
        tr.busy = busy
    if shared is not None and not tr.syncs_forbidden:
        # Threads that take turns at writing it find it computed: programs stay short, and are the same ones again.
        hooks.sync_for(tr, shared)
    if EXTERNAL:
        hooks.publish(tr)
    if tr.eager:
        run_sync(tr, "eager", user_site())


def rewrite(x: Handle, changed: Callable[[], Any], name: str) -> None:
    """`assign(x, changed())`, where `changed` makes of x what it is after a write of a part.

    NOTE: again from the start if another thread, or a handler of signals, has written another part meanwhile.
    """
    if several:
        _in_turn(begin(), partial(_rewrite, x, changed, name))
    else:
        _rewrite(x, changed, name)


def _rewrite(x: Handle, changed: Callable[[], Any], name: str) -> None:
    while True:
        writes = (x if x._storage is None else x._storage)._writes
        try:
            assign(x, changed(), name, writes)
        except _Meanwhile:
            continue
        return


def assign(x: Handle, value: Any, name: str = "assign", writes: int = -1) -> None:
    """x[...] = value: value is broadcast and cast to x (floats to integers too, as both NumPy and PyTorch do).

    DTypeError for what would lose an imaginary part, ShapeError or AutogradError as NumPy and PyTorch.
    """
    whole(_assign, x, value, name, writes)


def give_up(tr: Trace, x: Handle) -> None:
    """What is about to be overwritten as a whole needs no value that failed: another stands there until it is."""
    st = x._storage
    slot = x._slot if st is None else st._slot
    if slot is None or slot.step.owner is tr or not slot.step.owner.failed:
        return
    view = x._view
    while view is not None and not view.op.differentiable:
        view = view.parent
    if view is None:
        hooks.give_up(x if st is None else st)


def _assign(tr: Trace, x: Handle, value: Any, name: str, writes: int, _: Any) -> Handle | None:
    give_up(tr, x)
    slots, scalars = operand_slots(tr, (x, value))
    old, given = slots
    pending = isinstance(given, Slot)
    check_legal(tr, name, x, pending and given.requires_grad)
    if given is complex or (pending and dtypes.kind(given.dtype) == "c"):
        check_writable_dtype(name, given.dtype if pending else dtypes.default_dtype(complex), old.dtype)
    # NOTE: a view gets a value of its own: writing its base later must not count as a write of what was assigned.
    if pending and given.shape == old.shape and given.dtype == old.dtype and x._view is None:
        new = given
    else:
        new = advance(tr, PUT, slots, (), None, None, scalars)
    return x if put(tr, x, new, writes) else None


def record_inplace(op: OpDef, x: Handle, operands: Sequence[Any], statics: tuple[Any, ...] = ()) -> Handle:
    """x = op(x, ...) written into x: the right-hand side is read first, whatever it shares with x."""
    mode = local.trace.mode
    if mode.library is not None and mode.library.takes(op, (x, *operands)):
        _record_elsewhere(op, x, operands, statics)
        return x
    region = mode.autocast
    if region is not None:
        # NOTE: outside of autocast regions, where this step would be taken for the operation on operands that fit.
        set_mode("autocast", None)
    try:
        whole(_record_inplace, op, x, operands, statics)
    finally:
        if region is not None:
            restore_mode("autocast", region)
    return x


def _record_elsewhere(op: OpDef, x: Handle, operands: Sequence[Any], statics: tuple[Any, ...]) -> None:
    """As `record_inplace`, by what takes the operation's place."""

    def changed() -> Any:
        made = record(op, (x, *operands), statics)
        if made.shape != x.shape:
            raise ShapeError(f"{op.name}: output with shape {x.shape} doesn't match the broadcast shape {made.shape}")
        check_writable_dtype(op.name, made.dtype, x.dtype)
        return made

    rewrite(x, changed, op.name)


def _record_inplace(
    tr: Trace, op: OpDef, x: Handle, operands: Sequence[Any], statics: tuple[Any, ...], _: Any
) -> Handle | None:  # fmt: skip
    return x if put(tr, x, computed(tr, op, x, operands, statics)) else None


def computed(tr: Trace, op: OpDef, x: Handle, operands: Sequence[Any], statics: tuple[Any, ...]) -> Slot:
    """op(x, ...) in x's shape and dtype, where it may be written into x."""
    slots, scalars = operand_slots(tr, (x, *operands))
    flows = False
    for given in slots:
        if isinstance(given, Slot) and given.requires_grad:
            flows = True  # so it does into x, or x itself is asked
    check_legal(tr, op.name, x, flows)
    s = advance(tr, op, slots, statics, None, None, scalars)
    if s.shape != slots[0].shape:
        raise ShapeError(f"{op.name}: output with shape {slots[0].shape} doesn't match the broadcast shape {s.shape}")
    new: Slot = s
    if s.dtype != slots[0].dtype:
        check_writable_dtype(op.name, s.dtype, slots[0].dtype)
        new = advance(tr, PUT, [slots[0], s], (), None, None, ())
    return new


# A container, a key, and what stands there from then on.
Item = tuple[Any, Any, Any]


def update_whole(
    tr: Trace, op: OpDef, operands: Sequence[Any], statics: tuple[Any, ...], targets: Sequence[Handle],
    items: Sequence[Item],
) -> None:  # fmt: skip
    """Record op and write its outputs into targets that are no views, under no_grad; `Moved` if they are others."""
    # NOTE: looked at before the operands: what is written between was not read.
    storages = [*map(storage_held, targets)]
    plain = storages.count(None) == len(storages)
    holders: Sequence[Any] = targets
    if not plain:
        holders = [t if st is None else st for t, st in zip(targets, storages, strict=True)]
    writes, refs = [*map(writes_held, holders)], [*map(ref, holders)]
    slots, scalars = operand_slots(tr, operands)
    before = [*map(slot_held, holders)]
    pos = tr.pos
    s = advance(tr, op, slots, statics, None, None, scalars, take=False)
    if not s.targets:
        # NOTE: targets are operands of the operation, so the step's key says which values are superseded.
        of = {id(x): slot for x, slot in zip(operands, slots, strict=True)}
        old_slots = tuple(of[id(t)] for t in targets)
        for slot, old, t in zip(s.slots, old_slots, targets, strict=True):
            if old.leaf is not None and meta_of(t) is not None:
                slot.leaf, slot.requires_grad = old.leaf, True
        s.targets = old_slots  # last, for it says that the rest is there
    if several:
        for h, r, slot in zip(holders, refs, before, strict=True):
            if slot is not None and slot.step.owner is not tr and slot.step.op is not INPUT:
                take_over(h, slot, r)
    if not plain:
        for t, h in zip(targets, holders, strict=True):
            if h is not t and len(h.aliases) > 1:
                h.invalidate(t)
    held, results = Several(refs) if len(refs) > 1 else refs[0], tr.results
    write, stored = writer(len(targets)), set_items(items)
    # NOTE: no call from here on but of what is entered without a look at signals.
    if pos is not tr.pos or not write(tr, s, targets, storages, before, writes):
        raise Moved
    carry_out(stored)
    if s.n_scalars:
        tr.scalars[s.scalar_start : s.scalar_start + s.n_scalars] = scalars
    results[s.index] = None
    tr.refs[s.index] = held
    tr.ext = s.ext  # type: ignore[assignment]
    tr.pos = s


def set_items(items: Sequence[Item]) -> Any:
    """Assignments for `carry_out`. A container may have a `__setitem__` of Python's, which signals get in at."""
    return starmap(call, [(_setter(container), container, key, value) for container, key, value in items])


def _setter(container: Any) -> Any:
    if isinstance(container, dict):
        return dict.__setitem__
    return list.__setitem__ if isinstance(container, list) else setitem
