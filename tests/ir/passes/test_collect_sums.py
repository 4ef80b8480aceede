"""Sums of a loop's turns: the same values as one by one, in one product, reduction or concatenation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.ir import dtypes, graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.graph_interpreter import interpret
from lazyt.ir.passes.collect_sums import collect_sums

pytestmark = pytest.mark.usefixtures("planned")

F8 = dtypes.float64
TURNS = 6


def _leaves(b: Builder, count: int, *shape: int, dtype: Any = F8) -> list[Any]:
    return [b.input(i, shape, dtype) for i in range(count)]


def _added(b: Builder, xs: list[Any]) -> Any:
    total = xs[0]
    for x in xs[1:]:
        total = b.add(total, x)
    return total


def _products(b: Builder) -> Any:
    xs = _leaves(b, 2 * TURNS, 2, 5)
    return _added(b, [b.matmul(b.permute(x, (1, 0)), y) for x, y in zip(xs[::2], xs[1::2], strict=True)])


def _transposed_products(b: Builder) -> Any:
    xs = _leaves(b, TURNS, 5, 5)
    terms = [b.permute(b.matmul(x, b.exp(x)), (1, 0)) for x in xs]
    return _added(b, [*terms, b.sin(xs[0])])


def _column_sums(b: Builder) -> Any:
    return _added(b, [b.reduce("sum", x, (0,)) for x in _leaves(b, TURNS, 2, 5)])


def _parts(b: Builder) -> Any:
    """Along the last axis, out of order."""
    zero = b.constant(0, F8)
    xs = _leaves(b, TURNS, 2, 3)
    return _added(b, [b.pad(x, (0, 3 * k), (2, 3 * TURNS), zero) for k, x in reversed([*enumerate(xs)])])


def _steps(b: Builder) -> Any:
    """The places of an axis, each a value without it."""
    zero = b.constant(0, F8)
    xs = [b.reshape(b.exp(x), (1, 2, 3)) for x in _leaves(b, TURNS, 2, 3)]
    return _added(b, [b.pad(x, (k, 0, 0), (TURNS, 2, 3), zero) for k, x in enumerate(xs)])


def _parts_of_halves(b: Builder) -> Any:
    """Exact, whatever stands before them."""
    zero = b.constant(0, dtypes.bfloat16)
    xs = _leaves(b, TURNS, 2, 3 * TURNS, dtype=dtypes.bfloat16)
    terms = [b.pad(b.slice(x, (0, 0), (2, 3), (1, 1)), (0, 3 * k), (2, 3 * TURNS), zero) for k, x in enumerate(xs)]
    return _added(b, [b.exp(xs[0]), *terms])


def _stack(b: Builder) -> Any:
    return b.concat([b.reshape(b.exp(x), (2, 1, 3)) for x in _leaves(b, TURNS, 2, 3)], 1)


COLLECTED = {
    "products": (_products, "matmul"),
    "transposed products": (_transposed_products, "matmul"),
    "column sums": (_column_sums, "sum"),
    "parts": (_parts, "pad"),
    "steps": (_steps, "pad"),
    "parts of halves": (_parts_of_halves, "pad"),
    "stack": (_stack, "reshape"),
}


def _ops(graph: g.Graph) -> Counter[str]:
    return Counter(n.op for n in graph.nodes)


@pytest.mark.parametrize("name", COLLECTED)
def test_values_stay_and_terms_become_one(name: str) -> None:
    build, op = COLLECTED[name]
    y = build(Builder())
    before = g.Graph(g.reachable([y]), [y])
    after = collect_sums(before, None)
    assert _ops(before)[op] == TURNS
    assert _ops(after)[op] == (op != "pad")
    rng = np.random.default_rng(0)
    leaves = [
        rng.standard_normal(n.shape).astype(n.dtype)
        for n in sorted(before.nodes, key=lambda n: n.serial)
        if n.op == "input"
    ]
    found, want = (interpret(graph, graph.outputs, leaves) for graph in (after, before))
    if found[0].dtype == F8:
        np.testing.assert_allclose(found[0], want[0], rtol=1e-13, atol=1e-13)
    else:
        np.testing.assert_array_equal(found[0], want[0])


def _gap(b: Builder) -> Any:
    zero = b.constant(0, F8)
    return _added(b, [b.pad(x, (0, 4 * k), (2, 4 * TURNS), zero) for k, x in enumerate(_leaves(b, TURNS, 2, 3))])


def _overlap(b: Builder) -> Any:
    zero = b.constant(0, F8)
    return _added(b, [b.pad(x, (k, 0), (3, 3), zero) for k, x in enumerate([*_leaves(b, 2, 2, 3)])])


def _ones(b: Builder) -> Any:
    one = b.constant(1, F8)
    return _added(b, [b.pad(x, (0, 3 * k), (2, 3 * TURNS), one) for k, x in enumerate(_leaves(b, TURNS, 2, 3))])


def _few(b: Builder) -> Any:
    x, y, z = _leaves(b, 3, 5, 5)
    return _added(b, [b.matmul(x, y), b.matmul(y, z), b.matmul(z, x)])


def _deep(b: Builder) -> Any:
    """Operands that are larger than the product: to keep them all would take more memory."""
    xs = _leaves(b, TURNS, 4, 20_000)
    return _added(b, [b.matmul(x, b.permute(x, (1, 0))) for x in xs])


def _read_twice(b: Builder) -> Any:
    terms = [b.matmul(x, x) for x in _leaves(b, TURNS, 5, 5)]
    return b.mul(_added(b, terms), _added(b, [b.sin(x) for x in terms]))


def _column_sums_of_halves(b: Builder) -> Any:
    """Each is rounded by itself."""
    return _added(b, [b.reduce("sum", x, (0,)) for x in _leaves(b, TURNS, 2, 5, dtype=dtypes.float16)])


@pytest.mark.parametrize("build", [_gap, _overlap, _ones, _few, _deep, _read_twice, _column_sums_of_halves])
def test_what_does_not_fit_stays(build: Callable[[Builder], Any]) -> None:
    y = build(Builder())
    graph = g.Graph(g.reachable([y]), [y])
    assert collect_sums(graph, None) is graph


def test_a_loop_has_one_product_for_the_gradient_of_its_weight() -> None:
    """A recurrence as users write it: in each turn a product forward and one back, and one more for the weight."""
    rng = np.random.default_rng(0)
    turns = 8
    w = lt.tensor(rng.standard_normal((16, 16)).astype("f4") / 4, requires_grad=True)
    h = x = lt.asarray(rng.standard_normal((3, 16)).astype("f4"))
    for _ in range(turns):
        h = lt.tanh(h @ w + x)
    (h * h).sum().backward()
    found = w.grad.numpy()
    calls = lt.last_sync().plan.schedule.launches
    assert sum(type(c).__name__ == "MatmulCall" for c in calls) == turns + (turns - 1) + 1
    # Against the derivative by hand, in float64.
    v, hs = w.detach().numpy().astype("f8"), [x.numpy().astype("f8")]
    for _ in range(turns):
        hs.append(np.tanh(hs[-1] @ v + hs[0]))
    want, d = np.zeros_like(v), 2 * hs[-1]
    for before, after in zip(hs[-2::-1], hs[:0:-1], strict=True):
        d = d * (1 - after**2)
        want += before.T @ d
        d = d @ v.T
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
