"""A training step of a recurrent network: 64 turns, each waiting for the last."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.core import Array, Inputs, seeded, workload
from benchmarks.workloads import steps
from benchmarks.workloads.mlp import softmax_gradient

ADAM = steps.Optimizer(rate=1e-3)


def _inputs(quick: bool) -> Inputs:
    time, batch, inputs, hidden, classes = (4, 3, 5, 6, 3) if quick else (64, 32, 128, 128, 10)
    found: Inputs = {
        "x": seeded((time, batch, inputs)),
        "labels": np.random.default_rng(9).integers(0, classes, batch),
    }
    scale = hidden**-0.5 / 3**0.5  # the spread of PyTorch's initial values
    found["lstm.weight_ih_l0"] = seeded((4 * hidden, inputs), 1, scale)
    found["lstm.weight_hh_l0"] = seeded((4 * hidden, hidden), 2, scale)
    found["lstm.bias_ih_l0"], found["lstm.bias_hh_l0"] = (seeded((4 * hidden,), k, scale) for k in (3, 4))
    found["head.weight"], found["head.bias"] = seeded((classes, hidden), 5, scale), seeded((classes,), 6, scale)
    return found


def _model(m: Any, inputs: Inputs) -> Any:
    rows, features = inputs["lstm.weight_ih_l0"].shape

    class Last(m.nn.Module):
        """The classes of sequences, from the last output."""

        def __init__(self) -> None:
            super().__init__()
            self.lstm = m.nn.LSTM(features, rows // 4)
            self.head = m.nn.Linear(rows // 4, len(inputs["head.weight"]))

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][-1])

    return Last()


def _loss(m: Any, model: Any, x: Any, labels: Any) -> Any:
    return m.nn.functional.cross_entropy(model(x), labels)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _gradients(params: Inputs, x: Array, labels: Array) -> tuple[Any, Inputs]:
    """The loss and its gradients by hand: turn by turn there and back, weights once for all turns."""
    w, u = params["lstm.weight_ih_l0"], params["lstm.weight_hh_l0"]
    shares = x @ w.T + (params["lstm.bias_ih_l0"] + params["lstm.bias_hh_l0"])
    h = c = np.zeros((x.shape[1], u.shape[1]), x.dtype)
    hs, turns = [h], []
    for share in shares:
        zi, zf, zg, zo = np.split(share + h @ u.T, 4, axis=1)
        i, f, g, o, old = _sigmoid(zi), _sigmoid(zf), np.tanh(zg), _sigmoid(zo), c
        c = f * old + i * g
        t = np.tanh(c)
        h = o * t
        hs.append(h)
        turns.append((i, f, g, o, old, t))
    loss, d = softmax_gradient(h @ params["head.weight"].T + params["head.bias"], labels)
    grads: Inputs = {"head.weight": d.T @ h, "head.bias": d.sum(0)}
    dh, dc, found = d @ params["head.weight"], np.zeros_like(c), []
    for i, f, g, o, old, t in reversed(turns):
        dc = dc + dh * o * (1 - t * t)
        z = np.concatenate(
            [dc * g * i * (1 - i), dc * old * f * (1 - f), dc * i * (1 - g * g), dh * t * o * (1 - o)], axis=1
        )
        found.append(z)
        dh, dc = z @ u, dc * f
    dz = np.concatenate(found[::-1])
    grads["lstm.weight_ih_l0"] = dz.T @ x.reshape(len(dz), -1)
    grads["lstm.weight_hh_l0"] = dz.T @ np.concatenate(hs[:-1])
    grads["lstm.bias_ih_l0"] = grads["lstm.bias_hh_l0"] = dz.sum(0)
    return loss, grads


def _flops(inputs: Inputs) -> float:
    """Three products of each weight's size a turn: forward, for the state and for the weight."""
    time, batch, _ = inputs["x"].shape
    return 6 * time * batch * (inputs["lstm.weight_ih_l0"].size + inputs["lstm.weight_hh_l0"].size)


_numpy, _reference = steps.numpy_builds(_gradients, ADAM, data=2)
workload(
    name="lstm_train_step",
    what="a training step of an LSTM (64 steps, batch 32, 128 features in and inside), with Adam",
    inputs=_inputs,
    reference=_reference,
    builds={**steps.modules_builds(_model, _loss, ADAM, data=2), "numpy": _numpy},
    flops=_flops,
    stateful=True,
    rtol=1e-3,
    atol=1e-4,
    outside=0.01,  # Adam's first steps have the size of the rate whatever the gradient's, also where it is rounding
)
