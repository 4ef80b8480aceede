"""Kernels of equal groups are made once, and are those that each group would have had by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn, optim
from lazyt.ir.passes import equal_groups
from lazyt.ir.passes.equal_groups import Kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.ir.passes.fusion_result import KernelCall


def full(*shape: int) -> lt.Tensor:
    return lt.asarray((np.arange(int(np.prod(shape))) % 7 * 0.1 - 0.3).astype(np.float32).reshape(shape))


def weight(*shape: int) -> lt.Tensor:
    return full(*shape).requires_grad_()


def recurrent() -> Any:
    model, x = nn.LSTM(3, 4, num_layers=2), full(8, 2, 3)
    (model(x)[0][-1] ** 2).sum().backward()
    return [p.grad for p in model.parameters()]


def layers() -> Any:
    """Of other symbols, and of one size."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Tanh()) for _ in range(4)))
    optimizer = optim.Adam(model.parameters())
    (model(full(5, 6)) ** 2).mean().backward()
    optimizer.step()
    return list(model.parameters())


def attention() -> Any:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, dropout=0.1, batch_first=True), 2)
    (model(full(2, 5, 8)) ** 2).mean().backward()
    return [p.grad for p in model.parameters()]


def stencils() -> Any:
    """Slices at other places, two of which fall together in some turns."""
    xs = [full(4, 20) for _ in range(6)]
    return [(x[1, i : i + 6] * x[i % 4, i : i + 6] + lt.exp(x[2, 2 * i : 2 * i + 6])).sum() for i, x in enumerate(xs)]


def moved() -> Any:
    """By numbers that are not known when the plan is made."""
    xs = [full(9, 4) for _ in range(6)]
    return [(lt.tanh(x[i]) + lt.tanh(x[8 - i]) + lt.pad(x[i, 1:3], 1)).sum() for i, x in enumerate(xs)]


def narrow_and_wide() -> Any:
    """Axes of other sizes, complex values, guards and gathered rows."""
    at = lt.asarray([2, 0, 1])
    out = []
    for n in (2, 3, 4, 6):
        z, x = full(4, 6).astype("complex64"), full(4, 6)
        out += [lt.real(z * float(n)) + lt.take(x, at, axis=0)[:1], lt.softmax(x[:, :n], axis=-1).sum(axis=0)]
        out += [lt.concat([z[1:], z[:1]]), lt.stack([x[0] * 2.0, lt.flip(x[1]), x[2] + x[3]])]
    return out


def compressed(n: int = 4) -> Any:
    """Arrays that are rounded at random, by numbers of their own: those of each block from 0 on."""
    ws = [weight(64, 64) for _ in range(n)]
    x = full(32, 64)
    with lt.memory.compress(bits=2):
        for w in ws[2:]:
            x = lt.tanh(x @ w)
    for w in ws[:2]:
        with lt.memory.compress(bits=2):
            x = lt.tanh(x @ w)
    (x * x).sum().backward()
    return [w.grad for w in ws]


PROGRAMS = [recurrent, layers, attention, stencils, moved, narrow_and_wide, compressed]


def exact(kernels: Kernels, *args: Any) -> KernelCall:
    found: KernelCall = kernels._exact(*args)
    return found


def parts_of(c: KernelCall) -> dict[str, Any]:
    accesses = [(a.buffer, a.offset, a.strides, a.itemsize) for a in c.accesses]
    return {
        "kernel": c.kernel.text, "extents": c.extents, "accesses": accesses, "affines": c.affines,
        "scalars": c.scalars, "checks": c.checks, "nodes": c.nodes, "product": c.product, "strategies": c.strategies,
    }  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_equal_groups_have_the_kernels_that_they_would_have_alone(
    program: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, known = 0, 0
    of = Kernels.of

    def compared(self: Kernels, group: Any, stored: Any, products: Any = None) -> KernelCall:
        nonlocal seen, known
        before = len(self._known)
        found = of(self, group, stored, products)
        seen, known = seen + 1, known + (len(self._known) == before)
        assert parts_of(found) == parts_of(exact(self, group, stored, products))
        assert found.group is group
        return found

    monkeypatch.setattr(Kernels, "of", compared)
    found = program()
    plan = lt.explain()
    assert plan.kernels
    assert found is not None
    assert seen > known > 0


def test_layers_more_that_are_packed_are_no_kernels_more() -> None:
    """Each draws other random numbers, from a place that is an argument of the kernel."""
    counts = []
    for n in (6, 9):
        found = compressed(n)
        counts.append(len({c.source() for c in lt.explain().kernels}))
        assert found
    assert counts[0] == counts[1]


def test_turns_and_layers_take_the_kernels_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    kernelize = equal_groups.kernelize

    def counted(group: Any, *args: Any) -> KernelCall:
        made.append(group.title)
        return kernelize(group, *args)

    monkeypatch.setattr(equal_groups, "kernelize", counted)
    counts = []
    for n in (8, 24):
        model, x = nn.LSTM(3, 4), full(n, 2, 3)
        lt.sync()
        made.clear()
        (model(x)[0][-1] ** 2).sum().backward()
        assert lt.explain().kernels
        counts.append(len(made))
    assert counts[1] <= counts[0] + 2, "16 turns more take no kernels more"
