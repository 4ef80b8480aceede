"""A small transformer, trained and asked: what a language model's step is made of."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.core import Inputs, seeded, workload
from benchmarks.workloads import gpt_numpy, steps

HEADS = 8
ADAMW = steps.Optimizer(rate=3e-4, decay=0.1)


def _inputs(batch: int, time: int, depth: int = 4) -> Callable[[bool], Inputs]:
    def inputs(quick: bool) -> Inputs:
        n, t, width, layers, letters = (2, 8, 32, 1, 64) if quick else (batch, time, 256, depth, 4096)
        rng = np.random.default_rng(5)
        found: Inputs = {"tokens": rng.integers(0, letters, (n, t)), "targets": rng.integers(0, letters, (n, t))}
        found["token.weight"], found["place.weight"] = seeded((letters, width), 1, 0.1), seeded((t, width), 2, 0.1)
        ones, zeros = lambda: np.ones(width, np.float32), lambda n: np.zeros(n, np.float32)
        for i in range(layers):
            name = f"blocks.{i}."
            found |= {name + "norm1.weight": ones(), name + "norm1.bias": zeros(width)}
            for j, (part, n_out, n_in) in enumerate(
                (("qkv", 3 * width, width), ("out", width, width), ("up", 4 * width, width), ("down", width, 4 * width))
            ):
                if part == "up":
                    found |= {name + "norm2.weight": ones(), name + "norm2.bias": zeros(width)}
                found[f"{name}{part}.weight"] = seeded((n_out, n_in), 10 * i + j + 3, n_in**-0.5)
                if part != "qkv":  # the keys' bias would have no gradient, and Adam make steps of its rounding
                    found[f"{name}{part}.bias"] = zeros(n_out)
        found |= {"norm.weight": ones(), "norm.bias": zeros(width)}
        found["head.weight"] = seeded((letters, width), 99, width**-0.5)
        return found

    return inputs


def _sizes(inputs: Inputs) -> tuple[int, int, int, int]:
    """(vocabulary, width, time, layers)"""
    letters, width = inputs["token.weight"].shape
    return letters, width, len(inputs["place.weight"]), sum(k.endswith(".qkv.weight") for k in inputs)


# --- lazyt and PyTorch: the same text


def _model(m: Any, inputs: Inputs) -> Any:
    letters, width, time, layers = _sizes(inputs)
    nn, functional = m.nn, m.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width, bias=False)
            self.out = nn.Linear(width, width)
            self.norm2, self.up = nn.LayerNorm(width), nn.Linear(width, 4 * width)
            self.down = nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            n, t, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).reshape(n, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.swapaxes(1, 2).reshape(n, t, width))
            return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.place = nn.Embedding(letters, width), nn.Embedding(time, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.token(tokens) + self.place(m.arange(tokens.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return GPT()


def _loss(m: Any, model: Any, tokens: Any, targets: Any) -> Any:
    logits = model(tokens)
    return m.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def _forward_modules(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    m = peer.module
    (tokens, _), params = steps.split(inputs, 2)
    model = _model(m, inputs)
    model.load_state_dict({k: peer.array(p) for k, p in params.items()})
    model.eval()
    x, f = peer.array(tokens), peer.jit(model)

    def call() -> Any:
        with m.no_grad():
            return peer.wait(f(x))

    return call


# --- JAX


def _forward_jax(jax: Any, params: Any, tokens: Any) -> Any:
    m = jax.numpy

    def norm(x: Any, name: str) -> Any:
        mean = x.mean(-1, keepdims=True)
        y = (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + gpt_numpy.EPS)
        return y * params[name + ".weight"] + params[name + ".bias"]

    def linear(x: Any, name: str) -> Any:
        return x @ params[name + ".weight"] + params[name + ".bias"]

    n, t = tokens.shape
    x = params["token.weight"][tokens] + params["place.weight"][:t]
    for i in range(sum(k.endswith(".qkv.weight") for k in params)):
        name = f"blocks.{i}."
        qkv = (norm(x, name + "norm1") @ params[name + "qkv.weight"]).reshape(n, t, 3, HEADS, -1)
        y = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True)
        x = x + linear(y.reshape(n, t, -1), name + "out")
        x = x + linear(jax.nn.gelu(linear(norm(x, name + "norm2"), name + "up")), name + "down")
    return m.matmul(norm(x, "norm"), params["head.weight"])


def _loss_jax(jax: Any, params: Any, tokens: Any, targets: Any) -> Any:
    logits = jax.nn.log_softmax(_forward_jax(jax, params, tokens))
    return -jax.numpy.take_along_axis(logits, targets[..., None], axis=-1).mean()


def _kernels(inputs: Inputs) -> steps.Moves:
    """The weights that are kept (in, out) there."""
    parts = ("qkv.weight", "out.weight", "up.weight", "down.weight", "head.weight")
    return steps.transposed([k for k in inputs if k.endswith(parts)])


def _build_forward_jax(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    (tokens, _), params = steps.split(steps.moved(inputs, _kernels(inputs)), 2)
    arrays, x = {k: peer.array(p) for k, p in params.items()}, peer.array(tokens)
    f = peer.compile(lambda params, tokens: _forward_jax(peer.jax, params, tokens))
    return lambda: peer.wait(f(arrays, x))


# --- MLX


def _model_mlx(nn: Any, inputs: Inputs) -> Any:
    m = importlib.import_module("mlx.core")
    letters, width, time, layers = _sizes(inputs)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width, bias=False)
            self.out = nn.Linear(width, width)
            self.norm2, self.up = nn.LayerNorm(width), nn.Linear(width, 4 * width)
            self.down = nn.Linear(4 * width, width)

        def __call__(self, x: Any) -> Any:
            n, t, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).reshape(n, t, 3, HEADS, -1).transpose(2, 0, 3, 1, 4)
            y = m.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5, mask="causal")
            x = x + self.out(y.swapaxes(1, 2).reshape(n, t, width))
            return x + self.down(nn.gelu_approx(self.up(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.place = nn.Embedding(letters, width), nn.Embedding(time, width)
            self.blocks = [Block() for _ in range(layers)]
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)

        def __call__(self, tokens: Any) -> Any:
            x = self.token(tokens) + self.place(m.arange(tokens.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return GPT()


def _loss_mlx(nn: Any, model: Any, tokens: Any, targets: Any) -> Any:
    return nn.losses.cross_entropy(model(tokens), targets, reduction="mean")


def _build_forward_mlx(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    nn, utils = importlib.import_module("mlx.nn"), importlib.import_module("mlx.utils")
    (tokens, _), params = steps.split(inputs, 2)
    model = _model_mlx(nn, inputs)
    model.update(utils.tree_unflatten([(k, peer.array(p)) for k, p in params.items()]))
    peer.wait(model.parameters())
    x, f = peer.array(tokens), peer.compile(model)
    return lambda: peer.wait(f(x))


# --- tinygrad


def _model_tinygrad(nn: Any, inputs: Inputs) -> Any:
    tensor = importlib.import_module("tinygrad").Tensor
    letters, width, time, layers = _sizes(inputs)

    class Block:
        def __init__(self) -> None:
            self.norm1, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width, bias=False)
            self.out = nn.Linear(width, width)
            self.norm2, self.up = nn.LayerNorm(width), nn.Linear(width, 4 * width)
            self.down = nn.Linear(4 * width, width)

        def __call__(self, x: Any) -> Any:
            n, t, _ = x.shape
            qkv = self.qkv(self.norm1(x)).reshape(n, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            y = qkv[0].scaled_dot_product_attention(qkv[1], qkv[2], is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(n, t, width))
            return x + self.down(self.up(self.norm2(x)).gelu())

    class GPT:
        def __init__(self) -> None:
            self.token, self.place = nn.Embedding(letters, width), nn.Embedding(time, width)
            self.blocks = [Block() for _ in range(layers)]
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)

        def __call__(self, tokens: Any) -> Any:
            x = self.token(tokens) + self.place(tensor.arange(tokens.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return GPT()


def _loss_tinygrad(m: Any, model: Any, tokens: Any, targets: Any) -> Any:
    return model(tokens).flatten(0, 1).sparse_categorical_crossentropy(targets.flatten())


def _build_forward_tinygrad(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    nn, state = importlib.import_module("tinygrad.nn"), importlib.import_module("tinygrad.nn.state")
    (tokens, _), params = steps.split(inputs, 2)
    model = _model_tinygrad(nn, inputs)
    state.load_state_dict(model, {k: peer.array(p) for k, p in params.items()}, verbose=False)
    x, f = peer.array(tokens), peer.compile(model)
    return lambda: peer.wait(f(x))


# --- NumPy, and the table


def _gradients(params: Inputs, tokens: Any, targets: Any) -> Any:
    return gpt_numpy.gradients(params, tokens, targets, HEADS, _sizes(params)[3])


def _forward_numpy(inputs: Inputs) -> Any:
    (tokens, _), params = steps.split(inputs, 2)
    return gpt_numpy.forward(gpt_numpy.Tape(params, HEADS), tokens, _sizes(params)[3])[0]


def _flops(inputs: Inputs) -> float:
    """Of one pass forward: the products with weights, and attention's two (of which causality needs half)."""
    tokens = inputs["tokens"]
    _, width, time, layers = _sizes(inputs)
    weights = sum(x.size for k, x in inputs.items() if x.ndim == 2 and k not in ("tokens", "targets"))
    weights -= inputs["token.weight"].size + inputs["place.weight"].size
    return 2 * tokens.size * (weights + layers * time * width)


_numpy, _reference = steps.numpy_builds(_gradients, ADAMW, data=2)
TRAIN = workload(
    name="gpt_train_step",
    what="a training step of a transformer (4 layers, width 256, 8 heads, 8 x 128 of 4,096 letters), with AdamW",
    inputs=_inputs(8, 128),
    reference=_reference,
    builds={
        **steps.modules_builds(_model, _loss, ADAMW, data=2),
        "numpy": _numpy,
        "jax": lambda peer, inputs: steps.JaxStep(peer, inputs, _loss_jax, ADAMW, 2, _kernels(inputs)),
        "mlx": lambda peer, inputs: steps.MlxStep(peer, inputs, _model_mlx, _loss_mlx, ADAMW, 2, {}),
        "tinygrad": lambda peer, inputs: steps.TinygradStep(peer, inputs, _model_tinygrad, _loss_tinygrad, ADAMW, 2),
    },
    flops=lambda inputs: 3 * _flops(inputs),
    stateful=True,
    rtol=1e-3,
    atol=1e-4,
    outside=0.01,  # Adam's first steps have the size of the rate whatever the gradient's, also where it is rounding
)
workload(
    name="gpt_deep_train_step",
    what="a training step of the same transformer with 6 layers, 16 x 64 letters",
    inputs=_inputs(16, 64, 6),
    reference=_reference,
    builds={
        **steps.modules_builds(_model, _loss, ADAMW, data=2),
        "numpy": _numpy,
        "jax": lambda peer, inputs: steps.JaxStep(peer, inputs, _loss_jax, ADAMW, 2, _kernels(inputs)),
    },
    flops=lambda inputs: 3 * _flops(inputs),
    stateful=True,
    rtol=1e-3,
    atol=1e-4,
    outside=0.01,
)
workload(
    name="gpt_forward",
    what="the logits of the same transformer for one text of 64 letters, without gradients",
    inputs=_inputs(1, 64),
    reference=lambda inputs: [_forward_numpy(inputs)],
    builds={
        **dict.fromkeys(("lazyt", "torch", "torch.compile"), _forward_modules),
        "numpy": lambda peer, inputs: lambda: _forward_numpy(inputs),
        "jax": _build_forward_jax,
        "mlx": _build_forward_mlx,
        "tinygrad": _build_forward_tinygrad,
    },
    flops=_flops,
    rtol=1e-3,
    atol=1e-3,
)
