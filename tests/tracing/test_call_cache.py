"""Public calls that take the step they took the last time: the same results, errors and views with and without."""

from __future__ import annotations

import gc
import operator
import threading

import numpy as np
import pytest

import lazyt as lt
from lazyt.config import general
from lazyt.errors import DTypeError, IndexOutOfRange, ScalarRangeError, ShapeError
from lazyt.functions import joining, ordering, statistics, subscript
from lazyt.functions.protocols import signatures, table
from lazyt.tracing import inputs
from lazyt.tracing.call_cache import OPERANDS
from lazyt.tracing.trace import local

pytestmark = pytest.mark.usefixtures("new_trace")

TIMES = (
    9  # the first leaf of a trace is predicted once its sync is, and a call remembered after two: the last are in short
)


@pytest.fixture
def short(monkeypatch):
    """The keys that were not looked at again, as they came."""
    found: list[object] = []
    given = subscript.given
    # NOTE: nothing in the place of what asks for the user's line, which would be a line of this file.
    monkeypatch.setattr(subscript, "given", lambda tr, c, s, x: found.append(c.x3) or given(tr, c, s, x))
    return found


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# What is called with each function of the table: of the module, two matrices and two vectors.
CALLS = {
    "all": lambda m, a, b, v, w: m.all(a, axis=0),
    "amax": lambda m, a, b, v, w: m.amax(a, 1),
    "amin": lambda m, a, b, v, w: m.amin(a, axis=(0, 1)),
    "any": lambda m, a, b, v, w: m.any(a > 0, axis=0, keepdims=True),
    "arange": lambda m, a, b, v, w: m.arange(2, 9, 3),
    "argmax": lambda m, a, b, v, w: m.argmax(a, axis=1),
    "argmin": lambda m, a, b, v, w: m.argmin(v),
    "argpartition": lambda m, a, b, v, w: m.argpartition(v, 0)[:1],
    "argsort": lambda m, a, b, v, w: m.argsort(a, axis=0),
    "broadcast_to": lambda m, a, b, v, w: m.broadcast_to(v, (3, 4)) + 0,
    "clip": lambda m, a, b, v, w: m.clip(a, -0.5, 0.5),
    "concat": lambda m, a, b, v, w: m.concat([v, w, v]),
    "concatenate": lambda m, a, b, v, w: m.concatenate((a, b), axis=1),
    "count_nonzero": lambda m, a, b, v, w: m.count_nonzero(a > 0, axis=1),
    "cumprod": lambda m, a, b, v, w: m.cumprod(a, axis=1),
    "cumsum": lambda m, a, b, v, w: m.cumsum(a),
    "cumulative_prod": lambda m, a, b, v, w: m.cumulative_prod(v),
    "cumulative_sum": lambda m, a, b, v, w: m.cumulative_sum(a, axis=0, include_initial=True),
    "diagonal": lambda m, a, b, v, w: m.diagonal(a, offset=1) + 0,
    "dot": lambda m, a, b, v, w: m.dot(v, w),
    "expand_dims": lambda m, a, b, v, w: m.expand_dims(v, 0) * 2,
    "eye": lambda m, a, b, v, w: m.eye(3, k=1, dtype=np.float32),
    "flip": lambda m, a, b, v, w: m.flip(a, axis=1) + 0,
    "full": lambda m, a, b, v, w: m.full((2, 3), 1.5, dtype=np.float32),
    "isclose": lambda m, a, b, v, w: m.isclose(v, w, atol=0.5),
    "linspace": lambda m, a, b, v, w: m.linspace(0.0, 1.0, 5, dtype=np.float32),
    "matmul": lambda m, a, b, v, w: m.matmul(a, v),
    "matrix_transpose": lambda m, a, b, v, w: m.matrix_transpose(a) + 0,
    "max": lambda m, a, b, v, w: m.max(a),
    "mean": lambda m, a, b, v, w: m.mean(a, axis=-1, keepdims=True),
    "min": lambda m, a, b, v, w: m.min(a, axis=0),
    "moveaxis": lambda m, a, b, v, w: m.moveaxis(a, 0, 1) + 0,
    "ones": lambda m, a, b, v, w: m.ones((2, 2), dtype=np.float32) + 0,
    "outer": lambda m, a, b, v, w: m.outer(v, w),
    "pad": lambda m, a, b, v, w: m.pad(a, 1),
    "partition": lambda m, a, b, v, w: m.partition(v, 2)[2],
    "permute_dims": lambda m, a, b, v, w: m.permute_dims(a, (1, 0)) + 0,
    "prod": lambda m, a, b, v, w: m.prod(a, axis=1),
    "ravel": lambda m, a, b, v, w: m.ravel(a) + 0,
    "repeat": lambda m, a, b, v, w: m.repeat(v, 3),
    "reshape": lambda m, a, b, v, w: m.reshape(a, (4, 3)) + m.reshape(a.T, (4, 3)),
    "roll": lambda m, a, b, v, w: m.roll(a, 1, axis=0),
    "sort": lambda m, a, b, v, w: m.sort(a, axis=1),
    "squeeze": lambda m, a, b, v, w: m.squeeze(m.expand_dims(v, 1), axis=1) + 0,
    "stack": lambda m, a, b, v, w: m.stack([v, w], axis=1),
    "std": lambda m, a, b, v, w: m.std(a, axis=0),
    "sum": lambda m, a, b, v, w: m.sum(a, axis=1) + m.sum(a, axis=1, dtype=np.float64).astype(np.float32),
    "swapaxes": lambda m, a, b, v, w: m.swapaxes(a, 0, 1) + 0,
    "take_along_axis": lambda m, a, b, v, w: m.take_along_axis(a, m.argsort(a, axis=1), axis=1),
    "tile": lambda m, a, b, v, w: m.tile(v, 2),
    "trace": lambda m, a, b, v, w: m.trace(a),
    "transpose": lambda m, a, b, v, w: m.transpose(a) + 0,
    "tril": lambda m, a, b, v, w: m.tril(a),
    "triu": lambda m, a, b, v, w: m.triu(a, k=1),
    "var": lambda m, a, b, v, w: m.var(a, axis=1, ddof=1) if m is np else m.var(a, axis=1, correction=1),
    "vecdot": lambda m, a, b, v, w: m.vecdot(v, w),
    "where": lambda m, a, b, v, w: m.where(a > 0, a, 0.0),
    "zeros": lambda m, a, b, v, w: m.zeros((2, 2), dtype=np.float32) + 1,
}
# Those that NumPy has not, or under another name: as methods.
METHODS = {
    "clamp": lambda m, a, b, v, w: a.clamp(0.0, 1.0) if m is lt else np.clip(a, 0.0, 1.0),
    "flatten": lambda m, a, b, v, w: a.flatten(),
    "permute": lambda m, a, b, v, w: a.permute(1, 0) + 0 if m is lt else a.T,
    "unsqueeze": lambda m, a, b, v, w: v.unsqueeze(0) + 0 if m is lt else v[None],
    "view": lambda m, a, b, v, w: a.view(2, 6) + 0 if m is lt else a.reshape(2, 6),
    "log_softmax": lambda m, a, b, v, w: m.exp(a.log_softmax(axis=1)) if m is lt else _softmax(a),
    "logsumexp": lambda m, a, b, v, w: m.exp(a.logsumexp(axis=1)) if m is lt else np.exp(a).sum(1),
    "softmax": lambda m, a, b, v, w: a.softmax(axis=1) if m is lt else _softmax(a),
    "vdot": lambda m, a, b, v, w: m.vdot(v, w),
}


def _softmax(a):
    e = np.exp(a)
    return e / e.sum(1, keepdims=True)


def test_each_function_of_the_table_is_called_here():
    assert {*CALLS, *METHODS} == {*OPERANDS}


@pytest.mark.parametrize("calls", [True, False])
@pytest.mark.parametrize("name", sorted(OPERANDS))
def test_again_as_numpy(name, calls, monkeypatch):
    monkeypatch.setitem(general, "calls", calls)
    f = CALLS.get(name) or METHODS[name]
    for i in range(TIMES):
        host = array(3, 4, seed=i), array(3, 4, seed=i + 50), array(4, seed=i + 60), array(4, seed=i + 70)
        got = f(lt, *map(lt.asarray, host))
        np.testing.assert_allclose(got.numpy(), f(np, *host), rtol=1e-5, atol=1e-5, strict=True)


def _record_fails(*_args, **_options):
    raise AssertionError("asked again")


@pytest.mark.parametrize("calls", [True, False])
def test_taken_in_short(calls, monkeypatch):
    """A function is not asked any more what its call means, unless this is turned off."""
    monkeypatch.setitem(general, "calls", calls)
    x = lt.asarray(array(3, 4))
    for i in range(TIMES):
        if i == TIMES - 1:
            monkeypatch.setattr(statistics, "record", _record_fails)
        try:
            y = lt.cumsum(x, axis=1)
        except AssertionError:
            assert not calls
            return
        lt.sync()
    assert calls
    np.testing.assert_allclose(y.numpy(), np.cumsum(array(3, 4), axis=1), rtol=1e-6)


def test_integers_made_anew_are_taken_in_short(monkeypatch):
    """What was worked out (a size, a shape) is another object each time."""
    a = array(1200, 4)
    x = lt.asarray(a)
    for i in range(TIMES):
        n = int("600")
        if i == TIMES - 1:
            monkeypatch.setattr(joining, "record", _record_fails)
            monkeypatch.setattr(ordering, "record_numpy", _record_fails)
        rolled = lt.roll(x, (n, n - 599), axis=(0, 1))
        parted = lt.partition(x, n, axis=0)
        lt.sync()
    np.testing.assert_array_equal(rolled.numpy(), np.roll(a, (600, 1), axis=(0, 1)))
    np.testing.assert_array_equal(parted.numpy()[600], np.partition(a, 600, axis=0)[600])
    monkeypatch.undo()
    for k in (601, -1, True):
        np.testing.assert_array_equal(lt.roll(x, (k, 1), axis=(0, 1)).numpy(), np.roll(a, (k, 1), axis=(0, 1)))


@pytest.mark.parametrize(
    "key",
    [3, -1, None, ..., slice(None, None, -1), slice(1, 300), (slice(None), 1), (..., slice(2, 0, -1)), (None, 2, None),
     [0, 2], [2, -1, 2], (slice(1, None), slice(None, -1)), True, (1, [0, 1])],
    ids=str,
)  # fmt: skip
def test_keys_again(key, short):
    for i in range(TIMES):
        a = array(5, 4, seed=i)
        got = lt.asarray(a)[key]
        lt.sync()
        np.testing.assert_array_equal(got.numpy(), a[key], strict=True)
    never = key is True or (type(key) is tuple and type(key[1]) is list)
    assert not short if never else short


def test_tensors_as_keys_again(short):
    for i in range(TIMES):
        a = array(5, 4, seed=i)
        x, at = lt.asarray(a), lt.asarray(np.array([i % 5, 2, 0]))
        lt.sync()
        got = x[at]
        lt.sync()
        pair = x[lt.arange(3), at % 4]
        lt.sync()
        np.testing.assert_array_equal(got.numpy(), a[[i % 5, 2, 0]])
        np.testing.assert_array_equal(pair.numpy(), a[np.arange(3), np.array([i % 5, 2, 0]) % 4])
    assert len(short) >= 2


def _again(f, *xs):
    """f, called from one place so often that it is remembered; then once more on the last of xs."""
    for x in xs:
        found = f(x)
        lt.sync()
    return found


def test_equal_arguments_are_not_the_same():
    """1, True and 1.0 are equal, and mean different things."""
    x = lt.asarray(array(3, 4))
    keys = [1] * TIMES

    def at(k):
        return x[k]

    _again(at, *keys)
    assert at(True).shape == (1, 3, 4)
    with pytest.raises(IndexOutOfRange):
        at(1.0)

    def part(k):
        return x[0:k]

    _again(part, *keys)
    with pytest.raises(IndexOutOfRange, match="slice bounds"):
        part(1.0)
    assert part(np.int64(2)).shape == (2, 4)

    def listed(k):
        return x[k]

    for _ in range(TIMES):
        listed([0, 1, 1])
        lt.sync()
    assert listed([False, True, True]).shape == (2, 4)

    def total(axis):
        return lt.sum(x, axis=axis)

    _again(total, *keys)
    with pytest.raises((TypeError, ShapeError)):
        total(1.0)


def test_a_tensor_in_place_of_a_number_computes_nothing():
    x, k = lt.asarray(array(5)), lt.asarray(np.array(1)) + 1
    for _ in range(TIMES):
        y = x[1]
        z = lt.roll(x, 2)
        lt.sync()
    for _ in range(2):
        k = k + 0
        with lt.no_sync():
            y = x[k]
        assert y.item() == array(5)[2]
    assert z.shape == (5,)


def test_other_extents():
    for i in range(3 * TIMES):
        a = array(2 + i % 3, 4, seed=i)
        x = lt.asarray(a)
        got = lt.concatenate([x[1:], x[::-1]]).sum(axis=1), lt.reshape(x, (-1,)), x[1]
        for y, z in zip(got, (np.concatenate([a[1:], a[::-1]]).sum(axis=1), a.ravel(), a[1]), strict=True):
            np.testing.assert_allclose(y.numpy(), z, rtol=1e-5, atol=1e-6)


def test_out_of_range_of_a_smaller_array():
    def last(x):
        return x[3]

    _again(last, *[lt.asarray(array(4))] * TIMES)
    with pytest.raises(IndexOutOfRange, match="index 3 is out of bounds for axis 0 with size 2"):
        last(lt.asarray(array(2)))


def test_errors_name_their_line():
    """Two lines with one operation that may fail: each error names its own."""
    x, bad = lt.asarray(array(4)), lt.asarray(np.array([9]))

    def two(at):
        first = x[at]
        lt.sync()
        second = x[at + 0]
        lt.sync()
        return first, second

    for _ in range(TIMES):
        two(lt.asarray(np.array([1])))
    line = two.__code__.co_firstlineno
    with pytest.raises(IndexOutOfRange, match=f"test_call_cache.py:{line + 1}"):
        two(bad)
    del bad

    def through(f, *args):
        return f(*args)

    for _ in range(TIMES):
        through(lambda: x[lt.asarray(np.array([1]))])
        lt.sync()


def test_views_share_memory():
    for i in range(TIMES):
        a = array(4, 6, seed=i)
        x = lt.asarray(a)
        v = lt.transpose(x)[1:3][:, ::2]
        w = x.T
        a = a.copy()
        v += 1.0
        a.T[1:3][:, ::2] += 1.0
        x[0] = 0.0
        a[0] = 0.0
        np.testing.assert_array_equal(w.numpy(), a.T)
        np.testing.assert_array_equal(v.numpy(), a.T[1:3][:, ::2])
        np.testing.assert_array_equal(x.numpy(), a)


def test_a_reshape_that_is_a_copy():
    """Whether `reshape` is a view depends on how its operand lies, which its value does not say."""
    for turned in [True] * TIMES + [False] * TIMES:
        a = array(3, 4)
        x = lt.asarray(a) * 1.0
        y = x.T if turned else lt.reshape(x, (4, 3))
        z = lt.reshape(y, (12,))
        z += 1.0
        assert bool((x.numpy() == a).all()) == turned


def test_gradients_through_what_is_taken_again():
    for i in range(TIMES):
        a = array(4, 6, seed=i)
        x = lt.tensor(a, requires_grad=True)
        y = (lt.transpose(x)[1:3].sum(axis=0) * x[:, 0]).sum()
        y.backward()
        g = np.zeros_like(a)
        g[:, 1:3] = a[:, :1]
        g[:, 0] += a[:, 1:3].sum(1)
        np.testing.assert_allclose(x.grad.numpy(), g, rtol=1e-6)
        with lt.no_grad():
            assert not x[0].requires_grad
        assert x[0].requires_grad


def test_eager_and_other_threads():
    x = lt.asarray(array(3, 4))

    def program():
        return lt.sum(x, axis=0)[1:], lt.arange(3), lt.concat([x, x])

    for _ in range(TIMES):
        kept = program()
        lt.sync()
    with lt.eager():
        for _ in range(TIMES):
            assert not any(y.is_pending for y in program())
    found = []

    def other():
        found.extend([y.numpy() for y in program()] for _ in range(TIMES))

    t = threading.Thread(target=other)
    t.start()
    t.join()
    for y, z in zip(found[-1], kept, strict=True):
        np.testing.assert_array_equal(y, z.numpy())


def test_a_trace_may_begin_with_no_operand():
    """Its first step is predicted, and only by its own line."""
    for _ in range(2 * TIMES):
        a = lt.arange(4)
        lt.sync()
        b = lt.arange(5)
        lt.sync()
        assert (a.shape, b.shape) == ((4,), (5,))
        assert lt.last_sync().record_time < 1.0
        for n in (2, 3):
            assert lt.zeros((n,)).tolist() == [0.0] * n


def test_elementwise_functions_again():
    """One that is nothing but its operation is recorded as an operator is."""
    a = np.arange(-3, 5, dtype=np.int8)
    x = lt.asarray(a)

    def largest(k):
        return lt.maximum(x, k)

    for k in range(TIMES):
        np.testing.assert_array_equal(largest(k).numpy(), np.maximum(a, k), strict=True)
        np.testing.assert_array_equal(lt.abs(lt.negative(x)).numpy(), np.abs(-a), strict=True)
    with pytest.raises(ScalarRangeError, match="300"):
        largest(300)
    np.testing.assert_array_equal(largest(1.5).numpy(), np.maximum(a, 1.5))
    np.testing.assert_array_equal(largest(True).numpy(), np.maximum(a, True), strict=True)
    np.testing.assert_array_equal(largest(a[::-1].copy()).numpy(), np.maximum(a, a[::-1]), strict=True)
    out = lt.zeros((8,), dtype=np.int8)
    assert lt.negative(x, out) is out
    np.testing.assert_array_equal(out.numpy(), -a)
    np.testing.assert_array_equal(lt.add(x, x, where=a > 0, out=out).numpy(), np.where(a > 0, a + a, -a))
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'nothing'"):
        lt.exp(x, nothing=1)
    with lt.eager():
        assert not lt.exp(x).is_pending


def test_which_functions_are_their_operation():
    """What does more than record an operation is asked each time."""
    found = {n: signatures._operation(f) for n, f in table.PUBLIC.items() if isinstance(getattr(np, n, None), np.ufunc)}
    assert {op.name for op in found.values() if op is not None} >= {"exp", "sqrt", "maximum", "add", "less", "atan2"}
    assert not any(found[n] for n in ("pow", "divmod", "rint", "cbrt", "gcd"))


def test_numpys_arguments_still_go_their_way():
    x = lt.asarray(array(3, 4))
    for _ in range(TIMES):
        assert lt.sum(x, axis=0).shape == (4,)
        out = lt.zeros((4,))
        assert lt.sum(x, axis=0, out=out) is out
        np.testing.assert_allclose(out.numpy(), array(3, 4).sum(axis=0), rtol=1e-6)
        assert lt.sum(a=x).shape == ()
        with pytest.raises(TypeError):
            lt.sum()


@pytest.mark.slow
def test_what_a_call_keeps_alive():
    """A step remembers no tensor; what is left of the last round does not grow."""
    x = lt.asarray(array(3, 4))

    def alive() -> int:
        for _ in range(TIMES):
            y = lt.where(x > 0, lt.concatenate([x, x])[:3], x.sum(axis=0))[[0, 1]]
            lt.sync()
        del y
        lt.sync()
        gc.collect()
        return len([o for o in gc.get_objects() if type(o) is lt.Tensor])

    for _ in range(2):
        alive()
    # What other tests left may be collected meanwhile.
    assert alive() >= alive()


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64", "uint64", "bool"])
@pytest.mark.parametrize("compare", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_a_comparison_with_an_integer_beyond_the_dtype_has_numpy_s_answer(dtype, compare):
    f = getattr(operator, compare)
    a = np.array([0, 1, 5]).astype(dtype)
    for k in range(4):
        x = lt.asarray(a)
        for v in (3, 300, -1, 2**31, -(2**63), *([] if dtype == "bool" else [2**63, 2**70])):
            np.testing.assert_array_equal(f(x, v).numpy(), f(a, v), strict=True)
            np.testing.assert_array_equal(f(v, x).numpy(), f(v, a), strict=True)
            if k == 0 and compare == "lt":
                np.testing.assert_array_equal(lt.less(x, v).numpy(), f(a, v), strict=True)
                np.testing.assert_array_equal(np.less(x, v).numpy(), f(a, v), strict=True)


def test_an_integer_to_a_negative_power_is_refused_in_place_too():
    for x in (lt.asarray([1, 2]), lt.asarray([True, False])):
        for f in (operator.pow, operator.ipow):
            with pytest.raises(DTypeError, match=rf"pow: an integer dtype \({x.dtype}\) has no negative power"):
                f(x, -1)


@pytest.mark.parametrize("n", [-1, 0.5, 1, 2, 3, 2.5, -2])
def test_a_power_in_place_has_the_bits_of_the_other(n):
    a = np.array([0.5, 2, 3.3, 0.1, 7], np.float32)
    for _ in range(4):
        x = lt.asarray(a)
        y = x**n
        x **= n
        np.testing.assert_array_equal(x.numpy(), y.numpy(), strict=True)
    with pytest.raises(TypeError, match="unsupported operand"):
        x **= "2"


@pytest.mark.parametrize("n", [1000, 80])
def test_large_leaves_count_for_the_bound_each_time(n):
    a = array(n, 3)
    x, y = lt.asarray(a), lt.asarray(a + 1)
    lt.sync()
    for _ in range(TIMES):
        z = lt.sum(x + y, axis=1)
        again = x + 1
        assert local.trace.nbytes == (2 * a.nbytes if a.nbytes > inputs.SMALL else 0)
        lt.sync()
        np.testing.assert_allclose(z.numpy(), (2 * a + 1).sum(1), atol=1e-4)
        np.testing.assert_array_equal(again.numpy(), a + 1)


def _kinds(bound):
    """An argument of each kind that means a bound, or none: made once, made anew, pending, and seen through a view."""
    kept, pair = lt.asarray(np.float32(bound)), lt.asarray(np.array([bound, 9], np.float32))
    lt.sync()
    return {
        "None": lambda: None, "float": lambda: bound, "int": lambda: int(bound), "bool": lambda: bool(bound),
        "float32": lambda: np.float32(bound), "int64": lambda: np.int64(bound), "kept": lambda: kept,
        "new": lambda: lt.asarray(np.float32(bound)), "pending": lambda: kept * 1, "view": lambda: pair[0],
    }  # fmt: skip


TAKEN = {
    "clip from below": (lambda x, b: lt.clip(x * 1, b, 4.0), lambda a, b: np.clip(a, b, 4)),
    "clip from above": (lambda x, b: lt.clip(x * 1, -9.0, b), lambda a, b: np.clip(a, -9, b)),
    "clamp": (lambda x, b: (x * 1).clamp(b, 4.0), lambda a, b: np.clip(a, b, 4)),
    "where": (lambda x, b: lt.where(x * 1 > 0, 0.0 if b is None else b, x), lambda a, b: np.where(a > 0, b or 0, a)),
    "isclose": (lambda x, b: lt.isclose(x * 1, 3.0 if b is None else b), lambda a, b: np.isclose(a, b or 3)),
    "maximum": (lambda x, b: lt.maximum(x * 1, -9.0 if b is None else b), lambda a, b: np.maximum(a, b or -9)),
    "sum": (lambda x, b: lt.sum(x * 1, 0 if b is None else (0, 1)), lambda a, b: a.sum(0 if b is None else (0, 1))),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("first", list(_kinds(1.0)))
def test_an_argument_of_another_kind_is_not_the_one_that_is_remembered(name, first):
    """A tensor that no trace has met has no slot, as None has none."""
    a = np.array([[1.0, 5.0, -3.0], [0.0, -1.0, 3.0]], np.float32)
    x, kinds = lt.asarray(a), _kinds(1.0)
    ours, numpys = TAKEN[name]
    for then in kinds:
        for k in range(6):
            kind = first if k < 4 else then
            want = numpys(a, None if kind == "None" else 1.0)
            np.testing.assert_array_equal(ours(x, kinds[kind]()).numpy(), want, err_msg=f"{kind} after {first}")


@pytest.mark.parametrize("form", ["key", "key, 0", "0, key", "..., key", "key, key"])
def test_a_part_of_a_key_of_another_kind_is_not_the_one_that_is_remembered(form):
    a = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    x, kept = lt.asarray(a), lt.asarray(np.array([1]))
    kinds = {
        "None": (None, lambda: None), "int": (1, lambda: 1), "bool": (True, lambda: True), "slice": (slice(1), None),
        "int64": (np.int64(1), None), "kept": ([1], lambda: kept), "new": ([1], lambda: lt.asarray(np.array([1]))),
        "pending": ([1], lambda: kept * 1), "view": ([1], lambda: kept[:]), "list": ([1], None),
    }  # fmt: skip
    parts = eval(f"lambda key: ({form})")

    def at(y, key):
        return (y * 1)[parts(key)] if type(y) is lt.Tensor else y[parts(key)]

    for first in kinds:
        for then in ("kept", "new", "None", "int", "bool"):
            for k in range(5):
                kind = first if k < 3 else then
                of_numpy, made = kinds[kind]
                got = at(x, made() if made is not None else of_numpy).numpy()
                np.testing.assert_array_equal(got, at(a, of_numpy), err_msg=f"{kind} after {first}", strict=True)


def test_static_arguments_of_other_kinds_are_compared_by_kind_first():
    """NumPy's integers compare to an array with a tuple, and 1, True and 1.0 are equal."""
    a = array(3, 4)
    x = lt.asarray(a)
    for k in range(TIMES):
        axis = (np.int64(0), (0, 1), None, 1, np.int32(1))[k % 5]
        np.testing.assert_allclose(lt.sum(x * 1, axis=axis).numpy(), a.sum(axis=axis), rtol=1e-5)


def test_constants_of_a_deferred_call_of_numpy_are_compared_by_kind_and_sign():
    for value in (0.0, -0.0, 0.0, 0, -0.0, True):
        x, a = lt.asarray([1.0, 2.0]) * 1, np.array([1.0, 2.0], np.float32)
        np.multiply.at(x, [0], value)
        np.multiply.at(a, [0], value)
        np.testing.assert_array_equal(np.signbit(x.numpy()), np.signbit(a))
        np.testing.assert_array_equal(x.numpy(), a)
