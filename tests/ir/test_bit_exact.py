"""What a first run has NumPy compute: each exact primitive has the bits of compiled kernels, for every dtype."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from lazyt.backends.cpu import memory as pool
from lazyt.backends.cpu.executor import Executable
from lazyt.ir import bit_exact, dtypes, graph as g, prims
from lazyt.ir.bit_exact import KINDS, Form
from lazyt.ir.builder import Builder
from lazyt.ir.graph import Node
from lazyt.ir.passes.pipeline import compile_graph
from lazyt.ir.passes.program import Options
from lazyt.ir.symbolic import Scope
from lazyt.runtime import memory

Build = Callable[..., Node]
HALVES = (dtypes.float16, dtypes.bfloat16)


def compiled(outputs: Sequence[Node], arrays: Sequence[np.ndarray], scalars: Sequence[object]) -> list[np.ndarray]:
    """What kernels give."""
    program = compile_graph(outputs, Scope(), Options(fused=False))
    graph, sched = program.graph, program.schedule
    assert sched is not None
    exe = Executable(sched)
    exe.compile((), scalars)
    buffers = exe.run((), scalars, [memory.from_array(a) for a in arrays])
    found = []
    for n, base in zip(graph.outputs, sched.outputs, strict=True):
        buffer = buffers[exe.outputs.index(base)]
        found.append(np.array(pool.as_ndarray(buffer, n.dtype, n.shape)))
    return found


def check(build: Build, *arrays: np.ndarray, scalars: Sequence[object] = ()) -> None:
    """NumPy's bits are those of kernels; all NaN are alike."""
    b = Builder()
    out = build(b, *(b.input(i, a.shape, a.dtype) for i, a in enumerate(arrays)))
    outputs = out if isinstance(out, tuple) else (out,)
    form = Form(outputs)
    assert form.exact, f"{outputs} is not exact"
    values = form.values(arrays, scalars)
    for n, want in zip(outputs, compiled(outputs, arrays, scalars), strict=True):
        got = np.asarray(values[n])
        assert (got.dtype, got.shape) == (n.dtype, want.shape)
        np.testing.assert_array_equal(bits(got), bits(want))


def bits(x: np.ndarray) -> np.ndarray:
    x = np.ascontiguousarray(x).reshape(-1)
    if dtypes.kind(x.dtype) == "c":
        x = x.view(dtypes.real_of(x.dtype))
    whole = x.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[x.dtype.itemsize])
    return np.where(x != x, 1, whole) if dtypes.kind(x.dtype) == "f" else whole


def special(dtype: np.dtype) -> np.ndarray:
    """Values at the edges of a dtype, and some between."""
    kind, rng = dtypes.kind(dtype), np.random.default_rng(0)
    if kind == "b":
        return np.array([False, True])
    if kind in "iu":
        i = np.iinfo(dtype)
        near = {p + d for e in range(i.bits) for p in (2**e, -(2**e), i.max, i.min) for d in (-2, -1, 0, 1, 3)}
        return np.array(sorted(v for v in near | set(range(-13, 14)) if i.min <= v <= i.max), dtype)
    if kind == "c":
        parts = special(dtypes.real_of(dtype))[::4]
        z = np.zeros((len(parts), len(parts)), dtype)
        z.real, z.imag = parts[:, None], parts
        return z.reshape(-1)[::9]
    steps = {"float16": (-14, 15, 10), "bfloat16": (-126, 127, 7), "float32": (-126, 127, 23)}
    low, high, digits = steps.get(str(dtype), (-1022, 1023, 52))
    largest = (2 - 2.0**-digits) * 2.0**high
    values = [0.0, 2.0 ** (low - digits), 3 * 2.0 ** (low - digits), 2.0**low, 1.5 * 2.0**low, largest, largest / 3]
    values += [
        2.0**-digits,
        1 - 2.0 ** (-1 - digits),
        1.0,
        1 + 2.0**-digits,
        0.1,
        0.3,
        0.5,
        1.5,
        2.5,
        3.0,
        3.5,
        7.0,
        13.25,
    ]
    values += [2.0**e + d for e in (7, 8, 15, 16, 31, 32, 63, 64) for d in (-1, 0)] + [np.inf, np.nan]
    random = rng.standard_normal(40) * np.exp2(rng.uniform(-12, 12, 40))
    with np.errstate(over="ignore"):
        return np.concatenate([values, np.negative(values), random]).astype(dtype)


def of_kinds(kinds: str) -> list[np.dtype]:
    return [d for d in dtypes.ALL if dtypes.kind(d) in kinds]


ELEMENTWISE = [
    (name, d)
    for name in prims.ELEMENTWISE
    if name in KINDS and name not in ("select", "complex", "random_bits")
    for d in of_kinds(KINDS[name])
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("name", "dtype"), ELEMENTWISE, ids=lambda x: str(x))
def test_elementwise(name, dtype):
    x = special(dtype)
    if prims.ELEMENTWISE[name].arity == 1:
        check(lambda b, x: b.elementwise(name, x), x)
    else:
        check(lambda b, x, y: b.elementwise(name, x, y), np.repeat(x, len(x)), np.tile(x, len(x)))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_select(dtype):
    x = special(dtype)
    check(lambda b, c, x, y: b.select(c, x, y), np.arange(len(x)) % 3 == 0, x, x[::-1].copy())


def test_parts_and_random_bits():
    x = special(dtypes.float32)
    check(lambda b, x, y: b.complex(x, y), np.repeat(x, len(x)), np.tile(x, len(x)))
    seeds = np.arange(7, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    check(lambda b, s, c, i: b.random_bits(s, c, i), seeds, seeds[::-1].copy(), np.arange(7) - 2)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("source", dtypes.ALL, ids=str)
def test_casts(source):
    x = special(source)
    if dtypes.kind(source) in "iu" and source.itemsize >= 4:  # beside what is half-way for fewer digits
        one = x.dtype.type(1)
        half = [(x >> x.dtype.type(n)) ^ x for n in (7, 8, 10, 11, 23, 24)]
        x = np.concatenate([x, *half, *(h | one for h in half)])
    if source == dtypes.float64:
        few = special(dtypes.bfloat16).astype(np.float64)
        x = np.concatenate([x, *(few * (1 + 2.0**-e + d) for e in (8, 9, 11, 24) for d in (-(2.0**-40), 0, 2.0**-40))])
    for dtype in dtypes.ALL:
        if dtype != source:
            check(lambda b, x, dtype=dtype: b.cast(x, dtype), x)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_numbers_of_the_program(dtype):
    kind = dtypes.kind(dtype)
    given = {
        "b": [False, True],
        "f": [0.1, -0.0, 1e30, 2**60 + 2**36 + 1, 3, np.inf, 2.0**-140, 1.0000001, 65519.99],
        "c": [0.1 + 2j, 1.5, 3, complex(-0.0, 1e30), 2**60 + 2**36 + 1],
    }.get(kind, [0, 5, np.iinfo(dtype).max if kind in "iu" else 0, np.iinfo(dtype).min if kind in "iu" else 0])
    for v in given:
        check(lambda b, x: b.add(x, b.expand_to(b.scalar(0, dtype), x.shape)), np.zeros(3, dtype), scalars=[v])
        if kind != "f" or isinstance(v, float):
            check(
                lambda b, x, v=v: b.select(b.eq(x, x), b.expand_to(b.constant(v, dtype), x.shape), x),
                np.zeros(3, dtype),
            )


def test_extents_and_indices():
    for d in (dtypes.int64, dtypes.float32, *HALVES):
        check(lambda b, x, d=d: b.add(x, b.expand_to(b.extent(4099, d), x.shape)), np.zeros(3, d))
    check(lambda b, x: b.add(x, b.iota(x.shape, 1)), np.zeros((3, 4), np.int64))
    check(lambda b, i, j: b.position([i, j], (5, 7)), np.array([0, 4]), np.array([6, 3]))
    check(lambda b, x, i: b.gather(x, [i], (1,)), np.arange(12.0).reshape(3, 4), np.array([[3, 0], [1, 1]]))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_movement(dtype):
    x = special(dtype)[:24].copy() if dtype != dtypes.bool_ else np.arange(24) % 3 == 0
    x = np.resize(x, (4, 6))
    check(lambda b, x: b.permute(x, (1, 0)), x)
    check(lambda b, x: b.slice(x, (3, 1), (2, 2), (-2, 3)), x)
    check(lambda b, x: b.pad(x, (1, 0), (6, 9), b.scalar(0, dtype)), x, scalars=[x[2, 3].item()])
    check(lambda b, x, v: b.pad(x, (1, 0), (6, 9), b.reshape(v, ())), x, x[2:3, 3:4].copy())
    check(lambda b, x, y: b.concat([x, y, x], 1), x, x[:, ::-1].copy())
    check(lambda b, x: b.window(x, (1,), (2,), (2,), (3,)), x)
    check(lambda b, x, v: b.update(x, v, (1, 4), (2, -3)), x, x[:2, :2].copy())
    check(lambda b, x: b.expand(b.reshape(x, (24, 1)), (24, 3)), x)


SHAPES = [(5,), (17,), (300,), (16384,), (3, 4), (3, 16), (16, 3), (200, 17), (1, 7), (7, 1), (2, 2000, 3), (4, 5, 20)]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", of_kinds("iuf"), ids=str)
@pytest.mark.parametrize("name", ["sum", "prod"])
def test_sums_have_the_order_of_kernels(name, dtype):
    rng, kind = np.random.default_rng(1), dtypes.kind(dtype)
    for shape in [*SHAPES, (0, 3), (3, 0)]:
        x = (
            np.resize(special(dtype), shape)
            if kind != "f"
            else rng.standard_normal(shape) * np.exp2(rng.uniform(-8, 8, shape))
        )
        if name == "prod" and kind == "f":
            x = np.sign(x) * np.abs(x) ** 0.1
        some = (x.astype(dtype), np.where(rng.random(shape) < 0.5, 0.0, -0.0).astype(dtype))
        for axes in (c for r in range(1, len(shape) + 1) for c in itertools.combinations(range(len(shape)), r)):
            for y in some:
                check(lambda b, x, axes=axes: b.reduce(name, x, axes), y)


@pytest.mark.parametrize("dtype", of_kinds("biuf"), ids=str)
@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_extremes(name, dtype):
    rng, v = np.random.default_rng(2), special(dtype)
    zeros = np.where(rng.random(400) < 0.5, 0.0, -0.0).astype(dtype)
    real = v[v == v]
    for shape, axes in itertools.product(((40, 10), (10, 40), (400, 1)), ((0,), (1,), (0, 1))):
        if not (name.startswith("arg") and len(axes) > 1):
            for values in (v, real, zeros):
                x = values[rng.integers(0, len(values), shape)]
                check(lambda b, x, axes=axes: b.reduce(name, x, axes), x)


def test_whether_any_and_whether_all():
    x = np.random.default_rng(3).random((6, 5)) < np.linspace(0, 1, 6)[:, None]
    for name, axes in itertools.product(("any", "all"), ((0,), (1,), (0, 1))):
        check(lambda b, x, name=name, axes=axes: b.reduce(name, x, axes), x)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", of_kinds("biuf"), ids=str)
def test_functions_of_whole_arrays(dtype):
    v = special(dtype)
    x = v[np.random.default_rng(4).integers(0, len(v), (7, 40))]
    for axis, down in itertools.product((0, 1), (False, True)):
        check(lambda b, x, a=axis, d=down: b.opaque("sort", [x], (a, d), [(x.shape, x.dtype)])[0], x)
        check(lambda b, x, a=axis, d=down: b.opaque("argsort", [x], (a, d), [(x.shape, dtypes.int64)])[0], x)
    check(lambda b, x: b.opaque("topk", [x], (1, True, 3), [((7, 3), dtypes.int64)])[0], x)
    check(lambda b, x, y: b.opaque("isin", [x, y], (), [(x.shape, dtypes.bool_)])[0], x, v[::3].copy())
    row = np.sort(bit_exact.PRIMITIVES["cast"](Node("cast", (), None, (), dtypes.float32, 0, None), [x[0]], None))
    check(
        lambda b, r, y: b.opaque("searchsorted", [r, y], ("left",), [(y.shape, dtypes.int64)])[0], row, row[::2].copy()
    )
    if dtypes.kind(dtype) != "b":
        for name, axis in itertools.product(("cumsum", "cumprod"), (0, 1)):
            for y in (x, x[:0] if axis else x[:, :0], (x * x.dtype.type(0)).astype(x.dtype)):
                check(lambda b, x, n=name, a=axis: b.opaque(n, [x], (a,), [(x.shape, x.dtype)])[0], y.copy())


def test_what_code_computes_in_its_own_way_is_not_exact():
    b = Builder()
    x, z = b.input(0, (4, 4), dtypes.float32), b.input(1, (4, 4), dtypes.complex64)
    for n in (b.exp(x), b.pow(x, x), b.rsqrt(x), b.matmul(x, x), b.mul(z, z), b.abs(z), b.div(z, z)):
        assert not Form((n,)).exact and not Form((b.add(n, n),)).exact
    for name in KINDS:
        assert name in prims.ELEMENTWISE or name in {*prims.SOURCES, *prims.MOVEMENT, *prims.REDUCTIONS, *prims.OTHERS}
    assert isinstance(b.opaque("linalg_inv", [x], (), [((4, 4), x.dtype)])[0].operands[0].attrs, g.Opaque)
    assert not Form(b.opaque("linalg_inv", [x], (), [((4, 4), x.dtype)])).exact
