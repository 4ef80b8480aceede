"""Arguments of a function under `jit`: their tensors, a key for everything else, and what NumPy's arrays become."""

from __future__ import annotations

import types
from collections import OrderedDict
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.autograd.functional import is_at_leaf
from lazyt.runtime import memory
from lazyt.runtime.device import Device
from lazyt.tracing.steps import hooks
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.watchable import is_constant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.tracing.known_calls import KnownCall

_NUMBERS = frozenset((int, bool, str, bytes, type(None)))
_CONTAINERS = frozenset((tuple, list, dict, OrderedDict, set, frozenset))


class Arguments:
    """The arguments of a call: what decides, beside the values of tensors, which steps it records.

    Numbers, texts, ranges, dtypes and nests of tuples, lists, dictionaries and sets are known by type and value, and
    by which of these containers are one. Everything else is known by identity: `objects`, whose attributes are watched.
    """

    __slots__ = ("arrays", "containers", "held", "key", "objects", "tensors")

    def __init__(self, args: Any, kwargs: Any) -> None:
        self.tensors: list[Handle] = []
        self.objects: list[Any] = []
        self.containers: dict[int, int] = {}  # by id, in the order in which they were found
        self.held: list[Any] = []  # the containers themselves
        self.arrays = False  # whether there are arrays of NumPy, see `Lifted`
        key: list[Any] = []
        for x in args:
            self._walk(x, key)
        for name, x in kwargs.items():
            key.append(name)
            self._walk(x, key)
        self.key = tuple(key)

    def _walk(self, x: Any, key: list[Any]) -> None:
        kind = type(x)
        if isinstance(x, Handle):
            self.tensors.append(x)
            key.append(kind)
        elif kind in _NUMBERS:
            key += (kind, x)
        elif kind in _CONTAINERS:
            self._container(x, kind, key)
        elif is_constant(x):
            # NOTE: 0.0 is not -0.0, and NaN is NaN.
            key += (kind, repr(x))
        elif kind is Device:
            key += (kind, str(x))
        elif kind is range or kind is slice:
            key.append(kind)
            for v in (x.start, x.stop, x.step):
                self._walk(v, key)
        elif is_named_tuple(kind):
            self._container(x, kind, key)
        elif kind is types.MethodType:
            key.append(kind)
            self._walk(x.__func__, key)
            self._walk(x.__self__, key)
        else:
            key += (kind, id(x))
            self.objects.append(x)
            self.arrays = self.arrays or isinstance(x, np.ndarray)

    def _container(self, x: Any, kind: type, key: list[Any]) -> None:
        if kind is not tuple:
            if (before := self.containers.get(id(x))) is not None:
                key += (kind, "again", before)
                return
            self.containers[id(x)] = len(self.containers)
            self.held.append(x)
        key += (kind, len(x))
        if kind is dict or kind is OrderedDict:
            for k, v in x.items():
                self._walk(k, key)
                self._walk(v, key)
        else:
            for v in x:
                self._walk(v, key)

    def are(self, args: Any, kwargs: Any) -> bool:
        """Whether these are the same, still."""
        now = Arguments(args, kwargs)
        same = len(now.tensors) == len(self.tensors) and all(map(is_, now.tensors, self.tensors))
        return same and now.key == self.key and now.containers.keys() == self.containers.keys()


def is_named_tuple(kind: type) -> bool:
    """Whether a class is of plain named tuples."""
    return kind.__bases__ == (tuple,) and hasattr(kind, "_fields")


class Lifted:
    """Arguments with tensors for NumPy's arrays; lists and dictionaries with such are copies, see `put_back`."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # Each list or dictionary, its copy, and the values that the copy began with.
        self.copies: list[tuple[Any, Any, list[Any]]] = []
        self.args: tuple[Any, ...] = tuple(map(self._lift, args))
        self.kwargs = {k: self._lift(v) for k, v in kwargs.items()}

    def _lift(self, x: Any) -> Any:
        if isinstance(x, np.ndarray):
            return hooks.as_tensor(x, None, ())
        kind = type(x)
        if kind is dict or kind is OrderedDict:
            made = [*map(self._lift, x.values())]
            if all(map(is_, made, x.values())):
                return x
            copied: Any = kind(zip(x, made, strict=True))
            self.copies.append((x, copied, made))
            return copied
        if kind is not list and kind is not tuple and not is_named_tuple(kind):
            return x
        made = [*map(self._lift, x)]
        if all(map(is_, made, x)):
            return x
        if kind is list:
            self.copies.append((x, made, [*made]))
            return made
        return tuple(made) if kind is tuple else kind(*made)

    def put_back(self) -> None:
        """Write what a function changed in copies into the lists and dictionaries that it was given."""
        for given, copied, before in self.copies:
            values: Sequence[Any] = [*copied.values()] if isinstance(copied, dict) else copied
            if len(values) == len(before) and all(map(is_, values, before)):
                continue
            own = dict(zip(map(id, before), given.values() if isinstance(given, dict) else [*given], strict=True))
            after = [own.get(id(v), v) for v in values]
            if isinstance(copied, dict):
                found = dict(zip(copied, after, strict=True))
                given.clear()
                given.update(found)
            else:
                given[:] = after


class _Given:
    """In place of a list, a dictionary or a set among the arguments that is returned: its number."""

    __slots__ = ("n",)

    def __init__(self, n: int) -> None:
        self.n = n


def with_marks(out: Any, given: Arguments) -> Any:
    """The result of a function, with marks for containers among its arguments."""
    if (n := given.containers.get(id(out))) is not None:
        return _Given(n)
    return _mapped(with_marks, out, given)


def without_marks(out: Any, given: Arguments) -> Any:
    """The same with containers of these arguments."""
    if isinstance(out, _Given):
        return given.held[out.n]
    return _mapped(without_marks, out, given)


def _mapped(f: Any, x: Any, given: Arguments) -> Any:
    kind = type(x)
    if kind is dict:
        return {k: f(v, given) for k, v in x.items()}
    if kind is list or kind is tuple:
        return kind([f(v, given) for v in x])
    return kind(*[f(v, given) for v in x]) if is_named_tuple(kind) else x


def refusal_of_result(out: Any, known: Any) -> str:
    """Why what a function returned cannot be made again from its tensors; '' if it can.

    `known`: whether an object, by its id, was there before the call.
    """
    todo, seen = [out], set[int]()
    while todo:
        x = todo.pop()
        kind = type(x)
        if isinstance(x, Handle | _Given) or is_constant(x) or kind is range or kind is Device:
            continue
        if kind in (tuple, list, dict) or is_named_tuple(kind):
            if kind in (list, dict):
                if known(id(x)):
                    return f"it returns a {kind.__name__} that was there before"
                if id(x) in seen:
                    return f"it returns a {kind.__name__} twice"
                seen.add(id(x))
            todo += x
            todo += x.values() if kind is dict else ()
        elif not known(id(x)):
            return f"it returns an object of {kind.__module__}.{kind.__qualname__}, which each call makes anew"
    return ""


def difference(before: KnownCall, now: KnownCall) -> str:
    """The first kind of difference between two recordings of the same steps; '' if there is none."""
    if repr(before.scalars) != repr(now.scalars):
        return "numbers"
    made = [[h._buffer for _, h in c.constants] for c in (before, now)]
    if any(x is not y and _bytes(x) != _bytes(y) for x, y in zip(*made, strict=True)):
        return "constants"
    if before.writes != now.writes:
        return "writes"
    same = before.results == now.results and _is_alike(before.tree, now.tree)
    return "" if same else "results"


def _bytes(data: Any) -> bytes | None:
    return None if data is None else memory.as_array(data).tobytes()


def _is_alike(a: Any, b: Any) -> bool:
    """Whether two trees are the same, but for their tensors, which are numbered."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(_is_alike, a, b))
    if isinstance(a, dict):
        return [*a] == [*b] and all(map(_is_alike, a.values(), b.values()))
    if isinstance(a, _Given):
        return bool(a.n == b.n)
    return a is b or is_at_leaf(a) or (is_constant(a) and repr(a) == repr(b))
