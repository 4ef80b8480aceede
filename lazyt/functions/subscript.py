"""What `x[key]` means: the key is taken apart once, then recorded as a view, a gather, or a write."""

from __future__ import annotations

import operator
from dataclasses import field
from sys import _getframe
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.config import HOST
from lazyt.errors import IndexOutOfRange, ShapeError
from lazyt.functions.arguments import adopted, at_hand, found_on_device, record, record_view, tensor
from lazyt.functions.key_readings import reading_of
from lazyt.ir import dtypes
from lazyt.ir.records import dataclass
from lazyt.ops import indexing as ops
from lazyt.tracing.call_cache import given, noted
from lazyt.tracing.inplace import assign, puts_back, puts_back_view, rewrite
from lazyt.tracing.inputs import bind_input
from lazyt.tracing.record import MAX_BYTES, slot_of
from lazyt.tracing.steps import tensor_over
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import NO_CALL, local
from lazyt.tracing.tracebacks import filter_traceback, filters_itself
from lazyt.tracing.write_cache import held_value, note_write, rewritten, target_slot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.functions.arguments import ArrayLike
    from lazyt.functions.key_readings import Reading
    from lazyt.runtime.tensor import Tensor
    from lazyt.tracing.program import Slot
    from lazyt.tracing.tensor_state import Data
    from lazyt.tracing.trace import Step, Trace

    Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Parsed:
    """A key as basic indexing and then index arrays.

    spec, offsets, ints: the view (see ops/indexing.py). arrays: index arrays for `axes` of that view; their
    broadcast axes stand at `at` among its other axes.
    """

    spec: tuple[Any, ...]
    offsets: Shape
    ints: Shape
    axes: Shape
    arrays: tuple[Any, ...]
    at: int
    # Of the view and of the gather, as the steps have them: one object each, so that they are compared at once.
    viewed: tuple[Any, ...] = field(init=False)
    gathered: tuple[Any, ...] = field(init=False)
    is_whole: bool = field(init=False)  # whether the view is all of the array as it stands

    def __post_init__(self) -> None:
        object.__setattr__(self, "viewed", (self.spec,))
        object.__setattr__(self, "gathered", (self.axes, self.at))
        object.__setattr__(self, "is_whole", self.spec.count("all") == len(self.spec))


_ALLOWED = (
    "index: only integers, slices (`:`), ellipsis (`...`), None and integer or boolean arrays are valid "
    "indices, got {!r}"
)


def _bool_scalar(k: Any) -> bool:
    return type(k) is bool or isinstance(k, np.bool_)


def _array(k: Any) -> Any:
    """An index array as a tensor or NumPy array; None for anything else."""
    if isinstance(k, Handle):
        return k
    if isinstance(k, np.ndarray):
        return k
    if not isinstance(k, list | tuple | range):
        return None
    if any(isinstance(i, Handle) for i in k):
        return tensor(k)  # type: ignore[arg-type]
    try:
        a = np.asarray(k)
    except ValueError as e:  # lists of different lengths
        raise ShapeError(f"index: {e}") from None
    return a.astype(np.int64) if a.size == 0 else a


def _items(key: Any) -> list[Any]:
    """The key's items, with every array-like as an array and every integer as an int."""
    out: list[Any] = []
    for k in key if isinstance(key, tuple) else (key,):
        if k is None or k is Ellipsis or isinstance(k, slice) or type(k) is int:
            out.append(k)
        elif _bool_scalar(k):
            out.append(np.asarray(k))
        elif (a := _array(k)) is not None:
            if dtypes.host_kind(a.dtype) not in "biu":
                raise IndexOutOfRange(
                    f"index: arrays used as indices must be of integer (or boolean) type, got {a.dtype}"
                )
            out.append(a)
        else:
            try:
                out.append(operator.index(k))
            except TypeError:
                raise IndexOutOfRange(_ALLOWED.format(k)) from None
    return out


def _is_array(k: Any) -> bool:
    return isinstance(k, Handle | np.ndarray)


def _is_mask(k: Any) -> bool:
    return _is_array(k) and k.dtype == dtypes.bool_


def _consumed(k: Any) -> int:
    """How many axes an item of a key stands for."""
    if k is None or k is Ellipsis:
        return 0
    return k.ndim if _is_mask(k) else 1


def _filled(items: list[Any], ndim: int) -> list[Any]:
    """The items with an Ellipsis in place; it alone may stand for no axis or several."""
    used = sum(map(_consumed, items))
    if used > ndim:
        raise IndexOutOfRange(f"index: too many indices for an array of {ndim} dimensions: {used} were indexed")
    ellipses = sum(k is Ellipsis for k in items)
    if ellipses > 1:
        raise IndexOutOfRange("index: an index can only have a single ellipsis ('...')")
    return items if ellipses else [*items, Ellipsis]


def _on_host(k: Any) -> np.ndarray[Any, Any]:
    """An index array's values; a sync if they are pending."""
    return k if isinstance(k, np.ndarray) else np.asarray(k._array("boolean index"))


def _check_mask(mask: Any, shape: Shape, axis: int) -> None:
    """A mask has the extents of the axes it stands for, or 0 (Array API), which names nothing."""
    for i, n in enumerate(mask.shape):
        if n not in (shape[axis + i], 0):
            raise IndexOutOfRange(
                f"index: boolean index did not match indexed array along axis {axis + i}; "
                f"size of axis is {shape[axis + i]} but size of boolean index is {n}"
            )


def _nonzero(mask: Any, shape: Shape, axis: int) -> list[Any]:
    """A mask over the axes from `axis` as index arrays, one an axis (a 0-d mask: one, for a new axis)."""
    _check_mask(mask, shape, axis)
    if isinstance(mask, Handle) and mask.ndim and (there := found_on_device(mask, "boolean index", "nonzero")):
        return there
    return list(np.nonzero(np.atleast_1d(_on_host(mask))))


def _checked(k: Any, axis: int, n: int) -> Any:
    """An integer index array; out of range is an error now if the values are known."""
    if isinstance(k, np.ndarray):
        outside = k[(k < -n) | (k >= n)]
        if outside.size:
            raise IndexOutOfRange(f"index: index {outside.flat[0]} is out of bounds for axis {axis} with size {n}")
    return k


def _slice(k: slice, axis: int, n: int) -> tuple[int, int, int]:
    """The start, length and step of a slice of an axis of n."""
    try:
        start, stop, step = k.indices(n)
    except ValueError:
        raise ShapeError(f"index: slice step cannot be zero (axis {axis})") from None
    except TypeError:
        raise IndexOutOfRange(f"index: slice bounds must be integers or None, got {k}") from None
    length = len(range(start, stop, step))
    return (start if length else 0), length, step


class _Parser:
    """Walks the items of a key along the axes of an array."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.axis = 0  # of the array
        self.spec: list[Any] = []
        self.offsets: list[int] = []
        self.ints: list[int] = []
        self.view_axis = 0  # of the view
        self.axes: list[int] = []
        self.arrays: list[Any] = []  # those of the host go where they are used

    def place(self, item: Any) -> None:
        self.spec.append(item)
        self.axis += item != "new"
        self.view_axis += item != "int"

    def integer(self, k: int) -> None:
        n = self.shape[self.axis]
        if not -n <= k < n:
            raise IndexOutOfRange(f"index: index {k} is out of bounds for axis {self.axis} with size {n}")
        self.offsets.append(k % n)
        self.place("int")

    def slice(self, k: slice) -> None:
        if k.start is None and k.stop is None and k.step is None:
            self.place("all")
            return
        start, length, step = _slice(k, self.axis, self.shape[self.axis])
        self.offsets.append(start)
        self.ints.append(length)
        self.place(("slice", step))

    def index(self, array: Any) -> None:
        n = self.shape[self.axis]
        self.axes.append(self.view_axis)
        self.arrays.append(_checked(array, self.axis, n))
        self.place("all")

    def mask(self, k: Any) -> None:
        for found in _nonzero(k, self.shape, self.axis):
            self.axes.append(self.view_axis)
            self.arrays.append(found)
            self.place("all" if k.ndim else "new")


def _is_advanced(k: Any) -> bool:
    return _is_array(k) or type(k) is int


def parse(key: Any, shape: Shape, reading: Reading | None = None) -> Parsed:
    """Take a key for an array of this shape apart; IndexOutOfRange (an IndexError) if it does not fit.

    NumPy's placement, unless there is another reading: the axes of index arrays stand where the arrays (and integers
    beside them) are, if these are next to each other, and first otherwise.
    """
    items = _filled(_items(key), len(shape))
    p = _Parser(shape)
    rest = len(shape) - sum(map(_consumed, items))
    runs = 0  # of adjacent index arrays and integers
    inside = False
    at = 0
    for k in items:
        advanced = _is_advanced(k)
        if advanced and not inside:
            runs += 1
            at = p.view_axis - len(p.axes)
        # NOTE: an ellipsis separates even where it stands for no axis, and so does a new axis, as in NumPy.
        inside = advanced
        if k is None:
            p.place("new")
        elif k is Ellipsis:
            for _ in range(rest):
                p.place("all")
        elif type(k) is int:
            p.integer(k)
        elif isinstance(k, slice):
            p.slice(k)
        elif _is_mask(k):
            p.mask(k)
        else:
            p.index(k)
    axes, arrays = tuple(p.axes), tuple(p.arrays)
    if reading is None:
        at = at if runs == 1 else 0
    elif axes:
        at = reading.place(axes, tuple(not a.ndim for a in arrays))
    return Parsed(tuple(p.spec), tuple(p.offsets), tuple(p.ints), axes, arrays, at)


def _chosen(a: np.ndarray[Any, Any], mask: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`a[mask]`, for a mask over the first axes: NumPy takes at positions faster than it looks at a mask again."""
    return a.reshape(mask.size, *a.shape[mask.ndim :]).take(np.flatnonzero(mask), axis=0)


# Parsed basic keys, and lists of integers with their least and greatest: a program says the same ones again and again.
MAX_KEYS, MAX_LIST = 4096, 64


class _Begins:
    """Stands before the three parts of a slice, or for an index array."""


_SLICE = _Begins()
_ARRAY = _Begins()
_BASIC = frozenset((int, type(None), type(Ellipsis), _Begins))
_keys: dict[tuple[Any, ...], Parsed] = {}
_lists: dict[tuple[int, ...], tuple[Data, int, int]] = {}


def _parsed(key: Any, shape: Shape, reading: Reading | None = None) -> tuple[Parsed, Sequence[Any]]:
    """`parse`, and the index arrays; a key of integers, slices and tensors of integers that was met is looked up."""
    flat: list[Any] = []
    arrays: list[Any] = []
    for k in key if type(key) is tuple else (key,):
        kind = type(k)
        if kind is slice:
            flat += (_SLICE, k.start, k.stop, k.step)
        elif kind is int:
            flat.append(k)
        elif isinstance(k, Handle) and dtypes.kind(k.dtype) in "iu":
            flat.append(_ARRAY)
            arrays.append(k)
        else:
            flat.append(k)
    # NOTE: not True for 1, nor an integer of NumPy's.
    if not _BASIC.issuperset(map(type, flat)):
        p = parse(key, shape, reading)
        return p, p.arrays
    known = (shape, *flat) if reading is None else (shape, reading, *(not a.ndim for a in arrays), *flat)
    found = _keys.get(known)
    if found is None:
        p = parse(key, shape, reading)
        if len(_keys) >= MAX_KEYS:
            _keys.clear()
        # NOTE: without the arrays, which are other ones the next time.
        found = _keys[known] = Parsed(p.spec, p.offsets, p.ints, p.axes, (), p.at)
    return found, arrays


def _at_list(x: Tensor, key: list[int]) -> Tensor | None:
    """`x[key]` for a short list of integers, whose array is kept; None where there is more to do."""
    known = (*key,)
    if not 0 < len(known) <= MAX_LIST or {*map(type, known)} != {int} or not x.shape:
        return None
    slot = x._slot
    if (x.device if slot is None else slot.step.device) != HOST:
        return None
    found = _lists.get(known)
    if found is None:
        if len(_lists) >= MAX_KEYS:
            _lists.clear()
        data = tensor(np.asarray(known), x)._buffer
        assert data is not None, "host data is computed"
        found = _lists[known] = data, min(known), max(known)
    data, low, high = found
    n = x.shape[0]
    return record(ops.INDEX, (x, tensor_over(data)), ((0,), 0)) if -n <= low and high < n else None


def _viewed(x: Tensor, p: Parsed) -> Tensor:
    return record_view(ops.GETITEM, x, p.viewed, p.ints, p.offsets)


@filters_itself
def getitem(x: Tensor, key: Any) -> Tensor:
    """`x[key]`: a view for basic keys; a copy where there are index arrays (checked at the sync) or masks (a
    sync).

    Raises IndexOutOfRange for what is known to be outside.

    >>> import lazyt as lt
    >>> x = lt.asarray([[1, 2], [3, 4]])
    >>> x[:, 0].tolist(), x[[1, 0], 0].tolist(), x[x > 2].tolist()
    ([1, 3], [3, 1], [3, 4])
    """
    try:
        tr = local.trace
        s = tr.pos.next
        c = s.call
        if c.f is getitem:
            kind = type(key)
            listed = None
            if x._slot is None and x._view is None and (st := x._storage) is not None:
                # The base of views, after a write through one: no step is needed to see it.
                slot = st._slot
                if slot is not None and slot.step.owner is tr:
                    x._slot = slot
            if c.binds:
                if not tr.watched and tr.nbytes < MAX_BYTES:
                    if x._slot is None:
                        bind_input(tr, x, 2) if x._storage is None else slot_of(tr, x, 2)
                    if kind is not slice and kind is not int:
                        listed = _meet(tr, key, kind)
                s = tr.pos.next
                c = s.call if s.call.f is getitem else NO_CALL
            if (
                c.before is tr.ext and c.after is s.ext and c.x1 is x._slot and c.parent is x._view and c.x2 is kind
                and (
                    key.start is c.x3[0] and key.stop is c.x3[1] and key.step is c.x3[2] if kind is slice
                    else _is_tuple(key, c.x3) if kind is tuple
                    else s.b is listed and c.x3 == [*map(id, key)] if kind is list
                    else key == c.x3 if kind is int
                    else (key._slot if isinstance(key, Handle) else key) is c.x3
                )
                and (c.code is None or ((here := _getframe(1)).f_lasti == c.lasti and here.f_code is c.code))
            ):  # fmt: skip
                found: Tensor | None = given(tr, c, s, x)
                if found is not None:
                    if c.view is not None:
                        c.view.key = key
                    return found
        start, ext = tr.pos, tr.ext
        h = _item(x, key)
        s = tr.pos
        if s.call.left and s is not start:
            _note(tr, start, ext, x, key, h)
        return h
    except Exception as error:
        filter_traceback(error)
        raise


def _meet(tr: Trace, key: Any, kind: type) -> Slot | None:
    """The tensors of a key, where such were met for one before; the value of a list whose array is kept."""
    if kind is list:
        found = _lists.get((*key,)) if {*map(type, key)} == {int} else None
        return None if found is None or found[0].bound_in == tr.number else bind_input(tr, tensor_over(found[0]), 3)
    for k in key if kind is tuple else (key,):
        if isinstance(k, Handle) and k._slot is None:
            bind_input(tr, k, 3) if k._storage is None else slot_of(tr, k, 3)
    return None


def _is_tuple(key: tuple[Any, ...], known: tuple[Any, ...]) -> bool:
    """Whether a key is made of the same parts as one that is known (see `_known`)."""
    if len(key) != len(known):
        return False
    for k, m in zip(key, known):  # noqa: B905 - strict costs, and they are as many
        if k is not m and not (
            k == m
            if type(k) is int is type(m)
            else k.start is m[0] and k.stop is m[1] and k.step is m[2]
            if type(k) is slice and type(m) is list
            # NOTE: a tensor that was not met has None for a slot, which is a part of keys as well.
            else isinstance(k, Handle) and k._slot is m is not None
        ):  # fmt: skip
            return False
    return True


def _note(tr: Trace, start: Step, ext: Any, x: Tensor, key: Any, h: Any) -> None:
    kind = type(key)
    # NOTE: slots are read once: another thread's write takes them away, and None would be what was not met.
    slots: list[Any] = [x._slot]
    others: list[Any] = []
    known: Any = [*map(id, key)] if kind is list else [*map(_known, key if kind is tuple else (key,))]
    if kind is list:
        # The array of a list that is kept was met as well (see `_at_list`).
        slots += tr.pos.operands[1:] if {*map(type, key)} == {int} else [None]
        others = key
    else:
        for k, m in zip(key if kind is tuple else (key,), known, strict=True):
            if type(k) is slice:
                others += m
            elif isinstance(k, Handle):
                slots.append(m)
            else:
                others.append(k)
    c = noted(getitem, tr, start, ext, slots, tuple(others), h, x)
    if c is not None:
        c.x1, c.x2 = slots[0], kind
        c.x3 = known if kind is list else tuple(known) if kind is tuple else known[0]


def _known(k: Any) -> Any:
    """A part of a key as a call keeps it: a tensor's slot; of a slice a list, which no part is, because that is looked
    at for less.
    """
    return k._slot if isinstance(k, Handle) else [k.start, k.stop, k.step] if type(k) is slice else k


def _item(x: Tensor, key: Any) -> Tensor:
    """`x[key]`, whatever there was before."""
    reading = reading_of(key)
    if reading is not None:
        key = reading.key(key)
    kind = type(key)
    slot = x._slot
    shape = x.shape if slot is None else slot.shape
    if kind is int:
        if shape and -shape[0] <= key < shape[0]:
            spec = ("int", *("all",) * (len(shape) - 1))
            return record_view(ops.GETITEM, x, (spec,), (), (key % shape[0],))
    elif kind is slice:
        return _viewed(x, _parsed(key, shape)[0])
    elif kind is list and (found := _at_list(x, key)) is not None:
        return found
    elif isinstance(key, Handle) and shape and dtypes.kind(key.dtype) in "iu":
        return record(ops.INDEX, (x, key), ((0,), 0))
    if kind is not tuple and _is_mask(key) and key.ndim and key.shape == shape[: key.ndim]:
        mask = _on_host(key)
        if at_hand(x):
            return adopted(_chosen(x._array("boolean index"), mask))
    p, arrays = _parsed(key, shape, reading)
    if not arrays:
        return _viewed(x, p)
    base = x if p.is_whole else _viewed(x, p)
    return record(ops.INDEX, (base, *arrays), p.gathered)


def _lazy_mask(x: Tensor, key: Any, value: Any) -> Any:
    """The mask when `x[key] = value` is a select: one mask over the first axes, and a value for each of
    them alike.
    """
    items = [k for k in (key if isinstance(key, tuple) else (key,)) if k is not Ellipsis]
    if len(items) != 1 or (isinstance(key, tuple) and key[0] is Ellipsis) or not _is_mask(items[0]):
        return None
    mask = items[0]
    if mask.ndim > x.ndim or not mask.ndim:
        return None
    _check_mask(mask, x.shape, 0)
    if 0 in mask.shape:
        return None
    shape = value.shape if isinstance(value, Handle | np.ndarray) else np.shape(value)
    rest = x.ndim - mask.ndim
    fits = len(shape) <= rest or all(n == 1 for n in shape[: len(shape) - rest])
    return mask if fits else None


@filters_itself
def setitem(x: Tensor, key: Any, value: ArrayLike) -> None:
    """`x[key] = value`, in place: value is broadcast to the place it goes and cast to x's dtype.

    Where an index is named twice, the last value stays. Lazy but for masks whose value has an element for
    each true entry (a sync). Raises IndexOutOfRange, ShapeError, and AutogradError as in PyTorch.

    >>> import lazyt as lt
    >>> x = lt.asarray([1, 2, 3, 4])
    >>> x[1:3] = 0
    >>> x[x > 3] = 9
    >>> x.tolist()
    [1, 0, 0, 9]
    """
    try:
        tr = local.trace
        view = getattr(value, "_view", None)  # `x[key] += v` ends with that
        if view is not None and view.key is key and view.parent is x._view and puts_back_view(x, value, view):
            return
        start = tr.pos
        s = start.next
        c = s.call
        kind = type(key)
        if (
            c.f is setitem and kind is c.kind
            and (
                key.start is c.key[0] and key.stop is c.key[1] and key.step is c.key[2] if kind is slice
                else _is_tuple(key, c.key) if kind is tuple
                else key == c.key if kind is int
                else key is c.key
            )
            and rewritten(tr, c, s, x, value, False)
        ):  # fmt: skip
            return
        ext, before = tr.ext, (target_slot(tr, x), x._view, value, held_value(value))
        if _set(x, key, value) and tr.pos.parent is not None:
            note_write(setitem, tr, start, ext, x, *before, kind, _known_basic(key, kind))
    except Exception as error:
        filter_traceback(error)
        raise


def _known_basic(key: Any, kind: type) -> Any:
    """A key without index arrays, as a write keeps it."""
    return tuple(map(_known, key)) if kind is tuple else _known(key)


def _set(x: Tensor, key: Any, value: ArrayLike) -> bool:
    """`setitem`, whatever there was before; whether the key names a view, so the write may come again as it is."""
    reading = reading_of(key)
    if reading is not None:
        key = reading.key(key)
        reading.check(x, value)
    if _is_mask(key) or isinstance(key, tuple):
        mask = _lazy_mask(x, key, value)
        if mask is not None:
            rewrite(x, lambda: record(ops.MASK_PUT, (x, mask, value)), "setitem")
            return False
    p, arrays = _parsed(key, x.shape, reading)
    if not arrays and puts_back(x, value, (ops.GETITEM, (p.spec,), p.ints, p.offsets)):
        return False
    target = x if p.is_whole else _viewed(x, p)
    if arrays:
        rewrite(target, lambda: record(ops.INDEX_PUT, (target, value, *arrays), (p.axes, p.at)), "setitem")
        return False
    assign(target, value, "setitem")
    return True
