"""Layers that multiply by a matrix."""

from __future__ import annotations

import math
from typing import Any

from lazyt.functions import nn as functional
from lazyt.nn import init
from lazyt.nn.module import Module
from lazyt.nn.new_parameters import Registered, draw_affine, new_parameter, size_of

__all__ = ["Bilinear", "Identity", "Linear"]


class Identity(Module):
    """Returns its input. As `torch.nn.Identity`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return input


class Linear(Module):
    """x @ weight.T + bias: (..., in_features) to (..., out_features). As `torch.nn.Linear`.

    >>> import lazyt as lt
    >>> lt.nn.Linear(3, 2)(lt.ones((4, 3))).shape
    (4, 2)
    """

    weight, bias = Registered(), Registered()

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        size_of(type(self).__name__, in_features=in_features, out_features=out_features)
        self.in_features, self.out_features = in_features, out_features
        self.weight = new_parameter(out_features, in_features, device=device, dtype=dtype)
        self.register_parameter("bias", new_parameter(out_features, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        draw_affine(self.weight, self.bias)

    def forward(self, input: Any) -> Any:
        return functional.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """`functional.bilinear` with parameters: (..., in1) and (..., in2) to (..., out). As `torch.nn.Bilinear`.

    >>> import lazyt as lt
    >>> lt.nn.Bilinear(3, 2, 4)(lt.ones((5, 3)), lt.ones((5, 2))).shape
    (5, 4)
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        size_of("Bilinear", in1_features=in1_features, in2_features=in2_features, out_features=out_features)
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = new_parameter(out_features, in1_features, in2_features, device=device, dtype=dtype)
        self.register_parameter("bias", new_parameter(out_features, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew, within 1 / sqrt(in1_features)."""
        bound = 1 / math.sqrt(self.in1_features)
        for p in (self.weight, self.bias):
            if p is not None:
                init.uniform_(p, -bound, bound)

    def forward(self, input1: Any, input2: Any) -> Any:
        return functional.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
