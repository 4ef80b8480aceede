"""Runs a schedule on a GPU: kernels are mapped and compiled when it is bound to extents, then launched in order.

Arguments and the arena are computed as on the CPU (`backends/common/binding.py`). Launches are enqueued, from the
second run on as graphs (`cuda_graph.py`); a read of a value waits for it, and raises the error of a wrong index.
"""

from __future__ import annotations

import math
import threading
import time
from array import array
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.common.executable import ScheduleExecutable
from lazyt.backends.common.host_calls import HostCall, evaluated
from lazyt.backends.common.strided_access import alternate
from lazyt.backends.common.transposed_access import tile, untile
from lazyt.backends.cuda import donation
from lazyt.backends.cuda.binding import Binding, Run
from lazyt.backends.cuda.code_cache import functions
from lazyt.backends.cuda.codegen.mapping import (
    Mapping,
    choose,
    extras,
    grid,
    phases,
    portions,
    scratch_words,
)
from lazyt.backends.cuda.cuda_graph import Launch, Launched, Segment
from lazyt.backends.cuda.deferred_checks import WORD, Check, unsettled
from lazyt.backends.cuda.describe import LaunchDescription
from lazyt.backends.cuda.device import DeviceBuffer, device
from lazyt.backends.cuda.horizontal_fusion import SHARE, Share, Shares, taken_together
from lazyt.backends.cuda.library import attention as by_cudnn, attention_kernels, registry
from lazyt.backends.cuda.library.attention import Attention
from lazyt.backends.cuda.library.convolutions import Convolution
from lazyt.backends.cuda.library.products import ByLibrary, Product, Zeros, is_tf32, read_by
from lazyt.backends.cuda.library.scatter import Scatter
from lazyt.backends.cuda.moves import Moves
from lazyt.config import cpu as switches
from lazyt.forking import RUN, inner_lock
from lazyt.ir import graph as g
from lazyt.ir.passes.call_operands import is_move
from lazyt.ir.passes.kernelize import KernelCall
from lazyt.ir.passes.schedule import AttentionCall, LibraryCall, MatmulCall, ScatterCall
from lazyt.ir.passes.split_reduction import Piece

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.backends.common.commit_flag import Receipt
    from lazyt.ir import kernel as k
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import Donation, Schedule

    Array = np.ndarray[Any, Any]

FLOAT32 = np.dtype(np.float32)


class Executable(ScheduleExecutable):
    """A schedule on one device."""

    bound: dict[tuple[int, ...], Bound]

    def __init__(self, sched: Schedule, name: str) -> None:
        super().__init__(sched)
        self.device = device(name)
        self.donations = donation.of_schedule(sched)

    def arrange(self, call: KernelCall) -> None:
        """Neighbouring threads read what lies side by side, so narrow maps stay as they are."""
        if switches["tile"]:
            tile(call)
            untile(call)
        if switches["alternate"]:
            alternate(call)

    def compile(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> None:
        """Nothing yet: a kernel's mapping follows from its extents."""

    def bind(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> Bound:
        return Bound(self, extents, scalars)

    def run(
        self, extents: tuple[int, ...], scalars: Sequence[Any], inputs: Sequence[Any], receipt: Receipt | None = None
    ) -> list[Any]:
        """Run for these extents; what overwrites inputs does so behind all that can fail (see donation.py)."""
        bound = self.bound.get(extents)
        if bound is None:
            if len(self.bound) > 256:
                self.bound.clear()
            bound = Bound(self, extents, scalars)
            bound.build()
            self.bound[extents] = bound
        if receipt is not None and bound.donations:
            variant, places = bound.donating(inputs, scalars, receipt.waits)
            if places:
                found: list[Any] | None = variant.run(scalars, inputs, places, receipt)
                if found is not None:
                    return found
                bound.donor.refuse()
        outs = bound.run(scalars, inputs)
        assert outs is not None, "it overwrites nothing"
        return outs

    def describe(self, launch: Any, bound: Bound) -> LaunchDescription:
        """How a launch is computed at the sizes of a binding."""
        return LaunchDescription(launch, bound)

    def notes(self, bound: Bound) -> list[tuple[str, str]]:
        """How launches are enqueued from the second run on, and which kernels go as one launch."""
        together = together_of(bound)
        moved = "" if bound.moves is None else bound.moves.described()
        found = [("replay", replay_of(self, bound)), ("together", together), ("copies", moved)]
        return [(word, text) for word, text in found if text]


class Bound(Binding):
    """An executable for given extents."""

    exe: Executable

    def __init__(
        self, exe: Executable, extents: tuple[int, ...], scalars: Sequence[Any], left_out: frozenset[int] = frozenset()
    ) -> None:
        """left_out: of a run that overwrites inputs, the ids of the copies that it does not need."""
        super().__init__(exe, extents, scalars)
        self.left_out = left_out
        self.read = sorted({n.attrs.index for n in exe.schedule.graph.nodes if isinstance(n.attrs, g.Input)})
        self.parts: list[Any] = []
        self.moves = Moves(self) if exe.schedule.on_host else None
        self.lock = inner_lock(threading.RLock(), RUN)
        self.has_replay = False
        self.unbegun: Check | None = None  # that of the last run, if an interrupt may have kept it from that

    def build(self) -> None:
        """Argument tables, mappings and code of every launch."""
        table: list[int] = []
        patches: list[tuple[int, int, int]] = []
        steps: list[Any] = []
        self.scratch_size = 0
        wanted: list[tuple[k.Kernel, Mapping]] = []
        level = safe = 0
        shares: list[Share] = []
        heads: list[tuple[int, int]] = []

        def place(some: list[Share]) -> int:
            heads.append((len(table), len(shares)))
            shares.extend(some)
            table.extend((0, 0))
            return len(table) - 2

        moves = self.moves
        for number, region in enumerate(self.exe.schedule.regions):
            level += 1
            if moves is not None:
                steps += moves.before(region)
            planned = [
                [x for piece in self.pieces_of(c) for x in self._launches(c, piece, table, patches)]
                for c in region
                if isinstance(c, KernelCall) and id(c) not in self.left_out
            ]
            for launches in taken_together(planned, self.where.properties.processors, place):
                # Launches that share scratch memory do not run beside others.
                level += len(launches) > 1
                for kernel, at, mapping, blocks in launches:
                    wanted.append((kernel, mapping))
                    steps.append((at, blocks, level))
                    level += len(launches) > 1
            for c in region:
                if not isinstance(c, KernelCall):
                    found = self._call(c, table, patches, level)
                    steps += found
                    level += len(found)
                    safe = safe if all(map(is_capturable, found)) else number + 1
        t0 = time.perf_counter()
        code, compiled = functions(self.where, wanted)
        self.exe.compiles += compiled
        self.exe.compile_time += time.perf_counter() - t0
        rest = iter(code)
        parts = [Launch(next(rest), *s) if isinstance(s, tuple) else s for s in steps]
        self.table = np.array(table or [0], np.int64)
        self.shares = Shares(self.where, self.table, shares) if shares else None
        if self.shares is not None:
            for at, first in heads:
                self.table[at : at + 2] = self.shares.table.address, self.shares.rows.address + 4 * SHARE * first
        for part in parts:
            if isinstance(part, Launch):
                part.place(self.table)
        self.parts = self._segments(parts)
        # Where it stands whether a product, or attention, is of tf32, which may be another thing in every run.
        self.precisions = [p.at + 3 for p in parts if isinstance(p, Product) and read_by(p.call.node) == FLOAT32]
        self.precisions += [p.slots[-1] for p in parts if isinstance(p, Launch) and p.choice is not None]
        columns = np.array(patches, np.int64).reshape(-1, 3)
        self.slots, self.sources, self.offsets_of_slots = (np.ascontiguousarray(x) for x in columns.T)
        self.word = self.where.allocate(WORD) if self.checks else None
        # What a run takes: its results, temporaries, and scratch memory.
        self.taken = donation.Taken(self.sizes, (self.arena_size, self.scratch_size))
        self.ends_in_graph = moves is None and bool(self.parts) and isinstance(self.parts[-1], Segment)
        self.donor = donation.Donor(self, safe, self.variant)

    @property
    def donations(self) -> Sequence[Donation]:
        """Which results may take the memory of inputs."""
        return self.donor.donations

    @property
    def chosen(self) -> tuple[Any, Any, Sequence[int]]:
        """As of `interface.Enqueuing`."""
        return self.donor.chosen

    def donating(self, inputs: Sequence[Any], scalars: Sequence[Any], waits: bool = False) -> tuple[Any, Sequence[int]]:
        """As of `interface.Enqueuing`."""
        return self.donor.choose(inputs, scalars, waits)

    def variant(self, left_out: frozenset[int], scalars: Sequence[Any]) -> Bound:
        """The binding for a run that overwrites inputs and omits these copies."""
        found = Bound(self.exe, self.extents, scalars, left_out)
        found.build()
        return found

    def spared(self, inputs: Sequence[Any] | None = None) -> int:
        """As of `interface.Bound`; 0 of a first run, which overwrites nothing."""
        ran = self.exe.bound.get(self.extents)
        return 0 if inputs is None or ran is None else ran.donor.spared(inputs)

    def enqueue(
        self, scalars: Sequence[Any], inputs: Sequence[Any], sites: Callable[[], Sequence[Any]], places: Sequence[int],
        receipt: Receipt,
    ) -> list[Any] | None:  # fmt: skip
        """`run`, where a sync is repeated (see interface.Enqueuing)."""
        outs = self.run(scalars, inputs, places, receipt)
        if outs:
            # NOTE: the checks of one are those of all.
            first = _buffer(outs[0])
            if first.checks:
                first.located(sites)
                if receipt.waits:
                    first.settle()
        return outs

    def _launches(
        self, c: KernelCall, piece: Piece, table: list[int], patches: list[tuple[int, int, int]]
    ) -> list[tuple[k.Kernel, int, Mapping, int]]:
        """Append a piece's arguments; the kernel, where they begin, the mapping and the blocks of each launch."""
        at, first = len(table), len(patches)
        self._arguments(c, piece, table, patches)
        kernel, extents, properties = piece.kernel, piece.extents, self.where.properties
        if _is_empty(kernel, extents):
            return []
        mapping = choose(kernel, self._placed(c, piece, table[at:], at, patches[first:]), properties.shared)
        launches = phases(kernel, mapping, extents, properties.processors)
        if launches[0].phase:
            # Behind the kernel's own arguments: scratch memory, which is the last of the bases, and a row's portions.
            count = portions(launches[0], extents)
            patches.append((len(table), -1, 0))
            table.extend((0, count))
            words = math.prod(extents[: kernel.outer]) * scratch_words(kernel, launches[0]) * count
            self.scratch_size = max(self.scratch_size, 8 * words)
        table.extend(extras(kernel, mapping, extents))
        return [(kernel, at, m, grid(kernel, m, extents, properties.processors)) for m in launches]

    def _call(self, c: Any, table: list[int], patches: list[tuple[int, int, int]], level: int) -> Sequence[Any]:
        """The implementation of a call that is not a kernel."""
        if isinstance(c, MatmulCall):
            product = self.products[c]
            if isinstance(product, Convolution):
                product.place(table, patches)
                ch = product.choice
                return [product if ch.m and ch.n and ch.k and ch.count else Zeros(product, product.at)]
            assert isinstance(product, Product)
            if product.choice.how != "blas":
                return [ByLibrary(self, c, table, patches)]
            product.place(table, patches, level)
            return [product if product.choice.k else Zeros(product, product.at)]
        if isinstance(c, ScatterCall) and (scatter := Scatter(self, c)).on_device:
            return scatter.place(table, patches, level)
        if isinstance(c, AttentionCall):
            attention = by_cudnn.chosen(self, c)
            if not isinstance(attention, Attention):
                return attention.launches(attention.place(table, patches), level)
            attention.place(table, patches)
            return [] if attention.empty else [attention]
        if isinstance(c, LibraryCall) and is_move(c.node):
            assert self.moves is not None, "its result is on the host"
            return [self.moves.of(c)]
        if isinstance(c, LibraryCall) and c.node.attrs.fn in registry.FUNCTIONS:  # type: ignore[union-attr]
            return [_Library(self, c)]
        return [_OnHost(self, c)]

    def _segments(self, parts: Sequence[Any]) -> list[Any]:
        """Consecutive launches that a graph can hold, combined."""
        found: list[Any] = []
        for capturable, group in groupby(parts, is_capturable):
            some = list(group)
            found += [Segment(self.where, some)] if capturable else some
        return found

    def _product(self, c: MatmulCall) -> Product | Convolution:
        return Product(self, c) if c.node.op == "matmul" else Convolution(self, c)

    def run(
        self, scalars: Sequence[Any], inputs: Sequence[Any], places: Sequence[int] = (),
        receipt: Receipt | None = None,
    ) -> list[Any] | None:  # fmt: skip
        """Take memory, fill the arguments in, enqueue. Waits for nothing but what is done on the host.

        places: the input of each result that takes its memory, or -1. None, and nothing is done, where there is no
        graph for what overwrites them.
        """
        where = self.where
        with self.lock, where.work() as stream:
            if self.unbegun is not None:
                self.unbegun.begin(stream)
            sizes, among = self.taken.of(places)
            taken = where.take_all(stream, sizes, among)
            n = len(self.sizes) - sum(at >= 0 for at in places)
            outs, others = taken[:n], [b.address for b in taken[n:]]
            if places:
                fresh = iter(outs)
                outs = [next(fresh) if at < 0 else inputs[at] for at in places]
            table = self.table
            bases = self._bases(scalars, inputs, outs, others)
            if self.precisions:
                table[self.precisions] = is_tf32(FLOAT32)
            table[self.slots] = np.frombuffer(array("q", bases), np.int64)[self.sources] + self.offsets_of_slots
            parts, last, launched = self.parts, None, None
            if places:
                launched = Launched()
                *parts, last = parts
                if not last.prepared(table):
                    return None
            if self.word is not None:
                where.driver.clear(stream, self.word.address, WORD)
            if self.shares is not None:
                self.shares.send(stream, table)
            checks = unsettled(inputs, self.read)
            check = None
            if self.word is not None:
                check = Check(where, self.word, self.error_of, launched)
                checks = (check, *checks)
            try:
                for part in parts:
                    if type(part) is Segment:
                        part.run(stream, table)
                    else:
                        part.run(Run(stream, bases, outs, inputs))
            finally:
                if self.moves is not None:
                    # Whatever happened, the memory of this run is free only when its copies are done.
                    where.join(stream)
                    self.moves.retire()
            if checks or places:
                # NOTE: what an interrupt leaves of a run that overwrites inputs are results like all others.
                for b in outs:
                    _buffer(b).checks = checks
            if last is not None and launched is not None:
                assert receipt is not None, "who overwrites inputs has one"
                self.unbegun = check
                receipt.flag, receipt.buffers, receipt.donated = launched, outs, len(places) - places.count(-1)
                last.launch(stream, launched)
            if check is not None:
                check.begin(stream)
                self.unbegun = None
            if not places:
                self.donor.ran = True
        return outs

    def _bases(
        self, scalars: Sequence[Any], inputs: Sequence[Any], outs: Sequence[Any], others: Sequence[int]
    ) -> list[int]:
        """The bases of addresses in their order (see `ScheduleBinding`), scratch memory last.

        others: the addresses of the temporaries and of the scratch memory, where there are such.
        """
        bases = [d.address for d in inputs]
        if len(bases) > self.n_inputs:
            del bases[self.n_inputs :]
        bases += [b.address for b in outs]
        bases.append(others[0] if self.arena_size else 0)
        bases.append(self.word.address if self.word is not None else 0)
        if self.exe.scalars:
            bases += self.exe.words.of(scalars)
        if self.moving:
            values = self.exe.expressions.evaluate(self.extents, scalars)
            for base, byte, number, itemsize in self.moving:
                bases.append(values[number] + byte if base < 0 else bases[base] + byte + values[number] * itemsize)
        bases.append(others[-1] if self.scratch_size else 0)
        return bases

    def address_of(self, n: Node, bases: Sequence[int]) -> int:
        base, byte = self._base(n)
        return bases[base] + byte


def _buffer(result: Any) -> DeviceBuffer:
    """The memory of a result, which is an input where it takes that one's."""
    found: DeviceBuffer = result if isinstance(result, DeviceBuffer) else result.buffer
    return found


def is_capturable(part: Any) -> bool:
    """Whether a graph can hold what a launch is enqueued as: (position, blocks, level) stands for a kernel."""
    return isinstance(part, tuple | Launch | Product)


def together_of(bound: Bound) -> str:
    """The kernels of a plan that are launched as one; '' for none."""
    if not bound.together:
        return ""
    number = len(set(bound.together.values()))
    return f"{len(bound.together)} kernels in {number} launch{'es' * (number > 1)}, as they are equal and independent"


def keeps(name: str, convolution: Node) -> bool:
    """Whether a device's plan calls cuDNN for a convolution; others are products over windows."""
    return convolution.dtype == FLOAT32 and not device(name).cudnn.missing


def attends(name: str, b: Builder, n: Node, operands: Sequence[Node]) -> tuple[Node, ...] | None:
    """The results of attention as a call of cuDNN or of lazyt's kernels; None: as products."""
    found = None if device(name).cudnn.missing else by_cudnn.calls(b, n, operands)
    return attention_kernels.calls(b, n, operands) if found is None else found


def replay_of(exe: Executable, bound: Bound) -> str:
    """How a plan's launches at these sizes are enqueued from the second run on."""
    if not switches["graphs"]:
        return "launch by launch: graphs are switched off"
    ran = exe.bound.get(bound.extents)
    bounds = [] if ran is None else [ran, *ran.donor.variants.values()]
    segments = [p for b in bounds for p in b.parts if isinstance(p, Segment)]
    graphs = [g for p in segments for g in p.graphs]
    refused = "".join(dict.fromkeys(f"; not all of it: {p.refused}" for p in segments if p.refused))
    if graphs:
        return f"{len(graphs)} CUDA graph{'s' * (len(graphs) > 1)}, launched {graphs[0].replays} times{refused}"
    return f"launch by launch{refused}" if refused else "launch by launch the first time, then as CUDA graphs"


def _is_empty(kernel: k.Kernel, extents: Sequence[int]) -> bool:
    """Whether there is nothing to compute: no outer index, or no point and no value of an empty reduction."""
    return not all(extents[: kernel.outer]) or (not kernel.rows and not all(extents))


class _OnHost(HostCall):
    """A call without a GPU implementation: its operands are copied to the host and its results back; counted."""

    def __init__(self, bound: Bound, call: LibraryCall | MatmulCall | ScatterCall) -> None:
        super().__init__(bound, call)
        self.bases: Sequence[int] = ()
        self.written: list[tuple[int, Array]] = []

    def _view(self, n: Node, outs: Sequence[Any], arena: Any, inputs: Sequence[Any], writable: bool) -> Array:
        bound = self.bound
        assert isinstance(bound, Bound)
        base = n
        while base.op == "reshape":
            base = base.operands[0]
        shape, address = [bound.value(d) for d in n.shape], bound.address_of(base, self.bases)
        if not writable:
            return bound.where.read(address, n.dtype, shape)
        found = np.empty(shape, n.dtype)
        self.written.append((address, found))
        return found

    def run(self, run: Run) -> None:  # type: ignore[override]
        bound = self.bound
        assert isinstance(bound, Bound)
        self.bases, self.written = run.bases, []
        super().run(list(run.bases), list(run.outs), None, run.inputs)
        for address, found in self.written:
            bound.where.write(address, found)
        self.bases, self.written = (), []
        bound.where.fallbacks += 1


class _Library(_OnHost):
    """A call of CuPy's own routines on the plan's memory, which no graph can hold."""

    def run(self, run: Run) -> None:  # type: ignore[override]
        bound, c = self.bound, self.call
        assert isinstance(bound, Bound)
        assert isinstance(c, LibraryCall)
        assert isinstance(c.node.attrs, g.Opaque)
        with bound.where.driver.library(bound.where.number) as xp:
            operands = [(self._array(x, run.bases), x.dtype) for x in c.operands]
            got = registry.call(xp, c.node.attrs.fn, operands, evaluated(c.node.attrs.statics, bound))
            for r, value in zip(c.results, got, strict=True):
                if r is not None:
                    registry.put(xp, self._array(r, run.bases), r.dtype, value)

    def _array(self, n: Node, bases: Sequence[int]) -> Any:
        bound = self.bound
        assert isinstance(bound, Bound)
        base = n
        while base.op == "reshape":
            base = base.operands[0]
        where, shape = bound.where, [bound.value(d) for d in n.shape]
        address = bound.address_of(base, bases)
        return where.driver.view(where.number, address, registry.memory_dtype(n.dtype), shape)
