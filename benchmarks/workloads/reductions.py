"""Elementwise work that ends in a sum: nothing but the operands should touch memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.core import Array, Inputs, seeded, simple, workload


def _inputs(quick: bool) -> Inputs:
    shape = (1 << 14 if quick else 1 << 23,)
    return {"x": seeded(shape, 0), "y": seeded(shape, 1)}


def _map_reduce(m: Any, x: Any, y: Any) -> Any:
    return m.sum(m.exp(-x * x) * m.abs(y - x))


def _reference(inputs: Inputs) -> Sequence[Array]:
    return [np.asarray(_map_reduce(np, **inputs))]


workload(
    name="map_reduce",
    what="sum(exp(-x * x) * abs(y - x)) over two arrays of 8M floats",
    inputs=_inputs,
    reference=_reference,
    builds={
        **dict.fromkeys(("lazyt", "numpy", "torch", "jax", "mlx"), simple(_map_reduce)),
        "numexpr": simple(lambda m, x, y: m.evaluate("sum(exp(-x * x) * abs(y - x))")),
        "tinygrad": simple(lambda m, x, y: ((-x * x).exp() * (y - x).abs()).sum()),
    },
    nbytes=lambda inputs: 2 * inputs["x"].nbytes,
    rtol=1e-4,
)
