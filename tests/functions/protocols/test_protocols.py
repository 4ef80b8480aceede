"""NumPy's functions and ufuncs called on tensors: what records, what computes and says why, what is refused."""

from __future__ import annotations

import copy
import inspect
import math
import pickle

import numpy as np
import pytest

import lazyt as lt

A = np.linspace(-2.0, 3.0, 12).reshape(3, 4)
B = np.arange(12.0).reshape(3, 4) + 1


def same(found, want, **tolerance):
    """Equal structure, shapes, dtypes and values, tensors on one side and arrays on the other."""
    if isinstance(want, list | tuple):
        assert type(found) is type(want) or isinstance(found, tuple)
        for f, w in zip(found, want, strict=True):
            same(f, w, **tolerance)
        return
    assert isinstance(found, lt.Tensor)
    want = np.asarray(want)
    assert (found.shape, found.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(np.asarray(found), want, **{"rtol": 1e-12, "atol": 1e-12, **tolerance})


# Programs that record all of their NumPy calls.
RECORDED = {
    "sin": lambda x, y: np.sin(x),
    "mean": lambda x, y: np.mean(x, axis=0),
    "concatenate": lambda x, y: np.concatenate([x, y]),
    "array + tensor": lambda x, y: B + x,
    "scalar * tensor": lambda x, y: np.float64(2) * x,
    "add of lists": lambda x, y: np.add(x, [1, 2, 3, 4]),
    "dtype=": lambda x, y: np.add(x, y, dtype=np.float32),
    "divmod": lambda x, y: np.divmod(x, y),
    "cbrt": lambda x, y: np.cbrt(x),
    "frexp": lambda x, y: np.frexp(x),
    "gcd": lambda x, y: np.gcd(np.astype(y, int), 4),
    "clip": lambda x, y: np.clip(x, -1, 1),
    "clip by name": lambda x, y: np.clip(x, min=-1, max=y),
    "where": lambda x, y: np.where(x > 0, x, y),
    "sum": lambda x, y: np.sum(x, 1, keepdims=True),
    "sum where": lambda x, y: np.sum(x, axis=1, where=B > 2, initial=5.0),
    "max initial": lambda x, y: np.max(x, axis=1, initial=1.0),
    "mean where": lambda x, y: np.mean(x, axis=0, where=B > 2),
    "any": lambda x, y: np.any(x > 1, axis=1),
    "std": lambda x, y: np.std(x, axis=1, ddof=1),
    "argsort": lambda x, y: np.argsort(x, 0, kind="stable"),
    "sort flat": lambda x, y: np.sort(x, axis=None),
    "add.reduce": lambda x, y: np.add.reduce(x),
    "add.reduce all": lambda x, y: np.add.reduce(x, axis=None, initial=2.0),
    "maximum.reduce": lambda x, y: np.maximum.reduce(x, axis=1, keepdims=True),
    "hypot.reduce": lambda x, y: np.hypot.reduce(x, axis=1),
    "logaddexp.reduce": lambda x, y: np.logaddexp.reduce(x, axis=(1,)),
    "add.accumulate": lambda x, y: np.add.accumulate(x, axis=1),
    "maximum.accumulate": lambda x, y: np.maximum.accumulate(x),
    "multiply.outer": lambda x, y: np.multiply.outer(x, y[0]),
    "gcd.outer": lambda x, y: np.hypot.outer(x[0], y[1]),
    "add.reduceat": lambda x, y: np.add.reduceat(x, [0, 2, 1], axis=1),
    "matmul": lambda x, y: np.matmul(x, y.T),
    "array @ tensor": lambda x, y: B.T @ x,
    "dot": lambda x, y: np.dot(x, y.T),
    "vdot": lambda x, y: np.vdot(x, y),
    "einsum": lambda x, y: np.einsum("ij,kj->ik", x, y),
    "einsum along a path": lambda x, y: np.einsum("ij,kj,kl->il", x, y, x, optimize=["einsum_path", (1, 2), (0, 1)]),
    "einsum, greedy": lambda x, y: np.einsum("ij,kj,kl", x, y, x, optimize="greedy"),
    "einsum of lists": lambda x, y: np.einsum(x, [0, 1], y, [2, 1], x, [2, 3], [0, 3], optimize=True),
    "tensordot": lambda x, y: np.tensordot(x, y, axes=([0, 1], [0, 1])),
    "split": lambda x, y: np.split(x, 3),
    "array_split": lambda x, y: np.array_split(x, 2, axis=1),
    "hsplit": lambda x, y: np.hsplit(x, 2),
    "stack": lambda x, y: np.stack([x, y], axis=1),
    "vstack": lambda x, y: np.vstack((x, B)),
    "block": lambda x, y: np.block([[x, y], [y, x]]),
    "transpose": lambda x, y: np.transpose(x, (1, 0)),
    "reshape": lambda x, y: np.reshape(x, (4, -1)),
    "reshape in Fortran's order": lambda x, y: np.reshape(x, (2, -1), order="F"),
    "ravel in Fortran's order": lambda x, y: np.ravel(x, order="F"),
    "linspace of arrays": lambda x, y: np.linspace(x[0], y, 5, axis=1),
    "linspace without its end": lambda x, y: np.linspace(x[0], y[0], 3, endpoint=False),
    "logspace of arrays": lambda x, y: np.logspace(x[0], x[1], 3),
    "digitize in decreasing bins": lambda x, y: np.digitize(x, np.array([3.0, 1.0, -1.0])),
    "digitize in a tensor's bins": lambda x, y: np.digitize(x, -y[0] + 3, right=True),
    "svd values": lambda x, y: np.linalg.svd(x, compute_uv=False),
    "creation like": lambda x, y: np.full((2,), 3, dtype=np.int8, like=x),
    "ravel": lambda x, y: np.ravel(x),
    "expand_dims": lambda x, y: np.expand_dims(x, 1),
    "squeeze": lambda x, y: np.squeeze(x[:, :1]),
    "roll": lambda x, y: np.roll(x, 1, axis=0),
    "flip": lambda x, y: np.flip(x, 1),
    "tile": lambda x, y: np.tile(x, (2, 1)),
    "repeat": lambda x, y: np.repeat(x, 2, axis=0),
    "pad": lambda x, y: np.pad(x, ((1, 0), (0, 2)), constant_values=3.0),
    "pad edge": lambda x, y: np.pad(x, 1, mode="edge"),
    "take": lambda x, y: np.take(x, [2, 0], axis=0),
    "take_along_axis": lambda x, y: np.take_along_axis(x, np.array([[0], [1], [2]]), axis=1),
    "diff": lambda x, y: np.diff(x, n=1, axis=0),
    "cumsum": lambda x, y: np.cumsum(x, axis=1),
    "percentile": lambda x, y: np.percentile(x, [10, 50], axis=1),
    "median": lambda x, y: np.median(x, axis=0, keepdims=True),
    "histogram": lambda x, y: np.histogram(x, bins=3),
    "histogram range": lambda x, y: np.histogram(x, 4, (0, 2), weights=B),
    "interp": lambda x, y: np.interp(x, [1, 2], [3, 4]),
    "convolve": lambda x, y: np.convolve(x[0], y[1], "same"),
    "gradient": lambda x, y: np.gradient(x),
    "cov": lambda x, y: np.cov(x),
    "average": lambda x, y: np.average(x, axis=0, weights=B),
    "searchsorted": lambda x, y: np.searchsorted(y[0], x),
    "digitize": lambda x, y: np.digitize(x, np.array([0.0, 1.0])),
    "isin": lambda x, y: np.isin(y, [1, 2, 3]),
    "nan_to_num": lambda x, y: np.nan_to_num(x),
    "linalg.norm": lambda x, y: np.linalg.norm(x, axis=1),
    "linalg.inv": lambda x, y: np.linalg.inv(x[:, :3] + np.eye(3)),
    "linalg.solve": lambda x, y: np.linalg.solve(np.eye(3) * 2, x),
    "fft": lambda x, y: np.fft.fft(x, axis=0),
    "fft2": lambda x, y: np.fft.ifft2(np.fft.fft2(x)),
    "zeros_like": lambda x, y: np.zeros_like(x),
    "full_like": lambda x, y: np.full_like(x, 3, dtype=np.int32, shape=(2,)),
    "copy": lambda x, y: np.copy(x),
    "round": lambda x, y: np.round(x, 1),
    "astype": lambda x, y: np.astype(x, np.int32),
    "unstack": lambda x, y: np.unstack(x),
    "meshgrid": lambda x, y: np.meshgrid(x[0], y[0]),
    "triu": lambda x, y: np.triu(x, 1),
    "kron": lambda x, y: np.kron(x[:1], y[0]),
    "cross": lambda x, y: np.cross(x[:, :3], y[:, :3]),
    "trace": lambda x, y: np.trace(x, offset=1),
    "diagonal": lambda x, y: np.diagonal(x),
    "moveaxis": lambda x, y: np.moveaxis(x, 0, -1),
    "broadcast_to": lambda x, y: np.broadcast_to(x, (2, 3, 4)),
    "real": lambda x, y: np.real(x * 1j),
    "sliding_window_view": lambda x, y: np.lib.stride_tricks.sliding_window_view(x, 2, axis=1),
    "select": lambda x, y: np.select([x > 1, x > 0], [x, y], 7.0),
    "apply_along_axis": lambda x, y: np.apply_along_axis(lambda v: v.max() - v.min(), 1, x),
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_numpy_function_records(name):
    program = RECORDED[name]
    x, y = lt.asarray(A), lt.asarray(B)
    with lt.no_sync():
        found = program(x, y)
    same(found, program(A, B))


COMPUTED = {
    "unique": (lambda x: np.unique(x), "unique"),
    "nonzero": (lambda x: np.nonzero(x > 1), "nonzero"),
    "argwhere": (lambda x: np.argwhere(x > 1), "argwhere"),
    "where of one": (lambda x: np.where(x > 1), "nonzero"),
    "extract": (lambda x: np.extract(x > 1, x), "extract"),
    "bincount": (lambda x: np.bincount(np.astype(np.ravel(x) ** 2, np.int64)), "bincount"),
    "unique axis": (lambda x: np.unique(x, axis=0), "unique"),
    "pad by a function": (lambda x: np.pad(x, 1, lambda v, w, a, k: None), "numpy.pad"),
    "pad with the other sign": (lambda x: np.pad(x, 1, mode="reflect", reflect_type="odd"), "numpy.pad"),
    "take, clipped": (lambda x: np.take(x, [0, 9], axis=1, mode="clip"), "numpy.take(mode=)"),
    "quantile by weights": (lambda x: np.quantile(x, 0.5, weights=B, method="inverted_cdf"), "numpy.quantile"),
    "meshgrid, sparse": (lambda x: np.meshgrid(x[0], A[1], sparse=True), "numpy.meshgrid"),
    "geomspace": (lambda x: np.geomspace(abs(x[0]) + 1, B[0], 3), "numpy.geomspace"),
    "emath": (lambda x: np.emath.sqrt(x), "numpy.lib.scimath.sqrt"),
    "setxor1d": (lambda x: np.setxor1d(x, [1.0]), "setxor1d"),
    "var mean": (lambda x: np.var(x, mean=0.5), r"numpy.var(mean=)"),
    "roots": (lambda x: np.roots(x[0]), "numpy.roots"),
    "polyfit": (lambda x: np.polyfit(np.arange(4.0), x[0], 1), "numpy.polyfit"),
    "cond": (lambda x: np.linalg.cond(x + np.eye(3, 4)), None),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_what_numpy_computes_names_itself_as_the_cause(name):
    program, cause = COMPUTED[name]
    with lt.expect(syncs=0 if cause is None else 1):
        found = program(lt.asarray(A) + 0)
    if cause is not None:
        assert lt.last_sync().cause == cause
        with lt.no_sync(), pytest.raises(lt.SyncError, match="no_sync: a sync is not allowed here"):
            program(lt.asarray(A) + 0)
    same(found, program(A), rtol=1e-9)


def test_an_array_over_a_tensors_memory_shares_it():
    x, want = lt.asarray(A[0]) + 0, np.random.default_rng(0).permutation(A[0])
    assert not np.may_share_memory(x, A)
    assert np.may_share_memory(np.asarray(x), x) and np.may_share_memory(x, x.numpy()[1:])
    assert not np.may_share_memory(x, A) and not np.shares_memory([1.0], x)
    # NumPy shuffles a copy where the array that it made shares memory with what it was given.
    np.testing.assert_array_equal(np.random.default_rng(0).permutation(x), want)
    np.testing.assert_array_equal(x.numpy(), A[0])


def test_text_and_metadata_stay_what_numpy_gives():
    x = lt.asarray(A) + 0
    with lt.no_sync():
        assert np.shape(x) == (3, 4) and np.ndim(x) == 2 and np.size(x) == 12 and np.size(x, 1) == 4
        assert np.iscomplexobj(x) is False and np.isrealobj(x) is True
        assert np.result_type(x, np.float32) == np.float64
        assert np.common_type(x) is np.float64
        assert np.shares_memory(x, x[1:]) and not np.shares_memory(x, lt.asarray(A))
        assert np.can_cast(x, np.float64) and not np.can_cast(x, np.int64)
    assert np.array_str(x) == np.array_str(A)
    with np.printoptions(precision=2, suppress=True):
        assert str(x) == str(A) and f"{x}" == str(A)
        assert "0.73" in repr(x) and "0.727" not in repr(x)
    assert f"{x[0, 0]:.2f}" == "-2.00" and f"{x[0, 0]}" == "-2.0"
    with pytest.raises(TypeError, match="unsupported format string"):
        format(x, ".2f")


def test_explain_names_what_runs_in_numpy():
    x = lt.asarray(A)
    assert "numpy.cbrt" in str(np.cbrt(x).explain()) and "numpy.hypot.reduce" in str(np.hypot.reduce(x).explain())


def test_a_ufunc_of_another_library_is_one_deferred_step():
    double = np.frompyfunc(lambda v: 2 * v, 1, 1)
    special = pytest.importorskip("scipy.special")
    x = lt.asarray(A)
    with lt.no_sync():
        y = special.expit(x)
        z = special.gammaln(lt.asarray(B.astype(np.float32)))
    same(y, special.expit(A))
    assert z.dtype == np.float32
    assert "ufunc expit" in str(special.expit(x).explain())
    with pytest.raises(lt.DTypeError, match="not supported: its loop over object"):
        double(x)


# --- out=, where=, at ----------------------------------------------------------------------------------------------


def test_out_is_a_deferred_write():
    x, out = lt.asarray(A), lt.zeros((3, 4), dtype=lt.float64)
    view = out[1]
    with lt.no_sync():
        assert np.multiply(x, 2, out=out) is out
        assert np.sum(x, axis=0, out=view) is view
    want = A * 2
    want[1] = A.sum(0)
    same(out, want)
    with lt.no_sync():
        np.add(x, 1, out=out, where=A > 0)
    np.add(A, 1, out=want, where=A > 0)
    same(out, want)
    with lt.no_sync():
        np.add(1, 2, out=out)
    same(out, np.full((3, 4), 3.0))


def test_out_must_fit():
    x = lt.asarray(A)
    with pytest.raises(lt.ShapeError, match="out has shape"):
        np.add(x, 1, out=lt.zeros(3, dtype=lt.float64))
    with pytest.raises(lt.DTypeError, match="cannot be written into a tensor of dtype int64"):
        np.add(x, 1, out=lt.zeros((3, 4), dtype=lt.int64))


def test_an_array_as_out_computes():
    x, out = lt.asarray(A) + 0, np.zeros((3, 4))
    assert np.multiply(x, 2, out=out) is out
    np.testing.assert_array_equal(out, A * 2)
    assert lt.last_sync().cause == "numpy.multiply(out=ndarray)"
    b = B.copy()
    alias = b
    b += lt.asarray(A)
    assert b is alias
    np.testing.assert_array_equal(b, A + B)


def test_where_without_out_leaves_zeros():
    same(np.add(lt.asarray(A), 1, where=A > 0), np.add(A, 1, where=A > 0, out=np.zeros_like(A)))


@pytest.mark.parametrize(
    ("ufunc", "values"), [(np.add, (2.5,)), (np.multiply, ([1.0, 2.0, 3.0],)), (np.maximum, (1.0,)), (np.negative, ())]
)
def test_at_is_a_deferred_write(ufunc, values):
    a = np.arange(4.0)
    x = lt.asarray(a)
    with lt.no_sync():
        ufunc.at(x, [0, 3, 3], *values)
    ufunc.at(a, [0, 3, 3], *values)
    same(x, a)


def test_at_keeps_the_dtype():
    with pytest.raises(lt.DTypeError, match="cannot be added to a tensor of dtype int64"):
        np.add.at(lt.arange(3), [0], 0.5)


def test_writes_of_numpys_functions_are_deferred():
    a, x = B.copy(), lt.asarray(B)
    for y in (a, x):
        np.put(y, [0, -1], [7.0, 8.0])
        np.putmask(y, B > 9, -1.0)
        np.fill_diagonal(y, 0.5)
        np.copyto(y, 3.0, where=B < 3)
        np.place(y, B == 5, [9.0])
        np.put_along_axis(y, np.array([[1], [2], [3]]), 11.0, axis=1)
    same(x, a)
    with lt.no_sync():
        np.put(x, [0], [1.0])


# --- foreign and refused -------------------------------------------------------------------------------------------


class Foreign:
    """An array of another library."""

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return "ufunc", ufunc.__name__

    def __array_function__(self, f, types, args, kwargs):
        return "function", f.__name__


class Masked(np.ndarray):
    """A subclass of ndarray with a protocol of its own."""

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return "ufunc", ufunc.__name__


def test_foreign_objects_decide_themselves():
    x = lt.asarray(A)
    assert np.add(x, Foreign()) == ("ufunc", "add")
    assert np.add(x, np.zeros(4).view(Masked)) == ("ufunc", "add")
    assert np.concatenate([x, Foreign()]) == ("function", "concatenate")
    assert x.__array_ufunc__(np.add, "__call__", x, object()) is NotImplemented
    assert x.__array_function__(np.sum, (lt.Tensor, Foreign), (x,), {}) is NotImplemented
    with pytest.raises(TypeError, match="operand type"):
        np.add(x, object())
    with pytest.raises(TypeError):
        x + object()


@pytest.mark.parametrize("a", [np.array(["a"]), np.array([None]), np.array(["2020-01-01"], "M8[D]")])
def test_arrays_of_other_dtypes_are_refused_by_name(a):
    with pytest.raises(lt.DTypeError, match=str(a.dtype).replace("[", r"\[").replace("<", "")):
        np.add(lt.ones(1), a)
    with pytest.raises(lt.DTypeError, match=str(a.dtype).replace("[", r"\[").replace("<", "")):
        np.concatenate([lt.ones(1), a])


def test_what_has_no_meaning_is_refused():
    with pytest.raises(lt.NotSupportedError, match=r"numpy\.is_busday: not supported"):
        np.is_busday(lt.ones(1))
    with pytest.raises(ValueError, match="casting is one of no, equiv, safe, same_kind, unsafe, got 'any'"):
        np.add(lt.ones(1), 1, casting="any")


def test_gradients_do_not_vanish_in_numpy():
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    np.sum(np.sin(w) * np.where(w > 1, w, 2 * w)).backward()
    assert w.grad.shape == (2,)
    with pytest.raises(lt.AutogradError, match=r"numpy\.cbrt: not supported: a gradient through it"):
        np.cbrt(w)
    with pytest.raises(lt.AutogradError, match=r"numpy\.polyfit: not supported: a gradient through it"):
        np.polyfit([0.0, 1.0], w, 1)
    assert np.cbrt(w.detach()).shape == (2,)
    with lt.no_grad():
        assert np.cbrt(w).shape == (2,)


# --- the tensor as an object ---------------------------------------------------------------------------------------


def test_array_interface_is_there_when_the_value_is():
    x = lt.asarray(A) + 0
    assert not hasattr(x, "__array_interface__")
    lt.sync()
    a = np.asarray(x)
    assert not a.flags.writeable and np.shares_memory(a, np.asarray(x))
    x += 1
    lt.sync()
    np.testing.assert_array_equal(a, A)  # what was exported never changes
    assert np.array(x).flags.writeable
    assert not hasattr(x.T, "__array_interface__")
    np.testing.assert_array_equal(np.asarray(x.T), A.T + 1)
    np.testing.assert_array_equal(np.asarray(lt.ones(2, dtype=lt.bfloat16)), [1, 1])
    with pytest.raises(ValueError, match="copy"):
        np.asarray(x, dtype=np.float32, copy=False)


def test_a_tensor_has_no_hash_and_says_why():
    with pytest.raises(TypeError, match=r"unhashable type: 'lazyt.Tensor', because == compares elements"):
        hash(lt.ones(1))
    assert {id(lt.ones(1)): 1}


def test_copies_and_pickles():
    x = lt.asarray(A) + 0
    for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        same(y, A)
        y += 1
        same(x, A)


def test_sequences():
    x = lt.asarray(A)
    assert len(x) == 3 and [float(r[0]) for r in x] == list(A[:, 0]) and 3.0 in x and 4.0 not in x
    assert [float(r[0]) for r in reversed(x)] == list(A[::-1, 0])
    for f in (len, iter):
        with pytest.raises(TypeError, match="0-d tensor"):
            f(lt.ones(()))
    assert [1, 2, 3][lt.asarray(1)] == 2 and complex(lt.asarray(2.0)) == 2 + 0j
    assert divmod(lt.asarray(7), 2)[0].item() == 3


def test_creation_like_a_tensor():
    x = lt.asarray(A)
    with lt.no_sync():
        made = [np.zeros((2,), like=x), np.arange(3, like=x), np.asarray([1, 2], like=x), np.full((2,), 3, like=x)]
    assert all(isinstance(m, lt.Tensor) for m in made)
    assert made[1].tolist() == [0, 1, 2]


def test_a_path_that_does_not_fit_is_refused():
    x = lt.asarray(A)
    for path, match in (([(0, 1)], "leaves 2 operands of 3"), ([(0, 5), (0, 1)], "does not fit 3 operands")):
        with pytest.raises(lt.ShapeError, match=match):
            lt.einsum("ij,kj,kl->il", x, x, x, optimize=path)


def test_one_function_of_several_names_has_its_own_arguments():
    x = lt.asarray(A)
    assert np.transpose(x).shape == np.permute_dims(x).shape == A.T.shape
    same(np.transpose(x, (1, 0)), A.T)


@pytest.mark.parametrize("kind", [float, complex])
def test_python_types_are_numpys_dtypes_in_numpys_functions(kind):
    x = lt.ones(3)
    assert np.sum(x, 0, kind).dtype == np.add.reduce(x, dtype=kind).dtype == np.zeros_like(x, dtype=kind).dtype == kind


@pytest.mark.parametrize(
    "call",
    [
        lambda x, i: np.arctan2.reduce(x, axis=None),
        lambda x, i: np.bitwise_or.at(x, [0], 1),
        lambda x, i: np.bitwise_and.accumulate(i, dtype=np.float64),
        lambda x, i: np.fmax.reduce(x, axis=0, where=x > 1),
        lambda x, i: np.hypot.reduceat(x[:0], [0]),
    ],
)
def test_what_numpy_refuses_by_its_arguments_is_refused_when_recorded(call):
    with lt.no_sync(), pytest.raises((lt.ShapeError, lt.DTypeError, lt.IndexOutOfRange), match=r"^numpy\.\w+\.\w+: "):
        call(lt.asarray(A), lt.asarray(np.arange(4)))


def test_a_reduction_accumulates_in_the_dtype_that_is_asked_for():
    m = A > 1
    same(np.arctan2.reduce(lt.asarray(m), dtype=np.float64), np.arctan2.reduce(m, dtype=np.float64))
    same(np.maximum.reduce(lt.asarray(m), initial=1), np.maximum.reduce(m, initial=1))


@pytest.mark.parametrize("key", [np.s_[1:], np.s_[..., 1], np.s_[:, 0], None, np.s_[[0, 1, 0], 1]])
@pytest.mark.parametrize("ufunc", [np.add, np.multiply])
def test_at_takes_any_index(ufunc, key):
    x, want = lt.asarray(A), A.copy()
    with lt.no_sync():
        ufunc.at(x, key, 2.0)
    ufunc.at(want, key, 2.0)
    same(x, want)


def test_loops_that_lazyt_has_not_are_numpys():
    i = np.array([1, 2, -3])
    same(np.reciprocal(lt.asarray(i)), np.reciprocal(i))
    same(np.left_shift(lt.asarray(i > 1), lt.asarray(i > 0)), np.left_shift(i > 1, i > 0))
    for name in ("fabs", "rint"):
        same(getattr(np, name)(lt.asarray(i)), getattr(np, name)(i))
        same(getattr(lt, name)(i), getattr(np, name)(i))
    same(np.linalg.qr(lt.asarray(A), mode="r"), np.linalg.qr(A, mode="r"))


def test_numbers_round_as_scalars_do():
    x = lt.asarray(2.567, dtype=lt.float64)
    assert round(x, 1).item() == 2.6 and round(x) == 3 and type(round(x)) is int
    assert math.trunc(x) == 2 and x.real.item() == 2.567 and lt.asarray(1 + 2j).imag.item() == 2


NUMPYS_SIGNATURES = {
    "sum": lambda x, xp: xp.sum(x, axis=0, where=x > 0, initial=2.0),
    "mean": lambda x, xp: xp.mean(x, axis=1, where=x > -1),
    "std": lambda x, xp: xp.std(x, axis=0, ddof=1, dtype=np.float32),
    "var": lambda x, xp: xp.var(x, where=x > 0, keepdims=True),
    "max": lambda x, xp: xp.max(x, axis=0, where=x > 0, initial=-1.0),
    "all": lambda x, xp: xp.all(x > 0, axis=0, where=x < 2),
    "nansum": lambda x, xp: xp.nansum(x, where=x > 0),
    "clip": lambda x, xp: xp.clip(x, a_min=0, a_max=None),
    "a ufunc's dtype": lambda x, xp: xp.add(x, x, dtype=np.float32),
    "split": lambda x, xp: xp.split(ary=x, indices_or_sections=2, axis=1)[0],
    "repeat": lambda x, xp: xp.repeat(x, repeats=2, axis=0),
    "tile": lambda x, xp: xp.tile(x, reps=(2, 1)),
    "moveaxis": lambda x, xp: xp.moveaxis(x, source=0, destination=1),
    "swapaxes": lambda x, xp: xp.swapaxes(x, axis1=0, axis2=1),
    "angle": lambda x, xp: xp.angle(x * 1j, deg=True),
    "sort": lambda x, xp: xp.sort(x, kind="stable"),
    "concatenate": lambda x, xp: xp.concatenate([x, x], dtype=np.float32),
    "reshape": lambda x, xp: xp.reshape(x, (4, 3), order="F"),
    "ravel": lambda x, xp: xp.ravel(x, order="F"),
    "take": lambda x, xp: xp.take(x, [0, 9], mode="clip"),
    "cross": lambda x, xp: xp.cross(x[:, :3], x[:, 1:], axisc=0),
    "meshgrid": lambda x, xp: xp.meshgrid(x[0], x[1], sparse=True),
    "zeros_like": lambda x, xp: xp.zeros_like(x, shape=(2,)),
    "nan_to_num": lambda x, xp: xp.nan_to_num(x, copy=True),
    "intersect1d": lambda x, xp: xp.intersect1d(x, x[0], return_indices=True),
    "unravel_index": lambda x, xp: xp.unravel_index([3, 5], (2, 4), order="F"),
    "svd": lambda x, xp: xp.linalg.svd(x, compute_uv=False),
    "cond": lambda x, xp: xp.linalg.cond(x[:, :3] + 4 * np.eye(3), 1),
    "matrix_rank": lambda x, xp: xp.linalg.matrix_rank(x, tol=0.1),
    "fft": lambda x, xp: xp.fft.fft(a=x, axis=0),
}


@pytest.mark.parametrize("name", NUMPYS_SIGNATURES)
def test_functions_are_called_by_numpys_signatures(name):
    program = NUMPYS_SIGNATURES[name]
    # NumPy adds up in the float32 that is asked for.
    tolerance = {"rtol": 1e-6} if name == "std" else {}
    same(program(lt.asarray(A), lt), program(A, np), **tolerance)


def test_out_is_a_deferred_write_in_lazyts_functions():
    x, out = lt.asarray(A), lt.zeros(A.shape, dtype=lt.float64)
    with lt.no_sync():
        assert lt.add(x, x, out=out) is out
        assert lt.exp(x, out, where=x > 0) is out
        assert lt.clip(x, 0, 1, out=out) is out
        assert lt.cumsum(x, axis=1, out=out) is out
    same(out, np.cumsum(A, axis=1))


def test_the_fronts_of_functions_say_what_they_take():
    shown = inspect.signature(lt.sum).parameters
    assert list(shown) == ["x", "axis", "dtype", "keepdims", "out", "initial", "where"]
    assert lt.sum.__doc__ == lt.functions.reductions.sum.__doc__
    with pytest.raises(TypeError, match="nonsense"):
        lt.sum(A, nonsense=1)
    with pytest.raises(TypeError, match="nonsense"):
        lt.reshape(A, (4, 3), nonsense=1)
