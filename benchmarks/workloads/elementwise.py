"""Chains of elementwise operations over arrays larger than the caches: one pass over memory, if they are fused."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.core import Array, Inputs, everywhere, seeded, workload

C = 0.7978845608028654  # sqrt(2 / pi)
ROOT_HALF = 0.5**0.5
RATE, VOLATILITY = 0.03, 0.2
ITERATIONS = 50


# --- gelu_chain


def _gelu_inputs(quick: bool) -> Inputs:
    return {"x": seeded((1 << 14 if quick else 1 << 24,))}


def _gelu(m: Any, x: Any) -> Any:
    """GELU in its tanh form, as users write it out."""
    return 0.5 * x * (1.0 + m.tanh(C * (x + 0.044715 * x * x * x)))


def _gelu_numexpr(m: Any, x: Any) -> Any:
    """A number written in an expression is a double there, and would make all of it double."""
    names = {"x": x, "half": np.float32(0.5), "one": np.float32(1), "c": np.float32(C), "d": np.float32(0.044715)}
    return m.evaluate("half * x * (one + tanh(c * (x + d * x * x * x)))", names)


workload(
    name="gelu_chain",
    what="GELU written out in nine operations over 16M floats",
    inputs=_gelu_inputs,
    reference=lambda inputs: [_gelu(np, inputs["x"])],
    builds=everywhere(
        _gelu, "lazyt", "numpy", "torch", "jax", "mlx",
        numexpr=_gelu_numexpr,
        tinygrad=lambda m, x: 0.5 * x * (1.0 + (C * (x + 0.044715 * x * x * x)).tanh()),
    ),
    nbytes=lambda inputs: 2 * inputs["x"].nbytes,
)  # fmt: skip


# --- black_scholes


def _options(quick: bool) -> Inputs:
    rng = np.random.default_rng(0)
    n = 1 << 12 if quick else 1 << 22
    ranges = {"price": (10.0, 50.0), "strike": (10.0, 50.0), "years": (0.5, 2.0)}
    return {name: rng.uniform(low, high, n).astype(np.float32) for name, (low, high) in ranges.items()}


def _black_scholes(log: Any, sqrt: Any, exp: Any, erf: Any, price: Any, strike: Any, years: Any) -> Any:
    """What a call and a put option are worth."""
    spread = VOLATILITY * sqrt(years)
    d1 = (log(price / strike) + (RATE + 0.5 * VOLATILITY**2) * years) / spread
    d2 = d1 - spread
    n1, n2 = 0.5 * (1.0 + erf(d1 * ROOT_HALF)), 0.5 * (1.0 + erf(d2 * ROOT_HALF))
    discounted = strike * exp(-RATE * years)
    call = price * n1 - discounted * n2
    return call, call + discounted - price


def _prices(m: Any, *options: Any) -> Any:
    return _black_scholes(m.log, m.sqrt, m.exp, m.erf, *options)


def _prices_with_scipy(name: str) -> Callable[..., Any]:
    """For the libraries whose error function is in SciPy, or in their own copy of it."""
    return lambda m, *options: _black_scholes(m.log, m.sqrt, m.exp, importlib.import_module(name).erf, *options)


def _reference_prices(inputs: Inputs) -> Sequence[Array]:
    erf = np.frompyfunc(math.erf, 1, 1)
    return _black_scholes(np.log, np.sqrt, np.exp, lambda x: erf(x).astype(np.float64), *inputs.values())


workload(
    name="black_scholes",
    what="4M call and put options priced by Black and Scholes",
    inputs=_options,
    reference=_reference_prices,
    builds=everywhere(
        _prices, "lazyt", "torch", "mlx",
        numpy=_prices_with_scipy("scipy.special"),
        jax=_prices_with_scipy("jax.scipy.special"),
        tinygrad=lambda m, *options: _black_scholes(
            m.Tensor.log, m.Tensor.sqrt, m.Tensor.exp, m.Tensor.erf, *options
        ),
    ),
    nbytes=lambda inputs: 5 * inputs["price"].nbytes,
    rtol=1e-4,
    atol=1e-4,
)  # fmt: skip


# --- mandelbrot


def _plane(quick: bool) -> Inputs:
    n = 64 if quick else 1024
    x, y = np.meshgrid(np.linspace(-2, 0.6, n), np.linspace(-1.3, 1.3, n))
    return {"x": x.astype(np.float32), "y": y.astype(np.float32)}


def _mandelbrot(x: Any, y: Any, count: Any) -> Any:
    """For how many iterations each point stays within 2; what has left becomes infinite and NaN, which are not."""
    u, v = x, y
    for _ in range(ITERATIONS):
        uu, vv = u * u, v * v
        count = count + (uu + vv < 4.0)
        u, v = uu - vv + x, 2.0 * u * v + y
    return count


def _mandelbrot_numpy(m: Any, x: Any, y: Any) -> Any:
    with np.errstate(all="ignore"):
        return _mandelbrot(x, y, np.zeros(x.shape, np.int32))


def _mandelbrot_numexpr(m: Any, x: Any, y: Any) -> Any:
    """An iteration is an expression: all of them in one are more than it takes."""
    names = {"x": x, "y": y, "two": np.float32(2), "four": np.float32(4)}
    u, v, count = x, y, np.zeros(x.shape, np.int32)
    for _ in range(ITERATIONS):
        names |= {"u": u, "v": v, "count": count}
        count = m.evaluate("where(u * u + v * v < four, count + 1, count)", names)
        u, v = m.evaluate("u * u - v * v + x", names), m.evaluate("two * u * v + y", names)
    return count


workload(
    name="mandelbrot",
    what=f"{ITERATIONS} iterations of the Mandelbrot set over 1,024 x 1,024 points, unrolled",
    inputs=_plane,
    reference=lambda inputs: [_mandelbrot_numpy(np, **inputs)],
    builds=everywhere(
        lambda m, x, y: _mandelbrot(x, y, m.zeros(x.shape, dtype=m.int32)), "lazyt", "torch", "jax", "mlx",
        numpy=_mandelbrot_numpy,
        numexpr=_mandelbrot_numexpr,
        tinygrad=lambda m, x, y: _mandelbrot(x, y, m.Tensor.zeros(*x.shape, dtype=m.dtypes.int32)),
    ),
    nbytes=lambda inputs: 3 * inputs["x"].nbytes,
    flops=lambda inputs: 10 * ITERATIONS * inputs["x"].size,
    outside=0.02,  # points at the border, where an orbit is chaotic
)  # fmt: skip
