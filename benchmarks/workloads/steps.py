"""A training step as each library's users write it: model, loss, gradients, optimizer. The models are the callers'.

Parameters go by the names that PyTorch gives them, in its layout; a library that keeps them in another gets them
`moved` there, and `results` moves them back for the check. Each step returns the loss before it and every parameter.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.core import WARM_UP, Array, Build, Inputs


@dataclass(frozen=True)
class Optimizer:
    """Adam, with decoupled decay where `decay` is not 0; or SGD with momentum where `momentum` is not 0."""

    rate: float
    decay: float = 0.0
    momentum: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


# (to the library's layout, back to PyTorch's), by the name of a parameter or an input
Moves = dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]]


def split(inputs: Inputs, data: int) -> tuple[list[Array], Inputs]:
    """The data (the first inputs) and the parameters."""
    names = list(inputs)
    return [inputs[n] for n in names[:data]], {n: inputs[n] for n in names[data:]}


# --- NumPy, by hand


class NumpyStep:
    """`gradients(params, *data) -> loss, {name: gradient}` and the update, in the precision of the inputs."""

    def __init__(
        self, gradients: Callable[..., Any], optimizer: Optimizer, data: Sequence[Array], params: Inputs
    ) -> None:
        self.gradients, self.optimizer, self.data = gradients, optimizer, data
        self.params = {k: p.copy() for k, p in params.items()}
        self.moments = {k: (np.zeros_like(p), np.zeros_like(p)) for k, p in params.items()}
        self.steps = 0

    def __call__(self) -> list[Array]:
        loss, grads = self.gradients(self.params, *self.data)
        self.steps += 1
        for name, p in self.params.items():
            self._update(p, grads[name], *self.moments[name])
        return [np.asarray(loss), *self.params.values()]

    def _update(self, p: Array, d: Array, m: Array, v: Array) -> None:
        o = self.optimizer
        if o.momentum:
            m *= o.momentum
            m += d
            p -= o.rate * m
            return
        p *= 1 - o.rate * o.decay
        m += (1 - o.beta1) * (d - m)
        v += (1 - o.beta2) * (d * d - v)
        rate = o.rate / (1 - o.beta1**self.steps)
        p -= rate * m / (np.sqrt(v) / (1 - o.beta2**self.steps) ** 0.5 + o.eps)


def numpy_builds(
    gradients: Callable[..., Any], optimizer: Optimizer, data: int
) -> tuple[Build, Callable[[Inputs], Any]]:
    """The build for NumPy, and the reference: the step after those that are made before the times."""

    def reference(inputs: Inputs) -> Sequence[Array]:
        step = NumpyStep(gradients, optimizer, *split(inputs, data))
        for _ in range(WARM_UP):
            step()
        return step()

    return lambda peer, inputs: NumpyStep(gradients, optimizer, *split(inputs, data)), reference


# --- lazyt and PyTorch: the same text


class ModulesStep:
    """`model(m, inputs)` is a module of either library; `loss(m, model, *data)`."""

    def __init__(
        self,
        peer: Any,
        inputs: Inputs,
        model: Callable[..., Any],
        loss: Callable[..., Any],
        optimizer: Optimizer,
        data: int,
    ) -> None:
        m = peer.module
        arrays, params = split(inputs, data)
        self.peer = peer
        self.data = [peer.array(x) for x in arrays]
        self.model = model(m, inputs)
        # What is not among the parameters (the running statistics of batch norm) is as it is made.
        self.model.load_state_dict({**self.model.state_dict(), **{k: peer.array(p) for k, p in params.items()}})
        named = dict(self.model.named_parameters())
        self.params = [named[k] for k in params]
        o = optimizer
        if o.momentum:
            self.optimizer = m.optim.SGD(self.params, lr=o.rate, momentum=o.momentum)
        elif o.decay:
            self.optimizer = m.optim.AdamW(
                self.params, lr=o.rate, betas=(o.beta1, o.beta2), eps=o.eps, weight_decay=o.decay
            )
        else:
            self.optimizer = m.optim.Adam(self.params, lr=o.rate, betas=(o.beta1, o.beta2), eps=o.eps)
        self.loss = peer.compile(lambda *data: loss(m, self.model, *data))
        self.update = peer.compile(self.optimizer.step)

    def __call__(self) -> list[Any]:
        loss = self.loss(*self.data)
        loss.backward()
        self.update()
        self.optimizer.zero_grad()
        self.peer.wait(loss)
        return [loss, *self.params]


class LazytStep(ModulesStep):
    """The same, with the host's time told apart from the kernels'."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.host: list[float] = []

    def __call__(self) -> list[Any]:
        t0 = time.perf_counter()
        result = super().__call__()
        self.host.append(time.perf_counter() - t0 - self.peer.module.last_sync().run_time)
        return result

    def notes(self, unit: float) -> dict[str, Any]:
        """The median of what recording, `backward()`, the update and the look-up of the plan took."""
        return {"host": statistics.median(self.host[WARM_UP + 1 :]) * unit}


def modules_builds(
    model: Callable[..., Any], loss: Callable[..., Any], optimizer: Optimizer, data: int
) -> dict[str, Build]:
    """The builds of a model that lazyt and PyTorch share."""
    torch = lambda peer, inputs: ModulesStep(peer, inputs, model, loss, optimizer, data)
    lazyt = lambda peer, inputs: LazytStep(peer, inputs, model, loss, optimizer, data)
    return {"lazyt": lazyt, "torch": torch, "torch.compile": torch}


# --- JAX: pure functions over a dictionary of arrays


class JaxStep:
    """`loss(jax, params, *data)`; the old parameters' memory is given to the new ones.

    With `buffers` (running statistics) it is `loss(jax, params, buffers, *data)`, which returns the loss and new ones.
    """

    def __init__(
        self,
        peer: Any,
        inputs: Inputs,
        loss: Callable[..., Any],
        optimizer: Optimizer,
        data: int,
        moves: Moves,
        buffers: Inputs | None = None,
    ) -> None:
        self.peer, self.moves = peer, moves
        jax, m = peer.jax, peer.module
        arrays, params = split(moved(inputs, moves), data)
        self.data = [peer.array(x) for x in arrays]
        self.params = {k: peer.array(p) for k, p in params.items()}
        zeros = {k: m.zeros_like(p) for k, p in self.params.items()}
        self.state = (zeros, {k: m.zeros_like(p) for k, p in self.params.items()}, m.zeros((), m.float32))
        self.buffers = {k: peer.array(b) for k, b in (buffers or {}).items()}
        self.order = list(params)
        o = optimizer

        def step(params: Any, state: Any, buffers: Any, *data: Any) -> Any:
            objective = lambda p: loss(jax, p, buffers, *data) if buffers else (loss(jax, p, *data), buffers)
            (value, buffers), grads = jax.value_and_grad(objective, has_aux=True)(params)
            first, second, count = state
            if o.momentum:
                first = jax.tree.map(lambda a, g: o.momentum * a + g, first, grads)
                params = jax.tree.map(lambda p, a: p - o.rate * a, params, first)
                return value, params, (first, second, count), buffers
            count = count + 1
            first = jax.tree.map(lambda a, g: o.beta1 * a + (1 - o.beta1) * g, first, grads)
            second = jax.tree.map(lambda a, g: o.beta2 * a + (1 - o.beta2) * g * g, second, grads)
            c1, c2 = 1 - o.beta1**count, 1 - o.beta2**count

            def update(p: Any, a: Any, b: Any) -> Any:
                return p * (1 - o.rate * o.decay) - o.rate * (a / c1) / (m.sqrt(b / c2) + o.eps)

            return value, jax.tree.map(update, params, first, second), (first, second, count), buffers

        self.step = jax.jit(step, donate_argnums=(0, 1, 2))

    def __call__(self) -> Any:
        value, self.params, self.state, self.buffers = self.step(self.params, self.state, self.buffers, *self.data)
        self.peer.wait((value, self.params))
        return value, self.params

    def results(self, returned: Any) -> list[Array]:
        """The loss and the parameters, in PyTorch's order and layout."""
        value, params = returned
        return [np.asarray(value), *back({k: np.asarray(params[k]) for k in self.order}, self.moves)]


# --- MLX


class MlxStep:
    """`model(nn, inputs)` is a module, `loss(nn, model, *data)`; compiled with its state, as MLX's own examples are."""

    def __init__(
        self, peer: Any, inputs: Inputs, model: Callable[..., Any], loss: Callable[..., Any], optimizer: Optimizer,
        data: int, moves: Moves,
    ) -> None:  # fmt: skip
        self.peer, self.moves = peer, moves
        m = peer.module
        nn, optimizers, utils = (importlib.import_module(f"mlx.{n}") for n in ("nn", "optimizers", "utils"))
        arrays, params = split(moved(inputs, moves), data)
        self.data = [peer.array(x) for x in arrays]
        self.order = list(params)
        self.flatten = utils.tree_flatten
        self.model = model(nn, inputs)
        self.model.update(utils.tree_unflatten([(k, peer.array(p)) for k, p in params.items()]))
        o = optimizer
        if o.momentum:
            chosen = optimizers.SGD(o.rate, momentum=o.momentum)
        elif o.decay:
            chosen = optimizers.AdamW(o.rate, [o.beta1, o.beta2], o.eps, o.decay, bias_correction=True)
        else:
            chosen = optimizers.Adam(o.rate, [o.beta1, o.beta2], o.eps, bias_correction=True)
        m.eval(self.model.parameters())
        value_and_grad = nn.value_and_grad(self.model, lambda *data: loss(nn, self.model, *data))
        state = [self.model.state, chosen.state]

        def step(*data: Any) -> Any:
            value, grads = value_and_grad(*data)
            chosen.update(self.model, grads)
            return value

        self.state = state
        self.step = m.compile(step, inputs=state, outputs=state)

    def __call__(self) -> Any:
        value = self.step(*self.data)
        self.peer.module.eval(value, self.state)
        return value

    def results(self, returned: Any) -> list[Array]:
        """The loss and the parameters, in PyTorch's order and layout."""
        params = dict(self.flatten(self.model.parameters()))
        return [np.array(returned), *back({k: np.array(params[k]) for k in self.order}, self.moves)]


# --- tinygrad


class TinygradStep:
    """`model(tinygrad, inputs)` is an object with tensors in it, `loss(tinygrad, model, *data)`."""

    def __init__(
        self,
        peer: Any,
        inputs: Inputs,
        model: Callable[..., Any],
        loss: Callable[..., Any],
        optimizer: Optimizer,
        data: int,
    ) -> None:
        self.peer = peer
        m = peer.module
        nn = importlib.import_module("tinygrad.nn")
        state, optim = (importlib.import_module(f"tinygrad.nn.{n}") for n in ("state", "optim"))
        arrays, params = split(inputs, data)
        self.data = [peer.array(x) for x in arrays]
        self.model = model(nn, inputs)
        state.load_state_dict(self.model, {k: peer.array(p) for k, p in params.items()}, verbose=False)
        found = state.get_state_dict(self.model)
        self.params = [found[k] for k in params]
        o = optimizer
        if o.momentum:
            chosen = optim.SGD(self.params, lr=o.rate, momentum=o.momentum, classic=True)
        elif o.decay:
            chosen = optim.AdamW(self.params, lr=o.rate, b1=o.beta1, b2=o.beta2, eps=o.eps, weight_decay=o.decay)
        else:
            chosen = optim.Adam(self.params, lr=o.rate, b1=o.beta1, b2=o.beta2, eps=o.eps)

        def step(*data: Any) -> Any:
            chosen.zero_grad()
            value = loss(m, self.model, *data)
            value.backward()
            return value.realize(*chosen.schedule_step())

        self.step = m.TinyJit(step)

    def __call__(self) -> Any:
        with self.training():
            value = self.step(*self.data)
        self.peer.wait(value)
        return [value, *self.params]

    def training(self) -> Any:
        """Its optimizers insist on it."""
        return self.peer.module.Context(TRAINING=1)


def moved(inputs: Inputs, moves: Moves) -> Inputs:
    """The inputs in a library's layout."""
    same = lambda x: x
    return {k: np.ascontiguousarray(moves.get(k, (same, same))[0](x)) for k, x in inputs.items()}


def back(params: Inputs, moves: Moves) -> list[Array]:
    """Parameters in PyTorch's layout."""
    same = lambda x: x
    return [moves.get(k, (same, same))[1](p) for k, p in params.items()]


def transposed(names: Sequence[str]) -> Moves:
    """Weights of dense layers that are kept (in, out)."""
    return dict.fromkeys(names, (lambda w: w.T, lambda w: w.T))
