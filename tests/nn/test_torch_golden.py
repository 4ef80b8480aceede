"""Layers, functions and losses against PyTorch's results: values, gradients, state and twenty steps of training."""

from __future__ import annotations

import pytest

import lazyt as lt
from tests.support.torch_golden import Case, areas, cases, compare

ALL = [pytest.param(area, case, id=f"{area}-{case.name}") for area in areas() for case in cases(area)]


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("area", "case"), ALL)
def test_as_pytorch(area: str, case: Case, dtype: str) -> None:
    compare(case, area, lt, dtype)
