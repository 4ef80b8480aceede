"""Every scheduler with every option against PyTorch's twenty epochs, and from PyTorch's state to their end."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from tests.support.torch_programs import compare, read
from tests.support.torch_programs.schedulers import MADE, go_on, run


@pytest.mark.parametrize("name", MADE)
def test_rates_and_states(name: str) -> None:
    want = read("schedulers", name)
    compare(run(name, lt, "float64"), {k: v for k, v in want.items() if k != "state"}, 1e-10)
    np.testing.assert_allclose(go_on(name, lt, want), want["last"], rtol=1e-10)
