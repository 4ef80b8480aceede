"""The work of a sync grows as its program does: recording, planning and binding of long programs, by counts.

What is counted are calls (of Python's and C's functions), so the tests say the same on any machine. What no call is
made for (a search through a list) the slow tests find, which count lines run, and those that measure time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn, optim
from lazyt.backends.cpu import code_cache, kernel_rows
from lazyt.config import general
from lazyt.runtime import division, plan_cache, subprograms
from lazyt.runtime.liveness import wanted_of
from lazyt.tracing import shape_inference
from lazyt.tracing.trace import local

LAZYT = lt.__file__.removesuffix("__init__.py")
# The work of twice the steps, in that of the steps: less than this. (Of n log n, and of tables that grow by steps.)
MOST = 2.3

Result = Any


def full(*shape: int) -> lt.Tensor:
    n = int(np.prod(shape))
    return lt.asarray((np.arange(n) % 7 * 0.1 - 0.3).astype(np.float32).reshape(shape))


def weight(*shape: int) -> lt.Tensor:
    w = full(*shape)
    w.requires_grad = True
    return w


def elementwise(n: int) -> Result:
    x, y = full(8, 8), full(8, 8)
    for _ in range(n):
        x = x * 0.5 + y
    return x


def products(n: int) -> Result:
    w, x = full(8, 8), full(8, 8)
    for i in range(n):
        x = lt.tanh(x @ w) + x[i % 8]
    return x


def products_of_one(n: int) -> Result:
    """A computed value that every product reads."""
    w, x = full(8, 8) * 0.5, full(8, 8)
    for _ in range(n):
        x = lt.maximum(x @ w, 0.0) + 0.1
    return x, w


def rows(n: int) -> Result:
    w = full(8, 64)
    for _ in range(n):
        w = w - 0.1 * lt.softmax(w, axis=-1)
    return w


def reductions(n: int) -> Result:
    x = full(8, 8)
    for _ in range(n):
        x = x / (x * x).sum()
    return x


def in_place(n: int) -> Result:
    a = full(64)
    for _ in range(n):
        a[1:-1] = a[1:-1] + 0.1 * (a[2:] - a[1:-1])
    return a


def in_place_of_the_plane(n: int) -> Result:
    a = full(8, 8)
    for _ in range(n):
        a[1:-1, 1:-1] += 0.1 * (a[2:, 1:-1] - a[:-2, 1:-1])
    return a


def gradient(n: int) -> Result:
    w, x = weight(8, 8), full(8, 8)
    for _ in range(n):
        x = lt.tanh(x @ w)
    x.sum().backward()
    return w.grad


def gradient_of_elements(n: int) -> Result:
    w, x = weight(8), full(8)
    for _ in range(n):
        x = lt.tanh(x * w)
    x.sum().backward()
    return w.grad


def gradients(n: int) -> Result:
    """Of many losses by one weight, beside a state without gradients that goes on."""
    w, x = weight(8), full(8)
    for _ in range(n):
        x = x * 0.5 + 1.0
        (x * w).sum().backward()
    return w.grad


def sgd(n: int) -> Result:
    w, x = weight(8, 8), full(4, 8)
    optimizer = optim.SGD([w], lr=0.1, momentum=0.9)
    total: Any = 0.0
    for _ in range(n):
        optimizer.zero_grad()
        loss = ((x @ w) ** 2).mean()
        loss.backward()
        optimizer.step()
        total = total + loss.detach()
    return total, w


def adamw(n: int) -> Result:
    layer, x = nn.Linear(8, 1), full(4, 8)
    optimizer = optim.AdamW(layer.parameters(), lr=0.1)
    for _ in range(n):
        optimizer.zero_grad()
        (layer(x) ** 2).mean().backward()
        optimizer.step()
    return list(layer.parameters())


def many_results(n: int) -> Result:
    x = full(8, 8)
    return [x * float(i) for i in range(n)]


def many_shapes(n: int) -> Result:
    x = full(n + 1)
    return [x[: i + 1] * 2.0 for i in range(n)]


def a_chain_that_is_held(n: int) -> Result:
    x, out = full(8, 8), []
    for _ in range(n):
        x = lt.tanh(x)
        out.append(x)
    return out


def wide_sum(n: int) -> Result:
    x = full(8, 8)
    values = [x * float(i) for i in range(n)]
    total = x
    for v in values:
        total = total + v
    return total


def leaves(n: int) -> Result:
    total, *rest = [full(8) for _ in range(n)]
    for v in rest:
        total = v + total
    return total


def concatenation(n: int) -> Result:
    x = full(8, 8)
    return lt.concat([x * float(i) for i in range(n)], axis=0)


def stacked_states(n: int) -> Result:
    x, out = full(8), []
    for _ in range(n):
        x = lt.tanh(x * 0.9)
        out.append(x)
    return lt.stack(out)


def stack_of_inputs(n: int) -> Result:
    return lt.stack([full(8) for _ in range(n)]) * 2.0


def concatenation_of_inputs(n: int) -> Result:
    """Where each begins is a sum of all sizes before it."""
    return lt.concat([full(1 + i % 7) for i in range(n)]) * 2.0


def columns_of_inputs(n: int) -> Result:
    return lt.hstack([full(2, 8) for _ in range(n)]) * 2.0


def gradients_through_a_concatenation(n: int) -> Result:
    xs = [weight(1 + i % 7) for i in range(n)]
    (lt.concat(xs) ** 2).sum().backward()
    return [x.grad for x in xs]


def concatenation_of_lanes(n: int) -> Result:
    xs = [full(3, 1 + i % 7) for i in range(n)]
    return lt.vmap(lambda *rows: lt.concat([r * 2.0 for r in rows]))(*xs)


def appended(n: int) -> Result:
    x = full(8)
    for i in range(n):
        x = lt.concat([x, full(1 + i % 7)])
    return x


def growing(n: int) -> Result:
    """Each array is a part of the next, and read beside."""
    x = full(4)
    for _ in range(n):
        x = lt.concat([x, x[-1:] * 0.5])
    return x


def pads(n: int) -> Result:
    x = full(8)
    for _ in range(n):
        x = lt.pad(x, 1)
    return x


def parts_of_a_stack(n: int) -> Result:
    x = full(8)
    s = lt.stack([x * float(i) for i in range(n)])
    return [s[i] * 2.0 for i in range(n)]


def lanes_of_a_loop(n: int) -> Result:
    x, f = full(4, 8), lt.vmap(lambda row: lt.tanh(row * 0.5) + row.sum())
    for _ in range(n):
        x = f(x)
    return x


def scan(n: int) -> Result:
    xs, h = full(n, 8), lt.zeros(8, dtype=lt.float32)
    for i in range(n):
        h = lt.tanh(h * 0.5 + xs[i])
    return h


def scan_written(n: int) -> Result:
    xs, h, out = full(n, 8), lt.zeros(8, dtype=lt.float32), lt.zeros((n, 8), dtype=lt.float32)
    for i in range(n):
        h = lt.tanh(h * 0.5 + xs[i])
        out[i] = h
    return out


def lstm(n: int) -> Result:
    size = 8
    w, b, xs = weight(2 * size, 4 * size), weight(4 * size), full(n, 4, size)
    h = c = lt.zeros((4, size), dtype=lt.float32)
    for i in range(n):
        gates = lt.concat([xs[i], h], axis=1) @ w + b
        c = lt.sigmoid(gates[:, :size]) * c + lt.sigmoid(gates[:, size : 2 * size]) * lt.tanh(
            gates[:, 2 * size : -size]
        )
        h = lt.sigmoid(gates[:, -size:]) * lt.tanh(c)
    (h**2).mean().backward()
    return w.grad, b.grad


def kalman(n: int) -> Result:
    f, p, x, h, zs, out = full(3, 3), full(3, 3), full(3, 1), full(1, 3), full(n, 1, 1), []
    one = lt.eye(3, dtype=lt.float32)
    for i in range(n):
        x, p = f @ x, f @ p @ f.T + 0.01
        k = p @ h.T / (h @ p @ h.T + 0.1)
        x, p = x + k @ (zs[i] - h @ x), (one - k @ h) @ p
        out.append(x)
    return lt.stack(out)


def gathers(n: int) -> Result:
    x, at = full(64), lt.asarray(np.arange(64)[::-1].copy())
    for _ in range(n):
        x = x[at] * 0.5
    return x


# By the steps of the quick test: so many that a square would show, in a second or so.
KINDS: dict[Callable[[int], Result], int] = {
    **dict.fromkeys((kalman, adamw, lstm), 40),
    **dict.fromkeys((gradient, gradients, in_place, in_place_of_the_plane, scan_written), 64),
    # Half of them are one kernel too large already: the first division of a program is work that a shorter one has not.
    # With registers of 64 bytes kernels are twice as large.
    **dict.fromkeys((rows, gradient_of_elements), 128),
    sgd: 240,
    reductions: 1200,
    **dict.fromkeys((elementwise, products, products_of_one, many_results, many_shapes), 150),
    **dict.fromkeys((a_chain_that_is_held, wide_sum, leaves, concatenation, stacked_states, parts_of_a_stack), 150),
    **dict.fromkeys((stack_of_inputs, concatenation_of_inputs, columns_of_inputs, concatenation_of_lanes), 150),
    **dict.fromkeys((gradients_through_a_concatenation, appended, growing), 100),
    pads: 200,
    lanes_of_a_loop: 150,
    **dict.fromkeys((scan, gathers), 150),
}
# The first division of a program into kernels of bounded size is work once; the slow test begins beyond it.
LINES = {
    **KINDS,
    lstm: 80,
    gradients: 128,
    gradient_of_elements: 64,
    sgd: 120,
    leaves: 300,
    reductions: 600,
    wide_sum: 300,
    lanes_of_a_loop: 600,
}
EVERY = pytest.mark.parametrize("program", KINDS, ids=lambda f: f.__name__)


class Counter:
    """How much was done."""

    n = 0


@contextmanager
def calls() -> Iterator[Counter]:
    """Counts calls, in the whole process."""
    counter = Counter()

    def note(_frame: Any, event: str, _arg: Any) -> None:
        if event in ("call", "c_call"):
            counter.n += 1

    sys.setprofile(note)
    try:
        yield counter
    finally:
        sys.setprofile(None)


@contextmanager
def lines() -> Iterator[Counter]:
    """Counts the lines of lazyt that are run, each turn of a loop too."""
    counter = Counter()

    def note(_frame: Any, event: str, _arg: Any) -> Any:
        if event == "line":
            counter.n += 1
        return note

    def enter(frame: Any, _event: str, _arg: Any) -> Any:
        return note if frame.f_code.co_filename.startswith(LAZYT) else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield counter
    finally:
        sys.settrace(before)


class NoCode:
    """Stands for machine code that nobody runs: what it costs to make grows with kernels, not with steps."""

    address = 0


@pytest.fixture
def without_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning as users have it: schedules are not checked, nothing is compiled."""
    monkeypatch.setitem(general, "strict", False)
    for module in (kernel_rows, code_cache):
        monkeypatch.setattr(module, "compiled", lambda *_: NoCode())


def plan_and_bind() -> None:
    """What a first sync does, but for compiling and running."""
    tr = local.trace
    want, _, _ = wanted_of(tr)
    plan_cache.names(want)
    plan = plan_cache.build(tr.pos.program, tr.ext.values, want, tr.scalars, True)
    bound = plan.executable.bind(tr.ext.values, tr.scalars)
    bound.divide(0)


def work_of(program: Callable[[int], Result], n: int, counted: Callable[[], Any]) -> tuple[int, int]:
    """Of recording a program of n steps for the first time, and of planning it."""
    local.trace.reset_trie()
    # What this or another test has met of the same sizes: a stack of so many parts is inferred once a process.
    for known in (plan_cache._programs, shape_inference._inferred, shape_inference._forms):
        known.clear()
    with counted() as recording:
        kept = program(n)
    with counted() as planning_:
        plan_and_bind()
    local.trace.leave()
    del kept
    return recording.n, planning_.n


def check_ratios(program: Callable[[int], Result], sizes: list[int], counted: Callable[[], Any]) -> None:
    work_of(program, 8, counted)
    found = [work_of(program, n, counted) for n in sizes]
    for (a, b), (c, d), n in zip(found, found[1:], sizes[1:], strict=False):
        assert c < MOST * a, f"recording of {n} steps: {c} calls or lines, of half as many {a}"
        assert d < MOST * b, f"planning of {n} steps: {d} calls or lines, of half as many {b}"


@EVERY
def test_twice_the_steps_are_twice_the_calls(program, without_code):
    check_ratios(program, [KINDS[program] // 2, KINDS[program]], calls)


@pytest.mark.slow
@EVERY
def test_twice_the_steps_are_twice_the_lines(program, without_code):
    check_ratios(program, [LINES[program], 2 * LINES[program]], lines)


def recurrences(n: int) -> Result:
    """Backwards of their own, each over equal iterations, whose gradients are added up."""
    w = full(4, 4).requires_grad_()
    for _ in range(n):
        h = full(2, 4)
        for _ in range(12):
            h = lt.tanh(h @ w)
        h.sum().backward()
    return w.grad


def test_dividing_twice_the_backwards_is_twice_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MIN_WEIGHT", 50), ("MIN_TRAINING_WEIGHT", 50), ("MIN_OPENED_WEIGHT", 50)):
        monkeypatch.setattr(division, name, value)
    monkeypatch.setattr(division, "OPENED_PART_WEIGHT", 24)

    def work(n: int) -> tuple[int, int]:
        local.trace.reset_trie()
        kept = recurrences(n)
        tr = local.trace
        want, _, _ = wanted_of(tr)
        with lines() as counter:
            parts = subprograms.partition(tr.pos, tr.ext, want)
        assert parts is not None
        tr.leave()
        del kept
        return counter.n, len(parts.parts)

    work(4)
    (few, parts), (many, more_parts) = work(20), work(40)
    assert more_parts > 1.8 * parts > 100
    assert many < MOST * few
