"""A Kalman filter: matrices of 4 x 4, one measurement after another, each waiting for the last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.core import Array, Inputs, seeded, workload

STATE, SEEN = 4, 2


def _inputs(quick: bool) -> Inputs:
    f32 = np.float32
    motion = np.eye(STATE, dtype=f32) + 0.1 * np.eye(STATE, k=SEEN, dtype=f32)  # places, and their speeds
    return {
        "z": np.cumsum(seeded((10 if quick else 200, SEEN), 0, 0.3), axis=0),
        "motion": motion,
        "noise": 0.01 * np.eye(STATE, dtype=f32),
        "sees": np.eye(SEEN, STATE, dtype=f32),
        "blur": 0.1 * np.eye(SEEN, dtype=f32),
    }


def _step(m: Any, x: Any, p: Any, z: Any, f: Any, q: Any, h: Any, r: Any, eye: Any) -> tuple[Any, Any]:
    x = f @ x
    p = f @ p @ f.T + q
    gain = p @ h.T @ m.linalg.inv(h @ p @ h.T + r)
    return x + gain @ (z - h @ x), (eye - gain @ h) @ p


def _loop(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    m = peer.module
    z, *model = (peer.array(x) for x in inputs.values())
    first, eye = peer.array(np.zeros(STATE, np.float32)), peer.array(np.eye(STATE, dtype=np.float32))
    step = peer.compile(lambda *xs: _step(m, *xs))

    def call() -> Any:
        x, p, states = first, eye, []
        for k in range(len(z)):
            x, p = step(x, p, z[k], *model, eye)
            states.append(x)
        return peer.wait([m.stack(states), p])

    return call


def _whole(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    """The loop in one function."""
    m = peer.module
    arrays = [peer.array(x) for x in inputs.values()]

    def run(z: Any, *model: Any) -> Any:
        x, p, states = m.zeros(STATE, dtype=m.float32), m.eye(STATE, dtype=m.float32), []
        for k in range(len(z)):
            x, p = _step(m, x, p, z[k], *model, m.eye(STATE, dtype=m.float32))
            states.append(x)
        return m.stack(states), p

    f = peer.jit(run)
    return lambda: peer.wait(f(*arrays))


def _scan(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    m, lax = peer.module, peer.jax.lax
    arrays = [peer.array(x) for x in inputs.values()]

    def run(z: Any, *model: Any) -> Any:
        eye = m.eye(STATE)

        def step(carry: Any, z: Any) -> Any:
            x, p = _step(m, *carry, z, *model, eye)
            return (x, p), x

        (_, p), states = lax.scan(step, (m.zeros(STATE), eye), z)
        return states, p

    f = peer.compile(run)
    return lambda: peer.wait(f(*arrays))


def _reference(inputs: Inputs) -> Sequence[Array]:
    z, *model = inputs.values()
    x, p, states = np.zeros(STATE), np.eye(STATE), []
    for row in z:
        x, p = _step(np, x, p, row, *model, np.eye(STATE))
        states.append(x)
    return np.stack(states), p


workload(
    name="kalman_filter",
    what="200 measurements of 2 numbers through a Kalman filter of 4, all states read at the end",
    inputs=_inputs,
    reference=_reference,
    builds={**dict.fromkeys(("torch", "torch.compile", "numpy"), _loop), "lazyt": _whole, "jax": _scan},
    rtol=1e-3,
    atol=1e-3,
)
