"""Gradients of a network by its parameters: one a sample (`vmap(grad(loss))`), and one of the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.core import Array, Inputs, seeded, workload

SAMPLES = 1000


def _inputs(quick: bool) -> Inputs:
    n, width, hidden = (20, 8, 6) if quick else (SAMPLES, 64, 128)
    return {
        "w1": seeded((width, hidden), 0, width**-0.5),
        "b1": seeded((hidden,), 1, 0.1),
        "w2": seeded((hidden, 10), 2, hidden**-0.5),
        "b2": seeded((10,), 3, 0.1),
        "x": seeded((n, width), 4),
        "t": seeded((n, 10), 5),
    }


def _loss(m: Any, w1: Any, b1: Any, w2: Any, b2: Any, x: Any, t: Any) -> Any:
    return ((m.tanh(x @ w1 + b1) @ w2 + b2 - t) ** 2).sum()


def _per_sample(vmap: Any, grad: Any, m: Any, *inputs: Any) -> Any:
    gradients = grad(lambda *xs: _loss(m, *xs), (0, 1, 2, 3))
    return vmap(gradients, (None, None, None, None, 0, 0))(*inputs)


def _norms(vmap: Any, grad: Any, m: Any, *inputs: Any) -> Any:
    """The squared norm of each sample's gradient: what clipping sample by sample needs."""
    return sum((g * g).sum(tuple(range(1, g.ndim))) for g in _per_sample(vmap, grad, m, *inputs))


def _batched(vmap: Any, grad: Any, m: Any, *inputs: Any) -> Any:
    return grad(lambda *xs: _loss(m, *xs), (0, 1, 2, 3))(*inputs)


def _parts(w1: Array, b1: Array, w2: Array, b2: Array, x: Array, t: Array) -> tuple[Array, ...]:
    """The input and the cotangent of each layer, of all samples."""
    h = np.tanh(x @ w1 + b1)
    by_y = 2 * (h @ w2 + b2 - t)
    return x, (by_y @ w2.T) * (1 - h * h), h, by_y


def _all(x: Array, by_h: Array, h: Array, by_y: Array) -> list[Array]:
    return [x[:, :, None] * by_h[:, None], by_h, h[:, :, None] * by_y[:, None], by_y]


def _of_batch(x: Array, by_h: Array, h: Array, by_y: Array) -> list[Array]:
    return [x.T @ by_h, by_h.sum(0), h.T @ by_y, by_y.sum(0)]


def _total(*parts: Array) -> list[Array]:
    return [sum(np.sum(g * g, axis=tuple(range(1, g.ndim))) for g in _all(*parts))]  # type: ignore[list-item]


def _build(expression: Callable[..., Any]) -> Callable[[Any, Inputs], Callable[[], Any]]:
    """vmap and grad are lazyt's own, JAX's or those of `torch.func`."""

    def build(peer: Any, inputs: Inputs) -> Callable[[], Any]:
        space = {"jax": "jax", "lazyt": "module"}.get(peer.name)
        functions = peer.module.func if space is None else getattr(peer, space)
        arrays = [peer.array(x) for x in inputs.values()]
        f = peer.jit(lambda *xs: expression(functions.vmap, functions.grad, peer.module, *xs))
        return lambda: peer.wait(f(*arrays))

    return build


def _numpy(formula: Callable[..., list[Array]]) -> Callable[[Any, Inputs], Callable[[], Any]]:
    return lambda peer, inputs: lambda: formula(*_parts(*inputs.values()))


def _reference(formula: Callable[..., list[Array]]) -> Callable[[Inputs], Sequence[Array]]:
    return lambda inputs: formula(*_parts(*inputs.values()))


for _name, _what, _expression, _formula in (
    ("per_sample_gradients", f"the gradients of {SAMPLES:,} samples, each by itself: vmap(grad(f))", _per_sample, _all),
    ("per_sample_norms", f"the norms of the gradients of {SAMPLES:,} samples, each by itself", _norms, _total),
    ("batch_gradient", f"one gradient of the same {SAMPLES:,} samples together", _batched, _of_batch),
):
    workload(
        name=_name,
        what=_what,
        inputs=_inputs,
        reference=_reference(_formula),
        builds={
            **dict.fromkeys(("lazyt", "torch", "torch.compile", "jax"), _build(_expression)),
            "numpy": _numpy(_formula),
        },
        rtol=1e-4,
        atol=1e-4,
    )
