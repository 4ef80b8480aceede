"""Hooks, prints, files, queues, and writes to what is not returned."""

from __future__ import annotations

import array as arrays
import collections
import contextlib
import ctypes
import io
import json
import logging
import os
import queue
import sys
import tempfile
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np

import lazyt as lt
from lazyt import nn
from tests.support.jit_programs.table import Jit, calls, one, program

# --- hooks


def _hooked(jit: Jit, register: Callable[[Any, list[float]], Any]) -> Callable[[int], Any]:
    model, s = nn.Sequential(nn.Identity(), nn.ReLU()), [1.0]
    register(model, s)

    def change(turn):
        s[0] = 5.0 if turn > 2 else 1.0

    return calls(jit, model, change)


@program
def _forward_hook(jit):
    return _hooked(jit, lambda m, s: m.register_forward_hook(lambda mod, a, y: y * s[0]))


@program
def _forward_hook_inside(jit):
    return _hooked(jit, lambda m, s: m[0].register_forward_hook(lambda mod, a, y: y * s[0]))


@program
def _forward_pre_hook(jit):
    return _hooked(jit, lambda m, s: m[1].register_forward_pre_hook(lambda mod, a: (a[0] * s[0],)))


@program
def _hook_with_keywords(jit):
    return _hooked(jit, lambda m, s: m.register_forward_hook(lambda mod, a, k, y: y * s[0], with_kwargs=True))


@program
def _hook_of_an_object(jit):
    class Hook:
        n = 0

        def __call__(self, mod, a, y):
            self.n += 1
            return y * self.n

    return _hooked(jit, lambda m, s: m.register_forward_hook(Hook()))


@program
def _hook_that_counts(jit):
    model, seen = nn.Identity(), []
    model.register_forward_hook(lambda mod, a, y: seen.append(1))
    f = jit(model)
    return lambda turn: (f(one()), len(seen))


@program
def _hook_that_comes_and_goes(jit):
    model = nn.Identity()
    f, handles = jit(lambda x: model(x) * 2), []

    def call(turn):
        if turn == 3:
            handles.append(model.register_forward_hook(lambda mod, a, y: y * 10))
        if turn == 5:
            handles.pop().remove()
        return f(one())

    return call


@program
def _hook_of_all_modules(jit):
    model, s = nn.Identity(), [1.0]
    f = jit(lambda x: model(x) * 2)

    def call(turn):
        s[0] = float(turn)
        with nn.hooks.register_module_forward_hook(lambda mod, a, y: y * s[0]):
            return f(one())

    return call


@program
def _hook_of_all_modules_before(jit):
    model, s = nn.Identity(), [1.0]
    f = jit(lambda x: model(x) * 2)

    def call(turn):
        s[0] = float(turn)
        with nn.hooks.register_module_forward_pre_hook(lambda mod, a: (a[0] + s[0],)):
            return f(one())

    return call


# --- effects


@program
def _print(jit):
    out = io.StringIO()
    f = jit(lambda x: (print("called"), x * 2)[1])

    def call(turn):
        with contextlib.redirect_stdout(out):
            y = f(one())
        return y, out.getvalue()

    return call


@program
def _print_by_another_name(jit):
    out, say = io.StringIO(), print
    f = jit(lambda x: (say("called"), x * 2)[1])

    def call(turn):
        with contextlib.redirect_stdout(out):
            y = f(one())
        return y, out.getvalue()

    return call


@program
def _print_in_a_helper(jit):
    out = io.StringIO()

    def helper(x):
        print("x", x.shape, file=out)
        return x * 2

    f = jit(lambda x: helper(x) + 1)
    return lambda turn: (f(one()), out.getvalue())


@program
def _write_to_a_file(jit):
    out = io.StringIO()
    f = jit(lambda x: (out.write("a"), x * 2)[1])
    return lambda turn: (f(one()), out.getvalue())


@program
def _write_to_stdout(jit):
    out = io.StringIO()
    f = jit(lambda x: (sys.stdout.write("a"), x * 2)[1])

    def call(turn):
        with contextlib.redirect_stdout(out):
            f(one())
        return out.getvalue()

    return call


@program
def _bound_write(jit):
    out = io.StringIO()
    write = out.write
    f = jit(lambda x: (write("a"), x * 2)[1])
    return lambda turn: (f(one()), out.getvalue())


def _logged(jit: Jit, log: Callable[[logging.Logger], Callable[[Any], Any]]) -> Callable[[int], Any]:
    out, logger = io.StringIO(), logging.getLogger(f"jit.{time.perf_counter_ns()}")
    logger.addHandler(logging.StreamHandler(out))
    logger.setLevel(logging.INFO)
    logger.propagate = False
    f = jit(log(logger))
    return lambda turn: (f(one()), out.getvalue())


@program
def _logging(jit):
    return _logged(jit, lambda logger: lambda x: (logger.info("called"), x * 2)[1])


@program
def _logging_bound(jit):
    def make(logger):
        say = logger.warning
        return lambda x: (say("called"), x * 2)[1]

    return _logged(jit, make)


@program
def _queue_put(jit):
    q = queue.Queue()
    f = jit(lambda x: (q.put(1), x * 2)[1])
    return lambda turn: (f(one()), q.qsize())


@program
def _simple_queue(jit):
    q = queue.SimpleQueue()
    put = q.put
    f = jit(lambda x: (put(1), x * 2)[1])
    return lambda turn: (f(one()), q.qsize())


@program
def _queue_get(jit):
    q = queue.Queue()
    for k in range(10):
        q.put(k)
    return calls(jit, lambda x: x * q.get())


@program
def _append(jit):
    n = []
    f = jit(lambda x: (n.append(1), x * 2)[1])
    return lambda turn: (f(one()), len(n))


@program
def _bound_append(jit):
    n = []
    app = n.append
    f = jit(lambda x: (app(1), x * 2)[1])
    return lambda turn: (f(one()), len(n))


@program
def _append_that_is_undone(jit):
    n = []
    f = jit(lambda x: (n.append(1), x * 2)[1])

    def call(turn):
        n.clear()
        f(one())
        return len(n)

    return call


@program
def _flag_that_is_undone(jit):
    s = types.SimpleNamespace(done=False)

    def f(x):
        s.done = True
        return x * 2

    jitted = jit(f)

    def call(turn):
        s.done = False
        jitted(one())
        return s.done

    return call


@program
def _global_that_is_only_written(jit):
    space = {}
    exec("def f(x):\n    global last\n    last = x.shape\n    return x * 2\n", space)
    f = jit(space["f"])

    def call(turn):
        space["last"] = None
        f(one())
        return space["last"]

    return call


@program
def _nonlocal_that_counts(jit):
    n = 0

    def f(x):
        nonlocal n
        n += 1
        return x * n

    return calls(jit, f)


@program
def _global_that_counts(jit):
    space = {"n": 0}
    exec("def f(x):\n    global n\n    n += 1\n    return x * n\n", space)
    return calls(jit, space["f"])


@program
def _attribute_that_counts(jit):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    return calls(jit, Model())


@program
def _attribute_of_the_function(jit):
    def f(x):
        f.n += 1
        return x * f.n

    f.n = 0
    return calls(jit, f)


@program
def _counter_of_collections(jit):
    seen = collections.Counter()

    def f(x):
        seen["x"] += 1
        return x * seen["x"]

    return calls(jit, f)


@program
def _default_dict_that_grows(jit):
    seen = collections.defaultdict(list)

    def f(x):
        seen["x"].append(1)
        return x * len(seen["x"])

    return calls(jit, f)


@program
def _element_of_a_large_array_written(jit):
    h = np.zeros(1000)

    def f(x):
        h[5] += 1
        return x * 2

    jitted = jit(f)
    return lambda turn: (jitted(one()), float(h[5]))


@program
def _element_of_a_large_array_read(jit):
    h = np.zeros(1000)
    return calls(jit, lambda x: x * float(h[0]), lambda turn: h.__setitem__(0, turn))


@program
def _large_array_of_an_object(jit):
    class Model:
        def __init__(self):
            self.table = np.zeros(1000)

        def __call__(self, x):
            return x * float(self.table[3])

    m = Model()
    return calls(jit, m, lambda turn: m.table.__setitem__(3, turn // 2))


@program
def _large_array_in_a_list(jit):
    kept = [np.zeros(1000)]
    return calls(jit, lambda x: x * float(kept[0].sum()), lambda turn: kept[0].fill(turn))


@program
def _view_of_a_large_array(jit):
    a = np.zeros(1000)
    part = a[:3]
    return calls(jit, lambda x: x * float(part[1]), lambda turn: a.fill(turn // 2))


@program
def _small_array(jit):
    a = np.zeros(3)
    return calls(jit, lambda x: x * float(a[0]), lambda turn: a.fill(turn // 2))


@program
def _shape_of_an_array(jit):
    a = np.zeros(6)

    def change(turn):
        a.shape = (2, 3) if turn > 3 else (6,)

    return calls(jit, lambda x: x * len(a), change)


@program
def _object_array(jit):
    a = np.array([1, None], dtype=object)
    return calls(jit, lambda x: x * a[0], lambda turn: a.__setitem__(0, turn // 2))


@program
def _array_of_arrays(jit):
    a = arrays.array("d", [1.0, 2.0])
    return calls(jit, lambda x: x * a[0], lambda turn: a.__setitem__(0, turn // 2))


@program
def _memoryview(jit):
    m = memoryview(bytearray(b"\1\2"))
    return calls(jit, lambda x: x * m[0], lambda turn: m.__setitem__(0, turn // 2))


@program
def _ctypes(jit):
    c = ctypes.c_int(1)
    return calls(jit, lambda x: x * c.value, lambda turn: setattr(c, "value", turn // 2))


@program
def _a_file(jit):
    path = os.path.join(tempfile.mkdtemp(), "a.json")

    def change(turn):
        with open(path, "w") as out:
            json.dump(turn // 2, out)

    def f(x):
        with open(path) as given:
            return x * json.load(given)

    return calls(jit, f, change)


@program
def _a_numpy_file(jit):
    path = os.path.join(tempfile.mkdtemp(), "a.npy")
    return calls(jit, lambda x: x * float(np.load(path)), lambda turn: np.save(path, float(turn // 2)))


@program
def _effect_of_lazyt(jit):
    seen = []
    f = jit(lambda x: (lt.debug.callback(lambda v: seen.append(float(v.sum())), x), x * 2)[1])

    def call(turn):
        y = f(one()).tolist()
        lt.sync()
        return y, len(seen)

    return call


@program
def _raised_at_times(jit):
    def f(x):
        if n[0] == 3:
            raise ValueError("three")
        return x * n[0]

    n, jitted = [0], jit(f)

    def call(turn):
        n[0] = turn
        try:
            return jitted(one())
        except ValueError as error:
            return str(error)

    return call
