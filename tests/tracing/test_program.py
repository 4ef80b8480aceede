"""The recorded program as a value: equal programs have one number, whoever recorded or copied them."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.autograd.engine import BACKWARD
from lazyt.tracing.program import INPUT, MODE, Builder, Program, number_of
from lazyt.tracing.trace import local

LAZYT = Path(lt.__file__).parent


def leaf(*shape: int) -> Any:
    x = lt.asarray(np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape))
    return x.requires_grad_()


def trained(w: Any, x: Any) -> Any:
    loss = (lt.tanh(x @ w) ** 2).mean()
    loss.backward()
    with lt.no_grad():
        w -= 0.1 * w.grad
    return loss


def second_order(w: Any, x: Any) -> Any:
    (g,) = lt.autograd.grad((w**3 * x.sum()).sum(), [w], create_graph=True)
    g.sum().backward()
    return g


def written(w: Any, x: Any) -> Any:
    y = x * 2
    y[1:] = w.detach()[1:3]
    y[:, 0] += 1
    return y


def modes(w: Any, x: Any) -> Any:
    y = x + 1
    with lt.no_grad():
        z = y @ w
    with lt.autocast("cpu", dtype=lt.bfloat16):
        return z + x @ w


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "elementwise": lambda w, x: lt.exp(x) + x[0] * 2,
    "several values": lambda w, x: lt.linalg.svd(x)[1] + lt.split(x, 3, axis=0)[1].sum(),
    "trained": trained,
    "second order": second_order,
    "written": written,
    "modes": modes,
    "vmap": lambda w, x: lt.vmap(lambda v: v @ w)(x),
    "jvp": lambda w, x: lt.jvp(lambda v: lt.sin(v).sum(), (x,), (x,))[1],
}


def record(name: str) -> tuple[Program, Any]:
    """The pending program of one of these, and what holds it."""
    w, x = leaf(3, 3), lt.asarray(np.ones((3, 3), np.float32))
    lt.sync()
    held = PROGRAMS[name](w, x)
    return local.trace.pos.program, (w, x, held)


def drop() -> None:
    lt.sync()


@pytest.mark.parametrize("name", PROGRAMS)
def test_equal_programs_have_one_number_on_every_line_and_thread(name: str) -> None:
    numbers: list[int] = []

    def run() -> None:
        program, held = record(name)
        numbers.append(program.number)
        drop()
        del held

    run()
    run()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert len(numbers) == 3
    assert len(set(numbers)) == 1


def test_other_programs_have_other_numbers() -> None:
    numbers = set()
    for name in PROGRAMS:
        program, held = record(name)
        numbers.add(program.number)
        drop()
        del held
    x = lt.asarray(np.ones((3, 3), np.float32))
    for f in (
        lambda: x + 1, lambda: x + 1.0, lambda: x + x, lambda: x.sum(axis=0), lambda: x.sum(axis=1),
        lambda: x.sum(axis=0, keepdims=True), lambda: x.sum(axis=False), lambda: x.astype("float16"),
    ):  # fmt: skip
        y = f()
        numbers.add(local.trace.pos.number)
        drop()
        del y
    assert len(numbers) == len(PROGRAMS) + 8


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_copy_of_all_calls_is_the_program(name: str) -> None:
    """A copy has the whole key of each call, so a part or a first step is found again as a trace."""
    program, held = record(name)
    calls = program.calls
    made = Builder(calls[0].mode, calls[0].device, number_of(0, (calls[0].parent.mode,)))
    for c in calls:
        if c.op is INPUT:
            made.input(c.statics, c)
        else:
            made.copy(c)
    again = made.program()
    assert again.number == program.number
    assert [(c.scalar_start, c.ext_start, c.index) for c in again.calls] == [
        (c.scalar_start, c.ext_start, c.index) for c in calls
    ]
    own = {id(c) for c in again.calls}
    for c in again.calls:
        assert all(id(x.step) in own for x in c.operands if not isinstance(x, type))
        assert c.op is MODE or c.op is INPUT or c.op is BACKWARD or c.slots[0].dtype is not None
    drop()
    del held


def test_no_step_is_made_outside_of_tracing() -> None:
    """A part of a trace is a program of its own, no path of a trie that is none."""
    made = set()
    for path in sorted(LAZYT.rglob("*.py")):
        tree = ast.parse(path.read_text())
        names = {
            a.name
            for i in ast.walk(tree)
            if isinstance(i, ast.ImportFrom) and i.module in ("lazyt.tracing.program", "lazyt.tracing.trace")
            for a in i.names
        } & {"Step", "Call", "Program"}
        for node in ast.walk(tree) if names else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                made.add((path.relative_to(LAZYT).as_posix(), node.func.id))
    # The number of a part's program is known before its calls are.
    assert {m for m in made if not m[0].startswith("tracing/")} == {("runtime/chain.py", "Program")}
    assert ("tracing/steps.py", "Step") in made
