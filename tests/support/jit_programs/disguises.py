"""Kinds of these in other clothes: what an operator, a context manager, a descriptor or a subclass does."""

# ruff: noqa: B009, E741, N805, RUF012, RUF015 - as people write

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import io
import itertools
import os
import pathlib
import random
import tempfile
import threading
import time

import numpy as np

from tests.support.jit_programs.table import calls, one, program, user_module


@program
def _exception_args(jit):
    e = ValueError(1)
    return calls(jit, lambda x: x * e.args[0], lambda t: setattr(e, "args", (t // 2,)))


@program
def _array_from_bytearray(jit):
    b = bytearray(8000)
    a = np.frombuffer(b, dtype=np.float64)
    a.flags.writeable = False

    def ch(t):
        np.frombuffer(b, dtype=np.float64)[0:1].__setitem__(0, t // 2)

    return calls(jit, lambda x: x * float(a[0]), ch)


@program
def _inherit_changed(jit):
    class A:
        v = 1

    class B:
        v = 2

    class C(A):
        pass

    class C2(A):
        pass

    c = C2()

    def ch(t):
        if t == 3:
            C2.__bases__ = (type("X", (A,), {"v": 9}),)

    return calls(jit, lambda x: x * c.v, ch)


@program
def _tee(jit):
    a, _ = itertools.tee(range(10))
    return calls(jit, lambda x: x * next(a))


@program
def _np_nditer(jit):
    it = np.nditer(np.arange(8.0))
    return calls(jit, lambda x: x * float(next(it)))


@program
def _np_flat(jit):
    a = np.arange(8.0)
    it = a.flat
    return calls(jit, lambda x: x * float(next(it)))


@program
def _map_random(jit):
    r = random.Random(3)
    return calls(jit, lambda x: x * list(map(r.uniform, [0], [1]))[0])


@program
def _getattr_module(jit):
    return calls(jit, lambda x: x * getattr(random, "random")())


@program
def _dict_of_functions(jit):
    t = {"noise": random.random, "one": lambda: 1}
    return calls(jit, lambda x: x * t["noise"]())


@program
def _closure_rng_in_factory(jit):
    def make(seed):
        r = random.Random(seed)

        def noise():
            return r.random()

        return noise

    n = make(3)
    return calls(jit, lambda x: x * n())


@program
def _decorator_counts(jit):
    def counted(f):
        @functools.wraps(f)
        def g(*a):
            g.n += 1
            return f(*a) * g.n

        g.n = 0
        return g

    @counted
    def f(x):
        return x * 2

    return calls(jit, f)


@program
def _contextlib_cm_prints(jit):
    out = io.StringIO()

    @contextlib.contextmanager
    def tr():
        out.write("a")
        yield
        out.write("b")

    def f(x):
        with tr():
            return x * 2

    g = jit(f)
    return lambda t: (g(one()), out.getvalue())


@program
def _timeit_cm(jit):
    class T:
        total = 0

        def __enter__(s):
            s.t = time.perf_counter()

        def __exit__(s, *a):
            s.total += 1

    t = T()

    def f(x):
        with t:
            return x * 2

    g = jit(f)
    return lambda k: (g(one()), t.total)


@program
def _exitstack(jit):
    log = []

    def f(x):
        with contextlib.ExitStack() as s:
            s.callback(log.append, 1)
            return x * 2

    g = jit(f)
    return lambda k: (g(one()), len(log))


@program
def _default_factory_counts2(jit):
    c = itertools.count()

    @dataclasses.dataclass
    class D:
        v: int = dataclasses.field(default_factory=c.__next__)

    return calls(jit, lambda x: x * D().v)


@program
def _defaultdict_factory(jit):
    c = itertools.count()
    d = collections.defaultdict(c.__next__)

    def f(x):
        v = d["a"]
        del d["a"]
        return x * v

    return calls(jit, f)


@program
def _pathlib_read(jit):
    q = pathlib.Path(tempfile.mkdtemp()) / "a"
    return calls(jit, lambda x: x * float(q.read_text()), lambda t: q.write_text(str(t // 2)))


@program
def _str_subclass_in_list(jit):
    class S(str):
        pass

    s = S("a")
    s.v = 1
    l = [s]
    return calls(jit, lambda x: x * l[0].v, lambda t: setattr(s, "v", t // 2))


@program
def _tuple_subclass(jit):
    class S(tuple):
        pass

    s = S((1, 2))
    s.v = 1
    return calls(jit, lambda x: x * s.v, lambda t: setattr(s, "v", t // 2))


@program
def _ndarray_subclass(jit):
    class A(np.ndarray):
        pass

    a = np.zeros(3).view(A)
    a.v = 1
    return calls(jit, lambda x: x * a.v, lambda t: setattr(a, "v", t // 2))


@program
def _readonly_view_of_writable(jit):
    a = np.zeros(1000)
    v = a[:]
    v.flags.writeable = False
    return calls(jit, lambda x: x * float(v[0]), lambda t: a.fill(t // 2))


@program
def _memmap(jit):
    path = os.path.join(tempfile.mkdtemp(), "a")
    m = np.memmap(path, dtype=np.float64, mode="w+", shape=(4,))
    return calls(jit, lambda x: x * float(m[0]), lambda t: m.__setitem__(0, t // 2))


@program
def _property_setter_effect(jit):
    class C:
        log = []

        @property
        def v(s):
            return len(s.log)

        @v.setter
        def v(s, k):
            s.log.append(k)

    c = C()

    def f(x):
        c.v = 1
        return x * c.v

    return calls(jit, f)


@program
def _metaclass_call_counts(jit):
    class M(type):
        n = 0

        def __call__(cls, *a):
            M.n += 1
            return super().__call__(*a)

    class C(metaclass=M):
        pass

    return calls(jit, lambda x: (C(), x * M.n)[1])


@program
def _contains(jit):
    class S:
        n = 0

        def __contains__(s, k):
            s.n += 1
            return s.n % 2

    s = S()
    return calls(jit, lambda x: x * 2 if 1 in s else x * 3)


@program
def _del_effect2(jit):
    log = []

    class C:
        def __del__(s):
            log.append(1)

    def g(x):
        c = C()
        del c
        return x * 2

    f = jit(g)
    return lambda t: (f(one()), len(log))


@program
def _arg_generator_func(jit):
    f = jit(lambda x, g: x * sum(g()))

    def g():
        yield 1
        yield 2

    return lambda t: f(one(), g)


@program
def _arg_file(jit):
    s = io.StringIO("1\n2\n3\n4\n5\n6\n")
    f = jit(lambda x, s: x * float(s.readline()))
    return lambda t: f(one(), s)


@program
def _complex_zero(jit):
    f = jit(lambda x, n: x * np.copysign(1, n.imag))
    return lambda t: f(one(), [complex(1, 0.0), complex(1, -0.0)][t % 2])


@program
def _set_order(jit):
    f = jit(lambda x, s: x * [*s][0])
    return lambda t: f(one(), [{8, 0}, {0, 8}][t % 2])


@program
def _same_value_two_tensors(jit):
    f = jit(lambda a, b: a * 2 if a is b else a * 3)
    a = one()
    b = a.detach()
    return lambda t: f(a, a) if t % 2 else f(a, b)


@program
def _class_body_global(jit):
    sp = {"n": 1}
    exec("def f(x):\n    class C:\n        v=n\n    return x*C.v\n", sp)
    return calls(jit, sp["f"], lambda t: sp.update(n=t // 2))


@program
def _thread_inside(jit):
    log = []

    def f(x):
        t = threading.Thread(target=log.append, args=(1,))
        t.start()
        t.join()
        return x * 2

    g = jit(f)
    return lambda t: (g(one()), len(log))


@program
def _generator_in_module_attr(jit):
    m = user_module("mm")
    m.gen = (k for k in range(1, 20))
    return calls(jit, lambda x: x * next(m.gen))
