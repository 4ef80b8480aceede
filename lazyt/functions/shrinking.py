"""Activation functions composed of others: shrinkage, thresholds and random slopes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions import random
from lazyt.functions.activations import out_of, read_for
from lazyt.functions.arguments import tensor
from lazyt.functions.arithmetic import minimum
from lazyt.functions.elementwise import abs, expm1, relu, tanh
from lazyt.functions.logic import greater, greater_equal, less_equal, where
from lazyt.functions.loss_arguments import floating
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = ["celu", "hardshrink", "rrelu", "softshrink", "tanhshrink", "threshold"]


def celu(x: Any, /, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)), whose slope is continuous.

    Raises ShapeError for an alpha of 0, DTypeError unless floating. As `torch.nn.functional.celu`. Barron (2017).

    >>> import lazyt as lt
    >>> lt.nn.functional.celu(lt.asarray([2.0, 0.0])).tolist()
    [2.0, 0.0]
    """
    t = read_for(floating("celu", x), inplace)
    if alpha == 0:
        raise ShapeError("celu: alpha is not 0, got 0")
    # NOTE: the exponential of what is positive might overflow, which would spoil the gradient.
    return out_of(x, where(greater(t, 0), t, alpha * expm1(minimum(t, 0.0) / alpha)), inplace)


def hardshrink(x: Any, /, lambd: float = 0.5) -> Tensor:
    """x, but 0 from -lambd to lambd. Raises DTypeError unless floating. As `torch.nn.functional.hardshrink`.

    >>> import lazyt as lt
    >>> lt.nn.functional.hardshrink(lt.asarray([-1.0, 0.5, 0.75])).tolist()
    [-1.0, 0.0, 0.75]
    """
    t = floating("hardshrink", x)
    return where(less_equal(abs(t), lambd), 0.0, t)


def softshrink(x: Any, /, lambd: float = 0.5) -> Tensor:
    """x moved by lambd towards 0, but not past it. Raises ShapeError for a negative lambd, DTypeError unless floating.

    As `torch.nn.functional.softshrink`.

    >>> import lazyt as lt
    >>> lt.nn.functional.softshrink(lt.asarray([-1.0, 0.25, 1.0])).tolist()
    [-0.5, 0.0, 0.5]
    """
    if lambd < 0:
        raise ShapeError(f"softshrink: a non-negative lambd is required, got {lambd}")
    t = floating("softshrink", x)
    return relu(t - lambd) - relu(-t - lambd)


def tanhshrink(x: Any, /) -> Tensor:
    """x - tanh(x). Raises DTypeError unless floating. As `torch.nn.functional.tanhshrink`.

    >>> import lazyt as lt
    >>> lt.nn.functional.tanhshrink(lt.asarray([0.0])).tolist()
    [0.0]
    """
    t = floating("tanhshrink", x)
    return t - tanh(t)


def threshold(x: Any, /, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where it is above the threshold, else the value; both are cut off for integers.

    As `torch.nn.functional.threshold`.

    >>> import lazyt as lt
    >>> lt.nn.functional.threshold(lt.asarray([0.5, 2.0]), 1.0, 20.0).tolist()
    [20.0, 2.0]
    """
    t = read_for(tensor(x), inplace)
    if dtypes.kind(t.dtype) in "iu":
        threshold, value = int(threshold), int(value)
    # NaN stays NaN, as in PyTorch.
    return out_of(x, where(less_equal(t, threshold), value, t), inplace)


def rrelu(
    x: Any,
    /,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
    *,
    generator: random.Generator | None = None,
) -> Tensor:
    """x where it is positive, else x times a slope: uniform in [lower, upper) in training, else their mean.

    Raises ShapeError if lower is above upper, DTypeError unless floating. As `torch.nn.functional.rrelu`.

    >>> import lazyt as lt
    >>> lt.nn.functional.rrelu(lt.asarray([2.0, -2.0]), 0.25, 0.75).tolist()
    [2.0, -1.0]
    """
    t = read_for(floating("rrelu", x), inplace)
    if lower > upper:
        raise ShapeError(f"rrelu: lower is at most upper, got {lower} and {upper}")
    slope: Any = (lower + upper) / 2
    if training:
        slope = random.uniform(lower, upper, t.shape, dtype=t.dtype, generator=generator).to(device=t.device)
    return out_of(x, where(greater_equal(t, 0), t, t * slope), inplace)
