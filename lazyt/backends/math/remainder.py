"""Float remainders and the floored quotient: an exact fmod, and NumPy's arithmetic around it."""

from __future__ import annotations

from lazyt.backends.math.control import outlined, repeat
from lazyt.backends.math.vector import Rules, Vec, constant, copysign, fabs, fma, where

INF = float("inf")
STEP = 2.0**540


def _fmod(x: Vec, y: Vec) -> tuple[Vec, ...]:
    """The sign of x, and less than |y|.

    r - q*y is exact where q = r/y is rounded to nearest, then to an integer (a property of the IEEE
    remainder); each round takes 52 bits off. A quotient that might overflow is taken of y*2**k.
    """
    a, b = fabs(x), fabs(y)
    once = b * STEP

    def step(r: Vec) -> tuple[tuple[Vec, ...], Vec]:
        size = fabs(r) * (1 / STEP)
        by = where(size > b, where(size > once, once * STEP, once), b)
        q = (r / by).intrinsic("roundeven")
        r = fma(-q, by, r)
        return (r,), fabs(r) >= b

    (r,) = repeat((a,), step)
    r = where(r < 0.0, r + b, r)
    r = where(b.eq(INF) & (a < INF), a, r)
    return (where(y.isnan(), y, copysign(r, x)),)


def fmod(x: Vec, y: Vec) -> Vec:
    """C's fmod, of float32 (whose result is float32 exactly) or float64."""
    wide = [v if v.element == "double" else v.convert("fpext", "double") for v in (x, y)]
    (r,) = outlined("lazyt.fmod", ("double",), tuple(wide), _fmod)
    return r if x.element == "double" else r.convert("fptrunc", x.element)


def _off(m: Vec, y: Vec) -> Vec:
    """Where the truncated remainder `m` has not y's sign."""
    return m.ne(0.0) & ((y < 0.0) ^ (m < 0.0))


def rem(x: Vec, y: Vec) -> Vec:
    """The remainder with y's sign, a zero with y's sign too."""
    m = fmod(x, y)
    r = where(_off(m, y), m + y, m)
    return where(m.eq(0.0), copysign(constant(y, 0.0), y), r)


def floordiv(x: Vec, y: Vec) -> Vec:
    m = fmod(x, y)
    q = (x - m) / y
    q = where(_off(m, y), q - 1.0, q)
    low = q.intrinsic("floor")
    low = where((q - low) > 0.5, low + 1.0, low)
    ratio = x / y
    low = where(q.eq(0.0), copysign(constant(x, 0.0), ratio), low)
    return where(y.eq(0.0), ratio, low)


RULES: Rules = {"fmod": fmod, "rem": rem, "floordiv": floordiv}
