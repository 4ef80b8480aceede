"""What a function reads beside its arguments: names, variables of enclosing functions, attributes.

`watched` finds them once, from the function and whatever it reaches: functions of the user's that it names, their code,
modules of `lazyt.nn`, other objects and their classes, lists, dictionaries, sets, small arrays of NumPy. A guard is a
namespace and what was in it: objects are compared by identity, numbers and texts by value. What is in a tensor is not
looked at.

Not looked into: lazyt's own functions, NumPy's and the standard library's, and attributes of Python modules. Arrays of
NumPy that are large and may be written are only listed (`Guards.arrays`).
"""

from __future__ import annotations

import builtins
import functools
import itertools
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from lazyt.tracing.tensor_state import Holder
from lazyt.tracing.trace import whole_array

# Kinds of which equal values mean the same.
_PLAIN = (bool, int, float, complex, str, bytes, np.dtype, np.generic)
_LIBRARIES = frozenset(("lazyt", "numpy", "torch", "jax"))
# Of the standard library, by module and name: objects with attributes, and what to read of others.
_ATTRIBUTES = frozenset({
    ("types", "SimpleNamespace"), ("argparse", "Namespace"), ("_thread", "_local"), ("collections", "UserDict"),
    ("collections", "UserList"),
})  # fmt: skip
_CONTENTS = {
    ("builtins", "set"): "*{n}", ("builtins", "bytearray"): "bytes({n})", ("collections", "deque"): "*{n}",
    ("_contextvars", "ContextVar"): "{n}.get(END)",
}  # fmt: skip
# Keys and values: a key may go, and another come with the same value.
_ITEMS = "*{n}", "*{n}.values()"
# What an object is not read through.
_OF_CLASSES = frozenset({
    "__module__", "__doc__", "__dict__", "__weakref__", "__qualname__", "__annotations__", "__firstlineno__",
    "__static_attributes__",
})  # fmt: skip
FEW = 12  # attributes of a class that are read one by one
MOST = 20_000  # objects that are looked into
SMALL = 1024  # bytes of an array that is compared
MANY = 1000  # keys of a dictionary that are not compared
_END = object()
# Not looked into: a proxy may be of an object that is there no more.
_DEAD = frozenset((type(None), weakref.ProxyType, weakref.CallableProxyType))
_EMPTY = types.CellType()
# A variable, an attribute or an object is there no more, or another thread changes a namespace.
_GONE = (ValueError, AttributeError, KeyError, TypeError, RuntimeError, ReferenceError)

# What counts its changes says the latest one here: a number of its own.
counts = [0]
_numbers = itertools.count(1)


def count_change() -> None:
    """Say that something changed whose changes are counted."""
    counts[0] = next(_numbers)


def _counting(name: str) -> Any:
    method = getattr(dict, name)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        finally:
            count_change()

    return call


class CountedDict(dict[Any, Any]):
    """A dictionary that counts its changes, so that nobody has to look through it."""

    __slots__ = ()

    __setitem__, __delitem__, __ior__ = map(_counting, ("__setitem__", "__delitem__", "__ior__"))
    clear, pop, popitem, setdefault, update = map(_counting, ("clear", "pop", "popitem", "setdefault", "update"))


class TooMany(Exception):
    """The function reaches more objects than are looked into."""


class Namespace(NamedTuple):
    """One that is watched: expressions for what is in it, where it stands for `{n}`, and what it is called."""

    space: Any
    texts: tuple[str, ...]
    name: str

    @property
    def varies(self) -> bool:
        """Whether it may have more in it, or less."""
        return any(t.startswith("*") for t in self.texts)


class Guards:
    """Namespaces, and what was in them."""

    __slots__ = ("_always", "_changes", "_counted", "arrays")

    def __init__(self, counted: list[Namespace], others: list[Namespace], changes: int, arrays: list[Any]) -> None:
        # What counts its changes is not looked at while there are none.
        self._counted, self._always = _Group(counted), _Group(others) if others else None
        self._changes = changes
        self.arrays = arrays  # what may change unseen

    def hold(self) -> bool:
        """Whether all in them is as it was."""
        now = counts[0]
        if self._changes != now:
            if not self._counted.holds():
                return False
            self._changes = now
        return self._always is None or self._always.holds()

    def changed(self) -> str:
        """What is not."""
        return self._counted.changed() or (self._always is not None and self._always.changed()) or "nothing"


class _Group:
    """Namespaces that are read by one function, which is written for them."""

    __slots__ = ("kept", "namespaces", "read")

    def __init__(self, namespaces: list[Namespace]) -> None:
        self.namespaces = namespaces
        # NOTE: END stands behind each that varies: no element passes from one to the next unseen.
        parts = [", ".join((*n.texts, *["END"] * n.varies)).format(n=f"n{i}") for i, n in enumerate(namespaces)]
        space = {f"n{i}": n.space for i, n in enumerate(namespaces)} | {"END": _END, "contents": _contents}
        self.read: Callable[[], list[Any]] = eval(
            compile(f"lambda: [{', '.join(parts)}]", "<lazyt guards>", "eval"), space
        )
        self.kept = self.read()

    def holds(self) -> bool:
        """Whether all in them is as it was."""
        try:
            now = self.read()
        except _GONE:
            return False
        kept = self.kept
        return len(now) == len(kept) and (all(map(is_, now, kept)) or all(map(_same, now, kept)))

    def changed(self) -> str:
        """The first namespace that is not; '' if all are."""
        try:
            now = self.read()
        except _GONE:
            return "a variable or an object"
        place, of = 0, [n for n in self.namespaces for _ in range(1 if n.varies else len(n.texts))]
        for x, y in itertools.zip_longest(now, self.kept):
            if not _same(x, y):
                return of[place].name
            place += x is _END or not of[place].varies
        return ""


def _same(a: Any, b: Any) -> bool:
    # NOTE: never `==` of tensors or arrays, which computes. The text of a float tells 0.0 from -0.0.
    return a is b or (type(a) is type(b) and isinstance(a, _PLAIN) and repr(a) == repr(b))


def _contents(cell: types.CellType) -> Any:
    """What a variable holds that was empty."""
    return cell.cell_contents if cell != _EMPTY else _END


def _is_library(module: object) -> bool:
    name = str(module).partition(".")[0]
    own = name in _LIBRARIES or name in sys.stdlib_module_names
    return own and name != "__main__" and not str(module).startswith("lazyt.testing")


def _names(code: types.CodeType) -> Iterable[str]:
    """The names that a function's code looks for in its module, those of functions inside included."""
    import dis

    for i in dis.get_instructions(code):
        if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield i.argval
    for x in code.co_consts:
        if isinstance(x, types.CodeType):
            yield from _names(x)


class _Watch:
    def __init__(self) -> None:
        self.counted: list[Namespace] = []
        self.others: list[Namespace] = []
        self.seen: dict[int, Any] = {}
        self.names: set[tuple[int, str]] = set()
        self.todo: list[Any] = []
        self.arrays: list[weakref.ref[Any]] = []

    def reach(self, roots: Iterable[Any]) -> Guards:
        changes = counts[0]
        self.todo.extend(roots)
        while self.todo:
            x = self.todo.pop()
            if id(x) in self.seen or type(x) in _DEAD or isinstance(x, (*_PLAIN, Holder, types.ModuleType)):
                continue
            if len(self.seen) >= MOST:
                raise TooMany
            self.seen[id(x)] = x
            self._look(x)
        return Guards(self.counted, self.others, changes, self.arrays)

    def _look(self, x: Any) -> None:
        match x:
            case types.FunctionType():
                self._function(x)
            case types.MethodType():
                self.todo += (x.__func__, x.__self__)
            case functools.partial():
                self.todo += (x.func, *x.args, *x.keywords.values())
            case type():
                self._class(x)
            case dict():
                texts = _ITEMS if len(x) <= MANY else ("len({n})", "*{n}.values()")
                self._add(x, texts, "a dictionary", isinstance(x, CountedDict))
                self.todo += x.values()
            case list():
                self._add(x, ("*{n}",), "a list")
                self.todo += x
            case tuple() | frozenset():
                self.todo += x
            case np.ndarray():
                self._array(x)
            case _:
                self._object(x)
                return
        if isinstance(x, dict | list | tuple) and not _is_library(type(x).__module__):
            self._object(x)  # of a class of the user's own

    def _add(self, space: Any, texts: Iterable[str], name: str, counted: bool = False) -> None:
        (self.counted if counted else self.others).append(Namespace(space, (*texts,), name))

    def _array(self, x: np.ndarray[Any, Any]) -> None:
        if x.nbytes <= SMALL and not x.dtype.hasobject:
            self._add(x, ("{n}.tobytes()", "{n}.dtype"), "an array of NumPy")
        elif whole_array(x).flags.writeable:
            self.arrays.append(weakref.ref(whole_array(x)))

    def _function(self, f: types.FunctionType) -> None:
        if (wrapped := f.__dict__.get("__wrapped__")) is not None:
            self.todo.append(wrapped)
        if _is_library(f.__module__):
            return
        given = [f"{{n}}.{x}" for x in ("__defaults__", "__kwdefaults__") if getattr(f, x) is not None]
        self._add(f, ("{n}.__code__", *given), f"the function {f.__qualname__!r}")
        if f.__dict__:
            self._add(f.__dict__, _ITEMS, f"an attribute of the function {f.__qualname__!r}")
            self.todo += f.__dict__.values()
        space = f.__globals__
        for name in dict.fromkeys(_names(f.__code__)):
            if (name in space or not hasattr(builtins, name)) and (id(space), name) not in self.names:
                self.names.add((id(space), name))
                self._add(space, (f"{{n}}.get({name!r}, END)",), f"the name {name!r}")
                self.todo.append(space.get(name))
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            if id(cell) not in self.seen:
                self.seen[id(cell)] = cell
                empty = cell == _EMPTY
                self._add(cell, ("contents({n})" if empty else "{n}.cell_contents",), f"the variable {name!r}")
                self.todo.append(None if empty else cell.cell_contents)
        self.todo += (f.__defaults__, f.__kwdefaults__)

    def _class(self, kind: type) -> None:
        """What a class has: its objects are read through it."""
        for base in kind.__mro__:
            if _is_library(base.__module__) or (base is not kind and id(base) in self.seen):
                continue
            self.seen[id(base)] = base
            space, n = _referred(base)
            names = [x for x in vars(base) if x not in _OF_CLASSES]
            own = [f"{n}.__dict__[{x!r}]" for x in names]
            texts = (f"len({n}.__dict__)", *own) if len(own) <= FEW else (f"*{n}.__dict__", f"*{n}.__dict__.values()")
            self._add(space, texts, f"an attribute of the class {base.__name__!r}")
            self.todo += map(_function_of, vars(base).values())
        self.todo.append(type(kind))

    def _object(self, x: Any) -> None:
        kind = type(x)
        module, known = kind.__module__, (kind.__module__, kind.__qualname__)
        own = x.__dict__ if known in _ATTRIBUTES else _attributes(x)
        if isinstance(own, dict) and "__wrapped__" in own:
            self.todo.append(own["__wrapped__"])
            if _is_library(module):
                return
        bases = ((b.__module__, b.__qualname__) for b in kind.__mro__)
        if (text := next((_CONTENTS[b] for b in bases if b in _CONTENTS), None)) is not None:
            self._add(x, (text,), f"a {kind.__name__}")
            self.todo += x if text == "*{n}" else ()
        if _is_library(module) and not module.startswith("lazyt.") and known not in _ATTRIBUTES:
            return
        space, n = _referred(x)
        name = f"an attribute of a {kind.__name__}"
        self.todo.append(kind)
        if isinstance(own, dict):
            also = getattr(kind, "counts_changes", None)
            texts = f"{n}.__class__", f"*{n}.__dict__", f"*{n}.__dict__.values()"
            self._add(space, texts, name, also is not None)
            left_out = getattr(kind, "unwatched", ())
            self.todo += (v for k, v in own.items() if k not in left_out)
            self.todo += also or ()
        for base in kind.__mro__:
            if not _is_library(base.__module__):
                for at, v in vars(base).items():
                    if isinstance(v, types.MemberDescriptorType):
                        self._add(space, (f"getattr({n}, {at!r}, END)",), name)
                        self.todo.append(getattr(x, at, None))


def _function_of(v: Any) -> Any:
    """The function behind what a class has."""
    match v:
        case classmethod() | staticmethod():
            return v.__func__
        case property():
            return v.fget
        case functools.cached_property():
            return v.func
    return v


def _attributes(x: Any) -> Any:
    """The dictionary of an object's attributes, without a question to the object."""
    try:
        return object.__getattribute__(x, "__dict__")
    except AttributeError:
        return None


def _referred(x: Any) -> tuple[Any, str]:
    """What stands for an object in the text of a guard, and how it is read there.

    Nobody lives longer for it, but who is among his own attributes.
    """
    try:
        return weakref.ref(x), "{n}()"
    except TypeError:
        return x, "{n}"


def watched(roots: Iterable[Any]) -> Guards:
    """The guards of what functions and objects reach. Raises TooMany."""
    return _Watch().reach(roots)
