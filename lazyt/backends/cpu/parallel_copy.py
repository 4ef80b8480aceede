"""Copies NumPy arrays into buffers: large ones on several threads, as one thread does not use the full bandwidth."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.backends.cpu.memory import Buffer, allocate, as_ndarray

if TYPE_CHECKING:
    import numpy.typing as npt

    from lazyt.backends.cpu import thread_pool
    from lazyt.backends.cpu.codegen import routine
else:
    thread_pool = on_demand.module("lazyt.backends.cpu.thread_pool")
    routine = on_demand.module("lazyt.backends.cpu.codegen.routine")

SHARED = 1 << 19  # bytes from which on waking a thread pays
PARTS = 8
FEW = 4  # large copies of a process after which code for them is compiled
TO, SOURCE, SIZE, PART = range(4)


def write_copy(r: routine.Routine) -> None:
    """Copy the bytes of parts [begin, end)."""
    to, source = r.argument(TO, "ptr"), r.argument(SOURCE, "ptr")
    size, part = r.argument(SIZE), r.argument(PART)
    body = r.body
    first, last = (
        body.call("i64", "llvm.umin.i64", ("i64", body.let(f"mul i64 {edge}, {part}")), ("i64", size))
        for edge in ("%begin", "%end")
    )
    count = body.let(f"sub i64 {last}, {first}")
    body.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    places = f"ptr {r.at('i8', to, first)}, ptr {r.at('i8', source, first)}"
    body.line(f"call void @llvm.memcpy.p0.p0.i64({places}, i64 {count}, i1 false)")


# Arrays of at most so many bytes are copied by way of an object of bytes.
FEW_BYTES = 4096


class _Copier:
    """The program that copies, for one thread at a time.

    NOTE: no lock: one that a signal handler waits for is never let go of, and one that is interrupted right after it is
    taken stays taken. `busy` is looked at and set without a call between, so no other thread and no handler gets there.
    """

    def __init__(self) -> None:
        self.busy = False
        self.large = 0  # copies so far
        self.program: thread_pool.Program | None = None

    def copy(self, to: int, source: int, nbytes: int) -> None:
        shared = nbytes >= SHARED and thread_pool.get_num_threads() > 1
        if not shared or self.busy:
            ctypes.memmove(to, source, nbytes)
            return
        self.busy = True
        try:
            self.large += 1
            # NOTE: nor before something was run: to compile the runtime takes as long as 300 copies of a megabyte.
            if self.large <= FEW or not thread_pool.started():
                ctypes.memmove(to, source, nbytes)
                return
            if self.program is None:
                code = routine.Routines({"copy": write_copy}).address["copy"]
                self.program = thread_pool.Program([(code, 0, PARTS, 1, 0)], [0] * 4, [(i, i, 0) for i in range(4)], 4)
            self.program.launch([to, source, nbytes, -(-nbytes // (PARTS * 64)) * 64])
        finally:
            self.busy = False


_copier = _Copier()


def copied(a: npt.NDArray[Any]) -> Buffer:
    """The elements of an array in a new buffer, in C order."""
    buffer = allocate(max(a.nbytes, 1))
    if a.nbytes <= FEW_BYTES:
        # NOTE: to find out where an array lies costs more than to copy it twice.
        ctypes.memmove(buffer.address, a.tobytes(), a.nbytes)
    elif a.flags.c_contiguous:
        # NOTE: an array over the buffer costs more than the copy of a small one.
        _copier.copy(buffer.address, a.__array_interface__["data"][0], a.nbytes)
    else:
        as_ndarray(buffer, a.dtype, a.shape, writable=True)[...] = a
    return buffer
