"""Activation functions as modules."""

from __future__ import annotations

from typing import Any

from lazyt.functions import elementwise, nn as functional, statistics
from lazyt.functions.creation import full
from lazyt.nn.module import Module, Parameter

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

    def __init__(self, inplace: bool = False) -> None:
        # `inplace` is accepted for PyTorch's sake: memory is the planner's to reuse.
        super().__init__()

    def forward(self, x: Any) -> Any:
        return type(self).function(x)


def _plain(name: str, function: Any) -> type[Module]:
    doc = f"`{function.__name__}` as a module. As `torch.nn.{name}`."
    return type(name, (_Plain,), {"function": staticmethod(function), "__doc__": doc, "__module__": __name__})


ReLU = _plain("ReLU", elementwise.relu)
Sigmoid = _plain("Sigmoid", elementwise.sigmoid)
Tanh = _plain("Tanh", elementwise.tanh)
SiLU = _plain("SiLU", functional.silu)
Mish = _plain("Mish", functional.mish)
ReLU6 = _plain("ReLU6", functional.relu6)
SELU = _plain("SELU", functional.selu)
Hardsigmoid = _plain("Hardsigmoid", functional.hardsigmoid)
Hardswish = _plain("Hardswish", functional.hardswish)
LogSigmoid = _plain("LogSigmoid", functional.logsigmoid)
Softsign = _plain("Softsign", functional.softsign)


class GELU(Module):
    """`functional.gelu`. As `torch.nn.GELU`."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Any) -> Any:
        return functional.gelu(x, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class ELU(Module):
    """`functional.elu`. As `torch.nn.ELU`."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, x: Any) -> Any:
        return functional.elu(x, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class LeakyReLU(Module):
    """`functional.leaky_relu`. As `torch.nn.LeakyReLU`."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, x: Any) -> Any:
        return functional.leaky_relu(x, self.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"


class Softplus(Module):
    """`functional.softplus`. As `torch.nn.Softplus`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Any) -> Any:
        return functional.softplus(x, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Hardtanh(Module):
    """`functional.hardtanh`. As `torch.nn.Hardtanh`."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.min_val, self.max_val = min_val, max_val

    def forward(self, x: Any) -> Any:
        return functional.hardtanh(x, self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class PReLU(Module):
    """`functional.prelu` with its weight. As `torch.nn.PReLU`."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.weight = Parameter(full((num_parameters,), float(init)))

    def forward(self, x: Any) -> Any:
        return functional.prelu(x, self.weight)

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

    def forward(self, x: Any) -> Any:
        return statistics.softmax(x, axis=self.dim)


class LogSoftmax(_OverAxis):
    """`log_softmax` over one axis, by default the last. As `torch.nn.LogSoftmax`."""

    def forward(self, x: Any) -> Any:
        return statistics.log_softmax(x, axis=self.dim)


class GLU(_OverAxis):
    """`functional.glu`. As `torch.nn.GLU`."""

    def forward(self, x: Any) -> Any:
        return functional.glu(x, self.dim)
