"""Every optimizer with every option against PyTorch's fifty steps; and from PyTorch's state to their end."""

from __future__ import annotations

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


@pytest.mark.parametrize("name", TRAININGS)
def test_float32(name: str) -> None:
    want = {k: v for k, v in read(AREA, name).items() if k.startswith(("half/", "after/"))}
    compare(run(name, lt, "float32"), want, 1e-5)
