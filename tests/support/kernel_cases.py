"""The kernels of the suite (kernel_suite.py), taken down while its tests run on the interpreter alone."""

from __future__ import annotations

import inspect
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from lazyt.ir import kernel_interpreter as oracle
from lazyt.ir.kernel import Kernel
from lazyt.ir.kernel_interpreter import Arguments
from tests.support import kernel_suite
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


SUITE = [name for name in vars(kernel_suite) if name.startswith("test_")]


def cases_of_suite() -> dict[str, list[Case]]:
    """By test function of the suite: the cases it gives to `check`, for all its parameters."""
    return {name: _cases(getattr(kernel_suite, name)) for name in SUITE}


def _cases(test: Any) -> list[Case]:
    cases: list[Case] = []

    def check(k: Builder, pieces: int = 1, exact: bool = True) -> list[np.ndarray]:
        case = Case.of(k, exact)
        cases.append(case)
        return case.stored()

    marks = [m.args for m in getattr(test, "pytestmark", []) if m.name == "parametrize"]
    wanted = inspect.signature(test).parameters
    for values in itertools.product(*(v for _, v in marks)):
        arguments: dict[str, Any] = {"check": check}
        for (names, _), value in zip(marks, values, strict=True):
            several = names if isinstance(names, tuple) else tuple(n.strip() for n in names.split(","))
            arguments.update(zip(several, value if len(several) > 1 else (value,), strict=True))
        if "rng" in wanted:
            arguments["rng"] = np.random.default_rng(20240)
        test(**arguments)
    return cases
