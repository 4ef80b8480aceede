"""A training step of a dense network: what a library does around the arithmetic counts as much as the arithmetic."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.core import Array, Inputs, seeded, workload
from benchmarks.workloads import steps

WIDTHS = (784, 512, 512, 10)
ADAM = steps.Optimizer(rate=1e-3)


def _widths(inputs: Inputs) -> list[int]:
    """From the weights, which --quick makes smaller."""
    weights = [inputs[f"{2 * i}.weight"] for i in range(3)]
    return [weights[0].shape[1], *(len(w) for w in weights)]


def _inputs(quick: bool) -> Inputs:
    widths, batch = ((20, 16, 16, 10), 8) if quick else (WIDTHS, 128)
    labels = np.random.default_rng(9).integers(0, widths[-1], batch)
    found: Inputs = {"x": seeded((batch, widths[0])), "labels": labels}
    for i, (n, m) in enumerate(pairwise(widths)):
        found[f"{2 * i}.weight"] = seeded((m, n), i + 1, n**-0.5)
        found[f"{2 * i}.bias"] = seeded((m,), i + 11, 0.1)
    return found


def softmax_gradient(logits: Array, labels: Array) -> tuple[Any, Array]:
    """The mean cross-entropy of rows of logits, and its gradient."""
    rows = np.arange(len(labels))
    z = logits - logits.max(-1, keepdims=True)
    e = np.exp(z)
    total = e.sum(-1, keepdims=True)
    loss = (np.log(total[:, 0]) - z[rows, labels]).mean()
    e /= total
    e[rows, labels] -= 1
    e /= len(rows)
    return loss, e


def _gradients(params: Inputs, x: Array, labels: Array) -> tuple[Any, Inputs]:
    """The loss and its gradients by hand."""
    values = [x]
    layers = [(params[f"{2 * i}.weight"], params[f"{2 * i}.bias"]) for i in range(3)]
    for i, (w, b) in enumerate(layers):
        y = values[-1] @ w.T + b
        values.append(np.maximum(y, 0) if i < 2 else y)
    loss, g = softmax_gradient(values[-1], labels)
    grads: Inputs = {}
    for i in (2, 1, 0):
        grads[f"{2 * i}.weight"], grads[f"{2 * i}.bias"] = g.T @ values[i], g.sum(0)
        if i:
            g = (g @ layers[i][0]) * (values[i] > 0)
    return loss, grads


def _model(m: Any, inputs: Inputs) -> Any:
    a, b, c, d = _widths(inputs)
    nn = m.nn
    return nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, c), nn.ReLU(), nn.Linear(c, d))


def _loss(m: Any, model: Any, x: Any, labels: Any) -> Any:
    return m.nn.functional.cross_entropy(model(x), labels)


def _loss_jax(jax: Any, params: Any, x: Any, labels: Any) -> Any:
    for i in range(3):
        x = x @ params[f"{2 * i}.weight"] + params[f"{2 * i}.bias"]
        x = jax.nn.relu(x) if i < 2 else x
    return -jax.numpy.take_along_axis(jax.nn.log_softmax(x), labels[:, None], axis=-1).mean()


def _model_mlx(nn: Any, inputs: Inputs) -> Any:
    a, b, c, d = _widths(inputs)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.Linear(a, b), nn.Linear(b, c), nn.Linear(c, d)]

        def __call__(self, x: Any) -> Any:
            x = nn.relu(self.layers[0](x))
            return self.layers[2](nn.relu(self.layers[1](x)))

    return Network()


def _loss_mlx(nn: Any, model: Any, x: Any, labels: Any) -> Any:
    return nn.losses.cross_entropy(model(x), labels, reduction="mean")


class _ModelTinygrad:
    def __init__(self, nn: Any, inputs: Inputs) -> None:
        a, b, c, d = _widths(inputs)
        self.l0, self.l1, self.l2 = nn.Linear(a, b), nn.Linear(b, c), nn.Linear(c, d)

    def __call__(self, x: Any) -> Any:
        return self.l2(self.l1(self.l0(x).relu()).relu())


def _loss_tinygrad(m: Any, model: Any, x: Any, labels: Any) -> Any:
    return model(x).sparse_categorical_crossentropy(labels)


def _renamed(inputs: Inputs, form: str) -> Inputs:
    """Parameters under the names that another library's module gives them."""
    names = {f"{2 * i}.{kind}": form.format(i) + "." + kind for i in range(3) for kind in ("weight", "bias")}
    return {names.get(k, k): x for k, x in inputs.items()}


def _flops(inputs: Inputs) -> float:
    """Two products backward for each forward; each multiplies and adds."""
    return 6 * len(inputs["x"]) * sum(w.size for k, w in inputs.items() if k.endswith("weight"))


_numpy, _reference = steps.numpy_builds(_gradients, ADAM, data=2)
_kernels = steps.transposed([f"{2 * i}.weight" for i in range(3)])

workload(
    name="mlp_train_step",
    what=f"a training step of a {'-'.join(map(str, WIDTHS))} network on 128 rows, with Adam",
    inputs=_inputs,
    reference=_reference,
    builds={
        **steps.modules_builds(_model, _loss, ADAM, data=2),
        "numpy": _numpy,
        "jax": lambda peer, inputs: steps.JaxStep(peer, inputs, _loss_jax, ADAM, 2, _kernels),
        "mlx": lambda peer, inputs: steps.MlxStep(
            peer, _renamed(inputs, "layers.{}"), lambda nn, _: _model_mlx(nn, inputs), _loss_mlx, ADAM, 2, {}
        ),
        "tinygrad": lambda peer, inputs: steps.TinygradStep(
            peer, _renamed(inputs, "l{}"), lambda nn, _: _ModelTinygrad(nn, inputs), _loss_tinygrad, ADAM, 2
        ),
    },
    flops=_flops,
    stateful=True,
    rtol=1e-3,
    atol=1e-4,
    outside=0.05,  # Adam's first steps have the size of the rate whatever the gradient's, also where it is rounding
)
