"""Axes that a reduction merges are merged in what its operand is computed from: what fuses, and that no bit changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.ir import dtypes, graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.graph_interpreter import interpret
from lazyt.ir.passes.merge_axes import merge_axes
from lazyt.ir.passes.verify import verify
from lazyt.runtime import plan_cache
from tests.support.plans import forget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

F4 = dtypes.float32


@pytest.fixture(autouse=True)
def _fused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    forget()
    for name, value in {"tiers": False, "verify": True}.items():
        monkeypatch.setitem(plan_cache.settings, name, value)
    yield
    forget()


def tensor(*shape: int, seed: int = 0) -> lt.Tensor:
    out = lt.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))
    lt.sync()
    return out


def centred(x: lt.Tensor, axes: tuple[int, ...]) -> lt.Tensor:
    return x - x.mean(axes, keepdims=True)


PROGRAMS: dict[str, tuple[int, Callable[..., Any]]] = {
    "squares": (1, lambda x, y: (x * x).sum()),
    "mean squared error": (1, lambda x, y: lt.square(x - y).mean()),
    "scalars": (1, lambda x, y: (x * 2 + 1).max()),
    "some axes": (1, lambda x, y: (x * y).sum((2, 3))),
    "axes around one": (1, lambda x, y: (x * y).sum((0, 2, 3))),
    "costly": (1, lambda x, y: lt.exp(x).sum()),
    "an operand that is spread": (2, lambda x, y: (centred(x, (0, 2, 3)) * y).sum((0, 2, 3))),
    "variance": (1, lambda x, y: x.var((0, 2, 3))),
    "casts": (1, lambda x, y: x.astype("float64").sum()),
    "comparisons": (1, lambda x, y: (x > y).sum()),
    "held by somebody": (1, lambda x, y: (z := x * y, z.sum())),
    "a slice": (2, lambda x, y: (x[:, ::2] * 2).sum()),
}


@pytest.mark.parametrize("shape", [(16, 6, 8, 8), (3, 2, 20, 10)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_and_bits(name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    most, program = PROGRAMS[name]
    x, y = tensor(*shape), tensor(*shape, seed=1)
    found = []
    for on in (True, False):
        monkeypatch.setitem(plan_cache.settings, "merge", on)
        forget()
        out = program(x, y)
        lt.sync()
        if on:
            assert len(lt.last_sync().plan_kernels) <= most
        found.append([z.numpy() for z in (out if isinstance(out, tuple) else (out,))])
    for merged, apart in zip(*found, strict=True):
        np.testing.assert_array_equal(merged, apart)


def test_gradients_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for on in (True, False):
        monkeypatch.setitem(plan_cache.settings, "merge", on)
        forget()
        x, w = tensor(8, 3, 16, 16), tensor(4, 3, 3, 3, seed=1).requires_grad_()
        norm = lt.nn.BatchNorm2d(4)
        loss = lt.square(lt.relu(norm(lt.conv2d(x, w, padding=1))) - 1).mean()
        loss.backward()
        lt.sync()
        found.append([loss.detach().numpy(), w.grad.numpy(), norm.weight.grad.numpy(), norm.running_var.numpy()])
    for merged, apart in zip(*found, strict=True):
        np.testing.assert_array_equal(merged, apart)


def test_new_sizes_make_no_plan() -> None:
    for n in (8, 9, 11):
        assert (tensor(n, 5, 8, 8) * 2).sum().item() is not None
    with lt.expect(plans=0, compiles=0):
        for n in (12, 20, 7):
            x = np.random.default_rng(0).standard_normal((n, 5, 8, 8), np.float32)
            assert np.isclose((lt.asarray(x) * 2).sum().item(), (x * 2).sum(dtype="f8"), rtol=1e-4, atol=1e-3)


def interpreted_alike(before: g.Graph, after: g.Graph, *shapes: tuple[int, ...]) -> None:
    verify(after)
    rng = np.random.default_rng(0)
    xs = [rng.standard_normal(shape).astype("f") for shape in shapes]
    found, want = (interpret(h, h.outputs, xs) for h in (after, before))
    for p, q in zip(found, want, strict=True):
        np.testing.assert_array_equal(p, q)


def reduced_ones(h: g.Graph) -> list[g.Node]:
    return [n.operands[0] for n in h.nodes if n.op == "sum"]


def test_what_others_read_too_is_computed_once() -> None:
    b = Builder()
    x = b.input(0, (4, 3, 5), F4)
    chain = b.neg(b.mul(b.neg(b.mul(x, x)), x))
    total = b.reduce("sum", b.reshape(b.mul(chain, x), (60,)), (0,))
    outs = [total, b.permute(b.neg(chain), (2, 1, 0)), b.exp(chain)]
    before = g.Graph(g.reachable(outs), outs)
    after = merge_axes(before, None)
    assert all(n.shape == (60,) for n in after.nodes if n.op in ("mul", "neg", "exp"))
    assert sum(n.op == "mul" for n in after.nodes) == sum(n.op == "mul" for n in before.nodes)
    interpreted_alike(before, after, (4, 3, 5))


@pytest.mark.parametrize("shared", [False, True])
def test_a_long_chain(shared: bool) -> None:
    b = Builder()
    x = b.input(0, (4, 3, 5), F4)
    chain = x
    for _ in range(5000):
        chain = b.add(b.neg(chain), x)
    outs = [b.reduce("sum", b.reshape(chain, (60,)), (0,)), *[b.neg(chain)] * shared]
    before = g.Graph(g.reachable(outs), outs)
    after = merge_axes(before, None)
    assert all(n.shape == (60,) for n in after.nodes if n.op in ("add", "neg"))
    interpreted_alike(before, after, (4, 3, 5))


def test_gradients_of_merged_axes_and_of_one_value() -> None:
    """A cotangent that a reduction spread is read with the axes that it had there, one value with those wanted."""
    b = Builder()
    x, y, z = b.input(0, (4, 3, 5), F4), b.input(1, (4, 15), F4), b.input(2, (1, 1), F4)
    spread = b.reshape(b.exp(y), (4, 3, 5))
    one = b.reshape(b.expand(z, (12, 5)), (4, 3, 5))
    outs = [b.reduce("sum", b.reshape(b.mul(b.mul(x, one), spread), (4, 15)), (1,))]
    before = g.Graph(g.reachable(outs), outs)
    after = merge_axes(before, None)
    assert all(n.shape == (4, 15) for n in after.nodes if n.op == "mul")
    interpreted_alike(before, after, (4, 3, 5), (4, 15), (1, 1))


def test_two_ways_of_merging_one_value() -> None:
    """The first reduction has its own; the other reads the value as it is stored."""
    b = Builder()
    x = b.input(0, (4, 3, 5), F4)
    value = b.mul(x, x)
    outs = [b.reduce("sum", b.reshape(value, shape), (1,)) for shape in ((4, 15), (12, 5))]
    before = g.Graph(g.reachable(outs), outs)
    after = merge_axes(before, None)
    assert [n.op for n in reduced_ones(after)] == ["mul", "reshape"]
    interpreted_alike(before, after, (4, 3, 5))


def test_others_stay_as_they_are() -> None:
    b = Builder()
    x, y = b.input(0, (4, 3, 5), F4), b.input(1, (3, 4, 5), F4)
    turned = b.mul(b.permute(y, (1, 0, 2)), x)
    half = b.mul(b.expand(b.input(2, (4, 1, 5), F4), (4, 3, 5)), x)
    for value in (turned, half, b.neg(turned), x):
        outs = [b.reduce("sum", b.reshape(value, (4, 15)), (1,))]
        before = g.Graph(g.reachable(outs), outs)
        assert merge_axes(before, None) is before
