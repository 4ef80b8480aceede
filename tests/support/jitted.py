"""Functions under `jit` that count how often their Python runs, and results compared by their bits."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import lazyt as lt

RNG = np.random.default_rng(3)


def array(*shape: int) -> np.ndarray[Any, Any]:
    """float32 numbers."""
    return RNG.standard_normal(shape).astype(np.float32)


X8 = array(6, 8)
W = lt.asarray(array(8, 8))


def unseen() -> Any:
    """A dictionary `d` in a Python module, which guards do not look into."""
    found: Any = types.ModuleType("unseen")
    found.d = {}
    return found


class Counted:
    """A function under `jit` that counts how often its Python ran."""

    def __init__(self, f: Callable[..., Any]) -> None:
        count = self._count = unseen()
        count.d[0] = 0

        @functools.wraps(f)
        def call(*args: Any, **kwargs: Any) -> Any:
            count.d[0] += 1
            return f(*args, **kwargs)

        self.jitted = lt.jit(call)

    @property
    def ran(self) -> int:
        """How often."""
        found: int = self._count.d[0]
        return found


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
