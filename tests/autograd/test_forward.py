"""`jvp`, `linearize`, Jacobians and Hessians against reverse mode and against each other; what they refuse."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import AutogradError, DTypeError, NotSupportedError, ShapeError

RNG = np.random.default_rng(0)
X, V = RNG.standard_normal((2, 4))
W = RNG.standard_normal((4, 3))


def close(a: object, b: object) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-9, atol=1e-12)


def scalar(x):
    return (lt.tanh(x @ lt.asarray(W)) ** 3).sum() * lt.exp(x[0]) + lt.where(x > 0, x, 0.1 * x).prod()


def vector(x):
    return lt.concat([lt.sin(x) * x.sum(), lt.sort(x)[1:] ** 2])


def twice(f, x, v):
    """The tangent by two pull-backs: the transpose of the transpose."""

    def pulled(u):
        return lt.vjp(f, x)[1](u)[0]

    u = lt.zeros(f(x).shape, dtype=lt.float64)
    return lt.vjp(pulled, u)[1](v)[0]


def test_jvp_is_the_transpose_of_vjp() -> None:
    x, v = lt.asarray(X), lt.asarray(V)
    for f in (scalar, vector):
        y, t = lt.jvp(f, (x,), (v,))
        close(y, f(x))
        close(t, twice(f, x, v))


def test_nests_numbers_and_aux() -> None:
    def f(p, x):
        return {"y": p["w"] * x, "n": (x, 3.0)}, "aux"

    p, t = {"w": lt.asarray(X)}, {"w": lt.asarray(V)}
    y, tangent, aux = lt.jvp(f, (p, 2.0), (t, 1.0), has_aux=True)
    assert aux == "aux"
    close(y["y"], (X * 2).astype(np.float32) if y["y"].dtype == lt.float32 else X * 2)
    close(tangent["y"], V * 2 + X)
    assert tangent["n"][0].item() == 1 and tangent["n"][1].item() == 0
    y, t = lt.jvp(lambda x: (x > 0, x.astype(lt.int64)), (lt.asarray(X),), (lt.asarray(V),))
    assert [a.dtype for a in t] == [a.dtype for a in y] and not any(a.any().item() for a in t)


def test_linearize_calls_once() -> None:
    calls = []
    y, push = lt.linearize(lambda x: (calls.append(1), vector(x))[1], lt.asarray(X))
    for v in (V, X, V):
        close(push(lt.asarray(v)), lt.jvp(vector, (lt.asarray(X),), (lt.asarray(v),))[1])
    close(y, vector(lt.asarray(X)))
    assert len(calls) == 1


@pytest.mark.parametrize("regime", ["never", "each operation", "inside"])
def test_sync_regimes(regime: str) -> None:
    def f(x):
        y = x * x
        if regime == "inside" and y.sum().item() < 0:
            return y
        return (lt.sin(y) * x).sum()

    want = (2 * X * np.cos(X * X) * X + np.sin(X * X)) @ V
    grad = 2 * X * np.cos(X * X) * X + np.sin(X * X)
    with lt.eager() if regime == "each operation" else lt.enable_grad():
        _, t = lt.jvp(f, (lt.asarray(X),), (lt.asarray(V),))
        close(t, want)
        _y, push = lt.linearize(f, lt.asarray(X))
        lt.sync()
        close(push(lt.asarray(V)), want)
        close(lt.jacfwd(f)(lt.asarray(X)), grad)
        if regime != "each operation":
            w = lt.tensor(X, requires_grad=True)
            _, t = lt.jvp(lambda x: f(x) * w.sum(), (lt.asarray(X),), (lt.asarray(V),))
            t.backward()
            close(w.grad, np.full(4, want))


@pytest.mark.parametrize("synced", [False, True])
def test_reverse_over_forward(synced: bool) -> None:
    w = lt.tensor(X, requires_grad=True)
    _, t = lt.jvp(lambda x: scalar(x * w), (w,), (lt.asarray(V),))
    loss = t * t
    if synced:
        loss.item()
    loss.backward()
    other = lt.tensor(X, requires_grad=True)
    s = (lt.grad(lambda x: scalar(x * other))(other) * lt.asarray(V)).sum()
    (s * s).backward()
    close(w.grad, other.grad)


def test_tangents_of_tangents_are_not_confused() -> None:
    """The classic case: d/dx (x * d/dy (x + y)) = 1."""

    def outer(x):
        return x * lt.jvp(lambda y: x + y, (lt.asarray(1.0),), (lt.asarray(1.0),))[1]

    assert lt.jvp(outer, (lt.asarray(1.0),), (lt.asarray(1.0),))[1].item() == 1
    assert lt.grad(outer)(lt.asarray(1.0)).item() == 1
    assert lt.jvp(lt.grad(lambda x: x**3), (lt.asarray(2.0),), (lt.asarray(1.0),))[1].item() == 12


def test_graphs_are_not_kept_for_nobody() -> None:
    y, t = lt.jvp(vector, (lt.asarray(X),), (lt.asarray(V),))
    assert not y.requires_grad and not t.requires_grad
    w = lt.tensor(X, requires_grad=True)
    y, t = lt.jvp(lambda x: x * w, (lt.asarray(X),), (lt.asarray(V),))
    assert y.requires_grad and t.requires_grad
    with lt.no_grad():
        y, t = lt.jvp(lambda x: x * w, (lt.asarray(X),), (lt.asarray(V),))
    assert not t.requires_grad
    close(t, X * V)


def test_it_runs_nothing() -> None:
    x = lt.asarray(X)
    with lt.no_sync():
        h = lt.hessian(scalar)(x)
        y, t = lt.jvp(scalar, (x,), (x,))
    with lt.expect(syncs=1):
        lt.sync()
    assert not np.isnan(h.numpy()).any() and y.item() and t.item()


# Jacobians


def columns(f, x):
    """The Jacobian by one tangent after the other."""
    return np.stack([np.asarray(lt.jvp(f, (x,), (lt.asarray(e),))[1]) for e in np.eye(x.size)], -1)


def test_jacobians() -> None:
    x = lt.asarray(X)
    close(lt.jacfwd(vector)(x), columns(vector, x))
    close(lt.jacrev(vector)(x), columns(vector, x))
    f = lambda a, b: {"y": lt.outer(a, b), "s": a.sum() * b}
    a, b = lt.asarray(X[:2]), lt.asarray(V[:3])
    for jac in (lt.jacfwd, lt.jacrev):
        both = jac(f, argnums=(0, 1))(a, b)
        assert both["y"][0].shape == (2, 3, 2) and both["y"][1].shape == (2, 3, 3) and both["s"][0].shape == (3, 2)
        close(both["y"][0], np.einsum("ik,j->ijk", np.eye(2), V[:3]))
        close(both["s"][1], X[:2].sum() * np.eye(3))
        close(jac(f, 1)(a, b)["s"], both["s"][1])
        close(jac(f)(a, b=b)["y"], both["y"][0])
        got, aux = jac(lambda x: (x * x, "aux"), has_aux=True)(a)
        close(got, np.diag(2 * X[:2]))
        assert aux == "aux"
        nested = jac(lambda p: p["a"] * p["b"][0])({"a": a, "b": (a,)})
        close(nested["b"][0], np.diag(X[:2]))


def test_hessians_in_every_order() -> None:
    x = lt.asarray(X)
    want = columns(lt.grad(scalar), x)
    for outer in (lt.jacfwd, lt.jacrev):
        for inner in (lt.jacfwd, lt.jacrev):
            close(outer(inner(scalar))(x), want)
    close(lt.hessian(scalar)(x), want)
    close(
        lt.vmap(lt.hessian(scalar))(lt.asarray(np.stack([X, V]))), [lt.hessian(scalar)(lt.asarray(p)) for p in (X, V)]
    )
    _, (h,) = lt.hvp(scalar, (x,), (lt.asarray(V),))
    close(h, want @ V)
    close(lt.grad(lambda x: lt.trace(lt.hessian(lambda y: (y**4).sum())(x)))(x), 24 * X)
    two = lt.hessian(lambda a, b: (a**2 * b).sum(), argnums=(0, 1))(x, lt.asarray(V))
    close(two[0][0], np.diag(2 * V))
    close(two[0][1], np.diag(2 * X))


def test_hvp_of_nests() -> None:
    def f(p, x):
        return ((p["w"] * x) ** 2).sum()

    p, v = {"w": lt.asarray(X)}, {"w": lt.asarray(V)}
    zero = lt.zeros(4, dtype=lt.float64)
    value, (hp, hx) = lt.hvp(f, (p, lt.asarray(V)), (v, zero))
    close(value, ((X * V) ** 2).sum())
    close(hp["w"], 2 * V**2 * V)
    close(hx, 4 * X * V * V)


# What it refuses


def test_what_does_not_fit() -> None:
    x = lt.asarray(X)
    with pytest.raises(ShapeError, match=r"jvp: tangent 0 has shape \(3,\), the argument has \(4,\)"):
        lt.jvp(scalar, (x,), (lt.ones(3),))
    with pytest.raises(AutogradError, match="jvp: 1 tangents are required, one a tensor of the arguments, got 2"):
        lt.jvp(scalar, (x,), (x, x))
    with pytest.raises(DTypeError, match="jvp: a floating or complex tensor is required, not int64"):
        lt.jvp(scalar, (lt.arange(4),), (lt.arange(4),))
    with pytest.raises(DTypeError, match="jvp: tangent 0 is complex128, the argument is float64"):
        lt.jvp(scalar, (x,), (x.astype(lt.complex128),))
    with pytest.raises(DTypeError, match="linearize: the function must return tensors, or nests of them, not 'str'"):
        lt.linearize(lambda x: "word", x)
    with pytest.raises(AutogradError, match="with has_aux the function must return a pair, not 'Tensor'"):
        lt.jvp(scalar, (x,), (x,), has_aux=True)
    with pytest.raises(AutogradError, match="jacfwd: argnums 1 is out of range for 1 positional arguments"):
        lt.jacfwd(scalar, argnums=1)(x)
    with pytest.raises(DTypeError, match="jacrev: results must be real floating tensors, not complex128"):
        lt.jacrev(lambda x: x * 1j)(x)
    with pytest.raises(DTypeError, match="jacfwd: arguments must be real floating tensors, not complex128"):
        lt.jacfwd(scalar)(x.astype(lt.complex128))
    with pytest.raises(AutogradError, match="jacrev: the arguments to differentiate by hold no tensor"):
        lt.jacrev(lambda x: x)(None)


def test_rules_for_reverse_mode_alone() -> None:
    @lt.custom_vjp
    def f(x):
        return x * 1

    f.defvjp(lambda x: (x * 1, ()), lambda _, ct: (ct * 2,))
    with pytest.raises(
        NotSupportedError,
        match=r"jvp through a custom_vjp, an autograd.Function or a checkpoint \(recorded at .*test_forward.py",
    ):
        lt.jvp(lambda x: f(x) * 2, (lt.asarray(X),), (lt.asarray(V),))
    close(lt.vmap(lt.grad(lambda x: f(x) * 3))(lt.asarray(X)), np.full(4, 6.0))
    close(lt.jacrev(f)(lt.asarray(X)), 2 * np.eye(4))
    refused = r"from outside a vmap through a custom function inside it \(recorded at"
    with pytest.raises(NotSupportedError, match=refused):
        lt.grad(lambda x: lt.vmap(f)(x).sum())(lt.asarray(X))
    # Behind a sync it is refused too: there the values of a lane are not kept.
    for mode in (lt.eager, contextlib.nullcontext):
        x = lt.asarray(X).requires_grad_()
        with mode():
            loss = lt.vmap(f)(x).sum()
        loss.item()
        with pytest.raises(NotSupportedError, match=refused):
            loss.backward()
    _y, t = lt.jvp(lambda x: f(lt.asarray(X)) * x, (lt.asarray(V),), (lt.asarray(V),))
    close(t, X * V)


def test_detached_values_have_no_tangent() -> None:
    _, t = lt.jvp(lambda x: x * x.detach(), (lt.asarray(X),), (lt.asarray(V),))
    close(t, X * V)
