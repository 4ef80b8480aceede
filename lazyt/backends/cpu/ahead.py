"""Object code of several modules made at once: LLVM's code generator needs neither the interpreter nor a lock.

llvmlite has one lock around every call of LLVM. Modules in contexts of their own, each with its own target machine,
are independent of each other, so the one call that takes long is made past that lock, through a handle of our own on
the library; everything else goes through llvmlite. The bytes are those that a thread alone makes.
"""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from lazyt.errors import LazytInternalError

_OBJECT = 1  # what LLVMPY_TargetMachineEmitToMemory makes: 0 would be assembly


def _emitter() -> Callable[..., Any] | None:
    """LLVM's code generator without llvmlite's lock; None where llvmlite has not what it takes."""
    try:
        emit = ctypes.CDLL(ffi.lib._name).LLVMPY_TargetMachineEmitToMemory
    except (AttributeError, OSError):
        return None
    emit.argtypes = [ffi.LLVMTargetMachineRef, ffi.LLVMModuleRef, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    emit.restype = ffi.LLVMMemoryBufferRef
    return emit


def objects(
    texts: Sequence[str], lanes: int, create_machine: Callable[[], Any], parse: Callable[[str, Any], Any]
) -> list[bytes | None]:
    """The object code of each text, made by `lanes` threads; None where that failed, which compiling it alone explains.

    `parse(text, context)` gives a verified module.
    """
    emit = _emitter()
    made: list[bytes | None] = [None] * len(texts)
    if emit is None:
        return made
    # The longest first, so that no thread is left with one when the others are done.
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for i in sorted(range(len(texts)), key=lambda i: -len(texts[i])):
        todo.put(i)

    def work() -> None:
        machine = create_machine()
        while True:
            try:
                i = todo.get_nowait()
            except queue.Empty:
                return
            try:
                module = parse(texts[i], llvm.create_context())
            except LazytInternalError:  # the caller compiles it alone, and raises this again
                continue
            made[i] = _object_of(emit, machine, module)

    helpers = [threading.Thread(target=work, name="lazyt compile") for _ in range(min(lanes, len(texts)) - 1)]
    for t in helpers:
        t.start()
    try:
        work()
    finally:
        for t in helpers:
            t.join()
    return made


def _object_of(emit: Callable[..., Any], machine: Any, module: Any) -> bytes | None:
    with ffi.OutputString() as error:
        buffer = emit(machine, module, _OBJECT, error)
        if not buffer:
            return None
    try:
        start = ffi.lib.LLVMPY_GetBufferStart(buffer)
        return ctypes.string_at(start, ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)
