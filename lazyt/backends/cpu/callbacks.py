"""Library calls of a plan: NumPy on views of its buffers, between native parts.

Operands are read in place. A ufunc writes its results in place, parts of them on several threads. The memory of other
results of NumPy is taken over if nothing else refers to it, and copied if not.
"""

from __future__ import annotations

import ctypes
import math
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.common.host_calls import HostCall
from lazyt.backends.cpu import memory
from lazyt.backends.cpu.flags import switches
from lazyt.backends.cpu.library import fourier, sorting
from lazyt.ir.passes.schedule import LibraryCall, MatmulCall, ScatterCall

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.backends.common.host_calls import Run
    from lazyt.backends.cpu.binding import Binding
    from lazyt.ir.graph import Node

# Smaller results of NumPy are copied: their memory is not worth an object of its own.
ADOPTED = 1 << 16
MAX_LENT = 16
# Seconds on one thread from which others are started: starting them costs a few hundred microseconds (measured).
THREADED = 1e-3


class Callback(HostCall):
    """A library call on NumPy views of the plan's buffers."""

    bound: Binding

    def __init__(self, bound: Binding, call: LibraryCall | MatmulCall | ScatterCall) -> None:
        super().__init__(bound, call)
        # What of sorting.py or fourier.py the call is, once its statics are known, and the arrays that it had, by where
        # they lie.
        self.sorts: Callable[..., None] | None = None
        self.sorted: dict[tuple[int, int], tuple[Any, ...]] = {}
        self.sorts_at = -1, -1
        self.lent: dict[tuple[Node, int], np.ndarray[Any, Any]] = {}
        self.pace = 0.0  # seconds an element, of a ufunc on one thread, the last time

    def _view(
        self, n: Node, outs: Sequence[Any], arena: Any, inputs: Sequence[Any], writable: bool
    ) -> np.ndarray[Any, Any]:
        b = self.bound
        shape, base, offset = self._place(n)
        if base < b.n_inputs:
            return memory.as_ndarray(inputs[base].buffer, n.dtype, shape)
        buffer = arena if base == b.arena_base else outs[base - b.n_inputs]
        return memory.as_ndarray(buffer, n.dtype, shape, offset=offset, writable=writable)

    def _lent(self, n: Node, bases: Sequence[int]) -> np.ndarray[Any, Any]:
        """A value as an array for a call that keeps no reference to it: at half the cost of one that may be kept.

        NOTE: the array is over an address and owns no object; it is only read while the memory is valid.
        """
        shape, base, offset = self._place(n)
        at = bases[base] + offset
        found = self.lent.get((n, at))
        if found is None:
            if len(self.lent) >= MAX_LENT:
                self.lent.clear()
            size = math.prod(shape) * n.dtype.itemsize
            memory_there: Any = (ctypes.c_char * size).from_address(at)
            found = self.lent[n, at] = np.ndarray(shape, n.dtype, memory_there)
        return found

    def _own(self, fn: str, statics: tuple[Any, ...]) -> Run | None:
        c, _ = self._of_library()
        if not self.bound.exe.native:
            return None
        sorts = sorting.takes(fn, self._shape(c.operands[0]), statics)
        self.sorts = sorting.FUNCTIONS[fn] if sorts else fourier.FUNCTIONS.get(fn)
        if self.sorts is None:
            return None
        return self._sort

    def _sorted(self, bases: Sequence[int]) -> tuple[Any, ...]:
        """The arguments of a sorting call, if its result is wanted."""
        c = self.call
        assert isinstance(c, LibraryCall), "what sorts is a call of a library"
        assert self.statics is not None, "found with what sorts"
        to, x = c.results[0], c.operands[0]
        if to is None:
            return ()
        self.sorts_at = self._place(to)[1], self._place(x)[1]
        if len(self.sorted) >= MAX_LENT:
            self.sorted.clear()
        found = self._lent(to, bases), self._lent(x, bases), *self.statics
        self.sorted[bases[self.sorts_at[0]], bases[self.sorts_at[1]]] = found
        return found

    def _sort(self, bases: list[int], outs: list[Any], arena: Any, inputs: Sequence[Any]) -> None:
        i, j = self.sorts_at
        found = self.sorted.get((bases[i], bases[j])) if i >= 0 else None
        if found is None:
            found = self._sorted(bases)
        if found:
            assert self.sorts is not None, "chosen"
            self.sorts(*found)

    def _elementwise(
        self, call: Callable[[list[Any], tuple[Any, ...]], Any], operands: list[Any], results: tuple[Any, ...]
    ) -> None:
        """Have `call` write results element by element; in parts on several threads, if it took long enough."""

        def some(part: slice) -> None:
            with np.errstate(all="ignore"):
                call([x if x.size == 1 else x[part] for x in operands], tuple(r[part] for r in results))

        shape, size = results[0].shape, results[0].size
        if (
            self.pace * size >= THREADED
            and self.bound.exe.native
            and shape
            and all(x.shape == shape or x.size == 1 for x in operands)
        ):
            operands = [x.reshape(-1) if x.shape == shape else x.reshape(()) for x in operands]
            results = tuple(r.reshape(-1) for r in results)
            sorting.divided(size, 1, some)
            return
        start = perf_counter()
        with np.errstate(all="ignore"):
            call(operands, results)
        self.pace = (perf_counter() - start) / max(size, 1)

    def _adopt(self, n: Node, results: list[Any], bases: list[int], outs: list[Any]) -> bool:
        """Take over the memory of NumPy's last result as that of a result of the plan, instead of a copy."""
        b = self.bound
        base = b.output_base.get(n)
        if base is None or b.moving or results[-1].nbytes < ADOPTED or not switches["adopt"]:
            return False
        buffer = memory.adopt(results, n.dtype, self._shape(n))
        if buffer is None:
            return False
        outs[base - b.n_inputs] = buffer
        bases[base] = buffer.address
        return True
