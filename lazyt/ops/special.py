"""The gamma function's logarithm and its derivatives, and the inverse of the error function."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError
from lazyt.ir import dtypes, special_semantics
from lazyt.ops import samples
from lazyt.ops.definition import Operand, define, node_of, require_kind, result_type
from lazyt.ops.elementwise import constant, float_of, floating, over_floats

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

ERFINV = floating("erfinv", over_floats(special_semantics.erfinv), (-1,), (-0.99, 0.99), complex_=False)
LGAMMA = floating("lgamma", over_floats(special_semantics.lgamma), domain=(0.1, 9), complex_=False)
DIGAMMA = floating("digamma", over_floats(special_semantics.digamma), domain=(0.1, 9), complex_=False)

# B(2k) / (2k)!.
_BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600,
    -3617 / 10670622842880000,
)  # fmt: skip


def polygamma(b: Builder, x: Node, n: int) -> Node:
    """The n-th derivative of digamma, n >= 1.

    That is (-1)**(n + 1) n! zeta(n + 1, x): the first terms of the sum and the Euler-Maclaurin formula for the rest
    (Abramowitz, Stegun 6.4.10, 23.2.9); for negative x the reflection formula (6.4.7).
    """
    zero, one = constant(b, 0, x), constant(b, 1, x)
    negative = b.lt(x, zero)
    w = b.select(negative, b.sub(one, x), x)
    count = 8 + n
    # At both zeros it is what it is above 0: -0.0 + 0.0 is 0.0.
    terms = [_power(b, b.div(one, b.add(w, constant(b, k, x))), n + 1) for k in range(count)]
    z = b.add(w, constant(b, count, x))
    i = b.div(one, z)
    square, power = b.mul(i, i), _power(b, i, n)
    # The rest over i**n: 1/n + i/2 + i**2 times a polynomial in i**2.
    rising, series = n + 1, []
    for k, c in enumerate(_BERNOULLI):
        series.append(c * rising)
        rising *= (n + 2 + 2 * k) * (n + 3 + 2 * k)
    rest = _horner(b, square, series)
    rest = b.add(b.mul(square, rest), b.add(b.mul(i, constant(b, 0.5, x)), constant(b, 1 / n, x)))
    total = b.mul(power, rest)
    for t in reversed(terms):
        total = b.add(total, t)
    factorial = math.factorial(n)
    # NOTE: where x is positive the cotangent is of a quarter, so that no derivative of what is not chosen is infinite.
    f = b.mul(b.select(negative, b.sub(x, b.round(x)), constant(b, 0.25, x)), constant(b, math.pi, x))
    cotangent = b.div(b.cos(f), b.sin(f))
    slope = b.mul(_cotangent_derivative(b, cotangent, n), constant(b, math.pi ** (n + 1), x))
    reflected = b.sub(b.mul(total, constant(b, (-1) ** n * (-1) ** (n + 1) * factorial, x)), slope)
    # Its poles lie as dense there as they do anywhere: SciPy's value.
    last = b.eq(x, constant(b, -math.inf, x))
    reflected = b.select(last, constant(b, (-1) ** (n + 1) * math.inf, x), reflected)
    return b.select(negative, reflected, b.mul(total, constant(b, (-1) ** (n + 1) * factorial, x)))


def _power(b: Builder, x: Node, n: int) -> Node:
    """x**n, n >= 1, by products."""
    if n == 1:
        return x
    half = _power(b, x, n // 2)
    square = b.mul(half, half)
    return b.mul(square, x) if n % 2 else square


def _horner(b: Builder, x: Node, coefficients: list[float]) -> Node:
    """The sum of coefficients[k] * x**k."""
    total = constant(b, coefficients[-1], x)
    for c in reversed(coefficients[:-1]):
        total = b.add(b.mul(total, x), constant(b, c, x))
    return total


def _cotangent_derivative(b: Builder, c: Node, n: int) -> Node:
    """The n-th derivative of cot, of its value: a polynomial, by p -> -(1 + c*c) p'."""
    p = [0, 1]
    for _ in range(n):
        d = [k * a for k, a in enumerate(p)][1:]
        p = [-(low + high) for low, high in zip([*d, 0, 0], [0, 0, *d], strict=True)]
    odd = p[0] == 0 and len(p) % 2 == 0
    even = _horner(b, b.mul(c, c), [float(a) for a in p[odd::2]])
    return b.mul(even, c) if odd else even


def _polygamma(b: Builder, x: Operand, n: int) -> Node:
    d = float_of(result_type(x))
    require_kind("polygamma", d, "f", "a real dtype")
    v = node_of(b, x, dtypes.computed_in(d))
    return b.cast(polygamma(b, v, n), d)


def _reference(n: int, x: Any) -> Any:
    """n! zeta(n + 1, x) of positive x: a sum of 40 terms and three of the Euler-Maclaurin formula, for n up to 3.

    Infinite at the last of its poles, which SciPy has at -inf.
    """
    a, s = np.asarray(x, np.float64), n + 1
    z = a + 40
    rest = z**-n / n + z**-s / 2 + s * z ** -(s + 1) / 12 - s * (s + 1) * (s + 2) * z ** -(s + 3) / 720
    total = sum((a + k) ** -s for k in range(40)) + rest
    total = np.where(a == -np.inf, np.inf, total)
    return ((-1) ** (n + 1) * math.factorial(n) * total).astype(float_of(np.asarray(x).dtype))


POLYGAMMA = define(
    "polygamma", _polygamma, numpy=_reference, saves=(0,),
    samples=samples.calls(
        *((n, samples.array((2, 3), t, 0.3, 9)) for t in (np.float32, np.float64, np.float16) for n in (1, 2, 3))
    ),
    errors=[((1, np.zeros(2, "c8")), {}, DTypeError, "real dtype")],
)  # fmt: skip
