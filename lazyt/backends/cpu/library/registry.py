"""The library calls that are rows of a native program instead of NumPy calls, and the modules that implement them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lazyt.backends.cpu.library import bit_packing, insertion_sort, scan

if TYPE_CHECKING:
    from lazyt.backends.cpu.binding import Binding
    from lazyt.ir.passes.schedule import LibraryCall


class NativeModule(Protocol):
    """The interface of a module that implements library calls natively."""

    def native(self, c: LibraryCall, /) -> bool:
        """Whether there is machine code for this call."""

    def suits(self, b: Binding, c: LibraryCall, /) -> bool:
        """Whether it is to be used for these extents."""

    def prepare(self, c: LibraryCall, /) -> None:
        """Compile or load the machine code that a call most likely needs."""

    def launch(
        self, b: Binding, c: LibraryCall, rows: list[list[int]], table: list[int],
        patches: list[tuple[int, int, int]], /,
    ) -> None:  # fmt: skip
        """Write the rows of a program for one call."""


NATIVE_MODULES: tuple[NativeModule, ...] = (scan, bit_packing, insertion_sort)


def native_module_of(c: LibraryCall) -> NativeModule | None:
    """The module with machine code for this call; None if NumPy computes it."""
    return next((r for r in NATIVE_MODULES if r.native(c)), None)


def bound_native_module_of(b: Binding, c: LibraryCall) -> NativeModule | None:
    """The same for the extents of a binding: also None where NumPy's call is faster."""
    module = native_module_of(c)
    return module if module is not None and module.suits(b, c) else None
