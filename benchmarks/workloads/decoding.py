"""A small transformer that writes, one token a call, with the keys and values of earlier tokens kept.

`decode_static` keeps them in an array of all places, written in place (JAX: `.at[].set`); `decode_growing` joins each
token's to the ones before, as programs without a length limit do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.core import WARM_UP, Array, Inputs, seeded, workload
from benchmarks.workloads import steps

HEADS = 8
PROMPT, PLACES = 64, 128  # tokens that are kept before the first call; then it starts again


def _inputs(quick: bool) -> Inputs:
    width, layers, letters = (32, 1, 64) if quick else (256, 4, 4096)
    found: Inputs = {"prompt": seeded((layers, 2, HEADS, PROMPT, width // HEADS), 7)}
    found["token.weight"], found["place.weight"] = seeded((letters, width), 1), seeded((PLACES, width), 2, 0.1)
    for i in range(layers):
        for j, (part, out, n) in enumerate(
            (("qkv", 3 * width, width), ("out", width, width), ("up", 4 * width, width), ("down", width, 4 * width))
        ):
            found[f"blocks.{i}.{part}.weight"] = seeded((out, n), 10 * i + j + 3, n**-0.5)
        for norm in ("norm1", "norm2"):
            found[f"blocks.{i}.{norm}.weight"] = np.ones(width, np.float32)
            found[f"blocks.{i}.{norm}.bias"] = np.zeros(width, np.float32)
    found["norm.weight"], found["norm.bias"] = np.ones(width, np.float32), np.zeros(width, np.float32)
    found["head.weight"] = seeded((letters, width), 99, width**-0.5)
    return found


def _kept(prompt: Array, growing: bool) -> Array:
    """The prompt's keys and values, with places for the tokens to come unless its arrays grow."""
    return np.pad(prompt, ((0, 0), (0, 0), (0, 0), (0, 0 if growing else PLACES - PROMPT), (0, 0)))


# --- lazyt and PyTorch


def _model(m: Any, inputs: Inputs) -> Any:
    nn, functional = m.nn, m.nn.functional
    letters, width = inputs["token.weight"].shape

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width, bias=False)
            self.out = nn.Linear(width, width, bias=False)
            self.norm2, self.up = nn.LayerNorm(width), nn.Linear(width, 4 * width, bias=False)
            self.down = nn.Linear(4 * width, width, bias=False)

        def forward(self, x: Any, cache: Any, place: Any) -> Any:
            """`cache` has keys and values, (1, heads, places, features) each; a `place` of None: they grow."""
            q, k, v = self.qkv(self.norm1(x)).reshape(1, 1, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            if place is None:
                cache = [m.concatenate([old, new], 2) for old, new in zip(cache, (k, v), strict=True)]
                y = functional.scaled_dot_product_attention(q, *cache)
            else:
                cache[0][:, :, place], cache[1][:, :, place] = k[:, :, 0], v[:, :, 0]
                mask = (m.arange(PLACES) <= place)[None, None, None]
                y = functional.scaled_dot_product_attention(q, *cache, attn_mask=mask)
            x = x + self.out(y.reshape(1, 1, width))
            return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh")), cache

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.place = nn.Embedding(letters, width), nn.Embedding(PLACES, width)
            self.blocks = nn.ModuleList([Block() for _ in range(len(inputs["prompt"]))])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)

        def forward(self, token: Any, at: Any, caches: Any, place: Any) -> Any:
            x, kept = self.token(token) + self.place(at), []
            for block, cache in zip(self.blocks, caches, strict=True):
                x, cache = block(x, cache, place)
                kept.append(cache)
            return self.head(self.norm(x))[0, 0], kept

    return GPT()


class _Modules:
    """Each call gives the logits of the next token, and takes the likeliest as a number of Python."""

    def __init__(self, growing: bool, peer: Any, inputs: Inputs) -> None:
        self.peer, self.m, self.growing = peer, peer.module, growing
        (self.prompt,), params = steps.split(inputs, 1)
        self.model = _model(self.m, inputs)
        self.model.load_state_dict({k: peer.array(p) for k, p in params.items()})
        self.model.eval()
        self.f = peer.jit(self.model)
        self.start()

    def start(self) -> None:
        """The prompt's keys and values, and the first token."""
        self.place, self.token = PROMPT, 1
        self.caches = [[self.peer.array(x[None]) for x in layer] for layer in _kept(self.prompt, self.growing)]

    def __call__(self) -> Any:
        if self.place == PLACES:
            self.start()
        m = self.m
        with m.no_grad():
            token, at = m.asarray([[self.token]]), m.asarray([[self.place]])
            # NOTE: a function under `lt.jit` is called again for each number, and torch.compile has numbers that vary.
            place = m.asarray(self.place) if self.peer.name == "lazyt" else self.place
            logits, self.caches = self.f(token, at, self.caches, None if self.growing else place)
        self.token, self.place = int(logits.argmax()), self.place + 1
        return self.peer.wait(logits)


# --- NumPy and JAX


def _step(m: Any, gelu: Any, write: Any, params: Any, layers: int, token: Any, place: Any, cache: Any) -> Any:
    """The logits and the cache, (layers, 2, heads, places, features); `write(cache, layer, place, new)`."""

    def norm(x: Any, name: str) -> Any:
        y = (x - x.mean()) / m.sqrt(x.var() + 1e-5)
        return y * params[name + ".weight"] + params[name + ".bias"]

    x = params["token.weight"][token] + params["place.weight"][place]
    for i in range(layers):
        name = f"blocks.{i}."
        q, k, v = (params[name + "qkv.weight"] @ norm(x, name + "norm1")).reshape(3, HEADS, -1)
        cache = write(cache, i, place, m.stack([k, v]))
        keys, values = cache[i]
        scores = m.where(m.arange(keys.shape[1]) <= place, (keys @ q[:, :, None])[:, :, 0] * q.shape[-1] ** -0.5, -1e30)
        e = m.exp(scores - scores.max(-1, keepdims=True))
        y = ((e / e.sum(-1, keepdims=True))[:, None] @ values).reshape(-1)
        x = x + params[name + "out.weight"] @ y
        x = x + params[name + "down.weight"] @ gelu(params[name + "up.weight"] @ norm(x, name + "norm2"))
    return params["head.weight"] @ norm(x, "norm"), cache


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


def _write(cache: Array, layer: int, place: int, new: Array) -> Array:
    cache[layer, :, :, place] = new
    return cache


def _join(cache: list[Array], layer: int, place: int, new: Array) -> list[Array]:
    cache[layer] = np.concatenate([cache[layer], new[:, :, None]], axis=2)
    return cache


class _Function:
    """The same calls of a function; it starts with an array of all places, or with the prompt of each layer."""

    def __init__(self, peer: Any, inputs: Inputs, step: Callable[..., Any], growing: bool = False) -> None:
        self.peer, self.step, self.growing = peer, step, growing
        (self.prompt,), params = steps.split(inputs, 1)
        self.params = {k: peer.array(p) for k, p in params.items()}
        self.place = PLACES

    def __call__(self) -> Any:
        if self.place == PLACES:
            self.place, self.token = PROMPT, 1
            kept = _kept(self.prompt, self.growing)
            self.cache = [*kept] if self.growing else self.peer.array(kept)
        logits, self.cache = self.step(self.params, self.token, self.place, self.cache)
        self.token, self.place = int(logits.argmax()), self.place + 1
        return self.peer.wait(logits)


def _jax(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    m, layers = peer.module, len(inputs["prompt"])
    write = lambda cache, layer, place, new: cache.at[layer, :, :, place].set(new)
    step = lambda *xs: _step(m, peer.jax.nn.gelu, write, xs[0], layers, *xs[1:])
    return _Function(peer, inputs, peer.jax.jit(step, donate_argnums=3))


class _Exact:
    """NumPy for the reference, which leaves float64 as it is."""

    array = wait = staticmethod(lambda x: x)


def _numpy(growing: bool, peer: Any, inputs: Inputs) -> Callable[[], Any]:
    layers, write = len(inputs["prompt"]), _join if growing else _write
    return _Function(peer, inputs, lambda params, *xs: _step(np, _gelu, write, params, layers, *xs), growing)


def _reference(inputs: Inputs) -> Sequence[Array]:
    call = _numpy(False, _Exact, inputs)
    for _ in range(WARM_UP):
        call()
    return [call()]


for _name, _growing, _what in (
    ("decode_static", False, "written into an array of 128 places"),
    ("decode_growing", True, "joined to the ones before"),
):
    workload(
        name=_name,
        what=f"the next token of a transformer (4 layers, width 256, 4,096 letters), keys and values {_what}",
        inputs=_inputs,
        reference=_reference,
        builds={
            **dict.fromkeys(
                ("lazyt", "torch", "torch.compile"), lambda peer, inputs, g=_growing: _Modules(g, peer, inputs)
            ),
            # Arrays that grow would be compiled at each length: their users keep one of all places.
            **({} if _growing else {"jax": _jax}),
            "numpy": lambda peer, inputs, g=_growing: _numpy(g, peer, inputs),
        },
        stateful=True,
        rtol=1e-3,
        atol=1e-3,
    )
