"""Training steps of a small network: what the library does around the arithmetic is most of the time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.core import WARM_UP, Array, Inputs, seeded, workload

WIDTHS = (16, 32, 32, 10)
BATCH = 8
LR, BETA1, BETA2, EPS = 1e-2, 0.9, 0.999, 1e-8


def _inputs(quick: bool) -> Inputs:
    labels = np.random.default_rng(9).integers(0, WIDTHS[-1], BATCH)
    found: Inputs = {"x": seeded((BATCH, WIDTHS[0])), "labels": labels}
    for i, (n, m) in enumerate(pairwise(WIDTHS)):
        found[f"w{i}"] = seeded((m, n), i + 1, n**-0.5)
        found[f"b{i}"] = seeded((m,), i + 11, 0.1)
    return found


class Step:
    """The step by hand in NumPy, in the precision of its inputs."""

    def __init__(self, inputs: Inputs) -> None:
        self.x, self.labels, *params = (a.copy() for a in inputs.values())
        self.params = params
        self.moments = [(np.zeros_like(p), np.zeros_like(p)) for p in params]
        self.steps = 0

    def __call__(self) -> list[Array]:
        """The loss before the step, and the parameters after it."""
        values = [self.x]
        weights, biases = self.params[::2], self.params[1::2]
        for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
            y = values[-1] @ w.T + b
            values.append(np.maximum(y, 0) if i < len(weights) - 1 else y)
        z = values[-1] - values[-1].max(-1, keepdims=True)
        logp = z - np.log(np.exp(z).sum(-1, keepdims=True))
        rows = np.arange(len(self.labels))
        loss = -logp[rows, self.labels].mean()

        g = np.exp(logp)
        g[rows, self.labels] -= 1
        g /= len(rows)
        grads: list[Array] = []
        for i in reversed(range(len(weights))):
            grads[:0] = [g.T @ values[i], g.sum(0)]
            if i:
                g = (g @ weights[i]) * (values[i] > 0)

        self.steps += 1
        rate = LR * (1 - BETA2**self.steps) ** 0.5 / (1 - BETA1**self.steps)
        eps = EPS * (1 - BETA2**self.steps) ** 0.5
        for p, d, (m, v) in zip(self.params, grads, self.moments, strict=True):
            m += (1 - BETA1) * (d - m)
            v += (1 - BETA2) * (d * d - v)
            p -= rate * m / (np.sqrt(v) + eps)
        return [np.asarray(loss), *self.params]


def _reference(inputs: Inputs) -> Sequence[Array]:
    """After the calls that are made before the times."""
    step = Step(inputs)
    for _ in range(WARM_UP):
        step()
    return step()


class Modules:
    """The step in the modules and optimizers that lazyt and PyTorch both have."""

    def __init__(self, peer: Any, inputs: Inputs) -> None:
        self.peer = peer
        m = peer.module
        x, labels, *params = inputs.values()
        self.x, self.labels = peer.array(x), peer.array(labels)
        layers: list[Any] = []
        for n, k in pairwise(WIDTHS):
            layers += [m.nn.Linear(n, k), m.nn.ReLU()]
        self.model = m.nn.Sequential(*layers[:-1])
        with m.no_grad():
            for p, value in zip(self.model.parameters(), params, strict=True):
                p[...] = peer.array(value)
        self.params = list(self.model.parameters())
        self.optimizer = m.optim.Adam(self.params, lr=LR, betas=(BETA1, BETA2), eps=EPS)
        self.cross_entropy = m.nn.functional.cross_entropy
        peer.wait(self.params)

    def __call__(self) -> list[Any]:
        loss = self.cross_entropy(self.model(self.x), self.labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.peer.wait(loss)
        return [loss, *self.params]


class LazytModules(Modules):
    """The same, with the host's time told apart from the kernels'."""

    def __init__(self, peer: Any, inputs: Inputs) -> None:
        super().__init__(peer, inputs)
        self.host: list[float] = []

    def __call__(self) -> list[Any]:
        t0 = time.perf_counter()
        result = super().__call__()
        self.host.append(time.perf_counter() - t0 - self.peer.module.last_sync().run_time)
        return result

    def notes(self, unit: float) -> dict[str, Any]:
        """The median of what recording, `backward()`, the update and the look-up of the plan took."""
        return {"host": statistics.median(self.host[WARM_UP + 1 :]) * unit}


def _numpy(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    return Step(inputs)


workload(
    name="mlp_adam_host",
    what=f"a training step of a {'-'.join(map(str, WIDTHS))} network on {BATCH} rows, with Adam",
    inputs=_inputs,
    reference=_reference,
    builds={"lazyt": LazytModules, "torch": Modules, "numpy": _numpy},
    unit="us",
    scale=1e6,
    stateful=True,
    rtol=1e-3,
    atol=1e-3,
)
