"""The numbers that a kernel reads from outside, as they are at a call: they are part of its program."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.kernel_language.source import Source, source_of
from lazyt.kernel_language.values import NUMBERS

if TYPE_CHECKING:
    Key = tuple[Source, str]

_LIBRARIES = ("lazyt", "numpy")
# What a name that stands for one of these goes on standing for.
_SETTLED = (types.ModuleType, types.BuiltinFunctionType, type, np.ufunc)


class Outside:
    """The names of a function, and of those that it calls, that are numbers or may become some."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._watched: list[tuple[Source, str, Any]] | None = None
        self._keys: tuple[Key, ...] = ()

    def read(self) -> tuple[tuple[Key, ...], list[Any]]:
        """The names, each with its function, and their values now."""
        if self._watched is None:
            self._look()
        assert self._watched is not None, "it was looked"
        keys: list[Key] = []
        values: list[Any] = []
        for source, name, last in self._watched:
            x = source.outside(name)
            if type(x) in NUMBERS:
                keys.append((source, name))
                values.append(x)
            elif x is not last:
                self._look()
                return self.read()
        # The same tuple each time: programs compare it by identity first.
        if (found := tuple(keys)) != self._keys:
            self._keys = found
        return self._keys, values

    def _look(self) -> None:
        self._watched = []
        todo, seen = [self._source], {self._source}
        while todo:
            source = todo.pop()
            for name in source.outer:
                x = source.outside(name)
                if isinstance(x, types.FunctionType) and not x.__module__.startswith(_LIBRARIES):
                    inner = source_of(x)
                    if inner not in seen:
                        seen.add(inner)
                        todo.append(inner)
                elif isinstance(x, _SETTLED) or getattr(x, "__module__", "").startswith(_LIBRARIES):
                    continue
                self._watched.append((source, name, x))
