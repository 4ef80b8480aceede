"""The same networks in JAX, as its users write them (channels last), and by their shapes alone."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from benchmarks.core import Inputs, seeded
from benchmarks.workloads import steps
from benchmarks.workloads.network_numpy import EPS

MOMENTUM = 0.1  # of running statistics
Shape = tuple[int, ...]


class Sizes:
    """Values are shapes (N, C, H, W); what is found are the parameters, the buffers and the operations forward."""

    def __init__(self) -> None:
        self.params: Inputs = {}
        self.buffers: Inputs = {}
        self.flops = 0

    def conv(
        self, x: Shape, name: str, out: int, kernel: int, stride: int = 1, padding: int = 0, groups: int = 1,
        bias: bool = False,
    ) -> Shape:  # fmt: skip
        size = [(n + 2 * padding - kernel) // stride + 1 for n in x[2:]]
        self._weights(name, (out, x[1] // groups, kernel, kernel), x[1] // groups * kernel**2, out if bias else 0)
        self.flops += 2 * x[0] * prod(size) * self.params[f"{name}.weight"].size
        return (x[0], out, *size)

    def conv_transposed(
        self, x: Shape, name: str, out: int, kernel: int, stride: int = 1, padding: int = 0, bias: bool = False
    ) -> Shape:
        self._weights(name, (x[1], out, kernel, kernel), x[1] * kernel**2 // stride**2, out if bias else 0)
        self.flops += 2 * x[0] * prod(x[2:]) * self.params[f"{name}.weight"].size
        return (x[0], out, *((n - 1) * stride + kernel - 2 * padding for n in x[2:]))

    def norm(self, x: Shape, name: str) -> Shape:
        self.params[f"{name}.weight"], self.params[f"{name}.bias"] = (
            seeded((x[1],), len(self.params) + k, 0.1) + np.float32(1 - k) for k in (0, 1)
        )
        self.buffers[f"{name}.running_mean"] = seeded((x[1],), len(self.params), 0.1)
        self.buffers[f"{name}.running_var"] = 1 + np.square(seeded((x[1],), len(self.params) + 1, 0.5))
        return x

    def relu(self, x: Shape, slope: float = 0.0) -> Shape:
        return x

    def tanh(self, x: Shape) -> Shape:
        return x

    def max_pool(self, x: Shape, kernel: int, stride: int, padding: int = 0) -> Shape:
        return (*x[:2], *((n + 2 * padding - kernel) // stride + 1 for n in x[2:]))

    def mean(self, x: Shape) -> Shape:
        return x[:2]

    def linear(self, x: Shape, name: str, out: int) -> Shape:
        self._weights(name, (out, x[1]), x[1], out)
        self.flops += 2 * x[0] * out * x[1]
        return (x[0], out)

    def add(self, x: Shape, y: Shape) -> Shape:
        assert x == y, f"{x} and {y} are added"
        return x

    def join(self, x: Shape, y: Shape) -> Shape:
        return (x[0], x[1] + y[1], *x[2:])

    def _weights(self, name: str, shape: Shape, inputs: int, biases: int) -> None:
        self.params[f"{name}.weight"] = seeded(shape, len(self.params), (2 / inputs) ** 0.5)
        if biases:
            self.params[f"{name}.bias"] = seeded((biases,), len(self.params), 0.1)


class JaxLayers:
    """Images are (N, H, W, C), filters (H, W, in, out). In training `buffers` become the new running statistics."""

    def __init__(self, jax: Any, params: Any, buffers: Any, training: bool) -> None:
        self.jax, self.params, self.training = jax, params, training
        self.buffers = dict(buffers)

    def conv(
        self, x: Any, name: str, out: int, kernel: int, stride: int = 1, padding: int = 0, groups: int = 1,
        bias: bool = False,
    ) -> Any:  # fmt: skip
        y = self.jax.lax.conv_general_dilated(
            x, self.params[f"{name}.weight"], (stride, stride), ((padding, padding),) * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups,
        )  # fmt: skip
        return y + self.params[f"{name}.bias"] if bias else y

    def conv_transposed(
        self, x: Any, name: str, out: int, kernel: int, stride: int = 1, padding: int = 0, bias: bool = False
    ) -> Any:
        left = kernel - 1 - padding
        y = self.jax.lax.conv_transpose(
            x, self.params[f"{name}.weight"], (stride, stride), ((left, left),) * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"), transpose_kernel=True,
        )  # fmt: skip
        return y + self.params[f"{name}.bias"] if bias else y

    def norm(self, x: Any, name: str) -> Any:
        names = [f"{name}.running_{k}" for k in ("mean", "var")]
        mean, var = (self.buffers[k] for k in names)
        if self.training:
            mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
            n = x.shape[0] * x.shape[1] * x.shape[2]
            for k, v in zip(names, (mean, var * (n / (n - 1))), strict=True):
                self.buffers[k] = (1 - MOMENTUM) * self.buffers[k] + MOMENTUM * v
        scale = self.params[f"{name}.weight"] * self.jax.lax.rsqrt(var + EPS)
        return (x - mean) * scale + self.params[f"{name}.bias"]

    def relu(self, x: Any, slope: float = 0.0) -> Any:
        return self.jax.nn.leaky_relu(x, slope) if slope else self.jax.nn.relu(x)

    def tanh(self, x: Any) -> Any:
        return self.jax.numpy.tanh(x)

    def max_pool(self, x: Any, kernel: int, stride: int, padding: int = 0) -> Any:
        around = ((0, 0), (padding, padding), (padding, padding), (0, 0))
        window, step = (1, kernel, kernel, 1), (1, stride, stride, 1)
        return self.jax.lax.reduce_window(x, -self.jax.numpy.inf, self.jax.lax.max, window, step, around)

    def mean(self, x: Any) -> Any:
        return x.mean((1, 2))

    def linear(self, x: Any, name: str, out: int) -> Any:
        return x @ self.params[f"{name}.weight"] + self.params[f"{name}.bias"]

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def join(self, x: Any, y: Any) -> Any:
        return self.jax.numpy.concatenate([x, y], axis=-1)


def moves(params: Inputs, *images: str) -> steps.Moves:
    """From PyTorch's layout to that of `JaxLayers`, and back."""
    found: steps.Moves = dict.fromkeys(images, (lambda x: x.transpose(0, 2, 3, 1), lambda x: x.transpose(0, 3, 1, 2)))
    filters = (lambda w: w.transpose(2, 3, 1, 0), lambda w: w.transpose(3, 2, 0, 1))
    found |= dict.fromkeys((k for k, p in params.items() if p.ndim == 4), filters)
    return found | steps.transposed([k for k, p in params.items() if p.ndim == 2])
