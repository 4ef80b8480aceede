"""Distributions, divergences and transforms against PyTorch's numbers."""

from __future__ import annotations

import pytest

import lazyt as lt
from tests.support.torch_programs import compare, read
from tests.support.torch_programs.distributions import PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers(name: str) -> None:
    compare(PROGRAMS[name](lt, "float64"), read("distributions", name), 1e-10)
