"""The works of issue 4's table: what each moves and computes at the least, and how each library does it.

lazyt and PyTorch run the same text; JAX and CuPy have their own where it differs. A work's function is given the
library and a number to divide sizes by, and gives the call that is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.device.libraries import Call, Library, numbers

Make = Callable[[Any, int], Call]
MILLION = 1 << 20


@dataclass(frozen=True)
class Work:
    """`reach`: the share of the limit to be reached, or the ratio to the best other library ('' for none)."""

    name: str
    makes: dict[str, Make]  # by library; 'text' is lazyt's and PyTorch's
    reach: str
    nbytes: Callable[[int], float] | None = None
    flops: Callable[[int], float] | None = None
    kind: str = ""  # of product whose best rate is the limit: 'float32', 'tf32' or 'bfloat16'
    compiled: bool = False  # how long its kernels take to compile is reported, with empty caches and from disk

    def make(self, library: Library, scale: int) -> Call | None:
        found = self.makes.get(library.name)
        if found is None and library.name in ("lazyt", "torch", "torch.compile"):
            found = self.makes.get("text")
        return None if found is None else found(library, scale)


def _size(n: int, scale: int, least: int = 8) -> int:
    return max(n // scale, least)


def _jit(f: Callable[..., Any], *arrays: Callable[[Any, int], Any]) -> Make:
    def make(lib: Any, scale: int) -> Call:
        values, g = [a(lib, scale) for a in arrays], lib.compile(f)
        return lambda: g(*values)

    return make


def _array(*shape: int, seed: int = 0, dtype: str = "") -> Callable[[Any, int], Any]:
    """An array whose first axis is divided by the scale."""
    return lambda lib, scale: lib.put(numbers(_size(shape[0], scale), *shape[1:], seed=seed), dtype)


# --- maps, reductions, rows


def _gelu(m: Any) -> Callable[[Any], Any]:
    return lambda x: 0.5 * x * (1 + m.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def gelu(lib: Any, scale: int) -> Call:
    x = lib.put(numbers(_size(256 * MILLION, scale)))
    f = _gelu(lib.np if lib.name == "jax.jit" else lib.m)
    g = lib.m.fuse(f) if lib.name == "cupy" else lib.compile(f)
    return lambda: g(x)


def _squares(a: Any, b: Any, c: Any) -> Any:
    y = a * b + c
    return (y * y).sum()


squares = _jit(_squares, *(_array(256 * MILLION, seed=s) for s in range(3)))


def softmax(dtype: str) -> Make:
    def make(lib: Any, scale: int) -> Call:
        x = lib.put(numbers(_size(16384, scale), 8192), dtype)
        softmax = lib.m.nn.softmax if lib.name == "jax.jit" else lib.m.softmax
        g = lib.compile(lambda x: softmax(x, -1))
        return lambda: g(x)

    return make


def long_softmax(lib: Any, scale: int) -> Call:
    """What sampling does with the logits of a few sequences."""
    x = lib.put(numbers(8, _size(131072, scale)))
    softmax = lib.m.nn.softmax if lib.name == "jax.jit" else lib.m.softmax
    g = lib.compile(lambda x: softmax(x, -1), small=True)
    return lambda: g(x)


def softmax_cupy(lib: Any, scale: int) -> Call:
    x, m = lib.put(numbers(_size(16384, scale), 8192)), lib.m

    def call() -> Any:
        e = m.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    return call


def _norm_inputs(lib: Any, scale: int, grad: bool) -> list[Any]:
    n = _size(65536, scale)
    return [lib.put(numbers(n, 1024, seed=s), grad=grad and s == 0) for s in (0, 1)] + [
        lib.put(numbers(1024, seed=s), grad=grad) for s in (2, 3)
    ]


def layernorm(lib: Any, scale: int) -> Call:
    h, r, w, b = _norm_inputs(lib, scale, False)
    layer_norm = lib.m.nn.functional.layer_norm
    g = lib.compile(lambda h, r: layer_norm(h + r, (1024,), w, b))
    return lambda: g(h, r)


def layernorm_grad(lib: Any, scale: int) -> Call:
    h, r, w, b = _norm_inputs(lib, scale, True)
    d = lib.put(numbers(_size(65536, scale), 1024, seed=9))
    layer_norm = lib.m.nn.functional.layer_norm
    g = lib.compile(lambda h, r: layer_norm(h + r, (1024,), w, b))

    def call() -> Any:
        h.grad = w.grad = b.grad = None
        y = g(h, r)
        y.backward(d)
        return y, h.grad, w.grad, b.grad

    return call


def _norm_jax(np: Any) -> Callable[..., Any]:
    def f(h: Any, r: Any, w: Any, b: Any) -> Any:
        x = h + r
        mean = x.mean(-1, keepdims=True)
        var = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) / np.sqrt(var + 1e-5) * w + b

    return f


def layernorm_jax(lib: Any, scale: int) -> Call:
    inputs, g = _norm_inputs(lib, scale, False), lib.compile(_norm_jax(lib.np))
    return lambda: g(*inputs)


def layernorm_grad_jax(lib: Any, scale: int) -> Call:
    inputs, f = _norm_inputs(lib, scale, False), _norm_jax(lib.np)
    d = lib.put(numbers(_size(65536, scale), 1024, seed=9))

    def both(d: Any, *xs: Any) -> Any:
        y, pull = lib.m.vjp(f, *xs)
        return y, pull(d)

    g = lib.compile(both)
    return lambda: g(d, *inputs)


def _logits(lib: Any, scale: int, grad: bool) -> tuple[Any, Any]:
    n = _size(8192, scale)
    return lib.put(numbers(n, 32768), grad=grad), lib.put(np.arange(n) * 7 % 32768)


def cross_entropy(lib: Any, scale: int) -> Call:
    x, t = _logits(lib, scale, True)
    g = lib.compile(lib.m.nn.functional.cross_entropy)

    def call() -> Any:
        x.grad = None
        loss = g(x, t)
        loss.backward()
        return loss, x.grad

    return call


def cross_entropy_jax(lib: Any, scale: int) -> Call:
    x, t = _logits(lib, scale, False)

    def loss(x: Any, t: Any) -> Any:
        return -lib.np.take_along_axis(lib.m.nn.log_softmax(x), t[:, None], axis=-1).mean()

    g = lib.compile(lib.m.value_and_grad(loss))
    return lambda: g(x, t)


def statistics(lib: Any, scale: int) -> Call:
    x = lib.put(numbers(_size(65536, scale), 4096))
    var = {"correction": 0} if lib.name.startswith("torch") else {}
    g = lib.compile(lambda x: (x.mean(0), x.var(0, **var)))
    return lambda: g(x)


def transposed_add(lib: Any, scale: int) -> Call:
    side = _size(16384, scale, 64)
    p, q = (lib.put(numbers(side, side, seed=s)) for s in (0, 1))
    flipped = (lambda q: q.flip(0)) if lib.name.startswith("torch") else (lambda q: q[::-1])
    g = lib.compile(lambda p, q: p.T + flipped(q))
    return lambda: g(p, q)


# --- training


def adam(lib: Any, scale: int) -> Call:
    n = _size(MILLION, scale)
    ps = [lib.put(numbers(n, seed=s), grad=True) for s in range(100)]
    for s, p in enumerate(ps):
        p.grad = lib.put(numbers(n, seed=100 + s, scale=0.1))
    more = {"fused": True} if lib.name == "torch" and lib.on_gpu else {}
    opt = lib.m.optim.Adam(ps, lr=1e-3, **more)
    step = lib.compile(opt.step)

    def call() -> Any:
        with lib.m.no_grad():
            step()
        return ps

    return call


def adam_jax(lib: Any, scale: int) -> Call:
    n, np_ = _size(MILLION, scale), lib.np
    state = [
        [lib.put(numbers(n, seed=s + k, scale=x)) for s in range(100)]
        for k, x in ((0, 1.0), (100, 0.1), (0, 0.0), (0, 0.0))
    ]
    count = [0]

    def step(ps: Any, gs: Any, ms: Any, vs: Any, t: Any) -> Any:
        ms = [0.9 * m + 0.1 * g for m, g in zip(ms, gs, strict=True)]
        vs = [0.999 * v + 0.001 * g * g for v, g in zip(vs, gs, strict=True)]
        a, b = 1 - 0.9**t, 1 - 0.999**t
        ps = [p - 1e-3 * (m / a) / (np_.sqrt(v / b) + 1e-8) for p, m, v in zip(ps, ms, vs, strict=True)]
        return ps, ms, vs

    g = lib.m.jit(step, donate_argnums=(0, 2, 3))

    def call() -> Any:
        count[0] += 1
        state[0], state[2], state[3] = g(*state, np.float32(count[0]))
        return state

    return call


LARGEST = 16384


def product(kind: str, size: int = 8192) -> Make:
    def make(lib: Any, scale: int) -> Call:
        lib.precision("high" if kind == "tf32" else "highest")
        n = _size(size, scale, 64)
        a, b = (lib.put(numbers(n, n, seed=s), "bfloat16" if kind == "bfloat16" else "") for s in (0, 1))
        g = lib.compile(lambda a, b: a @ b)
        return lambda: g(a, b)

    return make


def _step(lib: Any, model: Any, loss_of: Callable[[Any], Any], small: bool, rate: float) -> Call:
    """Forward, backward and Adam, as a user of either library writes it."""
    more = {"fused": True} if lib.name.startswith("torch") and lib.on_gpu else {}
    opt = lib.m.optim.Adam(model.parameters(), lr=rate, **more)
    compiled = lib.compile(model, small)

    def call() -> Any:
        opt.zero_grad()
        loss = loss_of(compiled)
        loss.backward()
        opt.step()
        return loss

    return call


def _moved(lib: Any, model: Any, dtype: str) -> Any:
    model = model.to(lib.device)
    return model.to(lib.m.bfloat16) if dtype == "bfloat16" else model


def mlp(lib: Any, scale: int) -> Call:
    lib.precision("high")
    nn, functional = lib.m.nn, lib.m.nn.functional
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    x, t = lib.put(numbers(128, 784)), lib.put(np.arange(128) % 10)
    return _step(lib, _moved(lib, model, ""), lambda f: functional.cross_entropy(f(x), t), True, 1e-3)


def mlp_jax(lib: Any, scale: int) -> Call:
    lib.precision("high")
    np_, jax = lib.np, lib.m
    widths = (784, 512, 512, 10)
    params = [(lib.put(numbers(a, b, seed=i, scale=a**-0.5)), lib.put(np.zeros(b, np.float32)))
              for i, (a, b) in enumerate(pairwise(widths))]  # fmt: skip
    x, t = lib.put(numbers(128, 784)), lib.put(np.arange(128) % 10)

    def loss(params: Any) -> Any:
        h = x
        for i, (w, b) in enumerate(params):
            h = h @ w + b
            h = np_.maximum(h, 0) if i < 2 else h
        return -np_.take_along_axis(jax.nn.log_softmax(h), t[:, None], axis=-1).mean()

    def step(params: Any, m: Any, v: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params)
        tree = jax.tree_util.tree_map
        m = tree(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = tree(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
        return value, tree(lambda p, m, v: p - 1e-3 * m / (np_.sqrt(v) + 1e-8), params, m, v), m, v

    zeros = jax.tree_util.tree_map(lambda p: p * 0, params)
    state, g = [params, zeros, zeros], lib.compile(step)

    def call() -> Any:
        value, *state[:] = g(*state)
        return value, state

    return call


WIDTH, HEADS, LAYERS, TIME, BATCH, LETTERS = 768, 12, 12, 1024, 8, 50304


def gpt_model(lib: Any, scale: int) -> tuple[Any, Callable[[Any], Any]]:
    """A model of GPT-2's size (of another scale: a tiny one), and its loss as a function of the model."""
    m = lib.m
    nn, functional = m.nn, m.nn.functional
    width, layers, letters = (WIDTH, LAYERS, LETTERS) if scale == 1 else (HEADS * 4, 1, 64)
    time, batch = (TIME, BATCH) if scale == 1 else (16, 2)

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
            self.out, self.norm2 = nn.Linear(width, width), nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            n, t, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).reshape(n, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.swapaxes(1, 2).reshape(n, t, width))
            return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.token, self.place = nn.Embedding(letters, width), nn.Embedding(time, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)

        def forward(self, tokens: Any, places: Any) -> Any:
            x = self.token(tokens) + self.place(places)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    rng = np.random.default_rng(5)
    tokens, targets = (lib.put(rng.integers(0, letters, (batch, time))) for _ in range(2))
    places = lib.put(np.arange(time))
    flat = targets.reshape(-1)

    def loss_of(f: Any) -> Any:
        return functional.cross_entropy(f(tokens, places).reshape(-1, letters), flat)

    return GPT(), loss_of


def gpt(dtype: str) -> Make:
    """A GPT-2-sized training step: tf32 products, or all of it in bfloat16."""

    def make(lib: Any, scale: int) -> Call:
        lib.precision("high")
        model, loss_of = gpt_model(lib, scale)
        return _step(lib, _moved(lib, model, dtype), loss_of, False, 3e-4)

    return make


def overhead(lib: Any, scale: int) -> Call:
    """1,000 operations on 8 numbers, one after the other."""
    x = lib.put(np.ones(8, np.float32))

    def call() -> Any:
        y = x
        for _ in range(500):
            y = (y + 1.0) * 0.5
        return y

    return call


def _text(text: Make, jax: Make | None = None, cupy: Make | None = None) -> dict[str, Make]:
    others = {"jax.jit": jax, "cupy": cupy}
    return {"text": text, **{name: f for name, f in others.items() if f is not None}}


def _cube(scale: int, n: int = 8192) -> float:
    return 2.0 * _size(n, scale, 64) ** 3


def _ceiling(kind: str, *names: str) -> Work:
    """What the limit of products is taken from: a larger one by the other libraries, whose products are cuBLAS's."""
    makes = dict.fromkeys(names, product(kind, LARGEST))
    return Work(f"matmul {LARGEST}^3 {kind}", makes, "", flops=lambda s: _cube(s, LARGEST), kind=kind)


WORKS: list[Work] = [
    Work("tanh-GELU chain, 256M", _text(gelu, gelu, gelu), "0.90", lambda s: 8 * _size(256 * MILLION, s)),
    Work("sum((a*b+c)^2), 256M", _text(squares, squares, squares), "0.90", lambda s: 12 * _size(256 * MILLION, s)),
    Work("softmax 16384x8192 float32", _text(softmax(""), softmax(""), softmax_cupy), "0.90",
         lambda s: 8 * 8192 * _size(16384, s)),
    Work("softmax 16384x8192 bfloat16", _text(softmax("bfloat16"), softmax("bfloat16")), "0.85",
         lambda s: 4 * 8192 * _size(16384, s)),
    Work("softmax 8x131072 float32", _text(long_softmax, long_softmax), "ahead", lambda s: 64 * _size(131072, s)),
    Work("layernorm + residual, forward", _text(layernorm, layernorm_jax), "0.88",
         lambda s: 12 * 1024 * _size(65536, s)),
    Work("layernorm + residual, both ways", _text(layernorm_grad, layernorm_grad_jax), "0.75",
         lambda s: 20 * 1024 * _size(65536, s)),
    Work("cross-entropy 8192x32768, both ways", _text(cross_entropy, cross_entropy_jax), "0.85",
         lambda s: 8 * 32768 * _size(8192, s)),
    Work("mean and variance over axis 0", _text(statistics, statistics, statistics), "0.85",
         lambda s: 4 * 4096 * _size(65536, s)),
    Work("transposed add, reversed", _text(transposed_add, transposed_add, transposed_add), "0.75",
         lambda s: 12 * _size(16384, s, 64) ** 2),
    Work("Adam, 100 x 1M", _text(adam, adam_jax), "0.85", lambda s: 28 * 100 * _size(MILLION, s)),
    _ceiling("float32", "torch", "jax.jit", "cupy"),
    _ceiling("tf32", "torch", "jax.jit"),
    _ceiling("bfloat16", "torch", "jax.jit"),
    Work("matmul 8192^3 float32", _text(product("float32"), product("float32"), product("float32")), "0.98",
         flops=_cube, kind="float32"),
    Work("matmul 8192^3 tf32", _text(product("tf32"), product("tf32")), "0.98", flops=_cube, kind="tf32"),
    Work("matmul 8192^3 bfloat16", _text(product("bfloat16"), product("bfloat16")), "0.98",
         flops=_cube, kind="bfloat16"),
    Work("MLP step, batch 128", _text(mlp, mlp_jax), "ahead"),
    Work("GPT step, tf32", _text(gpt("")), "ahead", compiled=True),
    Work("GPT step, bfloat16", _text(gpt("bfloat16")), "ahead", compiled=True),
    Work("1,000 tiny operations", {"lazyt": overhead, "torch": overhead}, "5x"),
]  # fmt: skip
