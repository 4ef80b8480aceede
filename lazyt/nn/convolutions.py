"""Convolutions and transposed convolutions with parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions import nn as functional
from lazyt.functions.arguments import tensor
from lazyt.functions.spatial_padding import padded
from lazyt.functions.windows import Size, each
from lazyt.nn.module import Module
from lazyt.nn.new_parameters import Registered, draw_affine, new_parameter, size_of
from lazyt.ops.convolution import same_padding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.runtime.tensor import Tensor

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution(Module):
    """What both kinds have: sizes, parameters and their text."""

    rank: int
    transposed = False
    weight, bias = Registered(), Registered()

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size, padding: Size | str,
        dilation: Size, output_padding: Size, groups: int, bias: bool, padding_mode: str, device: Any, dtype: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        name, rank = type(self).__name__, self.rank
        size_of(name, in_channels=in_channels, out_channels=out_channels)
        (groups,) = each(name, "groups", groups, 1, 1)
        if in_channels % groups or out_channels % groups:
            raise ShapeError(f"{name}: {groups} groups do not divide {in_channels} and {out_channels} channels")
        if padding_mode not in _PADDING_MODES:
            raise ShapeError(f"{name}: padding_mode {padding_mode!r} is not one of {', '.join(_PADDING_MODES)}")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = each(name, "kernel_size", kernel_size, rank, 1)
        self.stride = each(name, "stride", stride, rank, 1)
        self.dilation = each(name, "dilation", dilation, rank, 1)
        self.output_padding = each(name, "output_padding", output_padding, rank, 0)
        self.padding_mode = padding_mode
        self.padding: tuple[int, ...] | str
        if not isinstance(padding, str):
            self.padding = each(name, "padding", padding, rank, 0)
        elif padding not in ("same", "valid"):
            raise ShapeError(f"{name}: padding is integers, 'same' or 'valid', got {padding!r}")
        elif padding == "same" and any(s != 1 for s in self.stride):
            raise ShapeError(f"{name}: padding='same' is for a stride of 1, got {stride}")
        else:
            self.padding = padding
        ends = (in_channels, out_channels // groups) if self.transposed else (out_channels, in_channels // groups)
        self.weight = new_parameter(*ends, *self.kernel_size, dtype=dtype, device=device)
        self.register_parameter("bias", new_parameter(out_channels, dtype=dtype, device=device) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        draw_affine(self.weight, self.bias)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        zeros, ones = (0,) * self.rank, (1,) * self.rank
        usual = {"padding": zeros, "dilation": ones, "output_padding": zeros, "groups": 1, "padding_mode": "zeros"}
        more = [f", {k}={getattr(self, k)}" for k, v in usual.items() if getattr(self, k) != v]
        if self.bias is None:
            more.insert(len(more) - (self.padding_mode != "zeros"), ", bias=False")
        return text + "".join(more)


class _Forward(_Convolution):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, 0, groups, bias, padding_mode, device,
            dtype,
        )  # fmt: skip

    def forward(self, input: Any) -> Any:
        convolve = getattr(functional, f"conv{self.rank}d")
        if self.padding_mode == "zeros":
            return convolve(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
        wide = padded(type(self).__name__, tensor(input), self._around(), self.padding_mode)
        return convolve(wide, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)

    def _around(self) -> tuple[int, ...]:
        """The padding as `functional.pad` takes it."""
        if self.padding == "same":
            pairs = same_padding(self.kernel_size, self.dilation)
        else:
            pairs = tuple((p, p) for p in ((0,) * self.rank if isinstance(self.padding, str) else self.padding))
        return tuple(w for pair in reversed(pairs) for w in pair)


class Conv1d(_Forward):
    """`functional.conv1d` with parameters: (N, C, W) to (N, O, W'), or without N. As `torch.nn.Conv1d`.

    `padding` is integers, 'same' or 'valid'; `padding_mode` is 'zeros', 'reflect', 'replicate' or 'circular'. Raises
    ShapeError for options or inputs that do not fit.

    >>> import lazyt as lt
    >>> lt.nn.Conv1d(2, 4, 3, padding=1)(lt.ones((1, 2, 8))).shape
    (1, 4, 8)
    """

    rank = 1


class Conv2d(_Forward):
    """`functional.conv2d` with parameters: (N, C, H, W) to (N, O, H', W'), or without N. As `torch.nn.Conv2d`.

    Options as those of `Conv1d`, one value an axis where they differ.

    >>> import lazyt as lt
    >>> lt.nn.Conv2d(3, 8, 3, stride=2, padding=1, padding_mode="reflect")(lt.ones((1, 3, 8, 8))).shape
    (1, 8, 4, 4)
    """

    rank = 2


class Conv3d(_Forward):
    """`functional.conv3d` with parameters: (N, C, D, H, W) to (N, O, D', H', W'). As `torch.nn.Conv3d`.

    Options as those of `Conv1d`; an input may be without N.

    >>> import lazyt as lt
    >>> lt.nn.Conv3d(1, 2, 2)(lt.ones((1, 1, 3, 3, 3))).shape
    (1, 2, 2, 2, 2)
    """

    rank = 3


class _Transposed(_Convolution):
    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        name = type(self).__name__
        if padding_mode != "zeros":
            raise ShapeError(f"{name}: padding_mode is 'zeros', got {padding_mode!r}")
        if isinstance(padding, str):
            raise ShapeError(f"{name}: padding is integers, got {padding!r}")
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, output_padding, groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, input: Any, output_size: Sequence[int] | None = None) -> Tensor:
        """The larger image; `output_size` (of its last axes, or of all) takes the place of `output_padding`."""
        more = self.output_padding if output_size is None else self._output_padding(input.shape, output_size)
        return getattr(functional, f"conv_transpose{self.rank}d")(  # type: ignore[no-any-return]
            input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation
        )

    def _output_padding(self, shape: tuple[int, ...], output_size: Sequence[int]) -> tuple[int, ...]:
        name, rank = type(self).__name__, self.rank
        assert not isinstance(self.padding, str), "a transposed convolution has integers"
        if len(output_size) not in (rank, len(shape)) or len(shape) not in (rank + 1, rank + 2):
            raise ShapeError(
                f"{name}: output_size has {rank} or {rank + 2} extents for an input of {rank + 2} dimensions, got "
                f"{tuple(output_size)} for shape {tuple(shape)}"
            )
        sizes = [(d - 1) * s - 2 * p + e * (k - 1) + 1 for d, s, p, e, k in zip(
            shape[-rank:], self.stride, self.padding, self.dilation, self.kernel_size, strict=True)]  # fmt: skip
        wanted = tuple(output_size)[-rank:]
        most = tuple(n + s - 1 for n, s in zip(sizes, self.stride, strict=True))
        if any(not low <= n <= high for low, n, high in zip(sizes, wanted, most, strict=True)):
            raise ShapeError(f"{name}: output_size is from {tuple(sizes)} to {most} for this input, got {wanted}")
        return tuple(n - low for n, low in zip(wanted, sizes, strict=True))


class ConvTranspose1d(_Transposed):
    """`functional.conv_transpose1d` with parameters: (N, C, W) to (N, O, W'). As `torch.nn.ConvTranspose1d`.

    The input may be without N. Raises ShapeError for options or inputs that do not fit.

    >>> import lazyt as lt
    >>> lt.nn.ConvTranspose1d(2, 4, 3, stride=2)(lt.ones((1, 2, 4)), output_size=(10,)).shape
    (1, 4, 10)
    """

    rank = 1


class ConvTranspose2d(_Transposed):
    """`functional.conv_transpose2d` with parameters: (N, C, H, W) to (N, O, H', W'). As `torch.nn.ConvTranspose2d`.

    The input may be without N. Raises ShapeError for options or inputs that do not fit.

    >>> import lazyt as lt
    >>> lt.nn.ConvTranspose2d(8, 3, 3, stride=2, padding=1, output_padding=1)(lt.ones((1, 8, 4, 4))).shape
    (1, 3, 8, 8)
    """

    rank = 2


class ConvTranspose3d(_Transposed):
    """`functional.conv_transpose3d` with parameters: (N, C, D, H, W) to (N, O, D', H', W').

    As `torch.nn.ConvTranspose3d`. The input may be without N.

    >>> import lazyt as lt
    >>> lt.nn.ConvTranspose3d(1, 2, 2, stride=2)(lt.ones((1, 1, 2, 2, 2))).shape
    (1, 2, 4, 4, 4)
    """

    rank = 3
