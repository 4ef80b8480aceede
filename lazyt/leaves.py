"""Meeting a computed value: a leaf step of the walk."""

from __future__ import annotations

import weakref
from functools import partial
from sys import _getframe
from time import perf_counter
from typing import TYPE_CHECKING, Any

from lazyt.handle import Storage
from lazyt.site import is_line, user_line, user_site
from lazyt.trace import NO_FORM, Step
from lazyt.walk import LEAF, follow, insert

if TYPE_CHECKING:
    from lazyt.handle import Data, Holder
    from lazyt.trace import Key, Slot, Trace

ref = weakref.ref

# Who is lazyt's behind the functions that ask for the user's line: `bind_leaf`, what calls it, and what calls that.
LEAF_CALLERS = 3


def bind_leaf(tr: Trace, holder: Holder, known: int = LEAF_CALLERS) -> Slot:
    """Meet a computed value: a leaf step of this walk. One buffer met twice is one leaf.

    So many callers are `known` to be lazyt's, this among them.
    """
    data: Any = holder._data
    met = (data,)
    s = tr.pos.next
    # Mostly a value like the one that was met here the last time: the rest of this function, in short.
    if s.form is data.form and s.before is tr.ext and data.met != tr.walk and holder._meta is None:
        if not s.index:
            # The leaf that the last walk was followed by (see repeating.py), if the line is that one.
            f, key = _getframe(known), s.key
            if (f.f_lasti != key[-1] or id(f.f_code) != key[-2]) and not is_line(key[-2:], known):
                return _bind_leaf(tr, holder, known + 1)
            tr.started = perf_counter()
            if holder._data is not met[0]:
                return _met(tr, holder, known + 1)
        held = None
        if type(holder) is Storage:
            held = ref(holder)
            if holder._data is not met[0]:
                return _met(tr, holder, known + 1)
        walk = tr.walk
        # NOTE: no call from here on: an interrupt comes before all of this or after it.
        if s.parent is not tr.pos:
            return _met(tr, holder, known + 1)
        if held is None:
            tr.results[s.index] = holder
        else:
            tr.refs[s.index] = held
            tr.results[s.index] = None
        if s.counted:
            tr.nbytes += data.nbytes
        tr.leaves += met
        data.met = walk
        tr.ext = s.ext  # type: ignore[assignment]
        holder._slot = tr.pos = s
        return s
    return _bind_leaf(tr, holder, known + 1)


def _met(tr: Trace, holder: Holder, known: int) -> Slot:
    """`bind_leaf` of what a handler of signals, or a finalizer, may have met meanwhile, or written."""
    slot = holder._slot
    return slot if slot is not None and slot.step.owner is tr else bind_leaf(tr, holder, known + 1)


# Values of more bytes count for the bound on walks.
SMALL = 1024
MAX_FORMS = 4096
# What stands for a dtype, a shape and a device.
_forms: dict[tuple[Any, ...], object] = {}


def _form_of(data: Data) -> object:
    """The form of a value that is met the first time."""
    if len(_forms) >= MAX_FORMS:
        _forms.clear()
    data.form = _forms.setdefault((data.dtype, data.shape, data.device), object())
    return data.form


def _bind_leaf(tr: Trace, holder: Holder, known: int) -> Slot:
    """`bind_leaf` of a leaf with gradients, of one that was met before, or one not predicted."""
    data = holder._data
    assert data is not None, "a holder with neither a pending nor a computed value"
    meta, pos = holder._meta, tr.pos
    s = pos.next
    grad = 0 if meta is None or not meta.requires_grad else 1 if meta.is_leaf else 2
    leaves, walk, before, at = tr.leaves, tr.walk, tr.ext, -1
    ext: Any
    form = data.form or _form_of(data)
    if s.shaped is form and s.before is before and data.met != walk and s.index and s.statics[2] == grad:
        # Like the one that was met here the last time, but with gradients.
        shape, ext = s.shape, s.ext
    else:
        shape = data.shape
        if data.met == walk:
            # NOTE: another thread may have met it since; then it is a leaf of its own here.
            at = next((i for i, d in enumerate(leaves) if d is data), -1)
        if s.op is not LEAF or s.statics != (data.dtype, len(shape), grad, at, data.device) or tr.pos.parent is None:
            s = _leaf_step(tr, (data.dtype, len(shape), grad, at, data.device), known)
        ext = before.last if before.last_key == shape else before.child(shape)
    index = s.index
    # A leaf's record lives with its tensor; that of a synced value must outlast a write to the tensor.
    record = None if not grad else ref(meta) if grad == 1 else partial(_itself, meta)
    held = ref(holder) if meta is not None or type(holder) is Storage else None
    small, met = data.nbytes <= SMALL, [data]
    # NOTE: no call from here on: an interrupt comes before all of this or after it.
    if pos is not tr.pos or pos is not s.parent or holder._data is not data or holder._meta is not meta:
        return _met(tr, holder, known + 1)
    if record is not None:
        tr.metas[index] = record
    if held is not None:
        tr.refs[index] = held
        tr.results[index] = None
    else:
        tr.results[index] = holder
    if at < 0:
        leaves += met
        data.met = walk
        if meta is not None or not small:
            tr.nbytes += data.nbytes
        s.shaped = form
    s.shape, s.before = shape, before
    s.form = form if meta is None and at < 0 else NO_FORM
    s.counted = not small
    s.ext = tr.ext = ext
    holder._slot = tr.pos = s
    return s


def _itself(x: Any) -> Any:
    return x


def _leaf_step(tr: Trace, statics: tuple[Any, ...], known: int) -> Step:
    """The leaf step that was not predicted."""
    plain: Key = (LEAF, *statics)
    key: Key = plain
    first = tr.pos.parent is None
    if first:
        key = (*plain, *user_line(known))
        tr.started = perf_counter()
    s = follow(tr, key)
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
        insert(tr, s, key, plain)
    if first and tr.ended is not None:
        tr.ended.then = s
    return s
