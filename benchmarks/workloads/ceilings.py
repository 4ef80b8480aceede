"""What the machine can do, measured beside the workloads: bytes copied, and the multiply-adds of a matrix product."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.core import Inputs, limit, seeded, simple


def _copy_numpy(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    """Each thread its part; NumPy lets go of the interpreter while it copies."""
    x = inputs["x"]
    y = np.empty_like(x)
    parts = list(zip(np.array_split(y, peer.threads), np.array_split(x, peer.threads), strict=True))
    pool = ThreadPoolExecutor(peer.threads)

    def call() -> Any:
        list(pool.map(lambda pair: np.copyto(*pair), parts))
        return y

    return call


def _copy_torch(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    x = peer.array(inputs["x"])
    y = peer.module.empty_like(x)
    return lambda: y.copy_(x)


limit(
    name="limit_copy",
    what="64 MiB copied, reads and writes counted",
    inputs=lambda quick: {"x": seeded((1 << 18 if quick else 1 << 24,))},
    reference=lambda inputs: [inputs["x"]],
    builds={"numpy": _copy_numpy, "torch": _copy_torch},
    nbytes=lambda inputs: 2 * inputs["x"].nbytes,
)


def _square(quick: bool) -> Inputs:
    n = 256 if quick else 2048
    return {"x": seeded((n, n)), "y": seeded((n, n), 1)}


limit(
    name="limit_product",
    what="a product of two 2,048 x 2,048 matrices of floats, by each library's BLAS",
    inputs=_square,
    reference=lambda inputs: [inputs["x"] @ inputs["y"]],
    builds=dict.fromkeys(("numpy", "torch"), simple(lambda m, x, y: x @ y)),
    flops=lambda inputs: 2 * inputs["x"].size * inputs["y"].shape[1],
    rtol=1e-3,
    atol=1e-2,
)
