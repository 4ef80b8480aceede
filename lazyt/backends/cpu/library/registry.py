"""Which library calls are rows of a native program, not calls of NumPy, and who writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lazyt.backends.cpu.library import bit_packing, insertion_sort, scan

if TYPE_CHECKING:
    from lazyt.backends.cpu.binding import Binding
    from lazyt.ir.passes.schedule import LibraryCall


class NativeModule(Protocol):
    """What such a module has."""

    def native(self, c: LibraryCall, /) -> bool:
        """Whether there is machine code for this call."""

    def suits(self, b: Binding, c: LibraryCall, /) -> bool:
        """Whether it is to be used for these extents."""

    def prepare(self, c: LibraryCall, /) -> None:
        """Have the machine code that a call most likely needs."""

    def launch(
        self, b: Binding, c: LibraryCall, rows: list[list[int]], table: list[int],
        patches: list[tuple[int, int, int]], /,
    ) -> None:  # fmt: skip
        """Write the rows of a program for one call."""


NATIVE_MODULES: tuple[NativeModule, ...] = (scan, bit_packing, insertion_sort)


def native_module_of(c: LibraryCall) -> NativeModule | None:
    """Who has machine code for this call; None where it is one of NumPy."""
    return next((r for r in NATIVE_MODULES if r.native(c)), None)


def bound_native_module_of(b: Binding, c: LibraryCall) -> NativeModule | None:
    """The same for the extents of a binding: also None where NumPy's call is the faster one."""
    module = native_module_of(c)
    return module if module is not None and module.suits(b, c) else None
