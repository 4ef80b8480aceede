"""Normalising layers."""

from __future__ import annotations

from typing import Any

from lazyt.errors import ShapeError
from lazyt.functions import nn as functional
from lazyt.functions.creation import ones, zeros
from lazyt.ir import dtypes
from lazyt.nn.module import Module, Parameter
from lazyt.optim.parameters import write

__all__ = ["BatchNorm1d", "BatchNorm2d", "GroupNorm", "LayerNorm", "RMSNorm"]


def _affine(m: Module, shape: tuple[int, ...], weight: bool, bias: bool, dtype: Any) -> None:
    """Ones and zeros, or None."""
    d = dtypes.float32 if dtype is None else dtype
    m.register_parameter("weight", Parameter(ones(shape, dtype=d)) if weight else None)
    m.register_parameter("bias", Parameter(zeros(shape, dtype=d)) if bias else None)


class LayerNorm(Module):
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
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        _affine(self, shape, elementwise_affine, elementwise_affine and bias, dtype)

    def forward(self, x: Any) -> Any:
        return functional.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}"


class RMSNorm(Module):
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
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        _affine(self, shape, elementwise_affine, False, dtype)

    def forward(self, x: Any) -> Any:
        return functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}"


class GroupNorm(Module):
    """`functional.group_norm` with parameters, one a channel. As `torch.nn.GroupNorm`.

    >>> import lazyt as lt
    >>> lt.nn.GroupNorm(2, 4)(lt.ones((1, 4, 3))).shape
    (1, 4, 3)
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, *, dtype: Any = None
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ShapeError(f"GroupNorm: {num_groups} groups do not divide {num_channels} channels")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        _affine(self, (num_channels,), affine, affine, dtype)

    def forward(self, x: Any) -> Any:
        return functional.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.weight is not None}"


class _BatchNorm(Module):
    ranks: tuple[int, ...]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.track_running_stats = track_running_stats
        _affine(self, (num_features,), affine, affine, dtype)
        d = dtypes.float32 if dtype is None else dtype
        tracked = track_running_stats
        self.register_buffer("running_mean", zeros((num_features,), dtype=d) if tracked else None)
        self.register_buffer("running_var", ones((num_features,), dtype=d) if tracked else None)
        self.register_buffer("num_batches_tracked", zeros((), dtype=dtypes.int64) if tracked else None)

    def forward(self, x: Any) -> Any:
        if len(x.shape) not in self.ranks:
            raise ShapeError(f"{type(self).__name__}: an input of {self.ranks} dimensions is required, got {x.shape}")
        momentum: Any = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            write(self.num_batches_tracked, self.num_batches_tracked + 1)
            if self.momentum is None:
                momentum = 1.0 / self.num_batches_tracked
        return functional.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            momentum,
            self.eps,
        )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.weight is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm):
    """`functional.batch_norm` of (N, C) or (N, C, W), with parameters and statistics. As `torch.nn.BatchNorm1d`.

    >>> import lazyt as lt
    >>> lt.nn.BatchNorm1d(3)(lt.ones((2, 3))).tolist()[0]
    [0.0, 0.0, 0.0]
    """

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """`functional.batch_norm` of (N, C, H, W), with parameters and running statistics. As `torch.nn.BatchNorm2d`.

    >>> import lazyt as lt
    >>> lt.nn.BatchNorm2d(3)(lt.ones((2, 3, 4, 4))).shape
    (2, 3, 4, 4)
    """

    ranks = (4,)
