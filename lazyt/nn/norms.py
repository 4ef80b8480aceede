"""Normalising layers without running statistics."""

from __future__ import annotations

from typing import Any

from lazyt.errors import ShapeError
from lazyt.functions import nn as functional
from lazyt.functions.creation import ones, zeros
from lazyt.nn import init
from lazyt.nn.module import Module, Parameter
from lazyt.nn.new_parameters import Registered, parameter_dtype, size_of
from lazyt.ops.axes import integer

__all__ = ["GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


def register_affine(m: Module, shape: tuple[int, ...], weight: bool, bias: bool, dtype: Any, device: Any) -> None:
    """Ones and zeros, or None."""
    d = parameter_dtype(dtype)
    m.register_parameter("weight", Parameter(ones(shape, dtype=d, device=device)) if weight else None)
    m.register_parameter("bias", Parameter(zeros(shape, dtype=d, device=device)) if bias else None)


class _Affine(Module):
    weight, bias = Registered(), Registered()

    def reset_parameters(self) -> None:
        """Weights to 1 and biases to 0."""
        for name, value in (("weight", 1.0), ("bias", 0.0)):
            x = self._parameters.get(name)
            if x is not None:
                init.constant_(x, value)


class LayerNorm(_Affine):
    """`functional.layer_norm` over the last axes, with parameters. As `torch.nn.LayerNorm`.

    >>> import lazyt as lt
    >>> lt.nn.LayerNorm(4)(lt.ones((2, 4))).tolist()[0]
    [0.0, 0.0, 0.0, 0.0]
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        register_affine(self, shape, elementwise_affine, elementwise_affine and bias, dtype, device)

    def forward(self, input: Any) -> Any:
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        text = f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        return f"{text}, bias={self.bias is not None}"


class RMSNorm(_Affine):
    """`functional.rms_norm` over the last axes, with a weight. As `torch.nn.RMSNorm`.

    >>> import lazyt as lt
    >>> lt.nn.RMSNorm(2, eps=0.0)(lt.asarray([-3.0, 3.0])).tolist()
    [-1.0, 1.0]
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        d = parameter_dtype(dtype)
        self.register_parameter(
            "weight", Parameter(ones(shape, dtype=d, device=device)) if elementwise_affine else None
        )

    def forward(self, x: Any) -> Any:
        return functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Affine):
    """`functional.group_norm` with parameters, one a channel. As `torch.nn.GroupNorm`.

    >>> import lazyt as lt
    >>> lt.nn.GroupNorm(2, 4)(lt.ones((1, 4, 3))).shape
    (1, 4, 3)
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        size_of("GroupNorm", num_groups=num_groups, num_channels=num_channels)
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(f"GroupNorm: {num_groups} groups do not divide {num_channels} channels")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        register_affine(self, (num_channels,), affine, affine and bias, dtype, device)

    def forward(self, input: Any) -> Any:
        if len(input.shape) < 2 or input.shape[1] != self.num_channels:
            raise ShapeError(f"GroupNorm: an input (N, {self.num_channels}, ...) is required, got shape {input.shape}")
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        text = f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"
        return f"{text}, bias={self.bias is not None}"


class LocalResponseNorm(Module):
    """`functional.local_response_norm` of (N, C, ...). As `torch.nn.LocalResponseNorm`.

    >>> import lazyt as lt
    >>> lt.nn.LocalResponseNorm(2)(lt.ones((1, 3, 4))).shape
    (1, 3, 4)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = integer("LocalResponseNorm", "size", size), alpha, beta, k

    def forward(self, input: Any) -> Any:
        return functional.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
