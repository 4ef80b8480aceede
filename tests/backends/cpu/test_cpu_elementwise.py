"""The CPU backend's lowering of each primitive, against NumPy and wider arithmetic.

Bounds are in ULP of the result's dtype. float32 is judged by float64, float64 by the long double
where that is wider. The exhaustive tests run only when asked for: `pytest -m slow`.
"""

from __future__ import annotations

import functools
import math
import re

import llvmlite.binding as llvm
import numpy as np
import pytest

from lazyt.backends.cpu.codegen import elementwise
from lazyt.backends.cpu.codegen.text import Body
from lazyt.backends.math.philox import philox_4x32_10
from lazyt.backends.math.vector import Vec
from lazyt.errors import LazytInternalError
from tests.support.accuracy import HEAD, PAGE, TAIL
from tests.support.elementwise_bounds import (
    AGAINST_GOLDEN,
    BINARY_ULP,
    LONG,
    NUMPY,
    UNARY_ULP,
    reference,
    scattered_powers,
    worst_float32,
)
from tests.support.vector_kernels import (
    BFLOAT16,
    BINARY,
    BOOL,
    F16,
    F32,
    F64,
    FLOATS,
    INTS,
    LANES,
    PREDICATES,
    caster,
    floats,
    integers,
    kernel,
    pairs,
    runner,
    same,
    text_of,
    within,
)

pytestmark = pytest.mark.usefixtures("quiet")

by_dtype = functools.partial(pytest.mark.parametrize, "dtype", ids=str)


@pytest.fixture
def asked_for(request):
    if "slow" not in request.config.option.markexpr.replace("not slow", ""):
        pytest.skip("exhaustive: run with -m slow")


# Floats


@pytest.mark.parametrize("op", UNARY_ULP)
@by_dtype([F32, F64])
def test_unary_functions_stay_within_their_bounds(op, dtype):
    if dtype == F64 and np.finfo(LONG).nmant <= 52:
        pytest.skip("long double is no wider than double here")
    x = floats(dtype, 20_000 if dtype == F32 else 4_000)
    wide = np.float64 if dtype == F32 else LONG
    exact = reference(op, wide)(x.astype(wide))
    within(kernel(op, dtype)(x), exact, UNARY_ULP[op][dtype == F64], x)


@pytest.mark.parametrize("op", ["sin", "cos", "tan"])
@by_dtype([F32, F64])
def test_huge_angles_are_reduced_exactly(op, dtype):
    top = float(np.finfo(dtype).maxexp)
    x = np.exp2(np.random.default_rng(0).uniform(20, top, 3000)).astype(dtype)
    # The double next to a multiple of pi/2 (Kahan's), and the float32 that is hardest to reduce.
    x = np.concatenate([x, -x, np.array([1e22, 6381956970095103 * 2.0**797, 16367173 * 2.0**72], dtype)])
    if dtype == F64 and np.finfo(LONG).nmant <= 52:
        pytest.skip("long double is no wider than double here")
    wide = np.float64 if dtype == F32 else LONG
    exact = reference(op, wide)(x.astype(wide))
    within(kernel(op, dtype)(x), exact, UNARY_ULP[op][dtype == F64], x)


@pytest.mark.parametrize("op", BINARY_ULP)
@by_dtype([F32, F64])
def test_binary_functions_stay_within_their_bounds(op, dtype):
    if dtype == F64 and np.finfo(LONG).nmant <= 52:
        pytest.skip("long double is no wider than double here")
    x, y = pairs(dtype)
    if op == "pow":
        a, b = scattered_powers(dtype)
        x, y = np.concatenate([x, a]), np.concatenate([y, b])
    if op == "logaddexp" and dtype == F64:
        # Where the sum is near 1 the terms cancel, and only the absolute error is small.
        x, y = np.abs(x), np.abs(y)
    wide = np.float64 if dtype == F32 else LONG
    exact = reference(op, wide)(x.astype(wide), y.astype(wide))
    within(kernel(op, dtype)(x, y), exact, BINARY_ULP[op][dtype == F64], x, y)


def test_pow_has_the_special_values_of_c99():
    cases = [
        (0.0, -1.0, math.inf), (-0.0, -3.0, -math.inf), (-0.0, -2.0, math.inf), (-0.0, 3.0, -0.0),
        (-1.0, math.inf, 1.0), (1.0, math.nan, 1.0), (math.nan, 0.0, 1.0), (-8.0, 1 / 3, math.nan),
        (0.5, -math.inf, math.inf), (2.0, -math.inf, 0.0), (-math.inf, -3.0, -0.0),
        (-math.inf, 3.0, -math.inf), (-math.inf, 0.5, math.inf), (-math.inf, 2.0, math.inf),
        (-2.0, 3.0, -8.0), (math.inf, -1.0, 0.0), (math.nan, 1.0, math.nan),
    ]  # fmt: skip
    for dtype in FLOATS:
        x, y, want = (np.array(v).astype(dtype) for v in zip(*cases, strict=True))
        same(kernel("pow", dtype)(x, y), want)


EXACT_UNARY = [
    "neg", "abs", "sign", "sqrt", "floor", "ceil", "trunc", "round", "isnan", "isinf", "isfinite",
    "signbit",
]  # fmt: skip
EXACT_BINARY = [
    "add", "sub", "mul", "div", "copysign", "nextafter", "floordiv", "rem", "fmod", "eq", "ne",
    "lt", "le", "gt", "ge", "maximum", "minimum",
]  # fmt: skip


def numpy_like(op, dtype, *args):
    """NumPy's result, the halves computed in float32 except where they are only moved."""
    f = getattr(np, NUMPY.get(op, op))
    if dtype.itemsize > 2 or op == "nextafter":
        return f(*args)
    r = f(*(a.astype(np.float32) for a in args))
    return r if r.dtype == BOOL else r.astype(dtype)


@pytest.mark.parametrize("op", EXACT_UNARY)
@by_dtype(FLOATS)
def test_unary_arithmetic_is_numpys(op, dtype):
    x = floats(dtype)
    same(kernel(op, dtype)(x), numpy_like(op, dtype, x))


@pytest.mark.parametrize("op", EXACT_BINARY)
@by_dtype(FLOATS)
def test_binary_arithmetic_is_numpys(op, dtype):
    x, y = pairs(dtype)
    got, want = kernel(op, dtype)(x, y), numpy_like(op, dtype, x, y)
    if op in ("maximum", "minimum"):
        # NumPy leaves open which of -0 and +0 is larger; here +0 is.
        zeros = (x == 0) & (y == 0)
        negative = np.signbit(x) & np.signbit(y) if op == "maximum" else np.signbit(x) | np.signbit(y)
        want = np.where(zeros, np.where(negative, -0.0, 0.0).astype(dtype), want)
    same(got, want)


@by_dtype([F16, BFLOAT16])
def test_halves_are_float32_rounded_once(dtype):
    x = np.arange(2**16, dtype=np.uint16).view(dtype)
    for op in UNARY_ULP:
        wide = kernel(op, F32)(x.astype(np.float32))
        same(kernel(op, dtype)(x), wide.astype(dtype), op)


@by_dtype([BOOL, *INTS, *FLOATS])
def test_select(dtype):
    a = np.arange(50).astype(dtype)
    b, c = a[::-1].copy(), np.arange(50) % 3 == 0
    np.testing.assert_array_equal(kernel("select", dtype)(c, a, b), np.where(c, a, b))


# Integers


def wrapped(value: int, dtype: np.dtype) -> int:
    bits = 8 * dtype.itemsize
    value &= 2**bits - 1
    return value - 2**bits if dtype.kind == "i" and value >> (bits - 1) else value


def integer_power(x: int, y: int, dtype: np.dtype) -> int:
    if y < 0:
        return x ** (y & 1) if x in (1, -1) else 0
    return pow(x, y, 2 ** (8 * dtype.itemsize))


INTEGER = {
    "add": lambda x, y, d: x + y,
    "sub": lambda x, y, d: x - y,
    "mul": lambda x, y, d: x * y,
    "floordiv": lambda x, y, d: x // y if y else 0,
    "rem": lambda x, y, d: x % y if y else 0,
    "fmod": lambda x, y, d: int(math.copysign(1, x)) * (abs(x) % abs(y)) if y else 0,
    "pow": integer_power,
    "maximum": lambda x, y, d: max(x, y),
    "minimum": lambda x, y, d: min(x, y),
    "and": lambda x, y, d: x & y,
    "or": lambda x, y, d: x | y,
    "xor": lambda x, y, d: x ^ y,
    "shl": lambda x, y, d: x << y if 0 <= y < 8 * d.itemsize else 0,
    "shr": lambda x, y, d: x >> (y if 0 <= y < 8 * d.itemsize else 99),
    "eq": lambda x, y, d: x == y,
    "ne": lambda x, y, d: x != y,
    "lt": lambda x, y, d: x < y,
    "le": lambda x, y, d: x <= y,
    "gt": lambda x, y, d: x > y,
    "ge": lambda x, y, d: x >= y,
    "neg": lambda x, d: -x,
    "abs": lambda x, d: abs(x),
    "sign": lambda x, d: (x > 0) - (x < 0),
    "not": lambda x, d: ~x,
    "popcount": lambda x, d: (x & (2 ** (8 * d.itemsize) - 1)).bit_count(),
}


@pytest.mark.parametrize("op", INTEGER)
@by_dtype(INTS)
def test_integers_wrap_and_never_trap(op, dtype):
    arrays = integers(dtype)[: 2 if op in BINARY else 1]
    if dtype.itemsize == 1 and op in BINARY:
        arrays = tuple(a[::7] for a in arrays) if op not in ("floordiv", "rem") else arrays
    got = kernel(op, dtype)(*arrays)
    exact = (INTEGER[op](*values, dtype) for values in zip(*(a.tolist() for a in arrays), strict=True))
    want = list(exact) if op in PREDICATES else [wrapped(v, dtype) for v in exact]
    np.testing.assert_array_equal(got, np.array(want, got.dtype))


@pytest.mark.parametrize("op", ["floordiv", "rem"])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_quotients_next_to_multiples(op, dtype):
    """Where a quotient by floats is nearest to another integer."""
    rng, info = np.random.default_rng(0), np.iinfo(dtype)
    divisors = [int(y) for y in rng.integers(info.min, info.max, 40, dtype, endpoint=True)]
    xs, ys = [], []
    for y in {*divisors, *(d // 2**k for d in divisors for k in (2, 5)), 1, 2, 3, 7, info.max, info.max - 1} - {0, -1}:
        most = max(-info.min, info.max) // abs(y)
        for n in {most, most // 2, most // 3, 1, *(int(most * v) for v in rng.random(20))}:
            near = [s * n * y + e for s in (1, -1) for e in (-1, 0, 1)]
            xs += [x for x in near if info.min <= x <= info.max]
            ys += [y] * (len(xs) - len(ys))
    want = [x // y if op == "floordiv" else x % y for x, y in zip(xs, ys, strict=True)]
    np.testing.assert_array_equal(kernel(op, np.dtype(dtype))(np.array(xs, dtype), np.array(ys, dtype)), want)


def test_bools():
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    like = {
        "add": "logical_or",
        "mul": "logical_and",
        "maximum": "logical_or",
        "minimum": "logical_and",
    }
    for op, kinds in elementwise.OPS.items():
        if "b" in kinds and op not in ("select", "not"):
            f = getattr(np, like.get(op, NUMPY.get(op, op)))
            np.testing.assert_array_equal(kernel(op, BOOL)(x, y), f(x, y), err_msg=op)
    np.testing.assert_array_equal(kernel("not", BOOL)(x), ~x)


# Random bits


PHILOX = [  # Random123's known answers: counter, key, words
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]  # fmt: skip


def test_philox_gives_the_known_answers():
    u32 = np.dtype("u4")

    def write(body, *x):
        words = [Vec(body, v, "i32", LANES) for v in x]
        return [v.name for v in philox_4x32_10(tuple(words[:2]), tuple(words[2:]))]

    run = runner(text_of(write, [u32] * 6, [u32] * 4), [u32] * 4)
    words = [np.array(v, np.uint32) for v in zip(*((*k, *c) for c, k, _ in PHILOX), strict=True)]
    np.testing.assert_array_equal(np.stack(run(*words), axis=1), [want for _, _, want in PHILOX])


def test_random_bits_place_their_words():
    u64, i64 = np.dtype("u8"), np.dtype("i8")

    def write(body, *x):
        return [elementwise.lower("random_bits", x, i64, body, LANES)]

    run = runner(text_of(write, [u64, u64, i64], [u64]), [u64])
    counter, key, want = PHILOX[2]
    seed, step, index = (np.array([low | high << 32]) for low, high in (key, counter[2:], counter[:2]))
    got = run(seed.astype(u64), step.astype(u64), index.astype(np.uint64).view(i64))
    assert got[0] == want[0] | want[1] << 32


# The table


def test_hosts_agree_bit_for_bit():
    """A processor without fma, f16c or AVX gives the same bits, by calls of the C library's fma."""
    if not llvm.get_process_triple().startswith("x86_64"):
        pytest.skip("needs another x86 target to compare with")
    for op in ("exp", "log", "sin", "tanh", "erf", "lgamma", "digamma", "pow", "rem", "round"):
        for dtype in (F32, F64):
            args = pairs(dtype, 300)[: 2 if op in BINARY else 1]
            old, new = kernel(op, dtype, "x86-64")(*args), kernel(op, dtype)(*args)
            same(old, new, f"{op} {dtype}")
    x = floats(F64, 1000)
    for target in (F32, BFLOAT16, *INTS):
        same(caster(F64, target, "x86-64")(x), caster(F64, target)(x), str(target))


def test_missing_rules_are_internal_errors():
    with pytest.raises(LazytInternalError, match="no rule for div on int32"):
        elementwise.lower("div", ["%x", "%y"], np.dtype("i4"), Body(), LANES)


def test_every_op_is_tested_on_all_its_dtypes():
    covered = dict.fromkeys((*UNARY_ULP, *BINARY_ULP, *AGAINST_GOLDEN, *EXACT_UNARY, *EXACT_BINARY), "f")
    for op in INTEGER:
        covered[op] = "iu" + covered.get(op, "")
    for op, kinds in elementwise.OPS.items():
        if op not in ("select", "random_bits"):
            assert set(kinds) - {"b"} == set(covered[op]), op


# All of float32


@pytest.mark.slow
@pytest.mark.parametrize("op", UNARY_ULP)
def test_every_float32(op, asked_for):
    worst, x = worst_float32(op)
    print(f"{op}: {worst:.4f} ULP at {x!r}")
    assert worst <= UNARY_ULP[op][0]


def test_the_docs_carry_the_table():
    """docs/accuracy.md has a line for each function, with errors within what is asserted; the rest is as written."""
    page = PAGE.read_text(encoding="utf-8")
    assert page.startswith(HEAD)
    assert page.endswith(TAIL)
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| .* \| ([\d.]+) \|", page, re.MULTILINE)
    assert [r[0] for r in rows] == [*UNARY_ULP, *BINARY_ULP]
    for op, single, double in rows:
        bounds = (UNARY_ULP | BINARY_ULP)[op]
        assert (float(single) <= bounds[0], float(double) <= bounds[1]) == (True, True), op
