"""Layers that set random elements or channels to 0 while training."""

from __future__ import annotations

from typing import Any

from lazyt.functions import dropout as functional
from lazyt.nn.module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _Dropout(Module):
    function: str

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        functional.rate_of(type(self).__name__, p)
        self.p, self.inplace = p, inplace

    def forward(self, input: Any) -> Any:
        return getattr(functional, self.function)(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """`functional.dropout` while training. As `torch.nn.Dropout`."""

    function = "dropout"


class Dropout1d(_Dropout):
    """`functional.dropout1d`, of channels, while training. As `torch.nn.Dropout1d`."""

    function = "dropout1d"


class Dropout2d(_Dropout):
    """`functional.dropout2d`, of channels, while training. As `torch.nn.Dropout2d`."""

    function = "dropout2d"


class Dropout3d(_Dropout):
    """`functional.dropout3d`, of channels, while training. As `torch.nn.Dropout3d`."""

    function = "dropout3d"


class AlphaDropout(_Dropout):
    """`functional.alpha_dropout` while training. As `torch.nn.AlphaDropout`."""

    function = "alpha_dropout"


class FeatureAlphaDropout(_Dropout):
    """`functional.feature_alpha_dropout`, of channels, while training. As `torch.nn.FeatureAlphaDropout`."""

    function = "feature_alpha_dropout"
