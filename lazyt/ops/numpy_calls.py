"""Deferred calls of NumPy as steps: one opaque node each, for functions that lazyt has no operation for."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.ir.records import dataclass
from lazyt.ops.definition import OpDef, Operand, node_of, result_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Dim


@dataclass(frozen=True, slots=True)
class Place:
    """Where operand `index` stands among the arguments of a call."""

    index: int


@dataclass(frozen=True, slots=True)
class Nest:
    """A list, tuple or slice among the arguments of a call, with whatever it holds."""

    make: Callable[..., Any]
    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Call:
    """`function(*args, **kwargs)` with places for its operands; hashable, so it is part of a program's key."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    # NOTE: equal numbers are not the same argument (1, True and 1.0; 0.0 and -0.0), so the key says more than they do.
    kinds: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return self.name

    @property
    def ufunc(self) -> np.ufunc | None:
        """The ufunc that this is a plain call of, all operands in their order: one that can write where it is told."""
        f = self.function
        if not isinstance(f, np.ufunc) or self.kwargs:
            return None
        return f if self.args == tuple(Place(i) for i in range(f.nin)) else None

    def __call__(self, arrays: Sequence[Any]) -> Any:
        return self.function(
            *[_filled(a, arrays) for a in self.args], **{k: _filled(v, arrays) for k, v in self.kwargs}
        )


def kinds_of(a: Any) -> tuple[str, ...]:
    """What tells the numbers in an argument from equal ones."""
    if isinstance(a, Nest | tuple):
        return tuple(kind for x in (a.items if isinstance(a, Nest) else a) for kind in kinds_of(x))
    return (
        (repr(a) if isinstance(a, float | complex) else type(a).__name__,)
        if isinstance(a, int | float | complex)
        else ()
    )


def _filled(a: Any, arrays: Sequence[Any]) -> Any:
    if isinstance(a, Place):
        return arrays[a.index]
    return a.make(*[_filled(x, arrays) for x in a.items]) if isinstance(a, Nest) else a


def lower(b: Builder, *rest: Any, ints: tuple[int | Dim, ...]) -> Node | tuple[Node, ...]:
    """Statics: the call, the dtypes that its operands are cast to, (rank, dtype) of its results; ints: their shapes."""
    operands: tuple[Operand, ...] = rest[:-3]
    call, casts, outputs = rest[-3:]
    nodes = [node_of(b, x, d if d is not None else result_type(x)) for x, d in zip(operands, casts, strict=True)]
    results, at = [], 0
    for rank, dtype in outputs:
        results.append((tuple(ints[at : at + rank]), dtype))
        at += rank
    out = b.opaque("call", nodes, (call, tuple(results)), results)
    return out if len(out) > 1 else out[0]


@cache
def operation(name: str) -> OpDef:
    """The operation under which calls of this NumPy function are recorded. What it raises names the user's line."""
    return OpDef(name, lower, fallible=True, differentiable=False)


def flattened(outputs: Sequence[tuple[tuple[int, ...], np.dtype]]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """The results' shapes and dtypes as the static and the integer argument of `operation`."""
    return tuple((len(s), d) for s, d in outputs), tuple(n for s, _ in outputs for n in s)
