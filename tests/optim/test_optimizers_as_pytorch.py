"""Every optimizer with every option against PyTorch's fifty steps; and from PyTorch's state to their end."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from tests.support.torch_programs import compare, read
from tests.support.torch_programs.optimizers import TRAININGS, go_on, run

AREA = "optimizers"


@pytest.mark.parametrize("name", TRAININGS)
def test_float64(name: str) -> None:
    want = read(AREA, name)
    wanted = {k: v for k, v in want.items() if k.startswith(("half/", "after/"))}
    compare(run(name, lt, "float64"), wanted, 1e-10)
    compare(go_on(name, lt, "float64", want), {k: v for k, v in want.items() if k.startswith("after/")}, 1e-10)


BY_ELEMENT = [
    "SGD",
    "Adam",
    "AdamW",
    "Adagrad",
    "Adadelta",
    "Adamax",
    "NAdam",
    "RAdam",
    "RMSprop",
    "ASGD",
    "Rprop",
    "Lion",
]


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("name", BY_ELEMENT)
def test_a_complex_parameter_is_one_of_twice_as_many_real_elements(name: str, synced: bool) -> None:
    start = np.array([[1 + 2j, -0.5j], [3, 1 - 1j]])
    found = []
    for pairs in (False, True):
        p = lt.tensor(np.stack([start.real, start.imag]) if pairs else start, requires_grad=True)
        optimizer = getattr(lt.optim, name)([p], lr=0.05)
        for _ in range(4):
            optimizer.zero_grad()
            (p[0] ** 2 * p[1] ** 2 + p[0] ** 2 if pairs else p.real**2 * p.imag**2 + p.real**2).sum().backward()
            optimizer.step()
            if synced:
                lt.sync()
        y = p.detach().numpy()
        found.append(y[0] + 1j * y[1] if pairs else y)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


@pytest.mark.parametrize("name", ["Adafactor", "Muon"])
def test_a_rule_of_matrices_refuses_a_complex_parameter_in_step(name: str) -> None:
    p = lt.tensor(np.ones((2, 2), np.complex64), requires_grad=True)
    optimizer = getattr(lt.optim, name)([p])
    (abs(p) ** 2).sum().backward()
    for _ in range(2):
        with pytest.raises(lt.NotSupportedError, match=f"{name}: not supported: a parameter of complex64, because"):
            optimizer.step()
    assert p.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("name", TRAININGS)
def test_float32(name: str) -> None:
    want = {k: v for k, v in read(AREA, name).items() if k.startswith(("half/", "after/"))}
    compare(run(name, lt, "float32"), want, 1e-5)
