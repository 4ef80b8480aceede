"""Caches, attributes of functions, settings, and writes that are undone."""

# ruff: noqa: B006, B024, E741, N805, PYI024, RET503, RET504 - as people write

from __future__ import annotations

import abc
import asyncio
import collections
import decimal
import functools
import itertools
import operator
import os
import random
import tempfile
import types
import weakref

import lazyt as lt
from lazyt import nn
from tests.support.jit_programs.table import calls, one, program, user_module


@program
def _lru_counter(jit):
    @functools.lru_cache
    def counter():
        n = [0]

        def step():
            n[0] += 1
            return n[0]

        return step

    return calls(jit, lambda x: x * counter()())


@program
def _cache_list(jit):
    @functools.cache
    def table():
        return [1, 2]

    return calls(jit, lambda x: x * table()[0], lambda t: table().__setitem__(0, t // 2))


@program
def _cache_list_cleared(jit):
    @functools.cache
    def table():
        return [1, 2]

    def ch(t):
        if t == 3:
            table.cache_clear()
        table().__setitem__(0, t // 2)

    return calls(jit, lambda x: x * table()[0], ch)


@program
def _jitted_attr(jit):
    def step(x):
        return x * f.n

    f = jit(step)
    f.n = 1

    def call(t):
        f.n = t // 2
        return f(one())

    return call


@program
def _jitted_attr_counts(jit):
    def step(x):
        f.n += 1
        return x * f.n

    f = jit(step)
    f.n = 0
    return lambda t: f(one())


@program
def _mut_default(jit):
    def f(x, seen=[]):
        seen.append(1)
        return x * len(seen)

    return calls(jit, f)


@program
def _methodcaller(jit):
    l = list(range(10))
    pop = operator.methodcaller("pop")
    return calls(jit, lambda x: x * pop(l))


@program
def _weakset(jit):
    class B:
        pass

    bs = [B() for _ in range(4)]
    s = weakref.WeakSet(bs)

    def ch(t):
        if bs:
            bs.pop()

    return calls(jit, lambda x: x * len(s), ch)


@program
def _namedtuple_with_iterator(jit):
    N = collections.namedtuple("N", "it n")
    v = N(itertools.count(1), 2)
    return calls(jit, lambda x: x * next(v.it))


@program
def _stored_iter(jit):
    class S:
        def __init__(s):
            s._it = iter(range(1, 20))

        def __iter__(s):
            return s._it

    s = S()

    def f(x):
        for k in s:
            return x * k

    return calls(jit, f)


@program
def _module_rng(jit):
    m = user_module("m")
    m.rng = random.Random(3)
    return calls(jit, lambda x: x * m.rng.random())


@program
def _other_module_function(jit):
    m = user_module("m")
    exec("import random\ndef noise(): return random.random()\n", m.__dict__)
    return calls(jit, lambda x: x * m.noise())


@program
def _abc_register(jit):
    class A(abc.ABC):
        pass

    class B:
        pass

    b = B()

    def ch(t):
        if t == 3:
            A.register(B)

    return calls(jit, lambda x: x * 2 if isinstance(b, A) else x * 3, ch)


@program
def _decimal_ctx(jit):
    d = decimal.Decimal(1)

    def ch(t):
        decimal.getcontext().prec = 28 if t < 3 else 2

    f = calls(jit, lambda x: x * float(d / 3), ch)
    return f


@program
def _path_exists(jit):
    path = os.path.join(tempfile.mkdtemp(), "a")
    ex = os.path.exists

    def ch(t):
        if t == 3:
            open(path, "w").close()

    return calls(jit, lambda x: x * 2 if ex(path) else x * 3, ch)


@program
def _type_counter(jit):
    class M:
        n = 0

        def __call__(self, x):
            type(self).n += 1
            return x * self.n

    return calls(jit, M())


@program
def _getattribute(jit):
    class M:
        n = 0

        def __getattribute__(self, name):
            v = object.__getattribute__(self, name)
            if name == "scale":
                object.__setattr__(self, "n", object.__getattribute__(self, "n") + 1)
                return object.__getattribute__(self, "n")
            return v

        scale = 0

    m = M()
    return calls(jit, lambda x: x * m.scale)


@program
def _returns_outer_dict(jit):
    d = {"a": 1}
    f = jit(lambda x: {"y": x * 2, "d": d})
    return lambda t: f(one())["d"] is d


@program
def _returns_arg_list(jit):
    f = jit(lambda x, l: (x * 2, l))

    def call(t):
        l = [1]
        return f(one(), l)[1] is l

    return call


@program
def _running(jit):
    s = types.SimpleNamespace(m=lt.zeros(2))

    def f(x):
        s.m = 0.5 * s.m + x
        return s.m * 2

    return calls(jit, f)


@program
def _mode_inside(jit):
    m = nn.Dropout(0.0)
    f = jit(lambda x: (m.eval(), x * 2)[1])

    def call(t):
        m.train()
        f(one())
        return m.training

    return call


@program
def _zero_grad_inside(jit):
    m = nn.Linear(2, 2)
    f = jit(lambda x: (m.zero_grad(), x * 2)[1])

    def call(t):
        m(one()).sum().backward()
        f(one())
        return m.weight.grad is None

    return call


@program
def _seed_inside(jit):
    f = jit(lambda x: (lt.random.seed(3), x * 2)[1])

    def call(t):
        lt.random.random(1).tolist()
        f(one())
        return lt.random.random(1).tolist()

    return call


@program
def _param_group(jit):
    w = lt.ones(2).requires_grad_()
    opt = lt.optim.SGD([w], lr=0.5)

    def ch(t):
        opt.param_groups[0]["lr"] = t // 2 + 1.0

    return calls(jit, lambda x: x * opt.param_groups[0]["lr"], ch)


@program
def _clip_norm(jit):
    w = lt.ones(2).requires_grad_()
    f = jit(lambda x: (nn.utils.clip_grad_norm_([w], 1.0), x * 2)[1])

    def call(t):
        w.grad = None
        (w * 3).sum().backward()
        f(one())
        return w.grad.tolist()

    return call


@program
def _partial_attr(jit):
    q = functools.partial(lambda x: x * q.n)
    q.n = 1
    f = jit(q)

    def call(t):
        q.n = t // 2
        return f(one())

    return call


@program
def _tensor_hook(jit):
    w = lt.ones(2).requires_grad_()
    n = [0]

    def h(g):
        n[0] += 1
        return g * n[0]

    w.register_hook(h)
    return calls(jit, lambda x: lt.autograd.grad((w * x).sum(), [w])[0])


@program
def _method_hook(jit):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.n = 0

        def __call__(s, x):
            s.n += 1
            return super().__call__(x) * s.n

        def forward(s, x):
            return x * 2

    return calls(jit, M())


@program
def _swap(jit):
    a = [1, 2]

    def f(x):
        a.reverse()
        return x * a[0]

    return calls(jit, f)


@program
def _alternating(jit):
    s = types.SimpleNamespace(flip=False)

    def f(x):
        s.flip = not s.flip
        return x * 2 if s.flip else x * 3

    return calls(jit, f)


@program
def _nested_list_arg(jit):
    f = jit(lambda x, d: (d["a"]["b"].append(1), x * len(d["a"]["b"]))[1])
    d = {"a": {"b": []}}
    return lambda t: (f(one(), d), len(d["a"]["b"]))


@program
def _tuple_arg_obj(jit):
    o = types.SimpleNamespace(n=1)
    f = jit(lambda x, t: x * t[0].n)

    def call(t):
        o.n = t // 2
        return f(one(), (o,))

    return call


@program
def _kw_obj(jit):
    o = {"n": [1]}
    f = jit(lambda x, *, o: x * o["n"][0])

    def call(t):
        o["n"][0] = t // 2
        return f(one(), o=o)

    return call


@program
def _obj_del(jit):
    s = types.SimpleNamespace(a=1)

    def f(x):
        if hasattr(s, "a"):
            del s.a
            return x * 2
        return x * 3

    return calls(jit, f)


@program
def _big_list(jit):
    l = [1.0] * 3000
    return calls(jit, lambda x: x * l[2999], lambda t: l.__setitem__(2999, t // 2))


@program
def _set_add_undone(jit):
    s = set()
    f = jit(lambda x: (s.add(1), x * 2)[1])

    def call(t):
        s.discard(1)
        f(one())
        return len(s)

    return call


@program
def _async_run(jit):

    n = [0]

    async def g():
        n[0] += 1
        return n[0]

    return calls(jit, lambda x: x * asyncio.run(g()))
