"""Normalising layers with running statistics: of batches, and of single samples."""

from __future__ import annotations

from typing import Any

from lazyt.errors import ShapeError
from lazyt.functions import nn as functional
from lazyt.functions.creation import ones, zeros
from lazyt.functions.manipulation import expand_dims, squeeze
from lazyt.ir import dtypes
from lazyt.nn import init
from lazyt.nn.module import Module
from lazyt.nn.new_parameters import Registered, size_of
from lazyt.nn.norms import register_affine
from lazyt.optim.parameters import write

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]


class _Norm(Module):
    """Parameters and running statistics, one a channel."""

    weight, bias = Registered(), Registered()

    def __init__(
        self, num_features: int, eps: float, momentum: float | None, affine: bool, track_running_stats: bool,
        device: Any, dtype: Any, bias: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        size_of(type(self).__name__, num_features=num_features)
        self.num_features, self.eps, self.momentum, self.affine = num_features, eps, momentum, affine
        self.track_running_stats = track_running_stats
        shape = (num_features,)
        register_affine(self, shape, affine, affine and bias, dtype, device)
        d = dtypes.float32 if dtype is None else dtype
        tracked = track_running_stats
        self.register_buffer("running_mean", zeros(shape, dtype=d, device=device) if tracked else None)
        self.register_buffer("running_var", ones(shape, dtype=d, device=device) if tracked else None)
        number = zeros((), dtype=dtypes.int64, device=device) if tracked else None
        self.register_buffer("num_batches_tracked", number)

    def reset_running_stats(self) -> None:
        """Means and counts to 0, variances to 1."""
        for name, value in (("running_mean", 0.0), ("running_var", 1.0), ("num_batches_tracked", 0)):
            x = self._buffers[name]
            if x is not None:
                init.constant_(x, value)

    def reset_parameters(self) -> None:
        """The statistics as at first, weights to 1 and biases to 0."""
        self.reset_running_stats()
        for name, value in (("weight", 1.0), ("bias", 0.0)):
            x = self._parameters[name]
            if x is not None:
                init.constant_(x, value)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_Norm):
    ranks: tuple[int, ...]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Any) -> Any:
        if len(input.shape) not in self.ranks:
            ranks = " or ".join(map(str, self.ranks))
            raise ShapeError(
                f"{type(self).__name__}: an input of {ranks} dimensions is required, got shape {input.shape}"
            )
        if input.shape[1] != self.num_features:
            raise ShapeError(
                f"{type(self).__name__}: {self.num_features} channels are required, got shape {input.shape}"
            )
        momentum: Any = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            write(self.num_batches_tracked, self.num_batches_tracked + 1)
            if self.momentum is None:
                momentum = 1.0 / self.num_batches_tracked
        return functional.batch_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            momentum,
            self.eps,
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


class BatchNorm3d(_BatchNorm):
    """`functional.batch_norm` of (N, C, D, H, W), with parameters and running statistics. As `torch.nn.BatchNorm3d`.

    >>> import lazyt as lt
    >>> lt.nn.BatchNorm3d(2)(lt.ones((2, 2, 2, 2, 2))).shape
    (2, 2, 2, 2, 2)
    """

    ranks = (5,)


class _InstanceNorm(_Norm):
    rank: int

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Any) -> Any:
        name, ndim = type(self).__name__, len(input.shape)
        if ndim not in (self.rank + 1, self.rank + 2):
            raise ShapeError(
                f"{name}: an input of {self.rank + 1} or {self.rank + 2} dimensions is required, got {input.shape}"
            )
        checked = self.affine or self.track_running_stats
        if checked and input.shape[-self.rank - 1] != self.num_features:
            raise ShapeError(f"{name}: {self.num_features} channels are required, got shape {input.shape}")
        lone = ndim == self.rank + 1
        y = functional.instance_norm(
            expand_dims(input, 0) if lone else input, self.running_mean, self.running_var, self.weight, self.bias,
            self.training or not self.track_running_stats, 0.0 if self.momentum is None else self.momentum, self.eps,
        )  # fmt: skip
        return squeeze(y, 0) if lone else y


class InstanceNorm1d(_InstanceNorm):
    """`functional.instance_norm` of (N, C, W) or (C, W). As `torch.nn.InstanceNorm1d`.

    By default without parameters and running statistics. Raises ShapeError for other dimensions or channels.

    >>> import lazyt as lt
    >>> lt.nn.InstanceNorm1d(1)(lt.ones((1, 1, 3))).tolist()
    [[[0.0, 0.0, 0.0]]]
    """

    rank = 1


class InstanceNorm2d(_InstanceNorm):
    """`functional.instance_norm` of (N, C, H, W) or (C, H, W). As `torch.nn.InstanceNorm2d`.

    >>> import lazyt as lt
    >>> lt.nn.InstanceNorm2d(3, affine=True)(lt.ones((2, 3, 4, 4))).shape
    (2, 3, 4, 4)
    """

    rank = 2


class InstanceNorm3d(_InstanceNorm):
    """`functional.instance_norm` of (N, C, D, H, W) or (C, D, H, W). As `torch.nn.InstanceNorm3d`.

    >>> import lazyt as lt
    >>> lt.nn.InstanceNorm3d(1)(lt.ones((1, 1, 2, 2, 2))).shape
    (1, 1, 2, 2, 2)
    """

    rank = 3
