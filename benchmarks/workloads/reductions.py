"""Elementwise work that ends in a reduction: nothing but the operands should touch memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.core import Inputs, everywhere, seeded, workload


def _three(quick: bool) -> Inputs:
    shape = (1 << 14 if quick else 1 << 24,)
    return {name: seeded(shape, i) for i, name in enumerate("abc")}


def _map_reduce(m: Any, a: Any, b: Any, c: Any) -> Any:
    return m.sum((a * b + c) ** 2)


workload(
    name="map_reduce",
    what="sum((a * b + c)^2) over three arrays of 16M floats",
    inputs=_three,
    reference=lambda inputs: [np.asarray(_map_reduce(np, **inputs))],
    builds=everywhere(
        _map_reduce, "lazyt", "numpy", "torch", "jax", "mlx",
        numexpr=lambda m, a, b, c: m.evaluate("sum((a * b + c)**2)"),
        tinygrad=lambda m, a, b, c: ((a * b + c) ** 2).sum(),
    ),
    nbytes=lambda inputs: 3 * inputs["a"].nbytes,
    rtol=1e-4,
)  # fmt: skip


def _columns(quick: bool) -> Inputs:
    return {"x": seeded((128, 64) if quick else (16384, 1024))}


def _column_stats(m: Any, x: Any) -> Any:
    return m.mean(x, axis=0), m.var(x, axis=0)


workload(
    name="column_stats",
    what="mean and variance over axis 0 of 16,384 x 1,024 floats",
    inputs=_columns,
    reference=lambda inputs: list(_column_stats(np, **inputs)),
    builds=everywhere(
        _column_stats, "lazyt", "numpy", "jax", "mlx",
        torch=lambda m, x: (m.mean(x, dim=0), m.var(x, dim=0, correction=0)),
        tinygrad=lambda m, x: (x.mean(0), x.var(0, correction=0)),
    ),
    nbytes=lambda inputs: inputs["x"].nbytes,
    rtol=1e-4,
    atol=1e-5,
)  # fmt: skip


def _points(quick: bool) -> Inputs:
    return {"points": seeded((200 if quick else 20000, 32)), "centres": seeded((64, 32), 1)}


def _nearest(m: Any, points: Any, centres: Any) -> Any:
    return m.argmin(((points[:, None, :] - centres[None, :, :]) ** 2).sum(-1), -1)


workload(
    name="kmeans_dist",
    what="the nearest of 64 centres to each of 20,000 points in 32 dimensions, in the broadcast form",
    inputs=_points,
    reference=lambda inputs: [_nearest(np, **inputs)],
    builds=everywhere(
        _nearest, "lazyt", "numpy", "torch", "jax", "mlx",
        tinygrad=lambda m, points, centres: ((points[:, None, :] - centres[None, :, :]) ** 2).sum(-1).argmin(-1),
    ),
    nbytes=lambda inputs: inputs["points"].nbytes + 8 * len(inputs["points"]),
    flops=lambda inputs: 3 * inputs["points"].size * len(inputs["centres"]),
    outside=1e-3,  # two centres at nearly the same distance
)  # fmt: skip
