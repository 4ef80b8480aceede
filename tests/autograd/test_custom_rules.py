"""`custom_vjp` and `custom_jvp` as in JAX, wherever the program is synced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt


def sinc() -> Any:
    """exp(a) * b with residuals, a tree for an argument and another for the result."""

    @lt.custom_vjp
    def f(pair: Any, n: Any) -> Any:
        return {"y": lt.exp(pair["a"]) * pair["b"], "n": n + 1}

    def forward(pair: Any, n: Any) -> Any:
        e = lt.exp(pair["a"])
        return {"y": e * pair["b"], "n": n + 1}, (e, pair["b"], "kept as it is")

    def backward(kept: Any, ct: Any) -> Any:
        e, b, word = kept
        assert word == "kept as it is"
        assert ct["n"] is None
        return {"a": ct["y"] * e * b, "b": ct["y"] * e}, None

    f.defvjp(forward, backward)
    return f


@pytest.mark.parametrize("syncs", [(), (0,), (1,), (0, 1)])
def test_trees_and_second_derivatives(syncs: tuple[int, ...]) -> None:
    f = sinc()
    for _ in range(2):
        a, b = (lt.tensor(v, dtype=lt.float64, requires_grad=True) for v in ([0.5, 1.0], [2.0, 3.0]))
        out = f({"a": a * 2, "b": b}, lt.asarray([1, 2]))
        assert out["n"].tolist() == [2, 3] if 0 in syncs else True
        ga, gb = lt.autograd.grad(out["y"].sum(), [a, b], create_graph=True)
        lt.sync() if 1 in syncs else None
        (gab,) = lt.autograd.grad(ga.sum(), b)
        e = np.exp([1.0, 2.0])
        np.testing.assert_allclose(ga.tolist(), 2 * e * [2, 3])
        np.testing.assert_allclose(gb.tolist(), e)
        np.testing.assert_allclose(gab.tolist(), 2 * e)


def test_arguments_that_are_not_differentiated_by() -> None:
    def scaled(k: Any, x: Any, name: str) -> Any:
        return x * k

    f = lt.custom_vjp(scaled, nondiff_argnums=(0, 2))
    f.defvjp(lambda k, x, name: (x * k, ()), lambda k, name, kept, ct: (ct * 100 * k,))
    g = lt.grad(lambda v: f(3.0, v, name="word").sum())(lt.ones(2))
    assert g.tolist() == [300.0, 300.0]
    x = lt.tensor([1.0], requires_grad=True)
    with pytest.raises(lt.AutogradError, match="argument 0 of nondiff_argnums requires grad; detach"):
        f(x, x, "word")
    with pytest.raises(lt.AutogradError, match="nondiff_argnums 2 is out of range for 2 arguments"):
        f(1.0, x)


def test_rules_that_do_not_fit() -> None:
    x = lt.tensor([1.0, 2.0], requires_grad=True)
    f = lt.custom_vjp(lambda v: v * 1)
    with pytest.raises(lt.AutogradError, match=r"custom_vjp of '<lambda>' has no derivative yet; call defvjp"):
        f(x)
    f.defvjp(lambda v: v, None)
    with pytest.raises(lt.AutogradError, match=r"fwd must return \(output, residuals\), got 'Tensor'"):
        f(x)
    f.defvjp(lambda v: (3, ()), None)
    with pytest.raises(lt.AutogradError, match="fwd must return tensors first, got 'int'"):
        f(x)
    for made, error, message in (
        ((1, 2), lt.AutogradError, "bwd must return 1 cotangents, got 2"),
        ((3.0,), lt.AutogradError, "bwd gave for argument 0 a 'float', a tensor or None is required"),
        ((lt.ones(3),), lt.ShapeError, r"bwd gave a cotangent of shape \(3,\) for an argument of shape \(2,\)"),
    ):
        f.defvjp(lambda v: (v * 1, ()), lambda kept, ct, made=made: made)
        with pytest.raises(error, match=message):
            f(x).sum().backward()
    with pytest.raises(TypeError, match="custom_vjp: a function is required, not 'int'"):
        lt.custom_vjp(3)
    with pytest.raises(lt.AutogradError, match="has no derivative yet; call defjvp"):
        lt.custom_jvp(lambda v: v)(x)


@pytest.mark.parametrize("synced", [False, True])
def test_a_rule_that_is_linear_in_tangents_gives_gradients(synced: bool) -> None:
    @lt.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return lt.sin(x) * y

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        x, y = primals
        dx, dy = tangents
        return f(x, y), lt.cos(x) * y * dx + lt.sin(x) * dy

    x, y = (lt.tensor(v, dtype=lt.float64, requires_grad=True) for v in ([0.5, 1.0], [2.0, 3.0]))
    z = f(x * 1, y)
    lt.sync() if synced else None
    gx, gy = lt.autograd.grad(z.sum(), [x, y], create_graph=True)
    lt.sync() if synced else None
    (gxx,) = lt.autograd.grad(gx.sum(), x)
    np.testing.assert_allclose(gx.tolist(), np.cos([0.5, 1.0]) * [2, 3])
    np.testing.assert_allclose(gy.tolist(), np.sin([0.5, 1.0]))
    np.testing.assert_allclose(gxx.tolist(), -np.sin([0.5, 1.0]) * [2, 3])
    assert lt.autograd.gradgradcheck(f, (x, y))


def test_one_rule_an_argument_and_fixed_arguments() -> None:
    f = lt.custom_jvp(lambda x, y: x * y)
    f.defjvps(lambda t, out, x, y: t * y * 10, None)
    gx, gy = lt.grad(lambda x, y: f(x, y).sum(), argnums=(0, 1))(lt.asarray([2.0]), lt.asarray([3.0]))
    assert (gx.tolist(), gy.tolist()) == ([30.0], [0.0])
    g = lt.custom_jvp(lambda x, k: x * k, nondiff_argnums=1)
    g.defjvp(lambda k, primals, tangents: (primals[0] * k, tangents[0] * k * 7))
    assert lt.grad(lambda x: g(x, 3.0).sum())(lt.ones(1)).tolist() == [21.0]
    with pytest.raises(lt.AutogradError, match="defjvps cannot be used with nondiff_argnums"):
        g.defjvps(None)
    f.defjvps(None)
    with pytest.raises(lt.AutogradError, match="defjvps got 1 rules for 2 arguments"):
        lt.grad(lambda x: f(x, 1.0).sum())(lt.ones(1))


def exponentials() -> dict[str, Any]:
    """exp with rules that read the result, each in another way."""

    @lt.custom_vjp
    def kept(x: Any) -> Any:
        return lt.exp(x)

    def forward(x: Any) -> Any:
        y = lt.exp(x)
        return y, y

    @lt.custom_vjp
    def called(x: Any) -> Any:
        return lt.exp(x)

    def forward_by_a_call(x: Any) -> Any:
        y = called(x)
        return y, y

    kept.defvjp(forward, lambda y, ct: (ct * y,))
    called.defvjp(forward_by_a_call, lambda y, ct: (ct * y,))

    @lt.custom_jvp
    def pushed(x: Any) -> Any:
        return lt.exp(x)

    @pushed.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        y = pushed(*primals)
        return y, y * tangents[0]

    return {"a residual": kept, "a residual of a call": called, "a tangent of a call": pushed}


@pytest.mark.parametrize("name", exponentials())
@pytest.mark.parametrize("synced", [False, True])
def test_derivatives_of_any_order_by_rules_that_read_the_result(name: str, synced: bool) -> None:
    f = exponentials()[name]
    x = lt.tensor(0.5, dtype=lt.float64, requires_grad=True)
    y, found = f(x * 2), []
    for _ in range(4):
        lt.sync() if synced else None
        (y,) = lt.autograd.grad(y, x, create_graph=True)
        found.append(y)
    np.testing.assert_allclose([y.item() for y in found], np.exp(1.0) * 2.0 ** np.arange(1, 5))
    g = f
    for _ in range(3):
        g = lt.grad(g)
        assert g(lt.asarray(1.0, dtype=lt.float64)).item() == pytest.approx(np.exp(1.0))


def test_a_forward_rule_that_runs_again_draws_the_same_numbers() -> None:
    @lt.custom_vjp
    def f(x: Any) -> Any:
        return x

    def forward(x: Any) -> Any:
        scaled = x * lt.random.random(3, dtype=lt.float64)
        return scaled, scaled

    f.defvjp(forward, lambda scaled, ct: (ct * scaled,))
    lt.random.seed(5)
    factor = lt.random.random(3, dtype=lt.float64).numpy()
    lt.random.seed(5)
    x = lt.tensor([1.0, 2.0, 3.0], dtype=lt.float64, requires_grad=True)
    y = f(x)
    (g,) = lt.autograd.grad(y.sum(), x, create_graph=True)
    after = lt.random.get_state()
    (h,) = lt.autograd.grad(g.sum(), x)
    assert lt.random.get_state() == after
    np.testing.assert_allclose(g.tolist(), factor * [1, 2, 3])
    np.testing.assert_allclose(h.tolist(), factor)


def test_a_value_that_is_the_same_as_an_input_is_counted_once() -> None:
    """`+x` is x: where the search for what leads to a rule ends, and an input."""

    @lt.custom_vjp
    def f(x: Any) -> Any:
        return x * x

    f.defvjp(lambda x: (x * x, x), lambda x, ct: (2 * ct * x,))
    x = lt.tensor(3.0, requires_grad=True)
    same = +x
    y = f(f(same) * x) * same * x  # x**8
    (g,) = lt.autograd.grad(y, x, create_graph=True)
    (h,) = lt.autograd.grad(g, x)
    assert (g.item(), h.item()) == (8 * 3.0**7, 56 * 3.0**6)


def test_rules_of_what_leads_to_nothing_wanted_are_not_called() -> None:
    calls = []

    @lt.custom_vjp
    def f(x: Any) -> Any:
        return x * 1

    f.defvjp(lambda x: (x * 1, ()), lambda kept, ct: (calls.append(1) or ct,))
    x, w = (lt.tensor(v, requires_grad=True) for v in (2.0, 3.0))
    y = f(x) * w
    assert lt.autograd.grad(y, w, retain_graph=True)[0].item() == 2.0
    assert not calls
    y.backward()
    assert calls and x.grad.item() == 3.0
