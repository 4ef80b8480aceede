"""The meaning of the kernel IR in NumPy: slow, and simple enough to be the reference for generated code.

`run` evaluates a kernel on `Arguments`, whose arrays are NumPy's; `table` lays the same arguments
out as the int64 entries that native code takes, so that one call can be made to both.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.ir import dtypes
from lazyt.ir.kernel import (
    CHUNK,
    FLUSH,
    LANES,
    Cast,
    Check,
    Const,
    Gather,
    Index,
    Kernel,
    Load,
    Op,
    Reduce,
    Scalar,
    Stage,
    operands_of,
)
from lazyt.ir.numpy_semantics import ELEMENTWISE, cast, round_once
from lazyt.ir.reduction_order import folded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Array = np.ndarray[Any, Any]
    Evaluate = Callable[[str, Sequence[Array], np.dtype[Any]], Array]


@dataclass(frozen=True, slots=True)
class Bound:
    """An access's argument: a flat array, the number of the element at index 0, and the strides."""

    array: Array
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Arguments:
    extents: tuple[int, ...]
    accesses: tuple[Bound, ...]
    affines: tuple[tuple[tuple[int, ...], int], ...] = ()  # (coefficients, offset)
    scalars: tuple[bool | int | float, ...] = ()
    status: Array = field(default_factory=lambda: np.zeros(2, np.int64))


def table(kernel: Kernel, args: Arguments) -> Array:
    """The int64 entries for native code (see `Kernel.layout`); the arrays must outlive them."""
    entries: list[int] = list(args.extents)
    for bound in args.accesses:
        entries.append(bound.array.ctypes.data + bound.offset * bound.array.itemsize)
        entries.extend(bound.strides)
    for coefficients, offset in args.affines:
        entries.extend((*coefficients, offset))
    entries.extend(
        struct.unpack("<q", struct.pack("<d", x))[0] if isinstance(x, float) else wrap_int64(int(x))
        for x in args.scalars
    )
    if kernel.has_check:
        entries.append(args.status.ctypes.data)
    assert len(entries) == kernel.layout.size, "arguments do not fit the kernel"
    return np.array(entries, np.int64)


def wrap_int64(x: int) -> int:
    """The int64 with the low 64 bits of x."""
    return (x + (1 << 63)) % (1 << 64) - (1 << 63)


def run(kernel: Kernel, args: Arguments, evaluate: Evaluate | None = None) -> None:
    """Do what `kernel` says over its whole domain.

    `evaluate(name, operands, result dtype)` computes an Op.
    """
    _Run(kernel, args, evaluate or evaluate_op).run()


class _Run:
    """One evaluation: each stage for all outer indices before the next.

    A value is an array that broadcasts to the domain; the result of a Reduce has row axes of 1.
    """

    def __init__(self, kernel: Kernel, args: Arguments, evaluate: Evaluate) -> None:
        self.kernel = kernel
        self.args = args
        self.evaluate = evaluate
        self.finished: dict[int, Array] = {}
        self.index = [
            np.arange(n, dtype=np.int64).reshape([-1 if a == b else 1 for b in range(kernel.axes)])
            for a, n in enumerate(args.extents)
        ]

    def run(self) -> None:
        for stage in self.kernel.stages:
            domain = self.args.extents
            if not stage.loops:
                domain = (*domain[: self.kernel.outer], *(1 for _ in range(self.kernel.rows)))
            self._stage(stage, domain)

    def _stage(self, stage: Stage, domain: tuple[int, ...]) -> None:
        known: dict[int, Array] = dict(self.finished)
        for r in stage.reduces:
            reduce = self.kernel.values[r]
            assert isinstance(reduce, Reduce)
            x = np.broadcast_to(self._value(reduce.operand, known, domain), domain)
            self.finished[r] = reduce_rows(self.kernel, reduce, x)
        stores = [(t, np.broadcast_to(self._value(t.value, known, domain), domain)) for t in stage.stores]
        for t, x in stores:
            at = np.broadcast_to(self._address(t.access, stage.loops), domain)
            self.args.accesses[t.access].array[at.reshape(-1)] = x.reshape(-1)

    def _sum(self, strides: Sequence[int], classes: str, start: int, rows: bool = True) -> Array:
        total = np.full((1,) * self.kernel.axes, start, np.int64)
        for a, (stride, klass) in enumerate(zip(strides, classes, strict=True)):
            if klass != "0" and (rows or a < self.kernel.outer):
                total = total + self.index[a] * (1 if klass == "1" else stride)
        return total

    def _address(self, access: int, rows: bool = True) -> Array:
        bound, own = self.args.accesses[access], self.kernel.accesses[access]
        if own.period:
            return bound.offset + self.index[self.kernel.vector_axis] % own.period
        at = self._sum(bound.strides, own.classes, bound.offset, rows)
        index = self.index[self.kernel.vector_axis]
        return at - index + index // own.spread if own.spread else at

    def _value(self, v: int, known: dict[int, Array], domain: tuple[int, ...]) -> Array:
        """The value v, and all below it, memoised in `known`."""
        todo = [v]
        while todo:
            top = todo[-1]
            missing = [] if top in known else [o for o in operands_of(self.kernel.values[top]) if o not in known]
            if missing:
                todo.extend(missing)
                continue
            todo.pop()
            if top not in known:
                with np.errstate(all="ignore"):
                    known[top] = self._compute(top, known, domain)
        return known[v]

    def _compute(self, v: int, known: dict[int, Array], domain: tuple[int, ...]) -> Array:
        value, args = self.kernel.values[v], self.args
        one = (1,) * self.kernel.axes
        match value:
            case Const():
                return np.full(one, value.value).astype(value.dtype)
            case Scalar():
                return np.full(one, convert_scalar(args.scalars[value.position], value.dtype), value.dtype)
            case Index():
                coefficients, offset = args.affines[value.affine]
                return self._sum(coefficients, self.kernel.affines[value.affine].classes, offset)
            case Load():
                return self._read(value.access, self._address(value.access), value.where, known)
            case Gather():
                at = self._address(value.access)
                for i, s in value.indices:
                    at = at + known[i] * int(args.scalars[s])
                return self._read(value.access, at, value.where, known)
            case Op():
                return self.evaluate(value.name, [known[o] for o in value.operands], value.dtype)
            case Cast():
                return cast(known[value.operand], value.dtype)
            case Check():
                return self._check(value, known, domain)
        raise AssertionError(f"%{v} is read before it is finished")

    def _read(self, access: int, at: Array, where: int | None, known: dict[int, Array]) -> Array:
        array = self.args.accesses[access].array
        if where is not None:
            at, active = np.broadcast_arrays(at, known[where])
        else:
            active = np.ones(at.shape, bool)
        out = np.zeros(at.shape, array.dtype)
        # A table without elements gives zeros: its Check has recorded that an index was outside.
        active = active & (len(array) > 0)
        out[active] = array[at[active]]
        return out

    def _check(self, value: Check, known: dict[int, Array], domain: tuple[int, ...]) -> Array:
        index, bound = known[value.index], known[value.bound]
        outside = np.broadcast_to((index < 0) | (index >= bound), np.broadcast_shapes(index.shape, domain))
        if value.where is not None:
            outside = outside & known[value.where]
        if outside.any() and not self.args.status[0]:
            first = np.broadcast_to(index, outside.shape)[outside][0]
            self.args.status[:] = int(self.args.scalars[value.code]), int(first)
        clamped: Array = np.maximum(np.minimum(index, bound - 1), 0)
        return clamped


def convert_scalar(x: bool | float, dtype: np.dtype[Any]) -> Any:
    """A scalar argument as an element of a dtype: an integer wraps, a float is rounded once."""
    if dtypes.kind(dtype) in "iu":
        return np.array(wrap_int64(int(x)), np.int64).astype(dtype)
    if dtype == dtypes.bool_:
        return bool(x)
    return round_once(np.array(float(x)), dtype)


def reduce_rows(kernel: Kernel, reduce: Reduce, x: Array) -> Array:
    """`reduce` over the row axes of `x`, which become 1, in the kernel IR's order."""
    outer = x.shape[: kernel.outer]
    with np.errstate(all="ignore"):
        if reduce.name in ("sum", "prod") and dtypes.kind(x.dtype) == "f":
            inner = math.prod(x.shape[-2:] if kernel.vector == "rows" else x.shape[-1:])
            count = math.prod(x.shape[kernel.outer : -2 if kernel.vector == "rows" else -1])
            rows = x.reshape(*outer, count, inner)
            out = round_once(_blocked(kernel, reduce.name, rows), reduce.dtype)
        else:
            out = folded(reduce.name, x.reshape(*outer, math.prod(x.shape[kernel.outer :])))
    return out.astype(reduce.dtype).reshape(*outer, *(1 for _ in range(kernel.rows)))


def _blocked(kernel: Kernel, name: str, rows: Array) -> Array:
    """Sum or product of the last two axes in float64, blocked as the kernel IR's docstring says."""
    step: Any = np.add if name == "sum" else np.multiply
    first = 0.0 if name == "sum" else 1.0
    part_dtype = np.float64 if rows.dtype == np.float64 else np.float32
    x = rows.astype(part_dtype)
    outer, (count, inner) = x.shape[:-2], x.shape[-2:]
    total = np.full(outer, first, np.float64)
    if kernel.vector == "outer":
        for r in range(count):
            for start in range(0, inner, FLUSH):
                part = np.full(outer, first, part_dtype)
                for j in range(start, min(start + FLUSH, inner)):
                    part = step(part, x[..., r, j])
                total = step(total, part.astype(np.float64))
        return total
    for r in range(count):
        for chunk in range(0, inner, CHUNK):
            total = step(total, _tree(step, _chunk(step, first, x[..., r, chunk : chunk + CHUNK])))
    return total


def _chunk(step: Any, first: float, x: Array) -> Array:
    """The LANES float64 partials of one chunk."""
    wide = np.full((*x.shape[:-1], LANES), first, np.float64)
    for start in range(0, x.shape[-1], FLUSH * LANES):
        stop = min(start + FLUSH * LANES, x.shape[-1])
        part = np.full(wide.shape, first, x.dtype)
        for j in range(start, stop, LANES):
            some = x[..., j : min(j + LANES, stop)]
            part[..., : some.shape[-1]] = step(part[..., : some.shape[-1]], some)
        wide = step(wide, part.astype(np.float64))
    return wide


def _tree(step: Any, wide: Array) -> Array:
    while wide.shape[-1] > 1:
        half = wide.shape[-1] // 2
        wide = step(wide[..., :half], wide[..., half:])
    return wide[..., 0]


def evaluate_op(name: str, operands: Sequence[Array], dtype: np.dtype[Any]) -> Array:
    """An Op by the graph interpreter's table: an op means the same in both."""
    return np.asarray(ELEMENTWISE[name](*np.broadcast_arrays(*operands))).astype(dtype)
