"""Layers that make images larger or smaller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.functions.resampling import interpolated
from lazyt.nn.module import Module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.runtime.tensor import Tensor

__all__ = ["Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]


class Upsample(Module):
    """`functional.interpolate` to a size, or by a factor. As `torch.nn.Upsample`.

    >>> import lazyt as lt
    >>> lt.nn.Upsample(scale_factor=2, mode="bilinear")(lt.ones((1, 1, 3, 4))).shape
    (1, 1, 6, 8)
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size, self.mode, self.align_corners = size, mode, align_corners
        self.scale_factor: float | tuple[float, ...] | None
        if isinstance(scale_factor, tuple | list):
            self.scale_factor = tuple(map(float, scale_factor))
        else:
            self.scale_factor = None if scale_factor is None else float(scale_factor)  # type: ignore[arg-type]
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Any) -> Tensor:
        return interpolated(
            type(self).__name__, input, self.size, self.scale_factor, self.mode, self.align_corners,
            self.recompute_scale_factor, False,
        )  # fmt: skip

    def extra_repr(self) -> str:
        how = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{how}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """`Upsample` by the nearest elements of (N, C, H, W). As `torch.nn.UpsamplingNearest2d`.

    >>> import lazyt as lt
    >>> lt.nn.UpsamplingNearest2d(scale_factor=2)(lt.asarray([[[[1.0, 3.0]]]])).tolist()
    [[[[1.0, 1.0, 3.0, 3.0], [1.0, 1.0, 3.0, 3.0]]]]
    """

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """`Upsample` in mode 'bilinear' with `align_corners`, of (N, C, H, W). As `torch.nn.UpsamplingBilinear2d`.

    >>> import lazyt as lt
    >>> lt.nn.UpsamplingBilinear2d((1, 3))(lt.asarray([[[[1.0, 3.0]]]])).tolist()
    [[[[1.0, 2.0, 3.0]]]]
    """

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
