"""Axes that a reduction merges are merged in what its operand is computed from: what fuses, and that no bit changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.ir import dtypes, graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.graph_interpreter import interpret
from lazyt.ir.passes.merge_axes import SHARED, merge_axes
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
    "held by somebody": (2, lambda x, y: (z := x * y, z.sum())),
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


def graph(shared: int) -> g.Graph:
    """A sum over merged axes of a chain of operations, of which the last but one is read by another output, too."""
    b = Builder()
    x = b.input(0, (4, 3, 5), F4)
    chain = x
    for _ in range(shared):
        chain = b.neg(b.mul(chain, x)) if shared > 1 else b.neg(chain)
    total = b.reduce("sum", b.reshape(b.mul(chain, x), (60,)), (0,))
    outs = [total, b.permute(b.neg(chain), (2, 1, 0))]
    return g.Graph(g.reachable(outs), outs)


@pytest.mark.parametrize("shared", [1, SHARED])
def test_what_others_read_is_computed_again_if_that_is_cheap(shared: int) -> None:
    before = graph(shared)
    after = merge_axes(before, None)
    assert (after is not before) == (shared == 1)
    verify(after)
    x = np.random.default_rng(0).standard_normal((4, 3, 5)).astype("f")
    found, want = (interpret(h, h.outputs, [x]) for h in (after, before))
    for p, q in zip(found, want, strict=True):
        np.testing.assert_array_equal(p, q)


@pytest.mark.parametrize("shared", [False, True])
def test_a_long_chain_is_stored(shared: bool) -> None:
    b = Builder()
    x = b.input(0, (4, 3, 5), F4)
    chain = x
    for _ in range(5000):
        chain = b.add(b.neg(chain), x)
    outs = [b.reduce("sum", b.reshape(chain, (60,)), (0,)), *[b.neg(chain)] * shared]
    before = g.Graph(g.reachable(outs), outs)
    assert merge_axes(before, None) is before


def test_others_stay_as_they_are() -> None:
    b = Builder()
    x, y = b.input(0, (4, 3, 5), F4), b.input(1, (3, 4, 5), F4)
    turned = b.mul(b.permute(y, (1, 0, 2)), x)
    half = b.mul(b.expand(b.input(2, (4, 1, 5), F4), (4, 3, 5)), x)
    for value in (turned, half, x):
        outs = [b.reduce("sum", b.reshape(value, (4, 15)), (1,))]
        before = g.Graph(g.reachable(outs), outs)
        assert merge_axes(before, None) is before
