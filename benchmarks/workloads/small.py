"""Programs on ten numbers, as users write them in NumPy: where an operation costs what its call costs.

Each runs with a sync at every line (the worst that can be done to deferred arrays), and deferred to its end. Two
workloads are whole processes, in which nothing was met before; the last is of programs that its process has never seen,
each of operations that it has.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.core import WARM_UP, Array, Inputs, in_float64, seeded, workload

SIZE = 10
Program = Callable[[Any, Callable[[], Any], Any, Any], Sequence[Any]]


def statistics(m: Any, sync: Any, x: Any, y: Any) -> Sequence[Any]:
    """Moments, a correlation, a rescaling."""
    mean = m.mean(x)
    sync()
    d = x - mean
    sync()
    var = m.mean(d * d)
    sync()
    z = d / m.sqrt(var + 1e-8)
    sync()
    correlation = m.mean(z * (y - m.mean(y)))
    sync()
    skew = m.mean(z**3)
    sync()
    low, high = m.min(x), m.max(x)
    sync()
    unit = (x - low) / (high - low)
    sync()
    upper = m.sum(m.where(unit > 0.5, unit, 0.0))
    sync()
    return z, correlation, skew, unit, upper


def newton(m: Any, sync: Any, x: Any, y: Any) -> Sequence[Any]:
    """Square roots by iteration."""
    a = m.abs(x) + 1.0
    sync()
    r = a
    for _ in range(6):
        r = 0.5 * (r + a / r)
        sync()
    error = r * r - a
    sync()
    worst = m.max(m.abs(error))
    sync()
    return r, worst


def ufuncs(m: Any, sync: Any, x: Any, y: Any) -> Sequence[Any]:
    """One elementwise line after another."""
    a = m.exp(-x * x)
    sync()
    b = m.sin(y) + m.cos(y)
    sync()
    c = m.sqrt(a * a + b * b)
    sync()
    d = m.log(c + 1.0)
    sync()
    e = m.tanh(d) - m.minimum(a, b)
    sync()
    f = m.maximum(e, 0.0) * m.sign(y)
    sync()
    return (m.clip(f, -1.0, 1.0),)


def matrices(m: Any, sync: Any, x: Any, y: Any) -> Sequence[Any]:
    """A power iteration on a small matrix."""
    a = m.outer(x, y)
    sync()
    s = a @ a.T
    sync()
    b = s / m.trace(s) + m.eye(SIZE, dtype=x.dtype)
    sync()
    v = x / m.sqrt(m.sum(x * x))
    sync()
    for _ in range(3):
        v = b @ v
        sync()
        v = v / m.sqrt(m.sum(v * v))
        sync()
    largest = v @ (b @ v)
    sync()
    columns = m.transpose(b)[::2, 1:].sum(axis=0)
    sync()
    return largest, v, columns


def indexing(m: Any, sync: Any, x: Any, y: Any) -> Sequence[Any]:
    """Sorting, slices, index lists, joining."""
    order = m.argsort(x)
    sync()
    s = x[order]
    sync()
    t = s[::-1][2:8]
    sync()
    k = m.where(y > 0, x, -x)
    sync()
    some = k[[0, 3, 5, 7]]
    sync()
    joined = m.concatenate([t, some])
    sync()
    rows = m.cumsum(m.reshape(joined, (2, 5)), axis=1)
    sync()
    at = m.argmax(rows, axis=1)
    sync()
    best = rows[m.arange(2), at]
    sync()
    pairs = m.stack([s, y]).T
    sync()
    return best, pairs


def picture(m: Any, sync: Any, x: Any, y: Any) -> Sequence[Any]:
    """A small image: rescaled, smoothed, summed up."""
    a = m.outer(x, y)
    sync()
    b = (a - a.min()) / (a.max() - a.min())
    sync()
    p = m.pad(b, 1)
    sync()
    g = (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) * 0.25
    sync()
    d = m.abs(g - b)
    sync()
    rows = d.sum(axis=1)
    sync()
    columns = d.mean(axis=0)
    sync()
    return g, rows, columns


PROGRAMS: tuple[Program, ...] = (statistics, newton, ufuncs, matrices, indexing, picture)


def _inputs(quick: bool) -> Inputs:
    return {"x": seeded((SIZE,), 0), "y": seeded((SIZE,), 1)}


def _nothing() -> None:
    """What NumPy has to do to have computed a line."""


def _build(program: Program, lines: bool, peer: Any, inputs: Inputs) -> Callable[[], Any]:
    m = peer.module
    x, y = (peer.array(a) for a in inputs.values())
    sync = m.sync if lines and peer.name == "lazyt" else _nothing
    return lambda: peer.wait(program(m, sync, x, y))


def _reference(program: Program, inputs: Inputs) -> Sequence[Array]:
    return program(np, _nothing, *in_float64(inputs).values())


for _program in PROGRAMS:
    for _mode, _synced in (("lines", "at every line"), ("deferred", "at the end")):
        workload(
            name=f"small_{_program.__name__}_{_mode}",
            what=f"{_program.__doc__} {SIZE} numbers, synced {_synced}",
            inputs=_inputs,
            reference=partial(_reference, _program),
            builds=dict.fromkeys(("lazyt", "numpy"), partial(_build, _program, _mode == "lines")),
            unit="us",
            scale=1e6,
            rtol=1e-3,
            atol=1e-4,
        )


# --- the first time in a process


def _all_lines(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    calls = [_build(p, True, peer, inputs) for p in PROGRAMS]
    return lambda: [x for call in calls for x in call()]


for _start, _caches in (("warm", "with the caches of an earlier one"), ("cold", "with empty caches")):
    workload(
        name=f"small_{_start}_start",
        what=f"a new process to the end of these programs, synced at every line, {_caches}",
        inputs=_inputs,
        reference=lambda inputs: [x for p in PROGRAMS for x in _reference(p, inputs)],
        builds=dict.fromkeys(("lazyt", "numpy"), _all_lines),
        start=_start,
        rtol=1e-3,
        atol=1e-4,
    )


# --- programs never seen before

OPS = 20
STEPS: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda m, x, y: x + y, lambda m, x, y: x * y, lambda m, x, y: x - y, lambda m, x, y: m.maximum(x, y),
    lambda m, x, y: m.tanh(x), lambda m, x, y: m.sin(x), lambda m, x, y: m.abs(x), lambda m, x, y: x * 0.5,
)  # fmt: skip


class _Unseen:
    """Each call is another sequence of the same operations, deferred; the first is always the same one."""

    def __init__(self, peer: Any, inputs: Inputs) -> None:
        self.peer = peer
        self.x, self.y = (peer.array(a) for a in inputs.values())
        self.seeds = itertools.count()
        for step in STEPS:  # each operation has been met
            peer.wait(step(peer.module, self.x, self.y))

    def __call__(self) -> Any:
        chosen = random.Random(next(self.seeds)).choices(STEPS, k=OPS)
        return self.peer.wait(_run(self.peer.module, chosen, self.x, self.y))


def _run(m: Any, steps: Sequence[Callable[[Any, Any, Any], Any]], x: Any, y: Any) -> Any:
    for step in steps:
        x, y = step(m, x, y), x
    return x


def _last_warm_up(inputs: Inputs) -> Sequence[Array]:
    chosen = random.Random(WARM_UP).choices(STEPS, k=OPS)
    return [_run(np, chosen, *in_float64(inputs).values())]


workload(
    name="small_first",
    what=f"programs of {OPS} operations on {SIZE} numbers, each the first time, of operations that were met",
    inputs=_inputs,
    reference=_last_warm_up,
    builds=dict.fromkeys(("lazyt", "numpy"), _Unseen),
    unit="us/op",
    scale=1e6,
    per=lambda inputs: OPS,
    stateful=True,
    fresh=True,
    rtol=1e-3,
    atol=1e-4,
)
