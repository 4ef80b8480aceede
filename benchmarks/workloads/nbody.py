"""Bodies that attract each other, all pairs, step after step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.core import Inputs, everywhere, seeded, workload

STEPS = 10
DT, SOFT = 0.01, 0.1


def _inputs(quick: bool) -> Inputs:
    n = 16 if quick else 512
    mass = np.random.default_rng(9).random(n, np.float32) / np.float32(n)
    return {"x": seeded((n, 3), 0), "v": seeded((n, 3), 1, 0.1), "mass": mass}


def _accelerations(x: Any, mass: Any) -> Any:
    d = x[None, :, :] - x[:, None, :]
    r2 = (d * d).sum(-1) + SOFT**2
    return (d * (mass * r2**-1.5)[:, :, None]).sum(1)


def _simulate(m: Any, x: Any, v: Any, mass: Any) -> Sequence[Any]:
    """Leapfrog."""
    a = _accelerations(x, mass)
    for _ in range(STEPS):
        v = v + 0.5 * DT * a
        x = x + DT * v
        a = _accelerations(x, mass)
        v = v + 0.5 * DT * a
    return x, v, 0.5 * (mass * (v * v).sum(-1)).sum()


workload(
    name="nbody",
    what=f"{STEPS} steps of 512 bodies, every pair of them",
    inputs=_inputs,
    reference=lambda inputs: _simulate(np, *inputs.values()),
    builds=everywhere(_simulate, "lazyt", "torch", "jax", "numpy"),
    rtol=1e-4,
    atol=1e-4,
)
