"""Matrix products: a large one with work before it is stored, and many small ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.core import Inputs, everywhere, seeded, workload
from benchmarks.workloads.elementwise import C


def _layer(quick: bool) -> Inputs:
    n = 64 if quick else 1024
    return {"x": seeded((n, n)), "w": seeded((n, n), 1, n**-0.5), "b": seeded((n,), 2)}


def _written_out(m: Any, x: Any, w: Any, b: Any) -> Any:
    y = x @ w + b
    return 0.5 * y * (1.0 + m.tanh(C * (y + 0.044715 * y * y * y)))


def _torch(m: Any, x: Any, w: Any, b: Any) -> Any:
    return m.nn.functional.gelu(m.addmm(b, x, w), approximate="tanh")


workload(
    name="matmul_bias_gelu",
    what="gelu(x @ w + b), 1,024 x 1,024 x 1,024",
    inputs=_layer,
    reference=lambda inputs: [_written_out(np, **inputs)],
    builds=everywhere(
        _written_out, "numpy", "mlx",
        lazyt=lambda m, x, w, b: m.gelu(x @ w + b, approximate="tanh"),
        torch=_torch,
        jax=lambda m, x, w, b: __import__("jax").nn.gelu(x @ w + b),
        tinygrad=lambda m, x, w, b: (x @ w + b).gelu(),
    ),
    flops=lambda inputs: 2 * inputs["x"].size * inputs["w"].shape[1],
    rtol=1e-4,
    atol=1e-4,
)  # fmt: skip
workload(
    name="matmul_batched",
    what="64 products of 64 x 64 x 64",
    inputs=lambda quick: {"x": seeded((64, 64, 64)), "y": seeded((64, 64, 64), 1)},
    reference=lambda inputs: [inputs["x"] @ inputs["y"]],
    builds=everywhere(lambda m, x, y: x @ y, "lazyt", "numpy", "torch", "jax", "mlx", "tinygrad"),
    flops=lambda inputs: 2 * inputs["x"].size * inputs["y"].shape[-1],
    rtol=1e-4,
    atol=1e-4,
)
