"""Initial values of parameters, written in place and outside the autograd graph. Names as in `torch.nn.init`."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.functions import random
from lazyt.functions.arguments import record
from lazyt.functions.arithmetic import add, multiply
from lazyt.functions.conversion import asarray
from lazyt.functions.creation import arange, eye
from lazyt.functions.indexing import put_along_axis
from lazyt.functions.linalg import qr
from lazyt.functions.logic import greater_equal, less, where
from lazyt.functions.manipulation import expand_dims, reshape
from lazyt.functions.products import diagonal, matrix_transpose
from lazyt.functions.sorting import argsort
from lazyt.ir import dtypes
from lazyt.ops.random import TRUNCATED_NORMAL
from lazyt.optim.parameters import write
from lazyt.runtime.context import device
from lazyt.tracing.record import current_device

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.runtime.tensor import Tensor

__all__ = [
    "calculate_gain",
    "constant_",
    "dirac_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "sparse_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]


_LINEAR = (
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
)  # fmt: skip


def drawn_on(x: Any) -> AbstractContextManager[Any]:
    """What is drawn inside is recorded on x's device."""
    return nullcontext() if x.device == current_device() else device(x.device)


def _written(x: Any, value: Any) -> Tensor:
    write(x, value)
    return x  # type: ignore[no-any-return]


def _drawn(draw: Callable[..., Any], x: Any, a: float, b: float, generator: random.Generator | None) -> Any:
    """Numbers of x's shape and dtype; the parts of complex ones are drawn one after the other."""
    if dtypes.kind(x.dtype) != "c":
        return draw(a, b, x.shape, dtype=x.dtype, generator=generator)
    real, imag = (draw(a, b, x.shape, dtype=dtypes.real_of(x.dtype), generator=generator) for _ in range(2))
    return add(real, multiply(imag, 1j))


def uniform_(x: Any, a: float = 0.0, b: float = 1.0, generator: random.Generator | None = None) -> Tensor:
    """Uniform numbers in [a, b); both parts of complex ones.

    >>> import lazyt as lt
    >>> lt.nn.init.uniform_(lt.zeros(2), 3.0, 3.0).tolist()
    [3.0, 3.0]
    """
    with drawn_on(x):
        return _written(x, _drawn(random.uniform, x, a, b, generator))


def normal_(x: Any, mean: float = 0.0, std: float = 1.0, generator: random.Generator | None = None) -> Tensor:
    """Normal numbers; of complex ones `std` is that of the whole, divided equally between the parts.

    >>> import lazyt as lt
    >>> lt.nn.init.normal_(lt.zeros(2), 3.0, 0.0).tolist()
    [3.0, 3.0]
    """
    with drawn_on(x):
        if dtypes.kind(x.dtype) != "c":
            return _written(x, _drawn(random.normal, x, mean, std, generator))
        return _written(x, add(_drawn(random.normal, x, 0.0, std * math.sqrt(0.5), generator), mean))


def trunc_normal_(
    x: Any,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: random.Generator | None = None,
) -> Tensor:
    """Normal numbers between a and b: those outside are not clipped but never drawn.

    >>> import lazyt as lt
    >>> bool((lt.abs(lt.nn.init.trunc_normal_(lt.zeros(100))) <= 2.0).all())
    True
    """
    low, high = (0.5 * math.erfc(-(v - mean) / std * math.sqrt(0.5)) for v in (a, b))
    state = (generator or random.default_generator()).step()
    operands = (*state, low, high - low, float(mean), float(std), float(a), float(b))
    with drawn_on(x):
        return _written(x, record(TRUNCATED_NORMAL, operands, (x.dtype,), x.shape))


def constant_(x: Any, val: float) -> Tensor:
    """One number everywhere.

    >>> import lazyt as lt
    >>> lt.nn.init.constant_(lt.zeros(2), 3.0).tolist()
    [3.0, 3.0]
    """
    return _written(x, val)


def ones_(x: Any) -> Tensor:
    """1 everywhere.

    >>> import lazyt as lt
    >>> lt.nn.init.ones_(lt.zeros(2)).tolist()
    [1.0, 1.0]
    """
    return _written(x, 1)


def zeros_(x: Any) -> Tensor:
    """0 everywhere.

    >>> import lazyt as lt
    >>> lt.nn.init.zeros_(lt.ones(2)).tolist()
    [0.0, 0.0]
    """
    return _written(x, 0)


def eye_(x: Any) -> Tensor:
    """The identity matrix; ShapeError unless x is a matrix.

    >>> import lazyt as lt
    >>> lt.nn.init.eye_(lt.zeros((2, 2))).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if len(x.shape) != 2:
        raise ShapeError(f"eye_: a matrix is required, got shape {x.shape}")
    return _written(x, eye(*x.shape, dtype=x.dtype, device=x.device))


def dirac_(x: Any, groups: int = 1) -> Tensor:
    """The weight of a convolution that passes its channels on: 1 in the middle of each window from a channel to itself.

    Raises ShapeError unless x has 3 to 5 dimensions and the groups divide its first.

    >>> import lazyt as lt
    >>> lt.nn.init.dirac_(lt.zeros((2, 2, 3))).tolist()
    [[[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]
    """
    shape = x.shape
    if len(shape) not in (3, 4, 5):
        raise ShapeError(f"dirac_: 3, 4 or 5 dimensions are required, got shape {shape}")
    if groups < 1 or shape[0] % groups:
        raise ShapeError(f"dirac_: {groups} groups do not divide {shape[0]} output channels")
    per_group = shape[0] // groups
    values = np.zeros(shape)
    center = tuple(n // 2 for n in shape[2:])
    for i in range(shape[0]):
        if i % per_group < shape[1]:
            values[(i, i % per_group, *center)] = 1
    return _written(x, asarray(values, dtype=x.dtype, device=x.device))


def sparse_(x: Any, sparsity: float, std: float = 0.01, generator: random.Generator | None = None) -> Tensor:
    """Normal numbers, of which this share of each column is 0. Martens (2010).

    Raises ShapeError unless x is a matrix.

    >>> import lazyt as lt
    >>> (lt.nn.init.sparse_(lt.zeros((4, 2)), 0.5) == 0).sum(0).tolist()
    [2, 2]
    """
    if len(x.shape) != 2:
        raise ShapeError(f"sparse_: a matrix is required, got shape {x.shape}")
    zeros = math.ceil(sparsity * x.shape[0])
    with drawn_on(x):
        place = argsort(random.random(x.shape, generator=generator), axis=0)
        order = put_along_axis(place * 0, place, expand_dims(arange(x.shape[0]), 1), axis=0)
        values = random.normal(0.0, std, x.shape, dtype=x.dtype, generator=generator)
        return _written(x, where(less(order, zeros), 0.0, values))


def _fans(x: Any) -> tuple[int, int]:
    """How many inputs an output depends on, and how many outputs an input reaches."""
    if len(x.shape) < 2:
        raise ShapeError(f"init: at least 2 dimensions are required for fan in and fan out, got shape {x.shape}")
    window = math.prod(x.shape[2:])
    return x.shape[1] * window, x.shape[0] * window


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the variance through a nonlinearity.

    >>> import lazyt as lt
    >>> lt.nn.init.calculate_gain("linear")
    1.0
    """
    slope = 0.01 if param is None else param
    gains = {
        **dict.fromkeys(_LINEAR, 1.0), "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2),
        "leaky_relu": math.sqrt(2 / (1 + slope**2)), "selu": 0.75,
    }  # fmt: skip
    if nonlinearity not in gains:
        raise ShapeError(f"calculate_gain: nonlinearity is one of {', '.join(gains)}, got {nonlinearity!r}")
    return gains[nonlinearity]


def xavier_uniform_(x: Any, gain: float = 1.0, generator: random.Generator | None = None) -> Tensor:
    """Uniform with variance 2 / (fan in + fan out). Glorot, Bengio (2010).

    >>> import lazyt as lt
    >>> lt.nn.init.xavier_uniform_(lt.zeros((2, 3))).shape
    (2, 3)
    """
    bound = gain * math.sqrt(6 / sum(_fans(x)))
    return uniform_(x, -bound, bound, generator)


def xavier_normal_(x: Any, gain: float = 1.0, generator: random.Generator | None = None) -> Tensor:
    """Normal with variance 2 / (fan in + fan out). Glorot, Bengio (2010).

    >>> import lazyt as lt
    >>> lt.nn.init.xavier_normal_(lt.zeros((2, 3))).shape
    (2, 3)
    """
    return normal_(x, 0.0, gain * math.sqrt(2 / sum(_fans(x))), generator)


def _kaiming(x: Any, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ShapeError(f"kaiming: mode is 'fan_in' or 'fan_out', got {mode!r}")
    fan = _fans(x)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


def kaiming_uniform_(
    x: Any,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: random.Generator | None = None,
) -> Tensor:
    """Uniform with variance gain**2 / fan. He et al. (2015).

    >>> import lazyt as lt
    >>> lt.nn.init.kaiming_uniform_(lt.zeros((2, 3))).shape
    (2, 3)
    """
    bound = math.sqrt(3) * _kaiming(x, a, mode, nonlinearity)
    return uniform_(x, -bound, bound, generator)


def kaiming_normal_(
    x: Any,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: random.Generator | None = None,
) -> Tensor:
    """Normal with variance gain**2 / fan. He et al. (2015).

    >>> import lazyt as lt
    >>> lt.nn.init.kaiming_normal_(lt.zeros((2, 3))).shape
    (2, 3)
    """
    return normal_(x, 0.0, _kaiming(x, a, mode, nonlinearity), generator)


def orthogonal_(x: Any, gain: float = 1.0, generator: random.Generator | None = None) -> Tensor:
    """A random matrix with orthonormal rows or columns (x beyond axis 0 is flattened). Saxe et al. (2013).

    >>> import lazyt as lt
    >>> w = lt.nn.init.orthogonal_(lt.zeros((3, 2)))
    >>> bool((lt.abs(w.mT @ w - lt.eye(2)) < 1e-5).all())
    True
    """
    if len(x.shape) < 2:
        raise ShapeError(f"orthogonal_: at least 2 dimensions are required, got shape {x.shape}")
    rows, cols = x.shape[0], math.prod(x.shape[1:])
    with drawn_on(x):
        q, r = qr(random.standard_normal((max(rows, cols), min(rows, cols)), generator=generator))
        signs = where(greater_equal(diagonal(r), 0.0), 1.0, -1.0)  # these make it uniform
        q = multiply(q, signs)
        q = matrix_transpose(q) if rows < cols else q
        return _written(x, reshape(multiply(q, float(gain)), x.shape))


def __dir__() -> list[str]:
    return sorted(__all__)
