"""Every operation of the table on real tensors: against NumPy, and the same bits however it is run."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.ops.definition import OPS
from lazyt.runtime import plan_cache
from lazyt.testing.closeness import same_bits
from lazyt.testing.modes import FIRST_BY_NUMPY, FIRST_RUN, mode

# Relative tolerance by dtype; integers and bools are exact.
TOLERANCE = {
    "float16": 2e-2,
    "bfloat16": 5e-2,
    "float32": 2e-5,
    "complex64": 2e-5,
    "float64": 1e-10,
    "complex128": 1e-10,
}
# Contractions and library calls may round differently from run to run of another shape of plan.
INEXACT = ("matmul", "linear", "conv", "einsum", "tensordot", "dot", "inner", "outer", "vecdot", "kron", "linalg",
           "fft",           "scaled_dot_product_attention", "multi_head", "cov", "trace")  # fmt: skip
SPACES: tuple[Any, ...] = (lt, lt.linalg, lt.fft, lt.nn.functional)


def public(name: str) -> Any:
    """The public function of an operation: `linalg.inv` is lt.linalg.inv."""
    space, _, short = name.rpartition(".")
    if space:
        return getattr(getattr(lt, space), short, None)
    return next((f for s in SPACES if (f := getattr(s, name, None)) is not None), None)


NAMES = sorted(n for n, op in OPS.items() if op.samples is not None and op.numpy is not None and public(n) is not None)


def tensors(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return lt.asarray(x)
    if isinstance(x, list | tuple) and any(isinstance(q, np.ndarray) for q in x):
        return type(x)(tensors(q) for q in x)
    return x


def run(name: str, args: Any, kwargs: Any) -> list[np.ndarray]:
    out = public(name)(*(tensors(a) for a in args), **{k: tensors(v) for k, v in kwargs.items()})
    return [o.numpy() for o in (out if isinstance(out, tuple) else (out,))]


def expected(name: str, args: Any, kwargs: Any, several: bool) -> list[np.ndarray]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = OPS[name].numpy(*args, **kwargs)  # type: ignore[misc]
    return [np.asarray(o) for o in (out if several else (out,))]


def wide(a: np.ndarray) -> np.ndarray:
    return a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)


@pytest.mark.parametrize("name", NAMES)
def test_against_numpy_in_every_regime(name, monkeypatch):
    for args, kwargs in OPS[name].samples():  # type: ignore[misc]
        monkeypatch.setitem(plan_cache.settings, "tiers", False)
        fused = run(name, args, kwargs)
        for got, want in zip(fused, expected(name, args, kwargs, len(fused) > 1), strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            if got.dtype.name in TOLERANCE:
                tol = TOLERANCE[got.dtype.name]
                np.testing.assert_allclose(wide(got), wide(want), rtol=tol, atol=tol / 10)
            else:
                np.testing.assert_array_equal(got, want)
        monkeypatch.setitem(plan_cache.settings, "tiers", True)
        with lt.eager():
            eager = run(name, args, kwargs)
        if not any(part in name for part in INEXACT):
            for a, b in zip(fused, eager, strict=True):
                assert a.tobytes() == b.tobytes() or np.array_equal(wide(a), wide(b), equal_nan=True)


@pytest.mark.parametrize("name", [n for n in NAMES if not any(part in n for part in INEXACT)])
def test_a_first_run_by_numpy_has_the_bits_of_kernels(name):
    for args, kwargs in OPS[name].samples():  # type: ignore[misc]
        found = []
        for m in (FIRST_RUN, FIRST_BY_NUMPY):
            with mode(m):
                found.append(run(name, args, kwargs))
        for a, b in zip(*found, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            assert a.tobytes() == b.tobytes() or same_bits(a, b)


WRONG = [(n, i) for n, op in sorted(OPS.items()) if public(n) is not None for i in range(len(op.errors))]


@pytest.mark.parametrize(("name", "case"), WRONG)
def test_bad_input_is_refused_when_recorded(name, case):
    args, kwargs, error, match = OPS[name].errors[case]
    before = lt.last_sync()
    with pytest.raises(error, match=match):
        public(name)(*(tensors(a) for a in args), **{k: tensors(v) for k, v in kwargs.items()})
    assert lt.last_sync() is before
