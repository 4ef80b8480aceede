"""Arguments that are equal and not the same, are written, or have attributes."""

# ruff: noqa: PYI024, RUF015 - as people write

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import math
import multiprocessing
import operator
import threading
import types
import warnings
from typing import Any

import numpy as np

import lazyt as lt
from lazyt import nn
from tests.support.jit_programs.table import calls, given, one, program


@program
def _equal_ranges(jit):
    return given(jit, lambda x, r: x * r.stop, range(0, 3, 2), range(0, 4, 2))


@program
def _equal_frozen_sets(jit):
    return given(jit, lambda x, s: x * math.copysign(1, next(iter(s))), frozenset({0.0}), frozenset({-0.0}))


@program
def _equal_frozen_sets_of_kinds(jit):
    return given(jit, lambda x, s: x * len(repr([*s])), frozenset({1}), frozenset({True}), frozenset({1.0}))


@program
def _frozen_sets_in_another_order(jit):
    return given(jit, lambda x, s: x * [*s][0], frozenset([8, 0]), frozenset([0, 8]))


@program
def _equal_nests(jit):
    return given(jit, lambda x, s: x * len(repr(s)), ((1,), {"a": 0.0}), ((True,), {"a": -0.0}), ((1.0,), {"a": 0}))


@program
def _equal_keys(jit):
    return given(jit, lambda x, d: x * len(repr([*d])), {1: 2}, {True: 2}, {1.0: 2})


@program
def _fields_that_are_not_compared(jit):
    @dataclasses.dataclass(frozen=True)
    class C:
        a: int
        scale: float = dataclasses.field(default=1.0, compare=False)

    return given(jit, lambda x, c: x * c.scale, C(1, 2.0), C(1, 3.0))


@program
def _equality_of_the_users(jit):
    class C:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

    return given(jit, lambda x, c: x * c.n, C(2), C(3))


@program
def _equal_numbers_of_numpy(jit):
    return given(jit, lambda x, n: x * n, np.float32(2), np.float64(2), np.int64(2), np.bool_(True))


@program
def _equal_texts_of_a_subclass(jit):
    class Name(str):
        def __new__(cls, text, n):
            made = str.__new__(cls, text)
            made.n = n
            return made

    return given(jit, lambda x, name: x * name.n, Name("a", 2), Name("a", 3))


@program
def _equal_numbers_of_a_subclass(jit):
    class Number(int):
        def __new__(cls, value, n):
            made = int.__new__(cls, value)
            made.n = n
            return made

    return given(jit, lambda x, k: x * k.n, Number(1, 2), Number(1, 3))


@program
def _decimals(jit):
    from decimal import Decimal

    return given(jit, lambda x, d: x * len(str(d)), Decimal("1.0"), Decimal("1.00"))


@program
def _partials(jit):
    return given(jit, lambda x, f: f(x), functools.partial(operator.mul, 2), functools.partial(operator.mul, 3))


@program
def _bound_methods(jit):
    class C:
        def __init__(self, n):
            self.n = n

        def by(self, x):
            return x * self.n

    a, b = C(2), C(3)
    f = jit(lambda x, by: by(x))

    def call(turn):
        a.n = turn // 3
        return f(one(), (a if turn % 2 else b).by)

    return call


@program
def _functions_as_arguments(jit):
    n, f = [1], jit(lambda x, g: g(x))

    def g(x):
        return x * n[0]

    def call(turn):
        n[0] = turn // 2
        return f(one(), g)

    return call


@program
def _unhashable_dataclass(jit):
    @dataclasses.dataclass
    class C:
        n: int

    c, f = C(1), jit(lambda x, c: x * c.n)

    def call(turn):
        c.n = turn // 2
        return f(one(), c)

    return call


@program
def _dataclass_with_a_tensor(jit):
    @dataclasses.dataclass
    class Batch:
        x: Any
        n: int

    f = jit(lambda b: b.x * b.n)
    return lambda turn: f(Batch(lt.full(2, float(turn)), turn // 2))


@program
def _one_dataclass_with_tensors(jit):
    @dataclasses.dataclass
    class Batch:
        x: Any

    b, f = Batch(one()), jit(lambda b, y: b.x * 2 + y)

    def call(turn):
        b.x = lt.full(2, float(turn))
        return f(b, one())

    return call


@program
def _set_as_argument(jit):
    return given(jit, lambda x, s: x * len(s), {1, 2}, {1}, {3})


@program
def _bytearray_as_argument(jit):
    b, f = bytearray(b"\1"), jit(lambda x, b: x * b[0])

    def call(turn):
        b[0] = turn // 2
        return f(one(), b)

    return call


@program
def _ordered_dict_as_argument(jit):
    f = jit(lambda x, d: (d.move_to_end("a"), x * len(type(d).__name__), [*d])[1:])
    return lambda turn: f(one(), collections.OrderedDict(a=1, b=2))


@program
def _default_dict_as_argument(jit):
    f = jit(lambda x, d: x * len(d["new"]))
    return lambda turn: f(one(), collections.defaultdict(lambda: [1, 2], a=one()))


@program
def _dict_subclass_as_argument(jit):
    class Config(dict):
        __getattr__ = dict.__getitem__

    f, c = jit(lambda x, c: x * c.scale), Config(scale=1)

    def call(turn):
        c["scale"] = turn // 2
        return f(one(), c)

    return call


@program
def _list_argument_that_grows(jit):
    kept: list[int] = []
    f = jit(lambda x, k: (k.append(1), x * 2)[1])
    return lambda turn: (f(one(), kept), len(kept))


@program
def _list_argument_that_keeps_a_tensor(jit):
    f = jit(lambda x, k: (k.append(x * 3), x * 2)[1])

    def call(turn):
        kept: list[Any] = []
        return f(lt.full(2, float(turn)), kept), kept

    return call


@program
def _dict_argument_that_is_written(jit):
    def f(x, d):
        d["h"] = d["h"] + x
        return d["h"] * 2

    jitted, state = jit(f), {"h": lt.zeros(2)}
    return lambda turn: (jitted(one(), state), state["h"])


@program
def _dict_argument_with_an_array_that_is_written(jit):
    def f(x, d):
        d["n"] = d["a"] * 2
        return x + d["n"]

    jitted = jit(f)

    def call(turn):
        d = {"a": np.full(2, turn, np.float32)}
        return jitted(one(), d), sorted(d), d["n"]

    return call


@program
def _list_argument_with_an_array_that_is_written(jit):
    def f(x, items):
        items.append(items[0] + x)
        return items[-1] * 2

    jitted = jit(f)

    def call(turn):
        items = [np.full(2, turn, np.float32)]
        out = jitted(one(), items)
        return out, len(items), type(items[0]).__name__

    return call


@program
def _set_argument_that_is_written(jit):
    kept: set[int] = set()
    f = jit(lambda x, k: (k.add(len(k)), x * 2)[1])
    return lambda turn: (f(one(), kept), len(kept))


@program
def _object_argument_that_is_written(jit):
    state = types.SimpleNamespace(n=0)

    def f(x, s):
        s.n += 1
        return x * s.n

    jitted = jit(f)
    return lambda turn: jitted(one(), state)


@program
def _identity_of_a_list(jit):
    marker: list[int] = []
    f = jit(lambda x, k: x * 2 if k is marker else x * 3)
    return lambda turn: f(one(), marker if turn % 2 else [])


@program
def _identity_of_lists(jit):
    f = jit(lambda x, a, b: x * 2 if a is b else x * 3)

    def call(turn):
        a: list[int] = []
        return f(one(), a, a if turn % 2 else [])

    return call


@program
def _identity_of_a_tensor(jit):
    w, v = one(), one()
    lt.sync()
    f = jit(lambda x: x * 2 if x is w else x * 3)
    return lambda turn: f(w if turn in (1, 4) else v)


@program
def _tensor_in_a_list(jit):
    w, v = one(), one()
    known = [w]
    lt.sync()
    f = jit(lambda x: x * 2 if any(x is k for k in known) else x * 3)
    return lambda turn: f(w if turn in (1, 4) else v)


@program
def _kind_of_a_tuple(jit):
    P = collections.namedtuple("P", "a b")
    return given(jit, lambda x, p: x * len(type(p).__name__), (1, 2), P(1, 2))


@program
def _slices(jit):
    return given(jit, lambda x, s: x[s], slice(0, 1), slice(None, None, 2), slice(1, None))


@program
def _none_and_missing(jit):
    f = jit(lambda x, n=3: x * 2 if n is None else x * n)
    return lambda turn: f(one()) if turn % 2 else f(one(), None)


@program
def _keywords(jit):
    f = jit(lambda x, **k: x * k.get("a", 1) + k.get("b", 0))
    return lambda turn: f(one(), a=2) if turn % 2 else f(one(), b=2)


@program
def _iterator_in_an_argument(jit):
    s = types.SimpleNamespace(it=itertools.count(1))
    f = jit(lambda x, s: x * next(s.it))
    return lambda turn: f(one(), s)


@program
def _whether_a_tensor_requires_grad(jit):
    w = lt.ones(2)
    return calls(jit, lambda x: x * 2 if w.requires_grad else x * 3, lambda turn: w.requires_grad_(turn > 3))


@program
def _attribute_set_past_the_module(jit):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 1

        def forward(self, x):
            return x * self.scale

    m = Model()
    return calls(jit, m, lambda turn: object.__setattr__(m, "scale", turn // 2))


@program
def _held_dict_of_an_nn_module(jit):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 1

        def forward(self, x):
            return x * getattr(self, "late", self.scale)

    m = Model()
    fields = m.__dict__
    return calls(jit, m, lambda turn: fields.__setitem__("scale" if turn < 4 else "late", turn // 2))


@program
def _warning(jit):
    def f(x):
        warnings.warn("called", UserWarning, stacklevel=1)
        return x * 2

    jitted = jit(f)

    def call(turn):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            jitted(one())
        return sum(w.category is UserWarning for w in seen)

    return call


@program
def _vmap_of_jit(jit):
    it = itertools.count(1)
    f = lt.vmap(jit(lambda x: x * next(it)))
    return lambda turn: f(lt.ones((2, 2)))


@program
def _grad_of_jit(jit):
    it = itertools.count(1)
    f = lt.grad(jit(lambda x: (x * x * next(it)).sum()))
    return lambda turn: f(one())


@program
def _jit_of_grad(jit):
    it = itertools.count(1)
    f = jit(lt.grad(lambda x: (x * x * next(it)).sum()))
    return lambda turn: f(one())


@program
def _jit_of_a_method(jit):
    class Model:
        def __init__(self):
            self.it, self.n = itertools.count(1), 2

        def step(self, x):
            return x * next(self.it) * self.n

    Model.step = jit(Model.step)
    m = Model()
    return lambda turn: m.step(one())


@program
def _checkpoint(jit):
    it = itertools.count(1)
    f = jit(lambda x: lt.utils.checkpoint.checkpoint(lambda v: v * next(it), x))
    return lambda turn: f(one())


@program
def _no_grad_around(jit):
    n = [1]

    @lt.no_grad()
    def f(x):
        return x * n[0]

    return calls(jit, f, lambda turn: n.__setitem__(0, turn // 2))


@program
def _eager(jit):
    it = itertools.count(1)
    f = jit(lambda x: x * next(it))

    def call(turn):
        with lt.eager() if turn % 2 else contextlib.nullcontext():
            return f(one())

    return call


@program
def _many_threads(jit):
    it, found = itertools.count(1), []
    f = jit(lambda x: x * next(it))

    def call(turn):
        t = threading.Thread(target=lambda: found.append(f(one()).tolist()))
        t.start()
        t.join()
        return list(found)

    return call


@program
def _fresh_dataclasses(jit):
    @dataclasses.dataclass(frozen=True)
    class C:
        n: int

    f = jit(lambda x, c: x * c.n)
    return lambda turn: [f(one(), C(k)) for k in range(12)]


@program
def _numbers_that_are_new(jit):
    f = jit(lambda x, n: x * n)
    return lambda turn: [f(one(), turn * 20 + k) for k in range(20)]


@program
def _iterator_of_lazyt(jit):
    loader = iter(lt.data.DataLoader([float(k) for k in range(8)], batch_size=1))
    return calls(jit, lambda x: x * next(loader)[0])


@program
def _multiprocessing_value(jit):
    n = multiprocessing.Value("i", 1)
    return calls(jit, lambda x: x * n.value, lambda turn: setattr(n, "value", turn // 2))


@program
def _closure_that_is_made_at_each_call(jit):
    kept = []

    def f(x):
        def inner(v):
            return v * len(kept)

        return inner(x)

    def change(turn):
        if turn % 2:
            kept.append(1)

    return calls(jit, f, change)


@program
def _python_function_as_key(jit):
    keys = {"a": 1, "b": 2}
    order = ["a"]
    return calls(
        jit,
        lambda x: x * max(keys, key=keys.get) if False else x * keys[order[-1]],
        lambda turn: order.append("b") if turn == 3 else None,
    )
