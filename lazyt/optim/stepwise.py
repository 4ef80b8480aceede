"""Optimizers without moments: the average of the iterates, and steps by the gradients' signs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import ArgumentError
from lazyt.ops import optim_adaptive as ops
from lazyt.optim.optimizer import Optimizer
from lazyt.optim.states import filled

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Group = dict[str, Any]
    State = dict[str, Any]

__all__ = ["ASGD", "Rprop"]


class ASGD(Optimizer):
    """Gradient descent whose iterates are averaged in `state[p]['ax']`. As `torch.optim.ASGD`.

    Polyak, Juditsky: Acceleration of stochastic approximation by averaging (1992).

    >>> import lazyt as lt
    >>> w = lt.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> lt.optim.ASGD([w], lr=0.25, lambd=0.0).step()
    >>> w.tolist()
    [0.5]
    """

    op = ops.ASGD
    uniform = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        options = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay}
        launch = {"foreach": foreach, "differentiable": differentiable, "capturable": capturable}
        super().__init__(params, {**options, "maximize": maximize, **launch})

    def new_state(self, group: Group, p: Any, names: Iterable[str]) -> State:
        return {**super().new_state(group, p, names), "eta": float(group["lr"]), "mu": 1.0}

    def numbers(self, group: Group, step: int, state: State) -> Mapping[str, float]:
        eta = group["lr"] / (1 + group["lambd"] * group["lr"] * step) ** group["alpha"]
        return {"eta": eta, "mu": 1 / max(1, step - group["t0"])}

    def scalars(self, group: Group, step: int, state: State, first: bool, p: Any) -> dict[str, float]:
        # As PyTorch: the rates that the step before left.
        eta, mu = state["eta"], state["mu"]
        return {"weight_decay": group["weight_decay"], "shrink": 1 - group["lambd"] * eta, "eta": eta, "mu": mu}

    def shared(self, group: Group, step: int, state: State, first: bool, p: Any) -> Any:
        return step, state["eta"], state["mu"]


class Rprop(Optimizer):
    """Steps by the gradients' signs, longer while a sign stays. As `torch.optim.Rprop`. Riedmiller, Braun (1993).

    >>> import lazyt as lt
    >>> w = lt.tensor([1.0, -2.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> lt.optim.Rprop([w], lr=0.25).step()
    >>> w.tolist()
    [0.75, -1.75]
    """

    op = ops.RPROP

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize}
        launch = {"foreach": foreach, "differentiable": differentiable, "capturable": capturable}
        super().__init__(params, {**options, **launch})

    def check(self, group: Group) -> None:
        super().check(group)
        if not 0 < group["etas"][0] < 1 < group["etas"][1]:
            raise ArgumentError(f"Rprop: etas are 0 < etas[0] < 1 < etas[1], got {group['etas']}")

    def new_state(self, group: Group, p: Any, names: Iterable[str]) -> State:
        return {**super().new_state(group, p, ("prev",)), "step_size": filled(p, group["lr"])}

    def flags(self, group: Group) -> dict[str, int]:
        return {"maximize": group["maximize"]}

    def scalars(self, group: Group, step: int, state: State, first: bool, p: Any) -> dict[str, float]:
        (slower, faster), (least, most) = group["etas"], group["step_sizes"]
        return {"slower": slower, "faster": faster, "least": least, "most": most}
