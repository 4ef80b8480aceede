"""Calls of a policy: one observation in, one action out as a number of Python, as a simulation asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.core import Array, Inputs, seeded, workload
from benchmarks.workloads import steps

CALLS = 10  # observations a call of the workload, one after another


def _inputs(quick: bool) -> Inputs:
    return {
        "observations": seeded((CALLS, 1, 4), 0),
        "0.weight": seeded((64, 4), 1), "0.bias": seeded((64,), 2, 0.1),
        "2.weight": seeded((2, 64), 3, 0.3), "2.bias": seeded((2,), 4, 0.1),
    }  # fmt: skip


def _modules(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    m = peer.module
    (observations,), params = steps.split(inputs, 1)
    model = m.nn.Sequential(m.nn.Linear(4, 64), m.nn.Tanh(), m.nn.Linear(64, 2))
    model.load_state_dict({k: peer.array(p) for k, p in params.items()})
    f = peer.jit(model)

    def act(observation: Array) -> int:
        with m.no_grad():
            return f(m.asarray(observation)).argmax().item()

    return _Actions(peer, act, observations)


def _jax(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    m = peer.module
    (observations,), params = steps.split(inputs, 1)
    w1, b1, w2, b2 = map(peer.array, params.values())
    f = peer.compile(lambda x, w1, b1, w2, b2: m.argmax(m.tanh(x @ w1.T + b1) @ w2.T + b2))
    return _Actions(peer, lambda observation: f(observation, w1, b1, w2, b2).item(), observations)


def _numpy(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    (observations,), params = steps.split(inputs, 1)
    w1, b1, w2, b2 = params.values()
    return _Actions(peer, lambda x: (np.tanh(x @ w1.T + b1) @ w2.T + b2).argmax().item(), observations)


class _Actions:
    def __init__(self, peer: Any, act: Callable[[Array], int], observations: Array) -> None:
        self.peer, self.act, self.observations = peer, act, observations

    def __call__(self) -> list[int]:
        return [self.act(x) for x in self.observations]

    def results(self, returned: Sequence[int]) -> list[Any]:
        """All actions, in an array of the library's."""
        return [self.peer.array(np.array(returned))]


workload(
    name="policy_call",
    what="an action of a policy (4-64-2, tanh) for one observation, as a Python number",
    inputs=_inputs,
    reference=lambda inputs: [np.array(_numpy(None, inputs)())],
    builds={**dict.fromkeys(("lazyt", "torch", "torch.compile"), _modules), "jax": _jax, "numpy": _numpy},
    unit="us",
    scale=1e6,
    per=lambda inputs: CALLS,
)
