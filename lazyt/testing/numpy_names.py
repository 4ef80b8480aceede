"""The NumPy meaning of lazyt's functions: one namespace with lazyt's names, for a program that takes its namespace.

A name of the operation table is the NumPy function of its record; any other is NumPy's own. `linalg` and `fft` too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.ops import catalog  # noqa: F401 - programs are drawn from every operation
from lazyt.ops.definition import OPS

# NumPy's functions that write into an argument, where lazyt's give a new tensor.
_IN_PLACE = frozenset({"put_along_axis"})
# Functions whose record says what is meant, because NumPy's own default is another: argsort keeps the order of equal
# elements, and as the standard says pinv takes singular values below max(m, n) eps for 0 (NumPy: below 1e-15), and
# eigenvalues are complex numbers (NumPy: real ones where all of them are). With an infinity svd fails (NumPy: it may
# never return).
_CHOSEN = frozenset({"argsort", "eig", "eigvals", "pinv", "svd"})
# Where an operation's public function is looked for; `linalg.inv` is lt.linalg.inv.
_SPACES: tuple[Any, ...] = (lt, lt.linalg, lt.fft, lt.nn.functional)


class Reference:
    """NumPy under lazyt's names: `reference.softmax`, `reference.linalg.inv`, `reference.sum`.

    >>> reference.relu(np.array([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._numpy: Any = getattr(np, prefix.rstrip("."), None) if prefix else np

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not self._prefix and name in ("linalg", "fft"):
            return Reference(f"{name}.")
        if not self._prefix and name == "nn":
            return SimpleNamespace(functional=self)
        record = OPS.get(self._prefix + name)
        # What NumPy has is its own meaning; a record's function says what the rest means, and lazyt's own arguments.
        found = getattr(self._numpy, name, None)
        if record is not None and record.numpy is not None:
            if found is None or name in _IN_PLACE:
                return record.numpy
            return _either(record.numpy, found) if name in _CHOSEN else _either(found, record.numpy)
        if found is None:
            raise AttributeError(f"NumPy has no {self._prefix}{name}, and lazyt's table says no NumPy function for it")
        return found


def _either(first: Callable[..., Any], second: Callable[..., Any]) -> Callable[..., Any]:
    if first is second:
        return first

    @functools.wraps(first)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return first(*args, **kwargs)
        except TypeError:
            return second(*args, **kwargs)

    return call


reference = Reference()


def public(name: str) -> Callable[..., Any] | None:
    """The public function of an operation's record, or None for one that is only a part of others.

    >>> public("linalg.inv") is lt.linalg.inv, public("index_put") is None
    (True, True)
    """
    space, _, short = name.rpartition(".")
    if space:
        return getattr(getattr(lt, space, None), short, None)
    return next((f for s in _SPACES if (f := getattr(s, name, None)) is not None), None)


def names() -> list[str]:
    """Every operation that can be called with NumPy beside it: public, with a reference and sample calls."""
    return sorted(n for n, op in OPS.items() if op.samples is not None and op.numpy is not None and public(n))
