"""Short rows of one array against those of another: lanes along the outputs, the bits of one row at a time."""

from __future__ import annotations

import numpy as np
import pytest

from lazyt.backends.cpu.codegen.emit import emit
from tests.support.cpu_kernels import check
from tests.support.kernel_builder import Builder
from tests.support.kernel_suite import BF16, BOOL, F16, F32, F64, finite


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def over_pairs(name: str, a: np.ndarray, b: np.ndarray) -> Builder:
    """Reductions over k of something of a[i, k] and b[j, k], and a map of what they give."""
    k = Builder((len(a), *b.shape), 1, "row")
    x, y = k.load(a[:, None, :]), k.load(b[None])
    both = k.op("xor" if a.dtype == BOOL else "sub", x, y)
    shift = k.load(np.repeat(b[:, 0], 2)[None, ::2, None])  # along j alone, and apart
    both = k.op("maximum", both, shift)
    total = k.reduce(name, both)
    most = k.reduce("max", both)
    k.stage(reduces=(total, most), loops=True)
    first = k.store_once(total, np.zeros((len(a), len(b)), a.dtype))
    own = k.load(finite(np.random.default_rng(1), (len(a), len(b)), a.dtype)[:, :, None])
    second = k.store_once(k.op("maximum", k.op("minimum", total, most), own), np.zeros((len(a), len(b)), a.dtype))
    k.stage(first, second, loops=False)
    return k


def one_reduction(name: str, a: np.ndarray, b: np.ndarray) -> Builder:
    k = Builder((len(a), *b.shape), 1, "row")
    # Of nothing NumPy's strides do not say how an access moves.
    x, y = k.load(a[:, None, :], classes="" if b.size else "n01"), k.load(b[None], classes="" if b.size else "0n1")
    total = k.reduce(name, k.op("xor" if a.dtype == BOOL else "sub", x, y))
    k.stage(reduces=(total,), loops=True)
    k.stage(k.store_once(total, np.zeros((len(a), len(b)), a.dtype)), loops=False)
    return k


PAIRS = [
    (5, 8, 1),
    (9, 37, 33),
    (4, 64, 32),
    (3, 20, 256),
    (2, 20, 257),
    (40, 5, 9),
    (2, 50, 16),
    (3, 16, 0),
    (70, 18, 5),
]


@pytest.mark.parametrize("shape", PAIRS, ids=str)
@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16, np.dtype("i4"), np.dtype("u1"), BOOL], ids=str)
def test_short_rows_over_pairs(shape: tuple[int, int, int], dtype: np.dtype, rng: np.random.Generator) -> None:
    """Bits are those of one row at a time, wherever the outputs are cut."""
    i, j, n = shape
    a, b = finite(rng, (i, n), dtype), finite(rng, (n, j) if i % 2 else (j, n), dtype)
    b = b.T if i % 2 else np.flip(b)  # neighbours along j, or backwards
    for name in ("any",) if dtype == BOOL else ("sum", "prod"):
        builders = [one_reduction(name, a, b)]
        if n:  # a maximum of nothing is an error that no kernel meets
            builders.append(over_pairs(name, a, b))
        for k in builders:
            assert ".pairs" in emit(k.kernel(), "k")
            for pieces in (1, 3, 7):
                check(k, pieces)
