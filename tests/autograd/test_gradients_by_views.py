"""Gradients by views and by other values that are no leaves: their own, and of what lies behind them alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyt as lt

VALUES = np.arange(1, 7, dtype=np.float32).reshape(3, 2)

VIEWS: list[Callable[[Any], Any]] = [
    lambda x: x[1], lambda x: x[1:], lambda x: x.mT, lambda x: x.reshape(6), lambda x: x[None], lambda x: x[:, 0],
    lambda x: x[...], lambda x: x[::-1], lambda x: lt.broadcast_to(x, (2, 3, 2)), lambda x: lt.split(x, 3)[0],
    lambda x: x[1:][0],
]  # fmt: skip


def leaf() -> Any:
    return lt.tensor(VALUES, requires_grad=True)


@pytest.mark.parametrize("of_a_leaf", [False, True])
@pytest.mark.parametrize("number", range(len(VIEWS)))
def test_the_gradient_by_a_view_is_its_own(number: int, of_a_leaf: bool) -> None:
    w = leaf()
    v = VIEWS[number](w if of_a_leaf else w * 1)
    (g,) = lt.autograd.grad((v * v).sum(), v, retain_graph=True)
    np.testing.assert_array_equal(g.numpy(), 2 * v.detach().numpy())
    (other,) = lt.autograd.grad((v * v).sum(), w)
    assert other.shape == w.shape


def test_a_turned_view_of_a_square() -> None:
    """The gradient by the leaf has the same shape, so nothing would tell it from that by the view."""
    w, a = lt.tensor(np.eye(2, dtype=np.float32), requires_grad=True), np.arange(4, dtype=np.float32).reshape(2, 2)
    v = w.mT
    np.testing.assert_array_equal(lt.autograd.grad((v * a).sum(), v)[0].numpy(), a)


def test_several_views_of_one_leaf() -> None:
    w = lt.tensor(np.array([1, 2, 3, 4], np.float32), requires_grad=True)
    v, u = w[:2], w[2:]
    g, h = lt.autograd.grad((v * v * u).sum(), [v, u], retain_graph=True)
    np.testing.assert_array_equal(g.numpy(), [6, 16])
    np.testing.assert_array_equal(h.numpy(), [1, 4])
    assert lt.autograd.grad((u * u).sum(), v, allow_unused=True) == (None,)
    with pytest.raises(lt.AutogradError, match="not have been used in the graph"):
        lt.autograd.grad((u * u).sum(), v)


def test_columns_of_points_as_a_physics_loss_has_them() -> None:
    """u = sin(x t): the residual u_t - u_xx, by columns of one tensor of points."""
    points = lt.tensor(VALUES / 4, requires_grad=True)
    x, t = points[:, 0:1], points[:, 1:2]
    u = lt.sin(lt.concat([x, t], axis=1).prod(axis=1, keepdims=True))
    ux, ut = lt.autograd.grad(u.sum(), [x, t], create_graph=True)
    (uxx,) = lt.autograd.grad(ux.sum(), x, create_graph=True)
    a, b = VALUES[:, 0:1] / 4, VALUES[:, 1:2] / 4
    np.testing.assert_allclose(ut.detach().numpy(), a * np.cos(a * b), rtol=1e-6)
    np.testing.assert_allclose(uxx.detach().numpy(), -b * b * np.sin(a * b), rtol=1e-6)
    (ut - uxx).sum().backward()
    assert points.grad.shape == points.shape


def test_a_view_across_a_sync() -> None:
    w = leaf()
    v = w[1:]
    lt.sync()
    loss = (v * v).sum()
    np.testing.assert_array_equal(lt.autograd.grad(loss, v, retain_graph=True)[0].numpy(), 2 * VALUES[1:])
    lt.sync()
    with pytest.raises(lt.AutogradError, match="made before a sync is another value"):
        lt.autograd.grad(loss, v)


@pytest.mark.parametrize("between", ["nothing", "a sync", "a write"])
def test_a_view_keeps_its_gradient(between: str) -> None:
    w = leaf()
    v = w[1:]
    v.retain_grad()
    if between == "a sync":
        lt.sync()
    if between == "a write":
        with lt.no_grad():
            w -= 0.5
    for n in (1, 2):
        (v * v).sum().backward()
        want = n * 2 * (VALUES[1:] - (0.5 if between == "a write" else 0))
        np.testing.assert_array_equal(v.grad.numpy(), want)
        np.testing.assert_array_equal(w.grad.numpy()[1:], want)
        lt.sync()


def test_a_backward_for_what_is_no_leaf() -> None:
    w = leaf()
    v = w[1:]
    with pytest.raises(lt.AutogradError, match="no leaf and does not keep its gradient"):
        (v * v).sum().backward(inputs=[v])
    assert w.grad is None
    h = w * 1
    h.retain_grad()
    (h * h).sum().backward(inputs=[h])
    np.testing.assert_array_equal(h.grad.numpy(), 2 * VALUES)
    assert w.grad is None


@pytest.mark.parametrize("create", [False, True])
def test_what_lies_before_a_value_is_not_asked_for(create: bool) -> None:
    """Its graph may be freed, and its leaf written: the gradient by the value needs neither."""
    w = leaf()
    h = lt.exp(w * 0.1)
    first, second = h.sum(), (h * h).sum()
    first.backward()
    (g,) = lt.autograd.grad(second, h, create_graph=create)
    np.testing.assert_allclose(g.detach().numpy(), 2 * np.exp(VALUES * 0.1), rtol=1e-6)
    h = lt.sin(w)
    with lt.no_grad():
        w += 1.0
    np.testing.assert_allclose(
        lt.autograd.grad((h * h).sum(), h, create_graph=create)[0].detach().numpy(), 2 * np.sin(VALUES), rtol=1e-6
    )


def test_what_lies_before_a_value_is_not_freed() -> None:
    w = leaf()
    h = lt.exp(w * 0.1)
    lt.autograd.grad((h * h).sum(), h)
    h.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 0.1 * np.exp(VALUES * 0.1), rtol=1e-6)


def test_what_lies_between_is_freed_still() -> None:
    w = leaf()
    h = lt.exp(w * 0.1)
    loss = lt.exp(h).sum()
    lt.autograd.grad(loss, h)
    with pytest.raises(lt.AutogradError, match="a second time"):
        loss.backward()
