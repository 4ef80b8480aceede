"""Optimizers that scale each element's step. Names, options and trajectories as in `torch.optim`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.errors import ArgumentError
from lazyt.ops import optim_adaptive as ops
from lazyt.optim.optimizer import Optimizer, decay_scalar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Group = dict[str, Any]
    State = dict[str, Any]

__all__ = ["Adadelta", "Adamax", "Lion", "NAdam", "RAdam"]


class Adadelta(Optimizer):
    """Steps as large as the ones before, by the gradients' mean square. As `torch.optim.Adadelta`. Zeiler (2012).

    >>> import lazyt as lt
    >>> w = lt.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> lt.optim.Adadelta([w], eps=0.25, rho=0.0).step()
    >>> round(w.item(), 4)
    0.5149
    """

    skippable = True
    op = ops.ADADELTA

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        launch = {"capturable": capturable, "foreach": foreach, "differentiable": differentiable}
        super().__init__(params, {**options, **launch})

    def check(self, group: Group) -> None:
        super().check(group)
        if not 0 <= group["rho"] <= 1:
            raise ArgumentError(f"Adadelta: rho is in [0, 1], got {group['rho']}")

    def scalars(self, group: Group, step: int, state: State, first: bool, p: Any) -> dict[str, float]:
        return {**{k: group[k] for k in ("lr", "weight_decay", "rho", "eps")}, "rate": 1 - group["rho"]}


class Adamax(Optimizer):
    """Adam by the largest gradient so far. As `torch.optim.Adamax`. Kingma, Ba (2014), section 7.1.

    >>> import lazyt as lt
    >>> w = lt.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> lt.optim.Adamax([w], lr=0.5, eps=0.0).step()
    >>> round(w.item(), 5)
    0.5
    """

    skippable = True
    op = ops.ADAMAX

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        launch = {"capturable": capturable, "foreach": foreach, "differentiable": differentiable}
        super().__init__(params, {**options, **launch})

    def scalars(self, group: Group, step: int, state: State, first: bool, p: Any) -> dict[str, float]:
        beta1, beta2 = group["betas"]
        moments = {"rate1": 1 - beta1, "beta2": beta2, "step_size": group["lr"] / (1 - beta1**step)}
        return {"weight_decay": group["weight_decay"], "eps": group["eps"], **moments}

    def shared(self, group: Group, step: int, state: State, first: bool, p: Any) -> Any:
        return step


class NAdam(Optimizer):
    """Adam with Nesterov's momentum. As `torch.optim.NAdam`. Dozat: Incorporating Nesterov momentum into Adam (2016).

    >>> import lazyt as lt
    >>> w = lt.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> lt.optim.NAdam([w], lr=0.5).step()
    >>> round(w.item(), 4)
    0.4718
    """

    op = ops.NADAM
    uniform = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        more = {"momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay}
        launch = {"capturable": capturable, "foreach": foreach, "differentiable": differentiable}
        super().__init__(params, {**options, **more, **launch})

    def new_state(self, group: Group, p: Any, names: Iterable[str]) -> State:
        return {**super().new_state(group, p, names), "mu_product": 1.0}

    def flags(self, group: Group) -> dict[str, int]:
        return {**super().flags(group), "decoupled": group["decoupled_weight_decay"]}

    def _momentum(self, group: Group, step: int) -> float:
        share: float = group["betas"][0] * (1 - 0.5 * 0.96 ** (step * group["momentum_decay"]))
        return share

    def numbers(self, group: Group, step: int, state: State) -> Mapping[str, float]:
        return {"mu_product": state["mu_product"] * self._momentum(group, step)}

    def scalars(self, group: Group, step: int, state: State, first: bool, p: Any) -> dict[str, float]:
        beta1, beta2 = group["betas"]
        now, then = self._momentum(group, step), self._momentum(group, step + 1)
        product = state["mu_product"] * now
        return {
            "weight_decay": decay_scalar(group),
            "rate1": 1 - beta1,
            "beta2": beta2,
            "rate2": 1 - beta2,
            "correction": 1 - beta2**step,
            "by_gradient": group["lr"] * (1 - now) / (1 - product),
            "by_mean": group["lr"] * then / (1 - product * then),
            "eps": group["eps"],
        }

    def shared(self, group: Group, step: int, state: State, first: bool, p: Any) -> Any:
        return step, state["mu_product"]


class RAdam(Optimizer):
    """Adam that adapts once its variance is tractable. As `torch.optim.RAdam`. Liu et al. (2019).

    >>> import lazyt as lt
    >>> w = lt.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> lt.optim.RAdam([w], lr=0.25).step()
    >>> round(w.item(), 5)
    0.5
    """

    op = ops.RADAM

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        launch = {"capturable": capturable, "foreach": foreach, "differentiable": differentiable}
        super().__init__(params, {**options, "decoupled_weight_decay": decoupled_weight_decay, **launch})

    def flags(self, group: Group) -> dict[str, int]:
        return {**super().flags(group), "decoupled": group["decoupled_weight_decay"]}

    def scalars(self, group: Group, step: int, state: State, first: bool, p: Any) -> dict[str, float]:
        beta1, beta2 = group["betas"]
        correction = 1 - beta2**step
        most = 2 / (1 - beta2) - 1
        length = most - 2 * step * beta2**step / correction
        rectified = 0.0
        if length > 5:
            share = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
            rectified = math.sqrt(share * correction)
        return {
            "weight_decay": decay_scalar(group),
            "rate1": 1 - beta1,
            "beta2": beta2,
            "rate2": 1 - beta2,
            "step_size": group["lr"] / (1 - beta1**step),
            "rectified": rectified,
            "eps": group["eps"],
        }

    def shared(self, group: Group, step: int, state: State, first: bool, p: Any) -> Any:
        return step


class Lion(Optimizer):
    """The sign of a momentum, so one buffer and steps of one size. Decay is decoupled. PyTorch has none.

    Chen et al.: Symbolic discovery of optimization algorithms (2023).

    >>> import lazyt as lt
    >>> w = lt.tensor([1.0, -2.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> lt.optim.Lion([w], lr=0.25).step()
    >>> w.tolist()
    [0.75, -1.75]
    """

    skippable = True
    op = ops.LION

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize})

    def flags(self, group: Group) -> dict[str, int]:
        return {**super().flags(group), "decoupled": True}

    def scalars(self, group: Group, step: int, state: State, first: bool, p: Any) -> dict[str, float]:
        lr, (beta1, beta2) = group["lr"], group["betas"]
        return {"lr": lr, "weight_decay": 1 - lr * group["weight_decay"], "ahead": beta2 - beta1, "rate2": 1 - beta2}
