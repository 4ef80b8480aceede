"""Every public operation on its samples: the bits of the CPU, and NumPy's values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.ops.definition import OPS
from lazyt_opencl.device import NAME
from tests.support.operations import INEXACT, NAMES, TOLERANCE, expected, public, wide

# Of the samples of an operation so many are in the quick tests.
FEW = 3

Sample = tuple[tuple[Any, ...], dict[str, Any]]


def on(device: str, name: str, samples: Sequence[Sample]) -> list[list[Any]]:
    """The results of an operation on samples, in one sync."""

    def there(x: Any) -> Any:
        if isinstance(x, np.ndarray):
            return lt.asarray(x, device=device)
        if isinstance(x, list | tuple) and any(isinstance(q, np.ndarray) for q in x):
            return type(x)(there(q) for q in x)
        return x

    found = []
    with lt.device(device):
        for args, kwargs in samples:
            out = public(name)(*(there(a) for a in args), **{k: there(v) for k, v in kwargs.items()})
            found.append(list(out) if isinstance(out, tuple) else [out])
    lt.sync()
    return found


def close(got: np.ndarray, want: np.ndarray) -> None:
    if got.dtype.name in TOLERANCE:
        tol = TOLERANCE[got.dtype.name]
        np.testing.assert_allclose(wide(got), wide(want), rtol=tol, atol=tol / 10)
    else:
        np.testing.assert_array_equal(got, want)


def same_bits(got: np.ndarray, want: np.ndarray) -> None:
    """Equal bits, but for those of a NaN."""
    if got.dtype.name in TOLERANCE:
        nan = np.isnan(wide(want))
        np.testing.assert_array_equal(np.isnan(wide(got)), nan)
        got, want = np.where(nan, 0, got), np.where(nan, 0, want)
    np.testing.assert_array_equal(np.ascontiguousarray(got).view(np.uint8), np.ascontiguousarray(want).view(np.uint8))


def compare(name: str, samples: Sequence[Sample]) -> None:
    """NumPy's values within its tolerances, and the CPU's bits; but products, which are added in another order."""
    ours, cpu = on(NAME, name, samples), on("cpu", name, samples)
    for (args, kwargs), found, theirs in zip(samples, ours, cpu, strict=True):
        for got, other, want in zip(found, theirs, expected(name, args, kwargs, len(found) > 1), strict=True):
            assert got.device == f"{NAME}:0"
            a = got.numpy()
            assert (a.shape, a.dtype) == (want.shape, want.dtype)
            close(a, want)
            if not any(word in name for word in INEXACT):
                same_bits(a, other.numpy())


@pytest.mark.parametrize("name", NAMES)
def test_every_operation(name: str) -> None:
    samples = list(OPS[name].samples())  # type: ignore[misc]
    compare(name, samples[:: -(-len(samples) // FEW)])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_operation_on_all_samples(name: str) -> None:
    compare(name, list(OPS[name].samples()))  # type: ignore[misc]
