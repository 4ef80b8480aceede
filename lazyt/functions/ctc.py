"""The connectionist temporal classification loss: a scan over time, whose iterations are recorded steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyt.errors import ShapeError
from lazyt.functions.arguments import tensor
from lazyt.functions.arithmetic import maximum, minimum
from lazyt.functions.conversion import asarray
from lazyt.functions.creation import arange
from lazyt.functions.elementwise import exp, log
from lazyt.functions.indexing import take, take_along_axis
from lazyt.functions.joining import stack
from lazyt.functions.logic import equal, greater, less, logical_and, not_equal, where
from lazyt.functions.loss_arguments import floating, integers, reduction_of
from lazyt.functions.manipulation import broadcast_to, expand_dims, reshape
from lazyt.functions.padding import pad
from lazyt.functions.reductions import mean, sum
from lazyt.functions.statistics import cumulative_sum
from lazyt.ir import dtypes
from lazyt.tracing.autocast import autocasts
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = ["ctc_loss"]

_NAME = "ctc_loss"


class _Batch(NamedTuple):
    """scores (T, N, C); labels (N, S); how many of each count (N,)."""

    scores: Tensor
    labels: Tensor
    times: Tensor
    sizes: Tensor


@autocasts("ctc_loss")
def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability of the target sequences under frames of log-probabilities (T, N, C) or (T, C).

    Targets are labels (N, S), or those of all sequences end to end; lengths are tensors, lists or tuples. The mean is
    of the losses over their targets' lengths; `zero_infinity` drops (also from gradients) what cannot be aligned.

    Nothing is computed, but lengths of targets that stand end to end are read (a sync if they are pending). The
    gradient is the derivative: PyTorch adds exp(log_probs), which is the same behind a log_softmax. Raises
    ShapeError, DTypeError; IndexOutOfRange at the sync for a label that is no class. As `torch.nn.functional.ctc_loss`.
    Graves et al. (2006).

    >>> import lazyt as lt
    >>> frames = lt.log_softmax(lt.zeros((2, 1, 2)))
    >>> loss = lt.nn.functional.ctc_loss(frames, lt.asarray([[1]]), (2,), (1,))
    >>> round(loss.item(), 4)
    0.2877
    """
    reduction = reduction_of(_NAME, reduction)
    x = floating(_NAME, log_probs, "log_probs")
    if x.ndim not in (2, 3):
        raise ShapeError(f"{_NAME}: log_probs (T, N, C) or (T, C) is required, got {x.shape}")
    single = x.ndim == 2
    if single:
        x = expand_dims(x, 1)
    if not 0 <= blank < x.shape[-1]:
        raise ShapeError(f"{_NAME}: blank is one of the {x.shape[-1]} classes, got {blank}")
    losses, sizes = _losses(_batch(x, targets, input_lengths, target_lengths), blank)
    if zero_infinity:
        losses = where(equal(losses, math.inf), 0.0, losses)
    if reduction == "mean":
        return mean(losses / maximum(sizes, 1).astype(x.dtype))
    if reduction == "sum":
        return sum(losses)
    return reshape(losses, ()) if single else losses


def _batch(x: Tensor, targets: Any, input_lengths: Any, target_lengths: Any) -> _Batch:
    """The arguments made regular: labels end to end become rows."""
    n = x.shape[1]
    times = _lengths("input_lengths", input_lengths, x, x.shape[0])
    t = integers(_NAME, targets, x, "targets").astype(dtypes.int64)
    if t.ndim == 2:
        if t.shape[0] != n:
            raise ShapeError(f"{_NAME}: targets of {n} sequences are required, got shape {t.shape}")
        return _Batch(x, t, times, _lengths("target_lengths", target_lengths, x, t.shape[1]))
    if t.ndim != 1:
        raise ShapeError(f"{_NAME}: targets (N, S) or (sum of lengths,) are required, got shape {t.shape}")
    counts = target_lengths.tolist() if isinstance(target_lengths, Handle) else target_lengths
    counts = [int(k) for k in (counts if isinstance(counts, list | tuple) else [counts])]
    sizes = _lengths("target_lengths", counts, x, t.shape[0])
    if math.fsum(counts) != t.shape[0]:
        raise ShapeError(f"{_NAME}: target_lengths {counts} sum to {t.shape[0]}, the size of targets, is required")
    place = expand_dims(cumulative_sum(sizes) - sizes, 1) + arange(max(counts, default=0), device=x.device)
    if not t.shape[0]:
        return _Batch(x, broadcast_to(expand_dims(t, 0), (n, 0)), times, sizes)
    return _Batch(x, take(t, minimum(place, t.shape[0] - 1), axis=0), times, sizes)


def _lengths(what: str, lengths: Any, x: Tensor, limit: int) -> Tensor:
    """Lengths as a tensor (N,); those that are known now are checked."""
    if not isinstance(lengths, Handle):
        known = [int(k) for k in (lengths if isinstance(lengths, list | tuple) else [lengths])]
        if any(not 0 <= k <= limit for k in known):
            raise ShapeError(f"{_NAME}: {what} from 0 to {limit} are required, got {known}")
        lengths = asarray(known, dtype=dtypes.int64, device=x.device)
    t = integers(_NAME, lengths, x, what).astype(dtypes.int64)
    t = reshape(t, (1,)) if not t.ndim else t
    if t.shape != x.shape[1:2]:
        raise ShapeError(f"{_NAME}: {what} of {x.shape[1]} sequences are required, got shape {t.shape}")
    return t


def _log_sum(terms: list[Tensor]) -> Tensor:
    """log(sum(exp(term))), whose gradient is 0, not NaN, where all terms are -inf."""
    top = terms[0]
    for t in terms[1:]:
        top = maximum(top, t)
    top = top.detach()
    top = where(equal(top, -math.inf), 0.0, top)
    total = exp(terms[0] - top)
    for t in terms[1:]:
        total = total + exp(t - top)
    none = equal(total, 0)
    return where(none, -math.inf, log(where(none, 1.0, total)) + top)


def _moved(alpha: Tensor, places: int) -> Tensor:
    return pad(alpha[:, :-places], ((0, 0), (places, 0)), constant_values=-math.inf)


def _losses(batch: _Batch, blank: int) -> tuple[Tensor, Tensor]:
    """Forward variables over the labels with blanks between: position 2k + 1 is label k."""
    x, labels, times, sizes = batch
    steps, n, size = x.shape[0], x.shape[1], labels.shape[1]
    in_use = less(arange(size, device=x.device), expand_dims(sizes, 1))
    labels = where(in_use, labels, blank)
    blanks = broadcast_to(tensor(blank, labels).astype(dtypes.int64), (n, size))
    path = reshape(stack([blanks, labels], axis=-1), (n, 2 * size))
    path = pad(path, ((0, 0), (0, 1)), constant_values=blank)
    length = 2 * size + 1
    # A label may follow another one directly, unless that is the same.
    before = pad(path[:, :-2], ((0, 0), (2, 0)), constant_values=blank) if size else path
    skip = logical_and(not_equal(path, before), not_equal(path, blank))
    scores = take_along_axis(x, broadcast_to(expand_dims(path, 0), (steps, n, length)), axis=-1)
    alpha = broadcast_to(tensor(-math.inf, x).astype(x.dtype), (n, length))
    running = expand_dims(times, 1)
    for t in range(steps):
        if t == 0:
            after = where(less(arange(length, device=x.device), 2), scores[0], -math.inf)
        else:
            terms = [alpha, *(_moved(alpha, k) for k in (1, 2) if k < length)]
            if length > 2:
                terms[2] = where(skip, terms[2], -math.inf)
            after = _log_sum(terms) + scores[t]
        alpha = where(less(t, running), after, alpha)
    last = expand_dims(2 * sizes, 1)
    ends = [take_along_axis(alpha, last, axis=1)]
    if size:
        final = take_along_axis(alpha, maximum(last - 1, 0), axis=1)
        ends.append(where(greater(last, 0), final, -math.inf))
    losses = -_log_sum(ends)[:, 0]
    nothing = logical_and(equal(times, 0), equal(sizes, 0))
    return where(nothing, 0.0, losses), sizes
