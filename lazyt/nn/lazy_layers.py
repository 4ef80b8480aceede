"""Layers that learn the size of their input at the first call, and are the ordinary ones from then on."""

from __future__ import annotations

from typing import Any

from lazyt.errors import ShapeError
from lazyt.functions.arguments import tensor
from lazyt.functions.creation import zeros
from lazyt.functions.windows import Size
from lazyt.ir import dtypes
from lazyt.nn import batch_norms, convolutions
from lazyt.nn.linear import Linear
from lazyt.nn.module import Module
from lazyt.nn.uninitialized import UninitializedBuffer, UninitializedParameter, is_uninitialized
from lazyt.tracing.tracebacks import filters_itself

__all__ = [
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
]


class LazyModuleMixin(Module):
    """A module whose parameters have no shape before its first call, which `initialize_parameters` sees.

    With that call it becomes a `cls_to_become`. Its state can be saved and loaded before. As PyTorch's.
    """

    cls_to_become: Any = None
    # What is 0 until it is learned.
    _learned: str

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer has no shape yet."""
        return any(is_uninitialized(x) for table in (self._parameters, self._buffers) for x in table.values())

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give each parameter its shape, from what the module is called with: for subclasses to say."""
        raise NotImplementedError(f"{type(self).__name__} has no initialize_parameters")

    def reset_parameters(self) -> None:
        """Draw the parameters anew, once they have a shape."""
        if not self.has_uninitialized_params() and getattr(self, self._learned):
            super().reset_parameters()  # type: ignore[misc]

    @filters_itself
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.initialize_parameters(*args, **kwargs)
        if self.has_uninitialized_params():
            raise ShapeError(f"{type(self).__name__}: initialize_parameters has left a parameter without a shape")
        if self.cls_to_become is None:
            return super().__call__(*args, **kwargs)
        self.__class__ = self.cls_to_become
        return self(*args, **kwargs)


class LazyLinear(LazyModuleMixin, Linear):
    """A `Linear` whose `in_features` is the last extent of its first input. As `torch.nn.LazyLinear`.

    >>> import lazyt as lt
    >>> layer = lt.nn.LazyLinear(2)
    >>> layer(lt.ones((4, 3))).shape, layer
    ((4, 2), Linear(in_features=3, out_features=2, bias=True))
    """

    cls_to_become = Linear
    _learned = "in_features"

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, False, device, dtype)
        self.out_features = out_features
        self.weight = UninitializedParameter(True, device, dtype)
        self.bias = UninitializedParameter(True, device, dtype) if bias else None

    def initialize_parameters(self, input: Any) -> None:
        """Take `in_features` from an input."""
        shape = tensor(input).shape
        if not shape:
            raise ShapeError("LazyLinear: an input (..., in_features) is required, got shape ()")
        fresh = self.has_uninitialized_params()
        self.in_features = shape[-1]
        if fresh:
            self.weight.materialize((self.out_features, self.in_features))
            if self.bias is not None:
                self.bias.materialize((self.out_features,))
            self.reset_parameters()


class _LazyConvolution(LazyModuleMixin):
    """What is common to those of any rank and direction."""

    _learned = "in_channels"
    rank: int
    transposed: bool

    def _wait(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        if out_channels % self.groups:
            raise ShapeError(f"{type(self).__name__}: {self.groups} groups do not divide {out_channels} channels")
        self.out_channels = out_channels
        self.weight = UninitializedParameter(True, device, dtype)
        self.bias = UninitializedParameter(True, device, dtype) if bias else None

    def initialize_parameters(self, input: Any, *args: Any, **kwargs: Any) -> None:
        """Take `in_channels` from an input."""
        name, shape, rank = type(self).__name__, tensor(input).shape, self.rank
        if len(shape) not in (rank + 1, rank + 2):
            raise ShapeError(f"{name}: an input of {rank + 1} or {rank + 2} dimensions is required, got shape {shape}")
        channels = shape[-rank - 1]
        if channels % self.groups:
            raise ShapeError(f"{name}: {self.groups} groups do not divide {channels} channels, of shape {shape}")
        fresh = self.has_uninitialized_params()
        self.in_channels = channels
        if fresh:
            ends = (channels, self.out_channels // self.groups)
            if not self.transposed:
                ends = (self.out_channels, channels // self.groups)
            self.weight.materialize((*ends, *self.kernel_size))
            if self.bias is not None:
                self.bias.materialize((self.out_channels,))
            self.reset_parameters()


class _LazyForward(_LazyConvolution, convolutions._Forward):
    def __init__(
        self, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Size | str = 0, dilation: Size = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        self._wait(out_channels, bias, device, dtype)


class _LazyTransposed(_LazyConvolution, convolutions._Transposed):
    def __init__(
        self, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Size = 0, output_padding: Size = 0,
        groups: int = 1, bias: bool = True, dilation: Size = 1, padding_mode: str = "zeros", device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, device, dtype
        )
        self._wait(out_channels, bias, device, dtype)


class LazyConv1d(_LazyForward):
    """A `Conv1d` whose `in_channels` are those of its first input. As `torch.nn.LazyConv1d`.

    >>> import lazyt as lt
    >>> lt.nn.LazyConv1d(4, 3)(lt.ones((1, 2, 8))).shape
    (1, 4, 6)
    """

    rank, cls_to_become = 1, convolutions.Conv1d


class LazyConv2d(_LazyForward):
    """A `Conv2d` whose `in_channels` are those of its first input. As `torch.nn.LazyConv2d`.

    >>> import lazyt as lt
    >>> layer = lt.nn.LazyConv2d(4, 3)
    >>> layer(lt.ones((1, 2, 8, 8))).shape, type(layer).__name__
    ((1, 4, 6, 6), 'Conv2d')
    """

    rank, cls_to_become = 2, convolutions.Conv2d


class LazyConv3d(_LazyForward):
    """A `Conv3d` whose `in_channels` are those of its first input. As `torch.nn.LazyConv3d`.

    >>> import lazyt as lt
    >>> lt.nn.LazyConv3d(2, 2)(lt.ones((1, 3, 2, 2, 2))).shape
    (1, 2, 1, 1, 1)
    """

    rank, cls_to_become = 3, convolutions.Conv3d


class LazyConvTranspose1d(_LazyTransposed):
    """A `ConvTranspose1d` whose `in_channels` are those of its first input. As `torch.nn.LazyConvTranspose1d`.

    >>> import lazyt as lt
    >>> lt.nn.LazyConvTranspose1d(4, 3)(lt.ones((1, 2, 8))).shape
    (1, 4, 10)
    """

    rank, cls_to_become = 1, convolutions.ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposed):
    """A `ConvTranspose2d` whose `in_channels` are those of its first input. As `torch.nn.LazyConvTranspose2d`.

    >>> import lazyt as lt
    >>> lt.nn.LazyConvTranspose2d(4, 2, stride=2)(lt.ones((1, 2, 3, 3))).shape
    (1, 4, 6, 6)
    """

    rank, cls_to_become = 2, convolutions.ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposed):
    """A `ConvTranspose3d` whose `in_channels` are those of its first input. As `torch.nn.LazyConvTranspose3d`.

    >>> import lazyt as lt
    >>> lt.nn.LazyConvTranspose3d(2, 2)(lt.ones((1, 3, 2, 2, 2))).shape
    (1, 2, 3, 3, 3)
    """

    rank, cls_to_become = 3, convolutions.ConvTranspose3d


class _LazyNorm(LazyModuleMixin):
    """Batch and instance norms of any rank."""

    _learned = "num_features"

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype)  # type: ignore[call-arg]
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = UninitializedParameter(True, device, dtype)
            self.bias = UninitializedParameter(True, device, dtype) if bias else None
        if track_running_stats:
            self.running_mean = UninitializedBuffer(False, device, dtype)
            self.running_var = UninitializedBuffer(False, device, dtype)
            self.num_batches_tracked = zeros((), dtype=dtypes.int64, device=device)

    def initialize_parameters(self, input: Any) -> None:
        """Take `num_features` from an input."""
        shape = tensor(input).shape
        instance = isinstance(self, batch_norms._InstanceNorm)
        ranks: tuple[int, ...] = (self.rank + 1, self.rank + 2) if instance else self.ranks
        if len(shape) not in ranks:
            wanted = " or ".join(map(str, ranks))
            raise ShapeError(f"{type(self).__name__}: an input of {wanted} dimensions is required, got shape {shape}")
        fresh = self.has_uninitialized_params()
        # Only an instance norm's input may be without the axis of samples.
        self.num_features = shape[0 if instance and len(shape) == ranks[0] else 1]
        if fresh:
            for waiting in (self.weight, self.bias, self.running_mean, self.running_var):
                if waiting is not None:
                    waiting.materialize((self.num_features,))
            self.reset_parameters()


class LazyBatchNorm1d(_LazyNorm, batch_norms.BatchNorm1d):
    """A `BatchNorm1d` whose `num_features` are the channels of its first input. As `torch.nn.LazyBatchNorm1d`.

    >>> import lazyt as lt
    >>> lt.nn.LazyBatchNorm1d()(lt.ones((2, 3))).tolist()[0]
    [0.0, 0.0, 0.0]
    """

    cls_to_become = batch_norms.BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, batch_norms.BatchNorm2d):
    """A `BatchNorm2d` whose `num_features` are the channels of its first input. As `torch.nn.LazyBatchNorm2d`.

    >>> import lazyt as lt
    >>> lt.nn.LazyBatchNorm2d()(lt.ones((2, 3, 1, 1))).shape
    (2, 3, 1, 1)
    """

    cls_to_become = batch_norms.BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, batch_norms.BatchNorm3d):
    """A `BatchNorm3d` whose `num_features` are the channels of its first input. As `torch.nn.LazyBatchNorm3d`.

    >>> import lazyt as lt
    >>> lt.nn.LazyBatchNorm3d()(lt.ones((2, 3, 1, 1, 1))).shape
    (2, 3, 1, 1, 1)
    """

    cls_to_become = batch_norms.BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, batch_norms.InstanceNorm1d):
    """An `InstanceNorm1d` whose `num_features` are the channels of its first input.

    With parameters and running statistics by default. As `torch.nn.LazyInstanceNorm1d`.

    >>> import lazyt as lt
    >>> lt.nn.LazyInstanceNorm1d()(lt.ones((1, 1, 3))).tolist()
    [[[0.0, 0.0, 0.0]]]
    """

    cls_to_become = batch_norms.InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, batch_norms.InstanceNorm2d):
    """An `InstanceNorm2d` whose `num_features` are the channels of its first input. As `torch.nn.LazyInstanceNorm2d`.

    >>> import lazyt as lt
    >>> lt.nn.LazyInstanceNorm2d()(lt.ones((1, 2, 3, 3))).shape
    (1, 2, 3, 3)
    """

    cls_to_become = batch_norms.InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, batch_norms.InstanceNorm3d):
    """An `InstanceNorm3d` whose `num_features` are the channels of its first input. As `torch.nn.LazyInstanceNorm3d`.

    >>> import lazyt as lt
    >>> lt.nn.LazyInstanceNorm3d()(lt.ones((1, 2, 3, 3, 3))).shape
    (1, 2, 3, 3, 3)
    """

    cls_to_become = batch_norms.InstanceNorm3d
