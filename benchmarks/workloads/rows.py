"""Reductions whose result is broadcast back over the same rows: one kernel, if it is fused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.core import Array, Inputs, everywhere, seeded, workload

EPS = 1e-5


def _softmax(m: Any, x: Any) -> Any:
    e = m.exp(x - m.max(x, axis=-1, keepdims=True))
    return e / m.sum(e, axis=-1, keepdims=True)


workload(
    name="softmax",
    what="softmax over the rows of 4,096 x 4,096 floats",
    inputs=lambda quick: {"x": seeded((64, 256) if quick else (4096, 4096))},
    reference=lambda inputs: [_softmax(np, **inputs)],
    builds=everywhere(
        lambda m, x: m.softmax(x, -1), "lazyt", "torch",
        numpy=_softmax,
        jax=_softmax,
        mlx=lambda m, x: m.softmax(x, axis=-1),
        tinygrad=lambda m, x: x.softmax(-1),
    ),
    nbytes=lambda inputs: 2 * inputs["x"].nbytes,
)  # fmt: skip


def _residual(quick: bool) -> Inputs:
    shape = (64, 256) if quick else (8192, 1024)
    return {"x": seeded(shape), "r": seeded(shape, 1), "g": seeded(shape[1:], 2), "b": seeded(shape[1:], 3)}


def _layernorm(m: Any, x: Any, r: Any, g: Any, b: Any) -> Any:
    y = x + r
    mean = m.mean(y, axis=-1, keepdims=True)
    return (y - mean) / m.sqrt(m.var(y, axis=-1, keepdims=True) + EPS) * g + b


workload(
    name="layernorm",
    what="layer norm of x + r with weight and bias over the rows of 8,192 x 1,024 floats",
    inputs=_residual,
    reference=lambda inputs: [_layernorm(np, **inputs)],
    builds=everywhere(
        _layernorm, "numpy", "jax",
        lazyt=lambda m, x, r, g, b: m.layer_norm(x + r, g.shape, g, b, EPS),
        torch=lambda m, x, r, g, b: m.nn.functional.layer_norm(x + r, g.shape, g, b, EPS),
        mlx=lambda m, x, r, g, b: m.fast.layer_norm(x + r, g, b, EPS),
        tinygrad=lambda m, x, r, g, b: (x + r).layernorm(eps=EPS) * g + b,
    ),
    nbytes=lambda inputs: 3 * inputs["x"].nbytes,
    rtol=1e-4,
    atol=1e-5,
)  # fmt: skip


# --- cross_entropy and its gradient


def _logits(quick: bool) -> Inputs:
    n, classes = (64, 128) if quick else (4096, 8192)
    return {"x": seeded((n, classes)), "labels": np.random.default_rng(1).integers(0, classes, n)}


def _reference_cross_entropy(inputs: Inputs) -> Sequence[Array]:
    return _cross_entropy_numpy(np, **inputs)


def _cross_entropy_numpy(m: Any, x: Any, labels: Any) -> list[Array]:
    rows = np.arange(len(x))
    z = x - x.max(-1, keepdims=True)
    e = np.exp(z)
    total = e.sum(-1, keepdims=True)
    loss = (np.log(total[:, 0]) - z[rows, labels]).mean()
    e /= total
    e[rows, labels] -= 1
    e /= len(x)
    return [np.asarray(loss), e]


def _cross_entropy_modules(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    """In the modules that lazyt and PyTorch both have; where the peer compiles, it compiles the loss."""
    x, labels = peer.array(inputs["x"]).requires_grad_(True), peer.array(inputs["labels"])
    f = peer.compile(peer.module.nn.functional.cross_entropy)

    def call() -> Any:
        x.grad = None
        loss = f(x, labels)
        loss.backward()
        return peer.wait((loss, x.grad))

    return call


def _cross_entropy_jax(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    jax, m = peer.jax, peer.module

    def loss(x: Any, labels: Any) -> Any:
        return -m.take_along_axis(jax.nn.log_softmax(x), labels[:, None], axis=-1).mean()

    x, labels = peer.array(inputs["x"]), peer.array(inputs["labels"])
    f = peer.compile(jax.value_and_grad(loss))
    return lambda: peer.wait(f(x, labels))


def _cross_entropy_mlx(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    m = peer.module
    nn = __import__("mlx.nn").nn
    x, labels = peer.array(inputs["x"]), peer.array(inputs["labels"])
    f = peer.compile(m.value_and_grad(lambda x, labels: nn.losses.cross_entropy(x, labels, reduction="mean")))
    return lambda: peer.wait(f(x, labels))


def _cross_entropy_tinygrad(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    def step(x: Any, labels: Any) -> Any:
        x.grad = None
        loss = x.sparse_categorical_crossentropy(labels)
        loss.backward()
        return loss, x.grad

    x = peer.array(inputs["x"])
    x.requires_grad = True
    labels = peer.array(inputs["labels"])
    f = peer.compile(step)
    return lambda: peer.wait(f(x, labels))


workload(
    name="cross_entropy",
    what="the mean cross-entropy of 4,096 rows of 8,192 logits, and its gradient",
    inputs=_logits,
    reference=_reference_cross_entropy,
    builds={
        **dict.fromkeys(("lazyt", "torch", "torch.compile"), _cross_entropy_modules),
        **everywhere(_cross_entropy_numpy, "numpy"),
        "jax": _cross_entropy_jax,
        "mlx": _cross_entropy_mlx,
        "tinygrad": _cross_entropy_tinygrad,
    },
    nbytes=lambda inputs: 2 * inputs["x"].nbytes,
    rtol=1e-4,
    atol=1e-9,
)
