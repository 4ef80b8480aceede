"""Special cases of the Array API's elementwise functions: signed zeros, infinities, NaN, subnormals; complex too.

A row is a function, what it takes, and what it gives. Zeros compare with their signs, an infinite or NaN part alone.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import lazyt as lt

inf, nan, pi = math.inf, math.nan, math.pi
# A complex literal adds its parts, which loses signs of zeros and makes NaN of infinities.
c = complex
ANY = object()  # a zero whose sign is not specified, or a part that is not

REAL = {
    "abs": [(-0.0, 0.0), (-inf, inf), (nan, nan), (-5e-324, 5e-324)],
    "acos": [(1.5, nan), (-1.5, nan), (1.0, 0.0)],
    "acosh": [(0.5, nan), (1.0, 0.0), (inf, inf)],
    "asin": [(1.5, nan), (0.0, 0.0), (-0.0, -0.0)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -inf)],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (inf, pi / 2), (-inf, -pi / 2)],
    "atanh": [(1.5, nan), (-1.5, nan), (-1.0, -inf), (1.0, inf), (0.0, 0.0), (-0.0, -0.0)],
    "ceil": [(-0.5, -0.0), (0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -inf)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (inf, nan), (-inf, nan)],
    "cosh": [(0.0, 1.0), (-0.0, 1.0), (inf, inf), (-inf, inf)],
    "exp": [(0.0, 1.0), (-0.0, 1.0), (inf, inf), (-inf, 0.0)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -1.0), (5e-324, 5e-324)],
    "floor": [(-0.0, -0.0), (0.5, 0.0), (inf, inf), (-inf, -inf)],
    "isfinite": [(inf, 0), (-inf, 0), (nan, 0), (5e-324, 1)],
    "isinf": [(inf, 1), (-inf, 1), (nan, 0)],
    "isnan": [(nan, 1), (inf, 0)],
    "log": [(-1.0, nan), (0.0, -inf), (-0.0, -inf), (1.0, 0.0), (inf, inf)],
    "log10": [(-1.0, nan), (0.0, -inf), (-0.0, -inf), (1.0, 0.0), (inf, inf)],
    "log1p": [(-1.5, nan), (-1.0, -inf), (-0.0, -0.0), (0.0, 0.0), (inf, inf), (-5e-324, -5e-324)],
    "log2": [(-1.0, nan), (0.0, -inf), (-0.0, -inf), (1.0, 0.0), (inf, inf)],
    "negative": [(0.0, -0.0), (-0.0, 0.0), (inf, -inf)],
    "positive": [(-0.0, -0.0), (nan, nan)],
    "reciprocal": [(0.0, inf), (-0.0, -inf), (inf, 0.0), (-inf, -0.0), (nan, nan)],
    "round": [(-0.0, -0.0), (-0.4, -0.0), (0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-2.5, -2.0), (inf, inf)],
    "sign": [(-0.0, ANY), (-2.0, -1.0), (inf, 1.0), (-inf, -1.0), (nan, nan), (5e-324, 1.0)],
    "signbit": [(0.0, 0), (-0.0, 1), (inf, 0), (-inf, 1), (-5e-324, 1)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (inf, nan), (-inf, nan)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -inf)],
    "sqrt": [(-1.0, nan), (0.0, 0.0), (-0.0, -0.0), (inf, inf)],
    "square": [(-0.0, 0.0), (-inf, inf)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (inf, nan)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (inf, 1.0), (-inf, -1.0)],
    "trunc": [(-0.5, -0.0), (-0.0, -0.0), (0.5, 0.0), (inf, inf), (-inf, -inf)],
}  # fmt: skip
# NaN goes through all of these.
NAN_THROUGH = REAL.keys() - {"isfinite", "isinf", "isnan", "signbit"}

BINARY = {
    "add": [(inf, -inf, nan), (inf, 1.0, inf), (-0.0, -0.0, -0.0), (-0.0, 0.0, 0.0), (nan, inf, nan)],
    "atan2": [
        (1.0, 0.0, pi / 2), (0.0, 1.0, 0.0), (0.0, 0.0, 0.0), (0.0, -0.0, pi), (-0.0, 0.0, -0.0), (-0.0, -0.0, -pi),
        (-0.0, -1.0, -pi), (1.0, inf, 0.0), (1.0, -inf, pi), (-1.0, inf, -0.0), (-1.0, -inf, -pi), (inf, 2.0, pi / 2),
        (inf, inf, pi / 4), (inf, -inf, 3 * pi / 4), (-inf, inf, -pi / 4), (-inf, -inf, -3 * pi / 4), (nan, 1.0, nan),
    ],
    "copysign": [(nan, 1.0, nan), (1.0, -0.0, -1.0), (-1.0, 0.0, 1.0), (0.0, -1.0, -0.0), (inf, -nan, ANY)],
    "divide": [
        (inf, inf, nan), (0.0, 0.0, nan), (0.0, -1.0, -0.0), (1.0, 0.0, inf), (1.0, -0.0, -inf), (-1.0, inf, -0.0),
        (inf, -1.0, -inf), (5e-324, 2.0, 0.0),
    ],
    "floor_divide": [
        (inf, 2.0, inf), (inf, -2.0, -inf), (-inf, 2.0, -inf), (-inf, -2.0, inf), (1.0, inf, 0.0), (1.0, -inf, -0.0),
        (-1.0, inf, -0.0), (-1.0, -inf, 0.0), (inf, inf, nan), (0.0, 0.0, nan), (0.0, -1.0, -0.0), (-0.0, 1.0, -0.0),
        (1.0, 0.0, inf), (1.0, -0.0, -inf), (nan, 1.0, nan), (1.0, nan, nan), (7.0, -2.0, -4.0), (inf, 0.0, inf),
    ],
    "hypot": [(nan, inf, inf), (inf, nan, inf), (nan, 1.0, nan), (-0.0, -0.0, 0.0), (3.0, -4.0, 5.0)],
    "logaddexp": [(nan, 1.0, nan), (inf, 1.0, inf), (inf, -inf, inf), (-inf, -inf, -inf), (inf, nan, nan)],
    "maximum": [(nan, 1.0, nan), (1.0, nan, nan), (-inf, 1.0, 1.0)],
    "minimum": [(nan, 1.0, nan), (1.0, nan, nan), (inf, 1.0, 1.0)],
    "multiply": [(inf, 0.0, nan), (inf, -1.0, -inf), (-0.0, 1.0, -0.0), (5e-324, 0.25, 0.0)],
    "nextafter": [(0.0, -0.0, -0.0), (-0.0, 0.0, 0.0), (nan, 1.0, nan), (1.0, 1.0, 1.0)],
    "pow": [
        (nan, 0.0, 1.0), (nan, -0.0, 1.0), (inf, 0.0, 1.0), (nan, 1.0, nan), (2.0, inf, inf), (2.0, -inf, 0.0),
        (1.0, inf, 1.0), (-1.0, inf, 1.0), (1.0, nan, 1.0), (0.5, inf, 0.0), (0.5, -inf, inf), (inf, 2.0, inf),
        (inf, -2.0, 0.0), (-inf, 3.0, -inf), (-inf, 2.0, inf), (-inf, -3.0, -0.0), (-inf, -2.0, 0.0), (0.0, 2.0, 0.0),
        (0.0, -2.0, inf), (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0), (-0.0, -3.0, -inf), (-0.0, -2.0, inf), (-2.0, 0.5, nan),
    ],
    "remainder": [
        (nan, 1.0, nan), (inf, 1.0, nan), (0.0, 0.0, nan), (0.0, 1.0, 0.0), (-0.0, 1.0, ANY), (1.0, 0.0, nan),
        (1.0, inf, 1.0), (1.0, -inf, -inf), (-1.0, inf, inf), (-1.0, -inf, -1.0), (-3.0, 2.0, 1.0), (4.0, -2.0, -0.0),
    ],
    "subtract": [(inf, inf, nan), (0.0, 0.0, 0.0), (-0.0, 0.0, -0.0)],
}  # fmt: skip

COMPLEX = {
    "abs": [(c(inf, nan), inf), (c(nan, -inf), inf), (c(nan, 1), nan), (c(-0.0, 0), 0.0)],
    "acosh": [(c(-inf, inf), c(inf, 3 * pi / 4)), (c(inf, 1), c(inf, 0)), (c(0, 0), c(0, pi / 2))],
    "asinh": [(c(0, 0), c(0, 0)), (c(inf, inf), c(inf, pi / 4)), (c(nan, 0), c(nan, 0)), (c(1, inf), c(inf, pi / 2))],
    "atanh": [(c(0, 0), c(0, 0)), (c(1, 0), c(inf, 0)), (c(1, inf), c(0, pi / 2)), (c(inf, inf), c(0, pi / 2))],
    "cosh": [(c(0, 0), c(1, 0)), (c(inf, 0), c(inf, 0)), (c(inf, inf), c(inf, nan)), (c(nan, nan), c(nan, nan))],
    "exp": [
        (c(-0.0, 0), c(1, 0)), (c(1, inf), c(nan, nan)), (c(inf, 0), c(inf, 0)), (c(-inf, nan), c(0, 0)),
        (c(inf, inf), c(inf, nan)), (c(inf, nan), c(inf, nan)), (c(nan, 0), c(nan, 0)),
    ],
    "expm1": [
        (c(0, 0), c(0, 0)), (c(-0.0, 0), c(0, 0)), (c(1, inf), c(nan, nan)), (c(inf, 0), c(inf, 0)),
        (c(-inf, 2), c(-1, 0)), (c(inf, 2), c(-inf, inf)), (c(-inf, inf), c(-1, 0)), (c(inf, inf), c(inf, nan)),
        (c(-inf, nan), c(-1, 0)), (c(inf, nan), c(inf, nan)), (c(nan, 0), c(nan, 0)), (c(nan, 1), c(nan, nan)),
    ],
    "log": [
        (c(-0.0, 0), c(-inf, pi)), (c(0, 0), c(-inf, 0)), (c(1, inf), c(inf, pi / 2)), (c(-inf, 1), c(inf, pi)),
        (c(-inf, inf), c(inf, 3 * pi / 4)), (c(inf, nan), c(inf, nan)), (c(nan, inf), c(inf, nan)),
    ],
    "log2": [(c(0, 0), c(-inf, 0)), (c(-0.0, 0), c(-inf, pi / math.log(2))), (c(inf, nan), c(inf, nan))],
    "log1p": [(c(-1, 0), c(-inf, 0)), (c(1, inf), c(inf, pi / 2)), (c(inf, inf), c(inf, pi / 4))],
    "reciprocal": [(c(1, 1), c(0.5, -0.5)), (c(0, 2), c(0, -0.5))],
    "sign": [(c(0, 0), c(0, 0)), (c(3, 4), c(0.6, 0.8)), (c(nan, 1), c(nan, nan)), (c(1, nan), c(nan, nan))],
    "sinh": [(c(0, 0), c(0, 0)), (c(inf, 0), c(inf, 0)), (c(inf, inf), c(inf, nan)), (c(nan, 0), c(nan, 0))],
    "sqrt": [
        (c(-0.0, 0), c(0, 0)), (c(1, inf), c(inf, inf)), (c(nan, inf), c(inf, inf)), (c(-inf, 1), c(0, inf)),
        (c(inf, 1), c(inf, 0)), (c(inf, nan), c(inf, nan)), (c(nan, 1), c(nan, nan)),
    ],
    "tanh": [
        (c(0, 0), c(0, 0)), (c(1, inf), c(nan, nan)), (c(inf, 1), c(1, 0)), (c(inf, 2), c(1, 0)),
        (c(-inf, 2), c(-1, 0)), (c(inf, -2), c(1, -0.0)), (c(inf, inf), c(1, 0)),
        (c(inf, nan), c(1, 0)), (c(nan, 0), c(nan, 0)),
    ],
}  # fmt: skip


def alike(got: float, want: object, tolerance: float) -> bool:
    """Equal with signs of zeros, or NaN both, or finite and near; `ANY` is anything."""
    if want is ANY:
        return True
    if math.isnan(want) or math.isnan(got):
        return math.isnan(want) and math.isnan(got)
    if want == 0 or math.isinf(want) or abs(want) < 1e-30:
        return got == want and math.copysign(1, got) == math.copysign(1, want)
    return math.isclose(got, want, rel_tol=tolerance)


def check(f: str, dtype: str, rows: list[tuple[object, ...]], tolerance: float) -> None:
    *inputs, wanted = zip(*rows, strict=True)
    arrays = [np.array(i, dtype) for i in inputs]
    got = getattr(lt, f)(*map(lt.asarray, arrays)).numpy().tolist()
    for row, y, want in zip(rows, got, wanted, strict=True):
        parts = [(y.real, want.real), (y.imag, want.imag)] if isinstance(want, complex) else [(y, want)]
        assert all(alike(a, b, tolerance) for a, b in parts), f"{f}{row[:-1]} is {y}, not {want}, for {dtype}"


TOLERANCES = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-6, "float64": 1e-13}


def rows_for(dtype: str, rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """The rows with the dtype's own least subnormal in place of float64's."""
    tiny = lt.finfo(dtype).smallest_subnormal
    swap = {5e-324: tiny, -5e-324: -tiny}
    return [tuple(swap.get(v, v) if isinstance(v, float) else v for v in row) for row in rows]


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("f", REAL)
def test_real(f, dtype):
    rows = [*REAL[f], *([(nan, nan)] if f in NAN_THROUGH else [])]
    check(f, dtype, rows_for(dtype, rows), TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("f", BINARY)
def test_binary(f, dtype):
    check(f, dtype, rows_for(dtype, BINARY[f]), TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("f", COMPLEX)
def test_complex(f, dtype):
    check(f, dtype, COMPLEX[f], 1e-6 if dtype == "complex64" else 1e-13)


# Functions for which f(conj z) is the conjugate of f(z).
MIRRORED = ("exp", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh")


@pytest.mark.parametrize("f", MIRRORED)
def test_conjugates(f):
    parts = (0.0, -0.0, 0.5, -2.0, inf, -inf, nan)
    z = np.array([c(a, b) for a, b in itertools.product(parts, (0.0, 0.5, 2.0, inf))])
    got, mirrored = (getattr(lt, f)(lt.asarray(x)).numpy() for x in (z, z.conj()))
    np.testing.assert_array_equal(mirrored, got.conj())
    defined = ~np.isnan(got.imag)
    # The standard leaves the sign of some zeros open where the other part is infinite or NaN.
    defined &= (got.imag != 0) | np.isfinite(z)
    np.testing.assert_array_equal(np.signbit(mirrored.imag)[defined], ~np.signbit(got.imag)[defined])


def test_floor_division_agrees_in_every_form():
    x, y = (
        np.array(v) for v in zip(*itertools.product((inf, -inf, 2.5, -2.5, nan), (inf, -inf, 2.0, nan)), strict=True)
    )
    with np.errstate(invalid="ignore"):
        want = np.floor(x / y)
    a, b = lt.asarray(x), lt.asarray(y)
    inplace = lt.asarray(x, copy=True)
    inplace //= b
    for got in (a // b, lt.floor_divide(a, b), lt.divmod(a, b)[0], inplace):
        np.testing.assert_array_equal(got.numpy(), want)
        np.testing.assert_array_equal(np.signbit(got.numpy()), np.signbit(want))
    whole = lt.asarray([7, -7]) // 0
    assert whole.tolist() == [0, 0]


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "min", "std", "var"])
def test_nan_goes_through_reductions(name):
    x = np.arange(40.0).reshape(4, 10)
    x[2, 7] = nan
    got = getattr(lt, name)(lt.asarray(x), axis=1).numpy()
    assert np.isnan(got).tolist() == [False, False, True, False]
