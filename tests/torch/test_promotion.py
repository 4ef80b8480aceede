"""Tensors without axes beside others: numbers of their class in files for PyTorch, arrays in all others."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest

import lazyt as lt

TEXT = """
def combine(x, y, op):
    if op == "*": return x * y
    if op == "-": return x - y
    if op == "/": return x / y
    if op == "**": return x ** y
    if op == "<": return x < y
"""


def program(beginning: str) -> Any:
    made = types.ModuleType("program")
    exec(compile(beginning + TEXT, "program.py", "exec"), made.__dict__)
    return made.combine


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("order", ["torch first", "torch last"])
@pytest.mark.parametrize("op", ["*", "-", "/", "**"])
def test_each_file_has_its_promotion_at_every_turn(torch: Any, op: str, order: str, eager: bool) -> None:
    theirs, ours = program("import lazyt.torch as torch\n"), program("import lazyt as lt\n")
    x, s = lt.ones(2, dtype="float16"), lt.asarray(2.0, dtype="float32")
    turns = [(theirs, "float16"), (ours, "float32")]
    for _ in range(3):
        for f, dtype in turns if order == "torch first" else turns[::-1]:
            for args in ((x, s), (s, x)):
                with lt.eager() if eager else lt.no_grad():
                    found = f(*args, op)
                assert found.dtype == dtype
                np.testing.assert_allclose(found.numpy(), ours(*(a.numpy() for a in args), op), rtol=1e-3)


@pytest.mark.parametrize(
    ("sized", "single", "want"),
    [
        ("float32", "float64", "float32"), ("float32", "int64", "float32"), ("bfloat16", "float32", "bfloat16"),
        ("int32", "int64", "int32"), ("uint8", "int64", "uint8"), ("complex64", "float64", "complex64"),
        ("bool", "int64", "int64"), ("float32", "complex64", "complex64"), ("int32", "float64", "float64"),
    ],
)  # fmt: skip
def test_the_kind_of_a_tensor_without_axes_has_a_say(torch: Any, sized: str, single: str, want: str) -> None:
    x, s = torch.ones(2, dtype=sized), torch.tensor(1, dtype=single)
    for found in (torch.mul(x, s), torch.add(s, x), x.mul(s), s.add(x), torch.where(torch.tensor([True, False]), x, s)):
        assert found.dtype == want
    assert program("import lazyt.torch as torch\n")(x, s, "*").dtype == want
    assert torch.result_type(x, s) == want


def test_what_is_cast_has_its_gradient(torch: Any) -> None:
    combine = program("import lazyt.torch as torch\n")
    s = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    x = torch.ones(3, requires_grad=True)
    for turn in range(1, 4):
        loss = combine(x, s, "*")
        assert loss.dtype == torch.float32
        loss.sum().backward()
        assert s.grad.dtype == torch.float64 and s.grad.item() == 3.0 * turn and x.grad.tolist() == [2.0 * turn] * 3


def test_comparisons_are_of_the_dtype_that_has_axes(torch: Any) -> None:
    x, s = torch.full((1,), 0.1), torch.tensor(0.1, dtype=torch.float64)
    assert torch.eq(x, s).item() and not lt.equal(x, s).item()
    assert not program("import lazyt.torch as torch\n")(s, x, "<").item()


def test_steps_from_before_the_import_are_looked_at() -> None:
    text = """
import subprocess
import sys
import types
import lazyt as lt
made = []
for beginning in ("import lazyt as lt", "import lazyt.torch as torch"):
    module = types.ModuleType("program")
    exec(beginning + "\\ndef f(x, s): return x * s", module.__dict__)
    made.append(module.f)
    x, s = lt.ones(2), lt.asarray(2.0, dtype="float64")
    lt.sync()
    print([f(x, s).dtype.name for f in made for _ in range(2)])
"""
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout
    assert found.splitlines() == ["['float64', 'float64']", "['float64', 'float64', 'float32', 'float32']"]
