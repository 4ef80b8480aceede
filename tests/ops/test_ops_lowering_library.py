"""Lowerings of linear, nn, sorting, linalg, fft and random: interpreted over ints and over symbols, against NumPy.

The public functions run for real here, with `record` replaced by: lower, verify, interpret.
"""

from __future__ import annotations

import functools
import importlib
import statistics
import threading
from typing import Any

import numpy as np
import pytest

import lazyt.random
import lazyt.runtime.sync
import lazyt.tracing.record
from lazyt.errors import DTypeError, IndexOutOfRange, ScalarRangeError, ShapeError
from lazyt.ir import dtypes
from lazyt.ir.builder import Builder, Weak
from lazyt.ir.graph_interpreter import interpret
from lazyt.ir.symbolic import Scope
from lazyt.ops import random as random_ops
from lazyt.ops.definition import OPS, OpDef
from lazyt.runtime.plan import guards_hold
from tests.support.lowered import SCALARS, lowered_twice


class Array(np.ndarray):
    """A NumPy array with what the public functions ask of a tensor."""

    device = None

    def numpy(self) -> np.ndarray:
        return self.view(np.ndarray)


def array(x: Any, device: Any = None, beside: Any = ()) -> Array:
    return np.array(x, copy=True).view(Array)


def interpreted(op: OpDef, operands: Any, statics: Any = (), ints: Any = None, offsets: Any = None) -> Any:
    """`record`, run at once: the same over ints and over symbols, which must give the same bits."""
    results = tuple(array(x) for x in lowered_twice(op.lower, operands, statics, ints, offsets))
    return results[0] if len(results) == 1 else results


def _interpreted_view(op: OpDef, x: Any, statics: Any = (), ints: Any = None, offsets: Any = None) -> Any:
    return interpreted(op, (x,), statics, ints, offsets)


def _interpreted_update(op: OpDef, operands: Any, statics: Any, targets: Any) -> None:
    results = interpreted(op, operands, statics)
    for target, value in zip(targets, results if isinstance(results, tuple) else (results,), strict=True):
        target[...] = value


MODULES = (
    "linear",
    "activations",
    "convolution",
    "pooling",
    "adaptive_pooling",
    "normalization",
    "losses",
    "nn",
    "dropout",
    "embedding",
    "random",
    "linalg",
    "sorting",
    "searching",
    "fft",
)


@pytest.fixture(autouse=True)
def records_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MODULES:
        module = module_of(name)
        monkeypatch.setattr(module, "record", interpreted, raising=False)
        monkeypatch.setattr(module, "record_many", interpreted, raising=False)
        monkeypatch.setattr(module, "record_one", lambda op, x: interpreted(op, (x,)), raising=False)
        monkeypatch.setattr(module, "record_two", lambda op, x, y: interpreted(op, (x, y)), raising=False)
        monkeypatch.setattr(module, "record_view", _interpreted_view, raising=False)
        monkeypatch.setattr(module, "record_update", _interpreted_update, raising=False)
    monkeypatch.setattr(lazyt.tracing.record.hooks, "as_tensor", array, raising=False)


def module_of(name: str) -> Any:
    own = {"linear": "products"}  # the others have the name of their ops
    return importlib.import_module(f"lazyt.functions.{own.get(name, name)}")


def function(name: str) -> Any:
    """The public function behind an operation's name: `linalg.inv`, `fft.fft`, `matmul`."""
    *path, last = name.split(".")
    for module in path or MODULES:
        f = getattr(module_of(module), last, None)
        if f is not None:
            return f
    raise AssertionError(f"operation {name} has no public function")


# Variants of one public function, chosen by its arguments; tried by tests of their own.
VARIANTS = {"gelu_tanh": ("gelu", {"approximate": "tanh"}), "kl_div_log": ("kl_div", {"log_target": True})}


def public(op: OpDef) -> Any:
    if op.name in VARIANTS:
        name, more = VARIANTS[op.name]
        return functools.partial(function(name), **more)
    return function(op.name)


def own_operations() -> list[OpDef]:
    for m in MODULES:
        module_of(m)
    files = {
        f"lazyt.ops.{m}" for m in (*MODULES, "pooling_indices", "transposed_convolution", "instance_normalization")
    }
    return [op for op in OPS.values() if op.lower.__module__ in files]


TOLERANCE = {dtypes.float16: 2e-3, dtypes.bfloat16: 2e-2, dtypes.float32: 2e-5, dtypes.complex64: 2e-5}


def compare(got: Any, want: Any) -> None:
    if isinstance(want, tuple | list):
        assert len(got) == len(want)
        for x, y in zip(got, want, strict=True):
            compare(x, y)
        return
    want = np.asarray(want)
    assert got.dtype == want.dtype, (got.dtype, want.dtype)
    assert got.shape == want.shape
    tolerance = TOLERANCE.get(want.dtype, 1e-12)
    if want.dtype.kind in "fcV" or want.dtype == dtypes.bfloat16:
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(got, want)


def arrays(args: Any) -> Any:
    return tuple(array(a) if isinstance(a, np.ndarray | np.generic) else a for a in args)


@pytest.mark.parametrize("op", own_operations(), ids=lambda op: op.name)
def test_samples_agree_with_numpy(op: OpDef) -> None:
    if op.samples is None:
        pytest.skip("tried by its own test")
    assert op.numpy is not None
    f = public(op)
    for args, kwargs in op.samples():
        compare(f(*arrays(args), **kwargs), op.numpy(*args, **kwargs))


@pytest.mark.parametrize("op", own_operations(), ids=lambda op: op.name)
def test_errors_name_the_operation(op: OpDef) -> None:
    if op.samples is None:
        pytest.skip("tried by its own test")
    f = public(op)
    for args, kwargs, error, match in op.errors:
        with pytest.raises(error, match=match):
            f(*arrays(args), **kwargs)


# What has no NumPy counterpart to the bit


def test_normal_numbers_are_the_inverse_of_the_distribution_function() -> None:
    rng = np.random.default_rng(3)
    tails = 0.5 ** rng.uniform(1, 31, 300)
    p = np.concatenate([rng.random(300), tails, 1 - tails, [0.075, 0.925]])
    p = np.round(p * 2.0**52) / 2.0**52  # so that p - 1/2 is exact, as it is of the random bits
    want = [statistics.NormalDist().inv_cdf(v) for v in p]
    for single, tolerance in ((True, 3e-7), (False, 2e-15)):
        b = Builder()
        q = b.input(0, p.shape, dtypes.float64)
        (got,) = interpret(b.nodes, [random_ops._inverse_normal(b, q, single)], [p - 0.5])
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=1e-15)


def test_normal_tails_from_exact_probabilities() -> None:
    k = 2.0 ** -np.arange(2, 32)
    for single, p, tolerance in ((True, k, 3e-7), (False, 2.0 ** -np.arange(2.0, 54), 2e-15)):
        b = Builder()
        q = b.input(0, p.shape, dtypes.float64)
        (got,) = interpret(b.nodes, [random_ops._inverse_normal(b, q, single)], [p - 0.5])
        want = [statistics.NormalDist().inv_cdf(v) for v in p]
        np.testing.assert_allclose(got, want, rtol=tolerance)


def test_random_numbers_have_their_distributions() -> None:
    g = lazyt.random.Generator(5)
    u = lazyt.random.uniform(2.0, 4.0, 20_000, generator=g)
    assert u.dtype == np.float32 and 2 <= u.min() < u.max() <= 4
    assert abs(u.mean() - 3) < 0.02 and abs(u.std() - 2 / 12**0.5) < 0.02
    z = lazyt.random.normal(1.0, 2.0, (100, 200), generator=g)
    assert abs(z.mean() - 1) < 0.05 and abs(z.std() - 2) < 0.05
    assert abs(float((np.abs((z - 1) / 2) > 1.96).mean()) - 0.05) < 0.01
    k = lazyt.random.integers(-3, 4, 20_000, generator=g)
    assert k.dtype == np.int64 and sorted(set(k.tolist())) == list(range(-3, 4))
    assert np.abs(np.bincount(k + 3) / 20_000 - 1 / 7).max() < 0.015
    yes = lazyt.random.bernoulli(0.25, 20_000, generator=g)
    assert yes.dtype == np.bool_ and abs(yes.mean() - 0.25) < 0.015
    assert g.get_state() == (5, 4)


def test_random_numbers_of_every_dtype_and_no_shape() -> None:
    for d in (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64):
        for f in (lazyt.random.random, lazyt.random.standard_normal):
            x = f((3, 2), dtype=d)
            assert x.dtype == d and x.shape == (3, 2)
        assert (lazyt.random.random(500, dtype=d) < 1).all()
    assert lazyt.random.rand().shape == () and lazyt.random.randn(2, 0).shape == (2, 0)
    full = lazyt.random.integers(0, 1 << 64, 4, dtype="uint64")
    assert full.dtype == np.uint64 and len(set(full.tolist())) == 4
    assert lazyt.random.integers(-128, 128, 50, dtype="int8").dtype == np.int8
    with pytest.raises(ScalarRangeError, match="leaves the range of int8"):
        lazyt.random.integers(0, 200, dtype="int8")
    with pytest.raises(ShapeError, match="low < high is required"):
        lazyt.random.integers(3, 3)
    with pytest.raises(DTypeError, match="real floating dtype"):
        lazyt.random.random(3, dtype=int)


def test_high_product() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 1 << 64, (2, 100), dtype=np.uint64)
    b = Builder()
    out = random_ops.high_product(b, b.input(0, (100,), dtypes.uint64), b.input(1, (100,), dtypes.uint64))
    (got,) = interpret(b.nodes, [out], [x, y])
    assert got.tolist() == [int(p) * int(q) >> 64 for p, q in zip(x, y, strict=True)]


def test_permutation_and_choice() -> None:
    g = lazyt.random.Generator(1)
    assert sorted(lazyt.random.permutation(10, generator=g).tolist()) == list(range(10))
    rows = np.arange(6).reshape(3, 2)
    assert sorted(lazyt.random.permutation(array(rows), generator=g).tolist()) == rows.tolist()
    assert sorted(lazyt.random.choice(5, 5, replace=False, generator=g).tolist()) == list(range(5))
    picked = lazyt.random.choice(array(np.array([10.0, 20.0])), (3, 4), generator=g)
    assert picked.shape == (3, 4) and set(picked.ravel().tolist()) <= {10.0, 20.0}
    p = np.array([0.0, 3.0, 1.0])
    counts = np.bincount(lazyt.random.choice(3, 8000, p=p, generator=g), minlength=3)
    assert counts[0] == 0 and abs(counts[1] / 8000 - 0.75) < 0.03
    firsts = [lazyt.random.choice(3, 2, replace=False, p=p + 0.01, generator=g)[0] for _ in range(60)]
    assert 30 < sum(int(f) == 1 for f in firsts) < 58
    with pytest.raises(ShapeError, match="6 of 5 without replacement"):
        lazyt.random.choice(5, 6, replace=False)


def test_default_generators() -> None:
    lazyt.random.seed(11)
    x = lazyt.random.random(4)
    lazyt.random.seed(11)
    np.testing.assert_array_equal(x, lazyt.random.random(4))
    assert not np.array_equal(x, lazyt.random.random(4))
    state = lazyt.random.get_state()
    y = lazyt.random.random(4)
    lazyt.random.set_state(state)
    np.testing.assert_array_equal(y, lazyt.random.random(4))
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(lazyt.random.default_generator().get_state()))
    thread.start()
    thread.join()
    assert seen[0][0] != lazyt.random.default_generator().seed and seen[0][1] == 0


def test_dropout() -> None:
    f = function("dropout")
    x = array(np.ones((100, 100), np.float32))
    y = f(x, 0.25)
    assert abs((y == 0).mean() - 0.25) < 0.02
    assert np.unique(y).tolist() == [0.0, np.float32(1 / 0.75)]
    assert (f(x, 0.5, training=False) == x).all()
    assert not f(x, 1.0).any() and (f(x, 0.0) == 1).all()
    with pytest.raises(ShapeError, match=r"dropout: a probability in \[0, 1\]"):
        f(x, 1.5)


def test_batch_norm_moves_its_statistics() -> None:
    x = array(np.random.default_rng(0).standard_normal((4, 3, 5)).astype("f4"))
    mean, var = array(np.zeros(3, "f4")), array(np.ones(3, "f4"))
    function("batch_norm")(x, mean, var, training=True, momentum=0.25)
    np.testing.assert_allclose(mean, 0.25 * x.mean((0, 2)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(var, 0.75 + 0.25 * x.var((0, 2), ddof=1), rtol=1e-5)


def test_targets_that_are_no_class_are_refused() -> None:
    x = array(np.zeros((2, 3), "f4"))
    for name in ("cross_entropy", "nll_loss"):
        with pytest.raises(IndexOutOfRange, match="index 3 is out of range"):
            function(name)(x, array(np.array([0, 3])))


def test_attention_drops_weights() -> None:
    q = array(np.ones((2, 4, 8), "f4"))
    y = function("scaled_dot_product_attention")(q, q, q, dropout_p=0.5)
    assert y.shape == q.shape and len(np.unique(y)) > 1


# One plan for other extents


def _planned(call: Any, first: Any, second: Any) -> bool:
    """Lower `call` over the symbols of `first`; run that graph on `second`. False if a guard refuses it."""
    taken: list[Any] = []

    def take(op: OpDef, operands: Any, statics: Any = (), ints: Any = None, offsets: Any = None) -> Any:
        taken.append((op, operands, statics, ints))
        return interpreted(op, operands, statics, ints, offsets)

    results = []
    for args in (first, second):
        with pytest.MonkeyPatch.context() as patch:
            for name in MODULES:
                patch.setattr(module_of(name), "record", take, raising=False)
                patch.setattr(module_of(name), "record_many", take, raising=False)
                patch.setattr(module_of(name), "record_two", lambda op, x, y: take(op, (x, y)), raising=False)
                patch.setattr(module_of(name), "record_view", lambda op, x, *a: take(op, (x,), *a), raising=False)
            results.append(call(*arrays(args)))
    (op, xs, statics, ints), (_, ys, same_statics, other_ints) = taken
    assert statics == same_statics
    scope = Scope()
    b = Builder(scope)
    extents: list[int] = []

    def symbols(shape: Any, other: Any) -> Any:
        start = len(extents)
        extents.extend(other)
        return tuple(scope.symbol(start + i, n) for i, n in enumerate(shape))

    nodes: list[Any] = []
    leaves: list[np.ndarray] = []
    scalars = [y for y in ys if type(y) in SCALARS]
    for x, y in zip(xs, ys, strict=True):
        if type(x) in SCALARS:
            nodes.append(Weak(len(nodes) - len(leaves), type(x)))
        else:
            nodes.append(b.input(len(leaves), symbols(x.shape, y.shape), x.dtype))
            leaves.append(np.asarray(y))
    more = {} if ints is None else {"ints": symbols(ints, other_ints)}
    out = op.lower(b, *nodes, *statics, **more)
    outputs = list(out) if isinstance(out, tuple) else [out]
    if not guards_hold(scope.guards)(tuple(extents)):
        return False
    got = interpret(b.nodes, outputs, leaves, scalars, (extents, scalars))
    want = results[1] if isinstance(results[1], tuple) else (results[1],)
    for x, y in zip(got, want, strict=True):
        assert x.shape == y.shape
        np.testing.assert_array_equal(x, y)
    return True


def _rand(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype("f4")


def _labels(n: int, classes: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, classes, n)


REUSED: dict[str, tuple[str, dict[str, Any], Any, Any]] = {
    "batched product": ("matmul", {}, (_rand(2, 3, 4), _rand(4, 5)), (_rand(6, 2, 3), _rand(3, 7))),
    "broadcast product": ("matmul", {}, (_rand(2, 3, 3, 4), _rand(3, 4, 5)), (_rand(5, 2, 2, 6), _rand(2, 6, 3))),
    "einsum": (
        "einsum",
        {},
        ("bij,bjk->bki", _rand(2, 3, 4), _rand(2, 4, 5)),
        ("bij,bjk->bki", _rand(5, 2, 7), _rand(5, 7, 3)),
    ),
    "trace": ("einsum", {}, ("bii->b", _rand(2, 3, 3)), ("bii->b", _rand(4, 5, 5))),
    "wide and tall": ("diagonal", {"offset": 1}, (_rand(3, 5),), (_rand(6, 2),)),
    "below": ("diagonal", {"offset": -1}, (_rand(4, 4),), (_rand(2, 9),)),
    "kron": ("kron", {}, (_rand(2, 3), _rand(4, 5)), (_rand(5, 2), _rand(1, 3))),
    "convolution": (
        "conv2d",
        {"stride": 2, "padding": 1, "groups": 2},
        (_rand(2, 4, 7, 8), _rand(6, 2, 3, 3), _rand(6)),
        (_rand(5, 8, 5, 11), _rand(4, 4, 3, 3), _rand(4)),
    ),
    "pooling": (
        "max_pool2d",
        {"kernel_size": 3, "stride": 2, "ceil_mode": True},
        (_rand(2, 3, 7, 8),),
        (_rand(1, 2, 9, 5),),
    ),
    "mean pooling": (
        "avg_pool1d",
        {"kernel_size": 3, "padding": 1, "ceil_mode": True},
        (_rand(2, 3, 7),),
        (_rand(1, 2, 11),),
    ),
    "layer norm": ("layer_norm", {"normalized_shape": 4}, (_rand(2, 3, 4),), (_rand(7, 5, 4),)),
    "group norm": ("group_norm", {"num_groups": 2}, (_rand(2, 4, 5),), (_rand(3, 8, 2),)),
    "cross entropy": (
        "cross_entropy",
        {"label_smoothing": 0.1},
        (_rand(5, 4), _labels(5, 4)),
        (_rand(9, 6), _labels(9, 6)),
    ),
    "attention": (
        "scaled_dot_product_attention",
        {"is_causal": True, "scale": 0.5},
        tuple(_rand(2, 3, 5, 4) for _ in range(3)),
        tuple(_rand(1, 2, 7, 6) for _ in range(3)),
    ),
    "top k": ("topk", {"axis": 0}, (_rand(5, 3), 2), (_rand(9, 4), 5)),
    "transform": ("fft.rfft", {"n": 6}, (_rand(3, 4),), (_rand(2, 9),)),
    "inverse transform": ("fft.irfft", {}, (_rand(3, 4),), (_rand(2, 9),)),
    "svd": ("linalg.svd", {"full_matrices": False}, (_rand(3, 5),), (_rand(6, 2),)),
    "glu": ("glu", {}, (_rand(3, 4),), (_rand(2, 10),)),
}  # fmt: skip


@pytest.mark.parametrize("name", REUSED)
def test_a_plan_serves_other_extents(name: str) -> None:
    op, more, first, second = REUSED[name]
    assert _planned(functools.partial(function(op), **more), first, second)


def test_a_plan_refuses_extents_that_it_does_not_fit() -> None:
    assert not _planned(function("matmul"), (_rand(3, 2, 4), _rand(3, 4, 5)), (_rand(3, 2, 4), _rand(1, 4, 5)))
