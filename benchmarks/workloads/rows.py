"""Reductions whose result is broadcast back over the same rows: one kernel, if it is fused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.core import Array, Inputs, seeded, simple, workload

EPS = 1e-5


def _rows(quick: bool) -> Inputs:
    return {"x": seeded((64, 256) if quick else (4096, 1024))}


def _rows_and_weights(quick: bool) -> Inputs:
    x = _rows(quick)["x"]
    return {"x": x, "weight": seeded(x.shape[1:], 1), "bias": seeded(x.shape[1:], 2)}


def _softmax(m: Any, x: Any) -> Any:
    e = m.exp(x - m.max(x, axis=-1, keepdims=True))
    return e / m.sum(e, axis=-1, keepdims=True)


def _layernorm(m: Any, x: Any, weight: Any, bias: Any) -> Any:
    mean = m.mean(x, axis=-1, keepdims=True)
    return (x - mean) / m.sqrt(m.var(x, axis=-1, keepdims=True) + EPS) * weight + bias


def _reference_softmax(inputs: Inputs) -> Sequence[Array]:
    return [_softmax(np, **inputs)]


def _reference_layernorm(inputs: Inputs) -> Sequence[Array]:
    return [_layernorm(np, **inputs)]


def _mlx_layernorm(m: Any, x: Any, weight: Any, bias: Any) -> Any:
    return m.fast.layer_norm(x, weight, bias, EPS)


workload(
    name="softmax",
    what="softmax over the rows of 4,096 x 1,024 floats",
    inputs=_rows,
    reference=_reference_softmax,
    builds={
        "lazyt": simple(lambda m, x: m.softmax(x, -1)),
        "numpy": simple(_softmax),
        "torch": simple(lambda m, x: m.softmax(x, -1)),
        "jax": simple(_softmax),
        "mlx": simple(lambda m, x: m.softmax(x, axis=-1)),
        "tinygrad": simple(lambda m, x: x.softmax(-1)),
    },
    nbytes=lambda inputs: 2 * inputs["x"].nbytes,
)
workload(
    name="layernorm",
    what="layer norm with weight and bias over the rows of 4,096 x 1,024 floats",
    inputs=_rows_and_weights,
    reference=_reference_layernorm,
    builds={
        "lazyt": simple(lambda m, x, w, b: m.layer_norm(x, x.shape[1:], w, b, EPS)),
        "numpy": simple(_layernorm),
        "torch": simple(lambda m, x, w, b: m.nn.functional.layer_norm(x, x.shape[1:], w, b, EPS)),
        "jax": simple(_layernorm),
        "mlx": simple(_mlx_layernorm),
        "tinygrad": simple(lambda m, x, w, b: x.layernorm(eps=EPS) * w + b),
    },
    nbytes=lambda inputs: 2 * inputs["x"].nbytes,
    rtol=1e-4,
    atol=1e-5,
)
