"""Lowerings of the array families: interpreted over ints and over symbols, against NumPy.

The public functions run for real here, with recording replaced by: lower, verify, interpret.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import lazyt.tracing.record
from lazyt.errors import DeviceError, IndexOutOfRange, ShapeError
from lazyt.functions import conversion, operators
from lazyt.functions.protocols import ufuncs
from lazyt.ir import dtypes
from lazyt.ops.definition import OPS, OpDef
from tests.support.lowered import SCALARS, lowered_twice

FAMILIES = (
    "elementwise",
    "arithmetic",
    "logic",
    "reductions",
    "statistics",
    "creation",
    "manipulation",
    "joining",
    "indexing",
)
SOURCES = (*FAMILIES, "padding", "special", "subscript", "products", "reshaping")
MODULES = [importlib.import_module(f"lazyt.functions.{m}") for m in SOURCES]


class Array(np.ndarray):
    """A NumPy array with what the public functions ask of a tensor; a view knows what it views."""

    of: Any = None
    _view: Any = None
    _storage: Any = None
    _slot: Any = None
    device: Any = "interpreter"  # no shortcut of the CPU's
    is_pending = True

    def numpy(self) -> np.ndarray:
        return self.view(np.ndarray)


def array(x: Any) -> Array:
    return np.array(x, copy=True).view(Array)


def record(op: OpDef, operands: Any, statics: Any = (), ints: Any = None, offsets: Any = None) -> Any:
    results = lowered_twice(op.lower, [x if type(x) in SCALARS else array(x) for x in operands], statics, ints, offsets)
    arrays = tuple(array(x) for x in results)
    return arrays[0] if len(arrays) == 1 else arrays


def record_view(op: OpDef, x: Any, statics: Any = (), ints: Any = None, offsets: Any = None) -> Any:
    out = record(op, (x,), statics, ints, offsets)
    out.of = (op, x, statics, ints, offsets)
    return out


def assign(x: Any, value: Any, name: str = "") -> None:
    new = np.broadcast_to(np.asarray(value), x.shape).astype(x.dtype)
    if x.of is None:
        x[...] = new
    else:
        op, base, statics, ints, offsets = x.of
        (whole,) = lowered_twice(op.write, (array(base), new), statics, ints, offsets)
        assign(base, array(whole))


def rewrite(x: Any, changed: Any, name: str) -> None:
    assign(x, changed(), name)


@pytest.fixture(autouse=True)
def records_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in MODULES:
        for name, f in (("record", record), ("record_view", record_view), ("assign", assign), ("rewrite", rewrite)):
            monkeypatch.setattr(module, name, f, raising=False)
    monkeypatch.setattr(
        lazyt.tracing.record, "as_tensor", lambda x: x if isinstance(x, Array) else array(x), raising=False
    )
    # The arrays here are of a subclass of NumPy's, and would be refused as such.
    for module in (conversion, operators, ufuncs):
        monkeypatch.setattr(module, "refuse_foreign", lambda x: None)


def function(name: str) -> Any:
    """The public function behind an operation's name."""
    for module in MODULES:
        if name in module.__all__ if hasattr(module, "__all__") else False:
            return getattr(module, name)
    return None


def own_operations() -> list[OpDef]:
    own = [importlib.import_module(f"lazyt.ops.{m}") for m in FAMILIES]
    found = {id(op): op for m in own for op in vars(m).values() if isinstance(op, OpDef)}
    return [op for op in OPS.values() if id(op) in found]


TOLERANCE = {dtypes.float16: 2e-3, dtypes.bfloat16: 2e-2, dtypes.float32: 4e-6, dtypes.complex64: 4e-6}


def compare(got: Any, want: Any) -> None:
    if isinstance(want, tuple | list):
        assert len(got) == len(want)
        for x, y in zip(got, want, strict=True):
            compare(x, y)
        return
    want = np.asarray(want)
    assert got.dtype == want.dtype, (got.dtype, want.dtype)
    assert got.shape == want.shape, (got.shape, want.shape)
    tolerance = TOLERANCE.get(want.dtype, 1e-12)
    if want.dtype.kind in "fc" or want.dtype == dtypes.bfloat16:
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(got, want)


def arrays(x: Any) -> Any:
    if isinstance(x, list | tuple) and any(isinstance(a, np.ndarray) for a in x):
        return type(x)(array(a) if isinstance(a, np.ndarray) else a for a in x)
    return array(x) if isinstance(x, np.ndarray) else x


@pytest.mark.parametrize("op", own_operations(), ids=lambda op: op.name)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_samples_agree_with_numpy(op: OpDef) -> None:
    if op.samples is None:
        pytest.skip("reached through other functions")
    f = function(op.name) or (lambda *args: record(op, args))
    assert op.numpy is not None
    for args, kwargs in op.samples():
        compare(f(*map(arrays, args), **kwargs), op.numpy(*args, **kwargs))


@pytest.mark.parametrize("op", own_operations(), ids=lambda op: op.name)
def test_errors_name_the_operation(op: OpDef) -> None:
    f = function(op.name)
    for args, kwargs, error, match in op.errors:
        with pytest.raises(error, match=match):
            f(*map(arrays, args), **kwargs)


KEYS = [
    0,
    -1,
    slice(None),
    slice(1, None),
    slice(None, None, -1),
    slice(-2, 0, -2),
    slice(5, 1),
    ...,
    None,
    (0, 1),
    (0, ..., 2),
    (slice(None), 1),
    (..., -1),
    (None, 0, None, slice(1, 3)),
    (slice(None, None, 2), slice(None), slice(3, 0, -1)),
    np.int64(1),
    (0, 0, 0),
    (),
    [0, 1, -1],
    np.array([[0, 1], [1, 0]]),
    (slice(None), [0, 2]),
    ([0, 1], [2, 0]),
    ([0, 1], slice(None), [2, 0]),
    (0, slice(None), [2, 0]),
    (slice(None), 0, [2, 0]),
    (slice(None), [[0], [2]], [1, 3]),
    ([1, 0], None, [2, 0]),
    ([1, 0], ..., [3, 0]),
    (slice(None), [0, 1], ..., [3, 0]),
    (np.array(1),),
    (slice(1, None), [0, 2], slice(None, None, -1)),
    (None, [1, 0]),
    [],
    (0, [], slice(None)),
    (np.array([True, False]),),
    (slice(None), np.array([True, False, True])),
    (np.array([[True, False, True], [False, True, False]]), 1),
    (np.array([True, True]), [0, 1]),
    True,
    False,
    (0, True),
    (..., np.array([True, False, True, False])),
    (np.array([0, 1], np.uint8),),
    (slice(None), np.array(2), slice(None)),
    (np.ones((2, 3, 4), bool),),
    np.zeros((2, 3, 4), bool),
]
X = np.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_indexing_reads_and_writes_as_numpy_does(key: Any) -> None:
    indexing = importlib.import_module("lazyt.functions.indexing")
    want = X[key]
    compare(indexing.getitem(array(X), key), want)
    for value in (
        7.0,
        np.full(want.shape[-1:], 5, np.int32),
        -np.arange(want.size, dtype="f8").reshape(want.shape),
    ):
        x, y = array(X), X.copy()
        indexing.setitem(x, key, value)
        y[key] = value
        compare(x, y)


def test_indexing_of_scalars() -> None:
    indexing = importlib.import_module("lazyt.functions.indexing")
    x = np.array(3.0)
    for key in ((), ..., None, True, False, np.array(True), (None, ...)):
        compare(indexing.getitem(array(x), key), x[key])
        a, y = array(x), x.copy()
        indexing.setitem(a, key, 9.0)
        y[key] = 9.0
        compare(a, y)


@pytest.mark.parametrize(("key", "error", "match"), [
    (7, IndexError, "index 7 is out of bounds for axis 0 with size 2"),
    ((0, -4), IndexError, "index -4 is out of bounds for axis 1 with size 3"),
    ((0, 0, 0, 0), IndexError, "too many indices"),
    ((..., ...), IndexError, "single ellipsis"),
    (1.5, IndexError, "only integers"),
    (np.array([0.5]), IndexError, "integer .or boolean. type"),
    ([0, 5], IndexError, "index 5 is out of bounds for axis 0 with size 2"),
    (np.ones(3, bool), IndexError, "boolean index did not match"),
    (slice(0, 1, 0), ValueError, "step cannot be zero"),
])  # fmt: skip
def test_bad_keys(key: Any, error: type[Exception], match: str) -> None:
    indexing = importlib.import_module("lazyt.functions.indexing")
    with pytest.raises(error, match=match):
        indexing.getitem(array(X), key)
    with pytest.raises(error, match=match):
        indexing.setitem(array(X), key, 0.0)


def test_random_keys() -> None:
    """Mixed keys against NumPy: the placement of index arrays above all."""
    indexing = importlib.import_module("lazyt.functions.indexing")
    rng = np.random.default_rng(0)
    kinds: list[Any] = [
        lambda n: slice(None),
        lambda n: int(rng.integers(-n, n)),
        lambda n: slice(*sorted(rng.integers(0, n + 1, 2).tolist())),
        lambda n: slice(None, None, -1),
        lambda n: rng.integers(-n, n, (2,)),
        lambda n: rng.integers(-n, n, (3, 1)),
        lambda n: np.array(rng.integers(0, n)),
    ]
    for _ in range(300):
        key: list[Any] = [kinds[rng.integers(len(kinds))](n) for n in X.shape]
        if rng.random() < 0.3:
            key[rng.integers(len(key)) :] = [Ellipsis]
        if rng.random() < 0.3:
            key.insert(int(rng.integers(len(key) + 1)), None)
        want = X[tuple(key)]
        compare(indexing.getitem(array(X), tuple(key)), want)
        x, y = array(X), X.copy()
        value = rng.random(want.shape)
        if not any(isinstance(k, np.ndarray) for k in key):
            indexing.setitem(x, tuple(key), value)
            y[tuple(key)] = value
            compare(x, y)


def _f(name: str) -> Any:
    f = function(name)
    assert f is not None, name
    return f


M = np.arange(6.0).reshape(2, 3)
COMPOSED: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("transpose", (X,), {}),
    ("transpose", (X, (1, 2, 0)), {}),
    ("moveaxis", (X, 0, -1), {}),
    ("moveaxis", (X, (0, 1), (-1, 0)), {}),
    ("swapaxes", (X, 0, 2), {}),
    ("ravel", (X,), {}),
    ("squeeze", (X[:1],), {}),
    ("flipud", (X,), {}),
    ("fliplr", (X,), {}),
    *(("rot90", (M, k), {}) for k in (-1, 0, 1, 2, 3)),
    *((f"atleast_{n}d", (x,), {}) for n in (1, 2, 3) for x in (X[0, 0, 0], X[0, 0], X[0], X)),
    ("broadcast_arrays", (X, X[0, :1]), {}),
    ("unstack", (X,), {"axis": 1}),
    ("split", (X, 2), {"axis": -1}),
    ("split", (X, [1, 3]), {"axis": 2}),
    ("split", (X, [3, 1]), {"axis": 2}),
    ("array_split", (X, 3), {"axis": 2}),
    ("array_split", (X, 5), {"axis": 2}),
    ("concatenate", ([M, M],), {"axis": 1}),
    ("vstack", ([M, M[0]],), {}),
    ("hstack", ([M, M],), {}),
    ("hstack", ([M[0], M[1]],), {}),
    ("dstack", ([M, M],), {}),
    ("column_stack", ([M[:, 0], M],), {}),
    ("repeat", (M, [2, 0, 1]), {"axis": 1}),
    ("repeat", (M, [2]), {}),
    ("diff", (M,), {}),
    ("diff", (X,), {"n": 2, "axis": 1}),
    ("diff", (M,), {"prepend": 0.0, "append": M}),
    ("diff", (M > 2,), {}),
    ("zeros_like", (M,), {}),
    ("ones_like", (M,), {"dtype": np.int32}),
    ("full_like", (M, 3), {}),
    ("identity", (3,), {"dtype": np.float64}),
    ("meshgrid", (M[0], M[1, :2]), {}),
    ("meshgrid", (M[0], M[1, :2], M[0, :1]), {"indexing": "ij"}),
    ("meshgrid", (M[0],), {}),
    ("logspace", (0, 3, 4), {"dtype": np.float64}),
    ("diag", (M,), {}),
    ("diag", (M, 1), {}),
    ("indices", ((),), {}),
    ("take", (X, np.array([[0, -1]])), {"axis": 1}),
    ("take", (X, 5), {}),
    ("take", (X, [1, 2]), {"axis": -1}),
    ("take_along_axis", (M, np.array([5, 0, -1])), {"axis": None}),
    ("cumsum", (X,), {}),
    ("cumprod", (M,), {"axis": 1}),
    ("divmod", (np.arange(-4, 4), 3), {}),
    ("rint", (M / 4,), {}),
    ("fabs", (-M,), {}),
    ("var", (M,), {"axis": 1, "ddof": 1}),
    ("pow", (M, 2), {}),
    ("pow", (M, 0.5), {}),
    ("pow", (M + 1, -1), {}),
    ("pow", (M, 3.0), {}),
    ("pow", (np.arange(4), 2.0), {}),
    ("pow", (2, M), {}),
    ("roll", (M, 1), {}),
    ("round", (M / 7, 1), {}),
]


@pytest.mark.parametrize(("name", "args", "kwargs"), COMPOSED, ids=[f"{c[0]}{i}" for i, c in enumerate(COMPOSED)])
def test_composed_functions_agree_with_numpy(name: str, args: Any, kwargs: Any) -> None:
    kwargs_ours = {k: arrays(v) for k, v in kwargs.items()}
    compare(_f(name)(*map(arrays, args), **kwargs_ours), getattr(np, name)(*args, **kwargs))


def test_functions_without_a_numpy_equivalent() -> None:
    x = array(np.zeros((3, 2)))
    compare(_f("index_add")(x, 0, [0, 0, -1], np.ones((3, 2))), np.array([[2.0, 2], [0, 0], [1, 1]]))
    compare(_f("add_at")(x, [0, 0], 1.0), np.array([[2.0, 2], [0, 0], [0, 0]]))
    compare(_f("add_at")(x, (slice(1), 1), 1.0), np.array([[0.0, 1], [0, 0], [0, 0]]))
    compare(_f("flatten")(x), np.zeros(6))
    compare(_f("column_stack")([array([1.0, 2]), array([3.0, 4])]), np.array([[1.0, 3], [2, 4]]))
    assert _f("broadcast_shapes")((2, 1), 3) == (2, 3)
    with pytest.raises(ShapeError, match=r"broadcast_shapes: shapes \(2,\) and \(3,\)"):
        _f("broadcast_shapes")((2,), (3,))


def test_errors_of_composed_functions() -> None:
    x = array(M)
    for f, args, kwargs, error, match in (
        (
            "take",
            (x, [3]),
            {"axis": 1},
            IndexOutOfRange,
            "take: index 3 is out of bounds for axis 1 with size 3",
        ),
        ("split", (x, 2), {"axis": 1}, ShapeError, "split: axis 1 of extent 3 does not divide into 2"),
        ("zeros", ((2, -1),), {}, ShapeError, "zeros: negative extents"),
        ("arange", (0, 1, 0), {}, ShapeError, "arange: step"),
        ("zeros", (2,), {"device": "cuda:0"}, DeviceError, "cuda"),
        ("zeros", (2,), {"device": "tpu"}, DeviceError, "no such device"),
        ("pow", (np.arange(3), -1), {}, TypeError, "pow: an integer dtype"),
        ("moveaxis", (x, (0, 1), 0), {}, ShapeError, "moveaxis: 2 source axes but 1"),
        ("cumulative_sum", (x,), {}, ShapeError, "an axis is required"),
        ("index_add", (x, 0, [2], 1.0), {}, IndexOutOfRange, "index_add: index 2"),
    ):
        with pytest.raises(error, match=match):
            _f(f)(*args, **kwargs)


def _surface() -> list[str]:
    """The Array API's names in these families."""
    names = (
        "arange empty empty_like eye full full_like linspace meshgrid ones ones_like tril triu zeros "
        "zeros_like astype abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift "
        "bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh "
        "divide equal exp expm1 floor floor_divide greater greater_equal hypot imag isfinite isinf isnan "
        "less less_equal log log1p log2 log10 logaddexp logical_and logical_not logical_or logical_xor "
        "maximum minimum multiply negative nextafter not_equal positive pow real reciprocal remainder "
        "round sign signbit sin sinh square sqrt subtract tan tanh trunc take take_along_axis "
        "broadcast_arrays broadcast_shapes broadcast_to concat expand_dims flip moveaxis permute_dims "
        "repeat reshape roll squeeze stack tile unstack argmax argmin count_nonzero where cumulative_sum "
        "cumulative_prod max mean min prod std sum var all any diff"
    )
    return names.split()


def test_every_array_api_name_is_here() -> None:
    assert [n for n in _surface() if function(n) is None] == []


def test_public_functions_are_documented() -> None:
    for module in MODULES[: len(FAMILIES)]:
        for name in module.__all__:
            doc = getattr(module, name).__doc__
            assert doc and ">>> " in doc, f"{module.__name__}.{name}"
