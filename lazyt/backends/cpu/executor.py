"""Runs a schedule on the CPU: compiles kernels, binds arguments once for given extents, one native call a run.

A plan has a fallible part (memory is taken, kernels check indices, libraries are called) that writes fresh memory only,
so a sync that fails leaves everything as it was. After it results may overwrite inputs (see `Bound.donating`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt import on_demand
from lazyt.backends.common.commit_flag import WRITTEN, Receipt
from lazyt.backends.common.donating import MAX_VARIANTS, References, chosen, placed, references
from lazyt.backends.cpu import code_cache, kept_panels, memory
from lazyt.backends.cpu.binding import Binding
from lazyt.backends.cpu.callbacks import Callback
from lazyt.backends.cpu.describe import LaunchDescription
from lazyt.backends.cpu.engine import compile_ahead, counters
from lazyt.backends.cpu.executable import NativeExecutable
from lazyt.backends.cpu.library.registry import native_module_of
from lazyt.backends.cpu.symbolic_binding import Found, Rebinder
from lazyt.backends.cpu.thread_pool import Program, get_num_threads, unloaded
from lazyt.errors import OutOfMemory
from lazyt.forking import RUN, cached_property, inner_lock
from lazyt.ir.passes.schedule import Launch, LibraryCall, MatmulCall, ScatterCall, Schedule

if TYPE_CHECKING:
    from lazyt.backends.cpu.kept_panels import Filled
    from lazyt.backends.cpu.library import blas, scatter
    from lazyt.backends.cpu.library.products import Product
else:
    blas = on_demand.module("lazyt.backends.cpu.library.blas")
    scatter = on_demand.module("lazyt.backends.cpu.library.scatter")


class Executable(NativeExecutable):
    """A schedule with its machine code."""

    bound: dict[tuple[int, ...], Bound]

    def __init__(self, sched: Schedule, native: bool = True, gemm: bool = True, library: bool = True) -> None:
        super().__init__(sched, native, gemm, library)
        self.last: Any = None, None  # the last extents (a trace has the same object each time), and their binding
        self.prepared: dict[tuple[int, ...], Bound] = {}  # the extents that code was made for, until they run
        self.rebinders: dict[frozenset[int] | None, Rebinder] = {}

    def begin(self) -> None:
        if get_num_threads() > 1:
            code_cache.begin([c.kernel for c in self.schedule.kernels])

    def compile(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> None:
        """Compile or load every kernel, and all other code that a run for these extents uses."""
        before, t0 = counters.compiles, time.perf_counter()
        bound = self.prepared[extents] = Bound(self, extents, scalars, measure=True)
        others = [*bound.modules(), *unloaded()]
        kernels = [c.kernel for c in self.schedule.kernels]
        # NOTE: a run that overwrites inputs has one more, which is not of the plan.
        flags = [WRITTEN] if self.donations else []
        self.kernels = code_cache.compile_all([*kernels, *flags], get_num_threads(), others)[: len(kernels)]
        for c in self.schedule.launches:
            if isinstance(c, ScatterCall) and self.native:
                scatter.of(c)
            elif isinstance(c, LibraryCall) and self.native and (module := native_module_of(c)) is not None:
                module.prepare(c)
        self.compiles = counters.compiles - before
        self.compile_time = time.perf_counter() - t0

    def bind(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> Bound:
        """The sizes of a run for these extents, for inspection; nothing is compiled or cached."""
        return Bound(self, extents, scalars)

    def notes(self, bound: Bound) -> list[tuple[str, str]]:
        """The launches that run in tiles."""
        chains = [] if isinstance(bound, Rebound) else bound.chains()
        return [
            ("in tiles", f"{len(c.rows)} launches, by {c.width:,} of {c.rows[0].count:,} rows: one pass over memory")
            for c in chains
        ]

    def describe(self, launch: Launch, bound: Bound) -> LaunchDescription:
        """How a launch is computed at the sizes of a binding."""
        return LaunchDescription(launch, bound)

    def run(
        self, extents: tuple[int, ...], scalars: Sequence[Any], inputs: Sequence[Any], receipt: Receipt | None = None
    ) -> list[Any]:
        """Run for these extents; the buffers of `outputs` (see `Bound.run`). Raises with nothing changed.

        With a `receipt`, results may take the memory of inputs that nobody else holds. What is raised then (an
        interrupt) leaves everything as it was only if the receipt does not say `written`.
        """
        known, found = self.last
        bound: Bound = found if known is extents else self._bind(extents, scalars)
        if receipt is None or not bound.donations:
            return bound.run(scalars, inputs)
        variant, places = bound.donating(inputs, scalars)
        return variant.run(scalars, inputs, places, receipt)

    def _bind(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> Bound:
        """The binding for these extents, made if there is none."""
        bound = self.bound.get(extents)
        if bound is None:
            if len(self.bound) > 256:
                self.bound.clear()
            bound = self.bound[extents] = self.make(extents, scalars)
        self.last = extents, bound
        return bound

    def make(
        self, extents: tuple[int, ...], scalars: Sequence[Any], left_out: frozenset[int] | None = None,
        like: Bound | None = None,
    ) -> Bound:  # fmt: skip
        """A new binding, ready to run: computed by a function generated for such extents, or in full.

        like: another one of the same extents.
        """
        rebinder = self.rebinders.get(left_out)
        if rebinder is None:
            rebinder = self.rebinders[left_out] = Rebinder(self, left_out)
        if rebinder.functions:
            state, values = np.zeros(3, np.int64), self.expressions.evaluate(extents, scalars)
            found = rebinder.find(extents, values, state.ctypes.data + 16)
            if found is not None:
                return Rebound(extents, values, state, found)
        prepared = self.prepared.pop(extents, None) if left_out is None else None
        bound = prepared or Bound(self, extents, scalars, left_out, measure=True, like=like)
        bound.build()
        rebinder.learn(extents, bound.values)
        return bound


class Bound(Binding):
    """An executable for given extents: argument tables filled but for addresses and scalars."""

    exe: Executable
    allocate = staticmethod(memory.allocate)
    lend = staticmethod(memory.lend)

    def __init__(
        self, exe: Executable, extents: tuple[int, ...], scalars: Sequence[Any],
        left_out: frozenset[int] | None = None, measure: bool = False, like: Bound | None = None,
    ) -> None:  # fmt: skip
        # NOTE: temporaries lie alike whatever is overwritten. A binding by a function does not say where.
        self._like = like if type(like) is Bound else None
        super().__init__(exe, exe.expressions.evaluate(extents, scalars), left_out, measure)
        self._begin(extents, np.zeros(3, np.int64))
        self._like = None

    def _begin(self, extents: tuple[int, ...], state: np.ndarray[Any, Any]) -> None:
        """Set the attributes that are not shared. state: the two numbers of the status word, and a receipt's flag."""
        self.extents = extents
        self.has_replay = False  # whether the last sync of these extents prepared a replay (see replay.py)
        self.status, self.flag = state[:2], state[2:]
        self.status_address: int = state.ctypes.data
        self.variants: dict[frozenset[int], Bound] = {}
        # The last reference counts of inputs, and the choice for them: see `donating`.
        self.chosen: tuple[References | None, Bound, Sequence[int]] = None, self, ()
        self.lock = inner_lock(threading.RLock(), RUN)

    def _plan_memory(self) -> int:
        like = self._like
        if like is None:
            self.laid = super()._plan_memory()
        else:
            self.offsets, self.workspace_at, self.laid = like.offsets, like.workspace_at, like.laid
        return self.laid

    def build(self) -> None:
        """Compile what the launches call."""
        compile_ahead(self.modules(), get_num_threads())
        self.donations = self.possible_donations()

    @cached_property
    def parts(self) -> list[Any]:
        """Native programs and library calls. They are made for the first run: most often a variant is what runs."""
        with self.lock:
            parts = self.divide(self.flag.ctypes.data)
            n = self.n_fixed + len(self.moving)
            return [Program(p[0], p[1], p[2], n) if isinstance(p, tuple) else Callback(self, p) for p in parts]

    def complete(self) -> None:
        """Make the programs, which may add to the arena."""
        _ = self.parts

    def temporaries(self) -> int:
        """Bytes of the arena of a run, as it was laid out if the programs are made: for as many threads as then."""
        return self.arena_size if "parts" in self.__dict__ else super().temporaries()

    def spared(self, inputs: Sequence[Any] | None = None) -> int:
        """What results that take the memory of inputs do not allocate, in whole blocks (see interface.Bound)."""
        donated = chosen(self.possible_donations(), None if inputs is None else references(inputs), memory.Buffer)
        size = dict(zip(self.exe.outputs, self.sizes, strict=True))
        return sum(memory.class_size(size[d.output]) for d in donated)

    def to_stay(self, inputs: Sequence[Any]) -> int:
        """Bytes that a run with these inputs allocates beside results and temporaries, and that stay."""
        return kept_panels.to_stay(self.kept, inputs)

    def launch_only(self) -> Callable[[list[int]], None] | None:
        """The native call that makes up a run, given its bases; None if a run is more than one call."""
        part = self.parts[0] if len(self.parts) == 1 and not self.uses_blas and not self.kept else None
        return part.launch if type(part) is Program else None

    def lets_go(self) -> bool:
        """Whether that call releases the interpreter lock: then another thread may run the same meanwhile."""
        part = self.parts[0]
        return type(part) is Program and part.lets_go

    def donating(
        self, inputs: Sequence[Any], scalars: Sequence[Any], waits: bool = False
    ) -> tuple[Bound, Sequence[int]]:
        """The binding to run when results take the memory of inputs that nothing else refers to, and each output's
        input.

        The input is -1 for an output in fresh memory; this binding itself and no inputs if no result takes any. What
        is checked is known before anything is overwritten, whether the sync waits or not.
        """
        found = references(inputs)
        last, bound, places = self.chosen
        if found != last:
            donated = chosen(self.donations, found, memory.Buffer)
            bound, places = self, []
            if donated:
                left_out, places = placed(donated, self.exe.outputs)
                bound = self._variant(left_out, scalars)
            self.chosen = found, bound, places
        return bound, places

    def _variant(self, left_out: frozenset[int], scalars: Sequence[Any]) -> Bound:
        """The binding for a run that overwrites inputs and omits these copies."""
        found = self.variants.get(left_out)
        if found is None:
            if len(self.variants) >= MAX_VARIANTS:
                self.variants.clear()
            found = self.variants[left_out] = self.exe.make(self.extents, scalars, left_out, self)
        return found

    def run(
        self, scalars: Sequence[Any], inputs: Sequence[Any], places: Sequence[int] = (),
        receipt: Receipt | None = None,
    ) -> list[Any]:  # fmt: skip
        """Run with fresh memory; the buffer of each output, or the input whose memory it takes (see `donating`)."""
        exe = self.exe
        self.complete()
        outs: list[Any]
        try:
            if places:
                outs = [
                    memory.allocate(n) if at < 0 else inputs[at] for at, n in zip(places, self.sizes, strict=True)
                ]  # fmt: skip
            else:
                outs = list(map(memory.allocate, self.sizes))
            arena = memory.lend(self.arena_size) if self.arena_size else None
        except MemoryError as e:
            raise OutOfMemory(f"sync: {e}") from None
        bases = [d.address for d in inputs]
        if len(bases) > self.n_inputs:
            del bases[self.n_inputs :]
        bases += [b.address for b in outs]
        bases.append(arena.address if arena is not None else 0)
        bases.append(self.status_address)
        if exe.scalars:
            bases += exe.words.of(scalars)
        if self.moving:
            bases += self.moved(bases, exe.expressions.evaluate(self.extents, scalars))
        if receipt is not None:
            self.flag[0] = 0
            receipt.flag, receipt.buffers = self.flag, outs
            receipt.donated = len(places) - places.count(-1)
        with self.lock:
            self.launch(bases, outs, arena, inputs)
            if self.checks and self.status[0]:
                self._raise_check()
        return outs

    def moved(self, bases: Sequence[int], values: Sequence[int]) -> list[int]:
        """The bases that move every run, from the others and the values of all expressions."""
        return [
            values[number] + byte if base < 0 else bases[base] + byte + values[number] * itemsize
            for base, byte, number, itemsize in self.moving
        ]

    def launch(self, bases: list[int], outs: list[Any], arena: Any, inputs: Sequence[Any]) -> None:
        """Run every part, with the panels that are kept of inputs."""
        held: list[memory.Packed] = []
        filled: Filled = []
        if self.kept:
            bases[self.kept_at : self.kept_at] = kept_panels.find(self.kept, inputs, held, filled)
        try:
            self._launch_parts(bases, outs, arena, inputs)
            if filled and not (self.checks and self.status[0]):
                kept_panels.stay(filled)
        finally:
            if self.left_out is not None:
                kept_panels.overwritten(outs)

    def _launch_parts(self, bases: list[int], outs: list[Any], arena: Any, inputs: Sequence[Any]) -> None:
        if self.uses_blas:
            with blas.OneThread():
                self._launch(bases, outs, arena, inputs)
        else:
            self._launch(bases, outs, arena, inputs)

    def _launch(self, bases: list[int], outs: list[Any], arena: Any, inputs: Sequence[Any]) -> None:
        for i, part in enumerate(self.parts):
            # What a check refused is neither given to a library nor followed by what overwrites inputs.
            if (i == self.overwrites_from or type(part) is not Program) and self.checks and self.status[0]:
                return
            if type(part) is Program:
                part.launch(bases)
            else:
                part.run(bases, outs, arena, inputs)

    def _raise_check(self) -> None:
        code, index = int(self.status[0]), int(self.status[1])
        self.status[:] = 0
        raise self.error_of(code, index)


class Rebound(Bound):
    """A binding computed by a function (see symbolic_binding.py); its descriptions are made on demand."""

    def __init__(self, extents: tuple[int, ...], values: list[int], state: np.ndarray[Any, Any], found: Found) -> None:
        self.__dict__.update(found.common)
        self._begin(extents, state)
        self.values, self.shapes = values, found.shapes
        self.sizes, self.arena_size = found.sizes, found.arena_size
        self.moving, self.parts, self.kept = found.moving, found.programs, found.kept

    @cached_property
    def products(self) -> dict[MatmulCall, Product]:  # type: ignore[override]
        return Binding(self.exe, self.values, self.left_out).products
