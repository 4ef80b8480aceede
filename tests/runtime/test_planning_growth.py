"""Planning a chain of operations whose extents depend on extents is linear in its length, in work and in memory.

Counted, not timed: the calls of Python functions, and the characters of what is generated or stored. An expression that
is copied wherever it occurs doubles at each operation; a list that is gone through at each is quadratic.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Self

import numpy as np
import pytest

import lazyt as lt
import lazyt.torch as torch
from lazyt.backends.common.expressions import Expressions
from lazyt.ir import plan_format
from lazyt.ir.extent_source import Values
from lazyt.ir.extents import maximum, minimum
from lazyt.ir.passes import pipeline
from lazyt.ir.symbolic import Dim, Scope, hint
from lazyt.runtime.plan import guards_hold, options_for
from lazyt.tracing.lower import lower
from lazyt.tracing.trace import local
from tests.support.plans import forget

F = torch.nn.functional
RNG = np.random.default_rng(5)
Chain = Callable[[Any], Any]

IMAGE, MATRIX, ROW = (1, 2, 12, 12), (4, 4), (90,)
FILTERS, CORNERS = RNG.normal(0, 0.3, (2, 2, 3, 3)), RNG.normal(0, 0.3, (2, 2, 2, 2))


def inception(x: Any) -> Any:
    """Four branches, of which one has a pool with ceil_mode, joined as in googlenet."""
    one = lt.asarray(FILTERS[:1, :, :1, :1])
    pooled = F.max_pool2d(x, 3, stride=1, padding=1, ceil_mode=True)
    wide = F.conv2d(F.conv2d(x, one), lt.asarray(FILTERS[:1, :1]), padding=1)
    return lt.concat([F.conv2d(x, one), F.conv2d(pooled, one), wide, F.relu(F.conv2d(x, one))], axis=1)[:, ::2]


def halved(x: Any) -> Any:
    return x[..., : x.shape[-2] // 2, : x.shape[-1] // 2]


CHAINS: dict[str, tuple[tuple[int, ...], Chain]] = {
    "avg_pool with ceil_mode": (IMAGE, lambda x: F.avg_pool2d(x, 3, stride=1, padding=1, ceil_mode=True) * 1.5),
    "max_pool with ceil_mode": (IMAGE, lambda x: F.interpolate(F.max_pool2d(x, 2, ceil_mode=True), scale_factor=2)),
    "max_pool of steps": (
        IMAGE, lambda x: F.interpolate(F.max_pool2d(x, 3, stride=2, padding=1, ceil_mode=True), scale_factor=2),
    ),
    "lp_pool with ceil_mode": (IMAGE, lambda x: F.interpolate(F.lp_pool2d(x, 2, 2, ceil_mode=True), scale_factor=2)),
    "pool": (IMAGE, lambda x: F.interpolate(F.max_pool2d(x, 2), scale_factor=2)),
    "unpool": (IMAGE, lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)),
    "inception": (IMAGE, inception),
    "diagonal": (MATRIX, lambda x: lt.broadcast_to(lt.diagonal(x)[:, None], (x.shape[0], 4)) * 1.0),
    "diagonal with an offset": (MATRIX, lambda x: lt.pad(lt.diagonal(x, offset=1)[:, None] * x[1:], ((0, 1), (0, 0)))),
    "diagonal of a product": (MATRIX, lambda x: lt.diagonal(x)[:, None] * x),
    "svd": (MATRIX, lambda x: lt.linalg.svd(x, full_matrices=False)[1][:, None] * x),
    "interpolate": (IMAGE, lambda x: F.interpolate(halved(x), scale_factor=2)),
    "split": (IMAGE, lambda x: lt.concat(lt.split(x, 2, axis=-1)[::-1], axis=-1) * 1.5),
    "chunks": (IMAGE, lambda x: lt.concat([*torch.chunk(x, 5, dim=-1)][::-1], axis=-1) * 1.5),
    "pad": (IMAGE, lambda x: lt.pad(x, ((0, 0), (0, 0), (1, 2), (2, 1)))[..., 1:-2, 1:-2] * 1.5),
    "strided convolution": (
        IMAGE, lambda x: F.interpolate(F.conv2d(x, lt.asarray(FILTERS), stride=2, padding=1), scale_factor=2),
    ),
    "transposed convolution": (
        IMAGE, lambda x: F.conv_transpose2d(F.conv2d(x, lt.asarray(CORNERS), stride=2), lt.asarray(CORNERS), stride=2),
    ),
    "steps": (IMAGE, lambda x: lt.concat([x[..., ::3], x[..., 1::3], x[..., 2::3]], axis=-1)),
    "repeat": (IMAGE, lambda x: lt.repeat(x[..., ::2], 2, axis=-1)),
    "tile": (IMAGE, lambda x: lt.tile(halved(x), (1, 1, 2, 2))),
    "unfold": (IMAGE, lambda x: F.fold(F.unfold(x, 2, stride=2), x.shape[-2:], 2, stride=2)),
    "pixel_shuffle": (IMAGE, lambda x: F.pixel_unshuffle(F.pixel_shuffle(lt.concat([x, x], axis=1), 2), 2)[:, :2]),
    "fft": (IMAGE, lambda x: lt.fft.irfft(lt.fft.rfft(x), n=x.shape[-1])),
    "concat": (MATRIX, lambda x: lt.concat([x, x[:1]])),
    "concat of halves": (ROW, lambda x: lt.concat([x, x[::2]])[:-30]),
    "differences": (ROW, lambda x: lt.diff(x)),
    "convolve": (ROW, lambda x: lt.convolve(x, lt.asarray(FILTERS[0, 0, 0]), mode="valid")),
}  # fmt: skip
MOST = 2.4  # 4 if all were quadratic


@pytest.fixture(autouse=True)
def no_programs_known() -> Iterator[None]:
    lt.sync()
    forget()
    yield
    local.trace.start()
    forget()


class Counter:
    """The calls of Python functions in its block."""

    def __init__(self) -> None:
        self.calls = 0

    def _called(self, frame: FrameType, event: str, arg: Any) -> None:
        self.calls += event == "call"

    def __enter__(self) -> Self:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def planned(shape: tuple[int, ...], f: Chain, n: int) -> dict[str, int]:
    """The cost of planning n operations with their gradient, as far as code generation."""
    x = y = lt.tensor(RNG.random(shape), requires_grad=True)
    for _ in range(n):
        y = f(y)
    y.sum().backward()
    assert x.grad is not None
    trace, slots = local.trace, (y._slot, x.grad._slot)
    with Counter() as counter:
        low = lower(trace.pos.steps(), trace.ext.values, tuple(trace.scalars))
        program = pipeline.compile_graph([low.nodes[s] for s in slots], low.scope, options_for("cpu", True))
        assert program.division is not None and program.schedule is not None
        expressions = Expressions()
        for kernel in program.schedule.kernels:
            for e in (*kernel.extents, *[e for a in kernel.accesses for e in (a.offset, *a.strides)]):
                expressions.add(e)
        expressions.compile()
        assert guards_hold(low.scope.guards)(trace.ext.values)
        text = str(program.graph)
    stored = plan_format.Stored(program.schedule, program.division, True, low.scope.guards)
    terms = sum(len(d.terms) for key in low.scope.atoms for d in key[1:] if isinstance(d, Dim))
    values = Values(trace.ext.values, trace.scalars)
    assert all(values.of(d) == hint(d) for n in program.graph.nodes for d in n.shape)
    local.trace.start()
    return {
        "calls": counter.calls, "text": len(text), "bytes": len(plan_format.dumps(stored, low.scope)),
        "terms": terms + 64, "guards": len(low.scope.guards) + 64, "code": len(expressions.evaluate.__code__.co_code),
    }  # fmt: skip


def check(name: str, lengths: tuple[int, int, int]) -> None:
    """The third is twice the second, that twice the first: what the last half adds is twice what the first adds."""
    shape, f = CHAINS[name]
    planned(shape, f, 2)
    costs = [planned(shape, f, n) for n in lengths]
    for what in costs[0]:
        a, b, c = (cost[what] for cost in costs)
        assert c - b <= MOST * (b - a) + a + 1000, f"{what}: {a}, {b}, {c} for {lengths} operations"


# Their extents are polynomials that grow until they get a name. NOTE: the code of 128 tiles is three times that of 64.
GROWING = {"tile": (16, 32, 64), "concat": (32, 64, 128)}
QUICK = (
    "max_pool with ceil_mode", "avg_pool with ceil_mode", "inception", "pool", "diagonal", "tile", "pad",
)  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_planning_a_chain_is_linear(name: str) -> None:
    check(name, (4, 8, 16))


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
def test_planning_a_long_chain_is_linear(name: str) -> None:
    check(name, GROWING.get(name, (8, 16, 32)))


@pytest.mark.parametrize("name", ["max_pool with ceil_mode", "diagonal"])
def test_a_chain_of_64_is_computed_with_its_gradient(name: str) -> None:
    shape, f = CHAINS[name]
    a = RNG.random(shape)
    x = y = lt.tensor(a, requires_grad=True)
    want = lt.tensor(a, requires_grad=True)
    for _ in range(64):
        y = f(y)
    with lt.eager():
        z = f(f(want))  # both are what they were from the second on
        z.sum().backward()
    y.sum().backward()
    assert x.grad is not None and want.grad is not None
    np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy())
    np.testing.assert_allclose(x.grad.numpy(), want.grad.numpy())


def test_extents_that_nest_3000_deep() -> None:
    scope = Scope()
    s, t = scope.symbol(0, 1000), scope.symbol(1, 7)
    a: Any = s
    for i in range(3_000):
        a = minimum(a // 2 + a // 3 + t, maximum(a, t + i % 5))
    expressions = Expressions()
    number = expressions.add(a)
    expressions.compile()

    def value(x: int, y: int) -> int:
        for i in range(3_000):
            x = min(x // 2 + x // 3 + y, max(x, y + i % 5))
        return x

    for x, y in ((1000, 7), (5, 3), (64, 0)):
        assert expressions.evaluate([x, y], [])[number] == value(x, y) == Values([x, y]).of(a)
    assert a.hint == value(1000, 7)
    assert len(str(a)) < 2000
    scope.unify(scope.symbol(2, a.hint), a)
    assert scope.known_equal(scope.symbol(2, a.hint), a)
    assert guards_hold(scope.guards)((1000, 7, a.hint))
    assert not guards_hold(scope.guards)((1000, 7, a.hint + 1))


def test_a_product_of_many_sums_is_one_whatever_the_order() -> None:
    """(s0 + 1)·(s1 + 2)·... of 20 factors would be a million terms."""
    scope = Scope()
    factors: list[Any] = [scope.symbol(i, 1 + i % 3) + 1 + i % 2 for i in range(20)]
    whole, back = factors[0], factors[-1]
    for i in range(1, 20):
        whole, back = whole * factors[i], back * factors[-1 - i]
    halves = [np.prod(np.array(factors[i : i + 10], dtype=object)) for i in (0, 10)]
    assert whole == back == halves[0] * halves[1] == halves[1] * (halves[0] * 1)
    assert len(whole.terms) == 1
    values = [2 + i % 4 for i in range(20)]
    assert Values(values).of(whole) == np.prod([v + 1 + i % 2 for i, v in enumerate(values)], dtype=object)
    # What is left of it by a division is what the other factors give.
    assert scope.known_equal(halves[0] * halves[1] * scope.symbol(20, 5), whole * scope.symbol(20, 5))
    few = factors[0] * factors[1]
    assert scope.unify(whole, few * halves[1] * np.prod(np.array(factors[2:10], dtype=object))) == whole
    assert not scope.guards


def test_the_smaller_and_the_larger_of_extents() -> None:
    scope = Scope()
    s, t = scope.symbol(0, 5), scope.symbol(1, 3)
    assert minimum(s + 2, s) is s and maximum(s, s + 2) == s + 2 and minimum(4, 7) == 4
    assert minimum(s, t) == minimum(t, s) == minimum(minimum(s, t), t)
    both = minimum(s, t), maximum(s, 4)
    assert [hint(d) for d in both] == [3, 5]
    assert [Values([2, 9]).of(d) for d in both] == [2, 4]


def test_the_trim_of_a_padded_array_of_many_axes_needs_few_frames() -> None:
    """The sizes of a padded array are products of sums, one for each axis."""
    limit = sys.getrecursionlimit()
    frame, depth = sys._getframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    sys.setrecursionlimit(depth + 500)
    try:
        found = lt.trim_zeros(lt.pad(lt.ones((2,) * 9), (2, 1)), axis=None).numpy()
    finally:
        sys.setrecursionlimit(limit)
    np.testing.assert_array_equal(found, np.ones((2,) * 9))


@pytest.mark.parametrize("rank", [10, 20])
def test_a_padded_array_of_many_axes_is_computed_with_its_gradient(rank: int) -> None:
    x = lt.tensor(np.full((1,) * rank, 3.0), requires_grad=True)
    y = lt.pad(x, ((0, 0),) * 4 + ((0, 1),) * (rank - 4))
    total = (lt.transpose(y) * 1.5).sum() + (y.reshape(-1) ** 2).sum()
    total.backward()
    assert float(total) == 13.5 and x.grad is not None and float(x.grad.sum()) == 7.5
