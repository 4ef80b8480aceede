"""Models written for PyTorch, from the same text in both libraries: losses of each step and the state at the end."""

from __future__ import annotations

import pytest

import lazyt as lt
from tests.support.torch_programs import compare, read
from tests.support.torch_programs.models import PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_training(name: str) -> None:
    compare(PROGRAMS[name](lt, "float64"), read("models", name), 1e-8)
