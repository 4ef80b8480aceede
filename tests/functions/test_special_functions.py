"""lgamma, digamma, polygamma, mvlgamma and erfinv: how exact they are, their poles, their derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import DTypeError, ShapeError
from lazyt.ir import special_semantics
from tests.support.golden_files import load

GOLDEN = load("special_functions")
CASES = {"lgamma/positive": 6.0, "digamma/positive": 4.5, "erfinv": 5.0}


def errors(name: str, y: Any) -> np.ndarray:
    """How far float64 values are from the exact ones, in units of the last place."""
    nearest = GOLDEN[f"{name}/y"]
    off = np.abs((np.asarray(y, np.float64) - nearest) - GOLDEN[f"{name}/rest"])
    return np.where(off == 0, 0, off / np.spacing(np.abs(nearest)))


def computed(name: str, dtype: str) -> Any:
    return getattr(lt, name.split("/")[0])(lt.asarray(GOLDEN[f"{name}/x"], dtype=dtype))


@pytest.mark.parametrize("name", CASES)
def test_float64(name: str) -> None:
    assert errors(name, computed(name, "float64").numpy()).max() < CASES[name]


@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_negative_arguments(name: str) -> None:
    """Near their zeros the terms of the reflection formula cancel: the error is that of the larger one."""
    x = GOLDEN[f"{name}/negative/x"].astype(np.float64)
    term = np.abs(getattr(lt, name)(lt.asarray(1 - x)).numpy()) + (np.abs(np.log(-x)) if name == "lgamma" else 0)
    off = np.abs(computed(f"{name}/negative", "float64").numpy() - GOLDEN[f"{name}/negative/y"])
    assert (off / np.spacing(np.maximum(term, np.abs(GOLDEN[f"{name}/negative/y"])))).max() < 6


@pytest.mark.parametrize("name", CASES)
def test_float32_and_the_halves_are_rounded_once(name: str) -> None:
    nearest = GOLDEN[f"{name}/y"]
    found = computed(name, "float32").numpy()
    assert found.dtype == np.float32
    off = np.abs(found.astype(np.float64) - nearest)
    assert (off / np.spacing(np.abs(nearest).astype(np.float32))).max() < 0.501
    for half in ("float16", "bfloat16"):
        f = getattr(lt, name.split("/")[0])
        x = lt.asarray(np.minimum(GOLDEN[f"{name}/x"], 6e4), dtype=half)
        want = f(x.astype("float32")).astype(half)
        np.testing.assert_array_equal(f(x).astype("float32").numpy(), want.astype("float32").numpy())


@pytest.mark.parametrize("name", CASES)
def test_their_meaning_is_exact_too(name: str) -> None:
    f = getattr(special_semantics, name.split("/")[0])
    found = [f(float(v)) for v in GOLDEN[f"{name}/x"]]
    np.testing.assert_allclose(found, GOLDEN[f"{name}/y"], rtol=1e-14, atol=2e-15 if name != "erfinv" else 0)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_polygamma(n: int) -> None:
    x = GOLDEN[f"polygamma/{n}/x"]
    y = lt.polygamma(n, lt.asarray(x, dtype="float64")).numpy()
    assert errors(f"polygamma/{n}", y)[x > 0].max() < 8
    np.testing.assert_allclose(y, GOLDEN[f"polygamma/{n}/y"], rtol=1e-13)
    single = lt.polygamma(n, lt.asarray(x)).numpy()
    np.testing.assert_allclose(single[x > 0], GOLDEN[f"polygamma/{n}/y"][x > 0], rtol=1e-6)


def test_mvlgamma() -> None:
    found = lt.mvlgamma(lt.asarray(GOLDEN["mvlgamma/3/x"], dtype="float64"), 3)
    np.testing.assert_allclose(found.numpy(), GOLDEN["mvlgamma/3/y"], rtol=1e-14, atol=1e-14)


INF, NAN = math.inf, math.nan
# As PyTorch's, but for trigamma at negative whole numbers, where PyTorch's sine is not 0.
SPECIAL = {
    "lgamma": ([0.0, -0.0, 1, 2, -1, -2, INF, -INF, NAN, -(2.0**15)], [INF, INF, 0, 0, INF, INF, INF, INF, NAN, INF]),
    "digamma": ([0.0, -0.0, -1, -2, INF, -INF, NAN, -(2.0**15)], [-INF, INF, NAN, NAN, INF, NAN, NAN, NAN]),
    "erfinv": ([0.0, -0.0, 1, -1, 1.5, -2, INF, -INF, NAN], [0.0, -0.0, INF, -INF, NAN, NAN, NAN, NAN, NAN]),
    "trigamma": ([0.0, -0.0, -1, -2, INF, NAN], [INF, INF, INF, INF, 0, NAN]),
    "tetragamma": ([0.0, -0.0, -1, -2, NAN], [-INF, -INF, -INF, -INF, NAN]),
}
ORDERS = {"trigamma": 1, "tetragamma": 2}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name: str, dtype: str) -> None:
    x, want = SPECIAL[name]
    order = ORDERS.get(name)
    f = getattr(lt, name) if order is None else lambda x: lt.polygamma(order, x)
    found = f(lt.asarray(x, dtype=dtype)).astype("float64").numpy()
    np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(np.signbit(found)[~np.isnan(want)], np.signbit(want)[~np.isnan(want)])
    if order is None:
        meaning = [getattr(special_semantics, name)(v) for v in x]
        np.testing.assert_array_equal(meaning, want)
        np.testing.assert_array_equal(np.signbit(meaning)[~np.isnan(want)], np.signbit(want)[~np.isnan(want)])


def test_derivatives_of_the_gamma_function() -> None:
    x = lt.asarray([0.3, 1.0, 2.5, 20.0, -0.4, -2.7], dtype="float64")
    slopes = [lt.digamma(x), lt.polygamma(1, x), lt.polygamma(2, x), lt.polygamma(3, x)]
    f = lt.lgamma
    for want in slopes:
        f = (lambda g: lambda x: lt.grad(lambda v: lt.sum(g(v)))(x))(f)
        np.testing.assert_allclose(f(x).numpy(), want.numpy(), rtol=1e-12)
    _, forward = lt.jvp(lt.digamma, (x,), (lt.ones_like(x),))
    np.testing.assert_allclose(forward.numpy(), slopes[1].numpy(), rtol=1e-13)


def test_derivatives_at_a_whole_number_are_finite() -> None:
    """Where x is positive the reflection formula, infinite there, does not reach them."""
    x = lt.tensor([1.0, 2.0, 3.0], dtype="float64", requires_grad=True)
    lt.polygamma(1, x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), lt.polygamma(2, x.detach()).numpy(), rtol=1e-13)


def test_derivatives_of_erfinv() -> None:
    x = lt.asarray([-0.999, -0.3, 0.0, 0.5, 0.9], dtype="float64")
    y = lt.erfinv(x)
    first = math.sqrt(math.pi) / 2 * lt.exp(y * y)
    slope = lt.grad(lambda x: lt.erfinv(x).sum())
    np.testing.assert_allclose(slope(x).numpy(), first.numpy(), rtol=1e-13)
    second = lt.grad(lambda x: slope(x).sum())(x)
    np.testing.assert_allclose(second.numpy(), (2 * y * first * first).numpy(), rtol=1e-13)
    np.testing.assert_allclose(lt.erf(y).numpy(), x.numpy(), rtol=1e-15)


def test_integers_are_taken_as_floats() -> None:
    assert lt.lgamma(lt.asarray([5])).dtype == lt.float64
    assert lt.polygamma(0, lt.asarray([1.0])).tolist() == lt.digamma(lt.asarray([1.0])).tolist()


def test_what_they_refuse() -> None:
    with pytest.raises(ShapeError, match="polygamma: n is at least 0, got -1"):
        lt.polygamma(-1, lt.ones(2))
    with pytest.raises(DTypeError, match=r"polygamma: n must be an integer, got 0\.5"):
        lt.polygamma(0.5, lt.ones(2))  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="mvlgamma: p is at least 1, got 0"):
        lt.mvlgamma(lt.ones(2), 0)
    with pytest.raises(DTypeError, match="lgamma: a real dtype is required, got complex64"):
        lt.lgamma(lt.asarray([1j], dtype="complex64"))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_polygamma_at_the_last_of_its_poles(dtype: str) -> None:
    """SciPy's values at -inf."""
    x = lt.asarray([-INF, INF], dtype=dtype)
    for n in (1, 2, 3):
        sign = (-1) ** (n + 1)
        np.testing.assert_array_equal(lt.polygamma(n, x).numpy(), [sign * INF, sign * 0.0])
