"""Inference whose batch size changes at every call: what compiles for a shape pays for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.core import Array, Inputs, seeded, workload

SIZES = np.random.default_rng(0).permutation(np.arange(1, 65))


def _inputs(quick: bool) -> Inputs:
    width = 32 if quick else 256
    return {
        "x": seeded((64, width), 0),
        "w1": seeded((width, 2 * width), 1, width**-0.5),
        "b1": seeded((2 * width,), 2, 0.1),
        "w2": seeded((2 * width, 10), 3, (2 * width) ** -0.5),
        "b2": seeded((10,), 4, 0.1),
    }


def _mlp(m: Any, x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    y = m.tanh(x @ w1 + b1) @ w2 + b2
    e = m.exp(y - m.max(y, axis=-1, keepdims=True))
    return e / m.sum(e, axis=-1, keepdims=True)


def _mlp_torch(m: Any, x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    return m.softmax(m.tanh(x @ w1 + b1) @ w2 + b2, -1)


def _mlp_tinygrad(m: Any, x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    return ((x @ w1 + b1).tanh() @ w2 + b2).softmax(-1)


def _reference(inputs: Inputs) -> Sequence[Array]:
    x, *weights = inputs.values()
    return [_mlp(np, x[:n], *weights) for n in SIZES]


def _build(expression: Callable[..., Any]) -> Callable[[Any, Inputs], Callable[[], Any]]:
    def build(peer: Any, inputs: Inputs) -> Callable[[], Any]:
        x, *weights = inputs.values()
        parts = [peer.array(x[:n]) for n in SIZES]
        arrays = [peer.array(w) for w in weights]
        f = peer.compile(lambda *xs: expression(peer.module, *xs))
        return lambda: [peer.wait(f(part, *arrays)) for part in parts]

    return build


workload(
    name="dynamic_batches",
    what="a two-layer network on batches of 1 to 64 rows in shuffled order",
    inputs=_inputs,
    reference=_reference,
    builds={
        **dict.fromkeys(("lazyt", "torch", "mlx"), _build(_mlp_torch)),
        **dict.fromkeys(("numpy", "jax"), _build(_mlp)),
        # A TinyJit is bound to one shape, so batches run without it, as its users would have to run them.
        "tinygrad": lambda peer, inputs: _uncompiled(peer, inputs),
    },
    unit="us/batch",
    scale=1e6,
    per=lambda inputs: len(SIZES),
    rtol=1e-4,
)


def _uncompiled(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    x, *weights = inputs.values()
    parts = [peer.array(x[:n]) for n in SIZES]
    arrays = [peer.array(w) for w in weights]
    return lambda: [_mlp_tinygrad(peer.module, part, *arrays).realize() for part in parts]
