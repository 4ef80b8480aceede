"""Activation functions as modules."""

from __future__ import annotations

from typing import Any

from lazyt.errors import ArgumentError
from lazyt.functions import elementwise, inplace_activations, nn as functional, statistics
from lazyt.nn.init import constant_
from lazyt.nn.module import Module
from lazyt.nn.new_parameters import new_parameter

__all__ = [
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Softsign",
    "Tanh",
]


class _Plain(Module):
    """A function without parameters."""

    function: Any

    def forward(self, input: Any) -> Any:
        return type(self).function(input)


class _InPlace(_Plain):
    """One that may write its result to its input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        function = type(self).function
        return function(input, inplace=True) if self.inplace else function(input)

    def extra_repr(self) -> str:
        return "inplace=True" * self.inplace


def _plain(name: str, function: Any, base: type = _Plain) -> type[Module]:
    doc = f"`{function.__name__}` as a module. As `torch.nn.{name}`."
    if base is _InPlace:
        doc = doc.replace(".", ", with `inplace` written to its input.", 1)
    return type(name, (base,), {"function": staticmethod(function), "__doc__": doc, "__module__": __name__})


ReLU = _plain("ReLU", inplace_activations.relu, _InPlace)
SiLU = _plain("SiLU", functional.silu, _InPlace)
Mish = _plain("Mish", functional.mish, _InPlace)
ReLU6 = _plain("ReLU6", functional.relu6, _InPlace)
SELU = _plain("SELU", functional.selu, _InPlace)
Hardsigmoid = _plain("Hardsigmoid", functional.hardsigmoid, _InPlace)
Hardswish = _plain("Hardswish", functional.hardswish, _InPlace)
Sigmoid = _plain("Sigmoid", elementwise.sigmoid)
Tanh = _plain("Tanh", elementwise.tanh)
LogSigmoid = _plain("LogSigmoid", functional.logsigmoid)
Softsign = _plain("Softsign", functional.softsign)


class GELU(Module):
    """`functional.gelu`. As `torch.nn.GELU`."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Any) -> Any:
        return functional.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class ELU(Module):
    """`functional.elu`. As `torch.nn.ELU`."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Any) -> Any:
        return functional.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + ", inplace=True" * self.inplace


class LeakyReLU(Module):
    """`functional.leaky_relu`. As `torch.nn.LeakyReLU`."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Any) -> Any:
        return functional.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + ", inplace=True" * self.inplace


class Softplus(Module):
    """`functional.softplus`. As `torch.nn.Softplus`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Any) -> Any:
        return functional.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Hardtanh(Module):
    """`functional.hardtanh`. As `torch.nn.Hardtanh`."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        if min_val >= max_val:
            raise ArgumentError(f"Hardtanh: min_val is below max_val, got {min_val} and {max_val}")
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace

    def forward(self, input: Any) -> Any:
        return functional.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}" + ", inplace=True" * self.inplace


class PReLU(Module):
    """`functional.prelu` with its weight. As `torch.nn.PReLU`."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = new_parameter(num_parameters, dtype=dtype, device=device)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The weights as at first."""
        constant_(self.weight, float(self.init))

    def forward(self, input: Any) -> Any:
        return functional.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class _OverAxis(Module):
    default = -1

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = self.default if dim is None else dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_OverAxis):
    """`softmax` over one axis, by default the last. As `torch.nn.Softmax`."""

    def forward(self, input: Any) -> Any:
        return statistics.softmax(input, axis=self.dim)


class LogSoftmax(_OverAxis):
    """`log_softmax` over one axis, by default the last. As `torch.nn.LogSoftmax`."""

    def forward(self, input: Any) -> Any:
        return statistics.log_softmax(input, axis=self.dim)


class GLU(_OverAxis):
    """`functional.glu`. As `torch.nn.GLU`."""

    def forward(self, input: Any) -> Any:
        return functional.glu(input, self.dim)
