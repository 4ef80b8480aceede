"""Recording one operation: find or make the next step of the trace, and hand out its values."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from operator import index
from time import perf_counter
from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.errors import DTypeError
from lazyt.ir import dtypes
from lazyt.ops.definition import OpDef
from lazyt.tracing.call_site import Site, called_site, is_line, user_line, user_site
from lazyt.tracing.commit import slot_held
from lazyt.tracing.current import restore_grad_mode, set_grad_mode
from lazyt.tracing.inference import check_saved
from lazyt.tracing.inputs import INPUT_CALLERS, bind_input, foreign
from lazyt.tracing.program import INPUT, Key, Slot
from lazyt.tracing.refusals import check_devices, range_error
from lazyt.tracing.shape_inference import inferred, shapes_of
from lazyt.tracing.steps import follow, hooks, insert, new_storage, new_tensor, run_sync
from lazyt.tracing.tensor_state import Gradient, Handle, Holder, Inference, Storage, View
from lazyt.tracing.trace import NONE, Ext, Several, Step, Trace, holding, local

if TYPE_CHECKING:
    from lazyt.tracing import restarts
else:
    restarts = on_demand.module("lazyt.tracing.restarts")

ref = weakref.ref
SCALARS = (float, int, bool, complex)

# The bound on a trace: steps, and bytes of input buffers. A trace that goes round a loop ends sooner (`Trace.bound`).
MAX_STEPS = 1 << 17
MAX_BYTES = 8 << 30
# So often other threads may compute values of one trace, before it is synced.
POLLS = 8


# Who is lazyt's behind a function that asks for the user's line: `advance`, and what calls it.
STEP_CALLERS = 2


def _check_bound(tr: Trace, site: Site) -> None:
    """Sync when the trace has reached its bound, at the place of the previous cut if that comes round again.

    Recording a new step costs a hundred times what a known one does, and a known plan is free. So a trace of some
    length that goes round a loop ends between two iterations: the traces behind it repeat it.
    """
    pos = tr.pos
    if tr.polled >= POLLS:
        # Threads ask for values of a trace that goes on and on: each time it is another program.
        if not tr.syncs_forbidden:
            run_sync(tr, "another thread", site)
        return
    if pos.index < MAX_STEPS and tr.nbytes < MAX_BYTES:
        left = 0 if pos.cut else hooks.iteration_left(tr)
        number, before = tr.left
        # NOTE: an iteration may begin inside of a call, where nobody asks. That each asks again would be a square.
        ends = left == 0 or (left is not None and number == tr.number and left >= before)
        if ends and hooks.may_end(tr):
            pos.cut, pos.next = True, NONE
            run_sync(tr, "bound", site)
        elif left is None or ends:
            tr.bound, tr.left = min(MAX_STEPS, 2 * tr.bound), (0, 0)
        else:
            tr.bound, tr.left = min(MAX_STEPS, pos.index + left), (tr.number, left)
        return
    previous = tr.cut_site
    if pos.cut or previous is None or site == previous or pos.index >= 2 * MAX_STEPS or tr.nbytes >= 2 * MAX_BYTES:
        tr.cut_site = site
        pos.cut, pos.next = True, NONE
        run_sync(tr, "bound", site)


def slot_of(tr: Trace, h: Handle, known: int = 1) -> Slot:
    """The value of a handle in this trace: pending, met as an input, or derived anew through its view.

    So many callers are `known` to be lazyt's, this among them.
    """
    slot = h._slot
    if slot is not None and slot.step.owner is tr:
        return slot
    st = h._storage
    if st is None:
        return own_slot(tr, h)
    writes = st._writes
    slot = bind_input(tr, st, known + 1) if st._slot is None else own_slot(tr, st)
    v = h._view
    if v is None:
        if st._slot is slot:  # what is another thread's has none here that the next sync would take away
            h._slot = slot
        return slot
    chain = []
    while v is not None:
        chain.append(v)
        v = v.parent
    # A view belongs to the graph or not as when it was made, whatever mode it is derived anew in.
    grad = chain[0].made_under_grad if slot.requires_grad else tr.mode.grad
    if grad != tr.mode.grad:
        before = set_grad_mode(grad)
        try:
            return slot_of(tr, h)
        finally:
            restore_grad_mode(before)
    busy = tr.busy
    # NOTE: no sync of a signal handler's may end the trace before all is derived.
    tr.busy = True
    try:
        # NOTE: one may have ended it before; what another thread has pending is met as an input each time.
        base = slot = own_slot(tr, st)
        for v in reversed(chain):
            slot = _derived(tr, slot, v)
            # NOTE: an intermediate view has no holder; only the last one is this handle's.
        if h._meta is not None and slot.requires_grad:
            slot = hooks.view_again(tr, h, slot, writes)
        held = ref(h)
        # NOTE: no call from here on.
        now = st._slot
        if now is not base and now is not None and now.step.owner is tr:
            return slot_of(tr, h, known)  # a handler of signals wrote meanwhile
        if st._writes == writes:  # else another thread has written it meanwhile
            tr.refs[slot.step.index] = held
            h._slot = slot
        return slot
    finally:
        tr.busy = busy


def _derived(tr: Trace, slot: Slot, v: View) -> Step:
    """The step of a view of this value."""
    s = tr.pos.next
    # Mostly the view that was derived here the last time: `advance`, in short.
    if s.view is v and s.a is slot and s.index:
        ext = tr.ext
        if v.ints is not None:
            ext = ext.last if ext.last_key == v.ints else ext.child(v.ints)
        # NOTE: no call from here on.
        if s.ext is ext and s.parent is tr.pos:
            if v.offsets:
                tr.scalars[s.scalar_start : s.scalar_start + s.n_scalars] = v.offsets
            tr.ext = ext
            tr.results[s.index] = None
            tr.pos = s
            return s
    s = advance(tr, v.op, [slot], v.statics, v.ints, v.offsets, ())
    s.view = v
    return s


def own_slot(tr: Trace, holder: Holder) -> Slot:
    """The value of a holder (a storage, or a handle without one) in this trace."""
    slot = holder._slot
    if slot is None:
        return bind_input(tr, holder)
    return slot if slot.step.owner is tr else foreign(tr, holder)


def advance(
    tr: Trace,
    op: OpDef,
    slots: Sequence[Any],
    statics: tuple[Any, ...],
    ints: tuple[int, ...] | None,
    offsets: tuple[int, ...] | None,
    scalars: Sequence[Any],
    take: bool = True,
) -> Step:
    """Take the step for this call, making it when it is new; its errors are raised before anything changed.

    With `take` False it is only found: its extents are `s.ext`, and who takes it sees that the trace is where it was.
    """
    pos, ext = tr.pos, tr.ext
    if ints is not None:
        ext = ext.child(ints)
    s = pos.next
    # The step predicted by the last trace, compared part by part: most calls are this one.
    if not (
        s.op is op
        and s.operands == (slots := tuple(slots))
        and s.n_scalars == len(scalars) + (0 if offsets is None else len(offsets))
        and (
            (s.simple and ints is None and offsets is None and not statics)
            or (
                (s.statics is statics or (s.key[2] == tuple(map(type, statics)) and s.statics == statics))
                and s.key[4] == (-1 if ints is None else len(ints))
                and s.key[5] == (-1 if offsets is None else len(offsets))
            )
        )
        and s.index
        and (not op.fallible or is_line(s.key[-2:], STEP_CALLERS - 1))
    ):
        s = _unpredicted(tr, op, slots, statics, ints, offsets, scalars, ext)
    if s.ext is not ext:
        _enter(s, ext, ints, offsets)
    if s.n_scalars:
        for position, low, high in s.checks:
            v = scalars[position]
            if not low <= v <= high:
                raise range_error(op, v, low, high)
        if offsets:
            scalars = [*scalars, *offsets]
    if not take:
        return s
    # NOTE: no call from here on. Behind what a handler of signals has recorded meanwhile it is another step.
    if pos is not tr.pos or pos is not s.parent:
        return restarts.repeated(tr, advance, op, slots, statics, ints, offsets, scalars[: s.n_weak])
    if s.n_scalars:
        tr.scalars[s.scalar_start : s.scalar_start + s.n_scalars] = scalars
    tr.ext = ext
    tr.results[s.index] = None
    tr.pos = s
    return s


def _unpredicted(
    tr: Trace, op: OpDef, slots: Sequence[Any], statics: Any, ints: Any, offsets: Any, scalars: Sequence[Any], ext: Ext
) -> Step:
    """The step for this call that was not predicted: known, or new."""
    plain: Key = (
        op,
        tuple(slots),
        # NOTE: types before values, which are compared only where they are of one type: equal ones may mean different
        # things, and those of NumPy compare to arrays.
        tuple(map(type, statics)),
        statics,
        -1 if ints is None else len(ints),
        -1 if offsets is None else len(offsets),
    )
    key = plain
    if tr.pos.parent is None:
        key = (*plain, *user_line(STEP_CALLERS))
        tr.started = perf_counter()
    elif op.fallible:
        key = (*plain, *user_line(STEP_CALLERS))
    first = tr.pos.parent is None
    try:
        s = follow(tr, key)
    except TypeError:
        regular = _hashable(op, statics)
        if regular is statics:
            raise
        return _unpredicted(tr, op, slots, regular, ints, offsets, scalars, ext)
    if s is None:
        s = _new_step(tr, op, slots, statics, ints, offsets, scalars, key, ext)
    if first:
        if tr.ended is None:
            s.parent.first = s  # type: ignore[union-attr]
        elif s.parent is tr.ended.root:  # else a signal handler has moved the trace
            tr.ended.then = s
    return s


def _hashable(op: OpDef, statics: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments that can be part of a key: lists as tuples, arrays of one integer as integers; else DTypeError.

    The same tuple if all can.
    """
    found = [v if isinstance(v, Hashable) else _regular(op, v) for v in statics]
    return statics if all(a is b for a, b in zip(found, statics, strict=True)) else tuple(found)


def _regular(op: OpDef, v: Any) -> Any:
    try:
        return tuple(map(index, v)) if isinstance(v, list) else index(v)
    except TypeError:
        raise DTypeError(f"{op.name}: an integer or a tuple of integers is required, got {v!r}") from None


def _new_step(
    tr: Trace, op: OpDef, slots: Sequence[Any], statics: Any, ints: Any, offsets: Any, scalars: Any, key: Key, ext: Any
) -> Step:  # fmt: skip
    values, ranges = inferred(op, slots, statics, ints, offsets)
    pos = tr.pos
    check_devices(op.name, slots, pos.mode.device, [dtype for _, dtype in values])
    s = Step(pos, op, tuple(slots), statics, key)
    s.n_weak = len(scalars)
    s.n_offsets = 0 if offsets is None else len(offsets)
    s.n_scalars = s.n_weak + s.n_offsets
    s.n_ints = 0 if ints is None else len(ints)
    s.info = ("ints",) * (ints is not None) + ("offsets",) * (offsets is not None)
    s.simple = ints is None and offsets is None and not statics
    s.bare = offsets is None and len(values) == 1
    s.site = called_site(op.name) if op.fallible else user_site()
    for p, low, high in ranges:
        if not low <= scalars[p] <= high:
            raise range_error(op, scalars[p], low, high)
    s.checks = ranges
    if len(ranges) == 1:
        s.low, s.high = ranges[0][1:]
    grad = s.mode.grad and op.differentiable and any(isinstance(x, Slot) and x.requires_grad for x in slots)
    s.give(len(values))
    for slot, (shape, dtype) in zip(s.slots, values, strict=True):
        slot.shape, slot.dtype = shape, dtype
        slot.requires_grad = grad and dtypes.kind(dtype) in "fc"
    s.ext = ext
    s.by_ext[ext] = tuple(slot.shape for slot in s.slots)
    if grad and Inference.used:
        for entry in op.saves:
            i, by = entry if isinstance(entry, tuple) else (entry, entry)
            x = slots[i] if 0 <= i < len(slots) else None
            other = slots[by] if 0 <= by < len(slots) else None
            if isinstance(x, Slot) and (i == by or (isinstance(other, Slot) and other.requires_grad)):
                check_saved(x, s, i)
    if hooks.made_step is not None:
        hooks.made_step(s)
    insert(tr, s, key)
    return s


def _enter(s: Step, ext: Any, ints: Any, offsets: Any) -> None:
    """The same step under other extents: infer its shapes once for each."""
    shapes = s.by_ext.get(ext)
    if shapes is None:
        shapes = shapes_of(s, ints, offsets)
        if len(s.by_ext) > 512:
            s.by_ext.clear()
        s.by_ext[ext] = shapes
    for slot, shape in zip(s.slots, shapes, strict=True):
        slot.shape = shape
    s.ext = ext


# --- public calls --------------------------------------------------------------------------------------------------


def begin() -> Trace:
    """This thread's trace, with room for one more call: past its bound, what is pending is computed first."""
    tr = local.trace
    pos = tr.pos
    if pos.cut or pos.index >= tr.bound or tr.nbytes >= MAX_BYTES:
        _check_bound(tr, user_site())
    return tr


def operand_slots(tr: Trace, operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Each operand's slot, or the type of a Python scalar; and the scalars' values."""
    slots: list[Any] = []
    scalars: list[Any] = []
    for x in operands:
        if isinstance(x, Handle):
            s = x._slot
            if s is None:
                s = bind_input(tr, x) if x._storage is None else slot_of(tr, x)
            elif s.step.owner is not tr:
                s = slot_of(tr, x)
            slots.append(s)
        elif type(x) in SCALARS:
            slots.append(type(x))
            scalars.append(x)
        elif (number := dtypes.plain_number(x)) is not None:
            slots.append(type(number))
            scalars.append(number)
        else:
            slots.append(slot_of(tr, hooks.as_tensor(x, _place(operands), operands)))
    return slots, scalars


def _place(operands: Sequence[Any]) -> Any:
    """Where host data among operands goes: to the tensors that it is used with; None where there are none."""
    return next((x.device for x in operands if isinstance(x, Handle)), None)


def results(tr: Trace, s: Step) -> Any:
    """New handles for the values of the step just taken."""
    if len(s.slots) == 1:
        out: Any = new_tensor(s)
        tr.results[s.index] = out
    else:
        out = tuple(new_tensor(slot) for slot in s.slots)
        tr.refs[s.index] = Several(ref(h) for h in out)
    return out


def _are_operands(tr: Trace, s: Step, operands: Sequence[Any]) -> bool:
    """Whether a step that is predicted and bare is on these values; then it has the scalars among them."""
    expected = s.operands
    if not s.n_weak:
        try:
            return expected == tuple(map(slot_held, operands))
        except AttributeError:  # host data, which is met in its turn
            return False
    if len(expected) != len(operands):
        return False
    tensor = hooks.tensor
    scalars: list[Any] = []
    for x, y in zip(operands, expected):  # noqa: B905 - strict costs, and they are as many
        if type(x) is tensor:
            if x._slot is not y:
                return False
        elif type(x) is y:
            scalars += (x,)
        else:
            return False
    for i, low, high in s.checks:
        if not low <= scalars[i] <= high:
            return False
    # NOTE: no call from here on. Another one's scalars may stand there by now.
    if s.parent is not tr.pos:
        return False
    tr.scalars[s.scalar_start : s.scalar_start + s.n_weak] = scalars
    return True


def record(
    op: OpDef,
    operands: Sequence[Any],
    statics: tuple[Any, ...] = (),
    ints: tuple[int, ...] | None = None,
    offsets: tuple[int, ...] | None = None,
) -> Any:
    """Record one call of `op`; nothing runs. Returns its result handle, or a tuple of them."""
    tr = local.trace
    s = tr.pos.next
    if s.op is INPUT and tr.nbytes < MAX_BYTES:
        for x in operands:
            if isinstance(x, Handle) and x._slot is None:
                if x._storage is None:
                    bind_input(tr, x)
                else:
                    slot_of(tr, x, INPUT_CALLERS)
            elif not isinstance(x, Handle) and type(x) not in SCALARS:
                break  # host data is met in its turn
        s = tr.pos.next
    ext = tr.ext
    if ints is not None:
        ext = ext.last if ext.last_key == ints else ext.child(ints)
    # Mostly the call that followed the last time, on values of this trace: the rest of this function, in short.
    if (
        s.op is op
        and s.ext is ext
        and s.bare
        and offsets is None
        and (s.statics is statics or (s.key[2] == tuple(map(type, statics)) and s.statics == statics))
        and (
            getattr(operands[0], "_slot", None) is s.a is not None
            if s.b is None and len(operands) == 1
            else _are_operands(tr, s, operands)
        )
        and s.index
        and (not op.fallible or is_line(s.key[-2:], 1))
    ):
        h = tr.results[s.index]
        if h is None:
            for h in hooks.made:  # noqa: B007 - `next` would be a call, behind which CPython looks at signals
                break
            h._buffer = h._meta = h._storage = h._view = None
            h._writes = 0
        if s.parent is tr.pos:
            h._slot = s
            tr.results[s.index] = h
            tr.ext = ext
            tr.pos = s
            if tr.eager:
                run_sync(tr, "eager", s.site)
            return h
    if tr.mode.intercepted:
        found = _intercepted(tr.mode, op, operands, statics, ints, offsets)
        if found is not None:
            return found
    tr = begin()
    busy = tr.busy
    tr.busy = True
    try:
        slots, scalars = operand_slots(tr, operands)
        s = advance(tr, op, slots, statics, ints, offsets, scalars)
        out = results(tr, s)
    finally:
        tr.busy = busy
    if tr.eager:
        run_sync(tr, "eager", s.site)
    return out


def _intercepted(mode: Any, op: OpDef, operands: Sequence[Any], statics: Any, ints: Any, offsets: Any) -> Any:
    """What autocast, or a kernel that was put in its place, records instead of a call; None if the call stands."""
    if mode.autocast is not None:
        # NOTE: inputs come before casts, as `record` takes them where they were met before: one order, one program.
        tr = begin()
        for x in operands:
            if isinstance(x, Handle) and x._slot is None:
                slot_of(tr, x)
            elif not isinstance(x, Handle) and type(x) not in SCALARS:
                break  # host data is met in its turn
        # NOTE: cast operands are not cast again. What was taken before is what follows cast operands.
        found = mode.autocast.operands(op.name, operands, statics)
        if found is not None:
            return record(op, found, statics, ints, offsets)
    return None if mode.library is None else mode.library.record(op, operands, statics, ints, offsets)


def record_view(
    op: OpDef,
    x: Handle,
    statics: tuple[Any, ...] = (),
    ints: tuple[int, ...] | None = None,
    offsets: tuple[int, ...] | None = None,
) -> Any:
    """Record a view of x: its result shares x's storage, and writes through either are seen by both."""
    tr = local.trace
    pos = tr.pos
    if pos.cut or pos.index >= tr.bound or tr.nbytes >= MAX_BYTES:
        begin()
    busy = tr.busy
    tr.busy = True
    try:
        slot = x._slot
        if slot is None or slot.step.owner is not tr:
            slot = slot_of(tr, x, INPUT_CALLERS)
        ext = tr.ext
        if ints is not None:
            ext = ext.last if ext.last_key == ints else ext.child(ints)
        s = tr.pos.next
        parent = x._view
        # Mostly the view that was made here the last time: `advance`, in short.
        if (
            s.op is op
            and s.a is slot
            and s.ext is ext
            and (s.statics is statics or (s.key[2] == tuple(map(type, statics)) and s.statics == statics))
            and s.key[5] == (-1 if offsets is None else len(offsets))
            and s.parent is tr.pos
        ):
            # NOTE: no call from here on but the last comparison.
            if offsets:
                tr.scalars[s.scalar_start : s.scalar_start + s.n_scalars] = offsets
            tr.ext = ext
            tr.results[s.index] = None
            tr.pos = s
            view = s.view
            if (
                view is None
                or view.parent is not parent
                or view.shape is not s.shape
                or view.offsets != offsets
                or view.ints != ints
            ):
                view = s.view = View(parent, op, statics, ints, offsets, tr.mode.grad, s)
        else:
            s = advance(tr, op, (slot,), statics, ints, offsets, ())
            view = View(parent, op, statics, ints, offsets, tr.mode.grad, s)
        for h in hooks.made:  # noqa: B007 - as in `record`
            break
        h._slot = s
        h._buffer = h._meta = None
        h._writes = 0
        st = h._storage = x._storage or share(tr, x)
        h._view = view
        reference = ref(h)
        aliases = st.aliases
        aliases.append(reference)
        if len(aliases) > 64 and len(aliases) & (len(aliases) - 1) == 0:
            st.prune()
        tr.refs[s.index] = reference
        if x._slot is not slot:  # another thread or a handler of signals wrote meanwhile: this is seen anew
            h._slot = None
    finally:
        tr.busy = busy
    if tr.eager:
        run_sync(tr, "eager", s.site)
    return h


def share(tr: Trace, x: Handle) -> Storage:
    """The storage behind x, made now if x had its value to itself."""
    st = x._storage
    if st is not None:
        return st
    slot = x._slot
    if slot is None or slot.step.owner is tr:
        made = new_storage(x)
        if made is not None:
            return made
    with holding:  # its trace may be computed just now
        while True:
            made = x._storage or new_storage(x)
            if made is not None:
                return made


def current_device() -> str:
    """The device that this thread's operations without operands record on."""
    return local.trace.mode.device


def is_grad_enabled() -> bool:
    """Whether operations of this thread record gradients now.

    >>> import lazyt as lt
    >>> lt.is_grad_enabled()
    True
    """
    return local.trace.mode.grad


def meta_of(h: Handle) -> Gradient | None:
    """The gradient record of a handle's storage, or its own."""
    return h._storage._meta if h._storage is not None and h._view is None else h._meta
