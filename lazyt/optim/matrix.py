"""Optimizers that read a parameter as a matrix."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.errors import ArgumentError, NotSupportedError
from lazyt.functions.data_types import finfo
from lazyt.ops import optim_matrix as ops
from lazyt.optim.optimizer import Optimizer
from lazyt.optim.states import filled

if TYPE_CHECKING:
    from collections.abc import Iterable

    Group = dict[str, Any]
    State = dict[str, Any]

__all__ = ["Adafactor", "Muon"]


class Adafactor(Optimizer):
    """Adaptive steps whose second moments are a row and a column for each matrix. As `torch.optim.Adafactor`.

    The root mean squares of parameters and updates are computed within the step: nothing is read on the host, where
    PyTorch waits for both. Shazeer, Stern: Adafactor: adaptive learning rates with sublinear memory cost (2018).

    >>> import lazyt as lt
    >>> w = lt.tensor([[1.0, 1.0], [1.0, 1.0]], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> lt.optim.Adafactor([w], lr=0.25).step()
    >>> w.tolist()
    [[0.75, 0.75], [0.75, 0.75]]
    """

    op = ops.ADAFACTOR
    uniform = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        options = {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay}
        super().__init__(params, {**options, "foreach": foreach, "maximize": maximize})

    def check(self, group: Group) -> None:
        eps1, eps2 = group["eps"]
        super().check({**group, "eps": (eps2 if eps1 is None else eps1, eps2)})
        if min(eps1 or 0, eps2) < 0:
            raise ArgumentError(f"Adafactor: eps are at least 0, got {group['eps']}")
        if group["beta2_decay"] > 0:
            raise ArgumentError(f"Adafactor: beta2_decay is at most 0, got {group['beta2_decay']}")
        if group["d"] < 1:
            raise ArgumentError(f"Adafactor: d, where updates are clipped, is at least 1, got {group['d']}")

    def new_state(self, group: Group, p: Any, names: Iterable[str]) -> State:
        if p.ndim < 2:
            return super().new_state(group, p, names)
        row, column = (*p.shape[:-1], 1), (*p.shape[:-2], 1, p.shape[-1])
        return {"step": 0, "row_var": filled(p, 0, row), "col_var": filled(p, 0, column)}

    def flags(self, group: Group) -> dict[str, int]:
        return {**super().flags(group), "decoupled": True, "factored": True}

    def flags_of(self, flags: dict[str, int], p: Any) -> dict[str, int]:
        return {**flags, "factored": p.ndim > 1}

    def scalars(self, group: Group, step: int, state: State, first: bool, p: Any) -> dict[str, float]:
        lr, (eps1, eps2) = group["lr"], group["eps"]
        return {
            "weight_decay": 1 - lr * group["weight_decay"],
            "rate": step ** group["beta2_decay"],
            "rho": min(lr, 1 / math.sqrt(step)),
            "eps1": float(finfo(p.dtype).eps) if eps1 is None else eps1,
            "eps2": eps2,
            "d": group["d"],
        }

    def shared(self, group: Group, step: int, state: State, first: bool, p: Any) -> Any:
        return step, p.ndim > 1, p.dtype


class Muon(Optimizer):
    """Momentum whose matrices are made orthogonal by Newton-Schulz steps. As `torch.optim.Muon`, for matrices alone.

    The iteration is in the parameter's dtype (float32 for the halves), where PyTorch rounds it to bfloat16: their
    updates differ by about 1%. Jordan: Muon, an optimizer for hidden layers (2024).

    >>> import lazyt as lt
    >>> w = lt.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> lt.optim.Muon([w], lr=0.1, weight_decay=0.0).step()
    >>> [[round(x, 2) for x in row] for row in w.tolist()]
    [[0.89, 0.0], [0.0, 0.89]]
    """

    op = ops.MUON
    uniform = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        options = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov}
        more = {"ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn}
        super().__init__(params, {**options, **more})

    def check(self, group: Group) -> None:
        super().check(group)
        for p in group["params"]:
            if p.ndim != 2:
                raise NotSupportedError(
                    f"Muon: not supported: a parameter of shape {p.shape}, because the update is that of a matrix; "
                    "give the others to AdamW"
                )
        if group["adjust_lr_fn"] not in (None, "original", "match_rms_adamw"):
            raise ArgumentError(
                f"Muon: adjust_lr_fn is None, 'original' or 'match_rms_adamw', got {group['adjust_lr_fn']!r}"
            )
        if len(group["ns_coefficients"]) != 3:
            raise ArgumentError(f"Muon: ns_coefficients are three numbers, got {group['ns_coefficients']}")
        if not 0 <= group["ns_steps"] < 100:
            raise ArgumentError(f"Muon: ns_steps is in [0, 100), got {group['ns_steps']}")

    def flags(self, group: Group) -> dict[str, int]:
        return {"nesterov": group["nesterov"], "tall": False, "iterations": group["ns_steps"]}

    def flags_of(self, flags: dict[str, int], p: Any) -> dict[str, int]:
        return {**flags, "tall": p.shape[0] > p.shape[1]}

    def _ratio(self, group: Group, p: Any) -> float:
        rows, columns = p.shape
        if group["adjust_lr_fn"] == "match_rms_adamw":
            return 0.2 * math.sqrt(max(rows, columns))
        return math.sqrt(max(1, rows / columns))

    def scalars(self, group: Group, step: int, state: State, first: bool, p: Any) -> dict[str, float]:
        a, b, c = group["ns_coefficients"]
        return {
            "weight_decay": 1 - group["lr"] * group["weight_decay"],
            "momentum": group["momentum"],
            "rate": 1 - group["momentum"],
            "eps": group["eps"],
            "a": a,
            "b": b,
            "c": c,
            "step_size": group["lr"] * self._ratio(group, p),
        }

    def shared(self, group: Group, step: int, state: State, first: bool, p: Any) -> Any:
        return p.shape[0] > p.shape[1], self._ratio(group, p)
