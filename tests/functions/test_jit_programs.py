"""Small programs with state that `jit` must not freeze, and ordinary functions that it must remember."""

# ruff: noqa: PYI024, RUF015 - as people write

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import itertools
import logging
import math
import random
import time
import typing
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from tests.support.jit_programs import PROGRAMS, outcome
from tests.support.jitted import Counted, same, settled


@pytest.mark.filterwarnings("ignore:jit", "ignore:coroutine")
@pytest.mark.parametrize("name", PROGRAMS)
def test_six_calls_are_six_plain_calls(name: str) -> None:
    """Each on state of its own; also where a small function is not called plainly instead."""
    make = PROGRAMS[name]
    wanted = outcome(make, lambda f: f)
    assert outcome(make, lambda f: Counted(f).jitted) == wanted
    assert outcome(make, lt.jit) == wanted


# --- ordinary code is remembered

ORDINARY: dict[str, Callable[[], Callable[..., Any]]] = {}
X = lt.asarray(np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4))


def ordinary(make: Callable[[], Callable[..., Any]]) -> Callable[[], Callable[..., Any]]:
    """Add what makes a function of a 6 x 4 tensor to the table."""
    ORDINARY[make.__name__.strip("_").replace("_", " ")] = make
    return make


MODULES: dict[str, Callable[[], Any]] = {
    "linear": lambda: nn.Linear(4, 3),
    "mlp": lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)),
    "batch norm": lambda: nn.BatchNorm1d(4).eval(),
    "dropout at rest": lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval(),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
    "attention": lambda: _Attention(),
    "transformer": lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).eval(),
    "lstm": lambda: nn.LSTM(4, 3),
    "blocks": lambda: _Blocks(),
    "configured": lambda: _Configured(_Config(3, "gelu", _Mode.MEAN)),
    "agent": lambda: _Agent(),
}


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(4, 12)
        self.heads, self.scale = 2, 1 / math.sqrt(2)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).reshape(6, 3, self.heads, 2).swapaxes(0, 2).swapaxes(0, 1)
        return lt.softmax(q @ k.swapaxes(-1, -2) * self.scale, axis=-1) @ v


class _Blocks(nn.Module):
    """A residual network by names, lists and comprehensions."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.norms = nn.ModuleDict({"a": nn.LayerNorm(4), "b": nn.Identity()})
        for i in range(2):
            setattr(self, f"layer{i}", nn.Linear(4, 4))
        self.register_buffer("mask", lt.ones(4))
        self.gain = nn.Parameter(lt.ones(4))
        self.act = lt.tanh
        self.verbose = False

    def forward(self, x: Any) -> Any:
        x = x.to(next(iter(self.parameters())).device)
        for i, block in enumerate(self.blocks):
            x = x + self.act(block(x)) * (i + 1)
        x = functools.reduce(lambda h, i: getattr(self, f"layer{i}")(h), range(2), x)
        if self.verbose:
            print("x", x.shape)
        return sum(norm(x) * self.gain for _, norm in sorted(self.norms.items())) * self.mask


class _Mode(enum.Enum):
    MEAN = "mean"
    SUM = "sum"


@dataclasses.dataclass
class _Config:
    depth: int
    act: str
    mode: _Mode
    extra: dict[str, float] = dataclasses.field(default_factory=lambda: {"eps": 1e-5})


class _Configured(nn.Module):
    ACTS = {"gelu": nn.functional.gelu, "relu": nn.functional.relu}  # noqa: RUF012 - as people write it

    def __init__(self, config: _Config) -> None:
        super().__init__()
        self.config = config
        self.proj = nn.Linear(4, 4)

    @property
    def eps(self) -> float:
        return self.config.extra["eps"]

    @staticmethod
    def pooled(x: Any, mode: _Mode) -> Any:
        match mode:
            case _Mode.MEAN:
                return x.mean(axis=0)
            case _:
                return x.sum(axis=0)

    def forward(self, x: Any) -> Any:
        if not isinstance(x, lt.Tensor) or x.ndim != 2:
            raise TypeError(f"a matrix is required, not {type(x).__name__} of {x.shape}")
        for _ in range(self.config.depth):
            x = self.ACTS[self.config.act](self.proj(x)) + self.eps
        return self.pooled(x, self.config.mode)


class _Agent:
    """Something with state that the policy does not read."""

    def __init__(self) -> None:
        self.rng, self.random = np.random.default_rng(3), random.Random(3)
        self.history, self.log = np.zeros((100, 100)), logging.getLogger("agent")
        self.net, self.seen = nn.Linear(4, 4), itertools.count()

    def explore(self) -> float:
        print(self.log, next(self.seen), time.time())
        return float(self.rng.normal() + self.history[0, 0])

    def __call__(self, x: Any) -> Any:
        return lt.tanh(self.net(x)).argmax(axis=1)


@ordinary
def _helpers_and_constants():
    scale, shift = 2.0, [1.0, 3.0]
    mean, std = np.float32([0.1, 0.2, 0.3, 0.4]), np.full(4, 2.0, np.float32)

    def normed(x, eps=1e-6):
        return (x - mean) / (std + eps)

    return lambda x: normed(x) * scale + shift[-1] * math.pi + np.pi


@ordinary
def _numpy_names():
    return lambda x: np.tanh(x) + np.float32(2) * np.sqrt(np.abs(x)).sum(axis=0)


@ordinary
def _loops_and_comprehensions():
    weights = {"a": lt.ones(4), "b": lt.full(4, 2.0)}

    def f(x):
        rows = [x[i] * w for i, (_, w) in zip(range(3), itertools.cycle(weights.items()), strict=False)]
        rows += [r * 2 for r in reversed(rows) if r.shape[0] == 4]
        total = {name: sum(r * k for k, r in enumerate(rows, 1)) for name in weights}
        while len(total) > 1:
            total.popitem()
        return [*total.values()][0], max(r.ndim for r in rows)

    return f


@ordinary
def _errors_that_are_caught():
    def f(x):
        try:
            return x @ x
        except lt.errors.ShapeError:
            return x @ x.mT
        finally:
            pass

    return f


@ordinary
def _gradient_step():
    params = {"w": lt.ones((4, 3)), "b": lt.zeros(3)}

    def loss(p, x):
        return ((x @ p["w"] + p["b"]) ** 2).mean()

    def f(x):
        value, grads = lt.value_and_grad(loss)(params, x)
        return value, {k: p - 0.1 * grads[k] for k, p in params.items()}

    return f


@ordinary
def _functional_adam():
    def loss(w, x):
        return lt.tanh(x @ w).sum()

    @dataclasses.dataclass(frozen=True)
    class Settings:
        lr: float = 1e-3
        betas: tuple[float, float] = (0.9, 0.999)

    state = {"w": lt.ones((4, 2)), "m": lt.zeros((4, 2)), "v": lt.zeros((4, 2))}
    settings = Settings()

    def f(x):
        g, (b1, b2) = lt.grad(loss)(state["w"], x), settings.betas
        m, v = b1 * state["m"] + (1 - b1) * g, b2 * state["v"] + (1 - b2) * g * g
        return state["w"] - settings.lr * m / (lt.sqrt(v) + 1e-8), m, v

    return f


@ordinary
def _transformations():
    return lambda x: (
        lt.vmap(lambda r: r / r.sum())(x), lt.jvp(lt.sin, (x,), (x,))[1], lt.grad(lambda y: (y**3).sum())(x)
    )  # fmt: skip


@ordinary
def _modes():
    w = lt.ones((4, 4)).requires_grad_()

    def f(x):
        with lt.no_grad():
            scale = (x @ w).mean()
        with lt.amp.autocast("cpu", lt.bfloat16):
            y = x @ w
        return y * scale

    return f


@ordinary
def _named_tuples():
    State = collections.namedtuple("State", "h c")

    def cell(x, s):
        return State(lt.tanh(x + s.h), s.c * 0.5 + x)

    return lambda x: functools.reduce(lambda s, _: cell(x, s), range(4), State(x, x))._asdict()["h"]


@ordinary
def _typed_named_tuples():
    class State(typing.NamedTuple):
        h: Any
        n: int = 2

    return lambda x: State(x * State(x).n)


@ordinary
def _dataclasses_inside():
    @dataclasses.dataclass
    class Pair:
        a: Any
        b: Any = None

        def total(self):
            return self.a + (0 if self.b is None else self.b)

    return lambda x: dataclasses.replace(Pair(x), b=x * 2).total()


@ordinary
def _partials_and_caches():
    @functools.lru_cache
    def table(n):
        return [1.0 / (k + 1) for k in range(n)]

    by = functools.partial(lt.clip, min=-0.5, max=0.5)
    return lambda x: by(x) * sum(table(4))


@ordinary
def _classes():
    class Base:
        factor = 2.0

        def __call__(self, x):
            return self.run(x) * self.factor

        def run(self, x):
            return x

    class Child(Base):
        __slots__ = ("k",)

        def __init__(self, k):
            self.k = k

        def run(self, x):
            return super().run(x) + self.k

        @classmethod
        def make(cls, k):
            return cls(k)

    return Child.make(3)


@ordinary
def _names_of_pytorch():
    import lazyt.torch as torch

    layer = torch.nn.Linear(4, 4)
    return lambda x: torch.cat([torch.relu(layer(x)), torch.sigmoid(x)], dim=-1).softmax(-1)


@ordinary
def _imports_of_libraries_inside():
    def f(x):
        import math as m

        from lazyt.nn import functional

        return functional.relu(x) * m.sqrt(4)

    return f


@ordinary
def _texts():
    names = ["a", "b"]

    def f(x):
        found = {f"{n}:{i}".upper(): x * i for i, n in enumerate(names)}
        return found["A:0"] + found[" ".join(["B:1"]).strip()]

    return f


@ordinary
def _views_and_writes():
    def f(x):
        y = x + 0
        y[1:, ::2] += y[:-1, ::2]
        y *= 2
        return y.T.reshape(-1)[:7]

    return f


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_functions_are_remembered(name: str) -> None:
    """The results are those of the function, and none of its Python runs."""
    found, wanted, ran = settled(ORDINARY[name](), lambda: [(X,)])
    same(found, wanted)
    assert ran == 0


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_remembered(name: str) -> None:
    found, wanted, ran = settled(MODULES[name](), lambda: [(X[None] if name == "transformer" else X,)])
    same(found, wanted)
    assert ran == 0
