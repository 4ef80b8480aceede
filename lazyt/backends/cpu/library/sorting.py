"""Sorting along an axis with NumPy's vector sorts; rows are divided among threads. Results as in `ir/library_calls.py`.

`sort` sorts the values. Only the order among equal ones that differ (zeros of two signs, NaN of several kinds) is not
decided by that; where there are such, they are put back as they stood.
`argsort` sorts keys of 64 bits: the order of the value above, the position below. So equal values stay in
order, and no sort of pairs is needed. Of a value of 64 bits the key has what the position leaves room for, and the few
that are equal in that are put in order after; where they are not few, it takes two rounds, low half first. `topk` finds
the k-th value first and sorts what is not behind it.
A long row that leaves threads idle is partitioned at its middle, and its halves are sorted side by side.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lazyt.backends.cpu.thread_pool import get_num_threads
from lazyt.forking import Helper
from lazyt.ir import dtypes, library_calls
from lazyt.ir.numpy_semantics import wide

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Array = np.ndarray[Any, Any]
T = TypeVar("T")

# Elements that a thread should have at least.
GRAIN = 1 << 16
# From this length on rows are worth a few calls each: the first few are found before they are sorted.
LONG = 4096
# If more than one in so many is equal to another in its high bits, keys are sorted by halves.
MANY_TIES = 8
# A row of so many bytes is partitioned for a second thread: that costs a third of a sort, and the start of a thread.
DIVIDED = 8 << 20
# Of so few elements NumPy's own calls cost less than what is done here before and after them.
FEW = 1024
# Positions must fit the lower half of a key.
MAX_LENGTH = 1 << 32
POSITIONS = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def sort(out: Array, x: Array, axis: int, descending: bool) -> None:
    """`x` in order along an axis, into `out`."""
    if x.size <= FEW:
        out[...] = library_calls.FUNCTIONS["sort"](x, axis, descending)
        return
    rows = _rows(x, axis)
    place = _rows(out, axis, writable=True)
    # In place where the rows of `out` can be sorted as they lie.
    direct = place is not None and not descending and rows.dtype == x.dtype
    work = place if direct and place is not None else np.empty(rows.shape, rows.dtype)
    threads = _for_each(len(rows))

    def some(part: slice) -> None:
        work[part] = rows[part]
        _sort(work[part], threads)
        if dtypes.kind(x.dtype) == "f":
            _equals_as_they_stood(work[part], rows[part], descending)

    divided(len(rows), rows.shape[1], some)
    if not direct:
        _write(out, work[:, ::-1] if descending else work, axis)


def argsort(out: Array, x: Array, axis: int, descending: bool) -> None:
    """The positions of the elements in order, equal ones as they stand, into `out`."""
    if x.size <= FEW:
        if descending or x.dtype.itemsize == 2:
            out[...] = library_calls.argsort(x, axis, descending)
        else:
            out[...] = x.argsort(axis, "stable")  # as that does, without NumPy's layer of Python
        return
    rows = _rows(x, axis)
    place = _rows(out, axis, writable=True)
    found = np.empty(rows.shape, np.int64) if place is None else place
    threads = _for_each(len(rows))

    def some(part: slice) -> None:
        found[part] = _order(rows[part], descending, threads)

    divided(len(rows), rows.shape[1], some)
    if place is None:
        _write(out, found, axis)


def topk(out: Array, x: Array, axis: int, largest: bool, k: int) -> None:
    """The first k positions of `argsort`, into `out`; only those are sorted."""
    if out.size == 0:
        return
    rows = _rows(x, axis)
    found = np.empty((len(rows), k), np.int64)

    def some(part: slice) -> None:
        found[part] = _first(rows[part], largest, k)

    divided(len(rows), rows.shape[1], some)
    _write(out, found, axis)


FUNCTIONS: dict[str, Callable[..., None]] = {"sort": sort, "argsort": argsort, "topk": topk}


def takes(fn: str, shape: Sequence[int], statics: Sequence[Any]) -> bool:
    """Whether a call is for this file."""
    return fn in FUNCTIONS and len(shape) > 0 and shape[statics[0]] < MAX_LENGTH


# Rows


def _rows(x: Array, axis: int, writable: bool = False) -> Any:
    """The lines along an axis as the rows of a matrix, halves as float32; None if a writable one would be a copy."""
    moved = np.moveaxis(x, axis, -1)
    flat = moved.reshape(-1, moved.shape[-1])
    if writable:
        return flat if np.shares_memory(flat, x) else None
    return wide(flat)


def _write(out: Array, rows: Array, axis: int) -> None:
    moved = np.moveaxis(out, axis, -1)
    moved[...] = rows.reshape(moved.shape)


def divided(count: int, length: int, some: Callable[[slice], None]) -> None:
    """Call `some` for parts of `count` rows, on several threads if there is work for them."""
    threads = max(min(get_num_threads(), count, count * length // GRAIN), 1)
    ends = [count * k // threads for k in range(threads + 1)]
    _together([slice(a, b) for a, b in pairwise(ends)], some)


def _for_each(count: int) -> int:
    """How many threads each of `count` rows has."""
    return get_num_threads() // max(count, 1)


def _sort(rows: Array, threads: int) -> None:
    """Sort each row in place, a long one on so many threads."""
    length = rows.shape[1]
    if threads < 2 or length * rows.itemsize < DIVIDED:
        rows.sort(axis=-1)
        return
    middle = length // 2
    for row in rows[:, None]:
        row.partition(middle, axis=-1)
        halves = (row[:, middle:], threads - threads // 2), (row[:, :middle], threads // 2)
        _together(halves, lambda half: _sort(*half))


def _together(parts: Sequence[T], some: Callable[[T], None]) -> None:
    """Every part, the first on this thread. NumPy lets others run while it sorts."""
    failures: list[BaseException] = []
    left = deque(parts[1:])

    def other() -> None:
        try:
            part = left.popleft()
        except IndexError:  # the caller has done it, or was interrupted
            return
        try:
            some(part)
        except BaseException as e:  # noqa: BLE001 - it is raised on the caller's thread, below
            failures.append(e)

    others = [Helper(target=other, daemon=True) for _ in left]
    try:
        for t in others:
            try:
                t.start()
            except RuntimeError:  # "can't start new thread": the caller does what is left
                break
        some(parts[0])
        while left and not failures:
            other()
    finally:
        left.clear()  # a thread that only now begins finds nothing
        # NOTE: they write into memory of this plan: no thread returns before them, not even interrupted.
        for t in others:
            while t.is_alive():
                try:
                    t.join()
                except KeyboardInterrupt as e:
                    failures.append(e)
    if failures:
        raise failures[0]


def _equals_as_they_stood(ordered: Array, rows: Array, descending: bool) -> None:
    """Put zeros of two signs, and NaN, in the order that they have in `rows` (that one reversed, if the result
    will be).
    """
    nan = np.isnan(ordered[:, -1])
    if len(rows) == 1:
        x, y = rows[0], ordered[0]
        zero = y.dtype.type(0)  # of another dtype, it would have the whole of y converted
        first, last = np.searchsorted(y, zero), np.searchsorted(y, zero, side="right")
        step = -1 if descending else 1
        if last > first:
            # NOTE: the signs of `x`: a vector partition may give one of two zeros twice.
            y[first:last] = x[x == 0][::step]
        if nan[0]:
            nans = x[np.isnan(x)]
            y[len(y) - len(nans) :] = nans[::step]
        return
    bits = rows.view(f"u{rows.dtype.itemsize}")
    minus_zero = bits.dtype.type(1 << (8 * rows.dtype.itemsize - 1))
    touched = np.flatnonzero(nan | (bits == minus_zero).any(axis=1))
    if len(touched):
        chosen = rows[touched]
        values = np.take_along_axis(chosen, _order(chosen, descending), 1)
        ordered[touched] = values[:, ::-1] if descending else values


# Keys


def _keys(rows: Array) -> Array:
    """Unsigned integers in the order of the values: NaN the greatest, zeros equal."""
    size, kind = rows.dtype.itemsize, dtypes.kind(rows.dtype)
    u = np.dtype(f"u{size}").type
    top = u(1 << (8 * size - 1))
    if kind in "bui":
        plain: Array = rows.view(u)
        return plain ^ top if kind == "i" else plain
    # NOTE: few passes, each in place: `np.where` on these takes as long as the sort.
    bits: Array = (rows + rows.dtype.type(0)).view(f"i{size}")  # -0.0 + 0.0 is 0.0
    flipped = bits >> (8 * size - 1)
    flipped |= np.iinfo(bits.dtype).min
    bits ^= flipped
    ordered: Array = bits.view(u)
    nan = np.isnan(rows)
    if nan.any():
        ordered[nan] = u(np.iinfo(u).max)
    return ordered


def _paired(keys: Array, descending: bool) -> Array:
    """Keys of at most 32 bits above the positions."""
    pairs = keys.astype(np.uint64)
    if descending:
        pairs ^= POSITIONS
    pairs <<= HALF
    pairs |= np.arange(keys.shape[1], dtype=np.uint64)
    return pairs


def _positions(pairs: Array) -> Array:
    pairs &= POSITIONS
    return pairs.view(np.int64)


def _order(rows: Array, descending: bool, threads: int = 1) -> Array:
    keys = _keys(rows)
    if keys.dtype.itemsize < 8:
        pairs = _paired(keys, descending)
        _sort(pairs, threads)
        return _positions(pairs)
    if rows.shape[1] < LONG:
        return _by_high_bits_of_rows(keys, descending)
    found = np.empty(rows.shape, np.int64)
    for i, row in enumerate(keys):
        if not _by_high_bits(row, descending, found[i], threads):
            found[i] = _by_halves(row[None], descending, threads)[0]
    return found


def _by_high_bits(keys: Array, descending: bool, out: Array, threads: int) -> bool:
    """The order of one row of 64-bit keys, into `out`; False where too many are equal in their high bits."""
    n = len(keys)
    low, high = keys.min(), keys.max()
    span, bits = int(high) - int(low), (n - 1).bit_length()
    shift = np.uint64(bits)
    dropped = max(span.bit_length() + bits - 64, 0)
    pairs = high - keys if descending else keys - low
    if dropped:
        pairs >>= np.uint64(dropped)
    pairs <<= shift
    pairs |= np.arange(n, dtype=np.uint64)
    _sort(pairs[None], threads)
    np.bitwise_and(pairs, np.uint64((1 << bits) - 1), out=out.view(np.uint64))
    if not dropped:
        return True
    pairs >>= shift
    equal = pairs[1:] == pairs[:-1]
    if not equal.any():
        return True
    tied = np.zeros(n, bool)
    tied[1:] = equal
    tied[:-1] |= equal
    where = np.flatnonzero(tied)
    if len(where) > n // MANY_TIES:
        return False
    places = out[where]
    own = keys[places]
    # NOTE: stable, so equal keys stay by position.
    out[where] = places[np.lexsort((high - own if descending else own, pairs[where]))]
    return True


def _by_high_bits_of_rows(keys: Array, descending: bool) -> Array:
    """The order of rows of 64-bit keys: sorts the high bits that fit above the positions, then rows with many ties
    again.
    """
    n = keys.shape[1]
    if keys.size == 0:
        return np.empty(keys.shape, np.int64)
    low, high = keys.min(axis=1, keepdims=True), keys.max(axis=1, keepdims=True)
    bits = (n - 1).bit_length()
    shift = np.uint64(bits)
    widths = np.array([int(s).bit_length() for s in (high - low).ravel().tolist()])
    dropped = np.maximum(widths + bits - 64, 0).astype(np.uint64)[:, None]
    pairs = high - keys if descending else keys - low
    pairs >>= dropped
    pairs <<= shift
    pairs |= np.arange(n, dtype=np.uint64)
    pairs.sort(axis=-1)
    found: Array = (pairs & np.uint64((1 << bits) - 1)).view(np.int64)
    pairs >>= shift
    tied = np.flatnonzero((pairs[:, 1:] == pairs[:, :-1]).any(axis=1) & (dropped[:, 0] > 0))
    if len(tied):
        # Equal in their high bits, so as they stand: in order but where the low ones say otherwise.
        ordered = np.take_along_axis(keys[tied], found[tied], 1)
        before, after = (ordered[:, 1:], ordered[:, :-1]) if descending else (ordered[:, :-1], ordered[:, 1:])
        wrong = tied[(before > after).any(axis=1)]
        if len(wrong):
            found[wrong] = _by_halves(keys[wrong], descending)
    return found


def _by_halves(keys: Array, descending: bool, threads: int = 1) -> Array:
    low = _paired(keys & POSITIONS, descending)
    _sort(low, threads)
    by_low = _positions(low)
    high = _paired(np.take_along_axis(keys, by_low, 1) >> HALF, descending)
    _sort(high, threads)
    return np.take_along_axis(by_low, _positions(high), 1)


def _first(rows: Array, largest: bool, k: int) -> Array:
    """The first k positions of `_order`."""
    n = rows.shape[1]
    if k == 0 or n < LONG or 2 * k > n:
        return _order(rows, largest)[:, :k]
    found = np.empty((len(rows), k), np.int64)
    for row, to in zip(rows, found, strict=True):
        # Whoever is not behind the k-th: few, unless it has many equals.
        if largest:
            bound = np.partition(row, n - k)[n - k]
            chosen = np.flatnonzero(~(row < bound)) if bound == bound else np.flatnonzero(np.isnan(row))
        else:
            bound = np.partition(row, k - 1)[k - 1]
            chosen = np.flatnonzero(~(row > bound)) if bound == bound else np.arange(n)
            if bound == bound and dtypes.kind(rows.dtype) == "f":
                chosen = chosen[~np.isnan(row[chosen])]
        to[:] = chosen[_order(row[chosen][None], largest)[0, :k]]
    return found
