"""Losses as modules: those of one number an element, of classes, of likelihoods and of sequences."""

from __future__ import annotations

from typing import Any

from lazyt.functions import nn as functional
from lazyt.functions.arguments import tensor
from lazyt.functions.loss_arguments import KL_REDUCTIONS, reduction_of
from lazyt.nn.module import Module

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "NLLLoss",
    "NLLLoss2d",
    "PoissonNLLLoss",
    "SmoothL1Loss",
]


class Loss(Module):
    """A function of some operands, with options as attributes; tensors among them are buffers."""

    name: str
    tensors: tuple[str, ...] = ()

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = tuple(options)
        for key, value in options.items():
            if key in self.tensors:
                self.register_buffer(key, None if value is None else tensor(value))
            else:
                setattr(self, key, value)

    def _of(self, *operands: Any) -> Any:
        return getattr(functional, self.name)(*operands, **{key: getattr(self, key) for key in self._options})

    def extra_repr(self) -> str:
        return ", ".join(f"{k}={getattr(self, k)!r}" for k in self._options if k not in self.tensors)


class MSELoss(Loss):
    """`functional.mse_loss`. As `torch.nn.MSELoss`."""

    name = "mse_loss"

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction_of("MSELoss", reduction, size_average, reduce))

    def forward(self, input: Any, target: Any) -> Any:
        return self._of(input, target)


class L1Loss(Loss):
    """`functional.l1_loss`. As `torch.nn.L1Loss`."""

    name = "l1_loss"

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction_of("L1Loss", reduction, size_average, reduce))

    def forward(self, input: Any, target: Any) -> Any:
        return self._of(input, target)


class SmoothL1Loss(Loss):
    """`functional.smooth_l1_loss`. As `torch.nn.SmoothL1Loss`."""

    name = "smooth_l1_loss"

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(beta=beta, reduction=reduction_of("SmoothL1Loss", reduction, size_average, reduce))

    def forward(self, input: Any, target: Any) -> Any:
        return self._of(input, target)


class HuberLoss(Loss):
    """`functional.huber_loss`. As `torch.nn.HuberLoss`."""

    name = "huber_loss"

    def __init__(
        self,
        reduction: str = "mean",
        delta: float = 1.0,
    ) -> None:
        super().__init__(delta=delta, reduction=reduction_of("HuberLoss", reduction))

    def forward(self, input: Any, target: Any) -> Any:
        return self._of(input, target)


class BCELoss(Loss):
    """`functional.binary_cross_entropy`. As `torch.nn.BCELoss`."""

    name = "binary_cross_entropy"
    tensors = ("weight",)

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight=weight, reduction=reduction_of("BCELoss", reduction, size_average, reduce))

    def forward(self, input: Any, target: Any) -> Any:
        return self._of(input, target)


class BCEWithLogitsLoss(Loss):
    """`functional.binary_cross_entropy_with_logits`. As `torch.nn.BCEWithLogitsLoss`."""

    name = "binary_cross_entropy_with_logits"
    tensors = ("weight", "pos_weight")

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Any = None,
    ) -> None:
        super().__init__(
            weight=weight,
            pos_weight=pos_weight,
            reduction=reduction_of("BCEWithLogitsLoss", reduction, size_average, reduce),
        )

    def forward(self, input: Any, target: Any) -> Any:
        return self._of(input, target)


class KLDivLoss(Loss):
    """`functional.kl_div`. As `torch.nn.KLDivLoss`."""

    name = "kl_div"

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(
            log_target=log_target,
            reduction=reduction_of("KLDivLoss", reduction, size_average, reduce, KL_REDUCTIONS),
        )

    def forward(self, input: Any, target: Any) -> Any:
        return self._of(input, target)


class NLLLoss(Loss):
    """`functional.nll_loss`. As `torch.nn.NLLLoss`."""

    name = "nll_loss"
    tensors = ("weight",)

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            weight=weight, ignore_index=ignore_index, reduction=reduction_of("NLLLoss", reduction, size_average, reduce)
        )

    def forward(self, input: Any, target: Any) -> Any:
        return self._of(input, target)


class CrossEntropyLoss(Loss):
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
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(
            weight=weight,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction=reduction_of("CrossEntropyLoss", reduction, size_average, reduce),
        )

    def forward(self, input: Any, target: Any) -> Any:
        return self._of(input, target)


class PoissonNLLLoss(Loss):
    """`functional.poisson_nll_loss`. As `torch.nn.PoissonNLLLoss`."""

    name = "poisson_nll_loss"

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            log_input=log_input,
            full=full,
            eps=eps,
            reduction=reduction_of("PoissonNLLLoss", reduction, size_average, reduce),
        )

    def forward(self, log_input: Any, target: Any) -> Any:
        return self._of(log_input, target)


class GaussianNLLLoss(Loss):
    """`functional.gaussian_nll_loss`. As `torch.nn.GaussianNLLLoss`."""

    name = "gaussian_nll_loss"

    def __init__(
        self,
        *,
        full: bool = False,
        eps: float = 1e-6,
        reduction: str = "mean",
    ) -> None:
        super().__init__(full=full, eps=eps, reduction=reduction_of("GaussianNLLLoss", reduction))

    def forward(self, input: Any, target: Any, var: Any) -> Any:
        return self._of(input, target, var)


class CTCLoss(Loss):
    """`functional.ctc_loss`. As `torch.nn.CTCLoss`."""

    name = "ctc_loss"

    def __init__(
        self,
        blank: int = 0,
        reduction: str = "mean",
        zero_infinity: bool = False,
    ) -> None:
        super().__init__(blank=blank, zero_infinity=zero_infinity, reduction=reduction_of("CTCLoss", reduction))

    def forward(self, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any) -> Any:
        return self._of(log_probs, targets, input_lengths, target_lengths)


NLLLoss2d = NLLLoss  # its old name for maps of labels
