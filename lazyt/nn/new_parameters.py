"""New parameters of layers, and their initial values."""

from __future__ import annotations

import math
from typing import Any

from lazyt.functions.creation import empty
from lazyt.ir import dtypes
from lazyt.nn import init
from lazyt.nn.module import Parameter


def new_parameter(*shape: int, dtype: Any = None, device: Any = None) -> Any:
    """A parameter to be filled by `init`."""
    return Parameter(empty(shape, dtype=dtypes.float32 if dtype is None else dtype, device=device))


def draw_affine(weight: Any, bias: Any) -> None:
    """PyTorch's default for linear and convolution: both uniform within 1 / sqrt(fan in)."""
    init.kaiming_uniform_(weight, a=math.sqrt(5))
    if bias is not None:
        fan = math.prod(weight.shape[1:])
        bound = 1 / math.sqrt(fan) if fan else 0.0
        init.uniform_(bias, -bound, bound)
