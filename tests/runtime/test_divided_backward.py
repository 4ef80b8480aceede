"""A backward over many iterations is divided with them: gradients as of the whole, one plan for each kind of part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import optim
from lazyt.config import general
from lazyt.errors import IndexOutOfRange
from lazyt.runtime import division
from lazyt.tracing.trace import local

Arrays = list[Any]


def rows(*shape: int, seed: int = 0) -> lt.Tensor:
    return lt.asarray(np.random.default_rng(seed).standard_normal(shape))


@pytest.fixture(params=[16, pytest.param(64, marks=pytest.mark.slow)], ids=["one iteration a part", "several"])
def opened(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backwards are divided with what they differentiate, however short that is."""
    sizes = {"MIN_WEIGHT": 50, "MIN_TRAINING_WEIGHT": 50, "MIN_OPENED_WEIGHT": 100, "OPENED_PART_WEIGHT": request.param}
    for name, value in sizes.items():
        monkeypatch.setattr(division, name, value)
    lt.sync()
    local.trace.reset_trie()


class Unrolled:
    """A recurrence of 50 iterations and a loss of all its states: the leaves and what a program differentiates."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.w, self.u, self.start = (lt.tensor(rng.normal(size=s) * 0.3) for s in ((6, 6), (6, 6), (3, 6)))
        self.xs = lt.tensor(rng.normal(size=(50, 3, 6)))
        self.leaves = [self.w, self.u, self.start, self.xs]
        for x in self.leaves:
            x.requires_grad_()
        h, self.states = self.start, []
        for t in range(50):
            h = lt.tanh(h @ self.w + self.xs[t] @ self.u)
            if t % 10 == 9:
                h = h * lt.sigmoid(self.u.sum())
            self.states.append(h)
        self.loss = lt.square(lt.stack(self.states)).mean()

    def grads(self) -> list[lt.Tensor]:
        return [x.grad for x in self.leaves if x.grad is not None]


def plain(p: Unrolled) -> Arrays:
    p.loss.backward()
    return [p.loss.detach(), *p.grads()]


def some_leaves(p: Unrolled) -> Arrays:
    p.loss.backward(inputs=[p.w, p.start])
    return p.grads()


def given_cotangent(p: Unrolled) -> Arrays:
    p.states[-1].backward(lt.ones((3, 6), dtype=lt.float64) * 0.5)
    return [p.states[20].detach(), *p.grads()]


def kept_in_between(p: Unrolled) -> Arrays:
    p.states[25].retain_grad()
    p.loss.backward()
    return [p.states[25].grad, *p.grads()]


def by_intermediate_values(p: Unrolled) -> Arrays:
    return list(lt.autograd.grad(p.loss, [p.states[20], p.w, p.states[3]]))


def of_several_values(p: Unrolled) -> Arrays:
    lt.autograd.backward([p.loss, p.states[30].sum()])
    return p.grads()


def twice(p: Unrolled) -> Arrays:
    p.loss.backward(retain_graph=True)
    (p.loss * 3.0).backward()
    return p.grads()


def after_a_sync(p: Unrolled) -> Arrays:
    p.loss.item()
    p.loss.backward()
    return p.grads()


def through_views_and_writes(p: Unrolled) -> Arrays:
    total = lt.zeros((3, 6), dtype=lt.float64)
    for i, h in enumerate(p.states):
        total[i % 3] = h[0] * 0.5 + total[(i + 1) % 3]
    total.sum().backward()
    return [total.detach(), *p.grads()]


def another_loss_first(p: Unrolled) -> Arrays:
    other = lt.sin(p.u).sum() + lt.square(p.start.detach() @ p.w).sum()
    p.loss.backward()
    other.backward()
    return p.grads()


def begun_in_the_last_iteration(p: Unrolled) -> Arrays:
    v, h = (1.0 + rows(6, seed=5) * 0.02).requires_grad_(), p.start
    e = v
    for _ in range(50):
        e = v * h.detach()
        h = lt.tanh(h @ p.w) + e.detach()
    e.sum().backward()
    h.sum().backward()
    return [v.grad, *p.grads()]


def two_recurrences(p: Unrolled) -> Arrays:
    v, k = rows(6, 6, seed=5).requires_grad_(), p.start.detach()
    for h in p.states:
        k = lt.tanh(k @ v + h.detach())
    own = lt.square(k).sum()
    p.loss.backward()
    own.backward()
    return [v.grad, *p.grads()]


def in_one_loop(p: Unrolled) -> Arrays:
    v, k, h = rows(6, 6, seed=5).requires_grad_(), p.start.detach(), p.start
    for t in range(50):
        h = lt.tanh(h @ p.w + p.xs[t])
        k = lt.tanh(k @ v + h.detach())
    first, second = h.sum(), lt.square(k).sum()
    first.backward()
    second.backward()
    return [v.grad, *p.grads()]


def through_one_trunk(p: Unrolled) -> Arrays:
    policy, value = lt.sin(p.states[-1]).sum(), lt.square(p.states[-20] @ p.u).sum()
    policy.backward(retain_graph=True)
    (found,) = lt.autograd.grad(value, p.start)
    return [found, *p.grads()]


def then_an_update(p: Unrolled) -> Arrays:
    opt = optim.Adam(p.leaves, lr=0.01)
    p.loss.backward()
    opt.step()
    opt.zero_grad()
    h = p.start
    for t in range(50):
        h = lt.tanh(h @ p.w + p.xs[t] @ p.u)
    h.sum().backward()
    opt.step()
    return [x.detach() for x in p.leaves]


OPENED: dict[str, Callable[[Unrolled], Arrays]] = {
    f.__name__: f
    for f in (
        plain, some_leaves, given_cotangent, kept_in_between, by_intermediate_values, of_several_values, twice,
        after_a_sync, through_views_and_writes, another_loss_first, begun_in_the_last_iteration,
        two_recurrences, in_one_loop, through_one_trunk, then_an_update,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", OPENED)
@pytest.mark.usefixtures("opened")
def test_a_backward_is_divided_with_what_it_differentiates(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def program() -> Arrays:
        return OPENED[name](Unrolled())

    with monkeypatch.context() as m:
        m.setitem(general, "partition", False)
        expected = [x.numpy() for x in program()]
        lt.sync()
    local.trace.reset_trie()
    for _ in range(3):
        found = program()
        lt.sync()
        report = lt.last_sync()
        assert report.parts > 10
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-11, atol=1e-14)
    assert report.plan_hit


def inside_of_a_transform(p: Unrolled) -> Arrays:
    def f(x: lt.Tensor) -> lt.Tensor:
        y = lt.sin(x)
        p.loss.backward()
        return lt.square(y).sum()

    return [lt.grad(f)(rows(3)), *p.grads()]


def within_a_budget(p: Unrolled) -> Arrays:
    with lt.memory.budget(1 << 30):
        p.loss.backward()
    return p.grads()


def of_a_leaf_too(p: Unrolled) -> Arrays:
    v = rows(3).requires_grad_()
    lt.autograd.backward([p.loss, v], [None, lt.ones(3, dtype=lt.float64)])
    assert v.grad is not None
    return [v.grad, *p.grads()]


def many_times(p: Unrolled) -> Arrays:
    for i in range(5):
        (p.loss * (i * 0.1)).backward(retain_graph=True)
    return p.grads()


# What each gives beside the gradients of the loss.
WHOLE = {
    inside_of_a_transform: lambda: [np.sin(2 * rows(3).numpy())],
    within_a_budget: list,
    of_a_leaf_too: lambda: [np.ones(3)],
    many_times: list,
}


@pytest.mark.parametrize("f", WHOLE)
@pytest.mark.usefixtures("opened")
def test_what_stays_one_program(f: Callable[[Unrolled], Arrays]) -> None:
    expected = [*WHOLE[f](), *(x.numpy() for x in plain(Unrolled())[1:])]
    found = f(Unrolled())
    lt.sync()
    assert lt.last_sync().parts == 0
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-11, atol=1e-14)


@pytest.mark.usefixtures("opened")
def test_a_longer_recurrence_makes_no_more_plans_for_its_backward() -> None:
    def train(turns: int) -> int:
        lt.sync()
        local.trace.reset_trie()
        w, h = rows(6, 6).requires_grad_(), rows(3, 6, seed=1)
        for _ in range(turns):
            h = lt.tanh(h @ w)
        h.sum().backward()
        lt.sync()
        assert w.grad is not None
        return lt.last_sync().parts

    few = train(80)
    with lt.expect() as seen:
        many = train(320)
    assert many > 3 * few
    assert seen.reports[-1].plans <= 2  # where another number of iterations is left over


@pytest.mark.usefixtures("opened")
def test_what_would_pull_back_is_explained() -> None:
    p = Unrolled()
    p.loss.backward()
    text = str(lt.explain())
    assert "gradient of tanh" in text
    assert "parts of a long trace, by" in text
    lt.sync()
    assert f"{lt.last_sync().parts} parts of a long trace" in text


@pytest.mark.usefixtures("opened")
def test_a_memory_plan_is_of_the_whole_and_the_sync_runs_that() -> None:
    p = Unrolled()
    p.loss.backward()
    found = lt.memory.plan()
    assert "tanh" in {s.operation for s in found.saved}
    lt.memory.reset_peak()
    lt.sync()
    assert lt.last_sync().parts == 0
    assert lt.memory.peak() == found.peak
    expected = plain(Unrolled())[1]
    assert p.w.grad is not None
    np.testing.assert_allclose(p.w.grad.numpy(), expected.numpy(), rtol=1e-11)


@pytest.mark.usefixtures("opened")
def test_a_backward_that_fails_in_one_part_leaves_everything_pending() -> None:
    table, wrong = rows(5, 6), lt.asarray([0, 1, 9]) + 0
    w, h = rows(6, 6).requires_grad_(), rows(3, 6)
    for t in range(60):
        h = lt.tanh(h @ w)
        if t == 31:
            h = h + lt.take(table, wrong, axis=0)  # the line that fails
    h.sum().backward()
    assert w.grad is not None
    with pytest.raises(IndexOutOfRange, match=r"index 9 is out of bounds.*test_divided_backward.py:\d+"):
        w.grad.numpy()
    assert w.grad.is_pending


@pytest.mark.usefixtures("opened")
def test_extents_of_a_divided_backward_may_change() -> None:
    w = (rows(6, 6) * 0.3).requires_grad_()
    for n in (3, 4, 1, 7, 3):
        h = rows(n, 6, seed=n)
        for _ in range(60):
            h = lt.tanh(h @ w)
        (found,) = lt.autograd.grad(h.sum(), w)
        expected = lt.grad(lambda v, h: _unrolled(v, h, 60))(w.detach(), rows(n, 6, seed=n))
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-11)


def _unrolled(w: lt.Tensor, h: lt.Tensor, turns: int) -> lt.Tensor:
    for _ in range(turns):
        h = lt.tanh(h @ w)
    return h.sum()


@pytest.mark.usefixtures("opened")
def test_a_copy_in_one_part_has_its_own_cotangent(monkeypatch: pytest.MonkeyPatch) -> None:
    def gradients() -> Arrays:
        w, h = rows(4) * 0.3, rows(4, seed=1)
        copies = []
        w.requires_grad_()
        for _ in range(50):
            copies.append(h.clone())
            h = lt.tanh(h * w + copies[-1] * 0.1)
        return [x.tolist() for x in lt.autograd.grad(h.sum(), [w, copies[3], copies[25]])]

    found = gradients()
    monkeypatch.setitem(general, "partition", False)
    np.testing.assert_allclose(found, gradients(), rtol=1e-12)
