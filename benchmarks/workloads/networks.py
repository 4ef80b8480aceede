"""Rows of convolutional networks: a training step, an evaluation. The networks are the callers'.

A network is written twice: `module(m, sizes)` for lazyt and PyTorch, as their users write it, and `forward(f, x,
sizes)` over layers for JAX and NumPy; the names of parameters are those of the modules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.core import Array, Inputs, Workload, seeded, workload
from benchmarks.workloads import steps
from benchmarks.workloads.mlp import softmax_gradient
from benchmarks.workloads.network_layers import JaxLayers, Sizes, moves
from benchmarks.workloads.network_numpy import NumpyLayers, Value

SGD = steps.Optimizer(rate=0.01, momentum=0.9)


@dataclass(frozen=True)
class Network:
    """A classifier of images, or of their pixels: `sizes` and `shape` of the images, in full and quick."""

    module: Callable[[Any, Any], Any]
    forward: Callable[[Any, Any, Any], Any]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    sizes: tuple[Any, Any]
    classes: tuple[int, int] = (10, 10)
    pixels: bool = False

    def measured(self, quick: bool) -> Sizes:
        """Its parameters and operations."""
        found = Sizes()
        self.forward(found, self.shapes[quick], self.sizes[quick])
        return found

    def inputs(self, quick: bool) -> Inputs:
        """Images, labels and parameters, in this order."""
        shape = self.shapes[quick]
        places = (shape[0], *shape[2:]) if self.pixels else (shape[0],)
        labels = np.random.default_rng(9).integers(0, self.classes[quick], places)
        return {"x": seeded(shape), "labels": labels, **self.measured(quick).params}

    def eval_inputs(self, quick: bool) -> Inputs:
        """Images, parameters and running statistics."""
        measured = self.measured(quick)
        return {"x": seeded(self.shapes[quick]), **measured.params, **measured.buffers}

    def chosen(self, inputs: Inputs) -> Any:
        """The sizes that these inputs were made for."""
        return self.sizes[inputs["x"].shape == self.shapes[1]]

    def flops(self, inputs: Inputs) -> float:
        """Of one pass forward."""
        return self.measured(inputs["x"].shape == self.shapes[1]).flops


def split_buffers(inputs: Inputs) -> tuple[Inputs, Inputs]:
    """Parameters, and running statistics."""
    buffers = {k: x for k, x in inputs.items() if ".running_" in k}
    return {k: x for k, x in inputs.items() if k not in buffers}, buffers


# --- training


def _loss(m: Any, model: Any, x: Any, labels: Any) -> Any:
    return m.nn.functional.cross_entropy(model(x), labels)


def _gradients(network: Network, params: Inputs, x: Array, labels: Array) -> tuple[Any, Inputs]:
    f = NumpyLayers(params)
    y = network.forward(f, Value(x), network.chosen({"x": x}))
    rows = np.moveaxis(y.data, 1, -1)
    loss, g = softmax_gradient(rows.reshape(-1, rows.shape[-1]), labels.reshape(-1))
    return loss, f.backward(y, np.moveaxis(g.reshape(rows.shape), -1, 1))


def _jax_step(network: Network, peer: Any, inputs: Inputs) -> steps.JaxStep:
    sizes = network.chosen(inputs)

    def loss(jax: Any, params: Any, buffers: Any, x: Any, labels: Any) -> Any:
        f = JaxLayers(jax, params, buffers, training=True)
        logits = jax.nn.log_softmax(network.forward(f, x, sizes))
        return -jax.numpy.take_along_axis(logits, labels[..., None], axis=-1).mean(), f.buffers

    buffers: Inputs = {}
    for k, p in inputs.items():
        if k.endswith(".weight") and p.ndim == 1:  # batch norm's
            buffers[k.replace("weight", "running_mean")] = np.zeros_like(p)
            buffers[k.replace("weight", "running_var")] = np.ones_like(p)
    params = steps.split(inputs, 2)[1]
    return steps.JaxStep(peer, inputs, loss, SGD, 2, moves(params, "x"), buffers)


def train(name: str, what: str, network: Network, **fields: Any) -> Workload:
    """A row of a training step with SGD and momentum."""
    numpy, reference = steps.numpy_builds(lambda *xs: _gradients(network, *xs), SGD, data=2)
    modules = steps.modules_builds(lambda m, inputs: network.module(m, network.chosen(inputs)), _loss, SGD, data=2)
    return workload(
        name=name,
        what=what,
        inputs=network.inputs,
        reference=reference,
        builds={**modules, "numpy": numpy, "jax": lambda peer, inputs: _jax_step(network, peer, inputs)},
        flops=lambda inputs: 3 * network.flops(inputs),
        stateful=True,
        **{"rtol": 1e-3, "atol": 1e-3, **fields},
    )


# --- evaluation


def _eval_modules(network: Network, peer: Any, inputs: Inputs) -> Callable[[], Any]:
    m = peer.module
    (x,), state = steps.split(inputs, 1)
    model = network.module(m, network.chosen(inputs))
    model.load_state_dict({**model.state_dict(), **{k: peer.array(p) for k, p in state.items()}})
    model.eval()
    images, f = peer.array(x), peer.jit(model)

    def call() -> Any:
        with m.no_grad():
            return peer.wait(f(images))

    return call


class _EvalJax:
    def __init__(self, network: Network, peer: Any, inputs: Inputs) -> None:
        self.peer, sizes = peer, network.chosen(inputs)
        state = steps.moved(inputs, moves(split_buffers(steps.split(inputs, 1)[1])[0], "x"))
        (x,), state = steps.split(state, 1)
        self.params, self.buffers = ({k: peer.array(p) for k, p in part.items()} for part in split_buffers(state))
        self.images = peer.array(x)
        self.f = peer.compile(
            lambda params, buffers, x: network.forward(JaxLayers(peer.jax, params, buffers, False), x, sizes)
        )

    def __call__(self) -> Any:
        return self.peer.wait(self.f(self.params, self.buffers, self.images))

    def results(self, returned: Any) -> list[Array]:
        """Channels first."""
        return [np.moveaxis(np.asarray(returned), -1, 1)]


def _eval_numpy(network: Network, inputs: Inputs) -> Sequence[Array]:
    (x,), state = steps.split(inputs, 1)
    return [network.forward(NumpyLayers(*split_buffers(state)), Value(x), network.chosen(inputs)).data]


def evaluate(name: str, what: str, network: Network, **fields: Any) -> Workload:
    """A row of an evaluation, without gradients."""
    return workload(
        name=name,
        what=what,
        inputs=network.eval_inputs,
        reference=lambda inputs: _eval_numpy(network, inputs),
        builds={
            **dict.fromkeys(
                ("lazyt", "torch", "torch.compile"), lambda peer, inputs: _eval_modules(network, peer, inputs)
            ),
            "numpy": lambda peer, inputs: lambda: _eval_numpy(network, inputs),
            "jax": lambda peer, inputs: _EvalJax(network, peer, inputs),
        },
        flops=network.flops,
        **{"rtol": 1e-3, "atol": 1e-3, **fields},
    )
