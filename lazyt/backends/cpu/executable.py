"""A schedule for the CPU, and which code its launches may use: what a binding knows of its executable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.common.executable import ScheduleExecutable
from lazyt.backends.cpu.codegen.vector_axis import arrange
from lazyt.backends.cpu.flags import switches
from lazyt.ir.passes.donate import donations

if TYPE_CHECKING:
    from lazyt.ir.passes.kernelize import KernelCall
    from lazyt.ir.passes.schedule import Schedule


class NativeExecutable(ScheduleExecutable):
    """An executable whose launches are native code, as far as these options allow it."""

    def __init__(self, sched: Schedule, native: bool = True, gemm: bool = True, library: bool = True) -> None:
        super().__init__(sched)
        self.gemm, self.library = gemm, library  # whether products may use generated code, and BLAS
        self.native = native  # off: scatters and scans are calls of NumPy
        if sched.donations is None:
            sched.donations = donations(sched) if switches["donate"] else []
        self.donations = sched.donations

    def arrange(self, call: KernelCall) -> None:
        arrange(call)
