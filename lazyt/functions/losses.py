"""Losses of one number an element, and of classes; reduced by 'mean' or 'sum', or one an element by 'none'."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions.arguments import broadcasts_to, record, tensor
from lazyt.functions.arithmetic import divide
from lazyt.functions.loss_arguments import KL_REDUCTIONS, ignored_index, reduced, reduction_of, warn_of_sizes, weighted
from lazyt.functions.manipulation import reshape
from lazyt.ops import losses as ops
from lazyt.ops.nn import LINEAR

if TYPE_CHECKING:
    from lazyt.ops.definition import OpDef
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "linear_cross_entropy",
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
]


def _pointwise(op: OpDef, x: Any, target: Any, reduction: str, weight: Any = None, *params: float) -> Tensor:
    """One step a loss; weights are as large as the input, and the mean is over their sum (Huber's: over all)."""
    if weight is None:
        return record(op, (x, target, *map(float, params)), (reduction,))
    loss, w = weighted(op.name, record(op, (x, target, *map(float, params)), ("none",)), weight)
    if reduction == "mean" and op is not ops.HUBER_LOSS:
        return reduced(loss, "sum") / reduced(w, "sum")
    return reduced(loss, reduction)


def _regression(op: OpDef, x: Any, target: Any, reduction: str, weight: Any = None, *params: float) -> Tensor:
    """The same, with PyTorch's warning where the operands are of different sizes, which is seldom meant."""
    loss = _pointwise(op, x, target, reduction, weight, *params)
    # NOTE: a Python number has no size, and lists are seldom given.
    a, b = getattr(x, "shape", None), getattr(target, "shape", None)
    if a != b and a is not None and b is not None:
        warn_of_sizes(tuple(a), tuple(b))
    return loss


def mse_loss(
    input: Any,
    target: Any,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Any = None,
) -> Tensor:
    """(input - target)**2; operands of different sizes broadcast, with a UserWarning.

    Raises DTypeError unless floating, ShapeError for a weight of another size. As `torch.nn.functional.mse_loss`.

    >>> import lazyt as lt
    >>> lt.nn.functional.mse_loss(lt.asarray([1.0, 2.0]), lt.asarray([1.0, 4.0])).item()
    2.0
    """
    return _regression(ops.MSE_LOSS, input, target, reduction_of("mse_loss", reduction, size_average, reduce), weight)


def l1_loss(
    input: Any,
    target: Any,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Any = None,
) -> Tensor:
    """|input - target|; operands of different sizes broadcast, with a UserWarning.

    Raises DTypeError unless floating, ShapeError for a weight of another size. As `torch.nn.functional.l1_loss`.

    >>> import lazyt as lt
    >>> lt.nn.functional.l1_loss(lt.asarray([1.0, 2.0]), lt.asarray([1.0, 4.0])).item()
    1.0
    """
    return _regression(ops.L1_LOSS, input, target, reduction_of("l1_loss", reduction, size_average, reduce), weight)


def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0, weight: Any = None) -> Tensor:
    """d**2 / 2 where d = |input - target| < delta, else delta * (d - delta / 2). As `torch.nn.functional.huber_loss`.

    Raises ShapeError unless delta is positive; warns of operands of different sizes.

    >>> import lazyt as lt
    >>> lt.nn.functional.huber_loss(lt.asarray([3.0]), lt.asarray([0.0])).item()
    2.5
    """
    if delta <= 0:
        raise ShapeError(f"huber_loss: a positive delta is required, got {delta}")
    return _regression(ops.HUBER_LOSS, input, target, reduction_of("huber_loss", reduction), weight, delta)


def smooth_l1_loss(
    input: Any,
    target: Any,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """d**2 / (2 * beta) where d = |input - target| < beta, else d - beta / 2. As `torch.nn.functional.smooth_l1_loss`.

    Raises ShapeError for a negative beta; warns of operands of different sizes.

    >>> import lazyt as lt
    >>> lt.nn.functional.smooth_l1_loss(lt.asarray([3.0]), lt.asarray([0.0])).item()
    2.5
    """
    if beta < 0:
        raise ShapeError(f"smooth_l1_loss: beta is at least 0, got {beta}")
    reduction = reduction_of("smooth_l1_loss", reduction, size_average, reduce)
    return _regression(ops.SMOOTH_L1_LOSS, input, target, reduction, None, beta)


def binary_cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-(t * log(x) + (1 - t) * log(1 - x)) for probabilities x; logarithms are at least -100; `weight` broadcasts.

    Raises DTypeError unless floating, ShapeError for a target of another size.

    As `torch.nn.functional.binary_cross_entropy`.

    >>> import lazyt as lt
    >>> lt.nn.functional.binary_cross_entropy(lt.asarray([1.0, 0.0]), lt.asarray([1.0, 1.0])).item()
    50.0
    """
    reduction = reduction_of("binary_cross_entropy", reduction, size_average, reduce)
    if weight is None:
        return _pointwise(ops.BINARY_CROSS_ENTROPY, input, target, reduction)
    loss = _pointwise(ops.BINARY_CROSS_ENTROPY, input, target, "none")
    w = tensor(weight, loss)
    if not broadcasts_to(w.shape, loss.shape):
        raise ShapeError(f"binary_cross_entropy: a weight that broadcasts to {loss.shape} is required, got {w.shape}")
    return reduced(loss * w, reduction)


def binary_cross_entropy_with_logits(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Any = None,
) -> Tensor:
    """`binary_cross_entropy` of sigmoid(x) without overflow; `pos_weight` weighs the targets of 1, `weight` all.

    Raises DTypeError unless floating, ShapeError for a target of another size.

    As `torch.nn.functional.binary_cross_entropy_with_logits`.

    >>> import lazyt as lt
    >>> lt.nn.functional.binary_cross_entropy_with_logits(lt.asarray([100.0]), lt.asarray([0.0])).item()
    100.0
    """
    op = ops.BINARY_CROSS_ENTROPY_WITH_LOGITS
    weights = tuple(w for w in (pos_weight, weight) if w is not None)
    reduction = reduction_of(op.name, reduction, size_average, reduce)
    statics = (pos_weight is not None, weight is not None, reduction)
    return record(op, (input, target, *weights), statics)


def kl_div(
    input: Any,
    target: Any,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """t * (log(t) - x), the input x being log-probabilities.

    `reduction` may also be 'batchmean', the sum over the batch size.

    Raises DTypeError unless floating. As `torch.nn.functional.kl_div`.

    >>> import lazyt as lt
    >>> lt.nn.functional.kl_div(lt.asarray([0.0]), lt.asarray([1.0])).item()
    0.0
    """
    op = ops.KL_DIV_LOG if log_target else ops.KL_DIV
    reduction = reduction_of("kl_div", reduction, size_average, reduce, KL_REDUCTIONS)
    if reduction == "batchmean":
        total = _pointwise(op, input, target, "sum")
        return divide(total, input.shape[0]) if len(input.shape) else total
    return _pointwise(op, input, target, reduction)


def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log(softmax(x)[target]) over the classes (axis 1) of logits (N, C, ...) or (C,).

    Targets are integers (N, ...), of which `ignore_index` do not count, or probabilities (N, C, ...). `weight` has one
    number a class; the mean is over the targets' weights. Raises ShapeError, DTypeError; IndexOutOfRange at the sync
    for a target that is no class. As `torch.nn.functional.cross_entropy`.

    >>> import lazyt as lt
    >>> f"{lt.nn.functional.cross_entropy(lt.asarray([[0.0, 0.0]]), lt.asarray([1])).item():.4f}"
    '0.6931'
    """
    if not 0 <= label_smoothing <= 1:
        raise ShapeError(f"cross_entropy: label_smoothing is in [0, 1], got {label_smoothing}")
    weights = () if weight is None else (weight,)
    statics = (label_smoothing != 0, reduction_of("cross_entropy", reduction, size_average, reduce))
    operands = (input, target, *weights, ignored_index("cross_entropy", ignore_index), float(label_smoothing))
    return record(ops.CROSS_ENTROPY, operands, statics)


def nll_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-x[target] over the classes (axis 1) of log-probabilities (N, C, ...) or (C,), as in `cross_entropy`.

    Raises ShapeError, DTypeError; IndexOutOfRange at the sync for a target that is no class. As
    `torch.nn.functional.nll_loss`.

    >>> import lazyt as lt
    >>> lt.nn.functional.nll_loss(lt.asarray([[-1.0, -2.0]]), lt.asarray([1])).item()
    2.0
    """
    weights = () if weight is None else (weight,)
    statics = (reduction_of("nll_loss", reduction, size_average, reduce),)
    return record(ops.NLL_LOSS, (input, target, *weights, ignored_index("nll_loss", ignore_index)), statics)


def linear_cross_entropy(
    input: Any,
    linear_weight: Any,
    target: Any,
    *,
    linear_bias: Any = None,
    weight: Any = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """`cross_entropy` of logits input @ linear_weight.T + linear_bias: (..., in) with targets (...).

    The logits of a weight (classes, *out, in) are (N, classes, *out). Raises as `linear` and `cross_entropy`.
    As `torch.nn.functional.linear_cross_entropy`; how the work is divided is the planner's matter, not an option.

    >>> import lazyt as lt
    >>> x, w = lt.zeros((1, 3)), lt.ones((2, 3))
    >>> f"{lt.nn.functional.linear_cross_entropy(x, w, lt.asarray([1])).item():.4f}"
    '0.6931'
    """
    w = tensor(linear_weight)
    if w.ndim < 2:
        raise ShapeError(f"linear_cross_entropy: a weight (classes, ..., features) is required, got {w.shape}")
    bias = () if linear_bias is None else (reshape(linear_bias, (-1,)),)
    logits = record(LINEAR, (input, reshape(w, (-1, w.shape[-1])), *bias))
    logits = reshape(logits, (*logits.shape[:-1], *w.shape[:-1]))
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(
        logits, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing
    )
