"""A training step of a variational autoencoder: small products, many elementwise operations, two losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.core import Array, Inputs, seeded, workload
from benchmarks.workloads import steps

ADAM = steps.Optimizer(rate=1e-3)
LAYERS = ("encoder.0", "encoder.2", "decoder.0", "decoder.2")


def _inputs(quick: bool) -> Inputs:
    batch, pixels, hidden, latent = (8, 12, 10, 3) if quick else (128, 784, 400, 20)
    # NOTE: the noise is data, so that every library draws the same.
    found: Inputs = {
        "x": np.random.default_rng(9).random((batch, pixels), np.float32),
        "noise": seeded((batch, latent)),
    }
    sizes = ((pixels, hidden), (hidden, 2 * latent), (latent, hidden), (hidden, pixels))
    for i, (name, (n, m)) in enumerate(zip(LAYERS, sizes, strict=True)):
        found[f"{name}.weight"], found[f"{name}.bias"] = seeded((m, n), i + 1, n**-0.5), seeded((m,), i + 11, 0.1)
    return found


# --- NumPy, by hand


def _gradients(params: Inputs, x: Array, noise: Array) -> tuple[Any, Inputs]:
    """The loss and its gradients."""
    dense = lambda y, name: y @ params[f"{name}.weight"].T + params[f"{name}.bias"]
    n, latent = noise.shape
    a = np.maximum(dense(x, LAYERS[0]), 0)
    code = dense(a, LAYERS[1])
    mean, log_variance = code[:, :latent], code[:, latent:]
    spread = np.exp(log_variance / 2)
    z = mean + spread * noise
    b = np.maximum(dense(z, LAYERS[2]), 0)
    logits = dense(b, LAYERS[3])
    missed = (np.maximum(logits, 0) - logits * x + np.log1p(np.exp(-abs(logits)))).sum()
    far = -0.5 * (1 + log_variance - mean**2 - spread**2).sum()

    grads: Inputs = {}

    def back(g: Array, y: Array, name: str) -> Array:
        grads[f"{name}.weight"], grads[f"{name}.bias"] = g.T @ y, g.sum(0)
        return g @ params[f"{name}.weight"]

    g = back((1 / (1 + np.exp(-logits)) - x) / n, b, LAYERS[3]) * (b > 0)
    g = back(g, z, LAYERS[2])
    by_code = np.concatenate([g + mean / n, g * noise * spread / 2 + (spread**2 - 1) / (2 * n)], axis=1)
    back(back(by_code, a, LAYERS[1]) * (a > 0), x, LAYERS[0])
    return (missed + far) / n, grads


# --- the others


def _model(m: Any, inputs: Inputs) -> Any:
    nn = m.nn
    (hidden, pixels), latent = inputs["encoder.0.weight"].shape, inputs["noise"].shape[1]

    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent))
            self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, pixels))

        def forward(self, x: Any, noise: Any) -> Any:
            code = self.encoder(x)
            mean, log_variance = code[:, :latent], code[:, latent:]
            return self.decoder(mean + m.exp(log_variance / 2) * noise), mean, log_variance

    return VAE()


def _loss(m: Any, model: Any, x: Any, noise: Any) -> Any:
    logits, mean, log_variance = model(x, noise)
    missed = m.nn.functional.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    far = -0.5 * (1 + log_variance - mean**2 - m.exp(log_variance)).sum()
    return (missed + far) / x.shape[0]


def _loss_jax(jax: Any, params: Any, x: Any, noise: Any) -> Any:
    m = jax.numpy
    dense = lambda y, name: y @ params[f"{name}.weight"] + params[f"{name}.bias"]
    code = dense(jax.nn.relu(dense(x, LAYERS[0])), LAYERS[1])
    mean, log_variance = m.split(code, 2, axis=1)
    z = mean + m.exp(log_variance / 2) * noise
    logits = dense(jax.nn.relu(dense(z, LAYERS[2])), LAYERS[3])
    missed = (m.maximum(logits, 0) - logits * x + m.log1p(m.exp(-abs(logits)))).sum()
    far = -0.5 * (1 + log_variance - mean**2 - m.exp(log_variance)).sum()
    return (missed + far) / x.shape[0]


def _flops(inputs: Inputs) -> float:
    """Two products backward for each forward."""
    return 6 * len(inputs["x"]) * sum(w.size for k, w in inputs.items() if k.endswith("weight"))


_numpy, _reference = steps.numpy_builds(_gradients, ADAM, data=2)
_kernels = steps.transposed([f"{name}.weight" for name in LAYERS])
workload(
    name="vae_train_step",
    what="a training step of a variational autoencoder (784-400-20-400-784, 128 rows), with Adam",
    inputs=_inputs,
    reference=_reference,
    builds={
        **steps.modules_builds(_model, _loss, ADAM, data=2),
        "numpy": _numpy,
        "jax": lambda peer, inputs: steps.JaxStep(peer, inputs, _loss_jax, ADAM, 2, _kernels),
    },
    flops=_flops,
    stateful=True,
    rtol=1e-3,
    atol=1e-4,
    outside=0.05,  # Adam's first steps have the size of the rate whatever the gradient's, also where it is rounding
)
