"""Batching rules of what has no derivative (others are checked with it); `vmap` of every operation on its samples."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt.autograd.batching import batch
from lazyt.autograd.batching_rules import BATCHING, OPAQUE_BATCHING, UNBATCHED
from lazyt.autograd.batching_rules.registry import batching, library_batching
from lazyt.autograd.rules.registry import OPAQUE_VJP, VJP
from lazyt.ir import dtypes, prims
from lazyt.ir.builder import Builder
from lazyt.ir.graph_interpreter import interpret
from lazyt.ir.symbolic import Scope
from lazyt.ops.definition import OPS
from tests.support.central_differences import check_lanes, random

RNG = np.random.default_rng(0)
INTS = RNG.integers(1, 9, (2, 3))
X = np.round(random(RNG, (2, 3)) * 20) / 4
SORTED = np.array([0.0, 1.0, 2.5, 4.0])


def lanes(f, *arrays):
    b = Builder()
    leaves = [b.input(i, a.shape, a.dtype) for i, a in enumerate(arrays)]
    out = f(b, *leaves)
    check_lanes(b, leaves, list(out) if isinstance(out, tuple) else [out], list(arrays))


ELEMENTWISE = sorted(n for n in prims.ELEMENTWISE if n not in VJP and n != "random_bits")


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name):
    rec = prims.ELEMENTWISE[name]
    x = INTS if "i" in rec.kinds else X
    y = np.flip(x, 1) % 4 + 1 if name in ("shl", "shr") else np.flip(x, 1)
    lanes(lambda b, *xs: b.elementwise(name, *xs), *(x, y)[: rec.arity])


def opaque(fn, statics, *outputs):
    return lambda b, *xs: b.opaque(fn, xs, statics, outputs)


BITS = np.array([[0, 1, 0, 1, 1, 0, 0, 1]] * 2, np.uint8)
F, INT, U8, C = dtypes.float64, dtypes.int64, np.dtype("uint8"), dtypes.complex128
CALLS = {
    "argsort": (opaque("argsort", (1, True), ((2, 3), INT)), X),
    "topk": (opaque("topk", (-1, True, 2), ((2, 2), INT)), X),
    "isin": (opaque("isin", (), ((2, 3), dtypes.bool_)), X, np.array([X[0, 0], 3.0])),
    "packbits": (opaque("packbits", ("big",), ((2,), U8)), BITS),
    "unpackbits": (opaque("unpackbits", ("little",), ((2, 8), U8)), np.array([3, 200], np.uint8)),
    "frexp": (opaque("frexp", (), ((2, 3), F), ((2, 3), np.dtype("int32"))), X),
    "linalg_matrix_rank": (opaque("linalg_matrix_rank", (), ((), INT)), X, np.array(0.1)),
    "linalg_eig": (opaque("linalg_eig", (), ((3,), C), ((3, 3), C)), np.diag([1.0, 2.0, 3.0]) + 0.1),
    "linalg_eigvals": (opaque("linalg_eigvals", (), ((3,), C)), np.diag([1.0, 2.0, 3.0]) + 0.1),
}


@pytest.mark.parametrize("name", CALLS)
def test_library_calls(name):
    lanes(CALLS[name][0], *CALLS[name][1:])


def test_every_library_call_is_checked():
    # Operations of users have rules of their own: tests/library/test_operations.py.
    # "residuals" stands for a program before a sync, whose values nobody batches; its derivative is that program's.
    seen = {*CALLS, *OPAQUE_VJP, "searchsorted", "operation", "operation_on_device"} - {"residuals"}
    assert set(OPAQUE_BATCHING) == seen
    assert set(UNBATCHED) == {*prims.SOURCES, "iota", "effect", "call", "residuals"}
    positions = {"any", "all", "argmax", "argmin", "position", "stop", "random_bits"}
    assert set(BATCHING) == set(VJP) | set(ELEMENTWISE) | positions


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted_of_own_values(side):
    values = np.array([[1.0, np.nan, 2.5], [-1.0, 9.0, 4.0]])
    for x in (SORTED, np.array([1.0, 1.0, np.nan, np.nan])):
        b = Builder()
        a, v = b.input(0, x.shape, F), b.input(1, values.shape, F)
        (y,) = b.opaque("searchsorted", (a, v), (side,), [(values.shape, INT)])
        own = [b.input(2, (2, *x.shape), F), b.input(3, (2, *values.shape), F)]
        stacked = [np.stack([x, x + 0.5]), np.stack([values, values - 0.5])]
        (found,) = batch(b, [y], [a, v], own, 2)
        (got,) = interpret(b.nodes, [found], [x, values, *stacked])
        wants = [np.searchsorted(p, q, side=side) for p, q in zip(*stacked, strict=True)]
        np.testing.assert_array_equal(got, wants)


@pytest.mark.parametrize("name", ["any", "all", "argmax", "argmin"])
def test_positions_and_truths(name):
    lanes(
        lambda b, x: b.reduce(name, x, (0, 1) if name in ("any", "all") else (1,)),
        X > 3 if name in ("any", "all") else X,
    )
    lanes(lambda b, i, j: b.position([i, j], (10, 12)), INTS, np.flip(INTS, 0))
    lanes(lambda b, x: b.stop(x), X)


def test_random_bits_of_each_lane():
    def bits(size, differ):
        b = Builder()
        x = b.input(0, (), dtypes.uint64)
        u = [b.constant(k, dtypes.uint64) for k in (5, 7)]
        n = b.elementwise("random_bits", *u, b.iota((6,), 0))
        y = b.reshape(b.add(b.elementwise("random_bits", *u, b.add(b.iota((6,), 0), b.iota((6,), 0))), n), (2, 3))
        (found,) = batch(b, [y], [x], [b.input(1, (size,), dtypes.uint64)], size, differ)
        return n, found, b

    _, found, b = bits(4, True)
    (got,) = interpret(b.nodes, [found], [np.uint64(0), np.zeros(4, np.uint64)])
    assert got.shape == (4, 2, 3) and len(np.unique(got)) == 24
    assert bits(4, False)[1] is None


def test_symbolic_numbers_of_lanes():
    """Only what needs as many groups as lanes asks how many there are."""
    scope = Scope()
    n = scope.symbol(0, 3)
    b = Builder(scope)
    x, w = b.input(0, (4, 5), F), b.input(1, (5, 2), F)
    y = b.reduce("sum", b.reshape(b.tanh(b.matmul(x, w)), (2, 4)), (0,))
    xs = b.input(2, (n, 4, 5), F)
    guards = len(scope.guards)
    (found,) = batch(b, [y], [x], [xs], n)
    assert found.shape == (n, 4) and len(scope.guards) == guards


def test_a_name_has_one_rule_or_one_reason():
    before = dict(BATCHING), dict(OPAQUE_BATCHING)
    for taken in ("exp", "linalg_inv", "input"):
        for enter in (batching, library_batching):
            with pytest.raises(AssertionError, match=f"^{taken} has a r"):
                enter(taken)(lambda lanes, n, xs: xs[0])
    assert before == (BATCHING, OPAQUE_BATCHING)


# Operations, as users call them

SAMPLED = sorted(n for n, op in OPS.items() if op.samples is not None)


def public(name):
    """The function of that name, where it is public and takes its samples as they are."""
    space = lt
    for part in name.split("."):
        space = getattr(space, part, None)
    return space if callable(space) else None


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLED)
def test_operations_on_their_samples(name):
    f = public(name)
    if f is None:
        pytest.skip("not called by this name")
    tried = 0
    for args, kwargs in OPS[name].samples():
        at = [i for i, a in enumerate(args) if isinstance(a, np.ndarray) and a.dtype.kind in "fc"]
        if not at:
            continue
        turned = (lambda x: x + 0.5) if name == "searchsorted" else np.flip  # sorted values stay so
        others = [np.stack([args[i], turned(args[i]).astype(args[i].dtype)]) for i in at]

        def call(*xs, at=at, args=args, kwargs=kwargs):
            full = list(args)
            for i, x in zip(at, xs, strict=True):
                full[i] = x
            return f(*full, **kwargs)

        try:
            want = [call(*(lt.asarray(x[k]) for x in others)) for k in range(2)]
            want = [[np.asarray(y) for y in (w if isinstance(w, tuple | list) else (w,))] for w in want]
        except (lt.LazytError, np.linalg.LinAlgError):
            continue
        try:
            got = lt.vmap(call)(*map(lt.asarray, others))
        except lt.SyncError:
            continue  # its result's shape depends on values
        tried += 1
        for y, *ws in zip(got if isinstance(got, tuple | list) else (got,), *want, strict=True):
            half = y.dtype in (lt.float16, lt.bfloat16)
            tol = 2e-2 if half else 2e-4 if y.dtype in (lt.float32, lt.complex64) else 1e-9
            a, w = np.asarray(y), np.stack(ws)
            if half:
                a, w = a.astype(np.float32), w.astype(np.float32)
            np.testing.assert_allclose(a, w, rtol=tol, atol=tol)
    if not tried:
        pytest.skip("no sample with floats, or its result's shape depends on values")
