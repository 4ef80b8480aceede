"""Runs a schedule on an OpenCL device: kernels are compiled when it is bound to extents, then enqueued in order.

Arguments and the arena are computed as for all backends (`lazyt.backends.common.binding`). An address there is an
offset in bytes here, into the buffer that is a parameter of the kernel.
"""

from __future__ import annotations

import math
import threading
import weakref
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.common.binding import ScheduleBinding
from lazyt.backends.common.donating import chosen, placed, references
from lazyt.backends.common.executable import ScheduleExecutable
from lazyt.backends.common.host_calls import HostCall
from lazyt.backends.common.launch_names import name_of
from lazyt.backends.common.products import Choice, Product
from lazyt.ir.graph import Opaque
from lazyt.ir.kernel import LANES
from lazyt.ir.passes.kernelize import KernelCall
from lazyt.ir.passes.schedule import MatmulCall
from lazyt.ir.passes.split_reduction import Piece, Scratch, split, whole, worth_splitting
from lazyt_opencl import donation, products
from lazyt_opencl.arrays import Arrays, DeviceArray
from lazyt_opencl.checks import WORD, Check, unsettled
from lazyt_opencl.codegen.emit import program, symbol_of
from lazyt_opencl.describe import LaunchDescription
from lazyt_opencl.device import Device, device
from lazyt_opencl.library.registry import routine_of, user_call
from lazyt_opencl.library.routine import Step
from lazyt_opencl.queues import DeviceBuffer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.backends.common.commit_flag import Receipt
    from lazyt.ir.graph import Node
    from lazyt.ir.kernel import Kernel
    from lazyt.ir.passes.donate import Donation
    from lazyt.ir.passes.schedule import Launch as AnyLaunch, Schedule
    from lazyt_opencl.queues import Queue

    Array = np.ndarray[Any, Any]

# Bindings of an executable that are kept.
BINDINGS = 256

# Programs live as long as some plan uses them, by device and the name of each of their functions.
_programs: weakref.WeakValueDictionary[tuple[int, str], Any] = weakref.WeakValueDictionary()
_lock = threading.RLock()


def sizes_of(kernel: Kernel, extents: Sequence[int], group: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The work-items along each axis, and those of a group (at most `group`); None if there is nothing to compute."""
    outer = extents[: kernel.outer]
    if not all(outer):
        return None
    if kernel.vector == "row":
        return (LANES * math.prod(outer),), (LANES,)
    own = (group, 1) if outer[-1] > 32 else (LANES, group // LANES)
    items = outer[-1], math.prod(outer[:-1])
    own = own if items[1] > 1 else (own[0], 1)
    return (-(-items[0] // own[0]) * own[0], -(-items[1] // own[1]) * own[1]), own


class Executable(ScheduleExecutable):
    """A schedule on one device."""

    bound: dict[tuple[int, ...], Bound]

    def __init__(self, sched: Schedule, name: str) -> None:
        super().__init__(sched)
        self.device = device(name)
        self.donations = donation.possible(sched)

    def compile(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> None:
        """Build the programs of a run for these extents."""
        self._bound(extents, scalars)

    def bind(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> Bound:
        return Bound(self, extents, scalars)

    def _bound(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> Bound:
        found = self.bound.get(extents)
        if found is None:
            if len(self.bound) >= BINDINGS:
                self.bound.clear()
            found = Bound(self, extents, scalars)
            found.build()
            self.bound[extents] = found
        return found

    def run(
        self, extents: tuple[int, ...], scalars: Sequence[Any], inputs: Sequence[Any], receipt: Receipt | None = None
    ) -> list[Any]:
        bound = self._bound(extents, scalars)
        donated = [] if receipt is None else self._donated(inputs)
        if not donated:
            return bound.run(scalars, inputs)
        left_out, places = placed(donated, self.outputs)
        variant = bound.variant(left_out, scalars)
        return variant.run(scalars, inputs, places, min(d.region for d in donated), receipt)

    def _donated(self, inputs: Sequence[Any]) -> list[Donation]:
        """The results of a run that take the memory of inputs."""
        if not self.donations:
            return []
        found = chosen(self.donations, references(inputs), DeviceBuffer)
        # NOTE: what is wrong with an input is found later, and then all that this plan computes is computed again.
        return [] if found and unsettled(_of_devices(inputs)) else found

    def describe(self, launch: AnyLaunch, bound: Bound) -> LaunchDescription:
        return LaunchDescription(launch, bound)


class Enqueued:
    """A kernel with its sizes, the start of its arguments, and the bases of its buffers."""

    def __init__(self, name: str, handle: Any, at: int, bases: Sequence[int], sizes: tuple[Any, Any]) -> None:
        self.name, self.handle, self.bases, self.sizes = name, handle, bases, sizes
        handle.set_scalar_arg_dtypes([None, np.int64, *(None for _ in bases)])
        self.at = at

    def prepared(self, run: Run) -> tuple[Any, ...]:
        """What enqueues it, to be given to OpenCL: its arguments are set."""
        memory = run.memory
        self.handle.set_args(run.table.memory, self.at, *(memory[b].memory for b in self.bases))
        return (run.queue.found, self.handle, *self.sizes)

    def run(self, run: Run) -> None:
        """Enqueue it."""
        run.where.note(self.name, run.where.cl.enqueue_nd_range_kernel(*self.prepared(run)))


class Run:
    """One run: its device and queue, the buffer of each base, and the table of arguments there."""

    def __init__(
        self, where: Device, queue: Queue, memory: Sequence[Any], table: DeviceBuffer, inputs: Sequence[Any]
    ) -> None:
        self.where, self.queue, self.memory, self.table, self.inputs = where, queue, memory, table, inputs


class OnHost(HostCall):
    """A call without a kernel: its operands are copied to the host and its results back; counted."""

    bound: Bound
    now: Run
    written: list[tuple[DeviceBuffer, Array, int]]

    def _view(self, n: Node, outs: Sequence[Any], arena: Any, inputs: Sequence[Any], writable: bool) -> Array:
        shape, base, offset = self._place(n)
        buffer = self.now.memory[base]
        if not writable:
            self.now.queue.synchronize()
            return self.now.where.read(buffer, n.dtype, shape, offset)
        array = np.empty(shape, n.dtype)
        self.written.append((buffer, array, offset))
        return array

    def run(self, run: Run) -> None:  # type: ignore[override]
        """Wait for what is enqueued, and compute."""
        self.now, self.written = run, []
        begin = perf_counter()
        try:
            super().run([], [], None, run.inputs)
            for buffer, array, offset in self.written:
                run.where.write(buffer, array, offset)
        finally:
            del self.now, self.written  # the memory is the run's
        self._count(begin)

    def _count(self, begin: float) -> None:
        self.bound.where.note_host(name_of(self.call), begin)
        attrs = self.call.node.attrs
        self.bound.where.fallbacks[attrs.fn if isinstance(attrs, Opaque) else self.call.node.op] += 1


class OfUser(OnHost):
    """A user's kernel in OpenCL C, on the plan's memory."""

    def _own(self, fn: str, statics: tuple[Any, ...]) -> Any:
        def function(*rest: Any) -> Any:
            *operands, call, recorded = rest
            return call.run(Arrays(self.now.where, self.now.queue), operands, recorded)

        self.function = function
        return self._library

    def _view(self, n: Node, outs: Sequence[Any], arena: Any, inputs: Sequence[Any], writable: bool) -> Any:
        shape, base, offset = self._place(n)
        return DeviceArray(self.now.queue, self.now.memory[base], offset, shape, n.dtype)

    def _count(self, begin: float) -> None:
        """Nothing fell back, and what was enqueued is noted where it was."""


class Bound(ScheduleBinding):
    """An executable for given extents."""

    exe: Executable

    def __init__(
        self, exe: Executable, extents: tuple[int, ...], scalars: Sequence[Any], left_out: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(exe, exe.expressions.evaluate(extents, scalars))
        self.extents, self.left_out = extents, left_out
        self.lock = threading.RLock()
        self.variants: dict[frozenset[int], Bound] = {}

    def variant(self, left_out: frozenset[int], scalars: Sequence[Any]) -> Bound:
        """The binding for runs that omit these copies, because the copy's source is overwritten."""
        if not left_out:
            return self
        found = self.variants.get(left_out)
        if found is None:
            found = self.variants[left_out] = Bound(self.exe, self.extents, scalars, left_out)
            found.build()
        return found

    @property
    def where(self) -> Device:
        """Its device."""
        return self.exe.device

    def _product(self, c: MatmulCall) -> Product:
        how = "generated" if self.form_of(c) is not None else "numpy"
        return Product(self, c, Choice(how, 0, 0, 0, 0, 0, 0))

    def form_of(self, c: MatmulCall) -> products.Form | None:
        """The code of a product; None where the host computes it."""
        return products.form_of(self, c, self.where)

    def pieces_of(self, c: KernelCall) -> list[Piece]:
        """What a kernel is launched as: itself, or the parts of one with too few rows for all processors."""
        extents, strides, coefs = self._shape(c)
        if worth_splitting(c.kernel, extents, self.where.processors):
            return split(c.kernel, extents, strides, coefs)
        return [whole(c.kernel, extents, strides, coefs)]

    def build(self) -> None:
        """Argument tables and programs of every launch."""
        table: list[int] = []
        self.patches: list[tuple[int, int, int]] = []
        planned: list[Any] = []
        kernels: dict[str, Kernel] = {}
        sources: dict[str, Callable[[], str]] = {}
        self.starts: list[int] = []  # of the parts of each region
        for region in self.exe.schedule.regions:
            self.starts.append(len(planned))
            self._plan(region, planned, table, kernels, sources)
        built = self._programs(kernels, sources)
        cl = self.where.cl
        self.parts = [
            p
            if isinstance(p, OnHost)
            else Enqueued(name_of(c), cl.Kernel(built[p.symbol], p.symbol), p.at, p.bases, p.sizes)
            for c, p in planned
        ]
        self.table = np.array(table or [0], np.int64)
        columns = np.array(self.patches, np.int64).reshape(-1, 3)
        self.slots, self.sources, self.shifts = (np.ascontiguousarray(x) for x in columns.T)

    def _plan(
        self, region: Sequence[AnyLaunch], planned: list[Any], table: list[int], kernels: dict[str, Kernel],
        sources: dict[str, Callable[[], str]],
    ) -> None:  # fmt: skip
        """Append what the launches of a region are enqueued as, and the code that they need."""
        for c in region:
            if id(c) in self.left_out:
                continue
            if isinstance(c, KernelCall):
                for piece in self.pieces_of(c):
                    at = self._arguments(c, piece, table, self.patches)
                    if (sizes := sizes_of(piece.kernel, piece.extents, self.where.group)) is not None:
                        symbol = symbol_of(piece.kernel)
                        kernels[symbol] = piece.kernel
                        planned.append((c, Step(symbol, at, self._bases(c, piece), sizes)))
            elif isinstance(c, MatmulCall) and (form := self.form_of(c)) is not None:
                at = products.arguments(self, c, table, self.patches)
                sizes = products.sizes(self, c, form.tile)
                if all(sizes[0]):
                    sources[form.symbol] = partial(products.source, form)
                    bases = tuple(self._base(x)[0] for x in (*(base for base, _, _ in c.operands), c.node))
                    planned.append((c, Step(form.symbol, at, bases, sizes)))
            elif (routine := routine_of(self, c)) is not None:
                steps = routine.steps(table, self.patches)
                sources.update((s.symbol, routine.source) for s in steps)
                planned += [(c, s) for s in steps]
            else:
                planned.append((c, (OnHost if user_call(c) is None else OfUser)(self, c)))

    def _bases(self, c: KernelCall, piece: Piece) -> tuple[int, ...]:
        """The base of each buffer that is a parameter of a kernel."""
        found = [
            self.arena_base if isinstance(x.source, Scratch) else self._base(c.accesses[x.source].buffer)[0]
            for x in piece.operands
        ]
        return (*found, *[self.status_base] * piece.kernel.has_check)

    def _programs(self, kernels: dict[str, Kernel], sources: dict[str, Callable[[], str]]) -> dict[str, Any]:
        """The program of each function, missing kernels compiled together; others have a source each, or share one."""
        with _lock:
            key = id(self.where)
            found = {s: p for s in (*kernels, *sources) if (p := _programs.get((key, s))) is not None}
            missing = [k for s, k in kernels.items() if s not in found]
            texts = {program(missing): [symbol_of(k) for k in missing]} if missing else {}
            for s, write in sources.items():
                if s not in found:
                    texts.setdefault(write(), []).append(s)
            for source, symbols in texts.items():
                built, seconds = self.where.build(source)
                self.exe.compiles += len(symbols)
                self.exe.compile_time += seconds
                for s in symbols:
                    found[s] = _programs[key, s] = built
        return found

    def run(
        self, scalars: Sequence[Any], inputs: Sequence[Any], places: Sequence[int] = (), region: int = 0,
        receipt: Receipt | None = None,
    ) -> list[Any]:  # fmt: skip
        """Take memory, fill the arguments in, enqueue. Waits for nothing but what the host computes.

        `places` has the input of each result that takes its memory, or -1; they are overwritten from a region on.
        """
        where, queue, given = self.where, self.where.current(), _of_devices(inputs)
        with self.lock, where.working():
            taken = [inputs[i] if i >= 0 else None for i in places or [-1] * len(self.sizes)]
            outs = [where.allocate(n) if x is None else x.buffer for x, n in zip(taken, self.sizes, strict=True)]
            arena = where.allocate(self.arena_size) if self.arena_size else None
            status = where.allocate(WORD) if self.checks else None
            queue.after(b.ready for b in given if b.ready is not None and b.writer is not queue)
            queue.after(e for x in taken if x is not None for e in x.buffer.uses_outside(queue))
            if status is not None:
                where.cl.enqueue_fill_buffer(queue.found, status.memory, np.zeros(1, np.int64), 0, WORD)
            filled = self.table.copy()
            filled[self.slots] = np.array(self._bases_of(scalars), np.int64)[self.sources] + self.shifts
            table = where.allocate(filled.nbytes)
            where.write(table, filled)
            run = Run(where, queue, [*(x.buffer for x in inputs[: self.n_inputs]), *outs, arena, status], table, inputs)
            results: list[Any] = [b if x is None else x for b, x in zip(outs, taken, strict=True)]
            first = len(self.parts) if receipt is None else self.starts[region]
            for part in self.parts[:first]:
                part.run(run)
            checks = unsettled(given)
            try:
                if receipt is not None:
                    receipt.buffers, receipt.donated = results, len(places) - places.count(-1)
                    donation.enqueue(self.parts[first:], run, outs, receipt)
                if status is not None:
                    checks = (Check(queue, status, self.error_of), *checks)
            finally:  # what was enqueued fills them, whatever interrupts this
                done = queue.mark()
                for b in outs:
                    b.checks = (*b.checks, *checks)
                    b.filled(queue, done)
                for b in given:
                    b.read_by(queue, done)
        return results

    def _bases_of(self, scalars: Sequence[Any]) -> list[int]:
        """The bases of addresses, which are offsets into their buffers, and the words of scalars."""
        exe, bases = self.exe, [0] * (self.status_base + 1)
        if exe.scalars:
            bases += exe.words.of(scalars)
        if self.moving:
            values = exe.expressions.evaluate(self.extents, scalars)
            bases += [byte + values[number] * (size if base >= 0 else 1) for base, byte, number, size in self.moving]
        return bases


def _of_devices(inputs: Sequence[Any]) -> list[DeviceBuffer]:
    """The buffers of inputs; a trace may have some on other devices too."""
    return [b for b in dict.fromkeys(x.buffer for x in inputs) if type(b) is DeviceBuffer]
