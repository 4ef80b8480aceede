"""Every scheduler with every option against PyTorch's twenty epochs, and from PyTorch's state to their end."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from tests.support.torch_programs import compare, read
from tests.support.torch_programs.schedulers import MADE, go_on, run

SCHEDULED = {
    "StepLR": (2,), "MultiStepLR": ([1, 3],), "ConstantLR": (0.5, 2), "LinearLR": (0.5,), "ExponentialLR": (0.5,),
    "PolynomialLR": (4,), "CosineAnnealingLR": (5,), "LambdaLR": (lambda epoch: 0.5**epoch,),
    "MultiplicativeLR": (lambda epoch: 0.5,), "CyclicLR": (0.1, 1.0, 2), "OneCycleLR": (1.0, 6),
    "CosineAnnealingWarmRestarts": (2,), "ReduceLROnPlateau": ("min", 0.5, 0),
}  # fmt: skip


def rates(kind: str, lr: object) -> tuple[list[float], lt.optim.Optimizer, list[object]]:
    optimizer = lt.optim.SGD([lt.ones(1).requires_grad_()], lr=lr, momentum=0.9)
    if kind == "SequentialLR":
        parts = [
            lt.optim.lr_scheduler.ConstantLR(optimizer, 0.5, 2),
            lt.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
        ]
        scheduler = lt.optim.lr_scheduler.SequentialLR(optimizer, parts, [2])
    elif kind == "SWALR":
        scheduler = lt.optim.swa_utils.SWALR(optimizer, 0.05, 3)
    else:
        scheduler = getattr(lt.optim.lr_scheduler, kind)(optimizer, *SCHEDULED[kind])
    found = []
    for _ in range(4):
        scheduler.step(*(1.0,) * (kind == "ReduceLROnPlateau"))
        found.append(float(optimizer.param_groups[0]["lr"]))
    return found, optimizer, scheduler.get_last_lr()


@pytest.mark.parametrize("kind", [*SCHEDULED, "SequentialLR", "SWALR"])
def test_a_rate_that_is_a_tensor_stays_that_tensor(kind: str) -> None:
    lr = lt.asarray(0.5)
    found, optimizer, last = rates(kind, lr)
    np.testing.assert_allclose(found, rates(kind, 0.5)[0], rtol=1e-6)
    assert optimizer.param_groups[0]["lr"] is lr and last[0] is not lr and float(last[0]) == found[-1]


@pytest.mark.parametrize("name", MADE)
def test_rates_and_states(name: str) -> None:
    want = read("schedulers", name)
    compare(run(name, lt, "float64"), {k: v for k, v in want.items() if k != "state"}, 1e-10)
    np.testing.assert_allclose(go_on(name, lt, want), want["last"], rtol=1e-10)
