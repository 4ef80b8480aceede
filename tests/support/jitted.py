"""Functions under `jit` that count how often their Python runs, and results compared by their bits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.functions.jit import Jitted, _Recorded

RNG = np.random.default_rng(3)


def array(*shape: int) -> np.ndarray[Any, Any]:
    """float32 numbers."""
    return RNG.standard_normal(shape).astype(np.float32)


X8 = array(6, 8)
W = lt.asarray(array(8, 8))


_STARTS = frozenset(f.__code__ for f in (Jitted.__call__, Jitted._call, Jitted._again, _Recorded.call))
# NOTE: as if of lazyt's own, so that `jit` does not find it among what a function uses.
_COUNTING = """
class _Counting(Jitted):
    ran = 0

    @property
    def __wrapped__(self):
        self.ran += sys._getframe(1).f_code in _STARTS
        return self.__dict__["f"]

    @__wrapped__.setter
    def __wrapped__(self, f):
        self.__dict__["f"] = self.__dict__["__wrapped__"] = f

    def _rest_a_while(self):
        "A small function is not called plainly."
"""
_space: dict[str, Any] = {"sys": sys, "Jitted": Jitted, "_STARTS": _STARTS, "__name__": "lazyt.functions.jit"}
exec(compile(_COUNTING, "<lazyt counting>", "exec"), _space)


class Counted:
    """A function under `jit` that counts how often its Python ran."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self.jitted = _space["_Counting"](f)

    @property
    def ran(self) -> int:
        """How often."""
        return int(self.jitted.ran)


def settled(f: Callable[..., Any], calls: Callable[[], Iterable[Any]], again: int = 3) -> tuple[Any, Any, int]:
    """The results of calls under `jit` and without, and how often Python ran in the last `again` rounds."""
    c = Counted(f)
    rounds = []
    for _ in range(5 + again):
        found = [c.jitted(*args) for args in calls()]
        lt.sync()
        rounds.append(c.ran)
    wanted = [f(*args) for args in calls()]
    return found, wanted, rounds[-1] - rounds[4]


def same(found: Any, wanted: Any) -> None:
    """Equal structure, equal bits."""
    if isinstance(wanted, lt.Tensor):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        assert found.detach().numpy().tobytes() == wanted.detach().numpy().tobytes()
    elif isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for k in wanted:
            same(found[k], wanted[k])
    elif isinstance(wanted, list | tuple):
        assert type(found) is type(wanted)
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            same(a, b)
    else:
        assert found == wanted
