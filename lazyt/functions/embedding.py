"""Vectors looked up by integers, one by one or reduced by bags."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.errors import NotSupportedError, ShapeError
from lazyt.functions.arguments import record, tensor, tensors
from lazyt.functions.arithmetic import maximum, minimum
from lazyt.functions.creation import arange, zeros
from lazyt.functions.indexing import add_at, take
from lazyt.functions.linalg import vector_norm
from lazyt.functions.logic import equal, greater, logical_and, not_equal, where
from lazyt.functions.loss_arguments import integers, need_shape
from lazyt.functions.manipulation import broadcast_to, expand_dims, ravel, reshape
from lazyt.functions.reductions import max, sum
from lazyt.functions.searching import searchsorted
from lazyt.ir import dtypes
from lazyt.ops.nn import EMBEDDING
from lazyt.tracing.current import restore_grad_mode, set_grad_mode

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = ["embedding", "embedding_bag"]


def need_dense(name: str, sparse: bool) -> None:
    """Raise NotSupportedError for sparse gradients."""
    if sparse:
        raise NotSupportedError(
            f"{name}: not supported: sparse=True, because gradients are dense tensors, whose unused rows are 0"
        )


def _row(name: str, padding_idx: int | None, rows: int) -> int | None:
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise ShapeError(f"{name}: padding_idx {padding_idx} is out of range for {rows} rows")
    return int(padding_idx) % rows


def _renormalise(indices: Tensor, weight: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows that are looked up, in place, to norms of at most max_norm."""
    before = set_grad_mode(False)
    try:
        index = ravel(indices)
        rows = take(weight, index, axis=0)
        norms = vector_norm(rows, axis=-1, keepdims=True, ord=norm_type)
        scaled = where(greater(norms, max_norm), rows * (max_norm / (norms + 1e-7)), rows)
        weight[index] = scaled  # type: ignore[call-arg, misc]
    finally:
        restore_grad_mode(before)


def _shared_gradient(y: Tensor, indices: Tensor, rows: int) -> Tensor:
    """y, whose gradient is divided by how often each index occurs."""
    index = ravel(indices).astype(dtypes.int64)
    counts = add_at(zeros((rows,), dtype=y.dtype, device=y.device), index, 1.0)
    share = reshape(1 / take(counts, index, axis=0), (*indices.shape, 1))
    still = y.detach()
    return still + (y - still) * share


def embedding(
    input: Any,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of weight that the input names: (..., features). The row `padding_idx` gets no gradient.

    With `max_norm`, rows that are looked up are scaled in place to norms of at most that. `scale_grad_by_freq` divides
    a row's gradient by how often it was looked up. Raises DTypeError unless the input is of integers, ShapeError,
    NotSupportedError for `sparse`; IndexOutOfRange at the sync for a row that is not there. As
    `torch.nn.functional.embedding`.

    >>> import lazyt as lt
    >>> lt.nn.functional.embedding(lt.asarray([1, 0]), lt.asarray([[1.0], [2.0]])).tolist()
    [[2.0], [1.0]]
    """
    if padding_idx is None and max_norm is None and not (scale_grad_by_freq or sparse):
        return record(EMBEDDING, (input, weight))
    need_dense("embedding", sparse)
    x, w = tensors((input, weight))
    row = _row("embedding", padding_idx, w.shape[0])
    if max_norm is not None:
        _renormalise(integers("embedding", x, w, "an input"), w, max_norm, norm_type)
    y = record(EMBEDDING, (x, w) if row is None else (x, w, row))
    return _shared_gradient(y, x, w.shape[0]) if scale_grad_by_freq else y


def embedding_bag(
    input: Any,
    weight: Any,
    offsets: Any = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or max of the rows that each bag names: (bags, features).

    Bags are the rows of an input (bags, length), or the parts of a vector that begin at `offsets`. Indices equal to
    `padding_idx` do not count, and an empty bag gives 0. `per_sample_weights` (of the input's shape) are for 'sum'.
    'max' over offsets compares every bag with every index. Raises ShapeError, DTypeError, NotSupportedError for
    `sparse`; IndexOutOfRange at the sync. As `torch.nn.functional.embedding_bag`.

    >>> import lazyt as lt
    >>> w = lt.asarray([[1.0], [2.0], [4.0]])
    >>> lt.nn.functional.embedding_bag(lt.asarray([0, 1, 2]), w, lt.asarray([0, 1]), mode="sum").tolist()
    [[1.0], [6.0]]
    """
    name = "embedding_bag"
    need_dense(name, sparse)
    if mode not in ("sum", "mean", "max"):
        raise ShapeError(f"{name}: mode is one of sum, mean, max, got {mode!r}")
    w = tensor(weight)
    x = integers(name, input, w, "an input")
    if x.ndim == 2 and offsets is not None:
        raise ShapeError(f"{name}: offsets are for an input of 1 dimension, got one of shape {x.shape}")
    if x.ndim not in (1, 2) or (x.ndim == 1 and offsets is None):
        raise ShapeError(f"{name}: an input (bags, length), or (length,) with offsets, is required, got {x.shape}")
    if scale_grad_by_freq and mode == "max":
        raise ShapeError(f"{name}: scale_grad_by_freq is for the modes sum and mean, got 'max'")
    factors = None
    if per_sample_weights is not None:
        factors = tensor(per_sample_weights, w)
        if mode != "sum":
            raise ShapeError(f"{name}: per_sample_weights are for the mode sum, got {mode!r}")
        need_shape(name, "per_sample_weights", factors, x.shape)
    row = _row(name, padding_idx, w.shape[0])
    rows = embedding(x, w, row, max_norm, norm_type, scale_grad_by_freq)
    counts = x == x if row is None else not_equal(x, row)
    if factors is not None:
        rows = rows * expand_dims(factors, -1)
    if x.ndim == 2:
        return _reduced(rows, expand_dims(counts, -1), mode, 1)
    start = integers(name, offsets, w, "offsets").astype(dtypes.int64)
    if start.ndim != 1:
        raise ShapeError(f"{name}: offsets (bags,) are required, got shape {start.shape}")
    bags = start.shape[0] - bool(include_last_offset)
    which = searchsorted(start, arange(x.shape[0], device=x.device), side="right") - 1
    if mode == "max":
        inside = logical_and(equal(which, expand_dims(arange(bags, device=x.device), 1)), counts)
        every = broadcast_to(expand_dims(rows, 0), (bags, *rows.shape))
        return _reduced(every, expand_dims(inside, -1), mode, 1)
    # What lies behind the last offset is in no bag.
    counts = logical_and(counts, which < bags)
    kept = where(expand_dims(counts, -1), rows, 0.0)
    which = minimum(which, bags - 1)
    total = add_at(zeros((bags, w.shape[1]), dtype=rows.dtype, device=rows.device), which, kept)
    if mode == "sum":
        return total
    sizes = add_at(zeros((bags,), dtype=rows.dtype, device=rows.device), which, counts.astype(rows.dtype))
    return total / expand_dims(maximum(sizes, 1.0), 1)


def _reduced(rows: Tensor, counts: Tensor, mode: str, axis: int) -> Tensor:
    """The rows that count along an axis as one; 0 where none does."""
    n = sum(counts.astype(rows.dtype), axis=axis)
    if mode == "max" and rows.shape[axis]:
        top = max(where(counts, rows, -math.inf), axis=axis)
        return where(greater(n, 0), top, 0.0)
    total = sum(where(counts, rows, 0.0), axis=axis)
    return total if mode != "mean" else total / maximum(n, 1.0)
