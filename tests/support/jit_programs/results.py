"""Results that each call makes anew, or that are no tensors."""

# ruff: noqa: C417, PYI024 - as people write

from __future__ import annotations

import asyncio
import collections
import dataclasses
import itertools
from typing import Any

import numpy as np

from tests.support.jit_programs.table import calls, one, program


@program
def _generator_function(jit):
    def f(x):
        yield x * 2
        yield x * 3

    return calls(jit, f)


@program
def _generator_expression_as_result(jit):
    return calls(jit, lambda x: (x * k for k in range(3)))


@program
def _map_as_result(jit):
    return calls(jit, lambda x: map(lambda k: x * k, range(3)))


@program
def _iterator_of_a_list_as_result(jit):
    return calls(jit, lambda x: (x * 2, iter([1, 2])))


@program
def _coroutine_function(jit):
    async def f(x):
        return x * 2

    jitted = jit(f)

    def call(turn):
        try:
            jitted(one()).send(None)
        except StopIteration as stop:
            return stop.value

    return call


@program
def _awaited(jit):
    async def f(x):
        await asyncio.sleep(0)
        return x * 2

    jitted = jit(f)
    return lambda turn: asyncio.run(jitted(one()))


@program
def _a_number_that_counts(jit):
    t = itertools.count()
    return calls(jit, lambda x: (x * 2, next(t)))


@program
def _a_list_that_is_its_own(jit):
    f = jit(lambda x: (x * 2, [1, 2]))

    def call(turn):
        out = f(one())
        out[1].append(3)
        return out

    return call


@program
def _a_set_that_is_its_own(jit):
    f = jit(lambda x: (x * 2, {1, 2}))

    def call(turn):
        out = f(one())
        out[1].add(10 + len(out[1]))
        return sorted(out[1])

    return call


@program
def _one_list_twice(jit):
    def f(x):
        out = [x * 2]
        return out, out

    jitted = jit(f)

    def call(turn):
        a, b = jitted(one())
        a.append(1)
        return len(b)

    return call


@program
def _a_list_from_outside(jit):
    kept = [1]
    f = jit(lambda x: (x * 2, kept))
    return lambda turn: (f(one())[1].append(turn), len(kept))[1]


@program
def _an_array_as_result(jit):
    f = jit(lambda x: (x * 2, np.zeros(2)))

    def call(turn):
        out = f(one())[1]
        out += 1
        return out

    return call


@program
def _an_object_as_result(jit):
    class Out:
        def __init__(self, n):
            self.n = n

    f = jit(lambda x: (x * 2, Out(1)))

    def call(turn):
        out = f(one())[1]
        out.n += 1
        return out.n

    return call


@program
def _a_dataclass_as_result(jit):
    @dataclasses.dataclass
    class Out:
        y: Any
        n: int = 0

    f = jit(lambda x: Out(x * 2))

    def call(turn):
        out = f(one())
        out.n += 1
        return out

    return call


@program
def _a_function_as_result(jit):
    def f(x):
        n = [0]

        def count():
            n[0] += 1
            return n[0]

        return x * 2, count

    jitted = jit(f)
    return lambda turn: jitted(one())[1]()


@program
def _an_ordered_dict_as_result(jit):
    return calls(jit, lambda x: collections.OrderedDict(b=x, a=x * 2))


@program
def _a_default_dict_as_result(jit):
    return calls(jit, lambda x: collections.defaultdict(list, b=x))


@program
def _a_deque_as_result(jit):
    return calls(jit, lambda x: collections.deque([x, x * 2]))


@program
def _a_named_tuple_as_result(jit):
    Pair = collections.namedtuple("Pair", "a b")
    return calls(jit, lambda x: Pair(x, x * 2))


@program
def _a_list_subclass_as_result(jit):
    class Many(list):
        pass

    f = jit(lambda x: Many([x * 2]))
    return lambda turn: type(f(one())).__name__


@program
def _self_as_result(jit):
    class Chain:
        def __init__(self):
            self.n = 0

        def step(self, x):
            return self, x * self.n

    c = Chain()
    f = jit(c.step)

    def call(turn):
        c.n = turn // 2
        out = f(one())
        return out[0] is c, out[1]

    return call


@program
def _containers_of_the_arguments_as_results(jit):
    def f(x, caches, names, d):
        return [(c, x * 2) for c in caches], {"names": names, "d": (d,)}, caches[0]

    jitted = jit(f)

    def call(turn):
        caches, names, d = [[one()], [one() * turn]], {"a"}, {"x": one()}
        out, other, first = jitted(one(), caches, names, d)
        same = out[0][0] is caches[0], out[1][0] is caches[1], other["names"] is names, other["d"][0] is d
        return same, first is caches[0], out[1][1], out[1][0]

    return call
