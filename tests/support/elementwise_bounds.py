"""How far elementary functions may be from their exact values, and how that is measured."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest

from tests.support.vector_kernels import (
    F32,
    kernel,
    ulp_error,
)

LONG = np.longdouble


NUMPY = {
    "sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negative", "round": "rint",
    "floordiv": "floor_divide", "rem": "remainder", "eq": "equal", "ne": "not_equal",
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "pow": "power",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "not": "invert",
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2",
    "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
}  # fmt: skip


# The bounds that are asserted: (float32, float64).
UNARY_ULP = {
    "exp": (1.05, 0.8), "exp2": (0.53, 0.8), "expm1": (0.51, 1.1), "log": (0.81, 0.7),
    "log2": (1.05, 0.7), "log10": (0.95, 0.7), "log1p": (0.85, 0.8), "sin": (0.51, 0.8),
    "cos": (0.51, 0.8), "tan": (0.53, 0.9), "asin": (0.51, 0.7), "acos": (1.0, 0.7),
    "atan": (0.51, 1.3), "sinh": (0.51, 1.0), "cosh": (0.53, 0.8), "tanh": (1.4, 0.9),
    "asinh": (0.52, 1.1), "acosh": (0.511, 0.7), "atanh": (0.75, 1.1), "erf": (1.15, 1.0),
    "erfc": (0.56, 2.0), "rsqrt": (1.5, 1.5),
}  # fmt: skip


# Without a wider reference on every machine: tests/functions/test_special_functions.py compares with a golden file.
AGAINST_GOLDEN = ("digamma", "erfinv", "lgamma")


BINARY_ULP = {
    "pow": (0.53, 0.8),
    "atan2": (1.45, 1.3),
    "hypot": (0.51, 0.6),
    "logaddexp": (0.51, 1.5),
}


def libm(name: str):
    """A long double function of the C library over arrays; ctypes rounds its result to a double."""
    f = getattr(ctypes.CDLL(None), name)
    f.restype, f.argtypes = ctypes.c_longdouble, [ctypes.c_longdouble]
    scalar = np.frompyfunc(lambda x: f(ctypes.c_longdouble(x)), 1, 1)
    return lambda x: scalar(x.astype(np.float64)).astype(LONG)


def reference(op: str, wide):
    """`op` by NumPy at a wider dtype."""
    if op == "rsqrt":
        return lambda x: 1 / np.sqrt(x)
    if op in ("erf", "erfc"):
        if wide == LONG:
            return libm(f"{op}l")
        return np.vectorize(getattr(math, op), otypes=[np.float64])
    return getattr(np, NUMPY.get(op, op))


def scattered_powers(dtype):
    """Bases and exponents whose power neither overflows nor is 1."""
    rng = np.random.default_rng(11)
    limit = 120 if dtype == F32 else 1000
    near = rng.uniform(-1, 1, 8000) * np.exp2(rng.uniform(-20, -1, 8000))
    x = np.concatenate([1 + near, np.exp2(rng.uniform(-30, 30, 8000))]).astype(dtype)
    y = (rng.uniform(-limit, limit, 16000) / np.log2(x.astype(np.float64))).astype(dtype)
    return x, y


# Functions whose value at -x is that at x, or its negative, to the bit: exact values of one half of the inputs will do.
EVEN = {"cos", "cosh"}
ODD = {"sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf"}


def mirrored(op: str, got: np.ndarray, at_minus: np.ndarray) -> bool:
    """Whether an even or odd function has the bits at -x that it has at x, but for the sign of an odd one's."""
    same = at_minus.view(np.uint32) == (got if op in EVEN else -got).view(np.uint32)
    return bool((same | (np.isnan(got) & np.isnan(at_minus))).all())


def worst_float32(op: str, every: int = 1) -> tuple[float, np.float32]:
    """The largest error of `op` over every float32, or every so many, in ULP, and the input that has it."""
    if op in ("erf", "erfc"):
        exact_of = getattr(pytest.importorskip("scipy.special"), op)
    else:
        exact_of = reference(op, np.float64)
    run, chunk = kernel(op, F32), 2**20 * every
    worst, at = 0.0, F32.type(0)
    end = 2**31 if op in EVEN | ODD else 2**32
    for start in range(0, end, chunk):
        x = np.arange(start, min(start + chunk, end), every, dtype=np.uint64).astype(np.uint32).view(F32)
        got, exact = run(x), exact_of(x.astype(np.float64))
        assert end == 2**32 or mirrored(op, got, run(-x)), f"{op}: other bits at -x"
        nearest = exact.astype(F32)
        # Most are the nearest float32 outright; the rest are measured.
        off = (got.view(np.uint32) != nearest.view(np.uint32)) & ~(np.isnan(got) & np.isnan(nearest))
        if off.any():
            error = ulp_error(got[off], exact[off])
            if error.max() > worst:
                worst, at = float(error.max()), x[off][error.argmax()]
    return worst, at
