"""Shared parts of the elementary functions of both precisions: constants, clamps, special values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lazyt.backends.math.vector import Vec, constant, fabs, where

if TYPE_CHECKING:
    from collections.abc import Callable

INF, NAN = math.inf, math.nan
# Added to a double below 2**51 it leaves the nearest integer in the low bits of the sum.
MAGIC = 1.5 * 2.0**52
ONE_BITS = 0x3FF0000000000000
# sqrt(1/2): a logarithm's argument is brought to [sqrt(1/2), sqrt(2)).
ROOT_BITS = 0x3FE6A09E667F3BCD
MANTISSA = 0xFFFFFFFFFFFFF


def at_least(x: Vec, low: float) -> Vec:
    """max(x, low), NaN kept."""
    return where(x < low, constant(x, low), x)


def at_most(x: Vec, high: float) -> Vec:
    """min(x, high), NaN kept."""
    return where(x > high, constant(x, high), x)


def vanishing(f: Callable[[Vec], Vec], x: Vec, low: float, high: float) -> Vec:
    """f(x), but 0 for x < low, of which f sees 0: a result that underflows takes a processor many times as long.

    f sees no more than `high`, and NaN.
    """
    # NOTE: so spelled both choices are masks of the instructions before them.
    there = x.compare("uge", low)
    return where(there, f(where(there, at_most(x, high), 0.0)), 0.0)


def log_limits(r: Vec, x: Vec, pole: float) -> Vec:
    """`r` with a logarithm's special values: -inf at the pole, NaN before it, inf and NaN kept."""
    r = where(x > pole, r, where(x.eq(pole), constant(x, -INF), NAN))
    return where(x < INF, r, x)


def power_limits(r: Vec, x: Vec, y: Vec) -> Vec:
    """`r` = |x|**y with pow's signs and special values, for any float type."""
    half = y * 0.5
    whole = y.eq(y.intrinsic("trunc"))
    odd = whole & half.ne(half.intrinsic("trunc"))
    r = where(odd & (x.as_int() < 0), -r, r)
    r = where((x < 0.0) & (x > -INF) & ~whole, constant(r, NAN), r)
    one = (fabs(x).eq(1.0) & fabs(y).eq(INF)) | x.eq(1.0) | y.eq(0.0)
    return where(one, constant(r, 1.0), r)
