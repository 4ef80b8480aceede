"""The library calls that are rows of a native program instead of NumPy calls, and the modules that implement them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lazyt import on_demand
from lazyt.ir import graph as g
from lazyt.ir.library_calls import WINOGRAD
from lazyt.ir.scan import SCANS

if TYPE_CHECKING:
    from lazyt.backends.common.binding import ScheduleBinding
    from lazyt.backends.cpu.library import bit_packing, copies, insertion_sort, scan, small_matrices, winograd
    from lazyt.ir.passes.schedule import LibraryCall
else:
    scan = on_demand.module("lazyt.backends.cpu.library.scan")
    insertion_sort = on_demand.module("lazyt.backends.cpu.library.insertion_sort")
    bit_packing = on_demand.module("lazyt.backends.cpu.library.bit_packing")
    copies = on_demand.module("lazyt.backends.cpu.library.copies")
    small_matrices = on_demand.module("lazyt.backends.cpu.library.small_matrices")
    winograd = on_demand.module("lazyt.backends.cpu.library.winograd")


class NativeModule(Protocol):
    """The interface of a module that implements library calls natively."""

    def native(self, c: LibraryCall, /) -> bool:
        """Whether there is machine code for this call."""

    def suits(self, b: ScheduleBinding, c: LibraryCall, /) -> bool:
        """Whether it is to be used for these extents."""

    def prepare(self, c: LibraryCall, /) -> None:
        """Compile or load the machine code that a call most likely needs."""

    def launch(
        self, b: ScheduleBinding, c: LibraryCall, rows: list[list[int]], table: list[int],
        patches: list[tuple[int, int, int]], /,
    ) -> None:  # fmt: skip
        """Write the rows of a program for one call."""


# Functions of small matrices: they work in a workspace, and some fail, by the status word, as indices do.
MATRICES = frozenset(
    f"linalg_{fn}" for fn in ("solve", "inv", "det", "slogdet", "cholesky", "qr", "eigh", "eigvalsh", "svd", "svdvals")
)

# The functions for which each has code; the modules are loaded with the first call.
NATIVE_MODULES: dict[str, NativeModule] = {
    **dict.fromkeys(SCANS, scan),
    **dict.fromkeys(("packbits", "unpackbits", "frexp"), bit_packing),
    **dict.fromkeys(("sort", "argsort", "topk"), insertion_sort),
    "after": copies,
    **dict.fromkeys(MATRICES, small_matrices),
    **dict.fromkeys(WINOGRAD, winograd),
}


def native_module_of(c: LibraryCall) -> NativeModule | None:
    """The module with machine code for this call; None if NumPy computes it."""
    module = NATIVE_MODULES.get(c.node.attrs.fn) if isinstance(c.node.attrs, g.Opaque) else None
    return module if module is not None and module.native(c) else None


def bound_native_module_of(b: ScheduleBinding, c: LibraryCall) -> NativeModule | None:
    """The same for the extents of a binding: also None where NumPy's call is faster."""
    module = native_module_of(c)
    return module if module is not None and module.suits(b, c) else None


def workspace_of_library(b: ScheduleBinding, c: LibraryCall) -> int:
    """Bytes of working memory that the machine code of a call needs beside its arrays."""
    module = bound_native_module_of(b, c)
    return module.workspace(b, c) if module is small_matrices or module is winograd else 0


def module_text_of(b: ScheduleBinding, c: LibraryCall) -> tuple[str, str] | None:
    """The text of a call's machine code and the name of its function, where those depend on extents; else None."""
    return winograd.module(b, c) if bound_native_module_of(b, c) is winograd else None


def may_fail(b: ScheduleBinding, c: LibraryCall) -> bool:
    """Whether the machine code of a call may write to the status word."""
    return bound_native_module_of(b, c) is small_matrices
