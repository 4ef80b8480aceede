"""What a function reads beside its arguments: names, variables of enclosing functions, attributes.

`watched` finds them once, from the function and whatever it reaches: functions of the user's that it names, their code,
modules of `lazyt.nn`, other objects and their classes, lists, dictionaries, sets, small arrays of NumPy, attributes of
the user's Python modules. A guard is a namespace and what was in it: objects are compared by identity, numbers and
texts by value. What is in a tensor is not looked at.

Objects of kinds that are not known to be watched (watchable.py) are listed with the names that lead to them: a function
that uses one of these names is not remembered (`Guards.refusal`). Attributes of lazyt's, NumPy's and the standard
library's modules are taken for constant.
"""

from __future__ import annotations

import abc
import builtins
import collections
import dis
import functools
import gc
import itertools
import sys
import threading
import types
import weakref
from collections.abc import Callable, Collection, Iterable
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from lazyt.tracing import watchable
from lazyt.tracing.tensor_state import Holder
from lazyt.tracing.trace import whole_array
from lazyt.tracing.watchable import (
    PLAIN,
    is_fixed,
    is_library,
    is_pure,
    parts_of,
    refusal_of_class,
    refusal_of_function,
    refusal_of_kind,
)  # fmt: skip

# Kinds of which equal values mean the same.
_PLAIN = (bool, int, float, complex, str, bytes, np.dtype, np.generic)
# By module and name, what to read of objects that have more than attributes.
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
_END = object()
_ARRAY = (
    "a large array of NumPy, whose changes are not seen; make that a tensor outside, or read-only "
    "(a.flags.writeable = False)"
)
_NAMES = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "STORE_NAME", "DELETE_GLOBAL"))
_PROXIES = frozenset((weakref.ProxyType, weakref.CallableProxyType))  # no question is asked of one: it may be dead
_LOCAL = threading.local
_VIEWS: Any = type({}.keys()), type({}.values()), type({}.items())
# Attributes that lazyt reads of objects of a user's class, and names by which a function may read any attribute.
_READ_BY_LAZYT = frozenset(("forward", "extra_repr"))
ANY_NAME = frozenset((
    "__dict__", "__getattribute__", "asdict", "astuple", "attrgetter", "fields", "getattr", "methodcaller", "vars",
))  # fmt: skip
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

    __slots__ = ("_always", "_changes", "_counted", "codes", "reached", "suspects", "tensors")

    def __init__(self, counted: list[Namespace], others: list[Namespace], changes: int) -> None:
        # What counts its changes is not looked at while there are none.
        self._counted, self._always = _Group(counted), _Group(others) if others else None
        self._changes = changes
        self.codes: set[int] = set()  # of the functions whose names are among these, by id
        self.reached: set[int] = set()  # all objects that were looked into, by id
        self.tensors: set[int] = set()  # tensors among them, by id
        # What is not watched: the names that lead to it, and what it is.
        self.suspects: list[tuple[frozenset[str], str]] = []

    @property
    def size(self) -> int:
        """How many values are compared at each call."""
        return 0 if self._always is None else len(self._always.kept)

    def refusal(self, names: Collection[str]) -> str:
        """What a function that uses these names may use that is not watched; '' if nothing."""
        return next((what for ways, what in self.suspects if not ways or not ways.isdisjoint(names)), "")

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
        return self._counted.changed() or (self._always is not None and self._always.changed()) or "what it reads"


class _Group:
    """Namespaces that are read by one function, which is written for them."""

    __slots__ = ("kept", "namespaces", "read")

    def __init__(self, namespaces: list[Namespace]) -> None:
        self.namespaces = namespaces
        # NOTE: END stands behind each that varies: no element passes from one to the next unseen.
        parts = [", ".join((*n.texts, *["END"] * n.varies)).format(n=f"n{i}") for i, n in enumerate(namespaces)]
        space = {f"n{i}": n.space for i, n in enumerate(namespaces)} | {
            "END": _END,
            "contents": _contents,
            "attributes": _attributes,
            "cached": _cached,
        }
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


def _all_codes(code: types.CodeType) -> Iterable[types.CodeType]:
    """The code of a function, and of those inside."""
    yield code
    for x in code.co_consts:
        if isinstance(x, types.CodeType):
            yield from _all_codes(x)


def names_of(code: types.CodeType) -> set[str]:
    """Names by which code may find objects, variables of enclosing functions and its own name included."""
    return {code.co_name, *code.co_names, *code.co_freevars, *code.co_cellvars}


def _names(code: types.CodeType) -> Iterable[str]:
    """The names that a function's code looks for in its module, those of functions inside included."""
    for c in _all_codes(code):
        yield from (i.argval for i in dis.get_instructions(c) if i.opname in _NAMES)


class _Watch:
    def __init__(self) -> None:
        self.counted: list[Namespace] = []
        self.others: list[Namespace] = []
        self.seen: dict[int, Any] = {}
        self.names: set[tuple[int, str]] = set()
        # Objects to look at, and how each is found: by a name, in another object (its id), or without either.
        self.todo: list[tuple[Any, str | int | None]] = []
        self.ways: dict[int, set[str | int | None]] = {}
        self.at: int | None = None
        self.refused: dict[int, str] = {}
        self.tensors: set[int] = set()
        self.codes: dict[int, types.CodeType] = {}
        self.used: set[str] = set()
        self.modules: list[types.ModuleType] = []

    def reach(self, roots: Iterable[Any]) -> Guards:
        changes = counts[0]
        self._go(*roots)
        while self.todo:
            while self.todo:
                self._next(*self.todo.pop())
            for m in self.modules:
                self._attributes_of(m)
        guards = Guards(self.counted, self.others, changes)
        guards.codes, guards.reached, guards.tensors = {*self.codes}, {*self.seen}, self.tensors
        guards.suspects = [
            (frozenset(found), what) for x, what in self.refused.items() for found in self._leading_to(x)
        ]
        return guards

    def _next(self, x: Any, way: str | int | None) -> None:
        if type(x) in _PROXIES:
            self.refused[id(x)] = "a weak reference"
        elif is_fixed(x):
            return
        elif isinstance(x, Holder):
            self.tensors.add(id(x))
            return
        self.ways.setdefault(id(x), set()).add(way)
        if id(x) in self.seen:
            return
        if len(self.seen) >= MOST:
            raise TooMany
        self.seen[id(x)], self.at = x, id(x)
        if type(x) not in _PROXIES:
            self._look(x)

    def _go(self, *found: Any) -> None:
        """Look at what is in the present object, wherever that is used."""
        self.todo += [(x, self.at) for x in found if type(x) not in PLAIN]

    def _go_by(self, name: str, x: Any) -> None:
        """Look at what is found by a name, `.name` of an attribute."""
        if type(x) not in PLAIN:
            self.todo.append((x, name))

    def _refuse(self, what: str) -> None:
        assert self.at is not None
        if what:
            self.refused[self.at] = what

    def _leading_to(self, x: int) -> Iterable[set[str]]:
        """The names that lead to an object, as one set; an empty one where none is needed."""
        todo, seen, found = [x], {x}, set[str]()
        while todo:
            for way in self.ways[todo.pop()]:
                if way is None:
                    return [set()]
                if isinstance(way, str):
                    found.add(way.removeprefix("."))
                    found |= ANY_NAME if way.startswith(".") else set()
                elif way not in seen:
                    seen.add(way)
                    todo.append(way)
        return [found] if found else []

    def _look(self, x: Any) -> None:
        match x:
            case types.FunctionType():
                self._function(x)
            case types.MethodType():
                self._go(x.__func__, x.__self__)
            case types.BuiltinFunctionType() | types.MethodWrapperType() | watchable.DISPATCHER():
                owner = getattr(x, "__self__", None)
                if owner is None or isinstance(owner, types.ModuleType):
                    self._refuse(refusal_of_function(x))
                else:
                    self._go(owner)
            case functools.partial():
                self._go(x.func, *x.args, *x.keywords.values())
                self._own(x, vars(x))
            case type():
                self._class(x)
            case types.ModuleType():
                self._module(x)
            case dict():
                self._add(x, _ITEMS, "a dictionary", isinstance(x, CountedDict))
                self._go(*x, *x.values(), x.default_factory if isinstance(x, collections.defaultdict) else None)
            case list():
                self._add(x, ("*{n}",), "a list")
                self._go(*x)
            case tuple() | frozenset():
                self._go(*x)
            case np.ndarray():
                self._array(x)
            case slice():
                self._go(x.start, x.stop, x.step)
            case types.MappingProxyType():
                self._add(x, _ITEMS, "a mapping")
                self._go(*x.values())
            case types.CellType():
                self._cell(x, "of a cell")
                self._go(*[x.cell_contents for _ in range(x != _EMPTY)])
            case property() | classmethod() | staticmethod() | functools.cached_property():
                self._go(*_functions_of(x))
            case _ if isinstance(x, _VIEWS):
                self._go(x.mapping)
            case _:
                self._object(x)
                return
        if isinstance(x, dict | list | tuple | frozenset) and not is_library(type(x).__module__):
            self._object(x)  # of a class of the user's own

    def _add(self, space: Any, texts: Iterable[str], name: str, counted: bool = False) -> None:
        (self.counted if counted else self.others).append(Namespace(space, (*texts,), name))

    def _array(self, x: np.ndarray[Any, Any]) -> None:
        if type(x) is not np.ndarray or x.dtype.hasobject:
            self._refuse(f"an array of NumPy of {type(x).__name__} and {x.dtype}")
        elif x.nbytes <= SMALL:
            self._add(x, ("{n}.tobytes()", "{n}.dtype", "hash({n}.shape)"), "an array of NumPy")
        elif not _is_constant(whole_array(x)):
            self._refuse(_ARRAY)

    def _cell(self, cell: types.CellType, name: str) -> None:
        if id(cell) in self.seen and self.at != id(cell):
            return
        self.seen[id(cell)] = cell
        empty = cell == _EMPTY
        self._add(cell, ("contents({n})" if empty else "{n}.cell_contents",), f"the variable {name}")

    def _function(self, f: types.FunctionType) -> None:
        if (wrapped := f.__dict__.get("__wrapped__")) is not None:
            self._go(wrapped)
        held = [c.cell_contents for c in f.__closure__ or () if c != _EMPTY]
        if is_library(f.__module__):
            self._refuse(refusal_of_function(f))
            self._go(*filter(_may_be_given, held))
            return
        self.codes.update((id(c), c) for c in _all_codes(f.__code__))
        for c in _all_codes(f.__code__):
            self.used |= names_of(c)
            self.used.update(x for x in c.co_consts if type(x) is str)
        given = [f"{{n}}.{x}" for x in ("__defaults__", "__kwdefaults__") if getattr(f, x) is not None]
        self._add(f, ("{n}.__code__", *given), f"the function {f.__qualname__!r}")
        if f.__dict__:
            self._add(f.__dict__, _ITEMS, f"an attribute of the function {f.__qualname__!r}")
            for k, v in f.__dict__.items():
                self._go_by(f".{k}", v)
        space = f.__globals__
        for name in dict.fromkeys(_names(f.__code__)):
            if (id(space), name) not in self.names:
                self.names.add((id(space), name))
                self._add(space, (f"{{n}}.get({name!r}, END)",), f"the name {name!r}")
            self._go_by(name, space[name] if name in space else getattr(builtins, name, None))
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            self._cell(cell, repr(name))
            if cell != _EMPTY:
                self._go_by(name, cell.cell_contents)
        self._go(f.__defaults__, f.__kwdefaults__)

    def _module(self, m: types.ModuleType) -> None:
        if is_library(m.__name__) and sys.modules.get(m.__name__, m) is m:
            self._refuse("" if is_pure(m.__name__) else f"the module {m.__name__!r}")
            if m.__name__.startswith("lazyt"):
                return
        else:
            self._add(m.__dict__, ("len({n})",), f"an attribute of the module {m.__name__!r}")
        self.modules.append(m)

    def _attributes_of(self, m: types.ModuleType) -> None:
        """Look at what is in a module under the names that functions use."""
        space, library = m.__dict__, is_library(m.__name__)
        if library:
            for name, x in parts_of(m, self.used).items():
                if id(x) not in self.seen:
                    self._go_by(f".{name}", x)
            return
        for name in [x for x in self.used if x in space and (id(space), x) not in self.names]:
            self.names.add((id(space), name))
            self._add(space, (f"{{n}}.get({name!r}, END)",), f"the attribute {name!r} of the module {m.__name__!r}")
            self._go_by(f".{name}", space[name])

    def _class(self, kind: type) -> None:
        """What a class has: its objects are read through it."""
        if is_library(kind.__module__):
            self._refuse(refusal_of_class(kind))
            return
        for base in kind.__mro__:
            if is_library(base.__module__) or (base is not kind and id(base) in self.seen):
                continue
            self.seen[id(base)] = base
            if base is not kind:
                self.ways.setdefault(id(base), set()).add(self.at)
            space, n = _referred(base)
            names = [x for x in vars(base) if x not in _OF_CLASSES]
            own = [f"{n}.__dict__[{x!r}]" for x in names]
            texts = (f"len({n}.__dict__)", *own) if len(own) <= FEW else (f"*{n}.__dict__", f"*{n}.__dict__.values()")
            self._add(space, (f"{n}.__mro__", *texts), f"an attribute of the class {base.__name__!r}")
            for name in names:
                self._attribute(name, vars(base)[name])
        if isinstance(kind, abc.ABCMeta):
            self._add(abc, ("{n}.get_cache_token()",), "a class that was registered")
        if not is_library(type(kind).__module__):
            self._go(type(kind))

    def _attribute(self, name: str, x: Any, always: bool = False) -> None:
        """Look at an attribute: Python itself reads some names, and lazyt others."""
        found = _functions_of(x)
        if always or name in _READ_BY_LAZYT or (name.startswith("__") and name.endswith("__")):
            self._go(*found)
        else:
            for v in found:
                self._go_by(f".{name}", v)

    def _own(self, x: Any, attributes: dict[str, Any]) -> None:
        """Watch the attributes that a user gave to an object of a library's."""
        space, n = _referred(x)
        names = [k for k in attributes if not k.startswith("_")]
        self._add(space, (f"len({n}.__dict__)", *[f"{n}.__dict__.get({k!r}, END)" for k in names]), "an attribute")
        for name in names:
            self._go_by(f".{name}", attributes[name])

    def _object(self, x: Any) -> None:
        kind = type(x)
        own = _attributes(x)
        if isinstance(own, dict) and "__wrapped__" in own:
            self._go(own["__wrapped__"])
            if isinstance(x, functools._lru_cache_wrapper):
                self._add(x, ("*cached({n})",), "a cache")
                self._go(*_cached(x))
            if is_library(kind.__module__):
                self._own(x, own)
                return
        if refused := refusal_of_kind(kind):
            self._refuse(refused)
            return
        bases = ((b.__module__, b.__qualname__) for b in kind.__mro__)
        if (text := next((_CONTENTS[b] for b in bases if b in _CONTENTS), None)) is not None:
            self._add(x, (text,), f"a {kind.__name__}")
            if text == "*{n}":
                self._go(*x)
            elif text.endswith("get(END)"):
                self._go(x.get(None))
        if isinstance(x, BaseException):
            self._add(x, ("*{n}.args",), f"an argument of a {kind.__name__}")
            self._go(*x.args)
        space, n = _referred(x)
        name = f"an attribute of a {kind.__name__}"
        library = is_library(kind.__module__)
        if not library:
            self._go(kind)
        if isinstance(own, dict):
            also = getattr(kind, "counts_changes", None)
            read = f"{n}.__dict__" if also is None else f"attributes({n})"
            self._add(space, (f"{n}.__class__", f"*{read}", f"*{read}.values()"), name, also is not None)
            left_out = getattr(kind, "unwatched", ())
            if also is not None and not library:
                # Not all that sets an attribute of a user's class counts it (`object.__setattr__` does not).
                texts = [f"{{n}}.get({k!r}, END)" for k in own if k not in kind.counted and k not in left_out]
                self._add(own, ("len({n})", *texts), name)
            for k, v in own.items():
                if k not in left_out:
                    self._attribute(k, v, library)
            self._go(*also or ())
        for base in kind.__mro__:
            if not is_library(base.__module__):
                for at, v in vars(base).items():
                    if isinstance(v, types.MemberDescriptorType):
                        self._add(space, (f"getattr({n}, {at!r}, END)",), name)
                        self._attribute(at, getattr(x, at, None))


def _is_constant(whole: np.ndarray[Any, Any]) -> bool:
    """Whether an array that is no view of another is read-only, and what its memory is of."""
    base: Any = whole.base
    if whole.flags.writeable or base is None:
        return not whole.flags.writeable
    try:
        with memoryview(base) as view:
            return view.readonly
    except (TypeError, BufferError):
        return False


def _cached(x: Any) -> list[Any]:
    """The results that an `lru_cache` has, among others."""
    found = [v for r in gc.get_referents(x) for v in (r.values() if isinstance(r, dict) else (r,))]
    return [v for v in found if type(v).__qualname__ != "_lru_list_elem" and v is not functools._lru_cache_wrapper]


def _may_be_given(x: Any) -> bool:
    """Whether a variable of a function of lazyt's may be a function that a transformation was given."""
    kind = type(x)
    if isinstance(x, types.FunctionType | types.MethodType | functools.partial):
        return True
    own = kind.__module__.startswith("lazyt.") and not hasattr(kind, "counts_changes") and not hasattr(x, "__wrapped__")
    return callable(x) and not own and not isinstance(x, type)


def _functions_of(v: Any) -> Iterable[Any]:
    """The functions behind what a class has."""
    match v:
        case classmethod() | staticmethod():
            return (v.__func__,)
        case property():
            return v.fget, v.fset, v.fdel
        case functools.cached_property() | functools.partialmethod() | functools.singledispatchmethod():
            return (v.func,)
    return (v,)


def _attributes(x: Any) -> Any:
    """The dictionary of an object's attributes, without a question to the object."""
    try:
        if isinstance(x, _LOCAL):
            return x.__dict__
        kind = type(x)
        return kind._attributes_of(x) if hasattr(kind, "counts_changes") else object.__getattribute__(x, "__dict__")
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
