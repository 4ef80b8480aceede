"""Meeting a computed value: an input step of the trace."""

from __future__ import annotations

import weakref
from functools import partial
from sys import _getframe
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from lazyt.errors import LazytInternalError
from lazyt.tracing.call_site import is_line, user_line, user_site
from lazyt.tracing.inference import INFERENCE, is_inference
from lazyt.tracing.program import INPUT
from lazyt.tracing.steps import follow, hooks, insert
from lazyt.tracing.tensor_state import ELSEWHERE, Gradient, Holder, Inference, Storage
from lazyt.tracing.trace import NO_FORM, Step

if TYPE_CHECKING:
    from lazyt.tracing.program import Key, Slot
    from lazyt.tracing.tensor_state import Data
    from lazyt.tracing.trace import Trace

ref = weakref.ref

# Who is lazyt's behind the functions that ask for the user's line: `bind_input`, what calls it, and what calls that.
INPUT_CALLERS = 3


def bind_input(tr: Trace, holder: Holder, known: int = INPUT_CALLERS) -> Slot:
    """Meet a computed value: an input step of this trace. One buffer met twice is one input.

    So many callers are `known` to be lazyt's, this among them.
    """
    stored = type(holder) is Storage
    data: Any = holder._buffer
    met = (data,)
    if data is not None and data.form is None and not (Inference.used and Inference.known(holder)):
        form = form_of(data.dtype, data.shape, data.device)
        if data.form is None:
            data.form = form
    s = tr.pos.next
    # Mostly a value like the one that was met here the last time: the rest of this function, in short.
    number = tr.number
    if (
        data is not None and s.form is data.form and s.before is tr.ext and data.bound_in != number
        and holder._meta is None
    ):  # fmt: skip
        i = s.index
        # NOTE: no call from here on, or from the comparison at the end of the other branch: an interrupt comes before
        # all of this or after it, and so does another thread.
        if i and not stored:
            tr.results[i] = holder
        else:
            if not i:
                # The input that the last trace was followed by (see replay.py), if the line is that one.
                f = _getframe(known)
                site: Any = s.site
                if (f.f_lasti != site.lasti or f.f_code is not site.code) and not is_line(s.key[-2:], known):
                    return _bind_input(tr, holder, known + 1)
                tr.started = perf_counter()
            reference = ref(holder) if stored else None
            if (
                s.parent is not tr.pos
                or holder._buffer is not data
                or holder._slot is not None
                or holder._meta is not None
            ):
                return _met_meanwhile(tr, holder, known + 1)
            if stored:
                tr.refs[i] = reference
                tr.results[i] = None
            else:
                tr.results[i] = holder
        if s.counted:
            tr.nbytes += data.nbytes
        tr.inputs += met
        data.bound_in = number
        tr.ext = s.ext  # type: ignore[assignment]
        holder._slot = tr.pos = s
        return s
    # The same for a leaf, but for the first of a trace.
    meta = holder._meta
    if (
        data is not None and s.leaf_form is data.form and s.before is tr.ext and data.bound_in != number and s.index
        and meta is not None and meta.is_leaf and meta.requires_grad
        and not (Inference.used and Inference.known(holder))
    ):  # fmt: skip
        held, record, i, nbytes = ref(holder), ref(meta), s.index, data.nbytes
        # NOTE: no call from here on, as above.
        if s.parent is tr.pos and data is holder._buffer and holder._slot is None and holder._meta is meta:
            tr.metas[i] = record
            tr.refs[i] = held
            tr.results[i] = None
            tr.nbytes += nbytes
            tr.inputs += met
            data.bound_in = number  # type: ignore[union-attr]
            tr.ext = s.ext  # type: ignore[assignment]
            holder._slot = tr.pos = s
            return s
    return _bind_input(tr, holder, known + 1)


# So often it is looked at a value that others are writing.
MANY = 1000
# Values of more bytes count for the bound on traces.
SMALL = 1024
MAX_FORMS = 4096
# The form of a value that several threads have met at a time: a trace finds its input in `Trace.foreign`.
SHARED = object()
# What stands for a dtype, a shape and a device.
_forms: dict[tuple[Any, ...], object] = {}


def form_of(dtype: Any, shape: tuple[int, ...], device: object) -> object:
    """What stands for them, by which an input that is predicted is known."""
    if len(_forms) >= MAX_FORMS:
        _forms.clear()
    return _forms.setdefault((dtype, shape, device), object())


def _bind_input(tr: Trace, holder: Holder, known: int) -> Slot:
    """`bind_input` of an input with gradients, of one that was met before, or one not predicted."""
    data = holder._buffer
    if data is None:
        return _met_meanwhile(tr, holder, known + 1)
    meta, pos = holder._meta, tr.pos
    s = pos.next
    inference = Inference.used and is_inference(holder)
    form = data.form
    if form is None:
        # NOTE: that of an inference tensor is another one, so it is never taken for a normal one by what is predicted.
        form = form_of(data.dtype, data.shape, (data.device, INFERENCE) if inference else data.device)
        if data.form is None:
            data.form = form
    grad = INFERENCE if inference else 0 if meta is None or not meta.requires_grad else 1 if meta.is_leaf else 2
    # A leaf's record lives with its tensor; that of a synced value must outlast a write to the tensor.
    record = None if grad in (0, INFERENCE) else ref(meta) if grad == 1 else partial(_itself, meta)
    held = ref(holder) if meta is not None or type(holder) is Storage else None
    met, number = [data], tr.number
    if data.form is SHARED and (here := _input_here(tr, data, holder._meta, None)) is not None:
        holds, own, i = tr.holder(here), ref(holder), here.step.index
        # NOTE: only who is known to the trace may have a slot of it, which the sync takes away.
        takes = (holds is None or holds is holder or type(holds) is Holder) and type(holder) is not Holder
        # NOTE: no call from here on.
        if takes and holder._slot is None and holder._buffer is data and here.step.owner is tr:
            tr.refs[i] = own
            tr.results[i] = None
            holder._slot = here
        return here
    inputs, before, at = tr.inputs, tr.ext, -1
    if form is SHARED:
        form = form_of(data.dtype, data.shape, (data.device, INFERENCE) if inference else data.device)
    shape = data.shape
    if data.bound_in == number:
        # NOTE: another thread may have met it since; then it is an input of its own here.
        at = next((i for i, d in enumerate(inputs) if d is data), -1)
    if s.op is not INPUT or s.statics != (data.dtype, len(shape), grad, at, data.device) or tr.pos.parent is None:
        s = _input_step(tr, (data.dtype, len(shape), grad, at, data.device), known)
    ext = before.last if before.last_key == shape else before.child(shape)
    index = s.index
    small, number = data.nbytes <= SMALL, id(data) if data.form is SHARED else 0
    # NOTE: no call from here on: an interrupt comes before all of this or after it, and so does another thread.
    # A sync of a signal handler's that began at the root ended there: the inputs are others, and the place is the same.
    if (
        pos is not tr.pos
        or pos is not s.parent
        or inputs is not tr.inputs
        or holder._buffer is not data
        or holder._slot is not None
        or holder._meta is not meta
    ):
        return _met_meanwhile(tr, holder, known + 1)
    if record is not None:
        tr.metas[index] = record
    if held is not None:
        tr.refs[index] = held
        tr.results[index] = None
    else:
        tr.results[index] = holder
    if number:
        tr.more = True
        tr.foreign[number] = s
    if at < 0:
        inputs += met
        data.bound_in = number
        if meta is not None or not small:
            tr.nbytes += data.nbytes
    s.shape, s.before = shape, before
    s.form = form if meta is None and at < 0 else NO_FORM
    s.leaf_form = form if grad == 1 and at < 0 else NO_FORM
    s.counted = not small
    s.ext = tr.ext = ext
    holder._slot = tr.pos = s
    return s


def foreign(tr: Trace, holder: Holder) -> Slot:
    """What is pending in another thread: that program is computed as it stands, and its value met as an input here.

    NOTE: the holder is left alone; its owner's trace goes on.
    """
    slot, data, meta = holder._slot, holder._buffer, holder._meta
    if data is None:
        data = hooks.compute_foreign(holder)
        if slot is not None and slot.step.owner.failed and holder._slot is None:
            return bind_input(tr, holder)  # it has left that trace, with its graph
    found = _input_here(tr, data, meta, slot)
    if found is None:
        if meta is None and slot is not None and slot.requires_grad and slot.leaf is None:
            # Gradients end here, and whoever asks for them is told so.
            meta = Gradient(True, is_leaf=False)
            meta.slot, meta.segment = slot, ELSEWHERE
        data.form = SHARED
        here = Holder(data, meta)
        if is_inference(holder):
            Inference.mark(here)
        found = bind_input(tr, here)
    return found


def _input_here(tr: Trace, data: Data, meta: Gradient | None, slot: Slot | None) -> Slot | None:
    """The input that a value known to several threads is in this trace, if it was met with this record of gradients."""
    found = tr.foreign.get(id(data))
    if found is None:
        return None
    record = tr.metas.get(found.step.index)
    m = None if record is None else record()
    return found if m is meta or (m is not None and m.segment is ELSEWHERE and m.slot is slot) else None


def _met_meanwhile(tr: Trace, holder: Any, known: int) -> Slot:
    """`bind_input` of what another thread, or a handler of signals, has just met, written, computed or shared."""
    for _ in range(MANY):
        st = holder._storage
        if st is not None:
            holder = st
        slot: Slot | None = holder._slot
        if slot is not None:
            return slot if slot.step.owner is tr else foreign(tr, holder)
        if holder._buffer is not None:
            return bind_input(tr, holder, known + 1)
        sleep(0)
    raise without_value()


def without_value() -> LazytInternalError:
    """What no thread and no interrupt may leave behind."""
    return LazytInternalError("a holder with neither a pending nor a computed value")


def _itself(x: Any) -> Any:
    return x


def _input_step(tr: Trace, statics: tuple[Any, ...], known: int) -> Step:
    """The input step that was not predicted."""
    plain: Key = (INPUT, *statics)
    key: Key = plain
    first = tr.pos.parent is None
    if first:
        key = (*plain, *user_line(known))
        tr.started = perf_counter()
    s = follow(tr, key)
    if s is None:
        s = Step(tr.pos, INPUT, (), statics, key)
        s.dtype = statics[0]
        s.n_ints = statics[1]
        s.site = user_site()
        s.requires_grad = statics[2] not in (0, INFERENCE)
        s.device = statics[4]
        s.leaf = s if s.requires_grad else None
        insert(tr, s, key)
    if first:
        if tr.ended is None:
            s.parent.first = s  # type: ignore[union-attr]
        elif s.parent is tr.ended.root:  # else a signal handler has moved the trace
            tr.ended.then = s
    return s
