"""Differential tests: lazyt against NumPy, however a program is synced, fused and run.

`assert_close` compares two arrays; `check_against_numpy` runs a function on NumPy arrays and on tensors, in every way
that lazyt can run it, and finds the operation that a difference comes from. `python -m lazyt.testing fuzz` does so for
random programs. The pytest plugin (`pytest_lazyt.py`) and the hypothesis strategies (`lazyt.testing.strategies`) load
pytest and hypothesis; nothing else here does.
"""

from lazyt.testing.asserting import assert_close
from lazyt.testing.closeness import ulp_distance
from lazyt.testing.differential import Mismatch, check_against_numpy
from lazyt.testing.numpy_names import reference
from lazyt.testing.scripts import check_program

__all__ = ["Mismatch", "assert_close", "check_against_numpy", "check_program", "reference", "ulp_distance"]


def __dir__() -> list[str]:
    return sorted(__all__)
