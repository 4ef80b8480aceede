"""How a small backend runs a schedule: launch by launch, each by the backend's own code or by the host."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.common.binding import ScheduleBinding
from lazyt.backends.common.data_errors import line_of
from lazyt.backends.common.executable import ScheduleExecutable
from lazyt.backends.common.host_calls import HostCall
from lazyt.backends.common.launch_names import name_of
from lazyt.backends.interface import Description, Span
from lazyt.backends.small.arguments import KernelAccess, KernelArguments, elements
from lazyt.backends.small.interface import KERNEL, MATMUL, SCATTER
from lazyt.backends.small.memory import Memory, Pending
from lazyt.config import HOST
from lazyt.errors import NotSupportedError, recorded_at
from lazyt.ir import kernel_interpreter as interpreter
from lazyt.ir.graph import Node, Opaque
from lazyt.ir.passes.kernelize import KernelCall, ScalarArg
from lazyt.ir.passes.schedule import LibraryCall, MatmulCall

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.backends.small.interface import SmallInterface
    from lazyt.ir.kernel import Kernel
    from lazyt.ir.passes.schedule import Launch, Schedule

    Array = np.ndarray[Any, Any]


# So many sizes of a plan are kept, for `explain()` and for what its results are.
MAX_BOUND = 64


def _name_of(call: Launch) -> str:
    if isinstance(call, KernelCall):
        return KERNEL
    if isinstance(call, LibraryCall):
        assert isinstance(call.node.attrs, Opaque)
        return call.node.attrs.fn
    return MATMUL if isinstance(call, MatmulCall) else SCATTER


class OnHost(HostCall):
    """A product, a scatter or a library call, by NumPy or by the backend's own function."""

    bound: SmallRun

    def _own(self, fn: str, statics: tuple[Any, ...]) -> Callable[..., None] | None:
        self.function = self.bound.exe.backend.function(fn)
        return None if self.function is None else self._library

    def _multiply(self, a: Array, b: Array, out: Array) -> None:
        own = self.bound.exe.backend.function(MATMUL)
        if own is None:
            super()._multiply(a, b, out)
        else:
            out[...] = own(a, b)

    def _view(self, n: Node, outs: Sequence[Any], arena: Any, inputs: Sequence[Any], writable: bool) -> Array:
        base = n
        while base.op == "reshape":
            base = base.operands[0]
        shape = self._shape(n)
        found = elements(self.bound.content(base, writable), n.dtype)
        return found[: int(np.prod(shape, dtype=np.int64))].reshape(shape)


class SmallRun(ScheduleBinding):
    """One run: a binding to the values of its extents and scalars, and the memory of every node."""

    exe: SmallExecutable

    def __init__(self, exe: SmallExecutable, extents: tuple[int, ...], scalars: Sequence[Any]) -> None:
        super().__init__(exe, exe.expressions.evaluate(extents, scalars))
        self.extents, self.numbers = extents, scalars
        self._memory: dict[Node, Memory] = {}
        # Copies on the host of what it cannot address, during one launch, and which of them are written.
        self._copies: dict[Node, Array] = {}
        self._written: set[Node] = set()

    def start(self, inputs: Sequence[Any]) -> list[Memory]:
        """Submit all launches; the memory of the outputs, which may be filled later."""
        exe = self.exe
        nodes = [n for n in exe.schedule.graph.nodes if n.op == "input"]
        self._memory = {n: inputs[n.attrs.index].buffer for n in nodes}  # type: ignore[union-attr]
        for m in self._memory.values():
            exe.backend.allocator.check(m)
        before = [m.pending for m in self._memory.values()]
        found = [self._allocate(n) for n in exe.outputs]
        if not exe.backend.capabilities(exe.device).asynchronous:
            self._perform()
            return found
        now = Pending()
        for m in found:
            m.pending = now

        def work() -> None:
            for p in before:
                if p is not None:
                    p.wait()
            self._perform()

        exe.backend.submit(exe.device, lambda: now.run(work))
        return found

    def _allocate(self, n: Node) -> Memory:
        size = max(self.value(self.exe.nbytes[n]), 1)
        found = self._memory[n] = self.exe.backend.allocator.allocate(size, self.exe.device)
        return found

    def _perform(self) -> None:
        """Every launch in order. NOTE: a run is kept with its plan, its memory is not."""
        try:
            for i, region in enumerate(self.exe.schedule.regions):
                for n in self.exe.begins.get(i, ()):
                    self._allocate(n)
                for call in region:
                    begin = perf_counter()
                    self._launch(call)
                    if (noted := self.exe.backend.spans.get(self.exe.device)) is not None:
                        noted.append(Span(name_of(call), self.exe.device, begin, perf_counter()))
                for n in self.exe.ends.get(i, ()):
                    del self._memory[n]
        finally:
            self._memory = {}
            self._copies.clear()
            self._written.clear()

    def _launch(self, call: Launch) -> None:
        exe = self.exe
        if isinstance(call, KernelCall):
            self._kernel(call)
        else:
            if exe.backend.fallback(what := _name_of(call)):
                exe.backend.count_fallback(exe.device, what)
            OnHost(self, call).run([], [], None, [])
        for n in self._written:
            m = self._memory[n]
            if (copy := exe.backend.write(m.block, self._copies[n], m.device)) is not None:
                copy.wait()
        self._copies.clear()
        self._written.clear()

    def content(self, n: Node, writable: bool) -> Array:
        """The bytes of a node's memory; those of a copy are written back after the launch."""
        memory = self._memory[n]
        found = memory.backend.view(memory.block)
        if found is None:
            found = self._copies.get(n)
            if found is None:
                found = self._copies[n] = np.empty(memory.nbytes, np.uint8)
                memory.backend.read(memory.block, found, memory.device)
            if writable:
                self._written.add(n)
        return found

    def _kernel(self, call: KernelCall) -> None:
        extents, strides, coefficients = self._shape(call)
        affines = tuple((c, self.value(offset)) for c, (_, offset) in zip(coefficients, call.affines, strict=True))
        scalars = tuple(map(self._number_of, call.scalars))
        status = np.zeros(2, np.int64)
        parts = list(zip(call.accesses, call.kernel.accesses, strides, strict=True))
        code = self.exe.code_of(call.kernel)
        if code is not None:
            accesses = tuple(
                KernelAccess(self._memory[a.buffer], own.dtype, self.value(a.offset), s) for a, own, s in parts
            )
            code(KernelArguments(extents, accesses, affines, scalars, status))
        else:
            if self.exe.backend.fallback(KERNEL):
                self.exe.backend.count_fallback(self.exe.device, KERNEL)
            bound = tuple(
                interpreter.Bound(elements(self.content(a.buffer, own.writes), own.dtype), self.value(a.offset), s)
                for a, own, s in parts
            )
            interpreter.run(call.kernel, interpreter.Arguments(extents, bound, affines, scalars, status))
        if status[0]:
            self.checks = call.checks
            raise self.error_of(*map(int, status))

    def _number_of(self, s: ScalarArg) -> float:
        if s.extent is not None:
            return self.value(s.extent)
        number = self.numbers[s.position]
        number = getattr(number, s.part) if s.part else number
        return float(number) if s.floating else int(number)


class SmallDescription(Description):
    """How a launch is computed: by code of the backend's, or by a function, its own or the host's."""

    def __init__(self, code: Any, library: str, fallback: str) -> None:
        self._code, self.library, self.fallback = code, library, fallback
        self.code = "memory" if code is not None else "library"

    def source(self, notes: Sequence[str] = ()) -> str:
        text: str = getattr(self._code, "source", "")
        return text


class SmallExecutable(ScheduleExecutable):
    """A schedule of a small backend, on one of its devices."""

    def __init__(self, schedule: Schedule, backend: SmallInterface, device: str) -> None:
        super().__init__(schedule)
        self.backend, self.device = backend, str(device)
        self._code: dict[int, Callable[[KernelArguments], None] | None] = {}
        # The temporaries whose memory is taken before a region, and given back after one.
        self.begins: dict[int, list[Node]] = {}
        self.ends: dict[int, list[Node]] = {}
        outputs = {*self.outputs}
        for n in schedule.stored:
            if n not in outputs:
                first, last = schedule.lives.get(n, (0, len(schedule.regions) - 1))
                self.begins.setdefault(first, []).append(n)
                self.ends.setdefault(last, []).append(n)
        if backend.host_fallback is not True:
            for call in schedule.launches:
                self._check_allowed(call)

    def _check_allowed(self, call: Launch) -> None:
        what = _name_of(call)
        if isinstance(call, KernelCall) and self.code_of(call.kernel) is not None:
            return
        why = self.backend.fallback(what)
        if why and not self.backend.allows_fallback(what):
            raise self._refused(call, what, why)

    def _refused(self, call: Launch, what: str, why: str) -> NotSupportedError:
        """The error of the line that recorded it: what does not depend on that line is computed all the same."""
        node = call.nodes[-1] if isinstance(call, KernelCall) else call.node
        recorded = line_of(node)
        kind, allowed = self.backend.name, self.backend.host_fallback
        names = ", ".join(map(repr, sorted(allowed))) if allowed and not isinstance(allowed, bool) else "nothing"
        error = NotSupportedError(
            f"not supported: {getattr(node.site, 'name', what)} on {self.device!r}, because {why}, and its backend "
            f"lets the host compute {names}, not {what!r} (recorded at {recorded.site}; found at the sync); compute it "
            f"on the host by .to({HOST!r}), or add {what!r} to `host_fallback` of {kind!r}"
        )
        recorded_at(error, *recorded)
        return error

    def code_of(self, kernel: Kernel) -> Callable[[KernelArguments], None] | None:
        """The backend's code for a kernel of the schedule, compiled at the first call; None: it is interpreted."""
        key = id(kernel)  # the schedule keeps it
        if key not in self._code:
            found = self._code[key] = self.backend.compile_kernel(kernel, self.device)
            self.compiles += found is not None
        return self._code[key]

    def compile(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> None:
        """Have the code of every kernel."""
        for kernel in self.schedule.kernels:
            self.code_of(kernel.kernel)

    def bind(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> SmallRun:
        return SmallRun(self, extents, scalars)

    def run(
        self, extents: tuple[int, ...], scalars: Sequence[Any], inputs: Sequence[Any], receipt: Any = None
    ) -> list[Memory]:
        if len(self.bound) >= MAX_BOUND:
            self.bound.clear()
        run = self.bound[extents] = self.bind(extents, scalars)
        return run.start(inputs)

    def describe(self, launch: Launch, bound: Any) -> Description:
        name = _name_of(launch)
        if isinstance(launch, KernelCall):
            code = self.code_of(launch.kernel)
            if code is not None:
                return SmallDescription(code, "", "")
            return SmallDescription(None, "lazyt's interpreter", self.backend.fallback(name))
        own = self.backend.function(name) is not None
        return SmallDescription(None, f"{self.backend.name if own else 'NumPy'} {name}", self.backend.fallback(name))
