"""Python's numbers, alone and in lists, are float64 wherever the result is: over every public name that NumPy has."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import lazyt as lt

# A float64 array, a number, a list and an array of integers: none of the floats is a float32.
POOL: dict[str, Any] = {
    "array": np.array([0.15, 0.3, 1.7]),
    "number": 0.1,
    "list": [0.1, 0.27, 0.3],
    "integers": np.array([0, 2, 1]),
}
SPACES = (("", lt, np), ("linalg.", lt.linalg, np.linalg), ("fft.", lt.fft, np.fft))
# Several results, each of one operand; the dtype of one operand alone; values that are undefined (points that do not
# increase) or have leading zeros, which NumPy trims.
APART = {
    "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "compress", "extract", "histogram",
    "histogram_bin_edges", "interp", "ix_", "mean", "meshgrid", "nan_to_num", "polymul", "trim_zeros",
}  # fmt: skip
NAMES = sorted(
    prefix + name
    for prefix, ours, theirs in SPACES
    for name in dir(ours)
    if not name.startswith("_") and prefix + name not in APART and callable(getattr(theirs, name, None))
    if not isinstance(getattr(ours, name), type) and not isinstance(getattr(theirs, name), type)
    if name not in ("empty", "empty_like", "save", "savez", "load", "test")
)


def functions(name: str) -> tuple[Any, Any]:
    prefix, _, short = name.rpartition(".")
    space, numpy = (getattr(lt, prefix), getattr(np, prefix)) if prefix else (lt, np)
    return getattr(space, short), getattr(numpy, short)


def given(x: Any) -> Any:
    return lt.asarray(x) if isinstance(x, np.ndarray) else x


def arrays(found: Any) -> list[np.ndarray]:
    if isinstance(found, list | tuple):
        return [a for x in found for a in arrays(x)]
    return [np.asarray(found)]


def calls(f: Any, g: Any) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    """Positional arguments of every kind, a dtype, and each of NumPy's options as a list."""
    names: set[str] = set()
    for h in (f, g):
        with contextlib.suppress(TypeError, ValueError):
            names |= {p.name for p in inspect.signature(h).parameters.values() if p.default is not p.empty}
    wide = {"dtype": np.float64} if "dtype" in names or isinstance(g, np.ufunc) else None
    found: list[tuple[tuple[str, ...], dict[str, Any]]] = []
    for n in (1, 2, 3):
        for keys in itertools.product(POOL if n < 3 else ("array", "list"), repeat=n):
            if "number" in keys or "list" in keys:
                found += [(keys, {})] if "array" in keys else []
                found += [(keys, wide)] if wide and n < 3 else []
    options = names & {"prepend", "append", "weights", "left", "right", "to_end", "to_begin", "fill_value", "aweights"}
    return found + [(("array",) * n, {k: POOL["list"]}) for n in (1, 2, 3) for k in options]


@pytest.mark.parametrize("name", NAMES)
def test_numbers_beside_float64_are_float64(name: str) -> None:
    f, g = functions(name)
    for keys, options in calls(f, g):
        args = [POOL[k] for k in keys]
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                want = arrays(g(*(a.copy() if isinstance(a, np.ndarray) else a for a in args), **options))
            except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, np.linalg.LinAlgError):
                continue  # NumPy has no such call
            try:
                got = arrays(f(*map(given, args), **options))
            except (lt.LazytError, TypeError, ValueError):
                continue  # refused: what is given is what has to be right
        for h, w in zip(got, want, strict=True):
            if w.dtype.kind in "fc":
                assert h.dtype.itemsize >= w.dtype.itemsize, (keys, options)
                np.testing.assert_allclose(h, w, rtol=1e-12, atol=1e-14, err_msg=f"{keys} {options}")


@pytest.mark.parametrize(
    ("made", "want"),
    [
        (lambda: lt.array([0.1], dtype="f8"), np.array([0.1])),
        (lambda: lt.array(1e300, dtype="f8"), np.array(1e300)),
        (lambda: lt.array(16777217.0, dtype="i8"), np.array(16777217)),
        (lambda: lt.array(2**64 - 1, dtype="u8"), np.array(2**64 - 1, "u8")),
        (lambda: lt.array(0.1 + 0.2j, dtype="c16"), np.array(0.1 + 0.2j)),
        (lambda: lt.astype(1e-50, bool), np.array(True)),
        (lambda: lt.astype([16777217.0], "i4"), np.array([16777217], "i4")),
        (lambda: lt.full(1, [0.1], "f8"), np.array([0.1])),
        (lambda: lt.sum([0.1, 0.2], dtype="f8"), np.array(0.1 + 0.2)),
        (lambda: np.add.reduce(lt.asarray([0.0]), dtype="f8"), np.array(0.0)),
        (lambda: lt.add.reduce([0.1, 0.2], dtype="f8"), np.array(0.1 + 0.2)),
        (lambda: lt.bincount([0, 1, 1], weights=[0.1, 0.2, 0.3]), np.array([0.1, 0.5])),
        (lambda: lt.sin(0.1, out=lt.zeros((), dtype="f8")), np.sin(np.array(0.1))),
        (lambda: lt.asarray([lt.ones((), dtype="f8"), 0.1 + 0.2j]), np.array([1, 0.1 + 0.2j])),
        (lambda: lt.select([lt.asarray([True, False])] * 2, [lt.asarray([0.7, 1.0]).astype("f8") * 0, 0.1], 0.2),
         np.array([0.0, 0.2])),
    ],
)  # fmt: skip
@pytest.mark.parametrize("eager", [False, True])
def test_what_is_asked_for_in_64_bits_is_exact(made: Any, want: np.ndarray, eager: bool) -> None:
    if eager:
        with lt.eager():
            got = made()
    else:
        got = made()
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.numpy(), want)


def test_numbers_on_their_own_stay_float32() -> None:
    assert lt.array([0.1]).dtype == lt.asarray(0.1).dtype == lt.append([0.1], 0.2).dtype == lt.float32
    assert (lt.ones(1) * 0.1).dtype == lt.append(lt.ones(1), 0.1).dtype == lt.float32
