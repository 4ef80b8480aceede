"""Random bodies of kernels, as text that Python can call too."""

from __future__ import annotations

import linecache
import math
import random
from typing import Any

import numpy as np

import lazyt as lt

_FUNCTIONS = ("np.sin", "np.tanh", "abs", "np.sqrt", "np.exp", "np.floor")


class Writer:
    """Writes the text of one kernel `f(i, j, /, x, y, c, n, g, u)`.

    x is (6, 5), y (5,), c a float, n an int of 2, g bools (5,) and u uint8 (5,).
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.floats = ["c"]
        self.loops: list[str] = []
        self.bounds = self.draw.choice(("zero", "clamp", "wrap"))

    def text(self) -> str:
        lines = ["def f(i, j, /, x, y, c, n, g, u):"]
        for k in range(self.draw.randint(1, 4)):
            lines += self.statement(f"v{k}", "    ")
            self.floats.append(f"v{k}")
        last = ", ".join(self.number(3) for _ in range(self.draw.choice((1, 1, 2))))
        return "\n".join([*lines, f"    return x[i, j] * 0 + {last}"]) + "\n"

    def statement(self, name: str, pad: str) -> list[str]:
        match self.draw.randrange(6):
            case 0:
                return [
                    f"{pad}if {self.condition(2)}:", f"{pad}    {name} = {self.number(2)}", f"{pad}else:",
                    f"{pad}    {name} = {self.number(2)}",
                ]  # fmt: skip
            case 1:
                start, op = self.draw.choice((("0.0", "+="), ("1.0", "*="), ("0.5", "-=")))
                bound = self.draw.choice(("n", "3", "x.shape[1]", "1, 4"))
                self.loops.append("k")
                inner = f"0.5 * {self.number(2)}"
                test = f"if {self.condition(1)}: " if self.draw.random() < 0.4 else ""
                self.loops.pop()
                return [
                    f"{pad}{name} = {start}",
                    f"{pad}for k in range({bound}):",
                    f"{pad}    {test}{name} {op} {inner}",
                ]
            case 2:
                self.loops.append("k")
                fold = self.draw.choice(("sum", "max", "min"))
                inner = self.number(2)
                self.loops.pop()
                return [f"{pad}{name} = {fold}({inner} for k in range({self.draw.choice(('n', 'y.shape[0]'))}))"]
            case 3 if len(self.floats) > 1:
                kept = self.draw.choice(self.floats[1:])
                return [f"{pad}{name} = {self.number(2)}", f"{pad}if {self.condition(1)}:", f"{pad}    {name} = {kept}"]
            case 4:
                return [f"{pad}{name} = {self.whole()} * 0.5"]
            case _:
                return [f"{pad}{name} = {self.number(3)}"]

    def whole(self) -> str:
        """A fold of bools or of narrow integers over a short or a long range, or an `int(...)`."""
        d = self.draw
        if d.random() < 0.3:
            return f"int({d.choice(('g', 'u'))}[{self.index(0)}]) * {d.randint(2, 300)}"
        self.loops.append("k")
        fold = d.choice(("sum", "sum", "math.prod", "np.sum", "max", "min"))
        inner = d.choice((f"g[{self.index(0)}]", f"u[{self.index(0)}]", self.condition(1)))
        self.loops.pop()
        # A product of more uint8 than these is beyond what a float64 holds.
        bounds = ("n", "1", "4") if fold == "math.prod" else ("n", "1", "4", "64", "65", "y.shape[0]")
        test = f" if {self.condition(0)}" if d.random() < 0.3 and fold not in ("max", "min") else ""
        return f"{fold}({inner} for k in range({d.choice(bounds)}){test})"

    def index(self, depth: int) -> str:
        at = self.draw.choice(["i", "j", *self.loops * 2])
        match self.draw.randrange(6):
            case 0:
                return f"{at} + {self.draw.randint(1, 3)}"
            case 1:
                return f"{at} - {self.draw.randint(1, 3)}"
            case 2:
                return f"{self.draw.choice((2, -1))} * {at}"
            case 3:
                return self.draw.choice((f"{at} // 2", f"({at} * {at}) % 5", f"{at} + n", "i + j", "2"))
            case _:
                return at

    def number(self, depth: int) -> str:
        d = self.draw
        if depth == 0 or d.random() < 0.15:
            return d.choice([*self.floats, f"{d.uniform(-2, 2):.2f}", "i * 0.5", f"x[{self.index(0)}, {self.index(0)}]",
                             f"y[{self.index(0)}]", f"x[{self.index(0)}, {self.index(0)}]"])  # fmt: skip
        match d.randrange(7):
            case 0:
                f = d.choice(_FUNCTIONS)
                inner = self.number(depth - 1)
                within = {
                    "np.sqrt": f"abs({inner})",
                    "np.exp": f"min({inner}, 3.0)",
                    "np.sin": f"max(min({inner}, 9.0), -9.0)",
                }
                return f"{f}({within.get(f, inner)})"
            case 1:
                return f"({self.number(depth - 1)} if {self.condition(1)} else {self.number(depth - 1)})"
            case 2:
                return f"{d.choice(('max', 'min'))}({self.number(depth - 1)}, {self.number(depth - 1)})"
            case _:
                return f"({self.number(depth - 1)} {d.choice('+-*')} {self.number(depth - 1)})"

    def condition(self, depth: int) -> str:
        d = self.draw
        if depth > 0 and d.random() < 0.4:
            return f"({self.condition(depth - 1)} {d.choice(('and', 'or'))} {self.condition(depth - 1)})"
        return d.choice(
            (
                f"i < {d.randint(0, 5)}", "i > j", f"{self.number(1)} > {self.number(1)}", "0 < j < y.shape[0] - 1",
                "n == 2", f"not j == {d.randint(0, 4)}",
            )
        )  # fmt: skip


def random_kernel(seed: int) -> tuple[str, Any]:
    """The text and the kernel."""
    w = Writer(seed)
    text = w.text()
    name = f"<random kernel {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"np": np, "math": math, "__name__": "random_kernels"}
    exec(compile(text, name, "exec"), space)
    return f"bounds={w.bounds}\n{text}", lt.kernel(bounds=w.bounds)(space["f"])
