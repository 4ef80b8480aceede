"""Small matrices, many at once: solved, inverted, factored, multiplied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.core import Array, Inputs, everywhere, seeded, workload


def _inputs(count: int, n: int) -> Callable[[bool], Inputs]:
    def inputs(quick: bool) -> Inputs:
        a = seeded((10 if quick else count, n, n), 0)
        eye = np.eye(n, dtype=np.float32)
        # Diagonals that grow keep eigenvalues apart, and matrices far from singular ones.
        spread = eye * np.arange(n, 3 * n, 2, dtype=np.float32)
        return {"a": a + spread, "s": a @ a.swapaxes(1, 2) / n + spread, "b": seeded((len(a), n, 2), 1)}

    return inputs


def _solves(m: Any, a: Any, s: Any, b: Any) -> Sequence[Any]:
    x = m.linalg.solve(a, b)
    return x, m.linalg.inv(a), a @ x - b, m.linalg.det(a)


def _factors(m: Any, a: Any, s: Any, b: Any) -> Sequence[Any]:
    """Signs of columns are free: sizes alone are compared."""
    q, r = m.linalg.qr(a)
    return m.linalg.cholesky(s), m.abs(q), m.abs(r)


def _eigen(m: Any, a: Any, s: Any, b: Any) -> Sequence[Any]:
    values, vectors = m.linalg.eigh(s)
    return values, m.abs(vectors), m.linalg.svd(a)[1]


def _reference(expression: Callable[..., Any]) -> Callable[[Inputs], Sequence[Array]]:
    return lambda inputs: expression(np, *inputs.values())


for _name, _what, _expression, _count, _n in (
    ("batched_solves", "solutions, inverses, residuals and determinants", _solves, 1000, 8),
    ("batched_factors", "Cholesky and QR factors", _factors, 1000, 8),
    ("batched_eigen", "eigenvectors of symmetric matrices, and singular values", _eigen, 200, 16),
):
    workload(
        name=_name,
        what=f"{_what} of {_count:,} matrices of {_n} x {_n}",
        inputs=_inputs(_count, _n),
        reference=_reference(_expression),
        builds=everywhere(_expression, "lazyt", "torch", "jax", "numpy"),
        rtol=1e-3,
        atol=1e-3,
    )
