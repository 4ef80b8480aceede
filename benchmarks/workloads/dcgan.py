"""A step of a generative adversarial network of convolutions: the discriminator's on real and made images, then the
generator's through it. The generator is transposed convolutions, as layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.core import WARM_UP, Array, Inputs, seeded, workload
from benchmarks.workloads import steps
from benchmarks.workloads.network_layers import JaxLayers, Sizes, moves
from benchmarks.workloads.network_numpy import NumpyLayers, Value

ADAM = steps.Optimizer(rate=2e-4, beta1=0.5)
SLOPE = 0.2
NETWORKS = ("generator", "discriminator")


def _layers(latent: int, width: int) -> list[tuple[int, int, int, int]]:
    """(channels in, out, stride, padding) of the generator's: 1 x 1 to 32 x 32, or to 8 x 8."""
    sizes = [4 * width, 2 * width, width] if width > 4 else [width]
    return [(latent, sizes[0], 1, 0), *((n, m, 2, 1) for n, m in zip(sizes, [*sizes[1:], 3], strict=True))]


def _module(m: Any, latent: int, width: int) -> Any:
    nn = m.nn
    layers = _layers(latent, width)
    made: list[Any] = []
    for i, (n, out, stride, padding) in enumerate(layers):
        last = i == len(layers) - 1
        made.append(nn.ConvTranspose2d(n, out, 4, stride=stride, padding=padding, bias=last))
        made += [nn.Tanh()] if last else [nn.BatchNorm2d(out), nn.ReLU()]
    judged: list[Any] = []
    for i, (out, n, stride, padding) in enumerate(reversed(layers)):
        last = i == len(layers) - 1
        judged.append(nn.Conv2d(n, 1 if last else out, 4, stride=stride, padding=padding, bias=last or not i))
        if not last:
            judged += [nn.LeakyReLU(SLOPE)] if not i else [nn.BatchNorm2d(out), nn.LeakyReLU(SLOPE)]

    class DCGAN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.generator, self.discriminator = nn.Sequential(*made), nn.Sequential(*judged)

    return DCGAN()


def _generate(f: Any, z: Any, latent: int, width: int) -> Any:
    layers = _layers(latent, width)
    for i, (_, out, stride, padding) in enumerate(layers):
        last = i == len(layers) - 1
        z = f.conv_transposed(z, f"generator.{3 * i}", out, 4, stride, padding, bias=last)
        z = f.tanh(z) if last else f.relu(f.norm(z, f"generator.{3 * i + 1}"))
    return z


def _judge(f: Any, x: Any, latent: int, width: int) -> Any:
    layers, at = _layers(latent, width), 0
    for i, (out, _, stride, padding) in enumerate(reversed(layers)):
        last = i == len(layers) - 1
        x = f.conv(x, f"discriminator.{at}", 1 if last else out, 4, stride, padding, bias=last or not i)
        if i and not last:
            x = f.norm(x, f"discriminator.{at + 1}")
        x, at = x if last else f.relu(x, SLOPE), at + (3 if i else 2)
    return x


def _inputs(quick: bool) -> Inputs:
    batch, latent, width, size = (4, 5, 4, 8) if quick else (64, 64, 32, 32)
    found = Sizes()
    _generate(found, (batch, latent, 1, 1), latent, width)
    _judge(found, (batch, 3, size, size), latent, width)
    return {"real": seeded((batch, 3, size, size), 3, 0.5), "noise": seeded((batch, latent, 1, 1), 4), **found.params}


def _sizes(inputs: Inputs) -> tuple[int, int]:
    """(latent, width)"""
    return inputs["generator.0.weight"].shape[0], inputs["discriminator.0.weight"].shape[0]


def _part(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {k: x for k, x in values.items() if k.startswith(name)}


# --- NumPy


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


class _NumpyStep:
    """Two updates, by gradients of binary cross-entropy with logits: its slope is sigmoid - label."""

    def __init__(self, inputs: Inputs) -> None:
        (self.real, self.noise), params = steps.split(inputs, 2)
        self.sizes = _sizes(params)
        self.updates = {n: steps.NumpyStep(self._gradients, ADAM, (n,), _part(params, n)) for n in NETWORKS}
        self.losses: list[Any] = []

    def __call__(self) -> list[Array]:
        made, _ = self._made()
        self.images = made.data
        found = {n: self.updates[n]() for n in reversed(NETWORKS)}
        return [found["discriminator"][0], found["generator"][0], *found["generator"][1:], *found["discriminator"][1:]]

    def _made(self) -> tuple[Value, NumpyLayers]:
        f = NumpyLayers(self.updates["generator"].params)
        return _generate(f, Value(self.noise), *self.sizes), f

    def _gradients(self, params: Inputs, name: str) -> tuple[Any, Inputs]:
        if name == "discriminator":
            f, loss = NumpyLayers(params), 0.0
            for x, sign in ((self.real, -1), (self.images, 1)):
                y = _judge(f, Value(x), *self.sizes)
                f.backward(y, sign / (1 + np.exp(-sign * y.data)) / y.data.size)
                loss = loss + _softplus(sign * y.data).mean()
            return loss, f.grads
        made, f = self._made()
        judge, seen = NumpyLayers(self.updates["discriminator"].params), Value(made.data)
        y = _judge(judge, seen, *self.sizes)
        judge.backward(y, -1 / (1 + np.exp(y.data)) / y.data.size)
        return _softplus(-y.data).mean(), f.backward(made, seen.grad)


def _reference(inputs: Inputs) -> Sequence[Array]:
    step = _NumpyStep(inputs)
    for _ in range(WARM_UP):
        step()
    return step()


# --- lazyt and PyTorch


def _modules(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    m = peer.module
    (real, noise), params = steps.split(inputs, 2)
    model = _module(m, *_sizes(params))
    model.load_state_dict({**model.state_dict(), **{k: peer.array(p) for k, p in params.items()}})
    named = dict(model.named_parameters())
    of_g, of_d = (
        m.optim.Adam(net.parameters(), lr=ADAM.rate, betas=(ADAM.beta1, ADAM.beta2))
        for net in (model.generator, model.discriminator)
    )
    bce = m.nn.functional.binary_cross_entropy_with_logits
    ones, zeros = (peer.array(np.full((len(real), 1, 1, 1), k, np.float32)) for k in (1, 0))
    x, z = peer.array(real), peer.array(noise)
    generator, discriminator = peer.compile(model.generator), peer.compile(model.discriminator)

    def call() -> Any:
        made = generator(z)
        of_d.zero_grad()
        loss_d = bce(discriminator(x), ones) + bce(discriminator(made.detach()), zeros)
        loss_d.backward()
        of_d.step()
        of_g.zero_grad()
        loss_g = bce(discriminator(made), ones)
        loss_g.backward()
        of_g.step()
        peer.wait(loss_g)
        return [loss_d, loss_g, *(named[k] for k in params)]

    return call


# --- JAX


class _JaxStep:
    """One compiled function of both updates."""

    def __init__(self, peer: Any, inputs: Inputs) -> None:
        self.peer, jax, m = peer, peer.jax, peer.module
        data_and_params = steps.split(inputs, 2)[1]
        self.moves, sizes = moves(data_and_params, "real", "noise"), _sizes(data_and_params)
        (real, noise), params = steps.split(steps.moved(inputs, self.moves), 2)
        self.data, self.order = (peer.array(real), peer.array(noise)), list(params)
        self.params = {n: {k: peer.array(p) for k, p in _part(params, n).items()} for n in NETWORKS}
        buffers = {}
        for k, p in data_and_params.items():
            if k.endswith(".weight") and p.ndim == 1:
                buffers[k.replace("weight", "running_mean")] = m.zeros(p.shape)
                buffers[k.replace("weight", "running_var")] = m.ones(p.shape)
        zeros = lambda: {n: {k: m.zeros_like(p) for k, p in self.params[n].items()} for n in NETWORKS}
        self.state = (zeros(), zeros(), m.zeros((), m.float32), buffers)

        def adam(p: Any, g: Any, a: Any, b: Any, count: Any) -> tuple[Any, Any, Any]:
            a = jax.tree.map(lambda a, g: ADAM.beta1 * a + (1 - ADAM.beta1) * g, a, g)
            b = jax.tree.map(lambda b, g: ADAM.beta2 * b + (1 - ADAM.beta2) * g * g, b, g)
            c1, c2 = 1 - ADAM.beta1**count, 1 - ADAM.beta2**count
            update = lambda p, a, b: p - ADAM.rate * (a / c1) / (m.sqrt(b / c2) + ADAM.eps)
            return jax.tree.map(update, p, a, b), a, b

        def generate(params: Any, buffers: Any, z: Any) -> Any:
            f = JaxLayers(jax, params, buffers, True)
            return _generate(f, z, *sizes), f.buffers

        def judge(params: Any, buffers: Any, x: Any) -> Any:
            f = JaxLayers(jax, params, buffers, True)
            return _judge(f, x, *sizes), f.buffers

        def loss_d(params: Any, buffers: Any, x: Any, made: Any) -> Any:
            real, buffers = judge(params, buffers, x)
            fake, buffers = judge(params, buffers, made)
            return jax.nn.softplus(-real).mean() + jax.nn.softplus(fake).mean(), buffers

        def loss_g(params: Any, of_d: Any, buffers: Any, z: Any) -> Any:
            made, buffers = generate(params, buffers, z)
            y, buffers = judge(of_d, buffers, made)
            return jax.nn.softplus(-y).mean(), buffers

        def step(params: Any, state: Any, x: Any, z: Any) -> Any:
            a, b, count, buffers = state
            count, made = count + 1, generate(params["generator"], buffers, z)[0]
            (d, buffers), grads = jax.value_and_grad(loss_d, has_aux=True)(params["discriminator"], buffers, x, made)
            new_d = adam(params["discriminator"], grads, a["discriminator"], b["discriminator"], count)
            (g, buffers), grads = jax.value_and_grad(loss_g, has_aux=True)(params["generator"], new_d[0], buffers, z)
            new_g = adam(params["generator"], grads, a["generator"], b["generator"], count)
            params, a, b = (dict(zip(NETWORKS, both, strict=True)) for both in zip(new_g, new_d, strict=True))
            return (d, g), params, (a, b, count, buffers)

        self.step = jax.jit(step, donate_argnums=(0, 1))

    def __call__(self) -> Any:
        losses, self.params, self.state = self.step(self.params, self.state, *self.data)
        self.peer.wait((losses, self.params))
        return losses, self.params

    def results(self, returned: Any) -> list[Array]:
        """The losses and the parameters, in PyTorch's order and layout."""
        losses, params = returned
        flat = params["generator"] | params["discriminator"]
        found = {k: np.asarray(flat[k]) for k in self.order}
        return [*map(np.asarray, losses), *steps.back(found, self.moves)]


def _flops(inputs: Inputs) -> float:
    """Forward and twice backward; but nobody needs the generator's gradients in the discriminator's step."""
    latent, width = _sizes(inputs)
    g, d = Sizes(), Sizes()
    _generate(g, inputs["noise"].shape, latent, width)
    _judge(d, inputs["real"].shape, latent, width)
    return 3 * g.flops + 8 * d.flops


workload(
    name="dcgan_step",
    what="a step of a DCGAN on 64 images of 32 x 32: discriminator and generator, with Adam",
    inputs=_inputs,
    reference=_reference,
    builds={
        **dict.fromkeys(("lazyt", "torch", "torch.compile"), _modules),
        "numpy": lambda peer, inputs: _NumpyStep(inputs),
        "jax": _JaxStep,
    },
    flops=_flops,
    stateful=True,
    rtol=1e-3,
    atol=1e-4,
    outside=0.02,  # Adam's first steps have the size of the rate whatever the gradient's, also where it is rounding
)
