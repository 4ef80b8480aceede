"""Describes how a launch is computed on the CPU, for people. Nothing here runs or compiles a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt import on_demand
from lazyt.backends.common.donating import DONATED
from lazyt.backends.cpu.binding import Binding
from lazyt.backends.cpu.code_cache import assembly_of, code_at, source_of
from lazyt.backends.cpu.codegen.emit import strategies_of
from lazyt.backends.cpu.flags import switches
from lazyt.backends.cpu.library.registry import bound_native_module_of
from lazyt.backends.cpu.thread_pool import get_num_threads
from lazyt.backends.interface import Description
from lazyt.forking import cached_property
from lazyt.ir import graph as g
from lazyt.ir.dtypes import bfloat16
from lazyt.ir.passes.call_operands import nbytes
from lazyt.ir.passes.kernelize import KernelCall
from lazyt.ir.passes.schedule import AttentionCall, LibraryCall, MatmulCall, ScatterCall
from lazyt.ir.passes.split_reduction import worth_splitting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.cpu.library import attention_tile, blas
    from lazyt.backends.cpu.library.products import Choice
    from lazyt.ir.passes.schedule import Launch
else:
    blas = on_demand.module("lazyt.backends.cpu.library.blas")
    attention_tile = on_demand.module("lazyt.backends.cpu.library.attention_tile")


class LaunchDescription(Description):
    """A launch of a plan at the sizes of a binding."""

    def __init__(self, call: Launch, bound: Binding) -> None:
        self._call, self._bound = call, bound
        # The kernel, or the epilogue of a product.
        self._map = call.epilogue if isinstance(call, MatmulCall) else call if isinstance(call, KernelCall) else None

    @property
    def _choice(self) -> Choice | None:
        return self._bound.products[self._call].choice if isinstance(self._call, MatmulCall) else None

    @cached_property
    def library(self) -> str:  # type: ignore[override]
        c, native = self._call, self._bound.exe.native
        if isinstance(c, MatmulCall):
            choice = self._bound.products[c].choice
            if choice.how == "generated":
                by = " by AMX" if choice.dots == "tiles" else ""
                return "generated dot products" if choice.by_dots else f"generated {choice.tile} product{by}"
            return blas.routine(c.node.dtype) if choice.how == "blas" else "NumPy matmul"
        if isinstance(c, ScatterCall):
            return "native scatter" if native else "NumPy scatter in index order"
        if isinstance(c, AttentionCall):
            return "generated attention by AMX" if c.node.operands[0].dtype == bfloat16 else "generated attention"
        if isinstance(c, LibraryCall):
            assert isinstance(c.node.attrs, g.Opaque)
            fn = c.node.attrs.fn
            by_hand = native and bound_native_module_of(self._bound, c) is not None
            return f"native {fn}" if by_hand else f"NumPy {fn.replace('_', '.', 1)}"
        return ""

    @property
    def reason(self) -> str:  # type: ignore[override]
        if isinstance(self._call, AttentionCall):
            keys = self._bound.value(self._call.node.operands[1].shape[-2])
            of = f"{keys:,} key{'s' * (keys != 1)}"
            return f"at most {min(keys, attention_tile.KEYS)} of {of} at a time; the weights are never in memory"
        return "" if self._choice is None else self._choice.reason

    @property
    def on_stack(self) -> bool:  # type: ignore[override]
        return self._choice is not None and self._choice.on_stack

    @property
    def strategies(self) -> Sequence[str]:  # type: ignore[override]
        c, bound, found = self._call, self._bound, list[str]()
        if self._map is not None:
            kernel = self._map.kernel
            found += [*self._map.strategies, *strategies_of(kernel)]
            threads, extents = get_num_threads(), tuple(map(bound.value, self._map.extents))
            divided = switches["split"] and worth_splitting(kernel, extents, threads, switches["early"])
            if isinstance(c, KernelCall) and divided:
                found.append(f"few long rows, each divided among {threads:,} thread{'s' * (threads != 1)}")
        if isinstance(c, LibraryCall) and self.library.startswith("NumPy") and switches["adopt"]:
            found.append("results of NumPy's are taken over with their memory")
        made = set(c.writes)
        if any(d.output in made and bound.value(nbytes(d.output)) >= DONATED for d in bound.exe.donations):
            found.append("in the place of an input, when nobody else holds that")
        return found

    @property
    def code(self) -> str:  # type: ignore[override]
        if self._map is not None:
            return code_at(self._map.kernel)
        if isinstance(self._call, AttentionCall) or (self._choice is not None and self._choice.how == "generated"):
            return "product"
        return "routine" if self.library.startswith("native") else "library"

    def source(self, notes: Sequence[str] = ()) -> str:
        """LLVM IR; of a product that of its epilogue, if it has one."""
        if self._map is not None:
            return source_of(self._map.kernel)
        if isinstance(self._call, MatmulCall):
            for text, _ in self._bound.products[self._call].modules:
                return text
        return ""

    def assembly(self) -> str:
        """The assembly for this host; of a product that of its epilogue, if it has one."""
        return "" if self._map is None else assembly_of(self._map.kernel)
