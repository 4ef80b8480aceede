"""The kernel being written: its arguments, its loops, and the names of what is known where the next line goes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from lazyt.backends.cuda.codegen.text import Body, type_of
from lazyt.backends.math.elements import mem_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from lazyt.backends.cuda.codegen.emit_levels import Levels
    from lazyt.backends.cuda.codegen.mapping import Mapping
    from lazyt.ir.kernel import Kernel


def memory_type(dtype: np.dtype) -> str:
    """The C type of `dtype` in memory; a bool is one byte."""
    return type_of(mem_type(dtype))


class Scope:
    """Names of values, indices and pointers by level; arguments become constants at the kernel's head."""

    def __init__(self, kernel: Kernel, levels: Levels, mapping: Mapping, body: Body) -> None:
        self.kernel = kernel
        self.levels = levels
        self.mapping = mapping
        self.body = body
        self.names: dict[int, str] = {}
        self.index: dict[int, str] = {}
        self.pointers: dict[tuple[int, int], str] = {}
        self.offsets: dict[tuple[int, int], str] = {}
        # Values in registers: neighbours loaded at once, the elements of a row that a lane keeps.
        self.kept: dict[int, str] = {}
        # How a division by what neighbours share is written: with a look at each dividend; without one, noting in `odd`
        # that it was wanted; or as the machine's.
        self.division: Literal["each", "noted", "whole"] = "each"
        # The condition that the current point is inside the domain; "" where it always is.
        self.live = ""
        self.head = Body(body.module, body.depth)
        self._arguments: set[str] = set()

    def argument(self, kind: str, name: str, position: int) -> str:
        """The argument entry at `position` as a constant of type `kind`."""
        if name not in self._arguments:
            self._arguments.add(name)
            # `T *const p`, but `const T n`.
            declared = f"{kind}const {name}" if kind.endswith("*") else f"const {kind} {name}"
            self.head.line(f"{declared} = ({kind})args[{position}];")
        return name

    def extent(self, axis: int) -> str:
        return self.argument(self.mapping.index, f"n{axis}", self.kernel.layout.extents + axis)

    def base(self, access: int) -> str:
        what = self.kernel.accesses[access]
        kind = f"{'' if what.writes else 'const '}{memory_type(what.dtype)} *"
        return self.argument(kind, f"p{access}", self.kernel.layout.accesses[access])

    def status(self) -> str:
        return self.argument("s64 *", "status", self.kernel.layout.status)

    def stride(self, access: int, axis: int) -> str:
        """The stride in elements along an axis of class '1' or 'n'."""
        if self.kernel.accesses[access].classes[axis] == "1":
            return "1"
        position = self.kernel.layout.accesses[access] + 1 + axis
        return self.argument(self.mapping.index, f"p{access}_{axis}", position)

    def coefficient(self, affine: int, axis: int) -> str:
        if self.kernel.affines[affine].classes[axis] == "1":
            return "1"
        return self.argument("s64", f"a{affine}_{axis}", self.kernel.layout.affines[affine] + axis)

    def scalar(self, position: int) -> str:
        """The int64 entry of scalar argument `position`."""
        return self.argument("s64", f"arg{position}", self.kernel.layout.scalars + position)

    def times(self, index: str, stride: str) -> str:
        return index if stride == "1" else f"{index} * {stride}"

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Forget at the end what was named inside."""
        saved = self.names, self.pointers, self.offsets, self.index, self.live
        self.names, self.pointers = dict(self.names), dict(self.pointers)
        self.offsets, self.index = dict(self.offsets), dict(self.index)
        yield
        self.names, self.pointers, self.offsets, self.index, self.live = saved

    @contextmanager
    def loop(self, head: str) -> Iterator[None]:
        """A block behind `head`, in which what is named is forgotten at its end."""
        with self.body.block(head), self.inside():
            yield

    def both(self, *conditions: str) -> str:
        """All of the conditions; "" is one that always holds."""
        return " && ".join(c for c in conditions if c)
