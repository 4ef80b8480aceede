"""The optimizers. Names, options and trajectories as in `torch.optim`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import ArgumentError
from lazyt.functions.logic import equal, where
from lazyt.ops import optim as ops
from lazyt.optim.optimizer import Optimizer, decay_scalar
from lazyt.optim.states import filled
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Iterable

    Group = dict[str, Any]
    State = dict[str, Any]

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "RMSprop"]


class SGD(Optimizer):
    """Gradient descent with momentum, Nesterov's too. As `torch.optim.SGD`.

    >>> import lazyt as lt
    >>> w = lt.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> lt.optim.SGD([w], lr=0.25).step()
    >>> w.tolist()
    [0.5]
    """

    skippable = True
    op = ops.SGD

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        launch = {"foreach": foreach, "differentiable": differentiable, "fused": fused}
        super().__init__(params, {**options, "nesterov": nesterov, "maximize": maximize, **launch})

    def check(self, group: Group) -> None:
        super().check(group)
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ArgumentError("SGD: nesterov requires a momentum and no dampening")

    def flags(self, group: Group) -> dict[str, int]:
        return {
            **super().flags(group),
            "has_momentum": group["momentum"] != 0,
            "nesterov": group["nesterov"],
        }

    def scalars(self, group: Group, step: int, state: State, first: bool, p: Any) -> dict[str, float]:
        # The first step's buffer is the gradient itself.
        undamped: Any = 1.0 if first else 1.0 - group["dampening"]
        if group["dampening"] and isinstance(step, Handle):  # all steps before may have been skipped
            undamped = where(equal(step, 1), 1.0, 1.0 - group["dampening"])
        return {"undamped": undamped, **{k: group[k] for k in ("lr", "weight_decay", "momentum")}}

    def shared(self, group: Group, step: int, state: State, first: bool, p: Any) -> Any:
        return first


class Adam(Optimizer):
    """Adaptive moments; weight decay is added to the gradient. As `torch.optim.Adam`.

    Kingma, Ba: Adam: a method for stochastic optimization (2014).

    >>> import lazyt as lt
    >>> w = lt.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> lt.optim.Adam([w], lr=0.5).step()
    >>> round(w.item(), 5)
    0.5
    """

    skippable = True
    op = ops.ADAM

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        launch = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable, "fused": fused}
        more = {"maximize": maximize, "decoupled_weight_decay": decoupled_weight_decay}
        super().__init__(params, {**options, **launch, **more})

    def flags(self, group: Group) -> dict[str, int]:
        return {
            **super().flags(group),
            "decoupled": group["decoupled_weight_decay"],
            "amsgrad": group["amsgrad"],
        }

    def scalars(self, group: Group, step: int, state: State, first: bool, p: Any) -> dict[str, float]:
        beta1, beta2 = group["betas"]
        return {
            "weight_decay": decay_scalar(group),
            "rate1": 1 - beta1,
            "beta2": beta2,
            "rate2": 1 - beta2,
            "step_size": group["lr"] / (1 - beta1**step),
            "root": (1 - beta2**step) ** 0.5,
            "eps": group["eps"],
        }

    def shared(self, group: Group, step: int, state: State, first: bool, p: Any) -> Any:
        return step


class AdamW(Adam):
    """`Adam` with weight decay apart from the gradient. As `torch.optim.AdamW`.

    Loshchilov, Hutter: Decoupled weight decay regularization (2017).

    >>> import lazyt as lt
    >>> w = lt.tensor([1.0], requires_grad=True)
    >>> (w * 0.0).sum().backward()
    >>> lt.optim.AdamW([w], lr=0.5, weight_decay=0.5).step()
    >>> w.tolist()
    [0.75]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        launch = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable, "fused": fused}
        options: dict[str, Any] = {"maximize": maximize, "decoupled_weight_decay": True, **launch}
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **options)


class RMSprop(Optimizer):
    """Gradients over the root of their running mean square. As `torch.optim.RMSprop`.

    >>> import lazyt as lt
    >>> w = lt.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> lt.optim.RMSprop([w], lr=0.25, alpha=0.75, eps=0.0).step()
    >>> w.tolist()
    [0.5]
    """

    skippable = True
    op = ops.RMSPROP

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum}
        launch = {"capturable": capturable, "foreach": foreach, "differentiable": differentiable}
        super().__init__(params, {**options, "centered": centered, "maximize": maximize, **launch})

    def flags(self, group: Group) -> dict[str, int]:
        return {
            **super().flags(group),
            "has_momentum": group["momentum"] > 0,
            "centered": group["centered"],
        }

    def scalars(self, group: Group, step: int, state: State, first: bool, p: Any) -> dict[str, float]:
        same = {k: group[k] for k in ("lr", "weight_decay", "alpha", "eps", "momentum")}
        return {**same, "rate": 1 - group["alpha"]}


class Adagrad(Optimizer):
    """Gradients over the root of their sum of squares. As `torch.optim.Adagrad`. Duchi et al. (2011).

    >>> import lazyt as lt
    >>> w = lt.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> lt.optim.Adagrad([w], lr=0.5, eps=0.0).step()
    >>> w.tolist()
    [0.5]
    """

    skippable = True
    op = ops.ADAGRAD

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        options = {"lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps}
        launch = {"foreach": foreach, "differentiable": differentiable, "fused": fused}
        start = {"initial_accumulator_value": initial_accumulator_value, "maximize": maximize}
        super().__init__(params, {**options, **start, **launch})

    def new_state(self, group: Group, p: Any, names: Iterable[str]) -> dict[str, Any]:
        return {"step": 0, "sum": filled(p, group["initial_accumulator_value"])}

    def scalars(self, group: Group, step: int, state: State, first: bool, p: Any) -> dict[str, float]:
        lr = group["lr"] / (1 + (step - 1) * group["lr_decay"])
        return {"lr": lr, "weight_decay": group["weight_decay"], "eps": group["eps"]}

    def shared(self, group: Group, step: int, state: State, first: bool, p: Any) -> Any:
        return step
