"""Gradients when syncs fall between forward and backward: the same as without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn


def reference(build):
    """Gradients with everything recorded before anything runs."""
    return build(lambda: None)


def at(points):
    """A sync at some of the numbered points of a program."""
    counter = iter(range(100))

    def maybe():
        if next(counter) in points:
            lt.sync()

    return maybe


def mlp(sync):
    lt.random.seed(3)
    rng = np.random.default_rng(0)
    w1 = lt.tensor(rng.standard_normal((5, 8)).astype(np.float32), requires_grad=True)
    w2 = lt.tensor(rng.standard_normal((8, 3)).astype(np.float32), requires_grad=True)
    x = lt.asarray(rng.standard_normal((4, 5)).astype(np.float32))
    sync()
    h = lt.tanh(x @ w1)
    sync()
    y = lt.softmax(h @ w2, axis=-1)
    sync()
    loss = (y * y).sum() + h.mean()
    sync()
    loss.backward()
    sync()
    return w1.grad.numpy(), w2.grad.numpy()


@pytest.mark.parametrize("points", [{0}, {1}, {2}, {3}, {4}, {1, 2}, {0, 1, 2, 3, 4}])
def test_any_sync_gives_the_same_gradients(points):
    for got, want in zip(mlp(at(points)), reference(mlp), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8)


def test_reading_the_loss_before_backward_makes_two_plans_then_none():
    model = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 2))
    opt = lt.optim.SGD(model.parameters(), lr=0.1)
    plans = []
    for _ in range(6):
        loss = lt.cross_entropy(model(lt.ones((3, 6))), lt.zeros(3, dtype=lt.int64))
        total = 0
        with lt.expect(syncs=1):
            loss.item()
        total += lt.last_sync().plans
        opt.zero_grad()
        loss.backward()
        opt.step()
        lt.sync()
        plans.append(total + lt.last_sync().plans)
    assert sum(plans[3:]) == 0


def test_dropout_masks_are_the_same_after_a_sync():
    def run(sync):
        lt.random.seed(1)
        w = lt.tensor(np.ones(1000, np.float32), requires_grad=True)
        y = nn.functional.dropout(w, 0.5)
        sync()
        (y * 2).sum().backward()
        return y.detach().numpy(), w.grad.numpy()

    y, g = run(lt.sync)
    np.testing.assert_array_equal(y == 0, g == 0)
    for a, b in zip((y, g), run(lambda: None), strict=True):
        np.testing.assert_array_equal(a, b)


def test_second_backward_is_refused_after_a_sync_too():
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    loss = lt.exp(w).sum()
    lt.sync()
    loss.backward()
    lt.sync()
    with pytest.raises(lt.AutogradError, match="second time"):
        loss.backward()


def test_retain_graph_across_syncs():
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    loss = (w**3).sum()
    lt.sync()
    loss.backward(retain_graph=True)
    lt.sync()
    loss.backward()
    np.testing.assert_allclose(w.grad.numpy(), [6.0, 24.0])


def test_a_saved_value_overwritten_after_the_sync_is_refused():
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    loss = (w * w).sum()
    lt.sync()
    with lt.no_grad():
        w += 1
    with pytest.raises(lt.AutogradError, match="modified by an inplace operation"):
        loss.backward()


def test_an_overwritten_value_that_is_not_saved_does_no_harm():
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    y = w + 1
    lt.sync()
    y += 5
    y.sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), [1.0, 1.0])


def test_two_losses_of_one_segment():
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    h = lt.exp(w)
    a, b = h.sum(), (w * 3).sum()
    lt.sync()
    b.backward()
    a.backward()
    np.testing.assert_allclose(w.grad.numpy(), 3 + np.exp([1.0, 2.0]), rtol=1e-6)


def test_gradients_through_views_and_writes_before_a_sync():
    def run(sync):
        w = lt.tensor(np.arange(6, dtype=np.float32).reshape(2, 3), requires_grad=True)
        y = w * 2
        y[0] *= 3
        sync()
        z = y.T[1:]
        sync()
        (z * z).sum().backward()
        return w.grad.numpy()

    np.testing.assert_allclose(run(lt.sync), run(lambda: None), rtol=1e-6)


def test_an_unused_graph_left_alive_does_not_slow_the_next_steps():
    w = lt.tensor(np.ones(4, np.float32), requires_grad=True)
    kept = (w * 2).sum()  # a validation loss that somebody keeps
    plans = []
    for _ in range(6):
        loss = (w * w).sum()
        loss.backward()
        with lt.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        lt.sync()
        plans.append(lt.last_sync().plans)
    assert plans[3:] == [0, 0, 0]
    assert kept.item() == 8.0


@pytest.mark.parametrize("synced", [False, True])
def test_what_was_detached_becomes_a_leaf_of_its_own(synced: bool) -> None:
    y = lt.asarray([[1.0, 2.0], [3.0, 4.0]]) * 2
    if synced:
        lt.sync()
    x, v = y.detach().requires_grad_(), y[1].detach().requires_grad_()
    assert x.requires_grad and x.is_leaf and v.requires_grad and not y.requires_grad
    if synced:
        lt.sync()
    ((x * x).sum() + (v * 3).sum()).backward()
    assert x.grad is not None and x.grad.tolist() == [[4.0, 8.0], [12.0, 16.0]]
    assert v.grad is not None and v.grad.tolist() == [3.0, 3.0]
    with lt.no_grad():
        x -= 1
    assert x.detach().tolist() == [[1.0, 3.0], [5.0, 7.0]] and y.tolist() == [[2.0, 4.0], [6.0, 8.0]]


def test_functional_gradients_across_a_sync() -> None:
    """By `grad` and `vjp`: of a function that syncs, or pulled back after a sync."""
    x = lt.asarray([1.0, 2.0])

    def f(v):
        y = v * 2
        lt.sync()
        return (y * y * v).sum()

    g = lt.grad(f)(x)
    assert not g.requires_grad
    assert g.tolist() == [12.0, 48.0]
    y, pull = lt.vjp(lambda v: v * v, x)
    lt.sync()
    assert y.detach().tolist() == [1.0, 4.0]
    assert pull(lt.ones(2))[0].tolist() == [2.0, 4.0]
    assert pull(lt.asarray([3.0, 0.0]))[0].tolist() == [6.0, 0.0]
    w = lt.tensor([3.0, 4.0], requires_grad=True)

    def h(v):
        y = v * w
        lt.sync()
        return (y * y).sum()

    assert lt.grad(h)(x).detach().tolist() == [18.0, 64.0]
    assert lt.grad(lambda v: lt.grad(f)(v).sum())(x).tolist() == [24.0, 48.0]


def test_a_gradient_is_by_the_argument_as_it_was_given() -> None:
    def f(v):
        v *= 2
        return (v * v).sum()

    assert lt.grad(f)(lt.asarray([1.0, 2.0])).tolist() == [8.0, 16.0]


@pytest.mark.parametrize("synced", [False, True])
def test_two_kept_values_read_different_results_of_one_update(synced: bool) -> None:
    v, w = lt.tensor([0.5], requires_grad=True), lt.tensor([2.0], requires_grad=True)
    opt = lt.optim.SGD([v, w], lr=0.1)
    (v * w).sum().backward()
    opt.step()  # 0.3, 1.95
    opt.zero_grad()
    h = lt.tanh(v)
    loss = w * h
    if synced:
        lt.sync()
    (loss + w * (v * h)).sum().backward()
    t = np.tanh(0.3)
    np.testing.assert_allclose(v.grad.numpy(), [1.95 * ((1 - t * t) * 1.3 + t)], rtol=1e-6)
    np.testing.assert_allclose(w.grad.numpy(), [1.3 * t], rtol=1e-6)


@pytest.mark.parametrize("view", [lambda w: w.detach(), lambda w: w[:1]])
@pytest.mark.parametrize("synced", [False, True])
def test_a_pending_value_that_is_viewed_is_frozen_and_tracked_as_any(synced: bool, view: Callable[[Any], Any]) -> None:
    w = lt.ones(2) * 3
    kept = [view(w)]
    lt.sync() if synced else None
    w.requires_grad_()
    assert w.requires_grad
    (w * w).sum().backward()
    assert w.grad.tolist() == [6.0, 6.0]
    with lt.no_grad():
        w -= w.grad
    kept.append(view(w))
    lt.sync() if synced else None
    w.requires_grad_(False)
    assert not w.requires_grad and not (w * 2).requires_grad
    w.requires_grad_()
    (w * w).sum().backward()
    assert w.grad.tolist() == [0.0, 0.0] and [v.tolist()[0] for v in kept] == [-3.0, -3.0]


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("updated", [False, True])
def test_a_leaf_that_is_frozen_after_the_forward_pass_receives_nothing(synced: bool, updated: bool) -> None:
    v, w = lt.tensor([2.0], requires_grad=True), lt.tensor([3.0], requires_grad=True)
    for frozen in (False, True, False, True, True):
        v.grad = w.grad = None
        if updated:
            with lt.no_grad():
                v *= 1.0
        loss = (v * w).sum()
        alone = v.sum()
        lt.sync() if synced else None
        v.requires_grad_(not frozen)
        loss.backward()
        alone.backward()
        assert w.grad.tolist() == [2.0]
        assert v.grad is None if frozen else v.grad.tolist() == [4.0]
        v.requires_grad_()


@pytest.mark.parametrize("at_points", [(), (0,), (1,), (0, 1), (1, 2), (0, 1, 2)])
def test_a_retained_gradient_is_there_wherever_syncs_fall(at_points: tuple[int, ...]) -> None:
    sync = at(at_points)
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    for late in (False, True, False, True):
        w.grad = None
        h = w * 2.0
        if not late:
            h.retain_grad()
        squared = h * h
        other = (h * 3.0).sum()
        sync()
        if late:
            h.retain_grad()
        squared.retain_grad()
        loss = squared.sum() + other
        sync()
        loss = loss + lt.sum(h)
        sync()
        loss.backward(retain_graph=True)
        loss.backward()
        assert squared.grad.tolist() == [2.0, 2.0] and w.grad.tolist() == [32.0, 48.0]
        assert h.grad.tolist() == [16.0, 24.0]


@pytest.mark.parametrize("at_points", [(), (0,), (1,), (0, 1), (1, 2), (0, 1, 2)])
def test_a_hook_on_an_intermediate_value_is_called_wherever_syncs_fall(at_points: tuple[int, ...]) -> None:
    sync = at(at_points)
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    seen: list[lt.Tensor] = []
    for late in (False, True, False, True):
        w.grad = None
        seen.clear()
        h = w * 2.0
        if not late:
            hook = h.register_hook(lambda g: seen.append(g) or g * 10.0)
        squared = h * h
        sync()
        if late:
            hook = h.register_hook(lambda g: seen.append(g) or g * 10.0)
        other = squared.register_hook(lambda g: g + 1.0)
        loss = squared.sum() + h.sum()
        sync()
        loss = loss + lt.sum(h)
        sync()
        loss.backward(retain_graph=True)
        # d/dh: 2 h (1 + 1) + 2, ten times that, twice that for w
        assert [g.tolist() for g in seen] == [[10.0, 18.0]]
        assert w.grad.tolist() == [200.0, 360.0]
        hook.remove()
        other.remove()
        loss.backward()
        assert w.grad.tolist() == [212.0, 380.0]
        assert len(seen) == 1


@pytest.mark.parametrize("dropped", [0, 1])
def test_a_leaf_made_on_the_way_may_be_held_in_one_turn_and_dropped_in_another(dropped: int) -> None:
    x, start, v = lt.ones((2, 3)), lt.ones((3, 3)), lt.ones((3,)).requires_grad_()
    want = float(2 * 3 * 3 / np.cosh(6.0) ** 2)
    for k in range(4):
        w = (start * 2).detach().requires_grad_()
        h = lt.tanh(x @ w) * v
        if k % 2 == dropped:
            del w
        lt.sync()
        h.sum().backward()
        if k % 2 != dropped:
            np.testing.assert_allclose(float(w.grad.sum()), want, rtol=1e-2)
    np.testing.assert_allclose(v.grad.numpy(), np.full(3, 4 * 2 * np.tanh(6.0)), rtol=1e-5)


@pytest.mark.parametrize("twice", [False, True])
def test_a_leaf_that_a_gradient_updated_and_a_sync_between_forward_and_backward(twice: bool) -> None:
    rng = np.random.default_rng(0)
    x, w0, v0 = rng.normal(size=(4, 5)), rng.normal(size=(5, 5)) * 0.3, rng.normal(size=5)

    def trained(syncs: bool, read: bool) -> list[np.ndarray]:
        w, v = (lt.tensor(a, dtype=lt.float64).requires_grad_() for a in (w0, v0))
        for k in range(3):
            h = lt.tanh(lt.asarray(x) @ w) * v
            if read and k:
                loss.item()  # noqa: F821 - of the turn before
            loss = (h * h).mean()
            if twice:
                loss.backward(retain_graph=True)
            loss.backward()
            # What the backward before gave for v is not read by what made w.
            w = (w - 0.1 * w.grad).detach().requires_grad_()
            if syncs:
                lt.sync()
        return [w.detach().numpy(), v.grad.numpy()]

    want = trained(True, False)
    for got in (trained(False, True), trained(False, False), trained(False, True)):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10)


def test_a_leaf_made_from_one_that_was_written_twice() -> None:
    w = (lt.ones(2) + 1).requires_grad_()
    with lt.no_grad():
        w[...] = 3.0
        w[...] = 5.0
    v = w.detach().astype("float64").requires_grad_()
    with lt.no_grad():
        v[...] = 4.0
    y = (v * v).sum()
    assert y.item() == 32.0
    y.backward()
    assert v.grad is not None and v.grad.tolist() == [8.0, 8.0]


def test_gradients_of_gradients_of_a_function_that_syncs():
    """By `autograd.grad` with create_graph, by `lt.grad` within another, and in forward mode."""

    def f(x):
        y = x * x
        assert y.sum().item() > 0
        return (y * x).sum()

    w = lt.tensor([1.0, 2.0], requires_grad=True)
    (g,) = lt.autograd.grad(f(w), w, create_graph=True)
    g.sum().backward()
    assert w.grad.tolist() == [6.0, 12.0]
    x = lt.asarray([1.0, 2.0])
    assert lt.grad(f)(x).tolist() == [3.0, 12.0]
    assert lt.grad(lambda x: lt.grad(f)(x).sum())(x).tolist() == [6.0, 12.0]
    assert lt.hessian(f)(x).tolist() == [[6.0, 0.0], [0.0, 12.0]]
    assert lt.jvp(lt.grad(f), (x,), (x,))[1].tolist() == [6.0, 24.0]


@pytest.mark.parametrize("f", [lt.tanh, lt.exp, lt.sqrt, lt.softplus, lt.sigmoid], ids=lambda f: f.__name__)
def test_a_derivative_reads_its_stored_result_and_computes_nothing_again(f: Callable[[Any], Any]) -> None:
    rng = np.random.default_rng(1)
    x, w = (lt.asarray(rng.uniform(0.5, 1.0, size=(6, 6))) for _ in range(2))
    w.requires_grad_()
    y = f(x @ w)
    loss = (y * y).sum()
    expected = lt.grad(lambda v: (f(x @ v) ** 2).sum())(w.detach()).numpy()
    loss.item()
    loss.backward()
    assert w.grad is not None
    # One product, of the gradient by the weight: not that of the forward pass too.
    assert sum("matmul" in str(k) for k in lt.explain(w.grad).kernels) == 1
    np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-12)


def test_second_derivatives_through_a_stored_result() -> None:
    x = lt.tensor(np.linspace(0.1, 1.0, 5), requires_grad=True)
    y = lt.tanh(x * 2.0)
    lt.sync()
    (slope,) = lt.autograd.grad(y.sum(), x, create_graph=True)
    lt.sync()
    (curvature,) = lt.autograd.grad(slope.sum(), x)
    t = np.tanh(2.0 * x.detach().numpy())
    np.testing.assert_allclose(slope.detach().numpy(), 2.0 * (1 - t * t), rtol=1e-13)
    np.testing.assert_allclose(curvature.numpy(), -8.0 * t * (1 - t * t), rtol=1e-13)


REDUCED = {"mean": lt.mean, "max": lt.max, "logsumexp": lt.logsumexp}
ONE_LONG = {
    "a column by a row": lambda w, row, column: w @ row,
    "a column by a row of its own": lambda w, row, column: column @ row,
    "a row by a matrix": lambda w, row, column: row @ lt.ones((5, 4), dtype=row.dtype),
    "a matrix by a column": lambda w, row, column: lt.ones((4, 5), dtype=row.dtype) @ row.T,
    "a row by a column": lambda w, row, column: row @ column,
    "stacked": lambda w, row, column: lt.broadcast_to(column[None], (3, 5, 1)) @ row[None],
    "joined": lambda w, row, column: lt.concat([row, column.T]) * row,
    "linear": lambda w, row, column: nn.functional.linear(column, w),
}


@pytest.mark.parametrize("product", ONE_LONG)
@pytest.mark.parametrize("reduced", REDUCED)
def test_what_was_reduced_to_one_element_is_read_back_as_such(reduced, product):
    """An axis that is 1 by its operation is a symbol of the copy that is kept; rewrites of products ask which it is."""

    def build(sync):
        rng = np.random.default_rng(0)
        w, x = (lt.tensor(rng.standard_normal(s), requires_grad=True) for s in ((3, 1), (5, 5)))
        row, column = (REDUCED[reduced](x, axis=axis, keepdims=True) for axis in (0, 1))
        sync()
        y = ONE_LONG[product](w, row, column)
        loss = (y * y).sum()
        sync()
        loss.backward()
        return [t.grad.numpy() for t in (w, x) if t.grad is not None]

    want = reference(build)
    for points in ({0}, {1}, {0, 1}):
        for got, expected in zip(build(at(points)), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12)
