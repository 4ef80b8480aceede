"""Small programs with hooks: gradients do not depend on where a program syncs, and are PyTorch's where that is there.

A program is statements on leaves of float64: operations, copies, views, writes, hooks that scale, return None or look,
modules with hooks, gradients that are differentiated again, and backwards that keep their graph. `sync()` is one of
lazyt; a program may also be synced after each statement, or at random ones. It ends at the statement that the
reference refuses.
"""

from __future__ import annotations

import importlib.util
import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.testing.kinds import register
from lazyt.testing.statements import Failure
from tests.support.fuzz.checked_lines import CheckedLines

Array = np.ndarray[Any, Any]
NEVER, EACH, RANDOM = "synced nowhere", "synced after each statement", "synced at random places"
START, UNSYNCED = "x0 = asked(", ", synced=False"
# Of the largest value.
FAR = 1e-9
OPERATIONS = (
    "{a} * {b}", "{a} * {b}", "{a} + {b}", "{a} - {b}", "{a} * {a}", "{a} * 2", "{a} + 1", "{a} * 1", "{a} + 0",
    "xp.exp(-{a} * {a})", "xp.exp(-{a} * {b})", "xp.sin({a})", "xp.exp({a} * 0.3)", "xp.sqrt({a} * {a} + 1)",
    "{a} / ({b} * {b} + 1)", "xp.tanh({a})", "{a} * {b}.sum()", "xp.where({b} > 0, {a}, {a} * 2)", "squared({a})",
    "both({a}, {b})[0]", "{a}.detach() * {b}",
)  # fmt: skip
# The same values once more. NOTE: a view that was made before a sync is another value behind it, so programs with views
# are not synced.
COPIES = ("{a}.clone()", "{a}.clone()", "xp.concatenate([{a}])", "{a} * 1", "{a} + 0", "written({a})")
VIEWS = (
    *COPIES, "{a}[...]", "{a}.reshape(2)", "{a}.reshape(-1)", "{a}[:1]", "{a}[1:]", "xp.flip({a}, (0,)) * 1",
    "xp.stack([{a}, {b}])[0]", "{a}.reshape(2, 1)[:, 0]",
)  # fmt: skip
HOOKS = (
    "lambda g: g * 2", "lambda g: g * 2", "lambda g: None", "lambda g: None", "lambda g: g * 3", "lambda g: g * g",
    "lambda g: g * x0", "note", "look", "lambda g: -g", "lambda g: g.clone()",
)  # fmt: skip
MODULES = (
    "xp.nn.Linear(2, 2, bias=False)", "Body(lambda x: x * x)", "Body(lambda x: xp.exp(-x * x))",
    "Body(lambda x: x + 0)", "Body(lambda x: x.clone())", "xp.nn.Tanh()",
)  # fmt: skip
# NOTE: in a second derivative, where PyTorch passes no gradient on to what a module gave, lazyt passes zeros on, and
# PyTorch does not call hooks of the last two kinds: then only the first three are drawn.
MODULE_HOOKS = (
    "register_full_backward_hook(lambda m, given, out: None)",
    "register_full_backward_pre_hook(lambda m, out: (out[0] * 3,))",
    "register_full_backward_pre_hook(lambda m, out: None)",
    "register_full_backward_hook(lambda m, given, out: (given[0] * 2,))",
    "register_full_backward_hook(lambda m, given, out: (note(given[0]), None)[1])",
)  # fmt: skip


class Program:
    """Writes a program."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.views = rng.random() < 0.4
        self.keeps = rng.random() < 0.3
        self.lines = [f"{START}{self._number()}, {self._number()}{UNSYNCED if self.views else ''})"]
        self.names, self.count, self.removable = ["x0"], 0, 0
        if rng.random() < 0.5:
            self.lines.append(f"x1 = asked({self._number()}, {self._number()})")
            self.names.append("x1")
        self.leaves = [*self.names]
        for _ in range(rng.randint(3, 11)):
            rng.choice(MOVES)(self)
        for _ in range(rng.randint(0, 2)):
            self.gradient()
            if rng.random() < 0.5:
                rng.choice(MOVES)(self)
        if rng.random() < 0.3:
            self.backward()
            if rng.random() < 0.5:
                rng.choice(MOVES)(self)
        retain = ", retain_graph=True" if rng.random() < 0.2 else ""
        self.lines.append(f"backward({self._loss()}{retain})")

    def _number(self) -> float:
        return round(self.rng.uniform(-1.5, 1.5), 1) or 0.5

    def _any(self) -> str:
        return self.rng.choice([*self.names, *self.names[-3:]])

    def _loss(self) -> str:
        some = {self._any(), self.names[-1]} if self.rng.random() < 0.5 else {self.names[-1]}
        return " + ".join(f"({n} * {n}).sum()" if self.rng.random() < 0.3 else f"{n}.sum()" for n in sorted(some))

    def _define(self, text: str) -> None:
        self.count += 1
        self.lines.append(f"v{self.count} = {text}")
        self.names.append(f"v{self.count}")

    def operation(self) -> None:
        """A value of one or two others."""
        self._define(self.rng.choice(OPERATIONS).format(a=self._any(), b=self._any()))

    def same(self) -> None:
        """A value once more, mostly with a hook."""
        self._define(self.rng.choice(VIEWS if self.views else COPIES).format(a=self._any(), b=self._any()))
        if self.rng.random() < 0.6:
            self._hook(self.names[-1])

    def _hook(self, name: str) -> None:
        hook = self.rng.choice([x for x in HOOKS if not (self.views and x == "look")])
        if self.rng.random() < 0.2:
            self.removable += 1
            self.lines.append(f"hook{self.removable} = {name}.register_hook({hook})")
        else:
            self.lines.append(f"{name}.register_hook({hook})")

    def hook(self) -> None:
        """One or several on a value."""
        name = self._any()
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            self._hook(name)

    def remove(self) -> None:
        """Take a hook off again."""
        if self.removable:
            self.lines.append(f"hook{self.rng.randint(1, self.removable)}.remove()")

    def retain(self) -> None:
        """Keep the gradient of a value."""
        # NOTE: PyTorch's `grad` leaves gradients in what keeps its own, lazyt's does not.
        if self.keeps:
            self.lines.append(f"retain({self._any()})")

    def sync(self) -> None:
        """A sync."""
        if not self.views:
            self.lines.append(self.rng.choice(["sync()", "sync()", f"note({self._any()})", f"look({self._any()})"]))

    def write(self) -> None:
        """A write into a value."""
        name = self._any()
        # NOTE: behind a sync, or of what was differentiated, lazyt refuses some that PyTorch does not look at.
        if self.views and not any("slope" in line for line in self.lines) and name not in self.leaves:
            text = self.rng.choice(["{a} *= 2", "{a} += {b}", "{a}[...] = {b}", "{a}[:1] = {b}[:1]", "{a}[:1] *= 3"])
            self.lines.append(text.format(a=name, b=self._any()))

    def module(self) -> None:
        """A module with hooks, called."""
        self.count += 1
        m = f"m{self.count}"
        self.lines.append(f"{m} = fixed({self.rng.choice(MODULES)})")
        for _ in range(self.rng.choice([1, 1, 2])):
            hooks = MODULE_HOOKS if self.keeps else MODULE_HOOKS[:3]
            self.lines.append(f"{m}.{self.rng.choice(hooks)}")
        self._define(f"{m}(pair({self._any()}))")

    def gradient(self) -> None:
        """A gradient that can be differentiated, by a leaf or by a value on the way."""
        if self.keeps:
            return
        by = self.rng.choice([*self.leaves, *self.leaves, self._any()])
        self._define(f"slope({self._loss()}, {by})")

    def backward(self) -> None:
        """A backward that keeps its graph."""
        how = ["retain_graph=True", "retain_graph=True", "create_graph=True"]
        if not self.keeps:
            how.append("inputs=[x0], retain_graph=True")
        self.lines.append(f"backward({self._loss()}, {self.rng.choice(how)})")


MOVES: tuple[Callable[[Program], None], ...] = (
    *[Program.operation] * 5, *[Program.same] * 3, *[Program.hook] * 4, Program.remove, Program.retain,
    Program.sync, Program.sync, Program.write, Program.module, Program.gradient,
)  # fmt: skip


def space_for(xp: Any, notes: list[Any], kept: list[Any]) -> dict[str, Any]:
    """What the statements of a program name, of one of the libraries."""

    class Square(xp.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 2 * g * ctx.saved_tensors[0]

    class Both(xp.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * y, x + y

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            x, y = ctx.saved_tensors
            return _sum_to(g * y + h, x), _sum_to(g * x + h, y)

    class Body(xp.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, f: Callable[[Any], Any]) -> None:
            super().__init__()
            self.f = f

        def forward(self, x: Any) -> Any:
            return self.f(x)

    def fixed(module: Any) -> Any:
        module = module.double()
        for p in module.parameters():
            xp.nn.init.constant_(p, 0.4)
        return module

    def note(x: Any) -> None:
        notes.append(x.detach().clone())

    def look(x: Any) -> None:
        notes.append(np.asarray(x.detach().tolist()))

    def slope(y: Any, x: Any) -> Any:
        (g,) = xp.autograd.grad(y, [x], create_graph=True, allow_unused=True)
        return x * 0 if g is None else g

    def written(x: Any) -> Any:
        z = xp.zeros(x.shape, dtype=xp.float64)
        z[...] = x
        return z

    def retain(x: Any) -> None:
        x.retain_grad()
        kept.append(x)

    return {
        "xp": xp, "Body": Body, "squared": Square.apply, "both": Both.apply, "fixed": fixed, "note": note, "look": look,
        "slope": slope, "written": written, "sync": lt.sync if xp is lt else lambda: None,
        "asked": lambda *xs, synced=True: xp.asarray([*xs], dtype=xp.float64).requires_grad_(),
        "pair": lambda x: x + xp.zeros(2, dtype=xp.float64),
        "retain": retain,
        "backward": lambda y, **how: y.backward(**how),
    }  # fmt: skip


def _sum_to(g: Any, x: Any) -> Any:
    return g if g.shape == x.shape else g.sum(0, keepdims=True)


def results(
    codes: Sequence[Any], xp: Any, way: str, most: int | None = None
) -> tuple[int, Exception | None, dict[str, Array], list[Array]]:
    """How many statements ran, the error that ended that, the values and gradients there are, and what hooks noted."""
    notes: list[Any] = []
    kept: list[Any] = []
    space = space_for(xp, notes, kept)
    known = {*space}
    choose = random.Random(len(codes))
    error, n = None, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for code in codes[:most]:
            try:
                exec(code, space)
            except Exception as e:  # noqa: BLE001 - compared with what the others do
                error = e
                break
            n += 1
            if xp is lt and (way == EACH or (way == RANDOM and choose.random() < 0.4)):
                lt.sync()
        found: dict[str, Array] = {}
        for name, x in space.items():
            if name not in known and hasattr(x, "requires_grad") and hasattr(x, "shape"):
                found[name] = np.asarray(x.detach().tolist())
                if x.requires_grad and (x.is_leaf or any(x is y for y in kept)):
                    found[f"{name}.grad"] = np.asarray(0.0 if x.grad is None else x.grad.detach().tolist())
        noted = [np.asarray(x if isinstance(x, np.ndarray) else x.tolist()) for x in notes]
    return n, error, found, noted


def check_hooks(lines: Sequence[str] | str) -> Failure | None:
    """Run a program in each way: what differs, or None. SyntaxError for what is no program."""
    lines = lines.splitlines() if isinstance(lines, str) else lines
    codes = [compile(line, "<program>", "exec") for line in lines]
    ways = [NEVER] if UNSYNCED in lines[0] else [NEVER, EACH, RANDOM]
    if importlib.util.find_spec("torch") is not None:
        xp, way = importlib.import_module("torch"), "PyTorch"
    else:
        xp, way = lt, ways.pop(0)
    most, _, want, noted = results(codes, xp, way)
    if most < len(codes):
        most, _, want, noted = results(codes, xp, way, most)
    largest = max((float(np.abs(x).max(initial=0)) for x in want.values()), default=0.0)
    if not np.isfinite(largest) or largest > 1e6:
        return None
    for way in ways:
        n, error, found, seen = results(codes, lt, way, most)
        if error is not None:
            name = type(error).__name__
            return Failure(f"hooks, {way}: raises {name}", "", f"{lines[n]}: {name}: {error}")
        for name, x in want.items():
            y = found.get(name)
            if y is None:
                return Failure(f"hooks, {way}: values", name, f"{name} is none")
            if not np.allclose(x, y, rtol=FAR, atol=FAR * max(largest, 1)):
                return Failure(f"hooks, {way}: values", name, f"{name} is {y.tolist()}, expected {x.tolist()}", x, y)
        if (message := _differ(noted, seen)) is not None:
            return Failure(f"hooks, {way}: calls", "", message)
    return None


def _differ(want: list[Array], got: list[Array]) -> str | None:
    """How far hooks saw others, in any order; zeros are what PyTorch does not pass on."""
    some, others = (sorted(tuple(x.ravel().round(7) + 0.0) for x in xs if x.any()) for xs in (want, got))
    if len(some) != len(others):
        return f"hooks saw {others}, expected {some}"
    same = all(len(a) == len(b) and np.allclose(a, b, rtol=1e-5, atol=1e-5) for a, b in zip(some, others, strict=True))
    return None if same else f"hooks saw {others}, expected {some}"


class Hooks(CheckedLines):
    """Small programs with hooks."""

    name = "hooks"
    agrees = "itself synced elsewhere, and with PyTorch where that is there"
    start, fault = START, "a program with hooks whose gradients depend on where it syncs, or are others than PyTorch's"
    checked, written = staticmethod(check_hooks), Program


register(Hooks(), 41)
