"""A backend that runs the kernel interpreter over NumPy's memory: the least that a device of lazyt's needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyt.backends.common.binding import ScheduleBinding
from lazyt.backends.common.executable import ScheduleExecutable
from lazyt.backends.common.host_calls import HostCall
from lazyt.backends.interface import Allocator, Backend, Description, Statistics
from lazyt.ir import kernel_interpreter as interpreter
from lazyt.ir.graph import Node
from lazyt.ir.passes.kernelize import KernelCall, ScalarArg
from lazyt.ir.passes.schedule import Launch, Schedule

NAME = "interp"
Array = np.ndarray[Any, Any]


class Memory:
    """A buffer: bytes that only this backend reads."""

    device = NAME
    allocated = 0

    def __init__(self, nbytes: int) -> None:
        self.bytes = np.full(nbytes, 0xA5, np.uint8)  # what nobody has written is not zero
        self.nbytes, self.address = nbytes, self.bytes.ctypes.data
        Memory.allocated += nbytes

    def __del__(self) -> None:
        Memory.allocated -= self.nbytes

    def view(self, dtype: np.dtype[Any], shape: tuple[int, ...] | None = None) -> Array:
        """All of it as a vector, or its beginning as an array of a shape."""
        if shape is None:
            return self.bytes[: self.nbytes // dtype.itemsize * dtype.itemsize].view(dtype)
        size = int(np.prod(shape, dtype=np.int64))
        return self.bytes[: size * dtype.itemsize].view(dtype).reshape(shape)


class MemoryAllocator(Allocator):
    """Fresh memory each time."""

    def allocate(self, nbytes: int, device: str) -> Memory:
        return Memory(nbytes)

    def from_host(self, array: Array, device: str) -> Memory:
        found = Memory(array.nbytes)
        found.view(array.dtype, array.shape)[...] = array
        return found

    def to_host(self, buffer: Memory, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        found = buffer.view(dtype, shape).copy()
        found.flags.writeable = False
        return found

    def block(self, nbytes: int) -> int:
        return nbytes

    def statistics(self, device: str) -> Statistics:
        return Statistics(Memory.allocated, Memory.allocated)


class OnHost(HostCall):
    """A product, a scatter or a library call, by NumPy."""

    bound: Run

    def _view(self, n: Node, outs: Sequence[Any], arena: Any, inputs: Sequence[Any], writable: bool) -> Array:
        base = n
        while base.op == "reshape":
            base = base.operands[0]
        return self.bound.memory[base].view(n.dtype, self._shape(n))


class Run(ScheduleBinding):
    """One run: a binding to the values of its extents and scalars, and the memory of every node."""

    def __init__(self, exe: Interpreted, extents: tuple[int, ...], scalars: Sequence[Any]) -> None:
        super().__init__(exe, exe.expressions.evaluate(extents, scalars))
        self.extents, self.numbers = extents, scalars
        self.memory: dict[Node, Memory] = {}

    def run(self, inputs: Sequence[Any]) -> list[Memory]:
        """Every launch in order; the memory of the outputs."""
        schedule = self.exe.schedule
        self.memory = {n: inputs[n.attrs.index].buffer for n in schedule.graph.nodes if n.op == "input"}
        self.memory |= {n: Memory(max(self.value(self.exe.nbytes[n]), 1)) for n in schedule.stored}
        for call in schedule.launches:
            if isinstance(call, KernelCall):
                self._interpret(call)
            else:
                OnHost(self, call).run([], [], None, inputs)
        found, self.memory = [self.memory[n] for n in self.exe.outputs], {}
        return found

    def _interpret(self, call: KernelCall) -> None:
        extents, strides, coefficients = self._shape(call)
        accesses = [
            interpreter.Bound(self.memory[a.buffer].view(own.dtype), self.value(a.offset), steps)
            for a, own, steps in zip(call.accesses, call.kernel.accesses, strides, strict=True)
        ]
        affines = [(c, self.value(offset)) for c, (_, offset) in zip(coefficients, call.affines, strict=True)]
        scalars = tuple(map(self._number_of, call.scalars))
        arguments = interpreter.Arguments(extents, tuple(accesses), tuple(affines), scalars)
        interpreter.run(call.kernel, arguments)
        if arguments.status[0]:
            self.checks = call.checks
            raise self.error_of(*map(int, arguments.status))

    def _number_of(self, s: ScalarArg) -> float:
        if s.extent is not None:
            return self.value(s.extent)
        number = self.numbers[s.position]
        number = getattr(number, s.part) if s.part else number
        return float(number) if s.floating else int(number)


class Interpreted(ScheduleExecutable):
    """A schedule that is interpreted launch by launch."""

    def compile(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> None:
        """Nothing is compiled."""

    def bind(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> Run:
        return Run(self, extents, scalars)

    def run(
        self, extents: tuple[int, ...], scalars: Sequence[Any], inputs: Sequence[Any], receipt: Any = None
    ) -> list[Memory]:
        run = self.bound[extents] = self.bind(extents, scalars)
        return run.run(inputs)

    def describe(self, launch: Launch, bound: Run) -> Description:
        return Description()


class InterpretedBackend(Backend):
    """One device, `interp`."""

    name = NAME
    allocator = MemoryAllocator()

    def compile(self, schedule: Schedule, device: str) -> Interpreted:
        return Interpreted(schedule)
