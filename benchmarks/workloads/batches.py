"""Inference whose batch size is new at every call: what compiles for a shape pays for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.core import WARM_UP, Array, Inputs, seeded, workload

SIZES = 40  # batch sizes a call
CALLS = 48  # calls before sizes would repeat


def sizes(call: int) -> Array:
    """The batch sizes of one call, in a shuffled order: one of every stratum, none ever seen before."""
    assert call < CALLS, f"after {CALLS} calls every batch size has been seen"
    place = np.random.default_rng(0).permutation(CALLS)[call]
    return np.random.default_rng(call).permutation(np.arange(SIZES) * CALLS + place + 1)


def _inputs(quick: bool) -> Inputs:
    width = 16 if quick else 256
    return {
        "x": seeded((SIZES * CALLS, width), 0),
        "w1": seeded((width, 2 * width), 1, width**-0.5),
        "b1": seeded((2 * width,), 2, 0.1),
        "w2": seeded((2 * width, 10), 3, (2 * width) ** -0.5),
        "b2": seeded((10,), 4, 0.1),
    }


def _mlp(m: Any, x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    y = m.tanh(x @ w1 + b1) @ w2 + b2
    e = m.exp(y - m.max(y, axis=-1, keepdims=True))
    return e / m.sum(e, axis=-1, keepdims=True)


def _mlp_softmax(m: Any, x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    return m.softmax(m.tanh(x @ w1 + b1) @ w2 + b2, -1)


def _mlp_tinygrad(m: Any, x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    return ((x @ w1 + b1).tanh() @ w2 + b2).softmax(-1)


def _reference(inputs: Inputs) -> Sequence[Array]:
    x, *weights = inputs.values()
    return [_mlp(np, x[:n], *weights) for n in sizes(WARM_UP)]


def _build(expression: Callable[..., Any], compiled: bool = True) -> Callable[[Any, Inputs], Callable[[], Any]]:
    def build(peer: Any, inputs: Inputs) -> Callable[[], Any]:
        x, *weights = inputs.values()
        arrays = [peer.array(w) for w in weights]
        plain = lambda *xs: expression(peer.module, *xs)
        f = peer.compile(plain) if compiled else plain
        made = 0

        def call() -> Any:
            nonlocal made
            made += 1
            return [peer.wait(f(peer.array(x[:n]), *arrays)) for n in sizes(made - 1)]

        return call

    return build


workload(
    name="dynamic_batches",
    what=f"a two-layer network on {SIZES} batch sizes that were not seen before, up to {SIZES * CALLS:,} rows",
    inputs=_inputs,
    reference=_reference,
    builds={
        **dict.fromkeys(("lazyt", "torch", "torch.compile", "mlx"), _build(_mlp_softmax)),
        **dict.fromkeys(("numpy", "jax"), _build(_mlp)),
        # A TinyJit is bound to one shape, so batches run without it, as its users would have to run them.
        "tinygrad": _build(_mlp_tinygrad, compiled=False),
    },
    stateful=True,
    fresh=True,
    rtol=1e-4,
)
