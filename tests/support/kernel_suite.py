"""What every backend's kernels must do: tests that give kernels to `check`, which the tests of a backend define.

A test file takes them all (`from tests.support.kernel_suite import *`), with fixtures `check` and `rng`; others take
down the kernels and run them as they must (kernel_cases.py). Each stores what the interpreter of the kernel IR stores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from lazyt.ir import kernel as ir
from lazyt.ir.kernel_interpreter import Bound
from tests.support.kernel_builder import Builder, layernorm, reduction, softmax

# Compares what a kernel's code stores, in so many pieces, with the interpreter's, to the bit unless told otherwise.
Check = Callable[..., list[np.ndarray]]
BOOL, INT64, UINT64 = np.dtype(bool), np.dtype(np.int64), np.dtype(np.uint64)
F16, F32, F64, BF16 = np.dtype("f2"), np.dtype("f4"), np.dtype("f8"), np.dtype(ml_dtypes.bfloat16)
INTS = [np.dtype(c + n) for c in "iu" for n in "1248"]
FLOATS = [F16, BF16, F32, F64]
ALL = [BOOL, *INTS, *FLOATS]


def close(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=1e-5, atol=1e-6)


def same_bits(got: np.ndarray, want: np.ndarray) -> None:
    if got.dtype in FLOATS:
        kind = f"u{got.itemsize}"
        numbers = ~np.isnan(want.astype(np.float64))
        assert np.array_equal(np.isnan(got.astype(np.float64)), ~numbers)
        got, want = got.view(kind)[numbers], want.view(kind)[numbers]
    np.testing.assert_array_equal(got, want)


def sample(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Values with specials among the floats and extremes among the integers."""
    if dtype == BOOL:
        return rng.random(shape) < 0.5
    if dtype in FLOATS:
        x = (rng.normal(size=shape) * 4).astype(dtype)
        specials = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-7], dtype)
        return np.where(rng.random(shape) < 0.03, rng.choice(specials, shape), x).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def finite(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype in FLOATS:
        return rng.normal(size=shape).astype(dtype)
    return sample(rng, shape, dtype)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_map_tails_and_dtypes(check: Check, dtype: np.dtype, rng: np.random.Generator) -> None:
    name = "xor" if dtype == BOOL else "add"
    for n in [*range(41), 100, 8191, 8192, 8193, 20000]:
        a, b, out = sample(rng, (n,), dtype), sample(rng, (n,), dtype), np.zeros(n, dtype)
        k = Builder((n,))
        k.stage(k.store(k.op(name, k.load(a), k.load(b)), out))
        check(k, pieces=2)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_map_reads_and_writes_any_stride(check: Check, dtype: np.dtype, rng: np.random.Generator) -> None:
    for n in (0, 1, 15, 16, 17, 45):
        a, out = sample(rng, (3, 3 * n + 2), dtype), np.zeros((3, 2 * n + 1), dtype)
        k = Builder((3, n))
        source = a[:, 3 * n : 2 : -3] if n else a[:, :0]
        k.stage(k.store(k.load(source, classes="nn"), out[::-1, 1 : 2 * n : 2], "nn"))
        (got,) = check(k)
        want = np.zeros_like(out)
        want[::-1, 1 : 2 * n : 2] = source
        same_bits(got, want.reshape(-1))


@pytest.mark.parametrize("shape", [(3, 4, 37), (1, 5, 1), (0, 4, 3), (3, 0, 3), (2, 2, 0), (2, 3, 9000)])
def test_map_broadcasts_in_three_axes(check: Check, shape: tuple[int, ...], rng: np.random.Generator) -> None:
    a, b = finite(rng, shape, F32), finite(rng, (shape[1], 1), F32)
    c, d, out = finite(rng, (shape[2],), F32), finite(rng, (), F32), np.zeros(shape, F32)
    k = Builder(shape)
    s = k.op("mul", k.scalar(0.1, F32), k.load(d, classes="000"))
    x = k.op("mul", k.load(a, classes="nn1"), k.load(b, classes="0n0"))
    x = k.op("add", x, k.op("mul", s, k.load(c, classes="001")))
    k.stage(k.store(x, out, "nn1"))
    (got,) = check(k, pieces=3)
    np.testing.assert_array_equal(got.reshape(shape), a * b + (F32.type(0.1) * d) * c)


def test_map_transposed_and_many_outputs(check: Check, rng: np.random.Generator) -> None:
    a = finite(rng, (19, 23), F64)
    first, second = np.zeros((23, 19)), np.zeros((23, 19), INT64)
    k = Builder((23, 19))
    x = k.load(a.T)
    scaled = k.op("mul", x, k.const(100.5, F64))
    k.stage(k.store(k.op("sub", scaled, x), first), k.store(k.add(ir.Cast(scaled, INT64)), second))
    got = check(k)
    np.testing.assert_array_equal(got[0].reshape(23, 19), a.T * 100.5 - a.T)
    np.testing.assert_array_equal(got[1].reshape(23, 19), (a.T * 100.5).astype(INT64))


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_scalars_and_constants(check: Check, dtype: np.dtype) -> None:
    values: list[Any] = {"b": [True, False], "i": [-3, 2**40 + 5], "u": [7, 2**63]}.get(
        "f" if dtype == BF16 else dtype.kind, [0.1, 1e-9, float("inf"), 65519.99]
    )
    for x in values:
        out, other = np.zeros(5, dtype), np.zeros(5, dtype)
        k = Builder((5,))
        small = x if dtype.kind not in "iu" else x % 100
        k.stage(k.store(k.scalar(x, dtype), out), k.store(k.const(small, dtype), other))
        check(k)


def test_index_and_select(check: Check, rng: np.random.Generator) -> None:
    out, picked = np.zeros((7, 40), INT64), np.zeros((7, 40), INT64)
    k = Builder((7, 40))
    i = k.index((3, -2), 11)
    j = k.index((0, 1), -4)
    smaller = k.op("lt", i, j, dtype=BOOL)
    k.stage(k.store(i, out), k.store(k.op("select", smaller, i, j), picked))
    got = check(k)
    r, c = np.indices((7, 40))
    np.testing.assert_array_equal(got[0].reshape(7, 40), 3 * r - 2 * c + 11)
    np.testing.assert_array_equal(got[1].reshape(7, 40), np.minimum(3 * r - 2 * c + 11, c - 4))


@pytest.mark.parametrize("dtype", [BOOL, np.dtype("i1"), F16, BF16, F32, F64], ids=str)
def test_masked_load_pads(check: Check, dtype: np.dtype, rng: np.random.Generator) -> None:
    """Reads only where the condition holds: what is outside the array is never touched."""
    for strides in ("n1", "nn"):
        a, out = sample(rng, (5, 30), dtype), np.zeros((9, 50), dtype)
        k = Builder((9, 50))
        inside = None
        for axis, (low, n) in enumerate(((2, 5), (7, 30))):
            at = k.index(tuple(int(b == axis) for b in range(2)), -low)
            for term in (
                k.op("ge", at, k.const(0, INT64), dtype=BOOL),
                k.op("lt", at, k.scalar(n, INT64), dtype=BOOL),
            ):
                inside = term if inside is None else k.op("and", inside, term)
        k.accesses.append(ir.Access(dtype, strides))
        k.bounds.append(Bound(a.reshape(-1), -2 * 30 - 7, (30, 1)))
        k.stage(k.store(k.add(ir.Load(len(k.accesses) - 1, dtype, inside)), out))
        (got,) = check(k)
        same_bits(got, np.pad(a, ((2, 2), (7, 13))).reshape(-1))


def test_masked_load_of_one_element(check: Check) -> None:
    """A broadcast element under a condition that moves along the lanes, and one that does not."""
    x = np.array([3.5], F32)
    for fixed in (False, True):
        out = np.zeros((4, 20), F32)
        k = Builder((4, 20))
        i = k.index((1, 0) if fixed else (1, 1))
        where = k.op("gt", i, k.const(2, INT64), dtype=BOOL)
        k.stage(k.store(k.load(x, where, "00"), out))
        (got,) = check(k)
        r, c = np.indices((4, 20))
        np.testing.assert_array_equal(got.reshape(4, 20), np.where((r if fixed else r + c) > 2, 3.5, 0))


@pytest.mark.parametrize("dtype", [BOOL, np.dtype("u1"), np.dtype("i2"), F16, F32, F64], ids=str)
def test_gather(check: Check, dtype: np.dtype, rng: np.random.Generator) -> None:
    """out[i, j] = table[index[i], j] and table[index[j], i], by rows and by lanes."""
    table = sample(rng, (11, 37), dtype)
    index = rng.integers(0, 11, 37)
    for lanes, shape in ((False, (37, 37)), (True, (37, 37))):
        out = np.zeros(shape, dtype)
        k = Builder(shape)
        i = k.load(index if lanes else index[:, None], classes="01" if lanes else "10")
        checked = k.add(ir.Check(i, k.scalar(11, INT64), k.argument(77), INT64))
        k.accesses.append(ir.Access(dtype, "n0" if lanes else "01"))
        k.bounds.append(Bound(table.reshape(-1), 0, (1, 0) if lanes else (0, 1)))
        x = k.add(ir.Gather(len(k.accesses) - 1, ((checked, k.argument(37)),), dtype))
        k.stage(k.store(x, out))
        (got,) = check(k, pieces=2)
        same_bits(got, (table[index].T if lanes else table[index]).reshape(-1))


CASES = (
    [(n, d) for n in ("sum", "prod", "max", "min", "argmax", "argmin") for d in FLOATS]
    + [(n, d) for n in ("sum", "max", "argmin") for d in INTS]
    + [(n, BOOL) for n in ("any", "all", "max", "min", "argmax", "argmin")]
)


@pytest.mark.parametrize("vector", ["row", "outer"])
@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_reductions(check: Check, name: str, dtype: np.dtype, vector: str, rng: np.random.Generator) -> None:
    some = sample if name in ("max", "min", "argmax", "argmin") else finite
    sizes = [(5, 1), (3, 7), (4, 16), (37, 33), (2, 300)] + ([(2, 2100)] if vector == "row" else [])
    for shape in sizes:
        x = some(rng, shape, dtype)
        if name in ("any", "all"):
            x = rng.random(shape) < (0.03 if name == "any" else 0.97)
        if vector == "outer":
            x = np.ascontiguousarray(x.T).T
        k = reduction(name, x, vector)
        (got,) = check(k)
        with np.errstate(all="ignore"):
            if name in ("argmax", "argmin", "any", "all") and dtype != BF16:
                np.testing.assert_array_equal(got, getattr(np, name)(x, axis=1))
            elif dtype in (F32, F64) and name == "sum":
                close(got, x.sum(axis=1, dtype=F64))


@pytest.mark.parametrize("vector", ["row", "outer"])
@pytest.mark.parametrize(("name", "empty"), [("sum", 0), ("prod", 1), ("any", 0), ("all", 1)])
def test_reductions_of_nothing(check: Check, name: str, empty: int, vector: str) -> None:
    for shape in ((20, 0), (0, 5)):
        k = reduction(name, np.zeros(shape, BOOL if name in ("any", "all") else F32), vector)
        (got,) = check(k)
        assert got.tolist() == [empty] * shape[0]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["max", "min"])
def test_zeros_infinities_and_nans_among_extremes(check: Check, name: str, dtype: np.dtype) -> None:
    sign = 1 if name == "max" else -1
    rows = np.full((7, 40), -5.0 * sign)
    rows[0], rows[1] = -0.0, 0.0
    rows[2, 7], rows[2, 23] = -0.0, 0.0
    rows[3, 39] = np.nan
    rows[4, 0], rows[4, 1] = np.inf * sign, -np.nan
    rows[5] = -np.inf * sign
    rows[6] = 1e-7
    k = reduction(name, rows.astype(dtype), "row")
    (got,) = check(k)
    best = 0.0 * sign
    same_bits(got, np.array([-0.0, 0.0, best, np.nan, np.nan, -np.inf * sign, 1e-7]).astype(dtype))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_first_of_equals_and_first_nan_win(check: Check, name: str) -> None:
    def best(row: list[float], dtype: np.dtype = F32) -> int:
        k = reduction(name, np.array([row], dtype), "row")
        return int(check(k)[0][0])

    assert best([0.0, -0.0] * 20) == 0 == best([-0.0, 0.0] * 20)
    assert best([np.inf] * 40) == 0 == best([-np.inf] * 40)
    row = [1.0] * 50
    row[37] = row[41] = row[20] = np.nan
    row[3] = np.inf if name == "argmax" else -np.inf
    assert best(row) == 20
    assert best([5.0] * 17 + [7.0, 3.0] * 9) == (17 if name == "argmax" else 18)


@pytest.mark.parametrize("vector", ["row", "outer"])
@pytest.mark.parametrize("name", ["sum", "max", "all"])
def test_several_row_axes(check: Check, name: str, vector: str, rng: np.random.Generator) -> None:
    for shape in [(3, 5, 4, 33), (2, 40, 3, 1), (3, 2, 0, 5), (2, 3, 140, 2)]:
        if name == "max" and 0 in shape:
            continue
        x = (rng.random(shape) < 0.99) if name == "all" else finite(rng, shape, F32)
        k = reduction(name, x, vector, rows=2)
        check(k, pieces=2)


def test_row_kernel_without_outer_axes(check: Check, rng: np.random.Generator) -> None:
    x = finite(rng, (70000,), F32)
    k = reduction("sum", x, "row")
    check(k)
    np.testing.assert_allclose(check(k)[0][0], x.astype(F64).sum(), atol=1e-3)


def test_column_runs_cover_many_units(check: Check, rng: np.random.Generator) -> None:
    x = finite(rng, (2, 40, 1500), F32)
    k = reduction("sum", x.transpose(0, 2, 1), "outer")
    for pieces in (1, 3, 7):
        (got,) = check(k, pieces)
        close(got.reshape(2, 1500), x.sum(axis=1))


@pytest.mark.parametrize("vector", ["row", "outer"])
def test_softmax(check: Check, vector: str, rng: np.random.Generator) -> None:
    for shape in [(3, 5), (2, 130), (70, 19)]:
        for dtype in (F32, F64):
            x = finite(rng, shape, dtype)
            axis = 1 if vector == "row" else 0
            (got,) = check(softmax(x, vector, axis), exact=False)
            e = np.exp(x - x.max(axis=axis, keepdims=True))
            close(got.reshape(shape), e / e.sum(axis=axis, keepdims=True))


@pytest.mark.parametrize("vector", ["row", "outer"])
def test_layernorm(check: Check, vector: str, rng: np.random.Generator) -> None:
    for shape in [(5, 33), (35, 3), (1, 768), (0, 3)]:
        x, w, b = finite(rng, shape, F32), finite(rng, shape[1:], F32), finite(rng, shape[1:], F32)
        k = layernorm(x, w, b, vector)
        got, mean = check(k)
        want = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w + b
        np.testing.assert_allclose(got.reshape(shape), want, rtol=1e-3, atol=1e-4)
        close(mean, x.mean(1))


@pytest.mark.parametrize("vector", ["row", "outer"])
def test_a_sum_has_the_same_bits_alone_and_fused(check: Check, vector: str, rng: np.random.Generator) -> None:
    x = finite(rng, (6, 2500), F32)
    if vector == "outer":
        x = np.asfortranarray(x)
        x = np.ascontiguousarray(x.T).T
    ones = np.ones(2500, F32)
    alone = check(reduction("sum", x, vector))[0]
    k = layernorm(x, ones, ones, vector)
    mean = check(k)[1]
    same_bits(mean, alone * F32.type(1.0 / 2500))


def scaled_columns(x: np.ndarray, b: np.ndarray) -> Builder:
    """x * (b / 3) by columns: b moves along the lanes but not along the rows."""
    k = Builder((*b.shape, len(x)), 1, "outer")
    e = k.op("div", k.load(b[:, None]), k.const(3, F32))
    k.stage(k.store(k.op("mul", k.load(x.T), e), np.zeros(x.shape, F32).T), loops=True)
    return k


def test_kept_values_are_computed_once_a_column(check: Check, rng: np.random.Generator) -> None:
    x, b = finite(rng, (50, 21), F32), finite(rng, (21,), F32)
    (got,) = check(scaled_columns(x, b))
    same_bits(got.reshape(50, 21), x * (b / F32.type(3)))


def test_in_place_stages_see_earlier_stores(check: Check, rng: np.random.Generator) -> None:
    """exp(x) is stored by one stage and read by the next, through an access to the same memory."""
    x, out = finite(rng, (4, 100), F32), np.zeros((4, 100), F32)
    k = Builder((4, 100), 1, "row")
    e = k.op("exp", k.load(x))
    total = k.reduce("sum", e)
    k.stage(k.store(e, out), reduces=(total,), loops=True)
    again = k.load(out)
    k.stage(ir.Store(k.stages[0].stores[0].access, k.op("div", again, total)), loops=True)
    (got,) = check(k, exact=False)
    close(got.reshape(4, 100), np.exp(x) / np.exp(x).sum(1, keepdims=True))


def test_random_bits(check: Check) -> None:
    out = np.zeros(40, UINT64)
    k = Builder((40,))
    seed, counter = k.scalar(2**63 + 12345, UINT64), k.scalar(7, UINT64)
    k.stage(k.store(k.op("random_bits", seed, counter, k.index((1,), 2**32 - 5), dtype=UINT64), out))
    check(k)


MIXED = ["add", "sub", "mul", "maximum", "minimum"]


class Grower:
    """A builder to which hypothesis adds values: the last ones drawn are what stages use."""

    def __init__(self, draw: Any, k: Builder, dtype: np.dtype) -> None:
        self.draw, self.k, self.dtype = draw, k, dtype
        self.rng = np.random.default_rng(draw(st.integers(0, 99)))
        self.ready = [k.const(3, dtype)]

    def one(self) -> int:
        return int(self.draw(st.sampled_from(self.ready)))

    def grow(self) -> None:
        k, draw = self.k, self.draw
        match draw(st.sampled_from(["load", "load", "op", "op", "op", "index", "where"])):
            case "load":
                self.ready.append(self.load(None))
            case "where":
                less = k.op("lt", self.one(), self.one(), dtype=BOOL)
                self.ready.append(self.load(less))
            case "index":
                i = k.index(tuple(draw(st.integers(-2, 2)) for _ in k.extents), 1)
                self.ready.append(k.add(ir.Cast(i, self.dtype)))
            case _:
                self.ready.append(k.op(draw(st.sampled_from(MIXED)), self.one(), self.one()))

    def load(self, where: int | None) -> int:
        extents = self.k.extents
        shape = tuple(n if self.draw(st.booleans()) else 1 for n in extents)
        order = self.draw(st.permutations(range(len(extents))))
        x = finite(self.rng, tuple(shape[a] for a in order), self.dtype)
        x = x.transpose(np.argsort(order))
        if self.draw(st.booleans()):
            x = np.flip(x)
        return self.k.load(np.broadcast_to(x, extents), where)


@st.composite
def kernels(draw: Any) -> Builder:
    vector = draw(st.sampled_from(["row", "outer", "map"]))
    rows = 0 if vector == "map" else draw(st.integers(1, 2))
    outer = draw(st.integers(0 if vector == "row" else 1, 2))
    extents = tuple(draw(st.sampled_from([1, 2, 3, 5, 18, 0])) for _ in range(outer + rows))
    k = Builder(extents, rows, "outer" if vector == "map" else vector)
    dtype = draw(st.sampled_from([F32, F32, F64, F16, np.dtype("i4"), np.dtype("u1")]))
    names = ["sum", "prod"] if 0 in extents else ["sum", "prod", "max", "min"]
    g = Grower(draw, k, dtype)
    reduces: list[int] = []
    for _ in range(draw(st.integers(1, 3)) if rows else 0):
        for _ in range(draw(st.integers(1, 4))):
            g.grow()
        some = [(draw(st.sampled_from(names)), g.one()) for _ in range(draw(st.integers(1, 2)))]
        reduces = [k.reduce(name, x) for name, x in some]
        k.stage(reduces=tuple(reduces), loops=True)
        g.ready += reduces
    for _ in range(draw(st.integers(1, 4))):
        g.grow()
    outputs = [k.store(g.one(), np.zeros(extents, dtype)) for _ in range(draw(st.integers(1, 2)))]
    k.stage(*outputs, loops=rows > 0)
    if reduces and draw(st.booleans()):
        k.stage(k.store_once(reduces[0], np.zeros(extents[:outer], dtype)))
    return k


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(kernels(), st.integers(1, 3))
def test_random_kernels(check: Check, k: Builder, pieces: int) -> None:
    check(k, pieces)
