"""Losses as modules."""

from __future__ import annotations

from typing import Any

from lazyt.functions import nn as functional
from lazyt.nn.module import Module

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CrossEntropyLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "NLLLoss",
    "SmoothL1Loss",
]


class _Loss(Module):
    """A function of input and target, with options; tensors among them are buffers."""

    name: str
    tensors: tuple[str, ...] = ()

    def __init__(self, **options: Any) -> None:
        super().__init__()
        for t in self.tensors:
            self.register_buffer(t, options.pop(t))
        self.options: dict[str, Any] = options

    def forward(self, x: Any, target: Any) -> Any:
        given = {t: getattr(self, t) for t in self.tensors}
        return getattr(functional, self.name)(x, target, **given, **self.options)

    def extra_repr(self) -> str:
        return ", ".join(f"{k}={v!r}" for k, v in self.options.items())


class MSELoss(_Loss):
    """`functional.mse_loss`. As `torch.nn.MSELoss`."""

    name = "mse_loss"

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


class L1Loss(_Loss):
    """`functional.l1_loss`. As `torch.nn.L1Loss`."""

    name = "l1_loss"

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


class SmoothL1Loss(_Loss):
    """`functional.smooth_l1_loss`. As `torch.nn.SmoothL1Loss`."""

    name = "smooth_l1_loss"

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction=reduction, beta=beta)


class HuberLoss(_Loss):
    """`functional.huber_loss`. As `torch.nn.HuberLoss`."""

    name = "huber_loss"

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction, delta=delta)


class BCELoss(_Loss):
    """`functional.binary_cross_entropy`. As `torch.nn.BCELoss`."""

    name = "binary_cross_entropy"

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


class BCEWithLogitsLoss(_Loss):
    """`functional.binary_cross_entropy_with_logits`. As `torch.nn.BCEWithLogitsLoss`."""

    name = "binary_cross_entropy_with_logits"
    tensors = ("weight", "pos_weight")

    def __init__(self, weight: Any = None, reduction: str = "mean", pos_weight: Any = None) -> None:
        super().__init__(weight=weight, reduction=reduction, pos_weight=pos_weight)


class KLDivLoss(_Loss):
    """`functional.kl_div`. As `torch.nn.KLDivLoss`."""

    name = "kl_div"

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction=reduction, log_target=log_target)


class NLLLoss(_Loss):
    """`functional.nll_loss`. As `torch.nn.NLLLoss`."""

    name = "nll_loss"
    tensors = ("weight",)

    def __init__(self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)


class CrossEntropyLoss(_Loss):
    """`functional.cross_entropy`. As `torch.nn.CrossEntropyLoss`.

    >>> import lazyt as lt
    >>> round(lt.nn.CrossEntropyLoss()(lt.asarray([[0.0, 0.0]]), lt.asarray([1])).item(), 4)
    0.6931
    """

    name = "cross_entropy"
    tensors = ("weight",)

    def __init__(
        self,
        weight: Any = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)
