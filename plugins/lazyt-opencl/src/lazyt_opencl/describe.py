"""Describes how a launch is computed on an OpenCL device, for people. Nothing here runs or compiles a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.interface import Description
from lazyt.ir import graph as g
from lazyt.ir.passes.kernelize import KernelCall
from lazyt.ir.passes.schedule import LibraryCall, MatmulCall, ScatterCall
from lazyt.ops.kernel_calls import ON_DEVICE
from lazyt_opencl import products
from lazyt_opencl.arrays import LANGUAGE
from lazyt_opencl.codegen.emit import emit
from lazyt_opencl.codegen.preamble import HEAD
from lazyt_opencl.codegen.text import Module
from lazyt_opencl.device import NAME
from lazyt_opencl.library.registry import routine_of, user_call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.passes.schedule import Launch
    from lazyt_opencl.executor import Bound
    from lazyt_opencl.library.routine import Routine


class LaunchDescription(Description):
    """A launch of a plan at the sizes of a binding."""

    def __init__(self, call: Launch, bound: Bound) -> None:
        self._call, self._bound = call, bound

    @property
    def _routine(self) -> Routine | None:
        return routine_of(self._bound, self._call)

    @property
    def library(self) -> str:  # type: ignore[override]
        c = self._call
        if isinstance(c, MatmulCall):
            return "generated product" if self._bound.form_of(c) is not None else "NumPy matmul, on the host"
        if (routine := self._routine) is not None:
            return f"generated {routine.name}"
        if isinstance(c, ScatterCall):
            return "NumPy scatter in index order, on the host"
        if (of_user := user_call(c)) is not None:
            return f"{of_user!r}, {LANGUAGE} of the user's"
        if isinstance(c, LibraryCall):
            assert isinstance(c.node.attrs, g.Opaque)
            return f"NumPy {c.node.attrs.fn.replace('_', '.', 1)}, on the host"
        return ""

    @property
    def strategies(self) -> Sequence[str]:  # type: ignore[override]
        c = self._call
        if isinstance(c, KernelCall) and (count := len(self._bound.pieces_of(c))) > 1:
            return (f"few long rows, divided by chunks, in {count} launches",)
        return ()

    @property
    def fallback(self) -> str:  # type: ignore[override]
        c = self._call
        if isinstance(c, MatmulCall):
            return (
                "" if self._bound.form_of(c) is not None else f"there is no OpenCL kernel for {c.node.dtype} products"
            )
        if isinstance(c, KernelCall) or self._routine is not None or user_call(c) is not None:
            return ""
        if isinstance(c, LibraryCall) and isinstance(c.node.attrs, g.Opaque) and c.node.attrs.fn == ON_DEVICE:
            return f"its kernel for {NAME!r} is a function of NumPy's arrays"
        return "there is no OpenCL kernel for it"

    @property
    def code(self) -> str:  # type: ignore[override]
        return "" if isinstance(self._call, KernelCall) else "library"

    def source(self, notes: Sequence[str] = ()) -> str:
        """OpenCL C."""
        c = self._call
        if isinstance(c, MatmulCall):
            form = self._bound.form_of(c)
            return "" if form is None else products.source(form, notes)
        if not isinstance(c, KernelCall):
            return "" if (routine := self._routine) is None else routine.source(notes)
        module = Module()
        kernels = dict.fromkeys(p.kernel for p in self._bound.pieces_of(c))
        texts = [emit(kernel, module, notes if i == 0 else ()) for i, kernel in enumerate(kernels)]
        return "\n".join([HEAD, module.text(), *texts])
