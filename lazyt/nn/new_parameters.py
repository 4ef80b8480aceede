"""New parameters of layers, and their initial values."""

from __future__ import annotations

import math
from typing import Any

from lazyt.errors import DTypeError, ShapeError
from lazyt.functions.creation import empty
from lazyt.ir import dtypes
from lazyt.nn import init
from lazyt.nn.module import Parameter
from lazyt.ops.axes import integer


class Registered:
    """A layer's parameter as an attribute: `Module.__getattr__` finds it too, after an AttributeError of Python's.

    NOTE: it has no `__set__`, so what is assigned in the parameter's place, or defined by a subclass, comes before it.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, layer: Any, owner: type) -> Any:
        if layer is None:
            return self
        try:
            return layer._parameters[self.name]
        except KeyError:
            raise AttributeError(self.name) from None  # for `__getattr__`, which knows what to say


def size_of(owner: str, **sizes: Any) -> None:
    """Raise DTypeError or ShapeError, with the layer's name, unless all are integers from 0 on."""
    for what, n in sizes.items():
        if integer(owner, what, n) < 0 or isinstance(n, bool):
            raise ShapeError(f"{owner}: {what} is an integer from 0 on, got {n!r}")


def parameter_dtype(dtype: Any) -> Any:
    """The dtype of new parameters; DTypeError unless it is floating or complex."""
    d = dtypes.float32 if dtype is None else dtypes.as_dtype(dtype)
    if dtypes.kind(d) not in "fc":
        raise DTypeError(f"dtype: parameters are floating or complex numbers, not {d}")
    return d


def new_parameter(*shape: int, dtype: Any = None, device: Any = None) -> Any:
    """A parameter to be filled by `init`."""
    return Parameter(empty(shape, dtype=parameter_dtype(dtype), device=device))


def draw_affine(weight: Any, bias: Any) -> None:
    """PyTorch's default for linear and convolution: both uniform within 1 / sqrt(fan in)."""
    init.kaiming_uniform_(weight, a=math.sqrt(5))
    if bias is not None:
        fan = math.prod(weight.shape[1:])
        bound = 1 / math.sqrt(fan) if fan else 0.0
        init.uniform_(bias, -bound, bound)
