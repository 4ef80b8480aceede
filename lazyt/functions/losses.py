"""Losses, reduced by 'mean' or 'sum', or one an element by 'none'."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions.arguments import record
from lazyt.functions.arithmetic import divide
from lazyt.ops import losses as ops
from lazyt.tracing.call_site import user_frame

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
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
]


def _reduction(name: str, reduction: str) -> str:
    if reduction not in ops.REDUCTIONS:
        raise ShapeError(f"{name}: reduction is one of {', '.join(ops.REDUCTIONS)}, got {reduction!r}")
    return reduction


def _pointwise(op: OpDef, x: Any, target: Any, reduction: str, *params: float) -> Tensor:
    return record(op, (x, target, *map(float, params)), (_reduction(op.name, reduction),))


def _regression(op: OpDef, x: Any, target: Any, reduction: str, *params: float) -> Tensor:
    """The same, with PyTorch's warning where the operands are of different sizes, which is seldom meant."""
    loss = record(op, (x, target, *map(float, params)), (_reduction(op.name, reduction),))
    # NOTE: a Python number has no size, and lists are seldom given.
    a, b = getattr(x, "shape", None), getattr(target, "shape", None)
    if a != b and a is not None and b is not None:
        _warn_of_sizes(tuple(a), tuple(b))
    return loss


def _warn_of_sizes(size: tuple[int, ...], target_size: tuple[int, ...]) -> None:
    """At the user's line, which a loss module calls from further away than a function."""
    f = user_frame(3)
    warnings.warn_explicit(
        f"Using a target size ({target_size}) that is different to the input size ({size}). This will likely lead to"
        " incorrect results due to broadcasting. Please ensure they have the same size.",
        UserWarning,
        f.f_code.co_filename,
        f.f_lineno,
        f.f_globals.get("__name__", "<string>"),
        f.f_globals.setdefault("__warningregistry__", {}),
    )


def mse_loss(x: Any, target: Any, reduction: str = "mean") -> Tensor:
    """(x - target)**2; operands of different sizes broadcast, with a UserWarning. As `torch.nn.functional.mse_loss`.

    Raises DTypeError unless floating.

    >>> import lazyt as lt
    >>> lt.nn.functional.mse_loss(lt.asarray([1.0, 2.0]), lt.asarray([1.0, 4.0])).item()
    2.0
    """
    return _regression(ops.MSE_LOSS, x, target, reduction)


def l1_loss(x: Any, target: Any, reduction: str = "mean") -> Tensor:
    """|x - target|; operands of different sizes broadcast, with a UserWarning. As `torch.nn.functional.l1_loss`.

    Raises DTypeError unless floating.

    >>> import lazyt as lt
    >>> lt.nn.functional.l1_loss(lt.asarray([1.0, 2.0]), lt.asarray([1.0, 4.0])).item()
    1.0
    """
    return _regression(ops.L1_LOSS, x, target, reduction)


def huber_loss(x: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """d**2 / 2 where d = |x - target| < delta, else delta * (d - delta / 2). As `torch.nn.functional.huber_loss`.

    Raises ShapeError unless delta is positive; warns of operands of different sizes.

    >>> import lazyt as lt
    >>> lt.nn.functional.huber_loss(lt.asarray([3.0]), lt.asarray([0.0])).item()
    2.5
    """
    if delta <= 0:
        raise ShapeError(f"huber_loss: a positive delta is required, got {delta}")
    return _regression(ops.HUBER_LOSS, x, target, reduction, delta)


def smooth_l1_loss(x: Any, target: Any, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """d**2 / (2 * beta) where d = |x - target| < beta, else d - beta / 2. As `torch.nn.functional.smooth_l1_loss`.

    Raises ShapeError for a negative beta; warns of operands of different sizes.

    >>> import lazyt as lt
    >>> lt.nn.functional.smooth_l1_loss(lt.asarray([3.0]), lt.asarray([0.0])).item()
    2.5
    """
    if beta < 0:
        raise ShapeError(f"smooth_l1_loss: beta is at least 0, got {beta}")
    return _regression(ops.SMOOTH_L1_LOSS, x, target, reduction, beta)


def binary_cross_entropy(x: Any, target: Any, reduction: str = "mean") -> Tensor:
    """-(t * log(x) + (1 - t) * log(1 - x)) for probabilities x; logarithms are at least -100.

    Raises DTypeError unless floating, ShapeError for a target of another size.

    As `torch.nn.functional.binary_cross_entropy`.

    >>> import lazyt as lt
    >>> lt.nn.functional.binary_cross_entropy(lt.asarray([1.0, 0.0]), lt.asarray([1.0, 1.0])).item()
    50.0
    """
    return _pointwise(ops.BINARY_CROSS_ENTROPY, x, target, reduction)


def binary_cross_entropy_with_logits(
    x: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: str = "mean"
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
    statics = (pos_weight is not None, weight is not None, _reduction(op.name, reduction))
    return record(op, (x, target, *weights), statics)


def kl_div(x: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """t * (log(t) - x), x being log-probabilities; `reduction` may also be 'batchmean', the sum over the batch size.

    Raises DTypeError unless floating. As `torch.nn.functional.kl_div`.

    >>> import lazyt as lt
    >>> lt.nn.functional.kl_div(lt.asarray([0.0]), lt.asarray([1.0])).item()
    0.0
    """
    op = ops.KL_DIV_LOG if log_target else ops.KL_DIV
    if reduction == "batchmean":
        total = _pointwise(op, x, target, "sum")
        return divide(total, x.shape[0]) if len(x.shape) else total
    return _pointwise(op, x, target, reduction)


def cross_entropy(
    x: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log(softmax(x)[target]) over the classes (axis 1) of logits (N, C, ...) or (C,).

    Targets are integers (N, ...), of which `ignore_index` do not count, or probabilities (N, C, ...). `weight` has one
    number a class; the mean is over the targets' weights. Raises ShapeError, DTypeError; IndexOutOfRange at the sync
    for a target that is no class. As `torch.nn.functional.cross_entropy`.

    >>> import lazyt as lt
    >>> round(lt.nn.functional.cross_entropy(lt.asarray([[0.0, 0.0]]), lt.asarray([1])).item(), 4)
    0.6931
    """
    if not 0 <= label_smoothing <= 1:
        raise ShapeError(f"cross_entropy: label_smoothing is in [0, 1], got {label_smoothing}")
    weights = () if weight is None else (weight,)
    statics = (label_smoothing != 0, _reduction("cross_entropy", reduction))
    operands = (x, target, *weights, int(ignore_index), float(label_smoothing))
    return record(ops.CROSS_ENTROPY, operands, statics)


def nll_loss(x: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> Tensor:
    """-x[target] over the classes (axis 1) of log-probabilities (N, C, ...) or (C,), as in `cross_entropy`.

    Raises ShapeError, DTypeError; IndexOutOfRange at the sync for a target that is no class. As
    `torch.nn.functional.nll_loss`.

    >>> import lazyt as lt
    >>> lt.nn.functional.nll_loss(lt.asarray([[-1.0, -2.0]]), lt.asarray([1])).item()
    2.0
    """
    weights = () if weight is None else (weight,)
    statics = (_reduction("nll_loss", reduction),)
    return record(ops.NLL_LOSS, (x, target, *weights, int(ignore_index)), statics)
