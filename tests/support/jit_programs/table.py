"""The table of small programs with state, and what they give."""

from __future__ import annotations

import collections
import dataclasses
import random
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import lazyt as lt

# A program: given `jit`, or the function that gives its argument back, it makes its state, and what is called with the
# number of the turn.
Jit = Callable[[Any], Any]
Program = Callable[[Jit], Callable[[int], Any]]
PROGRAMS: dict[str, Program] = {}
TURNS = 6


def program(make: Program) -> Program:
    """Add a program to the table."""
    name = make.__name__.strip("_").replace("_", " ")
    # NOTE: a collector of doctests imports a module of programs once more.
    assert name not in PROGRAMS or PROGRAMS[name].__code__.co_filename == make.__code__.co_filename
    PROGRAMS[name] = make
    return make


def plain(x: Any) -> Any:
    """A result that can be compared."""
    if isinstance(x, lt.Tensor):
        return x.detach().tolist()
    if isinstance(x, np.ndarray):
        return x.tolist()
    if isinstance(x, dict):
        return type(x).__name__, [(plain(k), plain(v)) for k, v in x.items()]
    if isinstance(x, list | tuple | collections.deque):
        return type(x).__name__, [*map(plain, x)]
    if isinstance(x, Iterator):
        return "iterator", [*map(plain, x)]
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return type(x).__name__, [plain(getattr(x, f.name)) for f in dataclasses.fields(x)]
    return x if isinstance(x, int | float | str | bytes | set | frozenset | type(None)) else type(x).__name__


def outcome(make: Program, jit: Jit) -> list[Any]:
    """What the calls give."""
    random.seed(3)
    np.random.seed(3)
    call = make(jit)
    return [plain(call(turn)) for turn in range(TURNS)]


def one() -> Any:
    """An argument."""
    return lt.ones(2)


def calls(jit: Jit, f: Callable[..., Any], change: Callable[[int], Any] = lambda turn: None) -> Callable[[int], Any]:
    """A program that calls one function of one tensor, and changes something before each call."""
    jitted = jit(f)

    def call(turn: int) -> Any:
        change(turn)
        return jitted(one())

    return call


def user_module(name: str) -> Any:
    made: Any = types.ModuleType(name)
    made.scale = 1
    return made


def given(jit: Jit, f: Callable[..., Any], *given: Any) -> Callable[[int], Any]:
    jitted = jit(f)
    return lambda turn: jitted(one(), given[turn % len(given)])
