"""Chains of elementwise operations over arrays larger than the caches: one pass over memory, if they are fused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.core import Array, Inputs, seeded, simple, workload

C = 0.7978845608028654  # sqrt(2 / pi)


def _inputs(quick: bool) -> Inputs:
    return {"x": seeded((1 << 14 if quick else 1 << 22,))}


def _gelu(m: Any, x: Any) -> Any:
    """GELU in its tanh form, as users write it out."""
    return 0.5 * x * (1.0 + m.tanh(C * (x + 0.044715 * x * x * x)))


def _reference(inputs: Inputs) -> Sequence[Array]:
    return [_gelu(np, inputs["x"])]


workload(
    name="gelu_chain",
    what="GELU written out in nine operations over 4M floats",
    inputs=_inputs,
    reference=_reference,
    builds={
        **dict.fromkeys(("lazyt", "numpy", "torch", "jax", "mlx"), simple(_gelu)),
        "numexpr": simple(lambda m, x: m.evaluate(f"0.5 * x * (1.0 + tanh({C} * (x + 0.044715 * x * x * x)))")),
        "tinygrad": simple(lambda m, x: 0.5 * x * (1.0 + (C * (x + 0.044715 * x * x * x)).tanh())),
    },
    nbytes=lambda inputs: 2 * inputs["x"].nbytes,
)
