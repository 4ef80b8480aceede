"""Makes object code of several modules in parallel: LLVM's code generator needs neither the interpreter nor a lock.

llvmlite holds one lock during every LLVM call. Modules in contexts of their own, each with its own target machine,
are independent of each other, so the one call that takes long is made past that lock, through a handle of our own on
the library; everything else goes through llvmlite. The bytes are those that a thread alone makes.
"""

from __future__ import annotations

import ctypes
import queue
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.backends.cpu import address_space
from lazyt.errors import LazytInternalError
from lazyt.forking import FOREIGN, Helper, inner_lock, is_held

if TYPE_CHECKING:
    import llvmlite.binding as llvm
    from llvmlite.binding import ffi
else:
    llvm = on_demand.module("llvmlite.binding")
    ffi = on_demand.module("llvmlite.binding.ffi")

_OBJECT = 1  # what LLVMPY_TargetMachineEmitToMemory makes: 0 would be assembly


def _emitter() -> Callable[..., Any] | None:
    """LLVM's code generator without llvmlite's lock; None if llvmlite does not export what it needs."""
    try:
        emit = ctypes.CDLL(ffi.lib._name).LLVMPY_TargetMachineEmitToMemory
    except (AttributeError, OSError):
        return None
    emit.argtypes = [ffi.LLVMTargetMachineRef, ffi.LLVMModuleRef, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    emit.restype = ffi.LLVMMemoryBufferRef
    return emit


def note_lock() -> None:
    """Give llvmlite's lock its place in the order of locks."""
    lock = getattr(getattr(ffi.lib, "_lock", None), "_lock", None)
    if lock is not None:
        inner_lock(lock, FOREIGN)


class Making:
    """Object code in preparation, made by threads of its own and by the thread that waits for it.

    `parse(text, context)` gives a verified module. A failure gives None; compiling that module alone raises the error.
    """

    def __init__(self, create_machine: Callable[[], Any], parse: Callable[[str, Any], Any]) -> None:
        self._create_machine, self._parse = create_machine, parse
        self._todo: queue.PriorityQueue[tuple[int, str]] = queue.PriorityQueue()
        self._threads: list[Helper] = []
        self.made: dict[str, bytes | None] = {}

    def add(self, texts: Iterable[str]) -> None:
        """Request object code of modules that are not requested yet: the longest first, to balance the threads."""
        for text in texts:
            if text not in self.made:
                self.made[text] = None
                self._todo.put((-len(text), text))

    def start(self, lanes: int) -> None:
        """Start this number of threads, or fewer where the system has no more or there is little memory.

        None where this thread is inside llvmlite (it handles a signal there): they would wait for it.
        """
        if is_held(FOREIGN):
            return
        at_work = sum(t.is_alive() for t in self._threads)
        for _ in range(min(lanes, self._todo.qsize()) - at_work):
            # NOTE: a thread without memory for its own variables ends the process.
            if not address_space.available(address_space.THREAD):
                return
            t = Helper(target=self._work, name="lazyt compile")
            try:
                t.start()
            except RuntimeError:  # "can't start new thread": the waiting thread does the work
                return
            self._threads.append(t)

    def finish(self) -> dict[str, bytes | None]:
        """Take part until everything is made; what threads cannot finish, as `start` says, is None."""
        try:
            self._work()
        finally:
            if not is_held(FOREIGN):
                for t in self._threads:
                    t.join()
        return dict(self.made)

    def _work(self) -> None:
        emit = _emitter()
        if emit is None or not address_space.available(address_space.LOADING):
            return
        machine = self._create_machine()
        while True:
            try:
                _, text = self._todo.get_nowait()
            except queue.Empty:
                return
            if not address_space.available(address_space.compiling(text) * (len(self._threads) + 1)):
                continue  # the caller compiles it alone, or raises OutOfMemory
            try:
                module = self._parse(text, llvm.create_context())
            except LazytInternalError:  # the caller compiles it alone, and raises this again
                continue
            self.made[text] = _object_of(emit, machine, module)


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
