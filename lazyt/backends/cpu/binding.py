"""Binding a plan to extents: chooses strategies of products, divides the launches into native programs and calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.backends.common.commit_flag import WRITTEN
from lazyt.backends.common.donating import worthwhile
from lazyt.backends.cpu.flags import switches
from lazyt.backends.cpu.kernel_rows import KernelRows
from lazyt.backends.cpu.library.registry import (
    bound_native_module_of,
    may_fail,
    module_text_of,
    workspace_of_library,
)
from lazyt.backends.cpu.thread_pool import get_num_threads
from lazyt.ir.passes.kernelize import KernelCall
from lazyt.ir.passes.schedule import AttentionCall, Launch, LibraryCall, MatmulCall, ScatterCall

if TYPE_CHECKING:
    from lazyt.backends.cpu import time_tiles
    from lazyt.backends.cpu.executable import NativeExecutable
    from lazyt.backends.cpu.kept_panels import Kept
    from lazyt.backends.cpu.library import (
        attention,
        conv_filter_tiles,
        conv_tiles,
        convolutions,
        depthwise,
        gemv,
        phases,
        products as library,
        scatter,
        tuning,
    )
    from lazyt.ir.passes.schedule import Donation
else:
    time_tiles = on_demand.module("lazyt.backends.cpu.time_tiles")
    attention = on_demand.module("lazyt.backends.cpu.library.attention")
    conv_filter_tiles = on_demand.module("lazyt.backends.cpu.library.conv_filter_tiles")
    conv_tiles = on_demand.module("lazyt.backends.cpu.library.conv_tiles")
    convolutions = on_demand.module("lazyt.backends.cpu.library.convolutions")
    depthwise = on_demand.module("lazyt.backends.cpu.library.depthwise")
    gemv = on_demand.module("lazyt.backends.cpu.library.gemv")
    library = on_demand.module("lazyt.backends.cpu.library.products")
    phases = on_demand.module("lazyt.backends.cpu.library.phases")
    scatter = on_demand.module("lazyt.backends.cpu.library.scatter")
    tuning = on_demand.module("lazyt.backends.cpu.library.tuning")

# Results and temporaries that any second cache holds: their launches do not run in tiles.
CACHED = 1 << 18


# The rows, the table and the patches of a native program.
Written = tuple[list[list[int]], list[int], list[tuple[int, int, int]]]


def product_of(b: Any, c: MatmulCall, gemm: bool, by_library: bool, measure: bool) -> library.Product:
    """How a product or a convolution is computed at the sizes that `b` knows.

    gemm, by_library: whether generated code, and BLAS, may be used. measure: whether it may be timed to choose.
    """
    if c.node.op == "matmul":
        choice = library.choose(c, b.value, gemm, by_library)
        if switches["gemv"]:
            choice = gemv.preferred(c, choice)
        if choice.by_dots:
            return gemv.Gemv(b, c, choice)
        if switches["autotune"] and gemm and by_library:
            choice = tuning.tuned(c, choice, b.value, measure)
        return library.Product(b, c, choice)
    if conv_tiles.takes(c.node):
        tiles = conv_filter_tiles.TileFilter if c.node.op == "convolve_filter" else conv_tiles.TileConvolution
        return tiles(b, c, conv_tiles.choose_tiles(c, b.value))
    if depthwise.takes(c.node):
        return depthwise.Depthwise(b, c, depthwise.choose_depthwise(c, b.value))
    if phases.takes(c.node):
        return phases.PhasedConvolution(b, c, phases.choose_phases(c, b.value))
    return convolutions.Convolution(b, c, convolutions.choose_convolution(c, b.value))


class Binding(KernelRows):
    """The launches of an executable for given extents, as rows of native programs."""

    exe: NativeExecutable
    products: dict[MatmulCall, library.Product]

    def __init__(
        self, exe: NativeExecutable, values: list[int], left_out: frozenset[int] | None = None, measure: bool = False
    ) -> None:
        # For a run that overwrites inputs: the ids of copies that are not needed then.
        self.left_out = left_out
        self.measure = measure  # whether products may be timed to choose how they are computed
        self.overwrites_from = 0  # the part before which everything that can fail is over
        self.donations: list[Donation] = []
        self.keeps = exe.schedule.keeps and switches["panels"]  # whether operands may stay packed
        super().__init__(exe, values)
        self.uses_blas = any(p.choice.how == "blas" for p in self.products.values())
        self._find_kept()

    def _find_kept(self) -> None:
        """Find the operands that stay packed: each has a base, between those of scalars and those that move."""
        self.kept_base: dict[MatmulCall, int] = {}
        self.kept_at = self.n_fixed
        self.kept: list[Kept] = []
        known: dict[Any, int] = {}
        for c, p in self.products.items() if self.keeps else ():
            kept = p.kept
            if kept is not None:
                # NOTE: by expressions, because the sizes may be those of a function in the making.
                same = c.operands[1], c.node.operands[1].shape, kept.form
                if same not in known:
                    known[same] = self.n_fixed
                    self.n_fixed += 1
                    self.kept.append(kept)
                self.kept_base[c] = known[same]

    def _product(self, c: MatmulCall) -> library.Product:
        return product_of(self, c, self.exe.gemm, self.exe.library, self.measure)

    def modules(self) -> list[tuple[str, str]]:
        """The code of its launches that are no kernels (text, name of the function), each once."""
        found: dict[tuple[str, str], None] = {}
        for c in self.exe.schedule.launches:
            if isinstance(c, MatmulCall):
                found.update(dict.fromkeys(self.products[c].modules))
            elif isinstance(c, AttentionCall):
                found.update(dict.fromkeys(attention.modules(self, c)))
            elif type(c) is LibraryCall and self.exe.native and (text := module_text_of(self, c)) is not None:
                found[text] = None
        return list(found)

    def _workspace(self) -> int:
        needed = [p.workspace for p in self.products.values()]
        needed += [attention.workspace(c) for c in self.exe.schedule.launches if isinstance(c, AttentionCall)]
        for c in self.exe.schedule.launches:
            if type(c) is LibraryCall and self._native(c):
                needed.append(workspace_of_library(self, c))
        return max(needed, default=0)

    def divide(self, flag: int) -> list[Written | LibraryCall | MatmulCall | ScatterCall]:
        """The regions as native programs and calls from Python. flag: the address of the flag of a receipt."""
        parts: list[Written | LibraryCall | MatmulCall | ScatterCall] = []
        rows: list[list[int]] = []
        table: list[int] = []
        patches: list[tuple[int, int, int]] = []

        def flush() -> None:
            if rows:
                parts.append((rows[:], table[:], patches[:]))
                rows.clear()
                table.clear()
                patches.clear()

        left_out = self.left_out or ()
        safe = self._safe_region()
        first_scratch = self.scratch_at
        regions = [[c for c in region if id(c) not in left_out] for region in self.exe.schedule.regions]
        chains = {id(chain.rows[0].call): chain for chain in self.chains()}
        chained = {id(r.call) for chain in chains.values() for r in chain.rows}
        for number, region in enumerate(regions):
            if number == safe and self.left_out is not None:
                flush()
                self.overwrites_from = len(parts)
            # Totals of divided reductions are read in their own region: the next one has the same memory for its own.
            self.scratch.clear()
            self.scratch_at = first_scratch
            for i, c in enumerate(region):
                if id(c) in chained:
                    if (chain := chains.get(id(c))) is not None:
                        self.codes += time_tiles.write(self, chain, self.whole_grain, rows, table, patches)
                elif isinstance(c, KernelCall):
                    self._kernel(c, rows, table, patches, i + 1 < len(region) and id(region[i + 1]) not in chained)
                elif self._native(c):
                    if isinstance(c, MatmulCall):
                        self.products[c].rows(rows, table, patches)
                    elif isinstance(c, ScatterCall):
                        scatter.launch(self, c, rows, table, patches)
                    elif isinstance(c, AttentionCall):
                        attention.launch(self, c, rows, table, patches)
                    else:
                        module = bound_native_module_of(self, c)
                        assert module is not None, "asked for in `_native`"
                        module.launch(self, c, rows, table, patches)
                else:
                    flush()
                    parts.append(c)
                    if isinstance(c, MatmulCall) and c.epilogue is not None:
                        self._kernel(c.epilogue, rows, table, patches, False)
        if self.left_out is not None:
            rows.append([self._code(WRITTEN), len(table), 1, 0, 0])
            table.extend([1, flag, 1])
        flush()
        return parts

    def chains(self) -> list[time_tiles.Chain]:
        """What runs in tiles of rows and launches."""
        # NOTE: a binding that is written out as a function has no chains: it would hold for these extents alone.
        if not switches["skew"] or not all(type(v) in (int, float) for v in self.values):
            return []
        if self.arena_size + sum(self.sizes) < CACHED:
            return []
        left_out = self.left_out or ()
        regions = [[c for c in region if id(c) not in left_out] for region in self.exe.schedule.regions]
        runs = time_tiles.runs(regions, self._safe_region() if self.left_out is not None else None)
        return [chain for calls in runs for chain in time_tiles.Chains(self).find(calls, get_num_threads())]

    def possible_donations(self) -> list[Donation]:
        """Which results may take the memory of inputs; none where that would save too little."""
        safe = self._safe_region()
        found = [d for d in self.exe.donations if d.region >= safe]
        return worthwhile(found, lambda n: self.value(self.exe.nbytes[n]))

    def _native(self, c: Launch) -> bool:
        """Whether a launch is a row of a native program, not a call from Python."""
        if isinstance(c, MatmulCall):
            return self.products[c].choice.how != "numpy"
        if isinstance(c, LibraryCall) and not isinstance(c, AttentionCall):
            return self.exe.native and bound_native_module_of(self, c) is not None
        return isinstance(c, KernelCall | AttentionCall) or self.exe.native

    def _safe_region(self) -> int:
        """The first region from which nothing can fail: nothing is checked, and all is one native program."""
        safe = 0
        for i, region in enumerate(self.exe.schedule.regions):
            for c in region:
                checks = getattr(c, "checks", None) or getattr(getattr(c, "epilogue", None), "checks", None)
                if checks or not self._native(c) or (type(c) is LibraryCall and may_fail(self, c)):
                    safe = i + 1
        return safe
