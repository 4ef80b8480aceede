"""Losses that ask for a margin, as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lazyt.functions.loss_arguments import reduction_of
from lazyt.nn.losses import Loss

__all__ = [
    "CosineEmbeddingLoss",
    "HingeEmbeddingLoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]


class HingeEmbeddingLoss(Loss):
    """`functional.hinge_embedding_loss`. As `torch.nn.HingeEmbeddingLoss`."""

    name = "hinge_embedding_loss"

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin=margin, reduction=reduction_of("HingeEmbeddingLoss", reduction, size_average, reduce))

    def forward(self, input: Any, target: Any) -> Any:
        return self._of(input, target)


class CosineEmbeddingLoss(Loss):
    """`functional.cosine_embedding_loss`. As `torch.nn.CosineEmbeddingLoss`."""

    name = "cosine_embedding_loss"

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin=margin, reduction=reduction_of("CosineEmbeddingLoss", reduction, size_average, reduce))

    def forward(self, input1: Any, input2: Any, target: Any) -> Any:
        return self._of(input1, input2, target)


class SoftMarginLoss(Loss):
    """`functional.soft_margin_loss`. As `torch.nn.SoftMarginLoss`."""

    name = "soft_margin_loss"

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction_of("SoftMarginLoss", reduction, size_average, reduce))

    def forward(self, input: Any, target: Any) -> Any:
        return self._of(input, target)


class MultiLabelMarginLoss(Loss):
    """`functional.multilabel_margin_loss`. As `torch.nn.MultiLabelMarginLoss`."""

    name = "multilabel_margin_loss"

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction_of("MultiLabelMarginLoss", reduction, size_average, reduce))

    def forward(self, input: Any, target: Any) -> Any:
        return self._of(input, target)


class MultiLabelSoftMarginLoss(Loss):
    """`functional.multilabel_soft_margin_loss`. As `torch.nn.MultiLabelSoftMarginLoss`."""

    name = "multilabel_soft_margin_loss"
    tensors = ("weight",)

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            weight=weight, reduction=reduction_of("MultiLabelSoftMarginLoss", reduction, size_average, reduce)
        )

    def forward(self, input: Any, target: Any) -> Any:
        return self._of(input, target)


class MultiMarginLoss(Loss):
    """`functional.multi_margin_loss`. As `torch.nn.MultiMarginLoss`."""

    name = "multi_margin_loss"
    tensors = ("weight",)

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Any = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            p=p,
            margin=margin,
            weight=weight,
            reduction=reduction_of("MultiMarginLoss", reduction, size_average, reduce),
        )

    def forward(self, input: Any, target: Any) -> Any:
        return self._of(input, target)


class MarginRankingLoss(Loss):
    """`functional.margin_ranking_loss`. As `torch.nn.MarginRankingLoss`."""

    name = "margin_ranking_loss"

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin=margin, reduction=reduction_of("MarginRankingLoss", reduction, size_average, reduce))

    def forward(self, input1: Any, input2: Any, target: Any) -> Any:
        return self._of(input1, input2, target)


class TripletMarginLoss(Loss):
    """`functional.triplet_margin_loss`. As `torch.nn.TripletMarginLoss`."""

    name = "triplet_margin_loss"

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            margin=margin,
            p=p,
            eps=eps,
            swap=swap,
            reduction=reduction_of("TripletMarginLoss", reduction, size_average, reduce),
        )

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Any:
        return self._of(anchor, positive, negative)


class TripletMarginWithDistanceLoss(Loss):
    """`functional.triplet_margin_with_distance_loss`. As `torch.nn.TripletMarginWithDistanceLoss`."""

    name = "triplet_margin_with_distance_loss"

    def __init__(
        self,
        *,
        distance_function: Callable[[Any, Any], Any] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            distance_function=distance_function,
            margin=margin,
            swap=swap,
            reduction=reduction_of("TripletMarginWithDistanceLoss", reduction),
        )

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Any:
        return self._of(anchor, positive, negative)
