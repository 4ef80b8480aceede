"""Calls of kernels that users register (`lazyt.library`): one opaque node each, which runs when its results are needed.

A kernel is any object with `run(xp, arrays, recorded)`: it takes arrays of `xp` (NumPy, CuPy) and Python's arguments,
and gives its results, which have to have the shapes and dtypes that were recorded.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lazyt.errors import DTypeError, NotSupportedError, ShapeError
from lazyt.ir import dtypes
from lazyt.ir.records import dataclass
from lazyt.ops.definition import OpDef, Operand, node_of, result_type
from lazyt.ops.numpy_calls import Nest, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Dim

    # (shape, dtype) of each result.
    Recorded = Sequence[tuple[tuple[int, ...], np.dtype[Any]]]
    Array = Any  # of `xp`

# The library functions of the graph: on the host, and on the device of the operands.
ON_HOST, ON_DEVICE = "operation", "operation_on_device"
SEQUENTIAL, BROADCAST = "sequential", "broadcast_all"


class Kernel(Protocol):
    """What computes an operation; compared by identity, so another kernel is another program."""

    def run(self, xp: Any, arguments: Sequence[Any], recorded: Recorded) -> Any:
        """The results of a call, one array or a tuple of them."""


@dataclass(frozen=True, slots=True)
class Number:
    """Where operand `index` stands among the arguments of a kernel, as a Python number."""

    index: int


@dataclass(frozen=True, slots=True, repr=False)
class KernelCall:
    """One call of a kernel, with places for its operands; part of a program's key."""

    name: str
    kernel: Kernel
    backend: str  # that the kernel is registered for
    arguments: tuple[Any, ...]
    kinds: tuple[str, ...]  # as in `numpy_calls.Call`
    # What vmap does: SEQUENTIAL, BROADCAST, a function (see `lazyt.library.register_batching`), or None.
    batching: Any = None
    fallback: str = ""  # why the host runs it for another device

    @property
    def language(self) -> str:
        """That of the kernel's source, if it is one that the device's backend compiles; '' for all others."""
        return getattr(self.kernel, "language", "")

    def __repr__(self) -> str:
        return self.name

    def run(self, xp: Any, arrays: Sequence[Array], recorded: Recorded) -> tuple[Array, ...]:
        """Call the kernel, and check what it gives."""
        arguments = [_filled(a, arrays) for a in self.arguments]
        return checked(self, xp, self.kernel.run(xp, arguments, recorded), recorded)

    def check_batching(self, site: object) -> None:
        """NotSupportedError if it has no rule for lanes."""
        if self.batching is None:
            raise NotSupportedError(
                f"not supported: {self.name} (recorded at {site}) in vmap, because no batching rule is registered for "
                f"it; lazyt.library.register_batching({self.name!r}, 'sequential') calls it once a lane, "
                "'broadcast_all' once with an axis of lanes before all others, and a function is a rule of your own"
            )

    def over(self, differ: tuple[bool, ...]) -> Lanes:
        """The call for all lanes at once, where operands that differ between lanes have them first."""
        return Lanes(self, differ)


@dataclass(frozen=True, slots=True, repr=False)
class Lanes:
    """A call of a kernel for all lanes at once; operands that differ between lanes have an axis of lanes first."""

    call: Any  # KernelCall or Lanes
    differ: tuple[bool, ...]

    def __repr__(self) -> str:
        return repr(self.call)

    @property
    def language(self) -> str:
        """As that of the call."""
        found: str = self.call.language
        return found

    @property
    def fallback(self) -> str:
        """As that of the call."""
        found: str = self.call.fallback
        return found

    def check_batching(self, site: object) -> None:
        """Lanes of lanes are computed one after another."""

    def over(self, differ: tuple[bool, ...]) -> Lanes:
        """Lanes of lanes."""
        return Lanes(self, differ)

    def run(self, xp: Any, arrays: Sequence[Array], recorded: Recorded) -> tuple[Array, ...]:
        """By the rule that is registered."""
        call, size = self.call, recorded[0][0][0]
        how: Any = call.batching if isinstance(call, KernelCall) else SEQUENTIAL
        if how == SEQUENTIAL:
            return self._one_by_one(xp, arrays, recorded, size)
        if how == BROADCAST:
            whole = [a if d else xp.broadcast_to(a, (size, *a.shape)) for a, d in zip(arrays, self.differ, strict=True)]
            # NOTE: a number is the same in all lanes, or the kernel would get an array for it.
            numbers = {p.index for p in call.arguments if isinstance(p, Number)}
            given = [a if i in numbers else w for i, (a, w) in enumerate(zip(arrays, whole, strict=True))]
            return call.run(xp, given, recorded)  # type: ignore[no-any-return]
        axes = [_axes(a, self.differ) for a in call.arguments]
        got = how(size, tuple(axes), *(_filled(a, arrays) for a in call.arguments))
        return checked(call, xp, got, recorded, "batching rule")

    def _one_by_one(self, xp: Any, arrays: Sequence[Array], recorded: Recorded, size: int) -> tuple[Array, ...]:
        results = tuple(xp.empty(shape, dtype) for shape, dtype in recorded)
        inner = [(tuple(shape[1:]), dtype) for shape, dtype in recorded]
        for i in range(size):
            lane = [a[i] if d else a for a, d in zip(arrays, self.differ, strict=True)]
            for to, found in zip(results, self.call.run(xp, lane, inner), strict=True):
                to[i] = found
        return results


def _axes(a: Any, differ: tuple[bool, ...]) -> Any:
    if isinstance(a, Place):
        return 0 if differ[a.index] else None
    return [_axes(x, differ) for x in a.items] if isinstance(a, Nest) else None


def _filled(a: Any, arrays: Sequence[Array]) -> Any:
    if isinstance(a, Place):
        return _read_only(arrays[a.index])
    if isinstance(a, Number):
        return arrays[a.index].item()
    return a.make(*[_filled(x, arrays) for x in a.items]) if isinstance(a, Nest) else a


def _read_only(x: Array) -> Array:
    """A view that a kernel cannot write."""
    if not isinstance(x, np.ndarray) or not x.flags.writeable:
        return x
    x = x.view()
    x.flags.writeable = False
    return x


def checked(call: KernelCall, xp: Any, got: Any, recorded: Recorded, what: str = "kernel") -> tuple[Array, ...]:
    """What a kernel gave as arrays; ShapeError or DTypeError unless they are as recorded."""
    name = f"{call.name}: its {what} for {call.backend!r}"
    results = got if isinstance(got, tuple | list) else (got,)
    if len(results) != len(recorded):
        raise ShapeError(f"{name} gave {len(results)} results, {len(recorded)} are declared")
    results = tuple(xp.asarray(r) for r in results)
    for k, (r, (shape, dtype)) in enumerate(zip(results, recorded, strict=True)):
        which = f"result {k} " if len(recorded) > 1 else "a result "
        if tuple(r.shape) != tuple(shape):
            raise ShapeError(f"{name} gave {which}of shape {tuple(r.shape)}, register_fake says {tuple(shape)}")
        if r.dtype != dtype:
            raise DTypeError(f"{name} gave {which}of dtype {r.dtype}, register_fake says {dtype}")
    return results


def lower(b: Builder, *rest: Any, ints: tuple[int | Dim, ...]) -> Node | tuple[Node, ...]:
    """Statics: the call, the dtypes that scalars are cast to (None for tensors), (rank, dtype) of each result, and the
    library function; ints: the shapes of the results.
    """
    operands: tuple[Operand, ...] = rest[:-4]
    call, casts, outputs, fn = rest[-4:]
    nodes = [node_of(b, x, d if d is not None else result_type(x)) for x, d in zip(operands, casts, strict=True)]
    # NOTE: a call on nothing has an operand too, as library calls do.
    if not nodes:
        nodes.append(b.constant(False, dtypes.bool_))
    results, at = [], 0
    for rank, dtype in outputs:
        results.append((tuple(ints[at : at + rank]), dtype))
        at += rank
    out = b.opaque(fn, nodes, (call, tuple(results)), results)
    return out if len(out) > 1 else out[0]


@cache
def operation(name: str) -> OpDef:
    """The operation under which calls of kernels of this operation are recorded; errors name the user's line."""
    return OpDef(name, lower, fallible=True, differentiable=False)


def is_kernel_call(op: Any) -> bool:
    """Whether a step's operation is the call of a kernel; its first static argument is that call."""
    found: Callable[..., Any] | None = getattr(op, "lower", None)
    return found is lower
