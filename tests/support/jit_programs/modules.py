"""Attributes of modules, the environment, clocks, threads."""

# ruff: noqa: B009, B039 - as people write

from __future__ import annotations

import contextlib
import contextvars
import datetime
import inspect
import os
import sys
import threading
import time

import numpy as np

import lazyt as lt
from lazyt import nn
from tests.support.jit_programs.table import calls, one, program, user_module


@program
def _environment(jit):
    def change(turn):
        os.environ["LAZYT_TEST_SCALE"] = str(turn // 2)

    return calls(jit, lambda x: x * float(os.environ["LAZYT_TEST_SCALE"]), change)


@program
def _environment_by_name(jit):
    environ = os.environ

    def change(turn):
        os.environ["LAZYT_TEST_SCALE"] = str(turn // 2)

    return calls(jit, lambda x: x * float(environ["LAZYT_TEST_SCALE"]), change)


@program
def _getenv(jit):
    get = os.getenv

    def change(turn):
        os.environ["LAZYT_TEST_SCALE"] = str(turn // 2)

    return calls(jit, lambda x: x * float(get("LAZYT_TEST_SCALE")), change)


@program
def _module_attribute(jit):
    m = user_module("settings_of_a_user")
    return calls(jit, lambda x: x * m.scale, lambda turn: setattr(m, "scale", turn // 2))


@program
def _module_by_another_name(jit):
    m = user_module("settings_of_a_user")

    def f(x):
        other = m
        return x * other.scale

    return calls(jit, f, lambda turn: setattr(m, "scale", turn // 2))


@program
def _module_by_getattr(jit):
    m = user_module("settings_of_a_user")
    return calls(jit, lambda x: x * getattr(m, "scale"), lambda turn: setattr(m, "scale", turn // 2))


@program
def _module_in_a_list(jit):
    m = [user_module("settings_of_a_user")]
    return calls(jit, lambda x: x * m[0].scale, lambda turn: setattr(m[0], "scale", turn // 2))


@program
def _module_as_argument(jit):
    m = user_module("settings_of_a_user")
    f = jit(lambda x, m: x * m.scale)

    def call(turn):
        m.scale = turn // 2
        return f(one(), m)

    return call


@program
def _module_in_a_module(jit):
    m = user_module("settings_of_a_user")
    m.sub = user_module("settings_of_a_user.sub")
    return calls(jit, lambda x: x * m.sub.scale, lambda turn: setattr(m.sub, "scale", turn // 2))


@program
def _function_of_a_module(jit):
    m = user_module("settings_of_a_user")
    exec("def by(x):\n    return x * scale\n", m.__dict__)
    return calls(jit, lambda x: m.by(x), lambda turn: setattr(m, "scale", turn // 2))


@program
def _dict_of_a_module(jit):
    m = user_module("settings_of_a_user")
    return calls(jit, lambda x: x * m.__dict__["scale"], lambda turn: setattr(m, "scale", turn // 2))


@program
def _vars_of_a_module(jit):
    m = user_module("settings_of_a_user")
    return calls(jit, lambda x: x * vars(m)["scale"], lambda turn: setattr(m, "scale", turn // 2))


@program
def _attribute_that_comes_later(jit):
    m = user_module("settings_of_a_user")

    def change(turn):
        if turn == 3:
            m.late = 7

    return calls(jit, lambda x: x * getattr(m, "late", 1), change)


@program
def _attribute_that_a_module_makes(jit):
    m, n = user_module("settings_of_a_user"), [1]
    m.__getattr__ = lambda name: n[0]
    return calls(jit, lambda x: x * m.other, lambda turn: n.__setitem__(0, turn // 2))


@program
def _imported_inside(jit):
    m = sys.modules["settings_of_a_user"] = user_module("settings_of_a_user")

    def f(x):
        from settings_of_a_user import scale

        return x * scale

    return calls(jit, f, lambda turn: setattr(m, "scale", turn // 2))


@program
def _module_imported_inside(jit):
    m = sys.modules["settings_of_a_user"] = user_module("settings_of_a_user")

    def f(x):
        import settings_of_a_user

        return x * settings_of_a_user.scale

    return calls(jit, f, lambda turn: setattr(m, "scale", turn // 2))


@program
def _sys_modules(jit):
    m = sys.modules["settings_of_a_user"] = user_module("settings_of_a_user")
    return calls(jit, lambda x: x * sys.modules["settings_of_a_user"].scale, lambda t: setattr(m, "scale", t // 2))


@program
def _globals(jit):
    space = {"n": 1}
    exec("def f(x):\n    return x * globals()['n']\n", space)
    return calls(jit, space["f"], lambda turn: space.update(n=turn // 2))


@program
def _globals_of_a_function(jit):
    space = {"n": 1}
    exec("def g(): pass\ndef f(x):\n    return x * g.__globals__['n']\n", space)
    return calls(jit, space["f"], lambda turn: space.update(n=turn // 2))


@program
def _evaluated(jit):
    space = {"n": 1}
    exec("def f(x):\n    return x * eval('n')\n", space)
    return calls(jit, space["f"], lambda turn: space.update(n=turn // 2))


@program
def _frame_of_the_caller(jit):
    def f(x):
        return x * inspect.currentframe().f_back.f_locals.get("turn", 1)

    def g(x):
        return f(x)

    jitted = jit(lambda x: x * len(inspect.stack()))
    return lambda turn: (jitted(one()).tolist()[0] > 1, g(one()))


@program
def _builtin_that_is_shadowed(jit):
    space = {"lt": lt}
    exec("def f(x):\n    return x * abs(-2)\n", space)

    def change(turn):
        if turn == 3:
            space["abs"] = lambda v: 9

    return calls(jit, space["f"], change)


@program
def _dict_of_an_nn_module(jit):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 1

        def forward(self, x):
            return x * self.scale

    m = Model()
    return calls(jit, m, lambda turn: m.__dict__.__setitem__("scale", turn // 2))


@program
def _vars_of_an_nn_module(jit):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 1

        def forward(self, x):
            return x * self.scale

    m = Model()
    return calls(jit, m, lambda turn: vars(m).update(scale=turn // 2))


@program
def _clock(jit):
    f = jit(lambda x: (x * 2, time.perf_counter_ns()))
    last = [0]

    def call(turn):
        y, now = f(one())
        later, last[0] = now > last[0], now
        return y, later

    return call


@program
def _clock_by_name(jit):
    clock = time.monotonic_ns
    f = jit(lambda x: (x * 2, clock()))
    last = [0]

    def call(turn):
        _, now = f(one())
        time.sleep(1e-6)
        later, last[0] = now > last[0], now
        return later

    return call


@program
def _date(jit):
    f = jit(lambda x: (x * 2, datetime.datetime.now().timestamp()))
    last = [0.0]

    def call(turn):
        _, now = f(one())
        time.sleep(1e-5)
        later, last[0] = now > last[0], now
        return later

    return call


@program
def _name_of_the_thread(jit):
    f = jit(lambda x: x * len(threading.current_thread().name))

    def call(turn):
        found = []
        t = threading.Thread(target=lambda: found.append(f(one()).tolist()), name="n" * (turn // 2 + 1))
        t.start()
        t.join()
        return found

    return call


@program
def _thread_local(jit):
    local = threading.local()
    return calls(jit, lambda x: x * local.n, lambda turn: setattr(local, "n", turn // 2))


@program
def _context_variable(jit):
    v = contextvars.ContextVar("v", default=1)
    return calls(jit, lambda x: x * v.get(), lambda turn: v.set(turn // 2))


@program
def _context_variable_of_a_list(jit):
    v = contextvars.ContextVar("v", default=[1])
    v.set([1])
    return calls(jit, lambda x: x * v.get()[0], lambda turn: v.get().__setitem__(0, turn // 2))


@program
def _lock(jit):
    lock = threading.Lock()
    f = jit(lambda x: x * 2 if lock.locked() else x * 3)

    def call(turn):
        with lock if turn > 3 else contextlib.nullcontext():
            return f(one())

    return call


@program
def _event(jit):
    event = threading.Event()
    f = jit(lambda x: x * 2 if event.is_set() else x * 3)

    def call(turn):
        if turn == 3:
            event.set()
        return f(one())

    return call


@program
def _recursion_limit(jit):
    before = sys.getrecursionlimit()
    f = jit(lambda x: x * (sys.getrecursionlimit() - before))

    def call(turn):
        sys.setrecursionlimit(before + turn)
        try:
            return f(one())
        finally:
            sys.setrecursionlimit(before)

    return call


@program
def _print_options(jit):
    f = jit(lambda x: x * np.get_printoptions()["precision"])

    def call(turn):
        with np.printoptions(precision=3 + turn // 2):
            return f(one())

    return call


@program
def _state_of_lazyts_random(jit):
    f = jit(lambda x: x * lt.random.get_state()[1])

    def call(turn):
        lt.random.seed(3)
        for _ in range(turn):
            lt.random.random(1)
        return f(one()).tolist()[0] == lt.random.get_state()[1]

    return call
