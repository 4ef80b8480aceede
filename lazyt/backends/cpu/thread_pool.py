"""Runs programs: tables of kernel launches, executed by native code on a pool of native threads.

A kernel is `void kernel(ptr args, i64 begin, i64 end, ptr workspace)` (see workspace.py): it computes units
[begin, end) of its iteration space, and reads what it needs to know from the int64 entries at `args`. A program is data
(see `Program`), so nothing is compiled for a new plan. The order in which units run, and the
threads that they run on, never matter to results.

The pool is native (`thread_pool_ir.py`): workers have no Python state, are created by the first program
that has work for them, sleep when idle, and are joined when the process ends. A forked child starts
without any.
"""

from __future__ import annotations

import atexit
import ctypes
import operator
import os
import platform as host_platform
import signal
import struct
import sys
import time
from array import array
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.cpu import engine
from lazyt.backends.cpu.flags import registers, switches
from lazyt.backends.cpu.program_driver_ir import CONTROL_FIELDS, LONG_PROGRAM
from lazyt.backends.cpu.thread_platform_ir import AFFINITY, Platform
from lazyt.backends.cpu.thread_pool_ir import MAX_WORKERS, ROW_FIELDS, render
from lazyt.forking import POOL, OrderedLock

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Words = npt.NDArray[np.int64]

_METH_NOARGS, _METH_O = 4, 8
_CONTROL = struct.Struct(f"={CONTROL_FIELDS}q")
# A fault in a thread signals that thread: were it blocked, the process would die without a trace.
_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP")
_FUTEX_NUMBERS = {"x86_64": 202, "aarch64": 98, "riscv64": 98}


def _signal_mask() -> bytes:
    """A `sigset_t` of all signals but faults: signals are for Python's main thread."""
    faults = {getattr(signal, name) for name in _FAULTS if hasattr(signal, name)}
    bits = sum(1 << (number - 1) for number in signal.valid_signals() - faults)
    return bits.to_bytes(128, "little")


def _is_in_process(name: str) -> bool:
    """Whether this process has a function. NOTE: LLVM finds none before it has loaded code."""
    try:
        return hasattr(ctypes.CDLL(None), name)
    except (OSError, TypeError):  # not so on this system
        return False


def current_platform() -> Platform:
    """The platform that the runtime is compiled for here."""
    architecture = host_platform.machine()
    if architecture.lower() in ("arm64", "aarch64"):
        architecture = "aarch64"
    futex = _FUTEX_NUMBERS.get(architecture) if sys.platform == "linux" else None
    affinity = switches["place"] and all(_is_in_process(name) for name in AFFINITY)
    return Platform(architecture, futex, int(signal.SIG_BLOCK), _signal_mask(), time.CLOCK_MONOTONIC, affinity)


def usable_cpus() -> int:
    """How many CPUs this process may run on."""
    if registers["threads"]:
        return registers["threads"]
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


# Calling a function made so costs 50 ns, through ctypes 400 and more.
_new_builtin = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)


class Runtime:
    """The compiled driver with its thread pool; `runtime()` is the one of the process."""

    def __init__(self, platform: Platform, threads: int) -> None:
        text, prefix = render(platform)
        exports = ("run", "run_bound", "launch", "resize", "wanted", "workers", "reset", "flush")
        names = [f"{prefix}_{export}" for export in exports]
        self.module = engine.compile_module(text, names, permanent=True)
        address = {export: self.module.address(f"{prefix}_{export}") for export in exports}
        self._methods = {
            "run": _MethodDef(b"run", address["run"], _METH_O, b"run(address of a control block)"),
            "run_bound": _MethodDef(b"run", address["run_bound"], _METH_NOARGS, b"run the program"),
            "launch": _MethodDef(b"launch", address["launch"], _METH_O, b"launch(base addresses)"),
        }
        self.run: Callable[[int], None] = self.builtin("run", None, None)
        self._resize = ctypes.CFUNCTYPE(None, ctypes.c_int64)(address["resize"])
        self._wanted = ctypes.CFUNCTYPE(ctypes.c_int64)(address["wanted"])
        self._workers = ctypes.CFUNCTYPE(ctypes.c_int64)(address["workers"])
        self._reset = ctypes.CFUNCTYPE(None)(address["reset"])
        self._flush = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address["flush"])
        self._reset()
        self.set_threads(threads)

    def builtin(self, name: str, bound: object, keep: object) -> Callable[..., None]:
        """A Python builtin over a native function: `bound` is its self, `keep` lives with it."""
        # It points at its definition until it is freed, and at the code.
        lasting = (self._methods, self.module, keep)
        made: Callable[..., None] = _new_builtin(ctypes.addressof(self._methods[name]), bound, lasting)
        return made

    def set_threads(self, threads: int) -> None:
        """Wait for the program that uses the pool, and end the workers; new ones start on demand."""
        self._resize(min(threads - 1, MAX_WORKERS))

    def threads(self) -> int:
        return int(self._wanted()) + 1

    def flush_denormal(self, on: bool) -> bool:
        """Have programs take subnormal numbers as zeros, or not; whether this processor can."""
        able = bool(self._flush(int(on)))
        self._resize(self._wanted())  # a worker has the mode that it began with
        return able

    def workers(self) -> int:
        """How many worker threads exist now."""
        return int(self._workers())

    def shut_down(self) -> None:
        """Join the workers for good: later programs run on their callers."""
        self.set_threads(1)

    def after_fork(self) -> None:
        """In the child: the workers, and the thread that used the pool, do not exist."""
        self._reset()


class _Process:
    """The runtime of the process, made when it is first needed."""

    def __init__(self) -> None:
        self.lock = OrderedLock(POOL)
        self.runtime: Runtime | None = None
        self.threads = 0  # 0: not chosen, all usable CPUs

    def get(self) -> Runtime:
        if self.runtime is None:
            with self.lock:
                if self.runtime is None:
                    made = Runtime(current_platform(), self.threads or usable_cpus())
                    # The workers must be gone before the interpreter takes the engines down.
                    atexit.register(made.shut_down)
                    self.runtime = made
        return self.runtime

    def after_fork(self) -> None:
        self.lock = OrderedLock(POOL)
        if self.runtime is not None:
            self.runtime.after_fork()


_process = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.after_fork)


def started() -> bool:
    """Whether the runtime has been used."""
    return _process.runtime is not None


def unloaded() -> list[tuple[str, str]]:
    """The module of the runtime (text, name of a function), if it has not been used yet."""
    if started():
        return []
    text, prefix = render(current_platform())
    return [(text, f"{prefix}_run")]


def runtime() -> Runtime:
    """The runtime that programs of this process use, compiled or loaded on first use."""
    return _process.get()


def set_num_threads(n: int) -> None:
    """Let programs use `n` threads, the caller's included; waits for one that has the pool."""
    count = operator.index(n)
    if count < 1:
        raise ValueError(f"set_num_threads: at least 1 thread is required, not {count}")
    with _process.lock:
        _process.threads = min(count, MAX_WORKERS + 1)
        if _process.runtime is not None:
            _process.runtime.set_threads(_process.threads)


def get_num_threads() -> int:
    """How many threads programs use (fewer than were set if the system has refused some)."""
    with _process.lock:
        if _process.runtime is not None:
            return _process.runtime.threads()
        return _process.threads or usable_cpus()


def set_flush_denormal(on: bool) -> bool:
    """Have programs take subnormal numbers as zeros from now on, or not; whether this processor can."""
    with _process.lock:
        return runtime().flush_denormal(on)


def _words(name: str, values: npt.ArrayLike, columns: int | None) -> Words:
    """An int64 array of the program's own, which native code may write to."""
    array = np.array(values, dtype=np.int64, order="C")
    if columns is not None:
        if array.size % columns or (array.size and array.shape[-1] != columns):
            raise ValueError(f"Program: {name} has {columns} columns, not shape {array.shape}")
        return array.reshape(-1, columns)
    return array.reshape(-1)


class Program:
    """Kernel launches as data, run by one native call.

    `rows`, one a launch: `[kernel address, args offset, units, grain, joins_next]`. The kernel gets
    the address of `table[args offset]`; its `units` are run in chunks of `grain` (0: one chunk).
    `joins_next` = 1 puts the next row in the same parallel region: nothing orders the two.
    Otherwise a row starts when the one before is done.

    `patches`: `[slot, base_index, byte_offset]`. Each run starts with
    `table[slot] = bases[base_index] + byte_offset`.

    `launch(addresses)` takes a list of `nbases` ints (or floats: their bits) into `bases` and runs: the
    fastest way (8 ns a base). `run()` runs with the bases as they are; `Struct(f"{n}q").pack_into(memoryview, ...)` is
    the next fastest way to fill them (15 ns), assigning to a slice the slowest (35 ns). Both
    release the interpreter lock if the program has rows of several chunks or is long. All of it lies in `words`; the
    arrays `rows`, `table`, `patches` and `bases` are parts of them and may be changed between runs. Running a
    program that another thread is running raises `RuntimeError`: use a `copy`. Kernels and the
    memory they use must outlive the run: the caller keeps them, the program keeps only its own
    arrays.
    """

    __slots__ = ("__weakref__", "address", "counts", "launch", "words")

    launch: Callable[[list[int]], None]

    def __init__(
        self,
        rows: npt.ArrayLike,
        table: npt.ArrayLike,
        patches: npt.ArrayLike = (),
        nbases: int = 0,
    ) -> None:
        parts = _words("rows", rows, ROW_FIELDS), _words("table", table, None), _words("patches", patches, 3)
        _check(*parts, nbases)
        workspace = np.zeros(nbases + CONTROL_FIELDS, np.int64)
        words = array("q", np.concatenate([*(p.reshape(-1) for p in parts), workspace]).tobytes())
        self._begin(words, (*map(len, parts), nbases))  # type: ignore[arg-type]

    def _begin(self, words: array[int], counts: tuple[int, int, int, int]) -> None:
        """words: rows, table, patches, bases and the control block, one behind the other."""
        self.words, self.counts = words, counts
        rows, table, patches, nbases = counts
        start = words.buffer_info()[0]
        at_table = start + 8 * ROW_FIELDS * rows
        at_patches = at_table + 8 * table
        at_bases = at_patches + 8 * 3 * patches
        self.address = at_bases + 8 * nbases
        _CONTROL.pack_into(
            words, self.address - start, start, rows, at_table, at_patches, patches, at_bases, 0, nbases
        )  # fmt: skip
        self.launch = runtime().builtin("launch", self.address, words)

    @property
    def run(self) -> Callable[[], None]:
        return runtime().builtin("run_bound", self.address, self.words)

    def _part(self, start: int, count: int) -> Words:
        return np.frombuffer(self.words, np.int64)[start : start + count]

    @property
    def rows(self) -> Words:
        return self._part(0, ROW_FIELDS * self.counts[0]).reshape(-1, ROW_FIELDS)

    @property
    def table(self) -> Words:
        return self._part(ROW_FIELDS * self.counts[0], self.counts[1])

    @property
    def patches(self) -> Words:
        rows, table, patches, _ = self.counts
        return self._part(ROW_FIELDS * rows + table, 3 * patches).reshape(-1, 3)

    @property
    def lets_go(self) -> bool:
        """Whether a run releases the interpreter lock: then another thread may ask for the same program."""
        rows = self.rows
        divided = (rows[:, 3] > 0) & (rows[:, 2] > rows[:, 3])
        return len(rows) >= LONG_PROGRAM or bool(divided.any())

    @property
    def bases(self) -> Words:
        rows, table, patches, nbases = self.counts
        return self._part(ROW_FIELDS * rows + table + 3 * patches, nbases)

    def over(self, words: array[int]) -> Program:
        """The same program over other `words`, which are this one's own but for numbers in places that may differ.

        Those are the table's entries, the patches' byte offsets, and the rows' units and grains: what is checked of a
        program holds of both, and is not checked again.
        """
        twin = object.__new__(Program)
        twin._begin(words, self.counts)
        return twin

    def copy(self) -> Program:
        """The same program with words of its own, for another thread."""
        return self.over(self.words[:])


def _check(rows: Words, table: Words, patches: Words, nbases: int) -> None:
    """Native code trusts the numbers: a slot outside the table would be a write anywhere."""
    entries = len(table)
    slots, bases = patches[:, 0], patches[:, 1]
    if ((slots < 0) | (slots >= entries)).any():
        raise ValueError(f"Program: a patch writes outside the table of {entries} entries")
    if ((bases < 0) | (bases >= nbases)).any():
        raise ValueError(f"Program: a patch reads outside the {nbases} bases")
    if (rows[:, 0] == 0).any():
        raise ValueError("Program: a row has no kernel")
    offsets = rows[:, 1]
    if ((offsets < 0) | (offsets > entries)).any():
        raise ValueError(f"Program: a row's args lie outside the table of {entries} entries")


def run(control_address: int) -> None:
    """Run the program with this control block (`Program.address`), as `Program.run()` does."""
    runtime().run(control_address)
