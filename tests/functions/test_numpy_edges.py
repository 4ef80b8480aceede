"""Where NumPy's rules have an edge: casting, `out=`, comparisons of integers, subclasses of arrays, infinities."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import lazyt as lt

CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")
DTYPES = ("u1", "i4", "i8", "f4", "f8", "c16")
UFUNCS = (np.add, np.less, np.exp, np.divide, np.negative, np.logical_and, np.maximum, np.isnan, np.divmod)


def outcome(call: Any) -> Any:
    """The dtypes and the values, or the kind of error."""
    try:
        with np.errstate(all="ignore"):
            found = call()
    except (TypeError, ValueError) as error:
        return TypeError if isinstance(error, TypeError) else ValueError
    return [(np.asarray(x).dtype, np.asarray(x).tolist()) for x in (found if isinstance(found, tuple) else (found,))]


def alike(got: Any, want: Any) -> bool:
    if isinstance(got, type) or isinstance(want, type):
        return got is want
    return all(g == w and np.allclose(x, y, rtol=1e-6) for (g, x), (w, y) in zip(got, want, strict=True))


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("casting", CASTINGS)
def test_a_ufunc_has_numpys_dtype_and_casting(ufunc: np.ufunc, casting: str) -> None:
    ours = getattr(lt, ufunc.__name__)
    for given in ("i4", "f8"):
        xs = [np.array([1, 2], given), np.array([3, 1], given)][: ufunc.nin]
        for dtype in (None, *DTYPES):
            options: dict[str, Any] = {"casting": casting} if dtype is None else {"casting": casting, "dtype": dtype}
            want = outcome(lambda: ufunc(*xs, **options))  # noqa: B023 - called at once
            for f in (ufunc, ours):
                got = outcome(lambda: f(*map(lt.asarray, xs), **options))  # noqa: B023 - called at once
                assert alike(got, want), (given, options)


@pytest.mark.parametrize("casting", CASTINGS)
@pytest.mark.parametrize("to", DTYPES)
def test_what_is_written_out_is_cast_as_numpy_casts(casting: str, to: str) -> None:
    x = np.array([1.0, 2.0])
    want = outcome(lambda: np.add(x, 1.5, out=np.zeros(2, to), casting=casting))
    assert outcome(lambda: np.add(lt.asarray(x), 1.5, out=lt.zeros(2, to), casting=casting)) == want
    want = outcome(lambda: np.concatenate((x, x), dtype=to, casting=casting))
    for f in (np.concatenate, lt.concatenate):
        assert outcome(lambda: f((lt.asarray(x), lt.asarray(x)), dtype=to, casting=casting)) == want  # noqa: B023
    want = outcome(lambda: np.stack((x, x), dtype=to, casting=casting))
    assert outcome(lambda: np.stack((lt.asarray(x), lt.asarray(x)), dtype=to, casting=casting)) == want


def test_another_word_for_casting_is_refused() -> None:
    with pytest.raises(ValueError, match="add: casting is one of no, equiv, safe, same_kind, unsafe, got 'any'"):
        lt.add(lt.ones(1), 1, casting="any")


@pytest.mark.parametrize("shape", [(4, 3), (1, 3), (2,), ()])
@pytest.mark.parametrize("make", [lt.zeros, np.zeros])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "argmax", "cumsum", "median", "var", "all"])
def test_out_has_the_shape_of_the_result(name: str, make: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"out has shape .*, the result \("):
        getattr(lt, name)(lt.ones((2, 3)), axis=0, out=make(shape))


def test_a_ufunc_broadcasts_to_out() -> None:
    assert np.add(lt.ones(3), 1, out=lt.zeros((2, 3))).tolist() == [[2.0] * 3] * 2


BOUNDS = np.array([0, 1, -1, 2**60, 2**60 + 1, 2**63 - 1, -(2**63)])
WIDE = np.array([0, 1, 2**60, 2**60 + 1, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)


@pytest.mark.parametrize("compare", [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne])
def test_signed_and_unsigned_integers_are_compared_exactly(compare: Any) -> None:
    for signed in (BOUNDS, BOUNDS[:3].astype("i1")):
        x, y = signed[:, None], WIDE
        for _ in range(2):
            np.testing.assert_array_equal(compare(lt.asarray(x), lt.asarray(y)).numpy(), compare(x, y))
            np.testing.assert_array_equal(compare(lt.asarray(y) + 0, lt.asarray(x) + 0).numpy(), compare(y, x))


def test_membership_of_signed_and_unsigned_integers_is_exact() -> None:
    there = {int(v) for v in BOUNDS} & {int(v) for v in WIDE}
    assert lt.isin(lt.asarray(BOUNDS), lt.asarray(WIDE)).tolist() == [int(v) in there for v in BOUNDS]
    assert lt.isin(lt.asarray(WIDE), lt.asarray(BOUNDS), invert=True).tolist() == [int(v) not in there for v in WIDE]
    assert not lt.array_equal(lt.asarray(BOUNDS[3:4]), lt.asarray(WIDE[3:4]))


class Plain(np.ndarray):
    __array_priority__ = 20


class Own(np.ndarray):
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return "its own"


SUBCLASSES = {
    "masked": np.ma.array([1.0, 2.0], mask=[0, 1]),
    "matrix": np.array([[1.0, 2.0]]).view(np.matrix),
    "records": np.ones(2).view(np.recarray),
    "plain": np.ones(2).view(Plain),
}
USES = {
    "function": lambda t, s: lt.add(s, t),
    "reduction": lambda t, s: lt.sum(s),
    "choice": lambda t, s: lt.where(t > 1, s, t),
    "in place": lambda t, s: operator.iadd(t, s),
    "written": lambda t, s: operator.setitem(t, slice(None), s),
    "ufunc": lambda t, s: np.add(t, s),
    "ufunc turned": lambda t, s: np.add(s, t),
    "joined": lambda t, s: lt.concatenate([t, s]),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("of", SUBCLASSES)
def test_a_subclass_of_arrays_is_refused_by_name(of: str, use: str) -> None:
    name = type(SUBCLASSES[of]).__name__
    with pytest.raises(lt.NotSupportedError, match=rf"an array of class .*{name}, because a tensor would hold"):
        USES[use](lt.asarray([1.0, 2.0]), SUBCLASSES[of])


@pytest.mark.parametrize("compute", [operator.add, operator.mul, operator.eq, operator.sub])
@pytest.mark.parametrize("of", ["matrix", "records", "plain"])
def test_its_operators_are_refused_in_both_orders(of: str, compute: Any) -> None:
    t, s = lt.asarray([1.0, 2.0]), SUBCLASSES[of]
    for x, y in ((t, s), (s, t)):
        with pytest.raises((lt.NotSupportedError, TypeError), match=r"an array of class|unsupported operand type"):
            compute(x, y)


@pytest.mark.parametrize("compute", [operator.add, operator.mul, operator.eq, operator.sub, operator.lt])
@pytest.mark.parametrize("pending", [False, True])
def test_operators_of_masked_arrays_keep_the_mask_in_both_orders(compute: Any, pending: bool) -> None:
    m = SUBCLASSES["masked"]
    a = np.array([1.0, 2.0])
    for turned in (False, True):
        t = lt.asarray(a) + 0 if pending else lt.asarray(a)
        got, want = (compute(m, t), compute(m, a)) if turned else (compute(t, m), compute(a, m))
        assert isinstance(got, np.ma.MaskedArray)
        np.testing.assert_array_equal(np.ma.getmaskarray(got), np.ma.getmaskarray(want))
        np.testing.assert_array_equal(got.filled(9), want.filled(9))


def test_a_subclass_with_a_protocol_decides_itself() -> None:
    t, s = lt.asarray([1.0, 2.0]), np.ones(2).view(Own)
    assert t + s == s + t == np.add(t, s) == "its own"


def test_a_mask_is_not_lost_by_a_conversion() -> None:
    for x in (SUBCLASSES["masked"], [SUBCLASSES["masked"]] * 2):
        with pytest.raises(lt.NotSupportedError, match=r"write x\.filled\(\.\.\.\) or x\.data"):
            lt.asarray(x)
    assert lt.asarray(SUBCLASSES["plain"]).tolist() == [1.0, 1.0]


WRITES = {
    "mask": lambda x, v: operator.setitem(x, x > 1, v),
    "index": lambda x, v: operator.setitem(x, [0], v),
    "slice": lambda x, v: operator.setitem(x, slice(0, 1), v),
    "put": lambda x, v: np.put(x, [0], v),
    "place": lambda x, v: np.place(x, x > 1, v),
    "putmask": lambda x, v: np.putmask(x, x > 1, v),
    "copyto": lambda x, v: np.copyto(x, v),
    "along": lambda x, v: lt.put_along_axis(x, lt.asarray([0]), v, axis=0),
    "insert": lambda x, v: lt.insert(x, 0, v),
    "full": lambda x, v: lt.full(1, v, dtype="f4"),
    "pad": lambda x, v: lt.pad(x, 1, constant_values=v),
}


@pytest.mark.parametrize("value", [1j, np.array([1j]), lt.asarray([1j])], ids=["number", "array", "tensor"])
@pytest.mark.parametrize("write", WRITES)
def test_no_write_drops_an_imaginary_part(write: str, value: Any) -> None:
    if write in ("full", "pad"):
        value = value if isinstance(value, complex) else value.reshape(())
    x = lt.asarray([1.0, 2.0])
    with pytest.raises(TypeError, match="complex"):
        WRITES[write](x, value)
    assert x.tolist() == [1.0, 2.0]


def test_bounds_of_a_clip_may_lie_outside_of_the_dtype() -> None:
    x = np.array([1, 200], np.uint8)
    for low, high in ((-1, 300), (-1, 100), (5, 300), (None, 2**70), (-(2**70), None), (-1, None)):
        got = lt.clip(lt.asarray(x), low, high)
        assert got.dtype == np.uint8
        np.testing.assert_array_equal(got.numpy(), np.clip(x, low, high))
    with pytest.raises(OverflowError, match="300 is out of range"):
        lt.clip(lt.asarray(x), 300, None)


def test_a_bad_axis_is_numpys_error() -> None:
    with pytest.raises(np.exceptions.AxisError, match="axis 3 is out of bounds") as caught:
        lt.sum(lt.ones(2), axis=3)
    assert isinstance(caught.value, lt.AxisError) and (caught.value.axis, caught.value.ndim) == (3, 1)


def test_coordinate_arrays_of_a_grid_can_be_written() -> None:
    xx, yy = lt.meshgrid([1, 2], [3, 4])
    xx += 1
    yy[0] = 5
    assert (xx.tolist(), yy.tolist()) == ([[2, 3], [2, 3]], [[5, 5], [4, 4]])
    with pytest.raises(lt.ShapeError):
        lt.meshgrid([1, 2], [3, 4], copy=False)[0][0] = 5


INFINITE = [[1, 2, np.inf, 4], [np.inf, np.inf, 1, 2], [1, np.inf, -np.inf, 2], [np.inf] * 4, [-np.inf, 1, 2, 3],
            [1, np.nan, 2, 3]]  # fmt: skip


@pytest.mark.parametrize("values", INFINITE, ids=str)
def test_interpolation_beside_infinities(values: list[float]) -> None:
    x, points = [1, 1.5, 2, 2.5, 3, 3.5, 4, np.nan, np.inf, -np.inf], [1.0, 2, 3, 4]
    np.testing.assert_array_equal(lt.interp(x, points, values).numpy(), np.interp(x, points, values))
    z = np.array(values, complex)
    z.imag = values[::-1]
    np.testing.assert_array_equal(lt.interp(x, points, z).numpy(), np.interp(x, points, z))


def test_the_sign_of_complex_infinities() -> None:
    parts = (0.0, 3.0, -np.inf, np.inf, np.nan)
    z = np.array([complex(a, b) for a in parts for b in parts])
    np.testing.assert_array_equal(lt.sign(lt.asarray(z)).numpy(), np.sign(z))


def test_tolerances_broadcast() -> None:
    got = lt.isclose(lt.asarray([1.0]), lt.asarray([2.0]), atol=lt.asarray([0.5, 2.0]))
    assert got.tolist() == [False, True]


def test_an_array_times_a_tensor_in_place() -> None:
    for a in (np.eye(3), np.ones(3)):
        want = a @ np.full((3, 3), 2.0)
        a @= lt.full((3, 3), 2.0)
        np.testing.assert_array_equal(a, want)


def test_integers_that_are_objects() -> None:
    with pytest.raises(lt.DTypeError, match="NumPy dtype object"):
        lt.asarray(np.array([1, 3], object))
    with pytest.raises(lt.ScalarRangeError, match="beyond 64 bits: 3 to 1180591620717411303424"):
        lt.asarray([2**70, 3])
