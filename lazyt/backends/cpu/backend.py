"""The CPU as a backend: machine code by LLVM on native threads, with a pool of host memory."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.backends.common import donating
from lazyt.backends.cpu import address_space, memory
from lazyt.backends.cpu.parallel_copy import copied
from lazyt.backends.interface import HostAllocator, HostBackend, LoadedCode, Run, Statistics
from lazyt.config import cpu as switches, general as settings, registers
from lazyt.ir.attention import is_attention
from lazyt.ir.prims import CONVOLUTIONS
from lazyt.ir.target import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from lazyt.backends.cpu import (
        code_cache,
        early_code,
        engine,
        executor,
        kernel_rows,
        linked,
        pair_products,
        thread_pool,
        user_code,
    )
    from lazyt.backends.cpu.codegen import needs
    from lazyt.backends.cpu.library import (
        attention,
        bit_packing,
        conv_tiles,
        products,
        scan,
        scatter,
        small_matrices,
        sorting,
    )
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Graph, Node
    from lazyt.ir.kernel import Kernel
    from lazyt.ir.passes.kernelize import KernelCall
    from lazyt.ir.passes.schedule import Schedule
    from lazyt.ir.symbolic import Scope

    Array = np.ndarray[Any, Any]
else:
    code_cache = on_demand.module("lazyt.backends.cpu.code_cache")
    early_code = on_demand.module("lazyt.backends.cpu.early_code")
    engine = on_demand.module("lazyt.backends.cpu.engine")
    executor = on_demand.module("lazyt.backends.cpu.executor")
    kernel_rows = on_demand.module("lazyt.backends.cpu.kernel_rows")
    linked = on_demand.module("lazyt.backends.cpu.linked")
    pair_products = on_demand.module("lazyt.backends.cpu.pair_products")
    thread_pool = on_demand.module("lazyt.backends.cpu.thread_pool")
    user_code = on_demand.module("lazyt.backends.cpu.user_code")
    needs = on_demand.module("lazyt.backends.cpu.codegen.needs")
    attention = on_demand.module("lazyt.backends.cpu.library.attention")
    bit_packing = on_demand.module("lazyt.backends.cpu.library.bit_packing")
    conv_tiles = on_demand.module("lazyt.backends.cpu.library.conv_tiles")
    products = on_demand.module("lazyt.backends.cpu.library.products")
    scan = on_demand.module("lazyt.backends.cpu.library.scan")
    scatter = on_demand.module("lazyt.backends.cpu.library.scatter")
    small_matrices = on_demand.module("lazyt.backends.cpu.library.small_matrices")
    sorting = on_demand.module("lazyt.backends.cpu.library.sorting")

NAME = memory.Buffer.device


def _attention_calls(builder: Builder, node: Node, operands: Sequence[Node]) -> tuple[Node, ...] | None:
    return attention.calls(builder, node, operands)


def _half_convolutions(builder: Builder, node: Node) -> bool:
    _require_llvm()
    return conv_tiles.are_wanted(builder, node)


def _rounded_products(builder: Builder, node: Node) -> bool:
    _require_llvm()
    return pair_products.are_rounded(builder, node)


def _share_of(call: KernelCall) -> float:
    _require_llvm()
    return needs.share_of(call)


def _require_llvm() -> None:
    """OutOfMemory unless LLVM is loaded, or there is address space for it: a library of which half is there is none."""
    if "llvmlite.binding" not in sys.modules:
        address_space.require(address_space.LLVM, "loading LLVM")


@cache
def _capabilities(gemm: bool) -> Target:
    """With `no-gemm` there is no generated code for convolutions, nor for products of halves."""
    return Target(
        convolutions=gemm, winograd=gemm, convolution_views=gemm, attention=_attention_calls, epilogues=True,
        stage_reuse=True, vector_products=True, packed_products=True, half_products=gemm, share=_share_of,
        half_convolutions=_half_convolutions if gemm else None, rounded_products=_rounded_products if gemm else None,
        joined_axes=True, first_run=True, replay=True, donation=True,
    )  # fmt: skip


class PoolAllocator(HostAllocator):
    """Buffers of the one pool (memory.py)."""

    def allocate(self, nbytes: int, device: str) -> memory.Buffer:
        return memory.allocate(nbytes)

    def from_host(self, array: Array, device: str) -> memory.Buffer:
        return copied(array)

    def to_host(self, buffer: memory.Buffer, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        return memory.value_array(buffer, dtype, shape)

    def wrap(self, array: Array) -> memory.ExternalBuffer:
        return memory.wrap_external(array.__array_interface__["data"][0], array.nbytes, array)

    def block(self, nbytes: int) -> int:
        return memory.class_size(nbytes)

    def arena_block(self, nbytes: int) -> int:
        return memory.lent_size(nbytes)

    def statistics(self, device: str) -> Statistics:
        return Statistics(memory.allocated(), memory.reserved())

    def peak(self) -> int:
        return memory.peak()

    def reset_peak(self) -> None:
        memory.reset_peak()

    def set_limit(self, nbytes: int | None) -> None:
        memory.set_limit(nbytes)

    def packed(self) -> int:
        return memory.packed()

    def set_packed_share(self, share: float) -> None:
        memory.set_packed_share(share)

    def empty_cache(self) -> None:
        memory.empty_cache()


class CpuBackend(HostBackend):
    """The host's processors."""

    name = NAME
    allocator = PoolAllocator()
    dlpack_type = 1  # kDLCPU
    work_sizes = (
        (kernel_rows, "GRAIN"), (donating, "DONATED"), (bit_packing, "GRAIN"), (scan, "GRAIN"), (scatter, "GRAIN"),
        (small_matrices, "GRAIN"), (sorting, "GRAIN"), (products, "PRODUCT_GRAIN"),
    )  # fmt: skip

    def capabilities(self, device: str) -> Target:
        return _capabilities(bool(settings["gemm"]))

    def compile(self, schedule: Schedule, device: str) -> executor.Executable:
        _require_llvm()
        return executor.Executable(schedule, settings["native"], settings["gemm"], settings["blas"])

    def identity(self, device: str) -> tuple[str, ...]:
        _require_llvm()
        # NOTE: a process may be refused registers that another one has.
        pairs = pair_products.dot_products()
        return *engine.host().fingerprint, repr(sorted(switches.items())), repr(registers["width"]), pairs

    def link(
        self, runs: Sequence[Run], n_inputs: int, wanted: Sequence[int], extents: tuple[int, ...]
    ) -> linked.Linked | None:
        return linked.link(runs, n_inputs, wanted, extents)

    def prefetch(self, graph: Graph, scope: Scope | None, target: Target) -> None:
        if any(n.op == "matmul" or n.op in CONVOLUTIONS or is_attention(n) for n in graph.nodes):
            early_code.begin_calls(graph, scope, target, settings["gemm"], settings["blas"])

    def load_code(self, text: str, name: str) -> LoadedCode:
        return user_code.load(text, name)

    def kernel_text(self, kernel: Kernel, assembly: bool = False) -> str:
        return code_cache.assembly_of(kernel) if assembly else code_cache.source_of(kernel)

    def is_crowded(self) -> bool:
        # NOTE: asked at every sync that is planned, and there is no code where the engine was never used.
        loaded = sys.modules.get("lazyt.backends.cpu.engine")
        return loaded is not None and engine.is_crowded()

    def set_num_threads(self, n: int) -> None:
        thread_pool.set_num_threads(n)

    def get_num_threads(self) -> int:
        return thread_pool.get_num_threads()

    def set_flush_denormal(self, mode: bool) -> bool:
        return thread_pool.set_flush_denormal(mode)


BACKEND = CpuBackend()
