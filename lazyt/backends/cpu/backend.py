"""The CPU as a backend: machine code by LLVM on native threads, with a pool of host memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lazyt.backends.cpu import binding, engine, memory, thread_pool
from lazyt.backends.cpu.codegen import needs
from lazyt.backends.cpu.executor import Executable
from lazyt.backends.cpu.library import attention, bit_packing, products, scan, scatter, sorting
from lazyt.backends.cpu.parallel_copy import copied
from lazyt.backends.interface import Capabilities, HostAllocator, HostBackend, Statistics
from lazyt.config import general as settings

if TYPE_CHECKING:
    import numpy as np

    from lazyt.ir.graph import Graph
    from lazyt.ir.passes.schedule import Schedule

    Array = np.ndarray[Any, Any]

NAME = memory.Buffer.device
_CAPABILITIES = Capabilities(
    convolutions=True, attention=attention.calls, epilogues=True, stage_reuse=True, vector_products=True,
    half_products=True, share=needs.share_of, first_run=True, replay=True, donation=True,
)  # fmt: skip
# With `no-gemm` there is no generated code for convolutions, nor for products of halves.
_WITHOUT_GEMM = replace(_CAPABILITIES, convolutions=False, half_products=False)


class PoolAllocator(HostAllocator):
    """Buffers of the one pool (memory.py)."""

    def allocate(self, nbytes: int, device: str) -> memory.Buffer:
        return memory.allocate(nbytes)

    def from_host(self, array: Array, device: str) -> memory.Buffer:
        return copied(array)

    def to_host(self, buffer: memory.Buffer, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        return memory.as_ndarray(buffer, dtype, shape)

    def wrap(self, array: Array) -> memory.ExternalBuffer:
        return memory.wrap_external(array.__array_interface__["data"][0], array.nbytes, array)

    def block(self, nbytes: int) -> int:
        return memory.class_size(nbytes)

    def statistics(self, device: str) -> Statistics:
        return Statistics(memory.allocated(), memory.reserved())

    def peak(self) -> int:
        return memory.peak()

    def reset_peak(self) -> None:
        memory.reset_peak()

    def set_limit(self, nbytes: int | None) -> None:
        memory.set_limit(nbytes)

    def empty_cache(self) -> None:
        memory.empty_cache()


class CpuBackend(HostBackend):
    """The host's processors."""

    name = NAME
    allocator = PoolAllocator()
    dlpack_type = 1  # kDLCPU
    work_sizes = (
        (binding, "GRAIN"), (binding, "DONATED"), (bit_packing, "GRAIN"), (scan, "GRAIN"), (scatter, "GRAIN"),
        (sorting, "GRAIN"), (products, "PRODUCT_GRAIN"),
    )  # fmt: skip

    def capabilities(self, device: str) -> Capabilities:
        return _CAPABILITIES if settings["gemm"] else _WITHOUT_GEMM

    def compile(self, schedule: Schedule, device: str) -> Executable:
        return Executable(schedule, settings["native"], settings["gemm"], settings["blas"])

    def prefetch(self, graph: Graph) -> None:
        attention.begin(graph)

    def is_crowded(self) -> bool:
        return engine.is_crowded()

    def set_num_threads(self, n: int) -> None:
        thread_pool.set_num_threads(n)

    def get_num_threads(self) -> int:
        return thread_pool.get_num_threads()


BACKEND = CpuBackend()
