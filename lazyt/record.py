"""Recording one operation: find or make the next step of the walk, and hand out its values."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from lazyt.errors import DeviceError, DTypeError, ScalarRangeError
from lazyt.handle import Data, Gradient, Handle, Holder, Storage, View
from lazyt.ir import dtypes
from lazyt.ops.core import OpDef
from lazyt.shapes import infer, shapes_of
from lazyt.trace import (
    NONE,
    Ext,
    Key,
    Several,
    Site,
    Slot,
    Step,
    Trace,
    dtype_range,
    local,
    structure_id,
    user_line,
    user_site,
)

ref = weakref.ref
SCALARS = (float, int, bool, complex)

# The bound on a walk: steps, and bytes of leaf buffers.
MAX_STEPS = 1 << 17
MAX_BYTES = 8 << 30
# The bound on a trie: steps and extent chains; past it, it is forgotten between walks.
MAX_TRIE = 1 << 18


# Who is lazyt's behind the functions that ask for the user's line: `bind_leaf`, what calls it, and what calls that;
# `advance`, and what calls it.
LEAF_CALLERS, STEP_CALLERS = 3, 2


class _Special:
    """A step that is not an operation: a leaf, a change of grad mode, an assignment."""

    __slots__ = ("differentiable", "fallible", "name", "saves")

    def __init__(self, name: str) -> None:
        self.name = name
        self.saves: tuple[int, ...] = ()
        self.differentiable = True
        self.fallible = False

    def __repr__(self) -> str:
        return self.name


LEAF = _Special("leaf")
MODE = _Special("grad_mode")
ASSIGN = _Special("assign")


class Hooks:
    """What recording asks of the rooms above it: tensor.py and sync.py fill it in."""

    tensor_of_slot: Callable[[Slot], Handle]
    as_tensor: Callable[[Any, Any, Sequence[Any]], Handle]  # of host data, on a device, beside other operands
    over_array: Callable[[np.ndarray[Any, Any]], Handle]
    over_data: Callable[[Data], Handle]
    sync: Callable[[Trace, str, Any], None]
    compute_foreign: Callable[[Holder], Data]


hooks = Hooks()


def new_tensor(slot: Slot) -> Handle:
    """A handle on a value of this walk."""
    return hooks.tensor_of_slot(slot)


def run_sync(tr: Trace, cause: str, site: Any = None) -> None:
    """Compute what is pending in this walk."""
    hooks.sync(tr, cause, site)


# --- steps ---------------------------------------------------------------------------------------------------------


def _follow(tr: Trace, key: Key) -> Step | None:
    """The known child for this key; in a fresh walk the caller's line is part of the key."""
    pos = tr.pos
    nxt = pos.next
    if nxt is not NONE and nxt.key == key:
        return nxt
    s = pos.children.get(key)
    if s is not None and pos.parent is not None:
        pos.next = s
    return s


def _insert(tr: Trace, step: Step, key: Key, plain: Key) -> None:
    """Make a finished step known. NOTE: an interrupt may come after any call, so what others see comes last."""
    pos = tr.pos
    step.sid = structure_id(pos.sid, plain)
    step.mixed = pos.mixed or (pos.parent is not None and step.device != pos.device)
    if step.index >= len(tr.results) - 2:
        tr.results.extend([None] * len(tr.results))
    while step.scalar_start + step.n_scalars >= len(tr.scalars) - 2:
        tr.scalars.extend([0] * len(tr.scalars))
    tr.n_steps += 1
    pos.children[key] = step
    if pos.parent is not None:
        pos.next = step


def _plain(slots: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(s if isinstance(s, type) else (s.step.index, s.k) for s in slots)


def _check_bound(tr: Trace, site: Site) -> None:
    """Sync when the walk has reached its bound, at the place of the previous cut if that comes round again."""
    pos = tr.pos
    if pos.cut:
        run_sync(tr, "bound", site)
        return
    if pos.index < MAX_STEPS and tr.nbytes < MAX_BYTES:
        return
    previous = tr.cut_site
    if previous is None or site == previous or pos.index >= 2 * MAX_STEPS or tr.nbytes >= 2 * MAX_BYTES:
        tr.cut_site = site
        pos.cut, pos.next = True, NONE
        run_sync(tr, "bound", site)


def bind_leaf(tr: Trace, holder: Holder) -> Slot:
    """Meet a computed value: a leaf step of this walk. One buffer met twice is one leaf."""
    data = holder._data
    assert data is not None, "a holder with neither a pending nor a computed value"
    meta = holder._meta
    grad = 0 if meta is None or not meta.requires_grad else 1 if meta.is_leaf else 2
    key = id(data)
    at = tr.bound.get(key, -1)
    shape = data.shape
    s = tr.pos.next
    if s.op is not LEAF or s.statics != (data.dtype, len(shape), grad, at, data.device):
        s = _leaf_step(tr, (data.dtype, len(shape), grad, at, data.device))
    s.shape = shape
    index = s.index
    if grad:
        # A leaf's record lives with its tensor; that of a synced value must outlast a write to the tensor.
        tr.metas[index] = ref(meta) if grad == 1 else partial(_itself, meta)
    tr.refs[index] = ref(holder)
    ext = tr.ext
    ext = ext.last if ext.last_key == shape else ext.child(shape)  # type: ignore[assignment]
    leaves = tr.leaves
    number = len(leaves)
    # NOTE: no call from here on: an interrupt comes before all of this or after it.
    if at < 0:
        leaves += [data]
        tr.bound[key] = number
        tr.nbytes += data.nbytes
    s.ext = tr.ext = ext
    holder._slot = tr.pos = s
    return s


def _itself(x: Any) -> Any:
    return x


def _leaf_step(tr: Trace, statics: tuple[Any, ...]) -> Step:
    """The leaf step that was not predicted."""
    plain: Key = (LEAF, *statics)
    key: Key = plain
    if tr.pos.parent is None:
        key = (*plain, *user_line(LEAF_CALLERS))
        tr.started = perf_counter()
    s = _follow(tr, key)
    if s is None:
        pos = tr.pos
        s = Step(pos, LEAF, (), statics, key, pos.index + 1)
        s.dtype = statics[0]
        s.n_ints = statics[1]
        s.site = user_site()
        s.mode = tr.grad
        s.requires_grad = statics[2] != 0
        s.device = statics[4]
        s.leaf = s if s.requires_grad else None
        _insert(tr, s, key, plain)
    return s


def slot_of(tr: Trace, h: Handle) -> Slot:
    """The value of a handle in this walk: pending, met as a leaf, or derived anew through its view."""
    slot = h._slot
    if slot is not None and slot.step.owner is tr:
        return slot
    st = h._storage
    if st is None:
        return own_slot(tr, h)
    slot = own_slot(tr, st)
    chain = []
    v = h._view
    while v is not None:
        chain.append(v)
        v = v.parent
    # A view belongs to the graph or not as when it was made, whatever mode it is derived anew in.
    mode = chain[0].made_under_grad if chain and slot.requires_grad else tr.grad
    if mode != tr.grad:
        set_grad_mode(mode)
        try:
            return slot_of(tr, h)
        finally:
            set_grad_mode(not mode)
    for v in reversed(chain):
        slot = advance(tr, v.op, [slot], v.statics, v.ints, v.offsets, ())
        # NOTE: an intermediate view has no holder; only the last one is this handle's.
    if chain:
        tr.refs[slot.step.index] = ref(h)
    h._slot = slot
    return slot


def own_slot(tr: Trace, holder: Holder) -> Slot:
    """The value of a holder (a storage, or a handle without one) in this walk."""
    slot = holder._slot
    if slot is None:
        return bind_leaf(tr, holder)
    return slot if slot.step.owner is tr else _foreign(tr, holder)


def _foreign(tr: Trace, holder: Holder) -> Slot:
    """What is pending in another thread: that program is computed as it stands, and its value met as a leaf here.

    NOTE: the holder is left alone; its owner's walk goes on.
    """
    data = holder._data
    if data is None:
        data = hooks.compute_foreign(holder)
    slot = tr.foreign.get(id(data))
    if slot is None:
        slot = tr.foreign[id(data)] = bind_leaf(tr, Holder(data, holder._meta))
    return slot


def _range_error(op: OpDef, value: int, low: int, high: int) -> ScalarRangeError:
    return ScalarRangeError(f"{op.name}: Python integer {value} is out of range: the array's dtype holds {low}..{high}")


def advance(
    tr: Trace,
    op: OpDef,
    slots: Sequence[Any],
    statics: tuple[Any, ...],
    ints: tuple[int, ...] | None,
    offsets: tuple[int, ...] | None,
    scalars: Sequence[Any],
) -> Step:
    """Take the step for this call, making it when it is new; its errors are raised before anything changed."""
    ext = tr.ext if ints is None else tr.ext.child(ints)
    s = tr.pos.next
    # The step predicted by the last walk, compared part by part: most calls are this one.
    if not (
        s.op is op
        and s.operands == (slots := tuple(slots))
        and s.n_scalars == len(scalars) + (0 if offsets is None else len(offsets))
        and s.statics == statics
        and (
            (s.simple and ints is None and offsets is None)
            or s.key[3:6]
            == (tuple(map(type, statics)), -1 if ints is None else len(ints), -1 if offsets is None else len(offsets))
        )
        and not op.fallible
    ):
        s = _unpredicted(tr, op, slots, statics, ints, offsets, scalars, ext)
    if s.ext is not ext:
        _enter(s, ext, ints, offsets)
    if s.n_scalars:
        for position, low, high in s.checks:
            v = scalars[position]
            if not low <= v <= high:
                raise _range_error(op, v, low, high)
        at = s.scalar_start
        tr.scalars[at : at + s.n_scalars] = [*scalars, *offsets] if offsets else scalars
    tr.ext = ext
    tr.pos = s
    return s


def _unpredicted(
    tr: Trace, op: OpDef, slots: Sequence[Any], statics: Any, ints: Any, offsets: Any, scalars: Sequence[Any], ext: Ext
) -> Step:
    """The step for this call that was not predicted: known, or new."""
    plain: Key = (
        op,
        tuple(slots),
        statics,
        tuple(map(type, statics)),
        -1 if ints is None else len(ints),
        -1 if offsets is None else len(offsets),
    )
    key = plain
    if tr.pos.parent is None:
        key = (*plain, *user_line(STEP_CALLERS))
        tr.started = perf_counter()
    elif op.fallible:
        key = (*plain, *user_line(STEP_CALLERS))
    s = _follow(tr, key)
    if s is None:
        s = _new_step(tr, op, slots, statics, ints, offsets, scalars, key, plain, ext)
    return s


def _new_step(
    tr: Trace, op: OpDef, slots: Sequence[Any], statics: Any, ints: Any, offsets: Any, scalars: Any,
    key: Key, plain: Key, ext: Any,
) -> Step:  # fmt: skip
    b, nodes = infer(op, slots, statics, ints, offsets)
    check_devices(op.name, slots)
    pos = tr.pos
    s = Step(pos, op, tuple(slots), statics, key, pos.index + 1)
    s.n_weak = len(scalars)
    s.n_offsets = 0 if offsets is None else len(offsets)
    s.n_scalars = s.n_weak + s.n_offsets
    s.n_ints = 0 if ints is None else len(ints)
    s.info = ("ints",) * (ints is not None) + ("offsets",) * (offsets is not None)
    s.simple = ints is None and offsets is None and not statics
    s.bare = ints is None and offsets is None and not scalars and len(nodes) == 1 and not op.fallible
    s.site = user_site()
    s.mode = tr.grad
    checks = []
    for n in b.nodes:
        if n.op == "scalar" and dtypes.kind(n.dtype) in "iu":
            p = n.attrs.position  # type: ignore[union-attr]
            low, high = dtype_range(n.dtype)
            if not low <= scalars[p] <= high:
                raise _range_error(op, scalars[p], low, high)
            checks.append((p, low, high))
    s.checks = tuple(checks)
    if len(checks) == 1:
        s.low, s.high = checks[0][1:]
    grad = tr.grad and op.differentiable and any(isinstance(x, Slot) and x.requires_grad for x in slots)
    s.slots = tuple(s if k == 0 else Slot(s, k, None, False) for k in range(len(nodes)))
    for slot, n in zip(s.slots, nodes, strict=True):
        slot.dtype, slot.shape = n.dtype, n.shape  # type: ignore[assignment]
        slot.requires_grad = grad and dtypes.kind(n.dtype) in "fc"
    s.ext = ext
    s.by_ext[ext] = tuple(slot.shape for slot in s.slots)
    _insert(tr, s, key, (op, _plain(slots), *plain[2:]))
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
    """This thread's walk, with room for one more call: past its bound, what is pending is computed first."""
    tr = local.trace
    pos = tr.pos
    if pos.cut or pos.index >= MAX_STEPS or tr.nbytes >= MAX_BYTES:
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
                s = bind_leaf(tr, x) if x._storage is None else slot_of(tr, x)
            elif s.step.owner is not tr:
                s = slot_of(tr, x)
            slots.append(s)
        elif type(x) in SCALARS:
            slots.append(type(x))
            scalars.append(x)
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
    if tr.eager:
        run_sync(tr, "eager", s.site)
    return out


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
    # Mostly the call that followed the last time, on values of this walk: the rest of this function, in short.
    if (
        s.op is op
        and s.bare
        and s.ext is tr.ext
        and s.operands == tuple([x._slot if isinstance(x, Handle) else None for x in operands])
        and s.statics == statics
        and (not statics or s.key[3] == tuple(map(type, statics)))
        and ints is None
        and offsets is None
    ):
        h = new_tensor(s)
        tr.results[s.index] = h
        tr.pos = s
        if tr.eager:
            run_sync(tr, "eager", s.site)
        return h
    tr = begin()
    slots, scalars = operand_slots(tr, operands)
    return results(tr, advance(tr, op, slots, statics, ints, offsets, scalars))


def record_view(
    op: OpDef,
    x: Handle,
    statics: tuple[Any, ...] = (),
    ints: tuple[int, ...] | None = None,
    offsets: tuple[int, ...] | None = None,
) -> Any:
    """Record a view of x: its result shares x's storage, and writes through either are seen by both."""
    tr = begin()
    slots, scalars = operand_slots(tr, (x,))
    s = advance(tr, op, slots, statics, ints, offsets, scalars)
    h = new_tensor(s)
    st = share(tr, x)
    h._storage = st
    h._view = View(x._view, op, statics, ints, offsets, tr.grad, s)
    st.aliases.append(ref(h))
    if len(st.aliases) > 64 and len(st.aliases) & (len(st.aliases) - 1) == 0:
        st.aliases = [r for r in st.aliases if r() is not None]
    tr.refs[s.index] = ref(h)
    if tr.eager:
        run_sync(tr, "eager", s.site)
    return h


def share(tr: Trace, x: Handle) -> Storage:
    """The storage behind x, made now if x had its value to itself."""
    st = x._storage
    if st is not None:
        return st
    st = Storage()
    slot = x._slot
    st._slot, st._data, st._meta, st._writes = slot, x._data, x._meta, x._writes
    st.aliases.append(ref(x))
    if slot is None:
        # NOTE: no call from here on: an interrupt comes before all of this or after it.
        x._storage = st
        x._data = None
        return st
    i, owner = slot.step.index, slot.step.owner
    results = owner.results
    held = owner.refs.get(i)
    if type(held) is Several:
        held = Several(ref(st) if k == slot.k else r for k, r in enumerate(held))
    else:
        held = ref(st)
    # NOTE: no call from here on, as above.
    owner.refs[i] = held
    x._storage = st
    x._data = None
    results[i] = None
    return st


def check_devices(name: str, slots: Sequence[Any]) -> None:
    """DeviceError unless all operands are on one device."""
    devices = dict.fromkeys(x.step.device for x in slots if isinstance(x, Slot))
    if len(devices) > 1:
        raise DeviceError(f"{name}: operands on {' and '.join(map(repr, devices))}; move them with .to(device)")


def current_device() -> str:
    """The device that this thread's operations without operands record on."""
    return local.trace.device


def set_device(name: str) -> str:
    """Switch the device that this thread's operations without operands record on; returns what it was."""
    tr = local.trace
    before = tr.device
    if before != name:
        tr.device = name
        tr.pos = tr.roots[tr.grad] if tr.pos.parent is None else _mode_step(tr, name)
    return before


def _mode_step(tr: Trace, value: bool | str) -> Step:
    """The step that changes the grad mode, or the device, in the middle of a walk."""
    key: Key = (MODE, value)
    s = _follow(tr, key)
    if s is None:
        pos = tr.pos
        s = Step(pos, MODE, (), (value,), key, pos.index + 1)
        if isinstance(value, str):
            s.current = s.device = value
        else:
            s.mode = value
        s.site = user_site()
        _insert(tr, s, key, key)
    s.ext = tr.ext
    return s


def set_grad_mode(enabled: bool) -> bool:
    """Switch recording of gradients for this thread; returns what it was."""
    tr = local.trace
    before = tr.grad
    if before != enabled:
        s = tr.roots[enabled] if tr.pos.parent is None else _mode_step(tr, enabled)
        tr.grad = enabled
        tr.pos = s
    return before


def is_grad_enabled() -> bool:
    """Whether operations of this thread record gradients now.

    >>> import lazyt as lt
    >>> lt.is_grad_enabled()
    True
    """
    return bool(local.trace.grad)


def check_writable_dtype(name: str, value: np.dtype, target: np.dtype) -> None:
    """In-place results must be castable to the target's kind, as in NumPy's same-kind rule."""
    if not np.can_cast(
        np.float32 if value == dtypes.bfloat16 else value,
        np.float32 if target == dtypes.bfloat16 else target,
        "same_kind",
    ):
        raise DTypeError(f"{name}: a result of dtype {value} cannot be written into a tensor of dtype {target}")


def meta_of(h: Handle) -> Gradient | None:
    """The gradient record of a handle's storage, or its own."""
    return h._storage._meta if h._storage is not None and h._view is None else h._meta
