"""Random programs of views, writes and reads, as source text that NumPy and lazyt both run.

`Writer` runs each statement in NumPy as it writes it, so that the next one fits the shapes that are there. What it
picks comes from a function `pick(n)` that gives an integer in [0, n): hypothesis in tests, a seeded generator in a
long search. Smaller picks mean simpler programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Pick = Callable[[int], int]
MAX_SIZE = 200


def ordered(a: Any) -> np.ndarray:
    """A C-contiguous copy: what lazyt takes every new value to be, where NumPy may keep the order of an operand."""
    return np.array(a, order="C", copy=True)


class Writer:
    """Writes a program, statement by statement; `arrays` holds NumPy's values of its names."""

    def __init__(self, pick: Pick) -> None:
        self.pick = pick
        self.lines: list[str] = []
        self.space: dict[str, Any] = {"xp": np, "np": np, "new": ordered, "sync": lambda: None}
        self.names: list[str] = []
        self.read_only: set[str] = set()
        self.count = 0

    # What a statement is made of

    def array(self, name: str) -> np.ndarray:
        a: np.ndarray = self.space[name]
        return a

    def emit(self, line: str) -> None:
        exec(line, self.space)
        self.lines.append(line)

    def define(self, expression: str, read_only: bool = False) -> None:
        name = f"v{self.count}"
        self.count += 1
        self.emit(f"{name} = {expression}")
        if self.array(name).size > MAX_SIZE:
            self.emit(f"del {name}")
            return
        self.names.append(name)
        if read_only:
            self.read_only.add(name)

    def name(self, writable: bool = False) -> str:
        names = [n for n in self.names if not writable or n not in self.read_only]
        return names[-1 - self.pick(len(names))]

    def base(self) -> None:
        shape = tuple((2, 3, 1, 4, 0)[self.pick(5)] for _ in range((1, 2, 3, 0)[self.pick(4)]))
        dtype = ("int64", "int32")[self.pick(2)]
        low = 10 * self.count
        self.define(f"xp.asarray(np.arange({low}, {low + int(np.prod(shape))}, dtype='{dtype}').reshape({shape}))")

    def slice(self, n: int) -> str:
        step = (1, -1, 2, -2, 3)[self.pick(5)]
        start = ("", *range(-n - 1, n + 2))[self.pick(2 * n + 4)]
        stop = ("", *range(-n - 1, n + 2))[self.pick(2 * n + 4)]
        return f"{start}:{stop}" + (f":{step}" if step != 1 else "")

    def key(self, shape: tuple[int, ...], new: bool = True) -> str:
        """A basic key that keeps an array an array in NumPy too."""
        items: list[str] = []
        integers = 0
        for n in shape[: self.pick(len(shape) + 1)]:
            kind = self.pick(4)
            if kind == 1 and n:
                items.append(str(self.pick(2 * n) - n))
                integers += 1
            elif kind == 2:
                items.append(":")
            else:
                items.append(self.slice(n))
            if new and self.pick(8) == 7:
                items.append("None")
        if not items or integers == len(shape):
            items.append("...")
        elif len(items) - items.count("None") == len(shape) and self.pick(8) == 7:
            items.insert(self.pick(len(items) + 1), "...")
        return ", ".join(items)

    def scalar(self) -> str:
        return str((1, 2, 3, -1, 0, 100, 2**31 - 1)[self.pick(7)])

    def like(self, shape: tuple[int, ...], depth: int = 0) -> str:
        """An expression that broadcasts to `shape`: a name, a part of one, or a scalar."""
        fits = []
        for n in self.names:
            s = self.array(n).shape
            if len(s) <= len(shape) and all(a in (1, b) for a, b in zip(s[::-1], shape[::-1], strict=False)):
                fits.append(n)
        kind = self.pick(4)
        if kind == 0 or not fits:
            return self.scalar()
        n = fits[-1 - self.pick(len(fits))]
        if kind == 1 or not self.array(n).ndim:
            return n
        if kind == 2:
            return f"{n}[::-1]"
        return f"({n} + {self.scalar() if depth else self.like(shape, depth + 1)})"

    # Statements

    def view(self) -> None:
        n = self.name()
        shape = self.array(n).shape
        ro = n in self.read_only
        match self.pick(12):
            case 1:
                self.define(f"xp.permute_dims({n}, {self.permutation(len(shape))})", ro)
            case 2:
                self.define(f"xp.reshape({n}, {self.other_shape(shape)})", ro)
            case 3 if shape:
                self.define(f"xp.flip({n}, axis={self.pick(len(shape))})", ro)
            case 4:
                self.define(f"xp.expand_dims({n}, axis={self.pick(len(shape) + 1)})", ro)
            case 5:
                ones = [i for i, d in enumerate(shape) if d == 1]
                if ones:
                    self.define(f"xp.squeeze({n}, axis={ones[self.pick(len(ones))]})", ro)
            case 6 if len(shape) > 1:
                i = self.pick(len(shape))
                self.define(f"{n}.swapaxes({i}, {self.pick(len(shape))})", ro)
            case 7:
                more = ((), (2,), (1,), (0,))[self.pick(4)]
                wide = tuple(3 if d == 1 and self.pick(2) else d for d in shape)
                self.define(f"xp.broadcast_to({n}, {more + wide})", True)
            case 8:
                self.define(f"xp.reshape({n}, -1)", ro)
            case 9 if len(shape) == 2:
                self.define(f"{n}.T", ro)
            case 10 if len(shape) > 1:
                i = self.pick(len(shape))
                self.define(f"xp.moveaxis({n}, {i}, {self.pick(len(shape))})", ro)
            case 11 if len(shape) > 1:
                i, j = self.permutation(len(shape))[:2]
                self.define(f"xp.diagonal({n}, {self.pick(5) - 2}, {i}, {j})", True)
            case _:
                self.define(f"{n}[{self.key(shape)}]", ro)

    def permutation(self, ndim: int) -> tuple[int, ...]:
        rest = list(range(ndim))
        return tuple(rest.pop(self.pick(len(rest))) for _ in range(ndim))

    def other_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Another shape of as many elements: neighbours merged, or one axis split, or a 1 put in."""
        out = list(shape)
        for _ in range(1 + self.pick(2)):
            i = self.pick(max(len(out), 1))
            kind = self.pick(3)
            if kind == 0 and len(out) > 1:
                i = min(i, len(out) - 2)
                out[i : i + 2] = [out[i] * out[i + 1]]
            elif kind == 1 and out and out[i] % 2 == 0:
                out[i : i + 1] = [2, out[i] // 2]
            else:
                out.insert(i, 1)
        return tuple(out)

    def target(self) -> tuple[str, tuple[int, ...]]:
        """What stands on the left of an assignment, and its shape."""
        n = self.name(writable=True)
        key = self.key(self.array(n).shape)
        return f"{n}[{key}]", eval(f"{n}[{key}]", self.space).shape

    def write(self) -> None:
        match self.pick(9):
            case 0:
                left, shape = self.target()
                self.emit(f"{left} = {self.like(shape)}")
            case 1 | 2:
                n = self.name(writable=True)
                self.emit(f"{n} {('+=', '*=', '-=')[self.pick(3)]} {self.like(self.array(n).shape)}")
            case 3 | 4:
                left, shape = self.target()
                self.emit(f"{left} {('+=', '*=', '-=')[self.pick(3)]} {self.like(shape)}")
            case 5:
                self.overlap()
            case 6:
                self.fancy()
            case 7:
                n = self.name(writable=True)
                mask = f"{n} {('>', '<', '==', '!=')[self.pick(4)]} {self.scalar()}"
                self.emit(f"{n}[{mask}] {('=', '+=')[self.pick(2)]} {self.scalar()}")
            case _:
                self.mask()

    def overlap(self) -> None:
        """A value read from where it is written."""
        n = self.name(writable=True)
        shape = self.array(n).shape
        if not shape:
            return
        k = self.pick(3)
        op = ("+=", "=", "*=")[self.pick(3)]
        if k == 0:
            self.emit(f"{n}[1:] {op} {n}[:-1]")
        elif k == 1:
            self.emit(f"{n}[:-1] {op} {n}[1:]")
        else:
            self.emit(f"{n}[...] {op} {n}[::-1]")

    def fancy(self) -> None:
        """A write at an index array; repeated indices only where the value is one scalar."""
        n = self.name(writable=True)
        shape = self.array(n).shape
        if not shape or not shape[0]:
            return
        op = ("=", "+=")[self.pick(2)]
        i = [self.pick(2 * shape[0]) - shape[0] for _ in range(self.pick(3) + 1)]
        if len(shape) > 1 and shape[1] and self.pick(2):
            key = f"{i}, {self.pick(shape[1])}" if self.pick(2) else f"{i}, {self.slice(shape[1])}"
        else:
            key = f"{i}"
        if self.pick(2) or len({k % shape[0] for k in i}) < len(i):
            value = self.scalar()
        else:
            rest = eval(f"{n}[{key}]", self.space).shape
            value = f"({self.like(rest)} + 0)"
        self.emit(f"{n}[{key}] {op} {value}")

    def mask(self) -> None:
        """A write under a mask over the leading axis, or under one that comes from the data."""
        n = self.name(writable=True)
        shape = self.array(n).shape
        if not shape:
            return
        mask = [bool(self.pick(2)) for _ in range(shape[0])]
        op = ("=", "+=")[self.pick(2)]
        self.emit(f"{n}[np.array({mask}, bool)] {op} {self.like(shape[1:])}")

    def read(self) -> None:
        n = self.name()
        shape = self.array(n).shape
        match self.pick(6):
            case 0:
                self.define(f"new({n} + {self.like(shape)})")
            case 1:
                self.define(f"new({n} * {self.like(shape)})")
            case 2:
                self.define(f"new(xp.asarray({n}, copy=True))")
            case 3 if shape:
                self.define(f"new({n}.sum(axis={self.pick(len(shape))}, dtype='int64'))")
            case 4 if shape and shape[0]:
                i = [self.pick(2 * shape[0]) - shape[0] for _ in range(self.pick(3) + 1)]
                self.define(f"new({n}[{i}])")
            case 5 if shape:
                self.define(f"new(xp.concat([{n}, {n}[::-1]], axis=0))")
            case _:
                self.define(f"new({n}[{self.key(shape, new=False)}] - 1)")

    def program(self, length: int, syncs: bool) -> str:
        for _ in range(1 + self.pick(2)):
            self.base()
        for _ in range(length):
            kind = self.pick(10)
            if kind < 4:
                self.view()
            elif kind < 8:
                if any(n not in self.read_only for n in self.names):
                    self.write()
            elif kind == 8:
                self.read()
            elif len(self.names) > 2 and self.pick(2):
                n = self.names.pop(self.pick(len(self.names)))
                self.read_only.discard(n)
                self.emit(f"del {n}")
                if not any(m not in self.read_only for m in self.names):
                    self.base()
            elif syncs:
                self.emit("sync()")
        return "\n".join(self.lines)
