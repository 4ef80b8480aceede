"""NumPy's names beyond the Array API: each against NumPy over shapes, dtypes and edge cases, recorded without a sync."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import lazyt as lt

RNG = np.random.default_rng(5)
M = RNG.standard_normal((4, 5))
V, W = RNG.standard_normal(7), RNG.standard_normal(3)
N = np.where(RNG.random((4, 5)) < 0.3, np.nan, M)
ALL_NAN = np.array([[np.nan, np.nan], [1.0, np.nan]])
INTS = RNG.integers(-5, 9, (3, 4))
CUBE = RNG.standard_normal((2, 3, 4))
C = V + 1j * V[::-1]
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5])
INFINITE = [np.array(a) for a in ([np.inf], [1, np.inf, 2], [np.inf, 1], [np.inf, -np.inf], [1, np.inf, np.inf, 2])]
INC = np.array([0.0, 1.0, 2.5, 4.0])
ZERO_D = np.array(3)
METHODS = (
    "linear", "lower", "higher", "midpoint", "nearest", "hazen", "weibull", "median_unbiased", "normal_unbiased",
    "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf",
)  # fmt: skip


def f4(a):
    return a.astype(np.float32)


def over(*arrays, **options):
    """Calls with each of these as the first argument."""
    return [((a,), options) for a in arrays]


def call(*args, **kwargs):
    return [(args, kwargs)]


# name -> calls: positional and named arguments.
CASES = {
    # quantiles
    "median": over(M, f4(M), INTS, V, N, V > 0, CUBE, *INFINITE) + over(M, CUBE, N, axis=0) + call(CUBE, axis=(0, 2), keepdims=True)
    + call(V[:1]) + call(V[:6]),
    "quantile": [((V, q), {"method": m}) for m in METHODS for q in (0.0, 0.3, 0.5, 1.0)]
    + [((INTS, [0.25, 0.5]), {"method": m, "axis": 1}) for m in METHODS]
    + call(CUBE, [[0.1, 0.9], [0.5, 0.2]], axis=(0, 1)) + call(f4(M), 0.3) + call(f4(M), [0.3]) + call(N, 0.5, axis=1),
    "percentile": call(M, 30) + call(M, [0, 50, 100], axis=0, keepdims=True) + call(V, np.array(33.0)),
    "nanmedian": over(*INFINITE, N, M, INTS, ALL_NAN) + over(N, ALL_NAN, axis=1) + call(f4(N), axis=0, keepdims=True),
    "nanquantile": [((N, q), {"method": m, "axis": 1}) for m in METHODS for q in (0.3, [0.0, 0.5, 1.0])]
    + call(ALL_NAN, [0.2, 0.7], axis=1) + call(N, 0.4),
    "nanpercentile": call(N, 40) + call(N, [10, 90], axis=0),
    "average": over(M, INTS, f4(M)) + call(M, axis=0) + call(M, weights=np.abs(M)) + call(M, 1, np.arange(5.0))
    + call(INTS, axis=1, weights=np.arange(4)) + call(CUBE, (0, 2), np.abs(CUBE[:, 0])) + call(M, axis=1, keepdims=True)
    + call(M, 0, np.abs(M), True) + call(INTS, None, None, True),
    # reductions without NaN
    "nanprod": over(N, M, INTS) + call(N, axis=0) + call(N, axis=1, keepdims=True),
    "nansum": over(N, INTS) + call(N, axis=1),
    "nanmean": over(N) + call(N, axis=1),
    "nanmax": over(N) + call(N, axis=0),
    "nanvar": over(N, M, INTS, C) + call(N, axis=0, ddof=1) + call(ALL_NAN, axis=1) + call(f4(N), axis=1, keepdims=True),
    "nanstd": over(N, INTS) + call(N, axis=1, ddof=1),
    "nanargmax": over(N, INTS) + call(N[:, :2][~np.isnan(N[:, :2]).all(1)], axis=1),
    "nanargmin": over(N, INTS),
    "nancumsum": over(N, INTS) + call(N, axis=1),
    "nancumprod": over(N, INTS) + call(N, axis=0),
    # comparisons
    "allclose": call(M, M + 1e-12) + call(M, M + 1) + call(N, N) + call(N, N, equal_nan=True) + call(V, 0.0, atol=100.0),
    "array_equal": call(M, M) + call(M, V) + call(N, N) + call(N, N, equal_nan=True) + call(INTS, INTS, equal_nan=True),
    "array_equiv": call(V, V) + call([1, 2], [[1, 2], [1, 2]]) + call(V, W),
    "isclose": call(M, M + 1e-9) + call(SPECIAL, SPECIAL, equal_nan=True),
    # orders
    "lexsort": call((INTS[0], INTS[1], INTS[2])) + call((INTS, INTS[::-1])) + call((INTS, INTS[::-1]), axis=0) + call(INTS),
    "sort_complex": over(C, V, INTS[0], np.array([2, 1], np.int8)),
    # signals
    "ediff1d": over(V, INTS, V[:1], V[:0]) + call(V, 9.0, [1.0, 2.0]) + call(INTS, to_end=[1, 2]),
    "gradient": over(M, V, f4(M), CUBE, INTS) + call(M, 2.0) + call(M, 2.0, 0.5) + call(V, np.cumsum(np.abs(V)))
    + call(M, axis=1) + call(M, edge_order=2) + call(V, np.cumsum(np.abs(V)), edge_order=2) + call(V[:2])
    + call(M, np.arange(4.0) ** 2, 0.5) + call(CUBE, axis=(0, 2)) + call(C),
    "trapezoid": over(V, M, INTS, C) + call(V, dx=0.5) + call(M, axis=0) + call(M, np.arange(5.0) ** 2) + call(V, np.cumsum(V))
    + call(M, np.arange(4.0) ** 2, axis=0) + call(M, M),
    "interp": call(V, INC, INC**2) + call(M, INC, INC**2, left=-9.0, right=9.0) + call(SPECIAL, INC, INC)
    + call(V, [1.0], [2.0]) + call(INC, INC, INC**2) + call(V, INC[::-1], INC**2, period=3.0) + call(V, INC, INC * 1j)
    + call(1.5, INC, INC) + call(INTS, [0, 4], [1, 9]),
    "unwrap": over(V * 5, M * 9, f4(V * 5)) + call(M * 9, axis=0) + call(V * 5, discont=4.0) + call(INTS * 3, period=5)
    + call(INTS * 3, period=4) + call(V * 5, period=2.0),
    "convolve": [((a, b, m), {}) for a, b in ((V, W), (W, V), (INTS[0], INTS[1]), (f4(V), f4(W)), (C, V), (V > 0, W > 0),
                                             (V, W[:1]), (V[:1], V[:1]), (INTS[0], W), (V, V[:4]))
                 for m in ("full", "same", "valid")],
    "correlate": [((a, b, m), {}) for a, b in ((V, W), (W, V), (C, C[:3]), (C[:3], C), (INTS[0], INTS[1]), (V, V[:4]))
                  for m in ("full", "same", "valid")],
    "cov": over(M, V, f4(M), INTS, C, M[:0], M[:, :0], M[:0, :0], V[:0]) + call(V, V[::-1]) + call(M, rowvar=False) + call(M, bias=True) + call(M, ddof=2)
    + call(M, fweights=np.array([1, 2, 1, 3, 1])) + call(M, aweights=np.arange(5.0) + 1)
    + call(M, ddof=0, aweights=np.arange(5.0) + 1) + call(M, M[:2]) + call(M, fweights=np.ones(5, int), aweights=np.arange(5.0) + 1)
    + call(M, dtype=np.float32),
    "corrcoef": over(M, V, f4(M), INTS, M[:0]) + call(V, V[::-1]) + call(M, rowvar=False),
    "diff": over(M, INTS, V > 0) + call(M, n=2, axis=0),
    # choices
    "select": call([V > 1, V > 0], [V, V * 2]) + call([V > 1, V > 0], [V, 2.0], -1.0) + call([M > 0], [W[:1]], 5),
    "choose": call(np.array([[0, 1], [1, 0]]), [M[:2, :2], M[2:, :2]]) + call([0, 1, 2, 1], [10, 20, 30])
    + call(INTS, (V[:4], W[:1]), mode="wrap") + call(INTS, (V[:4], W[:1]), mode="clip"),
    "piecewise": call(V, [V < 0, V >= 0], [-1, 1]) + call(V, [V < 0], [lambda x: -x, lambda x: x * 2])
    + call(INTS, [INTS < 0], [lambda x: -x]) + call(V, V < 0, [5.0, lambda x: x]),
    "apply_along_axis": call(lambda v: v.sum(), 1, M) + call(lambda v: v[:2] * 2, 0, M) + call(lambda v: v * 2, 1, CUBE),
    "apply_over_axes": call("sum", CUBE, [0, 2]),
    # shapes
    "rollaxis": call(CUBE, 2) + call(CUBE, 0, 3) + call(CUBE, -1, 1) + call(CUBE, 1, -1),
    "vsplit": call(M, 2) + call(M, [1, 3]),
    "hsplit": call(M, 5) + call(V, [2, 4]) + call(M, [1, 3]),
    "dsplit": call(CUBE, 2) + call(CUBE, [1]),
    "append": call(V, W) + call(M, M[:1], 0) + call(M, 5) + call(INTS, W),
    "block": call([V, W]) + call([[M, M], [M, M]]) + call([[1, 2], [3, 4]]) + call(M) + call([[M[:, :1], M], [1, np.ones(5)]][:1]),
    "resize": call(V, (2, 5)) + call(V, 3) + call(M, (2, 2)) + call(V[:0], (2,)) + call(V, 0),
    "delete": call(V, 1) + call(M, [0, -1], 1) + call(M, slice(None, None, 2), 0) + call(M, 3) + call(V, V > 0),
    "insert": call(V, 1, 5.0) + call(V, [1, 3], [5.0, 6.0]) + call(M, 1, 9.0, 0) + call(M, 1, V[:5], 0)
    + call(M, 2, V[:4], 1) + call(M, [1, 3], 7.0, 1) + call(V, -1, 3) + call(M, 0, M[:2], 0) + call(M, [1], V[:4, None], 1)
    + call(M, slice(1, 4, 2), 0.0, axis=1) + call(INTS, 2, 1.7),
    "diagflat": call(V) + call(M, 1) + call(W, -2),
    "unravel_index": call(np.array([3, 7]), (3, 4)) + call(11, (3, 4)) + call(INTS % 12, (2, 3, 2)),
    "ravel_multi_index": call((np.array([1, 2]), np.array([3, 0])), (3, 4)) + call((INTS, INTS + 1), (3, 4), "wrap")
    + call((INTS, INTS), (3, 4), mode="clip"),
    "tril_indices": call(3) + call(3, 1, 4),
    "triu_indices": call(3) + call(3, -1, 4),
    "tril_indices_from": call(M) + call(M, 1),
    "triu_indices_from": call(M),
    "diag_indices_from": call(M[:4, :4]),
    "ix_": call([0, 2], [1, 3, 4]) + call(np.arange(3), np.arange(0)),
    # polynomials
    "vander": call(V) + call(W, 2) + call(INTS[0], 4, True) + call(C, 3) + call(V, 0) + call(f4(V), 3)
    + call(SPECIAL, 4) + call(f4(SPECIAL), 1) + call(SPECIAL + 1j, 3, True),
    "polyval": call([1, 2, 3], V) + call(W, M) + call(W, 2.0) + call(INTS[0], INTS),
    "polyadd": call(V, W) + call([1, 2], [3]),
    "polysub": call(V, W) + call([1, 2], [3, 4, 5]),
    "polymul": call(V, W) + call([1, 2], [3, 4, 5]),
    "polyder": call(V) + call(V, 2) + call([1, 2, 3]) + call(V, 0),
    "polyint": call(V) + call(V, 2) + call(V, 2, [1.0, 2.0]) + call([1, 2, 3], 1, 4.0),
    # single elements
    "around": over(M * 100) + call(M, 2) + call(INTS, -1),
    "sinc": over(M, SPECIAL[:2], INTS, f4(M), C),
    "cbrt": over(M, f4(M), INTS, SPECIAL),
    "gcd": call(INTS, 12) + call(INTS, np.array([4, 6, 8, 10])),
    "lcm": call(INTS, 12),
    "ldexp": call(M, 3) + call(f4(M), INTS[0, 0]) + call(V[:4], INTS),
    "frexp": over(M, f4(M), SPECIAL),
    "modf": over(M, f4(M), SPECIAL, INTS),
    "spacing": over(np.abs(M), f4(np.abs(M))),
    "bitwise_count": over(INTS, np.arange(9, dtype=np.uint8)),
    "logaddexp2": call(M, M[0]) + call(M, 1.0),
    "float_power": call(INTS, 3) + call(np.abs(M), M) + call(C, 2.0) + call(np.array([2, 4]), -1),
    "i0": over(M * 10, f4(M), INTS),
    "isneginf": over(SPECIAL, INTS),
    "isposinf": over(SPECIAL, f4(SPECIAL)),
    "iscomplex": over(C, V, np.array([1 + 0j, 1j])),
    "isreal": over(C, V, np.array([1 + 0j, 1j])),
    "angle": over(C, V, SPECIAL, f4(SPECIAL), SPECIAL.astype("f2"), INTS),
    "nan_to_num": over(SPECIAL, f4(SPECIAL)),
    "heaviside": call(SPECIAL, 0.5),
    "packbits": over(INTS, V > 0, CUBE.astype(int)) + [((INTS, ax), {"bitorder": o}) for ax in (0, 1, -1) for o in ("big", "little")],
    "unpackbits": over(np.arange(5, dtype=np.uint8)) + [((np.arange(6, dtype=np.uint8).reshape(2, 3), 1, n, o), {})
                                                        for n in (None, 5, 30, -3) for o in ("big", "little")],
    # histograms
    "histogram": over(V, M, f4(V), INTS) + call(V, 4, (-1, 1)) + call(V, INC) + call(V, 3, density=True) + call(V, ZERO_D)
    + call(V, 3, weights=np.abs(V)) + call(V, [0, 1, 2]) + call(INTS, 3, weights=INTS) + call(V, 3, None, True, np.abs(V)),
    "histogram2d": call(V, V[::-1]) + call(V, V[::-1], 3, [(-1, 1), (-2, 2)]) + call(V, V, [2, 3]) + call(V, V, [INC, 3]) + call(V, V, ZERO_D)
    + call(V, V, INC) + call(V, V, 2, density=True) + call(V, V, 2, weights=np.abs(V)),
    "histogram_bin_edges": over(V, f4(V), INTS) + call(V, 3, (0, 1)) + call(V, INC) + call(V, ZERO_D),
}  # fmt: skip
# What NumPy rounds in another order.
LOOSE = {"cov", "corrcoef", "i0", "polyval"}
# Whose program has a host decision in it: a sync, with a cause.
SYNCS = {("delete", 4)}


def lazy(a):
    if isinstance(a, np.ndarray):
        return lt.asarray(a)
    if isinstance(a, list | tuple) and any(isinstance(x, np.ndarray) for x in a):
        return type(a)(map(lazy, a))
    return a


def compare(found, want, **tolerance):
    if isinstance(want, list | tuple):
        assert isinstance(found, list | tuple) and len(found) == len(want)
        for f, w in zip(found, want, strict=True):
            compare(f, w, **tolerance)
        return
    assert isinstance(found, lt.Tensor), type(found)
    want = np.asarray(want)
    assert found.shape == want.shape
    if want.dtype != found.dtype:
        # Python floats are float32 on their own here, and float64 in NumPy.
        assert {found.dtype, want.dtype} in ({np.dtype("f4"), np.dtype("f8")}, {np.dtype("c8"), np.dtype("c16")})
    exact = want.dtype.kind in "biu"
    eps = 0 if exact else max(np.finfo(found.dtype).eps, np.finfo(want.dtype).eps) * 40
    np.testing.assert_allclose(np.asarray(found), want, rtol=max(eps, tolerance.get("rtol", 0)), atol=eps)


def numpy_of(name, args, kwargs):
    if name == "apply_over_axes":
        args = (np.sum, *args[1:])
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(np, name)(*args, **kwargs)


@pytest.mark.parametrize("name", CASES)
def test_as_numpy(name):
    f = getattr(lt, name)
    for i, (args, kwargs) in enumerate(CASES[name]):
        given = [lt.sum if isinstance(a, str) and name == "apply_over_axes" else lazy(a) for a in args]
        named = {k: lazy(v) for k, v in kwargs.items()}
        if (name, i) in SYNCS:
            found = f(*given, **named)
        else:
            with lt.no_sync():
                found = f(*given, **named)
        try:
            compare(found, numpy_of(name, args, kwargs), rtol=1e-5 if name in LOOSE else 0)
        except AssertionError as e:
            e.add_note(f"lt.{name}, call {i}: {args!r} {kwargs!r}")
            raise


def test_partitions_put_the_kth_in_its_place():
    for kth in (2, [1, 3], -1):
        same, index = lt.partition(lt.asarray(M), kth, axis=1), lt.argpartition(lt.asarray(M), kth, axis=1)
        want = np.partition(M, kth, axis=1)
        np.testing.assert_array_equal(np.asarray(same)[:, kth], want[:, kth])
        np.testing.assert_array_equal(np.take_along_axis(M, np.asarray(index), 1)[:, kth], want[:, kth])
    np.testing.assert_array_equal(np.asarray(lt.partition(lt.asarray(M), 3, axis=None)), np.sort(M, axis=None))


def test_grids():
    np.testing.assert_array_equal(np.asarray(lt.mgrid[0:3, 1:2:3j]), np.mgrid[0:3, 1:2:3j])
    compare(lt.ogrid[0:3, 0:2], np.ogrid[0:3, 0:2])
    found, edges = lt.histogramdd(lt.asarray(M), bins=[2, 2, 2, 2, 2])
    want, at = np.histogramdd(M, bins=[2, 2, 2, 2, 2])
    compare(found, want)
    compare(edges, at)


def test_what_depends_on_data_computes():
    x = lt.asarray(V) + 0
    with lt.expect(syncs=1):
        found = lt.trim_zeros(x * 0)
    assert lt.last_sync().cause == "trim_zeros"
    compare(found, V[:0])
    with lt.no_sync():
        found = lt.compress(V > 0, x)
    compare(found, V[V > 0])
    compare(lt.trim_zeros(lt.asarray([0, 1, 0, 2, 0])), np.array([1, 0, 2]))
    compare(lt.trim_zeros(lt.asarray([0, 1, 0]), "f"), np.array([1, 0]))
    compare(lt.extract(lt.asarray(M) > 0, lt.asarray(M)), M[M > 0])
    compare(lt.compress([True, False, True], lt.asarray(M), axis=1), M[:, [0, 2]])
    compare(lt.ix_(lt.asarray([True, False, True]))[0], np.array([0, 2]))
    compare(lt.histogram(x, "auto"), np.histogram(V, "auto"))


def test_values_without_a_result_are_refused_at_the_sync():
    nothing, zeros = lt.asarray(ALL_NAN), lt.asarray([1.0, -1.0])
    recorded = [
        (lambda: lt.nanargmax(nothing, axis=1), ValueError, "nanargmax: all-NaN slice"),
        (lambda: lt.nanargmin(nothing[0]), ValueError, "nanargmin: all-NaN slice"),
        (lambda: lt.average(lt.asarray([1.0, 2.0]), weights=zeros), ZeroDivisionError, "average: weights sum to zero"),
        (lambda: lt.average(nothing, 1, lt.zeros(2), True)[1], ZeroDivisionError, "average: weights sum to zero"),
    ]
    for f, error, text in recorded:
        for _ in range(3):  # step by step, fused, and through a plan that is known
            with lt.no_sync():
                found = f()
            with pytest.raises(error, match=rf"{text}.* \(recorded at .*test_numpy_names\.py:\d+; found at the sync\)"):
                found.numpy()
    assert lt.nanargmax(nothing[1:], axis=1, keepdims=True).tolist() == [[0]]


def test_a_quantile_may_be_pending():
    q = lt.asarray([10.0, 50.0]) + 0
    with lt.no_sync():
        found = lt.percentile(lt.asarray(M), q, axis=1)
    compare(found, np.percentile(M, np.array([10.0, 50.0]), axis=1), rtol=1e-6)


DIFFERENTIABLE = {
    "quantile": lambda x: lt.quantile(x, 0.3),
    "nanmedian": lt.nanmedian,
    "average": lambda x: lt.average(x, weights=lt.asarray(np.abs(V))),
    "nanvar": lt.nanvar,
    "interp": lambda x: lt.interp(x, INC, INC**2),
    "gradient": lambda x: lt.gradient(x) ** 2,
    "trapezoid": lambda x: lt.trapezoid(x * x),
    "convolve": lambda x: lt.convolve(x, W, "same") ** 2,
    "correlate": lambda x: lt.correlate(x, x[:3]),
    "cov": lambda x: lt.cov(x, x[::-1] ** 2),
    "sinc": lt.sinc,
    "select": lambda x: lt.select([x > 0], [x * x], x * 3),
    "polyval": lambda x: lt.polyval(x[:3], x),
    "vander": lambda x: lt.vander(x, 3),
    "modf": lambda x: lt.modf(x)[0] * x,
    "unwrap": lambda x: lt.unwrap(x * 5) * x,
    "partition": lambda x: lt.partition(x, 2) * lt.arange(7),
    "nanprod": lt.nanprod,
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_composed_functions_are_differentiable(name):
    f = DIFFERENTIABLE[name]
    x = lt.tensor(V, requires_grad=True)
    f(x).sum().backward()
    h = 1e-6
    for i in range(V.size):
        e = np.zeros_like(V)
        e[i] = h
        with lt.no_grad():
            slope = float(f(lt.asarray(V + e)).sum() - f(lt.asarray(V - e)).sum()) / (2 * h)
        np.testing.assert_allclose(float(x.grad[i]), slope, rtol=1e-5, atol=1e-6)


WRONG = [
    (lambda x: lt.quantile(x, 1.5), lt.ShapeError, "quantiles lie between 0 and 1"),
    (lambda x: lt.percentile(x, -1), lt.ShapeError, "quantiles lie between 0 and 100"),
    (lambda x: lt.quantile(x, 0.5, method="best"), lt.NotSupportedError, "method 'best'"),
    (lambda x: lt.quantile(x > 0, 0.5), lt.DTypeError, "real numbers is required, got bool"),
    (lambda x: lt.quantile(x[:0], 0.5), lt.ShapeError, "no elements"),
    (lambda x: lt.average(x, weights=lt.ones(3)), lt.ShapeError, "an axis is required for weights"),
    (lambda x: lt.average(x, 0, lt.ones(3)), lt.ShapeError, "do not match the axes"),
    (lambda x: lt.interp(x, [1, 2], [1]), lt.ShapeError, "vectors of one length"),
    (lambda x: lt.interp(x, [1, 2], [1, 2], period=0), lt.ShapeError, "period must not be 0"),
    (lambda x: lt.gradient(x, 1.0, 2.0), lt.ShapeError, "2 spacings for 1 axes"),
    (lambda x: lt.gradient(x[:1]), lt.ShapeError, "at least 2 elements are required"),
    (lambda x: lt.gradient(x, edge_order=3), lt.ShapeError, "edge_order is 1 or 2"),
    (lambda x: lt.gradient(x, lt.ones(3)), lt.ShapeError, "coordinates of shape"),
    (lambda x: lt.convolve(x, x[:0]), lt.ShapeError, "vectors that are not empty"),
    (lambda x: lt.convolve(x, x, "some"), lt.NotSupportedError, "mode 'some'"),
    (lambda x: lt.cov(lt.ones((1, 1, 1))), lt.ShapeError, "at most 2 dimensions"),
    (lambda x: lt.cov(x, ddof=0.5), lt.DTypeError, "ddof must be an integer"),
    (lambda x: lt.cov(x, aweights=lt.ones(3)), lt.ShapeError, "for 7 observations"),
    (lambda x: lt.ediff1d(lt.arange(3), 0.5), lt.DTypeError, "cannot stand beside differences"),
    (lambda x: lt.select([x], [x]), lt.NotSupportedError, "because bool is required"),
    (lambda x: lt.select([x > 0], [x, x]), lt.ShapeError, "1 conditions for 2 choices"),
    (lambda x: lt.choose(lt.arange(2), [1, 2], mode="none"), lt.NotSupportedError, "mode 'none'"),
    (lambda x: lt.piecewise(x, [x > 0], []), lt.ShapeError, "1 conditions need"),
    (lambda x: lt.apply_along_axis(lt.sum, 0, lt.ones((2, 0))), lt.ShapeError, "there is no vector"),
    (lambda x: lt.apply_over_axes(lambda a, i: a.sum(), lt.ones((2, 2, 2)), [0]), lt.ShapeError, "the function gave"),
    (lambda x: lt.partition(x, 9), lt.ShapeError, "kth 9 is out of bounds"),
    (lambda x: lt.lexsort((x, x[:2])), lt.ShapeError, "keys of one shape"),
    (lambda x: lt.rollaxis(x, 0, 5), lt.ShapeError, "start 5 is out of bounds"),
    (lambda x: lt.vsplit(x, 2), lt.ShapeError, "at least 2 dimensions"),
    (lambda x: lt.hsplit(x[0], 2), lt.ShapeError, "at least 1 dimension"),
    (lambda x: lt.dsplit(x, 2), lt.ShapeError, "at least 3 dimensions"),
    (lambda x: lt.block([[x], x]), lt.ShapeError, "nested to different depths"),
    (lambda x: lt.ix_(x[None]), lt.ShapeError, "vectors are required"),
    (lambda x: lt.trim_zeros(x, "x"), lt.ShapeError, "trim is 'fb', 'f' or 'b', got 'x'"),
    (
        lambda x: lt.pad(x, 1, "maximum", stat_length=0),
        lt.ShapeError,
        "stat_length is at least 1 for mode 'maximum', got 0",
    ),
    (lambda x: lt.pad(x[:0], 1, "mean"), lt.ShapeError, "only modes 'constant' and 'empty' extend axis 0 of extent 0"),
    (
        lambda x: lt.ravel_multi_index((x, x), (2, 2), ("wrap", "x")),
        lt.ShapeError,
        "mode is 'raise', 'wrap' or 'clip', or",
    ),
    (lambda x: lt.tril_indices_from(x), lt.ShapeError, "a matrix is required"),
    (lambda x: lt.diag_indices_from(x), lt.ShapeError, "at least 2 equal extents"),
    (lambda x: lt.unravel_index(x, (7,)), lt.DTypeError, "integers are required"),
    (lambda x: lt.ravel_multi_index((lt.arange(2),), (2, 3)), lt.ShapeError, "1 index arrays for 2 axes"),
    (lambda x: lt.sliding_window_view(x, 9), lt.ShapeError, "does not fit into an extent of 7"),
    (lambda x: lt.sliding_window_view(x, (2, 2)), lt.ShapeError, "over 1 axes"),
    (lambda x: lt.vander(x[None]), lt.ShapeError, "a vector is required"),
    (lambda x: lt.polyder(x, -1), lt.ShapeError, "m must not be negative"),
    (lambda x: lt.polyint(x, -1), lt.ShapeError, "m must not be negative"),
    (lambda x: lt.polyint(x, 3, [1.0, 2.0]), lt.ShapeError, "2 constants for 3 integrations"),
    (lambda x: lt.packbits(x), lt.DTypeError, "packbits: an integer or bool dtype is required, got float64"),
    (lambda x: lt.packbits(x > 0, bitorder="middle"), lt.NotSupportedError, "bitorder 'middle'"),
    (lambda x: lt.unpackbits(x), lt.DTypeError, "uint8 is required"),
    (lambda x: lt.unpackbits(lt.ones(1, dtype=lt.uint8), count=-9), lt.ShapeError, "leaves nothing of 8 bits"),
    (lambda x: lt.i0(x * 1j), lt.DTypeError, "real numbers are required"),
    (lambda x: lt.gcd(x, 1), lt.DTypeError, "numpy.gcd"),
    (lambda x: lt.histogram2d(x, x[:3]), lt.ShapeError, "vectors of one length"),
    (lambda x: lt.histogramdd(x), lt.ShapeError, r"points of shape \(n, d\)"),
    (lambda x: lt.histogramdd(x[None], bins=[1, 2]), lt.ShapeError, "2 bins for 7 axes"),
    (lambda x: lt.histogram(x, -1), lt.ShapeError, "histogram: a number of bins is at least 1, got -1"),
    (lambda x: lt.histogram_bin_edges(x, 0), lt.ShapeError, "histogram_bin_edges: a number of bins"),
    (lambda x: lt.histogramdd(x[:, None], bins=[0]), lt.ShapeError, "histogramdd: a number of bins"),
]


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_what_cannot_be_is_refused_when_recorded(case):
    f, error, match = WRONG[case]
    with pytest.raises(error, match=match):
        f(lt.asarray(V))


def test_numpy_raises_at_the_sync_and_names_the_line():
    x = lt.asarray([1.0, float("nan")])
    counts, _ = lt.histogram(x)
    with pytest.raises(ValueError, match="autodetected range"):
        counts.numpy()
    assert counts.is_pending


def test_ix_keeps_the_dtype_of_empty_arrays() -> None:
    empty = np.array([], np.int32)
    for got, want in zip(lt.ix_(lt.asarray(empty), []), np.ix_(empty, []), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)


def test_the_sign_of_zero_tells_programs_apart():
    x = lt.asarray(np.array([np.nan, 1.0, np.inf]))
    for _ in range(3):
        for zero in (0.0, -0.0):
            for options in ({"nan": zero}, {"posinf": zero}):
                got, want = lt.nan_to_num(x, **options).numpy(), np.nan_to_num(x.numpy(), **options)
                np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_nothing_to_delete():
    x = np.arange(6.0).reshape(2, 3)
    for axis in (None, 0, 1):
        for t in (lt.asarray(x), lt.asarray(x) + 0):
            np.testing.assert_array_equal(lt.delete(t, [], axis=axis).numpy(), np.delete(x, [], axis=axis))
