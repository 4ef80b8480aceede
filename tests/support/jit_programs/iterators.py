"""Iterators and generators that a function reads."""

# ruff: noqa: B008 - as people write

from __future__ import annotations

import collections
import csv
import functools
import heapq
import io
import itertools
import operator
import types

from lazyt import nn
from tests.support.jit_programs.table import calls, one, program


@program
def _count(jit):
    it = itertools.count(1)
    return calls(jit, lambda x: x * next(it))


@program
def _list_iterator(jit):
    it = iter([1, 2, 3, 4, 5, 6, 7])
    return calls(jit, lambda x: x * next(it))


@program
def _iterator_with_default(jit):
    it = iter([1, 2, 3])
    return calls(jit, lambda x: x * next(it, 9))


@program
def _iterator_by_for(jit):
    it = iter(range(100))

    def f(x):
        for k in it:
            return x * k
        return x

    return calls(jit, f)


@program
def _iterator_by_sum(jit):
    it = iter(range(4))
    return calls(jit, lambda x: x * sum(itertools.islice(it, 2)))


@program
def _iterator_by_unpacking(jit):
    it = iter(range(20))

    def f(x):
        a, b = itertools.islice(it, 2)
        return x * a + b

    return calls(jit, f)


@program
def _zip(jit):
    it = zip(range(10), range(10, 20), strict=True)
    return calls(jit, lambda x: x * next(it)[1])


@program
def _map_and_enumerate(jit):
    it, other = map(float, range(10)), enumerate("abcdefghij")
    return calls(jit, lambda x: x * next(it) + next(other)[0])


@program
def _cycle(jit):
    it = itertools.cycle([1, 2, 3])
    return calls(jit, lambda x: x * next(it))


@program
def _chained(jit):
    it = itertools.chain([1, 2], itertools.count(7))
    return calls(jit, lambda x: x + next(it))


@program
def _reversed(jit):
    it = reversed([1, 2, 3, 4, 5, 6])
    return calls(jit, lambda x: x + next(it))


@program
def _bound_next(jit):
    draw = itertools.count(1).__next__
    return calls(jit, lambda x: x * draw())


@program
def _partial_of_next(jit):
    draw = functools.partial(next, itertools.count(1))
    return calls(jit, lambda x: x * draw())


@program
def _callable_iterator(jit):
    kept = [1]

    def grow():
        kept[0] += 1
        return kept[0]

    it = iter(grow, 100)
    return calls(jit, lambda x: x * next(it))


@program
def _iterator_in_a_list(jit):
    its = [itertools.count(1)]
    return calls(jit, lambda x: x * next(its[0]))


@program
def _iterator_in_a_dict(jit):
    its = {"a": itertools.count(1)}
    return calls(jit, lambda x: x * next(its["a"]))


@program
def _iterator_as_an_attribute(jit):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.it = itertools.count(1)

        def forward(self, x):
            return x * next(self.it)

    return calls(jit, Model())


@program
def _iterator_by_getattr(jit):
    s = types.SimpleNamespace(it1=itertools.count(1))
    return calls(jit, lambda x: x * next(getattr(s, f"it{1}")))


@program
def _iterator_by_attrgetter(jit):
    s = types.SimpleNamespace(steps=itertools.count(1))
    get = operator.attrgetter("steps")
    return calls(jit, lambda x: x * next(get(s)))


@program
def _iterator_of_a_class(jit):
    class Model:
        steps = itertools.count(1)

        def __call__(self, x):
            return x * next(self.steps)

    return calls(jit, Model())


@program
def _iterator_in_slots(jit):
    class Slots:
        __slots__ = ("it",)

        def __init__(self):
            self.it = itertools.count(1)

    s = Slots()
    return calls(jit, lambda x: x * next(s.it))


@program
def _iterator_as_default(jit):
    def f(x, it=itertools.count(1)):
        return x * next(it)

    return calls(jit, f)


@program
def _iterator_as_keyword_default(jit):
    def f(x, *, it=itertools.count(1)):
        return x * next(it)

    return calls(jit, lambda x: f(x))


@program
def _iterator_as_argument(jit):
    it = itertools.count(1)
    f = jit(lambda x, it: x * next(it))
    return lambda turn: f(one(), it)


@program
def _fresh_iterator_as_argument(jit):
    f = jit(lambda x, it: x * sum(it))
    return lambda turn: f(one(), iter(range(turn)))


@program
def _iterator_in_a_partial(jit):
    f = jit(functools.partial(lambda it, x: x * next(it), itertools.count(1)))
    return lambda turn: f(one())


@program
def _iterator_of_the_user(jit):
    class Steps:
        def __init__(self):
            self.n = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.n += 1
            return self.n

    it = Steps()
    return calls(jit, lambda x: x * next(it))


@program
def _iterator_made_at_the_first_call(jit):
    class Model:
        def __call__(self, x):
            if not hasattr(self, "it"):
                self.it = itertools.count(1)
            return x * next(self.it)

    return calls(jit, Model())


@program
def _generator(jit):
    g = (k * k for k in range(10))
    return calls(jit, lambda x: x * next(g))


@program
def _generator_that_is_sent_to(jit):
    def counter():
        n = 0
        while True:
            n += yield n

    g = counter()
    next(g)
    return calls(jit, lambda x: x * g.send(2))


@program
def _string_io(jit):
    f = io.StringIO("1\n2\n3\n4\n5\n6\n")
    return calls(jit, lambda x: x * float(f.readline()))


@program
def _csv_reader(jit):
    rows = csv.reader(["1,2", "3,4", "5,6", "7,8", "9,10", "11,12"])
    return calls(jit, lambda x: x * float(next(rows)[1]))


@program
def _pop_of_a_list(jit):
    left = [1, 2, 3, 4, 5, 6]
    return calls(jit, lambda x: x * left.pop())


@program
def _pop_of_a_deque(jit):
    left = collections.deque([1, 2, 3, 4, 5, 6])
    return calls(jit, lambda x: x * left.popleft())


@program
def _pop_of_a_set(jit):
    left = {1, 2, 3, 4, 5, 6}
    return calls(jit, lambda x: x * left.pop())


@program
def _heap(jit):
    heap = [3, 5, 8, 9, 11, 12]
    return calls(jit, lambda x: x * heapq.heappop(heap))
