"""A training step of a small convolutional network."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.core import Array, Inputs, seeded, workload
from benchmarks.workloads import steps
from benchmarks.workloads.mlp import softmax_gradient

CHANNELS = (1, 16, 32, 64)
SGD = steps.Optimizer(rate=0.01, momentum=0.9)
LAST = "10"  # the dense layer's place in the sequence of modules
PLACES = ("0", "3", "6")  # the convolutions'


def _channels(inputs: Inputs) -> list[int]:
    return [1, *(len(inputs[f"{p}.weight"]) for p in PLACES)]


def _inputs(quick: bool) -> Inputs:
    channels, batch = ((1, 2, 3, 4), 4) if quick else (CHANNELS, 64)
    found: Inputs = {
        "x": seeded((batch, 1, 28, 28)),
        "labels": np.random.default_rng(9).integers(0, 10, batch),
    }
    for i, p in enumerate(PLACES):
        n, m = channels[i : i + 2]
        found[f"{p}.weight"] = seeded((m, n, 3, 3), i + 1, (9 * n) ** -0.5)
        found[f"{p}.bias"] = seeded((m,), i + 11, 0.1)
    width = channels[-1] * 9
    found[f"{LAST}.weight"], found[f"{LAST}.bias"] = seeded((10, width), 7, width**-0.5), seeded((10,), 17, 0.1)
    return found


# --- NumPy, by hand: a convolution is a product with all windows


def _windows(x: Array) -> Array:
    """(N, C, H, W) -> (N, H, W, C * 9)."""
    n, c, h, w = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return sliding_window_view(padded, (3, 3), axis=(2, 3)).transpose(0, 2, 3, 1, 4, 5).reshape(n, h, w, c * 9)


def _convolve(x: Array, w: Array) -> Array:
    return (_windows(x) @ w.reshape(len(w), -1).T).transpose(0, 3, 1, 2)


def _pool(y: Array) -> tuple[Array, Array]:
    """The largest of each 2 x 2, and where it is; a last row or column that is odd is left out."""
    n, c, h, w = y.shape
    blocks = y[:, :, : h // 2 * 2, : w // 2 * 2].reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5)
    blocks = blocks.reshape(n, c, h // 2, w // 2, 4)
    at = blocks.argmax(-1)[..., None]
    return np.take_along_axis(blocks, at, -1)[..., 0], at


def _unpool(g: Array, at: Array, shape: tuple[int, ...]) -> Array:
    n, c, h, w = g.shape
    blocks = np.zeros((n, c, h, w, 4), g.dtype)
    np.put_along_axis(blocks, at, g[..., None], -1)
    found = np.zeros(shape, g.dtype)
    found[:, :, : 2 * h, : 2 * w] = (
        blocks.reshape(n, c, h, w, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, 2 * h, 2 * w)
    )
    return found


def _gradients(params: Inputs, x: Array, labels: Array) -> tuple[Any, Inputs]:
    values, kept = [x], []
    for p in PLACES:
        y = np.maximum(_convolve(values[-1], params[f"{p}.weight"]) + params[f"{p}.bias"][:, None, None], 0)
        pooled, at = _pool(y)
        kept.append((y, at))
        values.append(pooled)
    flat = values[-1].reshape(len(x), -1)
    loss, g = softmax_gradient(flat @ params[f"{LAST}.weight"].T + params[f"{LAST}.bias"], labels)
    grads: Inputs = {f"{LAST}.weight": g.T @ flat, f"{LAST}.bias": g.sum(0)}
    g = (g @ params[f"{LAST}.weight"]).reshape(values[-1].shape)
    for i in (2, 1, 0):
        p, (y, at) = PLACES[i], kept[i]
        w = params[f"{p}.weight"]
        g = _unpool(g, at, y.shape) * (y > 0)
        windows = _windows(values[i])
        grads[f"{p}.weight"] = np.tensordot(g, windows, ((0, 2, 3), (0, 1, 2))).reshape(w.shape)
        grads[f"{p}.bias"] = g.sum((0, 2, 3))
        if i:
            g = _convolve(g, np.flip(w, (2, 3)).transpose(1, 0, 2, 3))
    return loss, grads


# --- the others


def _model(m: Any, inputs: Inputs) -> Any:
    nn = m.nn
    _, a, b, c = _channels(inputs)
    return nn.Sequential(
        nn.Conv2d(1, a, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(b, c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(9 * c, 10),
    )  # fmt: skip


def _loss(m: Any, model: Any, x: Any, labels: Any) -> Any:
    return m.nn.functional.cross_entropy(model(x), labels)


def _loss_jax(jax: Any, params: Any, x: Any, labels: Any) -> Any:
    for p in PLACES:
        x = jax.lax.conv_general_dilated(
            x, params[f"{p}.weight"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + params[f"{p}.bias"])
        x = jax.lax.reduce_window(x, -jax.numpy.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(len(x), -1) @ params[f"{LAST}.weight"] + params[f"{LAST}.bias"]
    return -jax.numpy.take_along_axis(jax.nn.log_softmax(x), labels[:, None], axis=-1).mean()


def _model_mlx(nn: Any, inputs: Inputs) -> Any:
    channels = _channels(inputs)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolutions = [nn.Conv2d(channels[i], channels[i + 1], 3, padding=1) for i in range(3)]
            self.dense = nn.Linear(9 * channels[3], 10)
            self.pool = nn.MaxPool2d(2, 2)

        def __call__(self, x: Any) -> Any:
            for f in self.convolutions:
                x = self.pool(nn.relu(f(x)))
            return self.dense(x.reshape(len(x), -1))

    return Network()


def _loss_mlx(nn: Any, model: Any, x: Any, labels: Any) -> Any:
    return nn.losses.cross_entropy(model(x), labels, reduction="mean")


class _ModelTinygrad:
    def __init__(self, nn: Any, inputs: Inputs) -> None:
        _, a, b, c = _channels(inputs)
        self.c0, self.c1 = nn.Conv2d(1, a, 3, padding=1), nn.Conv2d(a, b, 3, padding=1)
        self.c2, self.dense = nn.Conv2d(b, c, 3, padding=1), nn.Linear(9 * c, 10)

    def __call__(self, x: Any) -> Any:
        for f in (self.c0, self.c1, self.c2):
            x = f(x).relu().max_pool2d((2, 2))
        return self.dense(x.flatten(1))


def _loss_tinygrad(m: Any, model: Any, x: Any, labels: Any) -> Any:
    return model(x).sparse_categorical_crossentropy(labels)


def _renamed(inputs: Inputs, convolution: str, dense: str) -> Inputs:
    modules = {p: convolution.format(i) for i, p in enumerate(PLACES)} | {LAST: dense}
    found: Inputs = {}
    for k, x in inputs.items():
        module, _, kind = k.partition(".")
        found[f"{modules[module]}.{kind}" if kind else k] = x
    return found


def _channels_last(dense: str, convolutions: list[str], order: tuple[int, ...], transpose: bool) -> steps.Moves:
    """Images (N, H, W, C), kernels in `order` of (out, in, height, width), the dense layer's inputs in that order."""
    inverse = tuple(np.argsort(order))
    moves: steps.Moves = {"x": (lambda x: x.transpose(0, 2, 3, 1), lambda x: x.transpose(0, 3, 1, 2))}
    for name in convolutions:
        moves[f"{name}.weight"] = (lambda w: w.transpose(order), lambda w: w.transpose(inverse))

    def there(w: Array) -> Array:
        w = w.reshape(10, -1, 3, 3).transpose(0, 2, 3, 1).reshape(10, -1)
        return w.T if transpose else w

    def back(w: Array) -> Array:
        w = w.T if transpose else w
        return w.reshape(10, 3, 3, -1).transpose(0, 3, 1, 2).reshape(10, -1)

    return moves | {f"{dense}.weight": (there, back)}


def _flops(inputs: Inputs) -> float:
    """Two convolutions backward for each forward, but that nobody needs the first one's gradient to the images."""
    pixels = [28 * 28, 14 * 14, 7 * 7]
    sizes = [inputs[f"{p}.weight"].size * n for p, n in zip(PLACES, pixels, strict=True)]
    return 2 * len(inputs["x"]) * (3 * sum(sizes) - sizes[0] + 3 * inputs[f"{LAST}.weight"].size)


_numpy, _reference = steps.numpy_builds(_gradients, SGD, data=2)
_jax_moves = _channels_last(LAST, list(PLACES), (2, 3, 1, 0), transpose=True)
_mlx_moves = _channels_last("dense", [f"convolutions.{i}" for i in range(3)], (0, 2, 3, 1), transpose=False)

workload(
    name="convnet_train_step",
    what="a training step on 64 images of 28 x 28: three 3 x 3 convolutions, each pooled, SGD with momentum",
    inputs=_inputs,
    reference=_reference,
    builds={
        **steps.modules_builds(_model, _loss, SGD, data=2),
        "numpy": _numpy,
        "jax": lambda peer, inputs: steps.JaxStep(peer, inputs, _loss_jax, SGD, 2, _jax_moves),
        "mlx": lambda peer, inputs: steps.MlxStep(
            peer, _renamed(inputs, "convolutions.{}", "dense"), lambda nn, _: _model_mlx(nn, inputs), _loss_mlx, SGD,
            2, _mlx_moves,
        ),
        "tinygrad": lambda peer, inputs: steps.TinygradStep(
            peer, _renamed(inputs, "c{}", "dense"), lambda nn, _: _ModelTinygrad(nn, inputs), _loss_tinygrad, SGD, 2
        ),
    },
    flops=_flops,
    stateful=True,
    rtol=1e-3,
    atol=1e-4,
)  # fmt: skip
