"""The transformer of gpt.py in NumPy, its gradients by hand: what the others are checked against."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.core import Array, Inputs
from benchmarks.workloads.elementwise import C
from benchmarks.workloads.mlp import softmax_gradient

EPS = 1e-5


class Tape:
    """Steps forward, each leaving how its gradient goes back; `grads` adds up those of parameters."""

    def __init__(self, params: Inputs, heads: int) -> None:
        self.params, self.heads = params, heads
        self.grads: Inputs = {}

    def add(self, name: str, gradient: Array) -> None:
        """A parameter's share."""
        self.grads[name] = self.grads[name] + gradient if name in self.grads else gradient

    def linear(self, x: Array, name: str, bias: bool = True) -> tuple[Array, Any]:
        """x (..., in) @ w.T + b, and the gradient to x."""
        w = self.params[name + ".weight"]

        def back(g: Array) -> Array:
            flat = g.reshape(-1, g.shape[-1])
            self.add(name + ".weight", flat.T @ x.reshape(-1, x.shape[-1]))
            if bias:
                self.add(name + ".bias", flat.sum(0))
            return g @ w

        y = x @ w.T
        return (y + self.params[name + ".bias"] if bias else y), back

    def norm(self, x: Array, name: str) -> tuple[Array, Any]:
        """Layer norm over the last axis."""
        w = self.params[name + ".weight"]
        centred = x - x.mean(-1, keepdims=True)
        scale = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + x.dtype.type(EPS))
        y = centred * scale

        def back(g: Array) -> Array:
            self.add(name + ".weight", (g * y).sum((0, 1)))
            self.add(name + ".bias", g.sum((0, 1)))
            d = g * w
            return scale * (d - d.mean(-1, keepdims=True) - y * (d * y).mean(-1, keepdims=True))

        return y * w + self.params[name + ".bias"], back

    def attention(self, qkv: Array) -> tuple[Array, Any]:
        """Causal attention of (N, T, 3 * width)."""
        n, t, width = qkv.shape
        q, k, v = qkv.reshape(n, t, 3, self.heads, -1).transpose(2, 0, 3, 1, 4)
        root = q.dtype.type(q.shape[-1] ** -0.5)
        scores = q @ k.swapaxes(-1, -2) * root
        scores = np.where(np.tri(t, dtype=bool), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)

        def back(g: Array) -> Array:
            g = g.reshape(n, t, self.heads, -1).swapaxes(1, 2)
            dp = g @ v.swapaxes(-1, -2)
            ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * root
            parts = np.stack([ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g])
            return parts.transpose(1, 3, 0, 2, 4).reshape(n, t, width)

        return (p @ v).swapaxes(1, 2).reshape(n, t, -1), back


def gelu(x: Array) -> tuple[Array, Any]:
    """GELU in its tanh form, and its gradient."""
    h = np.tanh(C * (x + 0.044715 * x * x * x))

    def back(g: Array) -> Array:
        return g * (0.5 * (1 + h) + 0.5 * x * (1 - h * h) * C * (1 + 3 * 0.044715 * x * x))

    return 0.5 * x * (1 + h), back


def forward(tape: Tape, tokens: Array, layers: int) -> tuple[Array, Any]:
    """The logits (N, T, vocabulary), and how the gradient goes back to the parameters."""
    params = tape.params
    x = params["token.weight"][tokens] + params["place.weight"][: tokens.shape[1]]
    backs: list[tuple[Any, ...]] = []
    for i in range(layers):
        name = f"blocks.{i}."
        y, norm1 = tape.norm(x, name + "norm1")
        y, qkv = tape.linear(y, name + "qkv", bias=False)
        y, attention = tape.attention(y)
        y, out = tape.linear(y, name + "out")
        x = x + y
        y, norm2 = tape.norm(x, name + "norm2")
        y, up = tape.linear(y, name + "up")
        y, activation = gelu(y)
        y, down = tape.linear(y, name + "down")
        x = x + y
        backs.append(((down, activation, up, norm2), (out, attention, qkv, norm1)))
    y, norm = tape.norm(x, "norm")
    logits, head = tape.linear(y, "head", bias=False)

    def back(g: Array) -> None:
        g = norm(head(g))
        for block in reversed(backs):
            for half in block:
                d = g
                for step in half:
                    d = step(d)
                g = g + d
        places = np.zeros_like(params["place.weight"])
        places[: tokens.shape[1]] = g.sum(0)
        tape.add("place.weight", places)
        table = np.zeros_like(params["token.weight"])
        np.add.at(table, tokens.ravel(), g.reshape(-1, g.shape[-1]))
        tape.add("token.weight", table)

    return logits, back


def gradients(params: Inputs, tokens: Array, targets: Array, heads: int, layers: int) -> tuple[Any, Inputs]:
    """The mean cross-entropy and its gradients."""
    tape = Tape(params, heads)
    logits, back = forward(tape, tokens, layers)
    loss, g = softmax_gradient(logits.reshape(-1, logits.shape[-1]), targets.ravel())
    back(g.reshape(logits.shape))
    return loss, tape.grads
