"""The kernels that the CPU backend's tests check, taken down while those tests run on the interpreter alone."""

from __future__ import annotations

import inspect
import itertools
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from lazyt.ir import kernel_interpreter as oracle
from lazyt.ir.kernel import Kernel
from lazyt.ir.kernel_interpreter import Arguments

if TYPE_CHECKING:
    from tests.support.kernel_builder import Builder


@dataclass
class Case:
    """A kernel, fresh arguments for it, what it must store, and whether to the bit."""

    builder: Builder
    kernel: Kernel
    want: Arguments
    exact: bool

    @staticmethod
    def of(builder: Builder, exact: bool = True) -> Case:
        kernel, want = builder.kernel(), builder.arguments()
        oracle.run(kernel, want)
        return Case(builder, kernel, want, exact)

    def stored(self) -> list[np.ndarray]:
        return [w.array for a, w in zip(self.builder.accesses, self.want.accesses, strict=True) if a.writes]


def checking_tests(module: ModuleType) -> list[str]:
    """The test functions that give kernels to `check`."""
    tests = {n: getattr(f, "hypothesis", None) or f for n, f in vars(module).items() if n.startswith("test_")}
    return [n for n, f in tests.items() if "check(" in inspect.getsource(getattr(f, "inner_test", f))]


def cases_of(module: ModuleType) -> dict[str, list[Case]]:
    """By test function: the cases it gives to `check`, for all its parameters."""
    found: dict[str, list[Case]] = {}
    for name in checking_tests(module):
        found[name] = cases = []
        _run(module, getattr(module, name), cases)
    return found


def _run(module: ModuleType, test: Any, cases: list[Case]) -> None:
    def check(k: Builder, pieces: int = 1, exact: bool = True) -> list[np.ndarray]:
        case = Case.of(k, exact)
        cases.append(case)
        return case.stored()

    marks = [m.args for m in getattr(test, "pytestmark", []) if m.name == "parametrize"]
    wanted = inspect.signature(test).parameters
    with mock.patch.object(module, "check", check):
        for values in itertools.product(*(v for _, v in marks)):
            arguments: dict[str, Any] = {}
            for (names, _), value in zip(marks, values, strict=True):
                several = names if isinstance(names, tuple) else tuple(n.strip() for n in names.split(","))
                arguments.update(zip(several, value if len(several) > 1 else (value,), strict=True))
            if "rng" in wanted:
                arguments["rng"] = np.random.default_rng(20240)
            test(**arguments)
