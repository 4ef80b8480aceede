"""How the generated CUDA C gives points to threads, and the arithmetic that is the GPU's own: run on the CPU."""

from __future__ import annotations

import dataclasses
from unittest import mock

import numpy as np
import pytest

from lazyt.backends.cuda.codegen import mapping as mapping_module
from lazyt.backends.cuda.codegen.emit import alone
from lazyt.backends.cuda.codegen.mapping import divisors, extras, kept_slots, magic, sizes
from lazyt.backends.cuda.flags import switches
from lazyt.ir.kernel import Cast
from tests.support.cuda.checking import chosen, verify
from tests.support.cuda.shim import Library
from tests.support.kernel_builder import Builder, layernorm, softmax
from tests.support.kernel_cases import Case
from tests.support.kernel_suite import F32, same_bits
from tests.support.vector_kernels import BFLOAT16, ulp_error

pytestmark = pytest.mark.usefixtures("cpp_compiler")


def across(x: np.ndarray, y: np.ndarray) -> Builder:
    """x.T + y as a map over a row axis, its lanes along the last outer axis."""
    out = np.zeros(y.shape, y.dtype)
    lanes = Builder((*y.shape[:-2], y.shape[-1], y.shape[-2]), 1, "outer")
    swap = (*range(y.ndim - 2), y.ndim - 1, y.ndim - 2)
    classes = "n" * (x.ndim - 1) + {1: "1", -1: "-"}[x.strides[-1] // x.itemsize]
    total = lanes.op("add", lanes.load(x, classes=classes), lanes.load(y.transpose(swap)))
    lanes.stage(lanes.store(total, out.transpose(swap)), loops=True)
    return lanes


SHAPES = [(1, 1), (31, 33), (32, 32), (64, 96), (33, 130), (3, 40, 35), (2, 2, 5, 65)]


@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "i2"])
def test_reads_across_memory_go_through_tiles(dtype: str) -> None:
    rng = np.random.default_rng(5)
    pairs = []
    for shape in SHAPES:
        y = rng.integers(0, 99, size=shape).astype(dtype)
        x = rng.integers(0, 99, size=(*shape[:-2], shape[-1], shape[-2])).astype(dtype)
        for k in (across(x, y), across(x, y[..., ::-1, :]), across(x[..., ::-1], y)):
            case = Case.of(k)
            mapping = chosen(case.kernel, case.want)
            assert mapping.tile
            wide = dataclasses.replace(mapping, index="s64")
            pairs += [(case, mapping), (case, wide)]
    library = Library([(c.kernel, m) for c, m in pairs])
    for case, mapping in pairs:
        verify(library, case, mapping)
        if case.builder.extents[0] < 40:
            verify(library, case, mapping, processors=40)


@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "i2"])
def test_whole_tiles_are_read_by_neighbours(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as their alignment allows, and all of a thread's before it waits for the tile."""
    monkeypatch.setattr(mapping_module, "WHOLE_TILES", 1)
    rng = np.random.default_rng(5)
    pairs, widths = [], set()
    for shape in [(64, 64), (64, 192), (3, 128, 64), (2, 2, 64, 64)]:
        y = rng.integers(0, 99, size=(*shape[:-1], shape[-1] + 2)).astype(dtype)
        x = rng.integers(0, 99, size=(*shape[:-2], shape[-1], shape[-2] + 1)).astype(dtype)
        z, w = np.ascontiguousarray(y[..., :-2]), np.ascontiguousarray(x[..., :-1])
        aligned = [(w, z), (w, z[..., ::-1, :]), (w[..., ::-1], z)]
        for lying, other in [*aligned, (w, y[..., 2:]), (x[..., 1:], z)]:
            case = Case.of(across(lying, other))
            mapping = chosen(case.kernel, case.want)
            assert mapping.tile
            assert mapping.exact
            widths.add(mapping.wide)
            pairs += [(case, mapping), (case, dataclasses.replace(mapping, index="s64"))]
    assert max(widths) == min(8, 16 // np.dtype(dtype).itemsize)
    assert min(widths) == 1
    library = Library([(c.kernel, m) for c, m in pairs])
    for case, mapping in pairs:
        assert "lt_load(w1[s]" in alone(case.kernel, mapping, "k")
        verify(library, case, mapping)


def test_a_number_is_divided_by_a_multiplication() -> None:
    """All quotients that a launch can ask for: numbers below 2**31."""
    rng = np.random.default_rng(6)
    ds = [1, 2, 3, 5, 7, 31, 32, 33, 1000, 65535, 65536, 65537, 2**30 - 1, 2**30, 2**30 + 1, 2**31 - 1]
    ds += rng.integers(1, 2**31, size=300).tolist()
    for d in ds:
        m, s = magic(d) & 0xFFFFFFFF, magic(d) >> 32
        near = np.arange(-2, 3) + d * rng.integers(0, 2**31 // d + 1, size=50)[:, None]
        n = np.concatenate([near.ravel(), rng.integers(0, 2**31, size=500), [0, 2**31 - 1]])
        n = n[(n >= 0) & (n < 2**31)].astype(np.uint64)
        np.testing.assert_array_equal(n * np.uint64(m) >> np.uint64(s), n // np.uint64(d))


def test_divisors_are_arguments_of_small_launches_only() -> None:
    k = across(np.zeros((2, 2, 40, 36), F32), np.zeros((2, 2, 36, 40), F32))
    kernel, args = k.kernel(), k.arguments()
    small = chosen(kernel, args)
    assert sizes(kernel, small, args.extents) == [2, 2, 2, 2]
    assert len(extras(kernel, small, args.extents)) == divisors(kernel, small) == 3
    assert extras(kernel, dataclasses.replace(small, index="s64"), args.extents) == []


@pytest.mark.parametrize("dtype", ["f4", "f2", "bf16"])
def test_rows_with_and_without_their_ways(dtype: str) -> None:
    """What is kept, how many neighbours a lane takes and whether bounds are checked changes no bit."""
    rng = np.random.default_rng(7)
    kind = BFLOAT16 if dtype == "bf16" else np.dtype(dtype)
    pairs = []
    for n in (8, 24, 32, 256, 264, 1024, 2048, 4096, 4104):
        x = rng.normal(size=(3, n)).astype(kind)
        builders = [softmax(x, "row", 1)]
        if kind == F32:
            builders.append(layernorm(x, np.ones(n, F32), np.ones(n, F32), "row"))
        for k in builders:
            case = Case.of(k, exact=False)
            best = chosen(case.kernel, case.want)
            assert best.wide == min(16 // kind.itemsize, max(best.steps, 1))
            assert best.exact == (n in (32, 256, 1024, 2048, 4096))
            others = {best, dataclasses.replace(best, wide=1), dataclasses.replace(best, exact=False)}
            others |= {
                dataclasses.replace(best, steps=0, exact=False),
                dataclasses.replace(best, wide=min(2, best.wide)),
            }
            pairs.append((case, best, sorted(others, key=lambda m: m.key)))
    library = Library([(c.kernel, m) for c, _, some in pairs for m in some])
    for case, best, some in pairs:
        want = case.builder.arguments()
        library.run(case.kernel, best, want)
        for mapping in some:
            got = case.builder.arguments()
            library.run(case.kernel, mapping, got)
            for a, w, g in zip(case.builder.accesses, want.accesses, got.accesses, strict=True):
                if a.writes:
                    same_bits(g.array, w.array)


def norm_gradient(n: int, kind: np.dtype) -> Builder:
    """Of (x + r), a row's gradient d times w: x + r and d are needed in every stage, w is of all rows."""
    rng = np.random.default_rng(n)
    x, r, d = (rng.normal(size=(5, n)).astype(kind) for _ in range(3))
    w, b = (rng.normal(size=n).astype(kind) for _ in range(2))
    k = Builder(x.shape, 1, "row")
    xs, rs, ds, ws, bs = (k.load(np.broadcast_to(a, x.shape)) for a in (x, r, d, w, b))
    if kind != F32:
        xs, rs, ds, ws, bs = (k.add(Cast(v, F32)) for v in (xs, rs, ds, ws, bs))
    total = k.op("add", xs, rs)
    mean = k.op("mul", k.reduce("sum", total), k.scalar(1 / n, F32))
    centred, scaled = k.op("sub", total, mean), k.op("mul", ds, ws)
    along = k.reduce("sum", k.op("mul", centred, scaled))
    y, grad = k.op("add", k.op("mul", centred, ws), bs), k.op("sub", scaled, k.op("mul", along, centred))
    rest = k.reduce("sum", grad)
    stored = [y, k.op("add", grad, rest)]
    if kind != F32:
        stored = [k.add(Cast(v, kind)) for v in stored]
    k.stage(reduces=(k.values[mean].operands[0],), loops=True)
    k.stage(reduces=(along,), loops=True)
    k.stage(k.store(stored[0], np.zeros_like(x)), reduces=(rest,), loops=True)
    k.stage(k.store(stored[1], np.zeros_like(x)), loops=True)
    return k


@pytest.mark.parametrize("dtype", ["f4", "bf16"])
def test_rows_keep_what_takes_the_least(dtype: str) -> None:
    """The sum of two loads in the place of both, if that is smaller; nothing that all rows read."""
    kind = BFLOAT16 if dtype == "bf16" else np.dtype(dtype)
    pairs = []
    for n in (100, 128, 768, 1000, 2048, 4104, 33_000):
        case = Case.of(norm_gradient(n, kind))
        best = chosen(case.kernel, case.want, shared=211 << 10)
        found = kept_slots(case.kernel, best.plain)
        assert sorted(size for size, _ in found) == ([4, 4] if kind == F32 else [2, 2, 2])
        assert best.steps or n > 5000
        pairs += [(case, best), (case, dataclasses.replace(best, wide=1, exact=False, index="s64"))]
    library = Library([(c.kernel, m) for c, m in pairs])
    for case, mapping in pairs:
        verify(library, case, mapping)


def one_op(op: str, x: np.ndarray, *scalars: float) -> np.ndarray:
    """An op on every element of x, by the generated source."""
    k = Builder(x.shape)
    out = np.zeros_like(x)
    k.stage(k.store(k.op(op, k.load(x), *(k.scalar(s, x.dtype) for s in scalars)), out))
    kernel = k.kernel()
    mapping = chosen(kernel, k.arguments())
    args = k.arguments()
    Library([(kernel, mapping)]).run(kernel, mapping, args, processors=1)
    (found,) = [b.array for a, b in zip(k.accesses, args.accesses, strict=True) if a.writes]
    return found


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -3e-39, 1.2e-38, 3.4e38, 1.0, -1.0, 2**-60, 2**60], F32)


@pytest.mark.parametrize("divisor", [3.0, 1.9999999, 1.0000001, 0.1, -7.3e-5, 1e-40, 3e38, 0.0, float("inf")])
def test_division_by_what_a_row_shares_is_correctly_rounded(divisor: float) -> None:
    rng = np.random.default_rng(8)
    bits = rng.integers(0, 2**32, size=4000, dtype=np.uint32).view(F32)
    x = np.concatenate([bits, (rng.normal(size=4000) * 3).astype(F32), SPECIAL])
    with np.errstate(all="ignore"):
        same_bits(one_op("div", x, divisor), x / F32.type(divisor))


@pytest.mark.parametrize("divisor", [3.0, 1.9999999, 0.1, 1e7, 7.3e-5, -7.3e-5, -3.0])
def test_neighbours_within_range_are_divided_without_a_look(divisor: float) -> None:
    """Only groups with a dividend out of range are done again."""
    rng = np.random.default_rng(9)
    x = np.ldexp(rng.uniform(1, 2, 8000), rng.integers(-99, 99, 8000)).astype(F32)
    x *= rng.choice([-1, 1], x.size).astype(F32)
    x[::5] = rng.choice([0.0, -0.0], x[::5].size)
    x[4000:] = rng.uniform(0.5, 1, 4000)  # a quotient near the middle of two needs the second step
    same_bits(one_op("div", x, divisor), x / F32.type(divisor))


@pytest.mark.parametrize(("op", "bound"), [("exp", 2.0), ("tanh", 1.4)])
def test_exp_and_tanh_by_the_machines_own(op: str, bound: float) -> None:
    """The method's error, with a 2**x and a 1/x that are correctly rounded here."""
    x = np.concatenate([np.linspace(-110, 95, 6000), np.linspace(-1, 1, 3000), np.logspace(-40, 1, 500)]).astype(F32)
    x = np.concatenate([x, SPECIAL])
    with np.errstate(all="ignore"):
        exact = getattr(np, op)(x.astype(np.float64))
        assert ulp_error(one_op(op, x), exact).max() <= bound
        with mock.patch.dict(switches, {"native-math": False}):
            assert ulp_error(one_op(op, x), exact).max() <= 1.4, "the shared rules"
