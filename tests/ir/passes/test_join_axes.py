"""Reductions that go over two axes in the order of one: which do, what is stored no more, and that no bit changes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import LazytInternalError
from lazyt.ir import dtypes, graph as g
from lazyt.ir.bit_exact import is_exact
from lazyt.ir.builder import Builder
from lazyt.ir.graph_interpreter import interpret
from lazyt.ir.passes.join_axes import NARROW, ROWS, join_axes
from lazyt.ir.passes.verify import verify
from lazyt.ir.reduction_order import summed
from lazyt.ir.symbolic import hint
from lazyt.runtime import plan_cache
from tests.support.plans import forget

if TYPE_CHECKING:
    from collections.abc import Callable

F4 = dtypes.float32
N, K, V = 80, 37, 10

pytestmark = pytest.mark.usefixtures("planned")


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def outer(h: Any, c: Any) -> Any:
    return h[:, :, None] * c[:, None]


# Kernels at most, of which one goes over two axes in the order of one.
PROGRAMS: dict[str, tuple[int, Callable[..., Any]]] = {
    "squares": (1, lambda m, h, c, x: (outer(h, c) ** 2).sum((1, 2))),
    "an array beside": (1, lambda m, h, c, x: (x * h[:, :, None]).sum((1, 2))),
    "a constant of each element": (1, lambda m, h, c, x: (h[:, :, None] - c[0]).sum((1, 2))),
    "a part": (1, lambda m, h, c, x: (x[:, :, 1:] * x[:, :, 1:]).sum((1, 2))),
    "others than sums": (2, lambda m, h, c, x: (outer(h, c).max((1, 2)), (outer(h, c) > 1).sum((1, 2)))),
    "several of one": (1, lambda m, h, c, x: (m.abs(outer(h, c)).sum((1, 2)), m.abs(outer(h, c)).max((1, 2)))),
    "functions": (1, lambda m, h, c, x: m.tanh(outer(h, c)).sum((1, 2))),
    "what is computed of one": (1, lambda m, h, c, x: ((y := outer(h, c)).max((1, 2)), (y * y).sum((1, 2)))),
    "spread again": (1, lambda m, h, c, x: (y := outer(h, c)) / (1 + (y * y).sum((1, 2), keepdims=True))),
    "what is computed of it": (1, lambda m, h, c, x: m.sqrt((outer(h, c) ** 2).sum((1, 2)) + 1)),
    "a norm of each": (2, lambda m, h, c, x: (h**2).sum(1) + (outer(h, c) ** 2).sum((1, 2))),
    "halves": (1, lambda m, h, c, x: (outer(h, c).astype("float16") * 0.5).sum((1, 2))),
    "float64": (1, lambda m, h, c, x: outer(h.astype("float64"), c).sum((1, 2))),
    "turned in part": (1, lambda m, h, c, x: (outer(h, c) + x.transpose(1, 0, 2).transpose(1, 0, 2)).sum((1, 2))),
}
# What stays: of the axes that it reads as one, or because nothing can be gained.
OTHERS: dict[str, Callable[..., Any]] = {
    "as it lies": lambda m, h, c, x: (x * x).sum((1, 2)),
    "few rows": lambda m, h, c, x: (outer(h, c)[: ROWS - 1] ** 2).sum((1, 2)),
    "few elements": lambda m, h, c, x: outer(h, c[:, : NARROW - 1]).sum((1, 2)),
    "all rows too": lambda m, h, c, x: outer(h, c).sum(),
    "a place": lambda m, h, c, x: outer(h, c).reshape(N, -1).argmax(1),
    "turned": lambda m, h, c, x: (x.transpose(0, 2, 1).reshape(N, K, V) * h[:, :, None]).sum((1, 2)),
    "every other one": lambda m, h, c, x: (x[:, :, ::-1] * h[:, :, None]).sum((1, 2)),
    "columns": lambda m, h, c, x: (x.transpose(1, 2, 0) * c.T).sum((0, 1)),
    "what is wanted, too": lambda m, h, c, x: (y := outer(h, c) + 1, y.sum((1, 2))),
}


def run(program: Callable[..., Any]) -> list[np.ndarray]:
    arrays = array(N, K), array(N, V, seed=1), array(N, K, V, seed=2)
    out = program(lt, *map(lt.asarray, arrays))
    out = out if isinstance(out, tuple) else (out,)
    lt.sync()
    want = program(np, *(a.astype("f8") for a in arrays))
    for got, exact in zip(out, want if isinstance(want, tuple) else (want,), strict=True):
        np.testing.assert_allclose(
            got.numpy().astype("f8"), exact, rtol=1e-2 if got.dtype == "float16" else 1e-4, atol=2e-3
        )
    return [a.numpy() for a in out]


def vectors() -> list[str]:
    return [c.kernel.vector for c in lt.last_sync().plan.schedule.kernels]


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_and_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    most, program = PROGRAMS[name]
    got = run(program)
    assert len(vectors()) <= most
    assert "rows" in vectors()
    monkeypatch.setitem(plan_cache.settings, "join", False)
    forget()
    want = run(program)
    assert "rows" not in vectors()
    for joined, apart in zip(got, want, strict=True):
        assert joined.tobytes() == apart.tobytes()


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    run(OTHERS[name])
    assert "rows" not in vectors()


@pytest.mark.parametrize("program", range(4))
def test_threads_and_what_is_stored_give_the_same_bits(program: int, monkeypatch: pytest.MonkeyPatch) -> None:
    n, k, v = 77, 131, 10
    h, c, x = (lt.asarray(a) for a in (array(n, k), array(n, v, seed=1), array(n, k, v, seed=2)))
    lt.sync()

    def run() -> tuple[list[bytes], list[str]]:
        g = h[:, :, None] * c[:, None]
        y = [
            lambda: ((g * g).sum((1, 2)),),
            lambda: ((g * x).sum((1, 2)), (g * x).max((1, 2))),
            lambda: (g / lt.sqrt((g * g).sum((1, 2), keepdims=True)),),
            lambda: (lt.tanh(g - x).sum((1, 2), dtype="float64"), g),
        ][program]()
        lt.sync()
        return [a.numpy().tobytes() for a in y], [call.kernel.vector for call in lt.last_sync().plan.schedule.kernels]

    before, found = lt.get_num_threads(), []
    try:
        for threads, join in itertools.product((1, 2, 4), (True, False)):
            lt.set_num_threads(threads)
            monkeypatch.setitem(plan_cache.settings, "join", join)
            forget()
            values, vectors = run()
            assert ("rows" in vectors) == join
            found.append(values)
    finally:
        lt.set_num_threads(before)
    assert all(values == found[0] for values in found)


def test_gradients_of_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The squared norms of them: no gradient of a layer is stored."""
    arrays = [array(6, 12), array(12, seed=1), array(12, 10, seed=2), array(10, seed=3), array(N, 6), array(N, 10)]

    def loss(w: Any, b: Any, v: Any, d: Any, x: Any, t: Any) -> Any:
        return ((lt.tanh(x @ w + b) @ v + d - t) ** 2).sum()

    def norms() -> np.ndarray:
        gradients = lt.vmap(lt.grad(loss, (0, 1, 2, 3)), (None, None, None, None, 0, 0))
        found = gradients(*map(lt.asarray, arrays))
        total: lt.Tensor = sum((a * a).sum(tuple(range(1, a.ndim))) for a in found)
        del found
        return total.numpy()

    got = norms()
    assert vectors().count("rows") == 2
    assert all(
        np.prod([hint(d) for d in n.shape]) < N * 12 * 6 for c in lt.last_sync().plan.schedule.kernels for n in c.writes
    )
    monkeypatch.setitem(plan_cache.settings, "join", False)
    forget()
    assert norms().tobytes() == got.tobytes()


def test_a_short_axis_has_a_plan_of_its_own() -> None:
    for n, k, v in ((80, 9, 10), (80, 50, 12), (90, 9, 4), (70, 9, 10), (3, 9, 10), (90, 5, 6), (90, 1, 6), (90, 0, 6)):
        h, c = array(n, k), array(n, v, seed=1)
        got = (outer(lt.asarray(h), lt.asarray(c)) ** 2).sum((1, 2)).numpy()
        np.testing.assert_allclose(got, (outer(h, c) ** 2).sum((1, 2), dtype="f8"), rtol=1e-4, atol=1e-4)


def test_new_sizes_make_no_plan() -> None:
    def total(n: int, k: int, v: int) -> None:
        h, c = lt.asarray(array(n, k)), lt.asarray(array(n, v, seed=1))
        (outer(h, c) ** 2).sum((1, 2)).numpy()

    total(80, 20, 10)
    with lt.expect(plans=0, compiles=0):
        for n, k, v in ((80, 21, 10), (2, 20, 7), (100, 7, 40)):
            total(n, k, v)


def merged(b: Builder, value: g.Node, op: str = "sum", axes: tuple[int, ...] = (1,)) -> g.Graph:
    n, k, v = value.shape
    outs = [b.reduce(op, b.reshape(value, (n, k * v)), axes)]
    return g.Graph(g.reachable(outs), outs)


def product(b: Builder, n: int = ROWS, k: int = 5, v: int = 8) -> g.Node:
    h, c = b.input(0, (n, k, 1), F4), b.input(1, (n, 1, v), F4)
    return b.mul(b.expand(h, (n, k, v)), b.expand(c, (n, k, v)))


@pytest.mark.parametrize("op", ["sum", "prod", "max"])
def test_the_meaning_is_the_same(op: str) -> None:
    b = Builder()
    before = merged(b, product(b), op)
    after = join_axes(before, None)
    verify(after)
    (found,) = after.outputs
    assert str(found).startswith(f"%{found.serial} = {op} axes=(1, 2) joined")
    xs = [array(ROWS, 5, 1), array(ROWS, 1, 8, seed=1)]
    (got,), (want,) = (interpret(h, h.outputs, xs) for h in (after, before))
    np.testing.assert_array_equal(got, want)
    assert is_exact(found)


def test_a_value_that_is_read_by_others_stays() -> None:
    b = Builder()
    y = product(b)
    total = b.reduce("sum", b.reshape(y, (ROWS, 40)), (1,))
    for more in (b.neg(y), y, b.reduce("argmax", b.reshape(y, (ROWS, 40)), (1,))):
        outs = [total, more]
        graph = g.Graph(g.reachable(outs), outs)
        assert join_axes(graph, None) is graph


def test_the_order_is_that_of_one_axis() -> None:
    x = array(4, 31, 9)
    np.testing.assert_array_equal(
        summed("sum", x, (1, 2), "rows"), summed("sum", x.reshape(4, -1), (1,), "row")
    )  # fmt: skip
    assert (summed("sum", x, (1, 2), "rows") != summed("sum", x, (1, 2), "row")).any()


def test_only_the_last_two_axes_are_joined() -> None:
    b = Builder()
    x = b.input(0, (3, 4, 5), F4)
    for axes in ((0, 1), (0, 2), (2,)):
        out = b.reduce("sum", x, axes, joined=True)
        with pytest.raises(LazytInternalError, match="last two axes"):
            verify(g.Graph(g.reachable([out]), [out]))
