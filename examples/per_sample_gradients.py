"""Train on handwritten digits when some labels are wrong: each sample's gradient is clipped by itself, as in DP-SGD.

    python examples/per_sample_gradients.py              # under a minute on two cores
    python examples/per_sample_gradients.py --quick      # a short form, for checking that all is well

`vmap(grad(loss))` gives the gradient of every sample of a batch. No sample may pull harder than the bound, so samples
with wrong labels lose their weight; with `--noise` the sum gets noise in proportion, and training is private (Abadi and
others, Deep Learning with Differential Privacy, 2016). At the end the samples with the largest gradients are listed:
mostly those that are mislabelled.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.datasets import load_digits

import lazyt as lt
from lazyt import Tensor

Params = dict[str, Tensor]


def load(wrong: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images (N, 64) in [0, 1], their labels, and which of those are wrong."""
    images, labels = load_digits(return_X_y=True)
    order = rng.permutation(len(labels))
    images, labels = (images[order] / 16).astype(np.float32), labels[order]
    bad = np.arange(len(labels)) < wrong * 1437
    shifts = rng.integers(1, 10, len(labels))
    return images, np.where(bad, (labels + shifts) % 10, labels), bad


def init(hidden: int) -> Params:
    """Two dense layers."""
    return {
        "w1": lt.random.normal(scale=64**-0.5, shape=(64, hidden)),
        "b1": lt.zeros(hidden),
        "w2": lt.random.normal(scale=hidden**-0.5, shape=(hidden, 10)),
        "b2": lt.zeros(10),
    }


def logits(p: Params, x: Tensor) -> Tensor:
    return lt.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]


def loss(p: Params, x: Tensor, label: Tensor) -> Tensor:
    """Of one sample: no axis of the batch is written anywhere."""
    return lt.nn.functional.cross_entropy(logits(p, x), label)


gradients = lt.vmap(lt.grad(loss), in_axes=(None, 0, 0))


def norms(per_sample: Params) -> Tensor:
    """The norm of each sample's gradient, over all parameters."""
    return lt.sqrt(sum((g * g).sum(tuple(range(1, g.ndim))) for g in per_sample.values()))


def step(p: Params, x: Tensor, labels: Tensor, rate: float, bound: float, noise: float) -> Params:
    """One step by the mean of the clipped gradients."""
    per_sample = gradients(p, x, labels)
    weights = lt.clip(bound / (norms(per_sample) + 1e-6), None, 1.0)
    out = {}
    for name, g in per_sample.items():
        total = lt.tensordot(weights, g, 1)
        if noise:
            total = total + lt.random.normal(scale=noise * bound, shape=total.shape)
        out[name] = p[name] - rate * total / len(x)
    return out


def accuracy(p: Params, x: np.ndarray, labels: np.ndarray) -> float:
    return float((logits(p, lt.asarray(x)).argmax(-1) == lt.asarray(labels)).mean())


def main(argv: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few steps")
    parser.add_argument("--wrong", type=float, default=0.1, help="the share of labels that are wrong")
    parser.add_argument("--bound", type=float, default=0.5, help="the norm that gradients are clipped to")
    parser.add_argument("--noise", type=float, default=0.0, help="of the sum, in bounds: above 0 training is private")
    options = parser.parse_args(argv)
    rng = np.random.default_rng(0)
    lt.random.seed(0)
    images, labels, bad = load(options.wrong, rng)
    x, y, x_test, y_test = images[:1437], labels[:1437], images[1437:], labels[1437:]
    epochs, batch = (3, 120) if options.quick else (40, 120)
    p = init(64)
    start = time.perf_counter()
    for epoch in range(epochs):
        order = rng.permutation(len(x))[: len(x) // batch * batch].reshape(-1, batch)
        for part in order:
            p = step(p, lt.asarray(x[part]), lt.asarray(y[part]), 4.0, options.bound, options.noise)
            lt.sync()
        if epoch % 5 == 4 or epoch == epochs - 1:
            seconds = time.perf_counter() - start
            print(f"epoch {epoch + 1:3}  unseen digits right: {accuracy(p, x_test, y_test):.1%}  {seconds:5.1f} s")
    largest = np.argsort(-norms(gradients(p, lt.asarray(x), lt.asarray(y))).numpy())[: int(bad.sum())]
    found = float(bad[largest].mean()) if len(largest) else 1.0
    print(f"of the {len(largest)} samples with the largest gradients, {found:.0%} have a wrong label")
    return accuracy(p, x_test, y_test)


if __name__ == "__main__":
    main()
