"""Data that is moved as much as computed: transposes, reversals, slices, shifted reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.core import Inputs, everywhere, seeded, workload

STEPS, RATE = 20, 0.1


def _squares(quick: bool) -> Inputs:
    n = 64 if quick else 4096
    return {name: seeded((n, n), i) for i, name in enumerate("abc")}


workload(
    name="movement",
    what="((a.T + b)[::-1, 1:] * c[:, 1:]).sum(0) over 4,096 x 4,096 floats",
    inputs=_squares,
    reference=lambda inputs: [_moved(np, **inputs)],
    builds=everywhere(
        lambda m, a, b, c: _moved(m, a, b, c), "lazyt", "numpy", "jax", "mlx",
        torch=lambda m, a, b, c: ((a.T + b).flip(0)[:, 1:] * c[:, 1:]).sum(0),
        tinygrad=lambda m, a, b, c: ((a.T + b)[::-1, 1:] * c[:, 1:]).sum(0),
    ),
    nbytes=lambda inputs: 3 * inputs["a"].nbytes,
    rtol=1e-4,
    atol=1e-3,
)  # fmt: skip


def _moved(m: Any, a: Any, b: Any, c: Any) -> Any:
    return ((a.T + b)[::-1, 1:] * c[:, 1:]).sum(0)


# --- stencil


def _laplacian(u: Any) -> Any:
    return u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4.0 * u[1:-1, 1:-1]


def _in_place(u: Any) -> Any:
    for _ in range(STEPS):
        u[1:-1, 1:-1] += RATE * _laplacian(u)
    return u


def _stencil_jax(m: Any, u: Any) -> Any:
    for _ in range(STEPS):
        u = u.at[1:-1, 1:-1].add(RATE * _laplacian(u))
    return u


def _stencil_tinygrad(m: Any, u: Any) -> Any:
    """A step at a time is realized: one kernel of twenty would compute everything again and again."""
    for _ in range(STEPS):
        u = (u + RATE * _laplacian(u).pad(((1, 1), (1, 1)))).contiguous()
    return u


workload(
    name="stencil",
    what=f"{STEPS} steps of a 5-point stencil over 2,048 x 2,048 floats, the border fixed",
    inputs=lambda quick: {"u": seeded((64, 64) if quick else (2048, 2048))},
    reference=lambda inputs: [_in_place(inputs["u"].copy())],
    builds=everywhere(
        lambda m, u: _in_place(u.copy()), "lazyt", "numpy",
        torch=lambda m, u: _in_place(u.clone()),
        mlx=lambda m, u: _in_place(m.array(u)),
        jax=_stencil_jax,
        tinygrad=_stencil_tinygrad,
    ),
    nbytes=lambda inputs: 2 * STEPS * inputs["u"].nbytes,
    rtol=1e-4,
    atol=1e-5,
)  # fmt: skip
