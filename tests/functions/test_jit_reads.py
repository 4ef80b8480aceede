"""What a function under `jit` reads beside its arguments, in all places: it is called again when that has changed."""

from __future__ import annotations

import argparse
import collections
import contextvars
import functools
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.errors import LazytWarning
from tests.support.jitted import Counted

# A function, and what changes what it reads.
Case = tuple[Callable[[Any], Any], Callable[[], Any]]


def _class_attribute() -> Case:
    class Scale:
        factor = 2.0

        def __call__(self, x: Any) -> Any:
            return x * self.factor

    s = Scale()
    return lambda x: s(x), lambda: setattr(Scale, "factor", 7.0)


def _method() -> Case:
    class Scale:
        def by(self, x: Any) -> Any:
            return x * 2

    s = Scale()
    return lambda x: s.by(x), lambda: setattr(Scale, "by", lambda self, x: x * 7)


def _forward_of_a_module() -> Case:
    class Scale(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

    m = Scale()
    return lambda x: m(x), lambda: setattr(Scale, "forward", lambda self, x: x * 7)


def _metaclass() -> Case:
    class Meta(type):
        factor = 2.0

    class Scale(metaclass=Meta):
        pass

    return lambda x: x * Scale.factor, lambda: setattr(Meta, "factor", 7.0)


def _class_of_an_object() -> Case:
    class One:
        def __call__(self, x: Any) -> Any:
            return x * 2

    class Other:
        def __call__(self, x: Any) -> Any:
            return x * 7

    s: Any = One()
    return lambda x: s(x), lambda: setattr(s, "__class__", Other)


def _key() -> Case:
    d = {"relu": True}
    return lambda x: x * 2 if "relu" in d else -x, lambda: d.update(tanh=d.pop("relu"))


def _order() -> Case:
    d = {"a": 2.0, "b": 2.0}
    return lambda x: x * 2 if next(iter(d)) == "a" else -x, lambda: d.update(a=d.pop("a"))


def _module_dict() -> Case:
    m = nn.ModuleDict({"a": nn.Identity()})
    return lambda x: x * 2 if "a" in m else -x, lambda: m.update({"b": m.pop("a")})


def _renamed_attribute() -> Case:
    class State:
        pass

    s: Any = State()
    s.s = 2.0

    def change() -> None:
        s.t = s.s
        del s.s

    return lambda x: x * 2 if hasattr(s, "s") else -x, change


def _namespace(kind: Any) -> Case:
    s = kind(lr=2.0)
    return lambda x: x * s.lr, lambda: setattr(s, "lr", 7.0)


def _set() -> Case:
    s = {"a"}
    return lambda x: x * 2 if "a" in s else -x, s.clear


def _deque() -> Case:
    d = collections.deque([2.0])
    return lambda x: x * d[0], lambda: d.appendleft(7.0)


def _bytearray() -> Case:
    b = bytearray(b"\2")
    return lambda x: x * b[0], lambda: b.__setitem__(0, 7)


def _thread_local() -> Case:
    s = threading.local()
    s.factor = 2.0
    return lambda x: x * s.factor, lambda: setattr(s, "factor", 7.0)


VARIABLE: contextvars.ContextVar[float] = contextvars.ContextVar("VARIABLE", default=2.0)


def _context_variable() -> Case:
    VARIABLE.set(2.0)
    return lambda x: x * VARIABLE.get(), lambda: VARIABLE.set(7.0)


def _slots() -> Case:
    class Slots:
        __slots__ = ("__own", "factor")

        def __init__(self) -> None:
            self.factor, self.__own = 2.0, 1.0

        def __call__(self, x: Any) -> Any:
            return x * self.factor + self.__own

        def change(self) -> None:
            self.__own = 5.0

    s = Slots()
    return lambda x: s(x), s.change


def _function_attribute() -> Case:
    def f(x: Any) -> Any:
        return x * f.factor  # type: ignore[attr-defined]

    f.factor = 2.0  # type: ignore[attr-defined]
    return f, lambda: setattr(f, "factor", 7.0)


def _defaults() -> Case:
    def f(x: Any, by: float = 2.0) -> Any:
        return x * by

    return lambda x: f(x), lambda: setattr(f, "__defaults__", (7.0,))


def _code() -> Case:
    def f(x: Any) -> Any:
        return x * 2

    def g(x: Any) -> Any:
        return x * 7

    return lambda x: f(x), lambda: setattr(f, "__code__", g.__code__)


def _wrapper() -> Case:
    class Wrapper:
        def __init__(self, f: Any) -> None:
            functools.update_wrapper(self, f)
            self.factor = 2.0

        def __call__(self, x: Any) -> Any:
            return self.__wrapped__(x) * self.factor  # type: ignore[attr-defined]

    w = Wrapper(lambda x: x + 1)
    return lambda x: w(x), lambda: setattr(w, "factor", 7.0)


def _name_that_comes_later() -> Case:
    def f(x: Any) -> Any:
        try:
            return x * LATER  # type: ignore[name-defined]
        except NameError:
            return x * 2

    globals().pop("LATER", None)
    return f, lambda: globals().update(LATER=7.0)


def _variable_that_comes_later() -> Case:
    def f(x: Any) -> Any:
        try:
            return x * factor
        except NameError:
            return x * 2

    def change() -> None:
        nonlocal factor
        factor = 7.0

    factor = 1.0
    del factor
    return f, change


def _array() -> Case:
    a = np.full(3, 2.0, np.float32)
    return lambda x: x * a, lambda: a.fill(7)


CASES = {
    "an attribute of a class": _class_attribute, "a method": _method, "a module's forward": _forward_of_a_module,
    "an attribute of a metaclass": _metaclass, "the class of an object": _class_of_an_object, "a key": _key,
    "the order of keys": _order, "a key of a ModuleDict": _module_dict, "the name of an attribute": _renamed_attribute,
    "SimpleNamespace": lambda: _namespace(types.SimpleNamespace), "argparse": lambda: _namespace(argparse.Namespace),
    "a set": _set, "a deque": _deque, "a bytearray": _bytearray, "a thread's own": _thread_local,
    "a context variable": _context_variable, "slots": _slots, "an attribute of a function": _function_attribute,
    "defaults": _defaults, "code": _code, "a wrapper's attribute": _wrapper,
    "a name that comes later": _name_that_comes_later, "a variable that comes later": _variable_that_comes_later,
    "a small array": _array,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_seen(name: str) -> None:
    f, change = CASES[name]()
    jitted, x = lt.jit(f), lt.asarray([1.0, -2.0, 3.0])
    for turn in range(10):
        if turn == 5:
            change()
        assert jitted(x).tolist() == f(x).tolist(), f"turn {turn}: {jitted}"
        assert turn not in (4, 9) or "1 calls remembered" in repr(jitted) or "2 calls remembered" in repr(jitted)


def test_a_large_array_has_the_function_called_each_time() -> None:
    """Where it makes a tensor of data of the host: it may be of that array."""
    a = np.ones((40, 40), np.float32)
    f, x = lt.jit(lambda x: x * a), lt.ones((40, 40))

    def turns() -> list[float]:
        found = []
        for turn in range(6):
            a[:] = turn
            found.append(f(x)[0, 0].item())
        return found

    with pytest.warns(
        LazytWarning, match=r"called each time: .* large array of NumPy, .* tensor outside, or read-only"
    ):
        assert turns() == [0, 1, 2, 3, 4, 5]
    a.flags.writeable = False
    g = lt.jit(lambda x: x * a)
    for _ in range(4):
        assert g(x)[0, 0].item() == 5
    assert "1 calls remembered" in repr(g)


def test_an_array_that_no_tensor_is_made_of_is_no_hindrance() -> None:
    class Agent:
        def __init__(self) -> None:
            self.history = np.zeros((100, 100))

        def __call__(self, x: Any) -> Any:
            return lt.tanh(x)

    f, x = lt.jit(Agent()), lt.ones(3)
    for _ in range(4):
        f(x).tolist()
    assert "1 calls remembered" in repr(f)


def test_a_constant_beside_a_large_array_is_no_hindrance() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.data = np.ones(1000, np.float32)

        def forward(self, x: Any) -> Any:
            return x / np.sqrt(64) + lt.tensor([1.0, 2.0])

    f = lt.jit(Model())
    for _ in range(5):
        f(lt.ones(2)).tolist()
    assert "1 calls remembered" in repr(f)


def test_a_view_of_a_large_array_has_the_function_called_each_time() -> None:
    a = np.zeros(1000, np.float32)
    part = a[10:800]
    f = lt.jit(lambda x: x + part[:2])
    with pytest.warns(LazytWarning, match="called each time"):
        assert [(a.fill(k), f(lt.ones(2)).tolist())[1] for k in range(6)] == [[1.0 + k] * 2 for k in range(6)]


def test_containers_of_the_user_s_own() -> None:
    class Config(dict[str, float]):
        __getattr__ = dict.__getitem__

    class Names(set[str]):
        pass

    config, names = Config(scale=2.0), Names({"a"})
    config.__dict__["shift"] = 1.0

    class Model(nn.Module):
        own = config

        def forward(self, x: Any) -> Any:
            return x * self.own.scale + self.own.__dict__["shift"] + len(names)

    m = Model()
    f = lt.jit(m)
    changes: dict[int, Any] = {
        4: lambda: config.update(scale=3.0), 8: lambda: config.__dict__.update(shift=5.0), 12: lambda: names.add("b"),
    }  # fmt: skip
    for turn in range(16):
        changes.get(turn, lambda: None)()
        assert f(lt.ones(1)).tolist() == m(lt.ones(1)).tolist()
    assert "the last one was not" not in repr(f)


def test_more_objects_than_are_looked_into_are_told_once() -> None:
    table = {i: (i, str(i)) for i in range(30_000)}
    f = lt.jit(lambda x: x * len(table))
    with pytest.warns(LazytWarning, match="too many objects"):
        f(lt.ones(1))
    for _ in range(3):
        assert f(lt.ones(1)).tolist() == [30_000.0]


def test_attributes_are_not_asked_for() -> None:
    class Strict:
        def __getattr__(self, name: str) -> Any:
            raise KeyError(name)

        def __call__(self, x: Any) -> Any:
            return x * 2

    s = Strict()
    f = lt.jit(lambda x: s(x))
    assert [f(lt.ones(1)).tolist() for _ in range(4)] == [[2.0]] * 4


# What a function returns of one value, and how to find the first and the last of them.
Out = Callable[[Any], Any]
RETURNS: dict[str, tuple[Out, Out]] = {
    "a pair": (lambda y: (y, y), lambda out: out),
    "nests": (lambda y: ((y,), [y]), lambda out: (out[0][0], out[1][0])),
    "a dict": (lambda y: {"a": y, "b": y}, lambda out: (out["a"], out["b"])),
    "asarray": (lambda y: (y, lt.asarray(y)), lambda out: out),
    "three": (lambda y: (y, y + 1, y), lambda out: (out[0], out[2])),
}


@pytest.mark.parametrize("name", RETURNS)
def test_a_result_that_is_returned_twice_is_one_tensor(name: str) -> None:
    returned, both = RETURNS[name]
    f = lt.jit(lambda x: returned(lt.tanh(x) * 2))
    for _ in range(5):
        first, last = both(f(lt.ones(2)))
        assert first is last
        first += 1
        assert first.tolist() == last.tolist() == pytest.approx([2 * np.tanh(1) + 1] * 2)
    assert "1 calls remembered" in repr(f)


def test_a_recurrent_cell_returns_its_state_twice() -> None:
    @lt.jit
    def cell(x: Any, h: Any) -> Any:
        h = lt.tanh(x + h)
        return h, h

    h, want = lt.zeros(2), np.zeros(2, np.float32)
    for _ in range(6):
        out, h = cell(lt.ones(2), h)
        want = np.tanh(1 + want)
        np.testing.assert_allclose(out.numpy(), want, rtol=1e-6)
    np.testing.assert_allclose(h.numpy(), want, rtol=1e-6)


@pytest.mark.parametrize("where", ["a global", "an attribute", "a buffer", "a variable"])
def test_what_it_reads_and_writes_as_a_whole(where: str) -> None:
    """Of several elements: whether somebody holds a value is not its truth."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("h", lt.zeros(3))

    s: Any = Model() if where == "a buffer" else types.SimpleNamespace(h=lt.zeros(3))
    h = s.h

    @lt.jit
    def f(x: Any) -> Any:
        at = h if where == "a variable" else s.h
        at[...] = at * 0.5 + x
        return at.sum()

    want = 0.0
    for _ in range(6):
        want = want * 0.5 + 1
        assert f(lt.ones(3)).item() == want * 3
    assert s.h.tolist() == [want] * 3


def test_slices_and_keys_are_told_apart() -> None:
    f = Counted(lambda x, at, d: x[at] * next(iter(d))).jitted
    x = lt.arange(5)
    for _ in range(4):
        assert f(x, slice(1, 3), {2: 0}).tolist() == [2, 4]
        assert f(x, slice(None, None, 2), {2: 0}).tolist() == [0, 4, 8]
        assert f(x, slice(1, 3), {2.0: 0}).dtype == lt.float64
    assert "3 calls remembered" in repr(f)
