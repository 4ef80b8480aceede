"""Recursion, transformations, and functions that a function finds in other ways."""

# ruff: noqa: FURB192, RUF015 - as people write

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import itertools
import string
import types
import typing
from typing import Any

import lazyt as lt
from tests.support.jit_programs.table import calls, one, program


@program
def _recursion(jit):
    f = jit(lambda x, n: x if n == 0 else f(x + 1, n - 1))
    return lambda turn: f(one(), 150 + turn // 2)


@program
def _deep_recursion(jit):
    f = jit(lambda x, n: x if n == 0 else f(x, n - 1))
    return lambda turn: f(one(), 700)


@program
def _deep_recursion_of_tensors(jit):
    left = [0]

    def step(x):
        left[0] -= 1
        return x if left[0] < 0 else f(x + 1)

    f = jit(step)

    def call(turn):
        left[0] = 300
        return f(one())

    return call


@program
def _mutual_recursion(jit):
    even = jit(lambda x, n: x if n == 0 else odd(x + 1, n - 1))
    odd = jit(lambda x, n: x if n == 0 else even(x * 2, n - 1))
    return lambda turn: even(one(), 20)


@program
def _single_dispatch(jit):
    n = [1]

    @functools.singledispatch
    def by(v, x):
        return x

    @by.register
    def _(v: int, x):
        return x * n[0]

    return calls(jit, lambda x: by(1, x), lambda turn: n.__setitem__(0, turn // 2))


@program
def _method_that_is_registered_later(jit):
    @functools.singledispatch
    def by(v, x):
        return x

    def change(turn):
        if turn == 3:
            by.register(int, lambda v, x: x * 9)

    return calls(jit, lambda x: by(1, x), change)


@program
def _context_manager_of_the_user(jit):
    depth = [0]

    @contextlib.contextmanager
    def deeper():
        depth[0] += 1
        yield depth[0]

    def f(x):
        with deeper() as d:
            return x * d

    return calls(jit, f)


@program
def _transformation_made_outside(jit):
    n = [1.0]
    g = lt.grad(lambda x: (x * x * n[0]).sum())
    return calls(jit, lambda x: g(x), lambda turn: n.__setitem__(0, turn // 2))


@program
def _vmap_made_outside(jit):
    n = [1.0]
    g = lt.vmap(lambda v: v * n[0])
    return calls(jit, lambda x: g(x), lambda turn: n.__setitem__(0, turn // 2))


@program
def _jitted_function_inside(jit):
    it = itertools.count(1)
    inner = jit(lambda x: x * next(it))
    return calls(jit, lambda x: inner(x) + 1)


@program
def _jitted_function_inside_that_reads_a_list(jit):
    n = [1]
    inner = jit(lambda x: x * n[0])
    return calls(jit, lambda x: inner(x) + 1, lambda turn: n.__setitem__(0, turn // 2))


@program
def _pattern_of_a_class(jit):
    @dataclasses.dataclass
    class Steps:
        it: Any

    s = Steps(itertools.count(1))

    def f(x):
        match s:
            case Steps(it=found):
                return x * next(found)
        return x

    return calls(jit, f)


@program
def _fields_of_a_dataclass(jit):
    @dataclasses.dataclass
    class Steps:
        it: Any

    s = Steps(itertools.count(1))

    def f(x):
        found = [getattr(s, field.name) for field in dataclasses.fields(s)]
        return x * next(found[0])

    return calls(jit, f)


@program
def _dict_of_an_object(jit):
    s = types.SimpleNamespace(it=itertools.count(1))
    return calls(jit, lambda x: x * next([*s.__dict__.values()][0]))


@program
def _names_made_by_a_template(jit):
    t = string.Template("$n")
    d = {"n": 1}
    return calls(jit, lambda x: x * float(t.substitute(d)), lambda turn: d.update(n=turn // 2))


@program
def _sorted_by_a_key(jit):
    order = {1: 2, 2: 1}
    return calls(jit, lambda x: x * sorted([1, 2], key=order.get)[0], lambda turn: order.update({1: turn // 2}))


@program
def _typing_cast(jit):
    n = [1]
    return calls(jit, lambda x: x * typing.cast(int, n[0]), lambda turn: n.__setitem__(0, turn // 2))


@program
def _copied(jit):
    n = {"a": [1]}
    return calls(jit, lambda x: x * copy.deepcopy(n)["a"][0], lambda turn: n["a"].__setitem__(0, turn // 2))
