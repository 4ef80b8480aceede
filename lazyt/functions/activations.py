"""Activation functions of one step. relu, sigmoid, tanh and softmax are elsewhere: they are array functions too.

`inplace=True` writes the result to the input, a tensor, and returns that, as in PyTorch: autograd follows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lazyt.errors import ArgumentError, DTypeError, ShapeError
from lazyt.functions.arguments import record, tensor
from lazyt.functions.arithmetic import clip
from lazyt.ir import dtypes
from lazyt.ops import activations as ops
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from lazyt.ops.definition import OpDef
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "elu",
    "gelu",
    "glu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "prelu",
    "relu6",
    "selu",
    "silu",
    "softplus",
    "softsign",
]


def out_of(x: Any, y: Tensor, inplace: bool) -> Tensor:
    """The result of a function of x; with `inplace` it is written to x, a tensor, which is returned."""
    if not inplace:
        return y
    if not isinstance(x, Handle):
        raise DTypeError(f"inplace=True: a tensor is required, which is written, got {type(x).__name__}")
    x[...] = y
    return cast("Tensor", x)


def read_for(x: Tensor, inplace: bool) -> Tensor:
    """x, or a copy where several steps read x for their derivatives and x is then written."""
    return x.clone() if inplace else x


def gelu(x: Any, /, approximate: str = "none") -> Tensor:
    """x times the normal distribution function of x, or its approximation by `approximate='tanh'`.

    Raises ShapeError for another `approximate`, DTypeError for a complex dtype. As
    `torch.nn.functional.gelu`. Hendrycks, Gimpel: Gaussian error linear units (2016).

    >>> import lazyt as lt
    >>> lt.nn.functional.gelu(lt.asarray([0.0, 10.0])).tolist()
    [0.0, 10.0]
    """
    if approximate not in ("none", "tanh"):
        raise ShapeError(f"gelu: approximate is 'none' or 'tanh', got {approximate!r}")
    return record(ops.GELU if approximate == "none" else ops.GELU_TANH, (x,))


def silu(x: Any, /, inplace: bool = False) -> Tensor:
    """x * sigmoid(x). Raises DTypeError for a complex dtype. As `torch.nn.functional.silu`.

    >>> import lazyt as lt
    >>> lt.nn.functional.silu(lt.asarray([0.0])).tolist()
    [0.0]
    """
    return out_of(x, record(ops.SILU, (x,)), inplace)


def mish(x: Any, /, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x)). Raises DTypeError for a complex dtype. As `torch.nn.functional.mish`.

    >>> import lazyt as lt
    >>> lt.nn.functional.mish(lt.asarray([0.0])).tolist()
    [0.0]
    """
    return out_of(x, record(ops.MISH, (x,)), inplace)


def softplus(x: Any, /, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x > threshold.

    Raises DTypeError for a complex dtype. As `torch.nn.functional.softplus`.

    >>> import lazyt as lt
    >>> lt.nn.functional.softplus(lt.asarray([50.0])).tolist()
    [50.0]
    """
    return record(ops.SOFTPLUS, (x, float(beta), float(threshold)))


def logsigmoid(x: Any, /) -> Tensor:
    """log(sigmoid(x)) without overflow. Raises DTypeError for a complex dtype. As `torch.nn.functional.logsigmoid`.

    >>> import lazyt as lt
    >>> lt.nn.functional.logsigmoid(lt.asarray([-100.0])).tolist()
    [-100.0]
    """
    return record(ops.LOGSIGMOID, (x,))


def elu(x: Any, /, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where it is positive, else alpha * (exp(x) - 1). Raises DTypeError for a complex dtype.

    As `torch.nn.functional.elu`.

    >>> import lazyt as lt
    >>> lt.nn.functional.elu(lt.asarray([2.0, 0.0])).tolist()
    [2.0, 0.0]
    """
    return out_of(x, record(ops.ELU, (x, float(alpha))), inplace)


def selu(x: Any, /, inplace: bool = False) -> Tensor:
    """The self-normalising elu: 1.0507 * elu(x, 1.6733). Raises DTypeError for a complex dtype.

    As `torch.nn.functional.selu`. Klambauer et al.: Self-normalizing neural networks (2017).

    >>> import lazyt as lt
    >>> lt.nn.functional.selu(lt.asarray([0.0])).tolist()
    [0.0]
    """
    return out_of(x, record(ops.SELU, (x,)), inplace)


def leaky_relu(x: Any, /, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where it is positive, else negative_slope * x. Raises DTypeError for a complex dtype.

    As `torch.nn.functional.leaky_relu`.

    >>> import lazyt as lt
    >>> lt.nn.functional.leaky_relu(lt.asarray([2.0, -2.0]), 0.5).tolist()
    [2.0, -1.0]
    """
    return out_of(x, record(ops.LEAKY_RELU, (x, float(negative_slope))), inplace)


def prelu(x: Any, weight: Any, /) -> Tensor:
    """x where it is positive, else weight * x, with one weight for all or one a channel (axis 1).

    Raises ShapeError for a weight of another shape. As `torch.nn.functional.prelu`.

    >>> import lazyt as lt
    >>> lt.nn.functional.prelu(lt.asarray([2.0, -2.0]), lt.asarray([0.5])).tolist()
    [2.0, -1.0]
    """
    x = tensor(x)
    weight = np.asarray(weight, x.dtype) if isinstance(weight, int | float) else weight
    return record(ops.PRELU, (x, tensor(weight, x)))


def relu6(x: Any, /, inplace: bool = False) -> Tensor:
    """x clipped to [0, 6], in its dtype. Raises DTypeError for bools and complex numbers.

    As `torch.nn.functional.relu6`.

    >>> import lazyt as lt
    >>> lt.nn.functional.relu6(lt.asarray([-1.0, 8.0])).tolist()
    [0.0, 6.0]
    """
    return out_of(x, _clipped("relu6", ops.RELU6, x, 0, 6), inplace)


def hardtanh(x: Any, /, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """x clipped to [min_val, max_val], in its dtype. Of integers the bounds are cut off.

    Raises DTypeError for bools and complex numbers, ArgumentError for bounds in the wrong order, and for one below 0
    beside unsigned integers. As `torch.nn.functional.hardtanh`.

    >>> import lazyt as lt
    >>> lt.nn.functional.hardtanh(lt.asarray([-3.0, 0.5])).tolist()
    [-1.0, 0.5]
    """
    if min_val > max_val:
        raise ArgumentError(f"hardtanh: min_val is at most max_val, got {min_val} and {max_val}")
    return out_of(x, _clipped("hardtanh", ops.HARDTANH, x, min_val, max_val), inplace)


def _clipped(name: str, op: OpDef, x: Any, low: float, high: float) -> Tensor:
    """The values of `op`, which clips floats; integers stay integers."""
    t = tensor(x)
    kind = dtypes.kind(t.dtype)
    if kind == "b":
        raise DTypeError(f"{name}: an input of numbers is required, got bools")
    if kind not in "iu":
        return record(op, (t,) if op is ops.RELU6 else (t, float(low), float(high)))
    if kind == "u" and low < 0:
        raise ArgumentError(f"{name}: bounds from 0 on are required for {t.dtype}, got {low}")
    return clip(t, int(low), int(high))


def hardsigmoid(x: Any, /, inplace: bool = False) -> Tensor:
    """(x + 3) / 6 clipped to [0, 1]. Raises DTypeError for a complex dtype. As `torch.nn.functional.hardsigmoid`.

    >>> import lazyt as lt
    >>> lt.nn.functional.hardsigmoid(lt.asarray([-3.0, 0.0, 3.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return out_of(x, record(ops.HARDSIGMOID, (x,)), inplace)


def hardswish(x: Any, /, inplace: bool = False) -> Tensor:
    """x * hardsigmoid(x). Raises DTypeError for a complex dtype. As `torch.nn.functional.hardswish`.

    >>> import lazyt as lt
    >>> lt.nn.functional.hardswish(lt.asarray([0.0, 4.0])).tolist()
    [0.0, 4.0]
    """
    return out_of(x, record(ops.HARDSWISH, (x,)), inplace)


def softsign(x: Any, /) -> Tensor:
    """x / (1 + |x|). Raises DTypeError for a complex dtype. As `torch.nn.functional.softsign`.

    >>> import lazyt as lt
    >>> lt.nn.functional.softsign(lt.asarray([-1.0, 1.0])).tolist()
    [-0.5, 0.5]
    """
    return record(ops.SOFTSIGN, (x,))


def glu(x: Any, /, dim: int = -1, *, axis: int | None = None) -> Tensor:
    """The first half of x along `dim` (or `axis`) times the sigmoid of the second half.

    Raises ShapeError for an odd extent. As `torch.nn.functional.glu`.

    >>> import lazyt as lt
    >>> lt.nn.functional.glu(lt.asarray([2.0, 0.0])).tolist()
    [1.0]
    """
    return record(ops.GLU, (x,), (dim if axis is None else axis,))
