"""The kernel being written: its arguments, the names of what is known, and the C of each kind of value."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.math.elements import bits_of, mem_type, reg_type
from lazyt.backends.math.reduction import FLOAT64
from lazyt.errors import LazytInternalError
from lazyt.ir import dtypes
from lazyt.ir.kernel import (
    Cast,
    Check,
    Const,
    Gather,
    Index,
    Load,
    Op,
    Scalar,
    bounds_below,
    moving_axes,
    operands_of,
)
from lazyt_opencl.codegen import elementwise
from lazyt_opencl.codegen.text import Body, literal, type_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lazyt.ir.kernel import Kernel, Store
    from lazyt_opencl.codegen.text import Module

# Values that stand still while a work-item runs; row axis k has level k + 1.
UNIT = 0


def memory_type(dtype: np.dtype) -> str:
    """The C type of `dtype` in memory; a bool is one byte."""
    return type_of(mem_type(dtype))


class Scope:
    """Names of values and indices; arguments become constants at the kernel's head."""

    def __init__(self, kernel: Kernel, module: Module) -> None:
        self.kernel = kernel
        self.body, self.head = Body(module), Body(module)
        self.names: dict[int, str] = {}
        self.index = [f"i{a}" for a in range(kernel.axes)]
        self._arguments: set[str] = set()

    @cached_property
    def levels(self) -> list[int]:
        """How far out each value is computed: as far as the axes that it moves along allow."""
        of_axis = [max(a - self.kernel.outer + 1, UNIT) for a in range(self.kernel.axes)]
        found: list[int] = []
        for value, axes in zip(self.kernel.values, moving_axes(self.kernel), strict=True):
            own = max((of_axis[a] for a in axes), default=UNIT)
            found.append(max([own, *(found[o] for o in operands_of(value))]))
        return found

    @contextmanager
    def inside(self, head: str) -> Iterator[None]:
        """A block behind `head`, in which what is named is forgotten at its end."""
        saved, self.names = self.names, dict(self.names)
        with self.body.block(head):
            yield
        self.names = saved

    def needed(self, roots: Iterable[int]) -> list[int]:
        """The values to compute for `roots`, in order."""
        found: set[int] = set()
        todo = list(roots)
        while todo:
            v = todo.pop()
            if v not in found and v not in self.names:
                found.add(v)
                todo.extend(operands_of(self.kernel.values[v]))
        return sorted(found)

    def open(self, level: int, values: Sequence[int]) -> None:
        """At the head of a level: its values."""
        for v in values:
            if self.levels[v] == level and v not in self.names:
                value, rhs = self.kernel.values[v], self._compute(v)
                is_plain = isinstance(value, Const)
                self.names[v] = rhs if is_plain else self.body.let(type_of(reg_type(value.dtype)), rhs, f"v{v}")

    # Arguments

    def argument(self, kind: str, name: str, position: int) -> str:
        """The argument entry at `position` as a constant of type `kind`."""
        if name not in self._arguments:
            self._arguments.add(name)
            self.head.line(f"const {kind} {name} = ({kind})args[{position}];")
        return name

    def extent(self, axis: int) -> str:
        """The extent of an axis."""
        return self.argument("long", f"n{axis}", self.kernel.layout.extents + axis)

    def _base(self, access: int) -> str:
        """The address of an access at index 0: its entry is an offset in bytes into its own buffer."""
        name = f"p{access}"
        if name not in self._arguments:
            self._arguments.add(name)
            what = self.kernel.accesses[access]
            kind = f"__global {'' if what.writes else 'const '}{memory_type(what.dtype)} *"
            self.head.line(f"{kind}const {name} = ({kind})(b{access} + args[{self.kernel.layout.accesses[access]}]);")
        return name

    def _scalar(self, position: int) -> str:
        return self.argument("long", f"arg{position}", self.kernel.layout.scalars + position)

    def _steps(self, access: int) -> list[str]:
        """The terms of an access's address, in elements."""
        found, first = [], self.kernel.layout.accesses[access] + 1
        for axis, c in enumerate(self.kernel.accesses[access].classes):
            if c == "1":
                found.append(self.index[axis])
            elif c != "0":
                found.append(f"{self.index[axis]} * {self.argument('long', f'p{access}_{axis}', first + axis)}")
        return found

    # Values

    def _compute(self, v: int) -> str:
        """The expression of value `v` here; its operands have names already."""
        value, names, module = self.kernel.values[v], self.names, self.body.module
        match value:
            case Const():
                return constant(value)
            case Scalar():
                return self._scalar_value(value)
            case Index():
                return f"(ulong)({self._affine(value.affine)})"
            case Load():
                where = [] if value.where is None else [names[value.where]]
                return self._read(value.access, self._steps(value.access), where)
            case Gather():
                where = [] if value.where is None else [names[value.where]]
                # Out of a table without elements nothing is read, whatever the indices are.
                bounds = sorted(bounds_below(self.kernel, [i for i, _ in value.indices]))
                where += [f"(long){self.names[b]} > 0" for b in bounds]
                steps = [f"(long){names[i]} * {self._scalar(s)}" for i, s in value.indices]
                return self._read(value.access, [*self._steps(value.access), *steps], where)
            case Op():
                in_dtype = self.kernel.values[value.operands[-1]].dtype
                return elementwise.lower(value.name, [names[o] for o in value.operands], in_dtype, module)
            case Cast():
                source = self.kernel.values[value.operand].dtype
                return elementwise.cast(names[value.operand], source, value.dtype, module)
            case Check():
                active = "true" if value.where is None else names[value.where]
                operands = [names[value.index], names[value.bound], self._scalar(value.code), "status", active]
                return f"{module.need('check')}({', '.join(operands)})"
        raise LazytInternalError(f"%{v} is read before its stage:\n{self.kernel.text}")

    def _scalar_value(self, value: Scalar) -> str:
        """A scalar argument: a float rounded once, an int without its high bits."""
        raw, dtype = self._scalar(value.position), value.dtype
        if dtypes.kind(dtype) == "f":
            return elementwise.cast(f"as_double({raw})", FLOAT64, dtype, self.body.module)
        return f"{raw} != 0" if dtypes.kind(dtype) == "b" else f"({type_of(reg_type(dtype))}){raw}"

    def _affine(self, number: int) -> str:
        first, axes = self.kernel.layout.affines[number], self.kernel.axes
        terms = [self.argument("long", f"a{number}", first + axes)]
        for axis, c in enumerate(self.kernel.affines[number].classes):
            if c == "1":
                terms.append(self.index[axis])
            elif c != "0":
                terms.append(f"{self.index[axis]} * {self.argument('long', f'a{number}_{axis}', first + axis)}")
        return " + ".join(terms)

    def _read(self, access: int, steps: Sequence[str], where: Sequence[str]) -> str:
        dtype = self.kernel.accesses[access].dtype
        element = f"{self._base(access)}[{' + '.join(steps) or 0}]"
        if dtypes.kind(dtype) == "b":
            return " && ".join([*where, f"{element} != 0"])
        return f"{' && '.join(where)} ? {element} : ({memory_type(dtype)})0" if where else element

    def store(self, what: Store) -> None:
        """Write one element."""
        element = f"{self._base(what.access)}[{' + '.join(self._steps(what.access)) or 0}]"
        kind = memory_type(self.kernel.accesses[what.access].dtype)
        self.body.line(f"{element} = ({kind}){self.names[what.value]};")


def constant(value: Const) -> str:
    """A constant, of the type of registers."""
    if dtypes.of(value.dtype).raw:
        return literal(reg_type(value.dtype), bits_of(value.value, value.dtype))
    return literal(reg_type(value.dtype), value.value)
