"""Layers with parameters (linear, convolutions, embedding), and layers that only wrap a shape function."""

from __future__ import annotations

import math
from typing import Any

from lazyt.errors import ShapeError
from lazyt.functions import nn as functional
from lazyt.functions.arithmetic import multiply
from lazyt.functions.creation import arange, empty
from lazyt.functions.logic import not_equal
from lazyt.functions.manipulation import expand_dims, reshape
from lazyt.functions.random import standard_normal
from lazyt.ir import dtypes
from lazyt.nn import init
from lazyt.nn.module import Module, Parameter
from lazyt.optim.parameters import write

__all__ = [
    "AdaptiveAvgPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "Conv1d",
    "Conv2d",
    "Dropout",
    "Embedding",
    "Flatten",
    "Identity",
    "Linear",
    "MaxPool1d",
    "MaxPool2d",
    "Unflatten",
]


def _affine_init(weight: Any, bias: Any) -> None:
    """PyTorch's default for linear and convolution: both uniform within 1 / sqrt(fan in)."""
    init.kaiming_uniform_(weight, a=math.sqrt(5))
    if bias is not None:
        fan = math.prod(weight.shape[1:])
        bound = 1 / math.sqrt(fan) if fan else 0.0
        init.uniform_(bias, -bound, bound)


def new_parameter(*shape: int, dtype: Any = None) -> Any:
    """A parameter to be filled by `init`."""
    return Parameter(empty(shape, dtype=dtypes.float32 if dtype is None else dtype))


class Identity(Module):
    """Returns its input. As `torch.nn.Identity`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, x: Any) -> Any:
        return x


class Linear(Module):
    """x @ weight.T + bias: (..., in_features) to (..., out_features). As `torch.nn.Linear`.

    >>> import lazyt as lt
    >>> lt.nn.Linear(3, 2)(lt.ones((4, 3))).shape
    (4, 2)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, dtype: Any = None) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = new_parameter(out_features, in_features, dtype=dtype)
        self.register_parameter("bias", new_parameter(out_features, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        _affine_init(self.weight, self.bias)

    def forward(self, x: Any) -> Any:
        return functional.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class _Convolution(Module):
    rank: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise ShapeError(
                f"{type(self).__name__}: {groups} groups do not divide {in_channels} and {out_channels} channels"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = kernel_size if isinstance(kernel_size, tuple) else (kernel_size,) * self.rank
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.weight = new_parameter(out_channels, in_channels // groups, *self.kernel_size, dtype=dtype)
        self.register_parameter("bias", new_parameter(out_channels, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        _affine_init(self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"padding={self.padding!r}, dilation={self.dilation}, groups={self.groups}, bias={self.bias is not None}"
        )


class Conv1d(_Convolution):
    """`functional.conv1d` with parameters: (N, C, W) to (N, O, W'). As `torch.nn.Conv1d`.

    >>> import lazyt as lt
    >>> lt.nn.Conv1d(2, 4, 3, padding=1)(lt.ones((1, 2, 8))).shape
    (1, 4, 8)
    """

    rank = 1

    def forward(self, x: Any) -> Any:
        return functional.conv1d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Conv2d(_Convolution):
    """`functional.conv2d` with parameters: (N, C, H, W) to (N, O, H', W'). As `torch.nn.Conv2d`.

    >>> import lazyt as lt
    >>> lt.nn.Conv2d(3, 8, 3, stride=2, padding=1)(lt.ones((1, 3, 8, 8))).shape
    (1, 8, 4, 4)
    """

    rank = 2

    def forward(self, x: Any) -> Any:
        return functional.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Embedding(Module):
    """A table of vectors, looked up by integers: (...) to (..., embedding_dim). As `torch.nn.Embedding`.

    >>> import lazyt as lt
    >>> lt.nn.Embedding(10, 4)(lt.asarray([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, *, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.weight = new_parameter(num_embeddings, embedding_dim, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the vectors anew; that of `padding_idx` is 0."""
        values = standard_normal(self.weight.shape, dtype=self.weight.dtype).to(self.weight.device)
        if self.padding_idx is not None:
            numbers = arange(self.num_embeddings, device=values.device)
            rows = not_equal(numbers, self.padding_idx % self.num_embeddings)
            values = multiply(values, expand_dims(rows, 1))
        write(self.weight, values)

    def forward(self, x: Any) -> Any:
        return functional.embedding(x, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        end = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{end}"


class Dropout(Module):
    """`functional.dropout` while training. As `torch.nn.Dropout`."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ShapeError(f"Dropout: a probability in [0, 1] is required, got {p}")
        self.p = p

    def forward(self, x: Any) -> Any:
        return functional.dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Flatten(Module):
    """Merges the axes from start_dim to end_dim. As `torch.nn.Flatten`.

    >>> import lazyt as lt
    >>> lt.nn.Flatten()(lt.ones((2, 3, 4))).shape
    (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Any) -> Any:
        rank = max(len(x.shape), 1)
        shape = x.shape or (1,)
        if not (-rank <= self.start_dim < rank and -rank <= self.end_dim < rank):
            raise ShapeError(f"Flatten: axes {self.start_dim} to {self.end_dim} are out of range for shape {x.shape}")
        i, j = self.start_dim % rank, self.end_dim % rank
        return reshape(x, (*shape[:i], math.prod(shape[i : j + 1]), *shape[j + 1 :]))

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits an axis into several. As `torch.nn.Unflatten`."""

    def __init__(self, dim: int, unflattened_size: tuple[int, ...]) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Any) -> Any:
        i = self.dim % len(x.shape)
        return reshape(x, (*x.shape[:i], *self.unflattened_size, *x.shape[i + 1 :]))

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class _Pool(Module):
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, **more: Any) -> None:
        super().__init__()
        self.options: dict[str, Any] = {
            "kernel_size": kernel_size,
            "stride": kernel_size if stride is None else stride,
            "padding": padding,
            **more,
        }

    def forward(self, x: Any) -> Any:
        name = type(self).__name__.replace("MaxPool", "max_pool").replace("AvgPool", "avg_pool")
        return getattr(functional, name)(x, **self.options)

    def extra_repr(self) -> str:
        return ", ".join(f"{k}={v}" for k, v in self.options.items())


class MaxPool1d(_Pool):
    """`functional.max_pool1d`. As `torch.nn.MaxPool1d`."""


class MaxPool2d(_Pool):
    """`functional.max_pool2d`. As `torch.nn.MaxPool2d`."""


class AvgPool1d(_Pool):
    """`functional.avg_pool1d`. As `torch.nn.AvgPool1d`."""


class AvgPool2d(_Pool):
    """`functional.avg_pool2d`. As `torch.nn.AvgPool2d`."""


class AdaptiveAvgPool2d(Module):
    """`functional.adaptive_avg_pool2d`. As `torch.nn.AdaptiveAvgPool2d`."""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, x: Any) -> Any:
        return functional.adaptive_avg_pool2d(x, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"
