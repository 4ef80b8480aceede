"""Gradients, versions and texts of tensors; containers behind others."""

# ruff: noqa: B009, PYI024 - as people write

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import gc
import operator
import types
import weakref

import lazyt as lt
from lazyt import nn
from tests.support.jit_programs.table import calls, one, program

# --- gradients, versions, texts


@program
def _grad_of_a_tensor(jit):
    w = lt.ones(2).requires_grad_()
    f = jit(lambda x: x * 2 if w.grad is None else x * 3)

    def call(turn):
        if turn == 3:
            (w * 2).sum().backward()
        if turn == 5:
            w.grad = None
        return f(one())

    return call


@program
def _value_of_grad(jit):
    w = lt.ones(2).requires_grad_()
    f = jit(lambda x: x if w.grad is None else x * w.grad)

    def call(turn):
        (w * 2).sum().backward()
        return f(one())

    return call


@program
def _grad_by_getattr(jit):
    w = lt.ones(2).requires_grad_()
    name = "grad"
    f = jit(lambda x: x * 2 if getattr(w, name) is None else x * 3)

    def call(turn):
        if turn == 3:
            (w * 2).sum().backward()
        return f(one())

    return call


@program
def _grad_by_attrgetter(jit):
    w = lt.ones(2).requires_grad_()
    get = operator.attrgetter("grad")
    f = jit(lambda x: x * 2 if get(w) is None else x * 3)

    def call(turn):
        if turn == 3:
            (w * 2).sum().backward()
        return f(one())

    return call


@program
def _grad_of_an_argument(jit):
    w = lt.ones(2).requires_grad_()
    f = jit(lambda w: w.detach() * 2 if w.grad is None else w.detach() * 3)

    def call(turn):
        if turn == 3:
            (w * 2).sum().backward()
        return f(w)

    return call


@program
def _norm_of_gradients(jit):
    layer = nn.Linear(2, 2)
    with lt.no_grad():
        layer.weight[...] = 1.0
        layer.bias[...] = 0.0
    f = jit(lambda x: x * 2 if all(p.grad is None for p in layer.parameters()) else x * 3)

    def call(turn):
        if turn == 3:
            layer(one()).sum().backward()
        return f(one())

    return call


@program
def _grad_is_set(jit):
    w = lt.ones(2).requires_grad_()

    def f(x):
        w.grad = None
        return x * 2

    jitted = jit(f)

    def call(turn):
        (w * 2).sum().backward()
        jitted(one())
        return w.grad is None

    return call


@program
def _version(jit):
    w = lt.ones(2)

    def change(turn):
        if turn in (2, 4):
            w.__iadd__(1)

    return calls(jit, lambda x: x * w._version, change)


@program
def _version_by_getattr(jit):
    w = lt.ones(2)

    def change(turn):
        if turn in (2, 4):
            w.__iadd__(1)

    return calls(jit, lambda x: x * getattr(w, "_version"), change)


@program
def _text_of_a_tensor(jit):
    w = lt.zeros(2)
    lt.sync()

    def change(turn):
        if turn == 3:
            w.__iadd__(1)
            lt.sync()

    return calls(jit, lambda x: x * len(str(w)) + f"{w}".count("1"), change)


@program
def _repr_of_a_tensor(jit):
    w = lt.zeros(2)
    lt.sync()

    def change(turn):
        if turn == 3:
            w.__iadd__(12345)
        w.tolist()

    return calls(jit, lambda x: x * len(repr(w)), change)


@program
def _repr_by_format(jit):
    w = lt.zeros(2)
    lt.sync()

    def change(turn):
        if turn == 3:
            w.__iadd__(12345)
        w.tolist()

    return calls(jit, lambda x: x * len(f"{w!r}"), change)


@program
def _is_pending(jit):
    w = [lt.ones(2) + 1]
    lt.sync()

    def change(turn):
        w[0].__iadd__(1)
        if turn % 2:
            lt.sync()

    return calls(jit, lambda x: x * 2 if w[0].is_pending else x * 3, change)


@program
def _hash_of_an_argument(jit):
    f = jit(lambda x, o: x * (id(o) % 7))
    kept = [object() for _ in range(6)]
    return lambda turn: f(one(), kept[turn]).tolist() == (one() * (id(kept[turn]) % 7)).tolist()


# --- containers behind others


@program
def _chain_map(jit):
    first, second = {"a": 1}, {"b": 2}
    both = collections.ChainMap(first, second)
    return calls(jit, lambda x: x * both["b"], lambda turn: second.update(b=turn // 2))


@program
def _chain_map_that_grows(jit):
    first, second = {}, {"b": 2}
    both = collections.ChainMap(first, second)

    def change(turn):
        if turn == 4:
            first["b"] = 9

    return calls(jit, lambda x: x * both["b"], change)


@program
def _mapping_proxy(jit):
    d = {"a": 1}
    seen = types.MappingProxyType(d)
    return calls(jit, lambda x: x * seen["a"], lambda turn: d.update(a=turn // 2))


@program
def _mapping_proxy_of_a_class(jit):
    class A:
        n = 1

    space = A.__dict__
    return calls(jit, lambda x: x * space["n"], lambda turn: setattr(A, "n", turn // 2))


@program
def _keys_view(jit):
    d = {"a": 1}
    keys = d.keys()

    def change(turn):
        if turn == 4:
            d["b"] = 2

    return calls(jit, lambda x: x * len(keys), change)


@program
def _values_view(jit):
    d = {"a": 1}
    values = d.values()
    return calls(jit, lambda x: x * sum(values), lambda turn: d.update(a=turn // 2))


@program
def _items_view(jit):
    d = {"a": 1}
    items = d.items()
    return calls(jit, lambda x: x * next(iter(items))[1], lambda turn: d.update(a=turn // 2))


@program
def _weak_reference(jit):
    class Box:
        n = 1

    b = Box()
    r = weakref.ref(b)
    return calls(jit, lambda x: x * r().n, lambda turn: setattr(b, "n", turn // 2))


@program
def _weak_reference_that_dies(jit):
    class Box:
        pass

    kept = [Box()]
    r = weakref.ref(kept[0])

    def change(turn):
        if turn == 3:
            kept.clear()
            gc.collect()

    return calls(jit, lambda x: x * 2 if r() is not None else x * 3, change)


@program
def _weak_proxy(jit):
    class Box:
        n = 1

    b = Box()
    p = weakref.proxy(b)
    return calls(jit, lambda x: x * p.n, lambda turn: setattr(b, "n", turn // 2))


@program
def _weak_dictionary(jit):
    class Box:
        pass

    b, d = Box(), weakref.WeakKeyDictionary()
    return calls(jit, lambda x: x * d[b], lambda turn: d.__setitem__(b, turn // 2))


@program
def _bound_getitem(jit):
    items = [1, 2]
    get = items.__getitem__
    return calls(jit, lambda x: x * get(0), lambda turn: items.__setitem__(0, turn // 2))


@program
def _bound_get(jit):
    d = {"a": 1}
    get = d.get
    return calls(jit, lambda x: x * get("a"), lambda turn: d.update(a=turn // 2))


@program
def _item_getter(jit):
    d, get = {"a": 1}, operator.itemgetter("a")
    return calls(jit, lambda x: x * get(d), lambda turn: d.update(a=turn // 2))


@program
def _text_with_attributes(jit):
    class Name(str):
        pass

    name = Name("a")
    name.scale = 1
    return calls(jit, lambda x: x * name.scale, lambda turn: setattr(name, "scale", turn // 2))


@program
def _number_with_attributes(jit):
    class Number(int):
        pass

    n = Number(2)
    n.scale = 1
    return calls(jit, lambda x: x * n.scale, lambda turn: setattr(n, "scale", turn // 2))


@program
def _float_argument_with_attributes(jit):
    class Number(float):
        pass

    n = Number(2)
    f = jit(lambda x, n: x * n.scale)

    def call(turn):
        n.scale = turn // 2
        return f(one(), n)

    return call


@program
def _user_list(jit):
    items = collections.UserList([1])
    return calls(jit, lambda x: x * items[0], lambda turn: items.__setitem__(0, turn // 2))


@program
def _tuple_of_lists(jit):
    items = ([1], [2])
    return calls(jit, lambda x: x * items[0][0], lambda turn: items[0].__setitem__(0, turn // 2))


@program
def _named_tuple_of_lists(jit):
    P = collections.namedtuple("P", "a b")
    p = P([1], 2)
    return calls(jit, lambda x: x * p.a[0], lambda turn: p.a.__setitem__(0, turn // 2))


@program
def _frozen_dataclass_of_a_dict(jit):
    @dataclasses.dataclass(frozen=True)
    class C:
        d: dict

    c = C({"a": 1})
    return calls(jit, lambda x: x * c.d["a"], lambda turn: c.d.update(a=turn // 2))


@program
def _cell_of_a_closure(jit):
    n = 1

    def inner():
        return n

    cell = inner.__closure__[0]

    def change(turn):
        nonlocal n
        n = turn // 2

    return calls(jit, lambda x: x * cell.cell_contents, change)


@program
def _lru_cache(jit):
    n = [1]

    @functools.lru_cache
    def scale():
        return n[0]

    def change(turn):
        n[0] = turn // 2
        if turn == 3:
            scale.cache_clear()

    return calls(jit, lambda x: x * scale(), change)


@program
def _cached_property(jit):
    class C:
        n = 1

        @functools.cached_property
        def scale(self):
            return self.n

    c = C()

    def change(turn):
        c.n = turn
        if turn == 3:
            del c.scale

    return calls(jit, lambda x: x * c.scale, change)


@program
def _descriptor(jit):
    class Field:
        n = 1

        def __get__(self, instance, owner=None):
            return self.n

    field = Field()

    class C:
        scale = field

    c = C()
    return calls(jit, lambda x: x * c.scale, lambda turn: setattr(field, "n", turn // 2))


@program
def _enum_value(jit):
    class Mode(enum.Enum):
        A = 1
        B = 2

    s = types.SimpleNamespace(mode=Mode.A)
    return calls(jit, lambda x: x * s.mode.value, lambda turn: setattr(s, "mode", Mode.B if turn > 3 else Mode.A))
