"""A convolutional network in NumPy: each layer there, and what it leaves for the way back. The reference, in float64.

A network is a function of the layers that it calls (`f.conv(x, "conv1", 64, 3)`), so that one text serves NumPy, JAX
and the sizes (`network_layers.py`); images are (N, C, H, W).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.core import Array, Inputs

EPS = 1e-5
Slices = tuple[Any, ...]


# --- convolutions, one place of the kernel after another


def _places(kernel: int, stride: int, out: tuple[int, ...]) -> Iterator[tuple[int, int, Slices]]:
    """For each place of the kernel the pixels of the padded image that it meets."""
    for i in range(kernel):
        for j in range(kernel):
            rows, columns = (slice(k, k + stride * n, stride) for k, n in zip((i, j), out, strict=True))
            yield i, j, (slice(None), slice(None), rows, columns)


def _pad(x: Array, n: int, value: float = 0.0) -> Array:
    return np.pad(x, ((0, 0), (0, 0), (n, n), (n, n)), constant_values=value) if n else x


def _crop(x: Array, n: int) -> Array:
    return x[:, :, n:-n, n:-n] if n else x


def convolve(x: Array, w: Array, stride: int, padding: int, depthwise: bool = False) -> Array:
    """(N, C, H, W) by (O, C, K, K), or by (C, 1, K, K) channel by channel."""
    x, kernel = _pad(x, padding), w.shape[-1]
    out = tuple((n - kernel) // stride + 1 for n in x.shape[2:])
    y = np.zeros((len(x), len(w), *out), x.dtype)
    flat = y.reshape(len(x), len(w), -1)
    for i, j, at in _places(kernel, stride, out):
        if depthwise:
            y += w[:, 0, i, j, None, None] * x[at]
        else:
            flat += w[:, :, i, j] @ x[at].reshape(len(x), x.shape[1], -1)
    return y


def convolve_back(
    g: Array, w: Array, stride: int, padding: int, size: tuple[int, ...], depthwise: bool = False
) -> Array:
    """The gradient to images of that size: what a transposed convolution computes."""
    channels = len(w) if depthwise else w.shape[1]
    x = np.zeros((len(g), channels, *(n + 2 * padding for n in size)), g.dtype)
    flat = g.reshape(*g.shape[:2], -1)
    for i, j, at in _places(w.shape[-1], stride, g.shape[2:]):
        if depthwise:
            x[at] += w[:, 0, i, j, None, None] * g
        else:
            x[at] += (w[:, :, i, j].T @ flat).reshape(x[at].shape)
    return _crop(x, padding)


def convolve_weights(g: Array, x: Array, w: Array, stride: int, padding: int, depthwise: bool = False) -> Array:
    """The gradient to the filters."""
    x, found = _pad(x, padding), np.empty_like(w)
    for i, j, at in _places(w.shape[-1], stride, g.shape[2:]):
        if depthwise:
            found[:, 0, i, j] = (g * x[at]).sum((0, 2, 3))
        else:
            found[:, :, i, j] = np.tensordot(g, x[at], ((0, 2, 3), (0, 2, 3)))
    return found


# --- layers


class Value:
    """An array, and its gradient once that is known."""

    __slots__ = ("data", "grad")

    def __init__(self, data: Array) -> None:
        self.data = data
        self.grad: Any = None

    def add(self, g: Array) -> None:
        """Another reader's share of the gradient."""
        self.grad = g if self.grad is None else self.grad + g


class NumpyLayers:
    """The layers of a network by the parameters' names; with `buffers` batch norm is that of evaluation."""

    def __init__(self, params: Inputs, buffers: Inputs | None = None) -> None:
        self.params, self.buffers = params, buffers
        self.grads: Inputs = {}
        self._back: list[Callable[[], None]] = []

    def backward(self, y: Value, g: Array) -> Inputs:
        """The gradients of the parameters, from that of y; those of several calls add up."""
        y.grad = g
        while self._back:
            self._back.pop()()
        return self.grads

    def conv(
        self, x: Value, name: str, out: int, kernel: int, stride: int = 1, padding: int = 0, groups: int = 1,
        bias: bool = False,
    ) -> Value:  # fmt: skip
        w, depthwise = self.params[f"{name}.weight"], groups > 1
        assert groups in (1, x.data.shape[1]), "groups are single channels here"
        y = convolve(x.data, w, stride, padding, depthwise)

        def back(g: Array) -> None:
            self._grad(f"{name}.weight", convolve_weights(g, x.data, w, stride, padding, depthwise))
            x.add(convolve_back(g, w, stride, padding, x.data.shape[2:], depthwise))

        return self._biased(name, self._node(y, back), bias)

    def conv_transposed(
        self, x: Value, name: str, out: int, kernel: int, stride: int = 1, padding: int = 0, bias: bool = False
    ) -> Value:
        w = self.params[f"{name}.weight"]
        size = tuple((n - 1) * stride + kernel - 2 * padding for n in x.data.shape[2:])
        y = convolve_back(x.data, w, stride, padding, size)

        def back(g: Array) -> None:
            self._grad(f"{name}.weight", convolve_weights(x.data, g, w, stride, padding))
            x.add(convolve(g, w, stride, padding))

        return self._biased(name, self._node(y, back), bias)

    def norm(self, x: Value, name: str) -> Value:
        """Batch norm."""
        weight, bias = (self.params[f"{name}.{k}"][:, None, None] for k in ("weight", "bias"))
        if self.buffers is None:
            mean, var = (f(x.data, axis=(0, 2, 3), keepdims=True) for f in (np.mean, np.var))
        else:
            mean, var = (self.buffers[f"{name}.running_{k}"][:, None, None] for k in ("mean", "var"))
        scale = 1 / np.sqrt(var + EPS)
        z = (x.data - mean) * scale

        def back(g: Array) -> None:
            self._grad(f"{name}.weight", (g * z).sum((0, 2, 3)))
            self._grad(f"{name}.bias", g.sum((0, 2, 3)))
            g = g * weight
            means = (np.mean(y, axis=(0, 2, 3), keepdims=True) for y in (g, g * z))
            x.add(scale * (g - next(means) - z * next(means)))

        return self._node(z * weight + bias, back)

    def relu(self, x: Value, slope: float = 0.0) -> Value:
        """With a slope below zero that of LeakyReLU."""
        factor = np.where(x.data > 0, 1, slope).astype(x.data.dtype)
        return self._node(x.data * factor, lambda g: x.add(g * factor))

    def tanh(self, x: Value) -> Value:
        y = np.tanh(x.data)
        return self._node(y, lambda g: x.add(g * (1 - y * y)))

    def max_pool(self, x: Value, kernel: int, stride: int, padding: int = 0) -> Value:
        data = _pad(x.data, padding, -np.inf)
        out = tuple((n - kernel) // stride + 1 for n in data.shape[2:])
        places = list(_places(kernel, stride, out))
        y = np.max([data[at] for _, _, at in places], axis=0)

        def back(g: Array) -> None:
            found, left = np.zeros_like(data), np.ones(g.shape, bool)
            for _, _, at in places:  # the first of equal ones has the gradient
                hit = left & (data[at] == y)
                found[at] += g * hit
                left &= ~hit
            x.add(_crop(found, padding))

        return self._node(y, back)

    def mean(self, x: Value) -> Value:
        """Over the pixels: (N, C, H, W) -> (N, C)."""
        n = x.data.shape[2] * x.data.shape[3]
        return self._node(x.data.mean((2, 3)), lambda g: x.add(np.broadcast_to(g[:, :, None, None] / n, x.data.shape)))

    def linear(self, x: Value, name: str, out: int) -> Value:
        w = self.params[f"{name}.weight"]

        def back(g: Array) -> None:
            self._grad(f"{name}.weight", g.T @ x.data)
            self._grad(f"{name}.bias", g.sum(0))
            x.add(g @ w)

        return self._node(x.data @ w.T + self.params[f"{name}.bias"], back)

    def add(self, x: Value, y: Value) -> Value:
        def back(g: Array) -> None:
            x.add(g)
            y.add(g)

        return self._node(x.data + y.data, back)

    def join(self, x: Value, y: Value) -> Value:
        """The channels of both."""
        n = x.data.shape[1]

        def back(g: Array) -> None:
            x.add(g[:, :n])
            y.add(g[:, n:])

        return self._node(np.concatenate([x.data, y.data], axis=1), back)

    def _biased(self, name: str, x: Value, bias: bool) -> Value:
        if not bias:
            return x

        def back(g: Array) -> None:
            self._grad(f"{name}.bias", g.sum((0, 2, 3)))
            x.add(g)

        return self._node(x.data + self.params[f"{name}.bias"][:, None, None], back)

    def _node(self, data: Array, back: Callable[[Array], None]) -> Value:
        y = Value(data)
        if self.buffers is None:
            self._back.append(lambda: back(y.grad))
        return y

    def _grad(self, name: str, g: Array) -> None:
        self.grads[name] = self.grads[name] + g if name in self.grads else g
