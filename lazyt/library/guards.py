"""Checking mode: kernels of users run on copies between guard zones, so what they write outside of results is found."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lazyt.config import general
from lazyt.errors import KernelError
from lazyt.interrupts import uninterrupted
from lazyt.ir.records import dataclass
from lazyt.library.native import Compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Recorded = Sequence[tuple[tuple[int, ...], np.dtype[Any]]]

# Bytes of a zone before and behind an array: as many as the array has, within these bounds.
LEAST, MOST = 4096, 1 << 20
ALIGNED = 64  # as lazyt's own buffers are


class Zoned:
    """An array with a guard zone on either side."""

    def __init__(self, xp: Any, shape: Sequence[int], dtype: np.dtype[Any], name: str, content: Any = None) -> None:
        self.name = name
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        zone = max(LEAST, min(nbytes, MOST))
        # NOTE: no byte of a zone is that of its neighbours, so a copy that is one off is found too.
        self.expected = xp.asarray((np.arange(nbytes + 2 * zone + ALIGNED) * 151 + 89).astype(np.uint8))
        self.whole = self.expected.copy()
        address = self.whole.ctypes.data if isinstance(self.whole, np.ndarray) else self.whole.data.ptr
        self.start = zone + -(address + zone) % ALIGNED
        self.inside = slice(self.start, self.start + nbytes)
        self.is_input = content is not None
        self.array = self.whole[self.inside].view(dtype).reshape(shape)
        if self.is_input:
            self.array[...] = content
            self.expected[self.inside] = self.whole[self.inside]
            if isinstance(self.array, np.ndarray):
                self.array.flags.writeable = False

    def fault(self) -> str:
        """What was written that may not be: '' if nothing was."""
        return self._fault_of(self.whole != self.expected)

    def _fault_of(self, wrong: Any) -> str:
        if not self.is_input:
            wrong[self.inside] = False
        at = wrong.nonzero()[0]
        if not at.size:
            return ""
        first, size = int(at[0]) - self.start, self.inside.stop - self.start
        which = f"{self.name!r} ({size:,} bytes)"
        where = f"of argument {which}, which it may only read" if 0 <= first < size else f"outside of {which}"
        return f"wrote {at.size:,} byte{'s' * (at.size > 1)} {where}, from byte {first:,} on"


def zoned(xp: Any) -> type[Zoned]:
    """The kind of zoned arrays of a library: its own, for memory that neither NumPy nor CuPy slices."""
    found: type[Zoned] = getattr(xp, "Zoned", Zoned)
    return found


@dataclass(frozen=True, slots=True)
class Guarded:
    """A kernel in checking mode; its arguments by name."""

    operation: str
    backend: str
    kernel: Any
    arguments: tuple[str, ...]

    @property
    def language(self) -> str:
        """That of the kernel."""
        return getattr(self.kernel, "language", "")

    def run(self, xp: Any, arguments: Sequence[Any], recorded: Recorded) -> Any:
        """As the kernel's; KernelError if it wrote anything but its results."""
        kernel = self.kernel
        if not isinstance(kernel, Compiled):
            return self._watched(xp, arguments, lambda given: kernel.run(xp, given, recorded), "kernel", kernel)
        names = ["out"] if len(recorded) == 1 else [f"out{k}" for k in range(len(recorded))]
        results = [zoned(xp)(xp, shape, dtype, name) for name, (shape, dtype) in zip(names, recorded, strict=True)]

        def launch(given: Sequence[Any]) -> tuple[Any, ...]:
            kernel.launch(xp, given, [r.array for r in results])
            return tuple(r.array.copy() for r in results)

        return self._watched(xp, arguments, launch, "kernel", kernel, results)

    def rule(self, batching: Any) -> Any:
        """The rule for lanes; a function is watched as the kernel is, on the host."""
        return GuardedRule(self, batching) if callable(batching) else batching

    def _watched(
        self, xp: Any, arguments: Sequence[Any], call: Callable[[Sequence[Any]], Any], what: str, code: Any,
        results: Sequence[Zoned] = (),
    ) -> Any:  # fmt: skip
        zones: list[Zoned] = [*results]

        def guarded(a: Any, name: str) -> Any:
            if isinstance(a, list):
                return [guarded(x, f"{name}[{i}]") for i, x in enumerate(a)]
            if not hasattr(a, "shape") or not hasattr(a, "dtype"):
                return a
            zones.append(zoned(xp)(xp, a.shape, a.dtype, name, a))
            return zones[-1].array

        found = call([guarded(a, name) for a, name in zip(arguments, self.arguments, strict=True)])
        faults = [text for z in zones if (text := z.fault())]
        if faults:
            raise KernelError(
                f"{self.operation}: its {what} {_called(code)}for {self.backend!r} {'; it '.join(faults)}"
            )
        return found


@dataclass(frozen=True, slots=True)
class GuardedRule:
    """A function that computes all lanes, in checking mode."""

    guarded: Guarded
    function: Any

    def __call__(self, size: int, axes: tuple[Any, ...], *arguments: Any) -> Any:
        on_host = all(isinstance(a, np.ndarray) for a in arguments if hasattr(a, "shape"))
        if not on_host:
            return self.function(size, axes, *arguments)
        return self.guarded._watched(
            np, arguments, lambda given: self.function(size, axes, *given), "batching rule", self.function
        )


def _called(code: Any) -> str:
    """The name of a function or of compiled code, and a space; nothing for what has none."""
    name = getattr(code, "name", "") or getattr(getattr(code, "function", code), "__qualname__", "")
    return f"{name} " if name else ""


class _Open(threading.local):
    depth = 0


_open = _Open()


def is_checking() -> bool:
    """Whether kernels that are recorded now are checked."""
    return _open.depth > 0 or general["guards"]


class checked:  # noqa: N801 - a function, to who calls it
    """A block in checking mode: `with lt.library.checked():`.

    What kernels of users that are recorded in the block (by this thread) write outside of their results is a
    KernelError where they run, which names the operation, the kernel, the argument and the byte. Each call gets copies
    of its arguments with a guard zone before and behind each: as many bytes as the array has, at least 4 KiB and at
    most 1 MiB. So do the results of compiled code; those of Python functions are arrays of their own. Reads outside
    and writes beyond the zones are not found. Such calls are programs of their own. `LAZYT_DEBUG=guards` does it for
    the whole process, `opcheck` for an operation.

    >>> import lazyt as lt, ctypes
    >>> kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    >>> fill = kind(lambda out, size: ctypes.memset(out, 0, 4 * size + 4) and None)
    >>> wide = lt.library.define("docs::wide(Tensor x) -> Tensor")
    >>> _ = wide.impl("cpu", lt.library.c_function(fill, "void f(float* out, int64_t size)"))
    >>> _ = wide.register_fake(lambda x: x)
    >>> with lt.library.checked():
    ...     y = wide(lt.ones(2))
    >>> try:
    ...     y.numpy()
    ... except lt.KernelError as e:
    ...     print(e)
    docs::wide: its kernel f for 'cpu' wrote 4 bytes outside of 'out' (8 bytes), from byte 8 on
    """

    def __enter__(self) -> Self:
        _open.depth += 1
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        _open.depth -= 1
