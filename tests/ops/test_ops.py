"""Every operation of the table on real tensors: against NumPy, and the same bits however it is run."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt.ops.definition import OPS
from lazyt.runtime import plan_cache
from lazyt.testing.closeness import same_bits
from lazyt.testing.modes import FIRST_BY_NUMPY, FIRST_RUN, mode
from tests.support.operations import INEXACT, NAMES, TOLERANCE, expected, public, run, tensors, wide


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
