"""Further forms of arguments that NumPy's functions take: pairs and arrays where one number is usual, other modes."""

from __future__ import annotations

import enum
import warnings
from array import array
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.config import general
from tests.support.cuda.fake import FakeDriver, installed

RNG = np.random.default_rng(4)
ARRAYS = {
    "int64": RNG.integers(-9, 9, (3, 4)), "uint8": RNG.integers(0, 200, 5).astype(np.uint8),
    "float64": RNG.standard_normal((2, 3)), "float32": RNG.standard_normal((2, 3, 2)).astype(np.float32),
    "bool": RNG.random((3, 3)) > 0.5, "complex128": RNG.standard_normal(3) + 1j, "empty": np.zeros((2, 0)),
    "0-d": np.array(3.0),
}  # fmt: skip
PADS = [
    *(("constant", {"constant_values": v}) for v in (3, (4, 6), "each")),
    *((mode, {"stat_length": n}) for mode in ("maximum", "minimum", "mean", "median") for n in (None, 1, (2, 1), 9)),
    *(("linear_ramp", {"end_values": v}) for v in (0, 5, (1.5, 2), "each")),
]


def outcome(f, args, options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return f(*args, **options)
        except (ValueError, TypeError) as error:
            return type(error)


def tensors(x):
    return lt.asarray(x) if isinstance(x, np.ndarray) else x


def check(name, *args, **options):
    """lazyt's function and NumPy's, on tensors: as NumPy's on arrays, or all raise. `.name` is a method."""
    method = name.startswith(".")
    copied = {k: x.copy() if k == "out" else x for k, x in options.items()}
    want = outcome(getattr(args[0], name[1:]) if method else attrgetter(name)(np), args[method:], copied)
    for space in (None,) if method else (lt, np):
        ours = [tensors(x) for x in args]
        theirs = {k: tensors(x) for k, x in options.items()}
        got = outcome(getattr(ours[0], name[1:]) if method else attrgetter(name)(space), ours[method:], theirs)
        if isinstance(want, type):
            assert isinstance(got, type), (name, args, options, got, want)
            continue
        assert "out" not in options or got is theirs["out"]
        for g, w in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, want)), strict=True):
            g, w = np.asarray(g), np.asarray(w)
            assert (g.shape, g.dtype) == (w.shape, w.dtype), (name, args, options)
            np.testing.assert_allclose(g, w, rtol=1e-5 if w.dtype == np.float32 else 1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ARRAYS)
def test_padding(name):
    a = ARRAYS[name]
    for mode, options in PADS:
        if name == "complex128" and mode in ("maximum", "minimum", "median"):
            continue
        each = tuple((i, i + 1) for i in range(a.ndim))
        options = {k: each if v == "each" else v for k, v in options.items()}
        for width in (0, 1, (2, 3), ((0, 3), (1, 0))[: a.ndim]):
            check("pad", a, width, mode, **options)
    with lt.no_sync():
        assert lt.pad(lt.asarray(a) + 0, 2, "empty").shape == np.pad(a, 2, "empty").shape


def test_what_is_padded_is_a_copy():
    x = lt.asarray([1.0, 2.0])
    for mode, options in (*PADS[3:], ("constant", {"constant_values": (1, 2)}), ("empty", {}), ("edge", {})):
        y = lt.pad(x, 0, mode, **options) if "each" not in options.values() else x + 0
        y[0] = 9
        assert x.tolist() == [1, 2]


def test_padding_by_tensors_is_deferred_and_differentiable():
    x, e = lt.tensor([1.0, 2.0], requires_grad=True), lt.tensor(3.0, requires_grad=True)
    pair = lt.asarray([4.0, 5.0]) + 0
    with lt.no_sync():
        ramp = lt.pad(x, 2, "linear_ramp", end_values=e * 1)
        ends = lt.pad(x, 1, constant_values=(e * 1, 7.0))
        both = np.pad(x, 1, constant_values=pair)
    (ramp.sum() + ends.sum()).backward()
    np.testing.assert_allclose(e.grad.numpy(), 2 * 1.5 + 1)
    assert ramp.tolist() == [3, 2, 1, 2, 2.5, 3] and ends.tolist() == [3, 1, 2, 7] and both.tolist() == [4, 1, 2, 5]


WRONG = [
    (lambda x: lt.pad(x, 1, "edge", stat_length=2), lt.ShapeError, "pad: mode 'edge' takes no stat_length, got 2"),
    (lambda x: lt.pad(x, 1, "mean", end_values=0), lt.ShapeError, "pad: mode 'mean' takes no end_values, got 0"),
    (lambda x: lt.pad(x, 1, constant_values=((1, 2), 3)), lt.ShapeError, "constant_values are one, a pair, or"),
    (
        lambda x: lt.pad(x, 1, constant_values=lt.ones(3)),
        lt.ShapeError,
        r"constant_values of shape \(3,\) for an array",
    ),
    (lambda x: lt.pad(x, 1, "linear_ramp", end_values="a"), lt.DTypeError, "pad: end_values are numbers, got 'a'"),
    (lambda x: lt.pad(x, 1, "linear_ramp", end_values=1j), lt.DTypeError, "complex end_values for an array of dtype"),
    (lambda x: lt.pad(x.astype(int), 1, constant_values=(1, np.nan)), lt.ScalarRangeError, "pad: Python number nan"),
    (lambda x: lt.nan_to_num(x, nan=1j), lt.DTypeError, "nan_to_num: .* got complex values"),
    (lambda x: lt.nan_to_num(x, nan=lt.ones(3)), lt.ShapeError, r"nan_to_num: .*broadcast"),
    (lambda x: x.flat.__setitem__(0, [1, 2]), lt.ShapeError, r"flat: a single element is set .* got shape \(2,\)"),
    (lambda x: x.flat.__setitem__(2, []), IndexError, "out of bounds"),
    (lambda x: x.flat[None], IndexError, "flat: an index, a slice, or an array of indices is required, got None"),
    (lambda x: np.asarray(x.flat, copy=False), ValueError, "a copy is needed"),
    (lambda x: x.fill([1, 2]), lt.ShapeError, r"fill: one value is required, got shape \(2,\)"),
    (lambda x: x.astype("f4", "Q"), lt.ShapeError, "astype: order is one of C, F, A and K, got 'Q'"),
    (lambda x: x.view(dtype="i8"), lt.NotSupportedError, "view: not supported"),
    (lambda x: lt.trim_zeros(x, 5), lt.ShapeError, "trim_zeros: trim is"),
    (lambda x: lt.ravel_multi_index((x, x), (2, 2), None), lt.ShapeError, "ravel_multi_index: mode is"),
    (lambda x: lt.add.at([1, 2], [0], 1), TypeError, "array"),
    (lambda x: x.choose([x, x]), lt.DTypeError, "choose: integers are required to choose by, got float32"),
    (lambda x: x.copy("Q"), lt.ShapeError, "copy: order is one of C, F, A and K, got 'Q'"),
    (lambda x: x.sum(0, bogus=1), TypeError, r"sum\(\) got an unexpected keyword argument 'bogus'"),
    (lambda x: lt.exp(x, bogus=1), TypeError, r"exp\(\) got an unexpected keyword argument 'bogus'"),
    (lambda x: np.exp(x, signature="d->d"), lt.NotSupportedError, "numpy.exp: not supported: signature="),
]


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_what_cannot_be_is_refused_when_recorded(case):
    f, error, match = WRONG[case]
    with lt.no_sync(), pytest.raises(error, match=match):
        f(lt.asarray([1.0, 2.0]) * 1)


def test_numpy_orders_complex_numbers():
    a = ARRAYS["complex128"]
    for mode in ("maximum", "minimum", "median"):
        np.testing.assert_allclose(np.asarray(np.pad(lt.asarray(a), 2, mode)), np.pad(a, 2, mode))
        with pytest.raises(lt.DTypeError, match="real"):
            lt.pad(lt.asarray(a), 2, mode)


def test_padding_is_differentiable():
    x = lt.tensor([1.0, 2.0, 5.0], requires_grad=True)
    lt.pad(x, (2, 1), "mean").sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [2.0, 2.0, 2.0])


def test_indices_by_a_mode_each():
    at = np.array([[3, 6, 6], [4, 5, 1]])
    for mode in ("wrap", "clip", ("clip", "wrap"), ["wrap", "clip"], "other", ("wrap",)):
        check("ravel_multi_index", at, (4, 4), mode=mode)


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "int64"])
def test_numbers_for_what_is_none_by_arrays(dtype):
    a = np.arange(6).reshape(2, 3).astype(dtype)
    if dtype == "complex128":
        a.imag[:] = [[1, np.nan, np.inf], [-np.inf, 2, 3]]
    if dtype != "int64":
        a.real[:] = [[np.nan, np.inf, -np.inf], [1, 2, np.nan]]
        check("nan_to_num", a, nan=np.ones((3, 3)))
    check("nan_to_num", a, nan=np.array([5.0, 6.0, 7.0]))
    check("nan_to_num", a, nan=np.ones((2, 1)), posinf=np.array(9.0))
    check("nan_to_num", a, neginf=[1.0, 2.0, 3.0])


def test_an_array_fills_what_it_broadcasts_to():
    for shape, value in (
        ((2, 2), np.array([1, 2])),
        ((2, 3), np.ones((2, 1))),
        ((2, 3), np.ones(2)),
        (2, np.ones((2, 2))),
    ):
        check("full_like", np.zeros(shape, np.float32), value)
        check("full", shape, value, np.int32)
    filled = lt.full((2, 2), lt.asarray([1.0, 2.0]))
    filled[0, 0] = 7
    assert filled.tolist() == [[7, 2], [1, 2]]
    with pytest.raises(lt.ShapeError, match=r"full: a fill value of shape \(3,\) does not broadcast to \(2,\)"):
        lt.full(2, [1, 2, 3])


def test_zeros_are_trimmed_along_any_axes():
    middle = np.pad(np.array([[1, 0], [0, 2]]), ((1, 2), (0, 3)))
    for a in (middle, middle * 0, middle[1], np.zeros((2, 0)), np.array(0)):
        for trim in ("fb", "f", "B", "x"):
            for axis in (None, 0, -1, (0,), (), 5):
                check("trim_zeros", a, trim, axis=axis)


def test_powers_and_ranks_of_integers_and_vectors():
    for a in (
        np.array([[2, 1], [0, 3]]),
        np.array([[[0, 1], [-1, 0]]] * 2),
        np.eye(2, dtype=bool),
        np.eye(2),
        np.ones((2, 3)),
    ):
        for n in (0, 1, 2, 3, 6):
            check("linalg.matrix_power", a, n)
    for a in (np.zeros(3), np.array([0.0, 2.0]), np.array(0.0), np.array(4)):
        check("linalg.matrix_rank", a)


def test_steps_between_arrays_are_rounded_down():
    for stop in (np.array([-7.0, 5.0]), np.array([[3.0], [-4.5]])):
        for endpoint in (True, False):
            check("linspace", 0.0, stop, 4, endpoint=endpoint, dtype=np.int32)


ELSEWHERE = {
    "full": lambda x, i: lt.full((2, 3), np.ones(3), device="cuda:0"),
    "full_like": lambda x, i: lt.full_like(x, [1.0, 2.0, 3.0]),
    "nan_to_num": lambda x, i: lt.nan_to_num(x, nan=np.ones(3)) + lt.nan_to_num(x, nan=np.float32(3)),
    "ramp": lambda x, i: lt.pad(x, 2, "linear_ramp", end_values=(1, 2)),
    "median": lambda x, i: lt.pad(x, 1, "median"),
    "ends": lambda x, i: lt.pad(x, 1, constant_values=(1, 2)),
    "matrix_power": lambda x, i: lt.linalg.matrix_power(i, 0) + i,
    "ravel_multi_index": lambda x, i: lt.ravel_multi_index((i[0], [0, 1]), (5, 5), ("wrap", "clip")),
    "linspace": lambda x, i: lt.linspace(0.0, x, 4, dtype="int32"),
    "outer": lambda x, i: lt.add.outer(np.ones(2), x) + np.add.outer(np.ones(2), x),
    "flat": lambda x, i: (x.flat.__setitem__(slice(None), [7, 8]), x.flat[1:])[1],
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_of_the_host_goes_where_the_tensor_is(name):
    with installed(FakeDriver()):
        x, i = lt.asarray([1.0, 2.0, 3.0], device="cuda:0"), lt.asarray([[1, 2], [3, 4]], device="cuda:0")
        assert ELSEWHERE[name](x, i).device == "cuda:0"


def test_several_arrays_at_once():
    a = np.ones((2, 2))
    for name in ("atleast_1d", "atleast_2d", "atleast_3d"):
        check(name, a, np.array([1, 2]), np.array(3))
        assert getattr(lt, name)() == ()


def test_a_range_is_an_array():
    a = np.array([3, 1, 2])
    check("add", range(3), a)
    check("sum", range(4))
    check("concatenate", [range(4), a])
    check("take", a, range(2))
    check("sum", memoryview(a))
    x = lt.asarray(a)
    assert (x + memoryview(a)).tolist() == (x + array("q", a.tolist())).tolist() == (x + x).tolist()
    assert (x + range(3)).tolist() == [3, 2, 4] and (range(3) - x).tolist() == [-3, 0, 0]
    assert x[range(2)].tolist() == [3, 1]


def test_orders_of_what_is_flattened():
    a = ARRAYS["float32"]
    for order in "CF":
        check("ravel", a, order)
        check(".ravel", a, order=order)
        check(".flatten", a, order)
        assert lt.asarray(a).tobytes(order) == a.tobytes(order)
    check("ravel", a, None)
    with pytest.raises(lt.ShapeError, match="ravel: order is one of C, F, A and K, got 'X'"):
        lt.asarray(a).ravel("X")


@pytest.mark.parametrize("dtype", ["int64", "int8", "float32", "bool", "complex128"])
def test_reductions_are_written_into_any_dtype(dtype):
    a = np.arange(9.0).reshape(3, 3) + 0.5
    for name in (
        "sum",
        "prod",
        "max",
        "min",
        "mean",
        "median",
        "var",
        "nansum",
        "nanprod",
        "nanmax",
        "cumsum",
        "cumprod",
    ):
        shape = (3, 3) if name.startswith("cum") else 3
        check(name, a, axis=0, out=np.zeros(shape, dtype))
    for f in (np.add, np.multiply, np.maximum):
        for method, more, shape in (("reduce", (), 3), ("accumulate", (), (3, 3)), ("reduceat", ([0, 1],), (2, 3))):
            want = getattr(f, method)(a, *more, out=np.zeros(shape, dtype))
            got = getattr(f, method)(lt.asarray(a), *more, out=lt.zeros(shape, dtype=dtype))
            np.testing.assert_array_equal(np.asarray(got), want)
    if dtype != "float32":
        check("ptp", a, axis=0, out=np.zeros(3, dtype))
        check("add", a[0], a[1], out=np.zeros(3, dtype))


def flat_of(make):
    """What reading and writing `flat` gives."""
    a = make(np.arange(12.0).reshape(3, 4))
    found = [a.flat[3], a.flat[2:5], a.flat[[1, 4]], a.T.flat[3], a.flat[a.ravel() > 5], a.flat.copy(), np.sum(a.flat)]
    found += [*a[:, ::2].flat, len(a.flat), a.T.flat]
    for key, value in ((3, 5.0), ([1, 4], 1), (slice(1, 6), [7, 8]), (slice(None, None, 5), 0), (slice(1, 4), [])):
        a.flat[key] = value
        found.append(a + 0)
    a[1:].flat = [1, 2]
    a.T[:2].flat = 3
    a[:, ::2].flat[::2] = 9
    for write in (lambda: a.flat[12], lambda: a.flat.__setitem__(12, 1)):
        with pytest.raises(IndexError):
            write()
    return [np.asarray(x).tolist() for x in (*found, a)]


def test_flat_elements():
    assert flat_of(lt.asarray) == flat_of(np.array)
    x = lt.arange(6.0).reshape(2, 3) + 0
    with lt.no_sync():
        x.flat[::4] = x.flat[1]
        x.flat[[1, 2]] = [x[0, 0], x[0, 1]]
        y = np.sum(x.flat) + lt.sum(x.flat) + (x.flat == 1).sum()
        z = lt.zeros((3, 2))
        z.flat = x.flat
        w = x.ravel() + x.flat
    assert x.tolist() == [[1, 1, 1], [3, 1, 5]] and y.item() == 28 and z.tolist() == [[1, 1], [1, 3], [1, 5]]
    assert w.tolist() == [2, 2, 2, 6, 2, 10]
    ours, theirs = lt.asarray([[1, 2], [3, 4]]).flat, np.array([[1, 2], [3, 4]]).flat
    assert (next(ours).item(), ours.index) == (next(theirs), theirs.index)
    assert (next(lt.zeros((0, 2)).flat, "none"), [next(ours).item() for _ in range(3)]) == ("none", [2, 3, 4])
    with pytest.raises(StopIteration):
        next(ours)


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "subtract", "logaddexp", "gcd", "logical_or", "hypot"])
def test_functions_have_the_methods_of_ufuncs(name):
    ours, theirs = getattr(lt, name), getattr(np, name)
    a = np.array([[12, 18, 30], [4, 6, 9]])
    for method, args in (
        ("reduce", (a,)), ("reduce", (a, 1)), ("accumulate", (a, 1)), ("reduceat", (a, [0, 1])), ("outer", (a[0], 7)),
    ):  # fmt: skip
        want = getattr(theirs, method)(*args)
        with lt.no_sync():
            got = getattr(ours, method)(lt.asarray(args[0]), *args[1:])
        np.testing.assert_allclose(np.asarray(got), want)
    if name == "add":
        x = lt.asarray(a)
        lt.add.at(x, ([0, 0, 1], [1, 1, 2]), 1)
        lt.negative.at(x, (0, 0))
        assert x.tolist() == [[-12, 20, 30], [4, 6, 10]]
        lt.add.at(a, ([0, 0], [0, 0]), lt.asarray(1))
        assert a[0, 0] == 14
        assert lt.add.reduce(array=[1, 2, 3]).item() == 6 and lt.add.reduce(lt.asarray(4)).item() == 4


def test_methods_of_arrays():
    a = np.array([3, 1, 2])
    check(".argsort", a)
    check(".searchsorted", np.array([1, 3]), a, "right")
    check(".compress", a, [True, False, True])
    check(".choose", np.array([1, 0, 1]), [a, -a])
    check(".astype", a, "f4", "K", "same_kind")
    check(".conjugate", a * 1j)
    for rule in ("no", "equiv", "safe", "same_kind", "other"):
        check(".astype", a * 1.5, "i4", casting=rule)
    x = lt.asarray(a)
    assert x[x.argpartition(1)][1].item() == 2
    y = x + 0
    with lt.no_sync():
        assert y[:2].fill(7) is None
    assert y.tolist() == [7, 7, 2]
    x.view()[0] = 5
    assert x.tolist() == [5, 1, 2]
    with pytest.raises(lt.NotSupportedError, match="view: not supported: the bytes of int64 read as 'f8'"):
        x.view("f8")
    with pytest.raises(lt.DTypeError, match="astype: int64 cannot be cast to int8 by the rule 'safe'"):
        x.astype("i1", casting="safe")


# What NumPy's methods take beside what the functions show: the name, by position, by keyword (a function: made anew).
TAKEN = [
    ("all", (0,), {"keepdims": True, "where": [[True, False, True]]}),
    ("all", (), {"out": lambda: np.zeros((), bool)}), ("all", (0,), {"out": lambda: np.zeros(3, bool)}),
    ("any", (), {"where": [[True], [False]]}), ("argmax", (0,), {"out": lambda: np.zeros(3, int)}),
    ("argmin", (0, None), {"keepdims": True}), ("argpartition", (1, -1, "introselect"), {}),
    ("argsort", (0, "stable"), {}), ("argsort", (), {"kind": None, "order": None}),
    ("astype", ("f8", "C", "same_kind", False, False), {}),
    ("clip", (1,), {"max": 2, "out": lambda: np.zeros((2, 3), "f4")}),
    ("compress", ([True, False], 0), {"out": lambda: np.zeros((1, 3), "f4")}), ("copy", ("F",), {}),
    ("cumprod", (), {"axis": 0, "out": lambda: np.zeros((2, 3))}), ("cumsum", (0, "f8"), {}),
    ("dot", (np.ones((3, 2), "f4"),), {"out": lambda: np.zeros((2, 2), "f4")}), ("item", (4,), {}),
    ("item", (1, 2), {}), ("item", ((1, -1),), {}), ("max", (0, None, True), {}),
    ("max", (0,), {"initial": 2, "where": [[True, False, True]]}), ("max", (), {"out": lambda: np.zeros((), "f4")}),
    ("mean", (0, "f8"), {"where": [[True], [False]]}), ("min", (0,), {"initial": 2}),
    ("prod", (), {"axis": 0, "dtype": "f8", "initial": 3}), ("reshape", (3, 2), {"order": "F"}),
    ("reshape", ((3, 2),), {"order": "A"}), ("round", (1,), {"out": lambda: np.zeros((2, 3), "f4")}),
    ("std", (0, "f8"), {"ddof": 1, "keepdims": True}), ("std", (1,), {"mean": np.zeros((2, 1), "f4")}),
    ("sum", (0,), {"initial": 3, "where": [[True], [False]]}), ("sum", (0, None, None), {}),
    ("take", ([1, 7], 1, None, "clip"), {}), ("take", ([0, 1],), {"axis": 1, "out": lambda: np.zeros((2, 2), "f4")}),
    ("trace", (1, 0, 1, "f8"), {}), ("var", (1, None, None, 1), {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "options"), TAKEN)
def test_methods_take_what_numpys_take(name, args, options):
    given = {k: v() if callable(v) else v for k, v in options.items()}
    check(f".{name}", np.array([[3, 1, 2], [1, 5, 0]], "f4"), *args, **given)


def test_methods_record_with_numpys_arguments():
    x = lt.asarray([[1.0, 2.0], [3.0, 4.0]]) * 1
    with lt.no_sync():
        a = x.sum(axis=0, where=x > 1, initial=10.0)
        b = x.std(axis=1, dtype="f8", ddof=1)
        x.cumsum(axis=1, out=x)
    assert (a.tolist(), b.dtype, x.tolist()) == ([13.0, 16.0], np.float64, [[1.0, 3.0], [3.0, 7.0]])


def test_what_a_value_raises_is_not_what_its_index_raises():
    x = lt.asarray([1.0, 2.0])
    with pytest.raises(lt.IndexOutOfRange, match=r"^item: index 2 is out of bounds .* \(shape \(2,\)\)"):
        x.item(2)
    with pytest.raises(lt.IndexOutOfRange, match=r"^indexing: index 5 is out of .*recorded at .*test_numpy_forms"):
        x[lt.asarray([5]) + 0].item()


class Width(enum.IntEnum):
    THREE = 3


@pytest.mark.parametrize("n", [Width.THREE, np.int64(3)])
def test_an_extent_of_another_type_of_integer_is_an_extent(n: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(general, "stored", True)  # a plan on disk has plain integers
    for _ in range(3):
        x = (lt.reshape(lt.arange(3.0), n) * 2 + lt.random.permutation(n)).sum()
        assert x.item() == 9
