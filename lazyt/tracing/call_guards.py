"""What a function reads beside its arguments: names, variables of enclosing functions, attributes.

`watched` finds them once, from the function and whatever it reaches: functions of the user's that it names, modules of
`lazyt.nn`, other objects, lists and dictionaries. A guard is a namespace and what was in it: objects are compared by
identity, numbers and texts by value. What is in a tensor is not looked at.

Not looked into: lazyt's own functions, NumPy's and the standard library's, and attributes of Python modules.
"""

from __future__ import annotations

import functools
import itertools
import sys
import types
from collections.abc import Callable, Iterable
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from lazyt.tracing.tensor_state import Holder

# Kinds of which equal values mean the same.
_PLAIN = (bool, int, float, complex, str, bytes, np.dtype, np.generic)
_LIBRARIES = frozenset(("lazyt", "numpy", "torch", "jax"))
MOST = 20_000  # objects that are looked into
_END = object()
_EMPTY = types.CellType()

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
    """One that is watched: an expression for what is in it, where it stands for `{n}`, and what it is called."""

    space: Any
    text: str
    name: str


class Guards:
    """Namespaces, and what was in them."""

    __slots__ = ("_always", "_changes", "_counted")

    def __init__(self, counted: list[Namespace], others: list[Namespace], changes: int) -> None:
        # What counts its changes is not looked at while there are none.
        self._counted, self._always = _Group(counted), _Group(others) if others else None
        self._changes = changes

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
        # NOTE: END stands behind each: no element passes from one to the next unseen.
        parts = [n.text.format(n=f"n{i}") + ", END" for i, n in enumerate(namespaces)]
        space = {f"n{i}": n.space for i, n in enumerate(namespaces)} | {"END": _END}
        self.read: Callable[[], list[Any]] = eval(
            compile(f"lambda: [{', '.join(parts)}]", "<lazyt guards>", "eval"), space
        )
        self.kept = self.read()

    def holds(self) -> bool:
        """Whether all in them is as it was."""
        try:
            now = self.read()
        except ValueError:  # a variable of an enclosing function was deleted
            return False
        kept = self.kept
        return len(now) == len(kept) and (all(map(is_, now, kept)) or all(map(_same, now, kept)))

    def changed(self) -> str:
        """The first namespace that is not; '' if all are."""
        try:
            now = self.read()
        except ValueError:
            return "a variable"
        at = 0
        for x, y in itertools.zip_longest(now, self.kept):
            if not _same(x, y):
                return self.namespaces[at].name
            at += x is _END
        return ""


def _same(a: Any, b: Any) -> bool:
    # NOTE: never `==` of tensors or arrays, which computes. The text of a float tells 0.0 from -0.0.
    return a is b or (type(a) is type(b) and isinstance(a, _PLAIN) and repr(a) == repr(b))


def _is_library(module: object) -> bool:
    name = str(module).partition(".")[0]
    own = name in _LIBRARIES or name in sys.stdlib_module_names
    return own and name != "__main__" and not str(module).startswith("lazyt.testing")


def _names(code: types.CodeType) -> Iterable[str]:
    """The names that a function's code may look for in its module, those of functions inside included."""
    yield from code.co_names
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

    def reach(self, roots: Iterable[Any]) -> Guards:
        changes = counts[0]
        self.todo.extend(roots)
        while self.todo:
            x = self.todo.pop()
            if x is None or isinstance(x, (*_PLAIN, Holder, np.ndarray, types.ModuleType)) or id(x) in self.seen:
                continue
            if len(self.seen) >= MOST:
                raise TooMany
            self.seen[id(x)] = x
            self._look(x)
        return Guards(self.counted, self.others, changes)

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
                self._elements(x, "a dictionary", isinstance(x, CountedDict))
            case list():
                self._elements(x, "a list")
            case tuple():
                self.todo += x
            case _:
                self._object(x)

    def _elements(self, space: Any, name: str, counted: bool = False) -> None:
        """Watch all elements of a list or a dictionary."""
        listed = isinstance(space, list)
        (self.counted if counted else self.others).append(Namespace(space, "*{n}" if listed else "*{n}.values()", name))
        self.todo += space if listed else space.values()

    def _function(self, f: types.FunctionType) -> None:
        if (wrapped := getattr(f, "__wrapped__", None)) is not None:
            self.todo.append(wrapped)
        if _is_library(f.__module__):
            return
        space = f.__globals__
        for name in dict.fromkeys(_names(f.__code__)):
            if name in space and (id(space), name) not in self.names:
                self.names.add((id(space), name))
                self.others.append(Namespace(space, f"{{n}}.get({name!r}, END)", f"the name {name!r}"))
                self.todo.append(space[name])
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            if cell != _EMPTY and id(cell) not in self.seen:
                self.seen[id(cell)] = cell
                self.others.append(Namespace(cell, "{n}.cell_contents", f"the variable {name!r}"))
                self.todo.append(cell.cell_contents)
        self.todo += (f.__defaults__, f.__kwdefaults__)

    def _class(self, kind: type) -> None:
        """The functions of a class: its objects are read through them."""
        for base in kind.__mro__:
            if not _is_library(base.__module__):
                for v in vars(base).values():
                    self.todo.append(getattr(v, "__func__", getattr(v, "fget", v)))

    def _object(self, x: Any) -> None:
        module = type(x).__module__
        if _is_library(module) and not module.startswith("lazyt."):
            return
        if (wrapped := getattr(x, "__wrapped__", None)) is not None:
            self.todo.append(wrapped)
            return
        space = getattr(x, "__dict__", None)
        if isinstance(space, dict):
            also = getattr(type(x), "counts_changes", None)
            self._elements(space, f"an attribute of a {type(x).__name__}", also is not None)
            self.todo += also or ()
        self.todo.append(type(x))


def watched(roots: Iterable[Any]) -> Guards:
    """The guards of what functions and objects reach. Raises TooMany."""
    return _Watch().reach(roots)
