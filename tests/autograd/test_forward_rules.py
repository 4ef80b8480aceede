"""Forward mode through functions with a derivative of the user's: `custom_jvp`, and `Function` with `jvp`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import AutogradError, NotSupportedError, ShapeError

RNG = np.random.default_rng(0)
X, V = RNG.standard_normal((2, 3))


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a.numpy(), np.asarray(b), rtol=1e-9, atol=1e-12)


@lt.custom_jvp
def tripled(x: Any) -> Any:
    """A derivative that is three times the true one, so that it is seen whose is used."""
    return lt.log(1 + lt.exp(x))


@tripled.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return tripled(*primals), 3 * lt.sigmoid(primals[0]) * tangents[0]


class Product(lt.autograd.Function):
    """x * y, with a derivative that is twice the true one."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any, scale: float) -> Any:
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(y, x)
        ctx.scale = scale
        return x * y * scale

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, y = ctx.saved_tensors
        return 2 * grad * y * ctx.scale, 2 * grad * x * ctx.scale, None

    @staticmethod
    def jvp(ctx: Any, x_t: Any, y_t: Any, scale_t: Any) -> Any:
        y, x = ctx.saved_tensors
        assert scale_t is None
        return 2 * (x_t * y + x * y_t) * ctx.scale


def composed(x: Any) -> Any:
    return (tripled(tripled(x) * 2) * Product.apply(x, lt.sin(x), 0.5)).sum()


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def test_a_tangent_by_the_rule() -> None:
    x, v = lt.asarray(X), lt.asarray(V)
    y, t = lt.jvp(tripled, (x,), (v,))
    close(y, np.log1p(np.exp(X)))
    close(t, 3 * sigmoid(X) * V)
    y, t = lt.jvp(lambda x: Product.apply(x, lt.asarray(V), 0.5), (x,), (v,))
    close(t, V * V)
    close(lt.jacfwd(lambda y: Product.apply(lt.asarray(X), y, 1.0))(v), np.diag(2 * X))


def test_every_order_of_modes_agrees() -> None:
    x, v = lt.asarray(X), lt.asarray(V)
    gradient = lt.grad(composed)(x)
    close(lt.jvp(composed, (x,), (v,))[1], gradient.numpy() @ V)
    want = lt.jacrev(lt.jacrev(composed))(x).numpy()
    assert abs(want).max() > 0.1
    for outer, inner in ((lt.jacfwd, lt.jacfwd), (lt.jacfwd, lt.jacrev), (lt.jacrev, lt.jacfwd)):
        close(outer(inner(composed))(x), want)
    close(lt.hvp(composed, (x,), (v,))[1][0], want @ V)
    close(lt.vmap(lambda x, v: lt.jvp(tripled, (x,), (v,))[1])(x, v), 3 * sigmoid(X) * V)
    close(lt.vmap(lt.hessian(lambda x: tripled(x) ** 2))(x), np.diag(lt.hessian(lambda x: (tripled(x) ** 2).sum())(x)))


def test_tangents_by_other_values_and_linearize() -> None:
    x, v = lt.asarray(X), lt.asarray(V)
    _, push = lt.linearize(composed, x)
    first, second = push(v), push(x)
    gradient = lt.grad(composed)(x).numpy()
    close(first, gradient @ V)
    close(second, gradient @ X)
    w = lt.tensor(X, requires_grad=True)
    _, t = lt.jvp(lambda x: tripled(x * w).sum(), (x,), (v,))
    t.backward()
    u = lt.tensor(X, requires_grad=True)
    (3 * lt.sigmoid(x * u) * v * u).sum().backward()
    assert w.grad is not None and u.grad is not None
    close(w.grad, u.grad.numpy())
    _, t = lt.jvp(lambda y: tripled(x) * y, (v,), (v,))
    close(t, np.log1p(np.exp(X)) * V)


def test_gradients_by_rules_have_no_graph_for_nobody() -> None:
    x = lt.asarray(X)
    for g in (lt.grad, lt.jacrev, lt.jacfwd, lt.hessian):
        assert not g(composed)(x).requires_grad
    assert not lt.grad(lambda x: lt.grad(composed)(x).sum())(x).requires_grad
    w = lt.tensor(X, requires_grad=True)
    assert lt.grad(lambda x: tripled(x * w).sum())(x).requires_grad


def test_materialized_tangents_and_several_results() -> None:
    class Both(lt.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.set_materialize_grads(Both.materialize)
            return x + y, lt.argmax(x), x * 2

        @staticmethod
        def jvp(ctx: Any, x_t: Any, y_t: Any) -> Any:
            Both.seen = y_t
            return x_t, None, None

    x = lt.asarray(X)
    for Both.materialize in (True, False):
        y, t = lt.jvp(lambda x: Both.apply(x, lt.asarray(V)), (x,), (x,))
        close(t[0], X)
        close(t[2], np.zeros(3))
        assert t[1].dtype == y[1].dtype
        assert (Both.seen is not None) == Both.materialize


def test_what_is_refused() -> None:
    x = lt.asarray(X)

    class Wrong(lt.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def jvp(ctx: Any, x_t: Any) -> Any:
            return Wrong.made(x_t)

    for made, error, message in (
        (lambda t: (t, t), AutogradError, r"Wrong: jvp returned an incorrect number of tangents \(expected 1, got 2\)"),
        (lambda t: t.sum(), ShapeError, r"Wrong: jvp gave a tangent of shape \(\) for a result of shape \(3,\)"),
        (lambda t: 3, TypeError, "function Wrong: jvp gave a 'int', a tensor or None is required"),
    ):  # fmt: skip
        Wrong.made = staticmethod(made)
        with pytest.raises(error, match=message):
            lt.jvp(Wrong.apply, (x,), (x,))

    class Plain(lt.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

    with pytest.raises(NotSupportedError, match=r"jvp through a custom_vjp, an autograd.Function or a checkpoint"):
        lt.jvp(Plain.apply, (x,), (x,))

    @lt.custom_jvp
    def flat(x: Any) -> Any:
        return x * 2

    flat.defjvp(lambda p, t: (p[0] * 2, t[0].sum()))
    with pytest.raises(ShapeError, match=r"'flat': the rule gave a tangent of shape \(\) for a result of shape \(3,\)"):
        lt.jvp(flat, (x,), (x,))
    flat.defjvp(lambda p, t: (p[0] * 2, ()))
    with pytest.raises(AutogradError, match="'flat': the rule gave 0 tangents for 1 floating results"):
        lt.jvp(flat, (x,), (x,))


def test_across_a_sync_it_is_refused() -> None:
    x, v = lt.asarray(X), lt.asarray(V)
    _, push = lt.linearize(composed, x)
    lt.sync()
    with pytest.raises(
        NotSupportedError, match="jvp through a custom function across a sync, because the program that"
    ):
        push(v)
    with pytest.raises(NotSupportedError, match=r"custom function \(recorded at .*\) whose forward rule syncs"):
        lt.jvp(syncing, (x,), (v,))


@lt.custom_jvp
def syncing(x: Any) -> Any:
    return x * 2


@syncing.defjvp
def _(primals: Any, tangents: Any) -> Any:
    tangents[0].detach().sum().item()
    return primals[0] * 2, tangents[0] * 2
