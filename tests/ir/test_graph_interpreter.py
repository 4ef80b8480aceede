"""The interpreter's own meaning: the corners that C leaves undefined, known answers, and depth."""

from __future__ import annotations

import numpy as np
import pytest

from lazyt.errors import IndexOutOfRange, LazytInternalError
from lazyt.ir import dtypes, prims
from lazyt.ir.builder import Builder
from lazyt.ir.extents import maximum
from lazyt.ir.graph_interpreter import PRIMITIVES, interpret
from lazyt.ir.library_calls import FUNCTIONS
from lazyt.ir.numpy_semantics import ELEMENTWISE, philox
from lazyt.ir.symbolic import Scope

pytestmark = pytest.mark.filterwarnings("error")


def run(op, *arrays, dtype=None):
    b = Builder()
    xs = [b.input(i, a.shape, a.dtype) for i, a in enumerate(arrays)]
    y = b.cast(xs[0], dtype) if op == "cast" else b.elementwise(op, *xs)
    return interpret(b.nodes, [y], arrays)[0]


def array(values, dtype):
    return np.array(values, dtype=dtype)


def test_every_primitive_has_a_meaning():
    names = prims.SOURCES | prims.MOVEMENT | prims.REDUCTIONS | prims.OTHERS
    assert set(PRIMITIVES) == names | set(prims.ELEMENTWISE)
    assert set(ELEMENTWISE) == set(prims.ELEMENTWISE)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_signed_integer_corners(dtype):
    low = np.iinfo(dtype).min
    x, y = array([7, -7, low, low, 5], dtype), array([0, 2, -1, 0, -3], dtype)
    np.testing.assert_array_equal(run("floordiv", x, y), array([0, -4, low, 0, -2], dtype))
    np.testing.assert_array_equal(run("rem", x, y), array([0, 1, 0, 0, -1], dtype))
    np.testing.assert_array_equal(run("fmod", x, y), array([0, -1, 0, 0, 2], dtype))
    np.testing.assert_array_equal(run("abs", array([low], dtype)), array([low], dtype))
    bits = np.iinfo(dtype).bits
    v, n = array([3, 3, -3, -3, 3], dtype), array([1, bits, bits, -1, -1], dtype)
    np.testing.assert_array_equal(run("shl", v, n), array([6, 0, 0, 0, 0], dtype))
    np.testing.assert_array_equal(run("shr", v, n), array([1, 0, -1, -1, 0], dtype))
    p, e = array([2, 1, -1, -1, 0, 3], dtype), array([-1, -5, -3, -2, -1, 4], dtype)
    np.testing.assert_array_equal(run("pow", p, e), array([0, 1, -1, 1, 0, 81], dtype))


def test_integer_powers_and_sums_wrap():
    np.testing.assert_array_equal(run("pow", array([2, 3], "uint8"), array([8, 6], "uint8")), array([0, 217], "uint8"))
    b = Builder()
    x = b.input(0, (2,), dtypes.int8)
    assert interpret(b.nodes, [b.reduce("sum", x, (0,))], [array([100, 100], "int8")])[0] == -56


def test_float_to_integer_saturates():
    x = array([np.nan, np.inf, -np.inf, 1e30, -1e30, 2.9, -2.9, 300.0], "float32")
    np.testing.assert_array_equal(run("cast", x, dtype=dtypes.int8), [0, 127, -128, 127, -128, 2, -2, 127])
    np.testing.assert_array_equal(run("cast", x, dtype=dtypes.uint8), [0, 255, 0, 255, 0, 2, 0, 255])
    i = np.iinfo("int64")
    np.testing.assert_array_equal(run("cast", x, dtype=dtypes.int64), [0, i.max, i.min, i.max, i.min, 2, -2, 300])
    edge = array([2.0**63, 2.0**64, -(2.0**63)], "float64")
    np.testing.assert_array_equal(run("cast", edge, dtype=dtypes.uint64), array([2**63, 2**64 - 1, 0], "uint64"))
    np.testing.assert_array_equal(run("cast", edge, dtype=dtypes.int64), [i.max, i.max, i.min])


def test_casts_between_kinds():
    np.testing.assert_array_equal(run("cast", array([0.0, np.nan, -0.5], "float16"), dtype=dtypes.bool_), [0, 1, 1])
    np.testing.assert_array_equal(run("cast", array([1 + 2j], "complex64"), dtype=dtypes.float32), [1.0])
    np.testing.assert_array_equal(run("cast", array([2j, 0], "complex64"), dtype=dtypes.bool_), [True, False])
    np.testing.assert_array_equal(run("cast", array([300, -1], "int64"), dtype=dtypes.uint8), [44, 255])
    assert run("cast", array([1e300], "float64"), dtype=dtypes.float32)[0] == np.inf


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_halves_round_after_each_operation(dtype):
    x, y = array([1.0, 3.0], dtype), array([2.0**-12, 7.0], dtype)
    want = (x.astype("float32") + y.astype("float32")).astype(dtype)
    np.testing.assert_array_equal(run("add", x, y), want)
    np.testing.assert_array_equal(run("div", x, y), (x.astype("float32") / y.astype("float32")).astype(dtype))
    assert run("exp", x).dtype == dtype
    assert run("nextafter", x, y).dtype == dtype
    assert run("complex", x, y).dtype == dtypes.complex64


def test_float_sums_accumulate_in_float64():
    x = np.full(100_000, 0.1, "float32")
    b = Builder()
    y = b.reduce("sum", b.input(0, x.shape, x.dtype), (0,))
    assert interpret(b.nodes, [y], [x])[0] == np.float32(x.astype("float64").sum())


def test_empty_reductions_give_identities():
    b = Builder()
    x, i = b.input(0, (0, 2), dtypes.float32), b.input(1, (0, 2), dtypes.uint8)
    outputs = [b.reduce(op, v, (0,)) for v in (x, i) for op in ("sum", "prod", "max", "min")]
    got = [y[0] for y in interpret(b.nodes, outputs, [np.empty((0, 2), "float32"), np.empty((0, 2), "uint8")])]
    assert got == [0, 1, -np.inf, np.inf, 0, 1, 0, 255]


def test_philox_known_answers():
    """The vectors of Random123's kat_vectors for philox4x32-10."""

    def words(*values):
        return tuple(np.uint64(v) for v in values)

    ones = 0xFFFFFFFF
    for counter, key, want in (
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ones,) * 4, (ones,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ):
        assert philox(words(*counter), words(*key)) == words(*want)


def test_random_bits_places_its_words():
    seed, counter = array([0x299F31D0A4093822], "uint64"), array([0x0370734413198A2E], "uint64")
    index = array([0x85A308D3243F6A88], "uint64").view("int64")
    assert run("random_bits", seed, counter, index)[0] == 0x94FDCCEBD16CFE09


def test_gather_scatter_and_their_range():
    x, i = np.arange(12.0).reshape(3, 4), array([2, 0, 2], "int64")
    v = np.ones((3, 4))
    b = Builder()
    nx, ni, nv = b.input(0, x.shape, x.dtype), b.input(1, i.shape, i.dtype), b.input(2, v.shape, v.dtype)
    picked, added = b.gather(nx, [ni], (0,)), b.scatter(nx, nv, [ni], (0,), "add")
    columns = b.gather(nx, [ni], (1,))
    got = interpret(b.nodes, [picked, added, columns], [x, i, v])
    np.testing.assert_array_equal(got[0], x[i])
    np.testing.assert_array_equal(got[1], x + array([[1], [0], [2]], float))
    np.testing.assert_array_equal(got[2], x[:, i].T)
    for bad in (-1, 3):
        with pytest.raises(IndexOutOfRange, match=f"index {bad} is out of range for axis 0 of 3"):
            interpret(b.nodes, [picked], [x, array([0, bad, 0], "int64"), v])


def test_scatter_set_keeps_the_last():
    b = Builder()
    x, v = b.input(0, (3,), dtypes.int64), b.input(1, (3,), dtypes.int64)
    y = b.scatter(x, v, [b.input(2, (3,), dtypes.int64)], (0,), "set")
    got = interpret(b.nodes, [y], [np.zeros(3, "int64"), array([1, 2, 3], "int64"), array([1, 1, 1], "int64")])
    np.testing.assert_array_equal(got[0], [0, 3, 0])


def test_movement():
    x = np.arange(24.0).reshape(4, 6)
    b = Builder()
    n = b.input(0, x.shape, x.dtype)
    outputs = [
        b.slice(n, (3, 1), (2, 2), (-2, 3)),
        b.pad(n, (1, 0), (6, 7), b.constant(9.0, x.dtype)),
        b.window(n, (1, 0), (2, 3), (2, 1), (3, 1)),
        b.update(n, b.slice(n, (0, 0), (2, 6), (1, 1)), (0, 0), (2, 1)),
        b.concat([n, n], 1),
        b.iota((2, 3), 1),
        b.extent(7),
    ]
    got = interpret(b.nodes, outputs, [x])
    np.testing.assert_array_equal(got[0], x[3::-2, 1::3])
    np.testing.assert_array_equal(got[1], np.pad(x, ((1, 1), (0, 1)), constant_values=9))
    windows = np.lib.stride_tricks.sliding_window_view(x, (4, 3), (1, 0))[:, ::2, ::3]
    np.testing.assert_array_equal(got[2], windows)
    want = x.copy()
    want[::2] = x[:2]
    np.testing.assert_array_equal(got[3], want)
    np.testing.assert_array_equal(got[4], np.hstack([x, x]))
    np.testing.assert_array_equal(got[5], [[0, 1, 2]] * 2)
    assert got[6] == 7


def test_symbolic_extents_follow_the_binding():
    scope = Scope()
    n, start = scope.symbol(0, 4), scope.offset(0, 1)
    b = Builder(scope)
    x = b.input(0, (n,), dtypes.float64)
    y = b.slice(x, (start,), (n // 2,), (1,))
    size = b.extent(maximum(n, 3) + 1)
    got = interpret(b.nodes, [y, size], [np.arange(4.0)])
    np.testing.assert_array_equal(got[0], [1, 2])
    assert got[1] == 5
    got = interpret(b.nodes, [y, size], [np.arange(6.0)], binding=((6,), (2,)))
    np.testing.assert_array_equal(got[0], [2, 3, 4])
    assert got[1] == 7
    with pytest.raises(IndexOutOfRange, match="leaves an axis of 6"):
        interpret(b.nodes, [y], [np.arange(6.0)], binding=((6,), (5,)))


def test_a_value_unlike_its_node_is_refused():
    b = Builder()
    x = b.input(0, (2,), dtypes.float32)
    with pytest.raises(LazytInternalError, match="not float32"):
        interpret(b.nodes, [x], [np.zeros(3, "float32")])


def test_scalars_and_stop():
    b = Builder()
    y = b.stop(b.add(b.scalar(0, dtypes.float32), b.scalar(1, dtypes.float32)))
    assert interpret(b.nodes, [y], [], (1, 2.5))[0] == 3.5


def test_outputs_are_fresh():
    x = np.arange(3.0)
    b = Builder()
    (y,) = interpret(b.nodes, [b.input(0, (3,), dtypes.float64)], [x])
    assert not np.shares_memory(x, y)


def test_opaque_sorting():
    x = array([[2, 1, 2, np.nan, 1]], "float32")
    np.testing.assert_array_equal(FUNCTIONS["argsort"](x, 1, False), [[1, 4, 0, 2, 3]])
    np.testing.assert_array_equal(FUNCTIONS["argsort"](x, 1, True), [[3, 0, 2, 1, 4]])
    np.testing.assert_array_equal(FUNCTIONS["sort"](x, 1, True), [[np.nan, 2, 2, 1, 1]])
    b = Builder()
    n = b.input(0, (1, 5), dtypes.float32)
    values, places = (
        b.opaque(f, (n,), (1, False), [((1, 5), d)])[0] for f, d in (("sort", n.dtype), ("argsort", dtypes.int64))
    )
    got = interpret(b.nodes, [values, places], [x])
    np.testing.assert_array_equal(got[0], np.sort(x))
    assert got[1].dtype == dtypes.int64


def test_opaque_with_several_outputs():
    x = np.array([[2.0, 0.5], [0.5, 1.0]])
    b = Builder()
    w, v = b.opaque("linalg_eigh", (b.input(0, (2, 2), x.dtype),), (), [((2,), x.dtype), ((2, 2), x.dtype)])
    got = interpret(b.nodes, [w, v], [x])
    np.testing.assert_allclose(got[1] * got[0] @ got[1].T, x, atol=1e-14)


def test_ranks_and_pseudo_inverses():
    x = np.ones((3, 2))
    assert FUNCTIONS["linalg_matrix_rank"](x) == 1
    np.testing.assert_allclose(FUNCTIONS["linalg_pinv"](x), np.linalg.pinv(x), atol=1e-12)


@pytest.mark.slow
def test_a_chain_of_100_000_nodes():
    b = Builder()
    x = y = b.input(0, (), dtypes.float64)
    for _ in range(100_000):
        y = b.add(y, x)
    assert interpret(b.nodes, [y], [np.array(1.0)])[0] == 100_001
