"""Sequences of several lengths in one batch: packed one behind the other, or padded. As `torch.nn.utils.rnn`.

Lengths are read when a sequence is packed; if they are pending, that is a sync. Rows are found by indices that are
data, so other lengths make no new plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lazyt.errors import DTypeError, ShapeError
from lazyt.functions.arguments import tensor
from lazyt.functions.creation import full
from lazyt.functions.indexing import take
from lazyt.functions.joining import concat, stack
from lazyt.functions.logic import where
from lazyt.functions.manipulation import reshape, swapaxes
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.runtime.tensor import Tensor

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


def __dir__() -> list[str]:
    return sorted(__all__)


class _Fields(NamedTuple):
    data: Any
    batch_sizes: Any
    sorted_indices: Any = None
    unsorted_indices: Any = None


class PackedSequence(_Fields):
    """The rows of a batch of sequences, step by step: (rows, ...), and how many sequences go on at each step.

    `sorted_indices` has the sequences by falling length, `unsorted_indices` their places in that order; both are None
    where they came sorted. Made by `pack_padded_sequence` and `pack_sequence`. As `torch.nn.utils.rnn.PackedSequence`.
    """

    __slots__ = ()

    def __new__(  # noqa: PYI034  Self is not in Python 3.10
        cls, data: Any, batch_sizes: Any, sorted_indices: Any = None, unsorted_indices: Any = None
    ) -> PackedSequence:
        if unsorted_indices is None and sorted_indices is not None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same with `data.to(...)`; the indices go to the device of the data."""
        data = self.data.to(*args, **kwargs)
        found = (None if x is None else x.to(data.device) for x in (self.sorted_indices, self.unsorted_indices))
        return PackedSequence(data, self.batch_sizes, *found)

    def float(self) -> PackedSequence:
        """The same in float32."""
        return self.to(dtypes.float32)

    def double(self) -> PackedSequence:
        """The same in float64."""
        return self.to(dtypes.float64)


def invert_permutation(permutation: Any) -> Tensor | None:
    """The permutation that undoes this one; None for None. As `torch.nn.utils.rnn.invert_permutation`.

    >>> import lazyt as lt
    >>> lt.nn.utils.rnn.invert_permutation(lt.asarray([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    if permutation is None:
        return None
    p = tensor(permutation)
    return tensor(np.argsort(np.asarray(p)), p)


def _lengths(name: str, lengths: Any, count: int) -> np.ndarray:
    found = np.asarray(lengths)
    if found.ndim != 1 or dtypes.host_kind(found.dtype) not in "iu":
        raise DTypeError(f"{name}: lengths are a list of integers, got {found.dtype} of shape {found.shape}")
    if len(found) != count:
        raise ShapeError(f"{name}: {count} lengths are required, one a sequence, got {len(found)}")
    return found.astype(np.int64)


def _sizes_of(lengths: np.ndarray) -> np.ndarray:
    """How many sequences go on at each step."""
    sizes: np.ndarray = np.count_nonzero(np.arange(lengths.max(initial=0))[:, None] < lengths, axis=1)
    return sizes


def _batch_sizes(packed: PackedSequence) -> np.ndarray:
    sizes = np.asarray(packed.batch_sizes)
    if sizes.ndim != 1 or not len(sizes) or (np.diff(sizes) > 0).any() or sizes.sum() != packed.data.shape[0]:
        raise ShapeError(
            f"PackedSequence: batch sizes that do not grow and add up to {packed.data.shape[0]} rows are required, got "
            f"{sizes.tolist()}"
        )
    return sizes


def _order(packed: PackedSequence, count: int) -> np.ndarray:
    """For each sequence as it came, its place by falling length."""
    return np.arange(count) if packed.unsorted_indices is None else np.asarray(packed.unsorted_indices)


def _rows(packed: PackedSequence, count: int) -> tuple[np.ndarray, np.ndarray]:
    """For `count` steps and each place: the row of the data (0 where there is none), and whether there is one."""
    sizes = _batch_sizes(packed)
    sizes = np.concatenate([sizes, np.zeros(count - len(sizes), sizes.dtype)])
    shown = np.arange(sizes[0]) < sizes[:, None]
    starts = np.cumsum(sizes) - sizes
    return np.where(shown, starts[:, None] + np.arange(sizes[0]), 0), shown


def padded_rows(packed: PackedSequence) -> tuple[Tensor, Tensor]:
    """For each step and place by falling length (length, N): the row of the data, and whether there is one."""
    rows, shown = _rows(packed, len(packed.batch_sizes))
    return tensor(rows, packed.data), tensor(shown, packed.data)


def packed_rows(padded: Any, packed: PackedSequence) -> Tensor:
    """Of (length, N, ...), in the order of falling lengths, the rows of `packed`."""
    _, shown = _rows(packed, len(packed.batch_sizes))
    flat = reshape(padded, (padded.shape[0] * padded.shape[1], *padded.shape[2:]))
    return take(flat, tensor(np.flatnonzero(shown), flat), axis=0)


def pack_padded_sequence(
    input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """The rows of a padded batch (length, N, ...), or (N, length, ...) if `batch_first`, that sequences have.

    Raises ShapeError for lengths of 0, or that are longer than the input, or rise although `enforce_sorted`. As
    `torch.nn.utils.rnn.pack_padded_sequence`.

    >>> import lazyt as lt
    >>> x = lt.asarray([[1, 2], [3, 0], [4, 5]])
    >>> packed = lt.nn.utils.rnn.pack_padded_sequence(x, [2, 1, 2], batch_first=True, enforce_sorted=False)
    >>> packed.data.tolist(), packed.batch_sizes.tolist(), packed.sorted_indices.tolist()
    ([1, 4, 3, 2, 5], [3, 2], [0, 2, 1])
    """
    name, x = "pack_padded_sequence", tensor(input)
    if x.ndim < 2:
        raise ShapeError(f"{name}: an input (length, N, ...) is required, got shape {x.shape}")
    n, longest = (x.shape[0], x.shape[1]) if batch_first else (x.shape[1], x.shape[0])
    found = _lengths(name, lengths, n)
    if not n or found.min() < 1 or found.max() > longest:
        raise ShapeError(f"{name}: lengths between 1 and {longest} are required, got {found.tolist()}")
    order = np.arange(n) if enforce_sorted else np.argsort(-found, kind="stable")
    if enforce_sorted and (np.diff(found) > 0).any():
        raise ShapeError(
            f"{name}: lengths that do not rise are required, got {found.tolist()}: sort them, or give "
            "enforce_sorted=False"
        )
    sizes = _sizes_of(found)
    steps, places = np.nonzero(np.arange(n) < sizes[:, None])
    who = order[places]
    rows = who * longest + steps if batch_first else steps * n + who
    data = take(reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:])), tensor(rows, x), axis=0)
    if enforce_sorted:
        return PackedSequence(data, tensor(sizes))
    return PackedSequence(data, tensor(sizes), tensor(order, x), tensor(np.argsort(order), x))


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: Any = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """The padded batch (length, N, ...), or (N, length, ...), of a packed one in the order it came in; and the lengths.

    Raises ShapeError for a `total_length` that is too short. As `torch.nn.utils.rnn.pad_packed_sequence`.

    >>> import lazyt as lt
    >>> rnn = lt.nn.utils.rnn
    >>> x, lengths = rnn.pad_packed_sequence(rnn.pack_sequence([lt.asarray([1, 2]), lt.asarray([3])]), True, -1)
    >>> x.tolist(), lengths.tolist()
    ([[1, 2], [3, -1]], [2, 1])
    """
    longest = len(sequence.batch_sizes)
    count = longest if total_length is None else total_length
    if count < longest:
        raise ShapeError(f"pad_packed_sequence: total_length is at least the longest sequence's {longest}, got {count}")
    rows, shown = _rows(sequence, count)
    order = _order(sequence, rows.shape[1])
    rows, shown = rows[:, order], shown[:, order]
    lengths = tensor(shown.sum(0))
    if batch_first:
        rows, shown = rows.T.copy(), shown.T.copy()
    data = sequence.data
    found = take(data, tensor(rows, data), axis=0)
    there = tensor(shown.reshape(*shown.shape, *(1,) * (found.ndim - 2)), data)
    return where(there, found, full((), padding_value, dtype=found.dtype, device=found.device)), lengths


def pad_sequence(
    sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Sequences (length, ...) of several lengths as one batch (longest, N, ...), or (N, longest, ...).

    Raises ShapeError if they differ in more than their lengths. As `torch.nn.utils.rnn.pad_sequence`.

    >>> import lazyt as lt
    >>> lt.nn.utils.rnn.pad_sequence([lt.asarray([1, 2]), lt.asarray([3])], batch_first=True).tolist()
    [[1, 2], [3, 0]]
    """
    xs = [tensor(x) for x in sequences]
    if not xs or min(x.ndim for x in xs) < 1 or len({x.shape[1:] for x in xs}) != 1:
        raise ShapeError(
            f"pad_sequence: sequences (length, ...) of one shape but for their lengths are required, got shapes "
            f"{[x.shape for x in xs]}"
        )
    if padding_side not in ("left", "right"):
        raise ShapeError(f"pad_sequence: padding_side is 'left' or 'right', got {padding_side!r}")
    longest = max(x.shape[0] for x in xs)
    padded = []
    for x in xs:
        if x.shape[0] < longest:
            rest = full((longest - x.shape[0], *x.shape[1:]), padding_value, dtype=x.dtype, device=x.device)
            x = concat([x, rest] if padding_side == "right" else [rest, x])
        padded.append(x)
    return stack(padded, axis=0 if batch_first else 1)


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """Each sequence of a padded batch (longest, N, ...), or (N, longest, ...), by itself: (length, ...).

    Raises ShapeError for lengths that are not one a sequence. As `torch.nn.utils.rnn.unpad_sequence`.

    >>> import lazyt as lt
    >>> xs = lt.nn.utils.rnn.unpad_sequence(lt.asarray([[1, 2], [3, 0]]), [2, 1], batch_first=True)
    >>> [x.tolist() for x in xs]
    [[1, 2], [3]]
    """
    x = tensor(padded_sequences)
    if x.ndim < 2:
        raise ShapeError(f"unpad_sequence: a batch (longest, N, ...) is required, got shape {x.shape}")
    x = x if batch_first else swapaxes(x, 0, 1)
    found = _lengths("unpad_sequence", lengths, x.shape[0])
    return [x[i, :length] for i, length in enumerate(found.tolist())]


def pack_sequence(sequences: Sequence[Any], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences (length, ...) of several lengths, packed. As `torch.nn.utils.rnn.pack_sequence`.

    Raises ShapeError if they differ in more than their lengths, or these rise although `enforce_sorted`.

    >>> import lazyt as lt
    >>> lt.nn.utils.rnn.pack_sequence([lt.asarray([1, 2]), lt.asarray([3])]).data.tolist()
    [1, 3, 2]
    """
    lengths = [len(x) for x in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Each packed sequence by itself, (length, ...). As `torch.nn.utils.rnn.unpack_sequence`.

    >>> import lazyt as lt
    >>> rnn = lt.nn.utils.rnn
    >>> [x.tolist() for x in rnn.unpack_sequence(rnn.pack_sequence([lt.asarray([1, 2]), lt.asarray([3])]))]
    [[1, 2], [3]]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
