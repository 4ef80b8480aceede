"""The backend's interface to CUDA, through CuPy: memory, copies, streams, code, launches, products, graphs, exchange.

Only `wait`, `wait_event` and allocation wait for the device. Tests install another driver (`use`), which runs the same
source on the CPU. Only this file and `engine.py` import CuPy, and only this file imports cuDNN.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lazyt.backends.cuda import engine
from lazyt.backends.cuda.driver_api import GraphError, NativeGraph
from lazyt.errors import DeviceError
from lazyt.forking import process_lock
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lazyt.backends.cuda.graph_nodes import KernelNode, Ordered, Product, Work

# Turing: the first with all that the kernels use.
OLDEST = 75


@dataclass(frozen=True, slots=True)
class Properties:
    """A device: its name, compute capability (90 for 9.0), multiprocessors, shared memory for a launch to ask for."""

    name: str
    capability: int
    processors: int
    shared: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """Memory of another library: the device's number, address and layout, and the object that keeps it."""

    device: int
    address: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: np.dtype
    owner: object


class Driver(Protocol):
    # What the calls below raise for a device that fails.
    errors: tuple[type[Exception], ...]
    keeps_freed: bool  # whether freed memory is kept for runs to come (see free_blocks.py)

    def count(self) -> int: ...
    def properties(self, device: int) -> Properties: ...
    def on(self, device: int) -> AbstractContextManager[Any]:
        """Make a device current; returns the thread's current stream there, as `stream` below."""
        ...

    def allocate(self, device: int, nbytes: int) -> tuple[int, object]:
        """Memory of the current stream's pool, and what keeps it. MemoryError."""
        ...

    def free_cached(self, device: int) -> None: ...

    def usage(self, device: int) -> tuple[int, int]:
        """Bytes of its pool that are allocated, and that the device gave it."""

    def pinned(self, nbytes: int) -> tuple[int, object]:
        """Pinned host memory for asynchronous copies, and the object that keeps it."""
        ...

    def to_device(self, stream: Any, address: int, host: int, nbytes: int) -> None: ...
    def to_host(self, stream: Any, host: int, address: int, nbytes: int) -> None: ...
    def clear(self, stream: Any, address: int, nbytes: int) -> None: ...
    def new_stream(self, device: int) -> Any:
        """A stream that nothing is ordered with but by events."""
        ...

    def record(self, stream: Any) -> Any: ...
    def is_done(self, event: Any) -> bool: ...
    def wait_event(self, event: Any) -> None: ...
    def after(self, stream: Any, event: Any) -> None: ...
    def wait(self, stream: Any) -> None: ...
    def load(self, device: int, source: str, kernels: Mapping[str, int]) -> dict[str, Any]: ...
    def launch(self, stream: Any, node: KernelNode) -> None:
        """Enqueue a kernel; its arguments are copied before this returns."""
        ...

    def multiply(self, device: int, stream: Any, product: Product) -> None: ...
    def graph(self, device: int, nodes: Sequence[Ordered]) -> Any:
        """A graph of these nodes, their arguments copied. Raises GraphError where there are none, or not of this."""
        ...

    def update(self, graph: Any, i: int, work: Work) -> None:
        """Give a node other arguments, for runs to come. Raises GraphError where that is not possible."""
        ...

    def run_graph(self, stream: Any, graph: Any, answers: list[Any]) -> None:
        """Launch it; the call that does so appends its answer before signals are looked at: false where all is well."""

    def library(self, device: int) -> AbstractContextManager[Any]:
        """CuPy, working on the current stream."""
        ...

    def view(
        self, device: int, address: int, dtype: np.dtype, shape: Sequence[int], strides: Sequence[int] | None = None
    ) -> Any:
        """CuPy's view of memory that another object keeps; strides are in bytes."""
        ...

    def array(self, device: int, buffer: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """An array of the library behind this driver over a buffer, which it keeps; it speaks DLPack."""
        ...

    def adopt(self, x: Any, copy: bool) -> Adopted:
        """The C-contiguous memory that an object hands out by DLPack or `__cuda_array_interface__`, or a copy of it."""
        ...

    def cudnn(self) -> Any:
        """cuDNN's front end, its library loaded. Raises DeviceError where either is missing."""
        ...

    def name_of(self, stream: Any) -> int:
        """A stream as `__cuda_array_interface__` has it."""
        ...


class CupyDriver:
    """CUDA through CuPy: its memory pools, the caller's current stream, cuBLAS."""

    keeps_freed = True

    def __init__(self) -> None:
        try:
            self.cupy = importlib.import_module("cupy")
            self.cuda = importlib.import_module("cupy.cuda")
            self.driver = importlib.import_module("cupy_backends.cuda.api.driver")
            self.runtime = self.cuda.runtime
            self.errors: tuple[type[Exception], ...] = (
                self.driver.CUDADriverError, self.runtime.CUDARuntimeError, self.cuda.cublas.CUBLASError,
            )  # fmt: skip
        except (ImportError, AttributeError, OSError, RuntimeError) as error:
            raise DeviceError(f"cuda needs CuPy, which cannot be imported ({error}): {engine.INSTALL}") from error
        self._local = threading.local()
        # NOTE: graphs name the workspace by its address, so it stays.
        self._spare: dict[int, Any] = {}
        self._properties: dict[int, Properties] = {}

    def count(self) -> int:
        try:
            return int(self.runtime.getDeviceCount())
        except self.runtime.CUDARuntimeError as error:
            text = str(error)
            if "InsufficientDriver" in text:
                version = self.runtime.runtimeGetVersion() // 1000
                raise DeviceError(
                    f"cuda: no NVIDIA driver, or one too old for CUDA {version} ({text}); "
                    "install a driver, or the CuPy of an older CUDA"
                ) from error
            raise DeviceError(f"cuda: no GPU can be used ({text})") from error
        except RuntimeError as error:
            # CuPy finds its libraries when they are first called.
            raise DeviceError(f"cuda: CuPy cannot load CUDA's libraries ({error}): {engine.INSTALL}") from error

    def properties(self, device: int) -> Properties:
        known = self._properties.get(device)
        if known is None:
            found = self.runtime.getDeviceProperties(device)
            most = self.runtime.deviceGetAttribute(self.runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin, device)
            capability, processors = 10 * found["major"] + found["minor"], found["multiProcessorCount"]
            known = Properties(found["name"].decode(), capability, processors, most - _STATIC_SHARED)
            self._properties[device] = known
        return known

    def on(self, device: int) -> AbstractContextManager[Any]:
        if device in self._local.__dict__.get("initialized", ()) and self.runtime.getDevice() == device:
            # Mostly it is current already: there is nothing to change, nor to put back.
            return contextlib.nullcontext(self.cuda.get_current_stream())
        return self._on(device)

    @contextlib.contextmanager
    def _on(self, device: int) -> Iterator[Any]:
        with self.cuda.Device(device):
            initialized = self._local.__dict__.setdefault("initialized", set())
            if device not in initialized:
                # The driver's calls need the device's context, which the runtime makes for a thread at its first call.
                self.runtime.setDevice(device)
                self.runtime.free(0)
                initialized.add(device)
            yield self.cuda.get_current_stream()

    def allocate(self, device: int, nbytes: int) -> tuple[int, object]:
        try:
            block = self.cuda.alloc(nbytes)
        except self.cuda.memory.OutOfMemoryError as error:
            raise MemoryError(str(error)) from error
        return int(block.ptr), block

    def free_cached(self, device: int) -> None:
        self.cupy.get_default_memory_pool().free_all_blocks()

    def usage(self, device: int) -> tuple[int, int]:
        pool = self.cupy.get_default_memory_pool()
        with self.cuda.Device(device):
            return int(pool.used_bytes()), int(pool.total_bytes())

    def pinned(self, nbytes: int) -> tuple[int, object]:
        memory = self.cuda.alloc_pinned_memory(nbytes)
        return int(memory.ptr), memory

    def to_device(self, stream: Any, address: int, host: int, nbytes: int) -> None:
        self.runtime.memcpyAsync(address, host, nbytes, self.runtime.memcpyHostToDevice, stream.ptr)

    def to_host(self, stream: Any, host: int, address: int, nbytes: int) -> None:
        self.runtime.memcpyAsync(host, address, nbytes, self.runtime.memcpyDeviceToHost, stream.ptr)

    def clear(self, stream: Any, address: int, nbytes: int) -> None:
        self.runtime.memsetAsync(address, 0, nbytes, stream.ptr)

    def new_stream(self, device: int) -> Any:
        with self.cuda.Device(device):
            return self.cuda.Stream(non_blocking=True)

    def record(self, stream: Any) -> Any:
        event = self.cuda.Event(disable_timing=True)
        event.record(stream)
        return event

    def is_done(self, event: Any) -> bool:
        return bool(event.done)

    def wait_event(self, event: Any) -> None:
        event.synchronize()

    def after(self, stream: Any, event: Any) -> None:
        stream.wait_event(event)

    def wait(self, stream: Any) -> None:
        stream.synchronize()

    def load(self, device: int, source: str, kernels: Mapping[str, int]) -> dict[str, Any]:
        """The functions of a program; they keep its module loaded."""
        properties = self.properties(device)
        found = engine.compile_program(source, properties.capability)
        module = self.cuda.function.Module()
        module.load(found.cubin)
        functions = {name: module.get_function(name) for name in kernels}
        for function in functions.values():
            # What a block may have unasked is less than what it may ask for.
            own = self.driver.funcGetAttribute(_OWN_SHARED, function.ptr)
            most = properties.shared + _STATIC_SHARED - own
            self.driver.funcSetAttribute(function.ptr, _DYNAMIC_SHARED, most)
        return functions

    def launch(self, stream: Any, node: KernelNode) -> None:
        f = node.function.ptr
        self.driver.launchKernel(
            f, node.blocks, 1, 1, node.threads, 1, 1, node.shared, stream.ptr, node.parameters, 0
        )  # fmt: skip

    def multiply(self, device: int, stream: Any, product: Product) -> None:
        # CuPy gives the handle the current stream, which is this one.
        handle = self.cuda.device.get_cublas_handle()
        with self._gemm(handle, product) as arguments:
            self.cuda.cublas.gemmStridedBatchedEx(handle, *arguments)

    @contextlib.contextmanager
    def _gemm(self, handle: int, p: Product) -> Iterator[tuple[int, ...]]:
        """The arguments of gemmStridedBatchedEx after the handle. cuBLAS is column-major: C' = B' A' is C = A B."""
        blas, r = self.cuda.cublas, self.runtime
        kinds = {
            np.dtype(np.float16): (r.CUDA_R_16F, blas.CUBLAS_COMPUTE_32F, np.float32),
            dtypes.bfloat16: (r.CUDA_R_16BF, blas.CUBLAS_COMPUTE_32F, np.float32),
            np.dtype(np.float32): (r.CUDA_R_32F, blas.CUBLAS_COMPUTE_32F, np.float32),
            np.dtype(np.float64): (r.CUDA_R_64F, blas.CUBLAS_COMPUTE_64F, np.float64),
            np.dtype(np.complex64): (r.CUDA_C_32F, blas.CUBLAS_COMPUTE_32F, np.complex64),
            np.dtype(np.complex128): (r.CUDA_C_64F, blas.CUBLAS_COMPUTE_64F, np.complex128),
        }
        kind, compute, scalar = kinds[p.dtype]
        read = kinds[p.read][0]
        if p.tf32:
            compute = blas.CUBLAS_COMPUTE_32F_FAST_TF32
        one, zero = np.ones(1, scalar), np.zeros(1, scalar)
        halves = p.dtype.itemsize == 2
        usual = blas.getMathMode(handle) if halves else 0
        if halves:
            # Parts of a sum that several blocks compute would be added as halves: the result is rounded once.
            blas.setMathMode(handle, usual | _WHOLE_SUMS)
        try:
            yield (
                blas.CUBLAS_OP_T if p.b_transposed else blas.CUBLAS_OP_N,
                blas.CUBLAS_OP_T if p.a_transposed else blas.CUBLAS_OP_N,
                p.n, p.m, p.k, one.ctypes.data,
                p.b, read, p.b_leading, p.b_stride,
                p.a, read, p.a_leading, p.a_stride, zero.ctypes.data,
                p.c, kind, max(p.n, 1), p.c_stride, p.batch, compute, -1,
            )  # fmt: skip
        finally:
            if halves:
                blas.setMathMode(handle, usual)

    # Graphs

    @contextlib.contextmanager
    def library(self, device: int) -> Iterator[Any]:
        """It raises what NumPy raises for a singular matrix."""
        with self.cuda.Device(device), importlib.import_module("cupyx").errstate(linalg="raise"):
            yield self.cupy

    def view(
        self, device: int, address: int, dtype: np.dtype, shape: Sequence[int], strides: Sequence[int] | None = None
    ) -> Any:
        memory = self.cuda.UnownedMemory(address, max(math.prod(shape), 1) * dtype.itemsize, None, device)
        steps = None if strides is None else tuple(strides)
        return self.cupy.ndarray(tuple(shape), dtype, self.cuda.MemoryPointer(memory, 0), steps)

    def graph(self, device: int, nodes: Sequence[Ordered]) -> NativeGraph:
        return NativeGraph(nodes, partial(self._capturing, device))

    def update(self, graph: NativeGraph, i: int, work: Work) -> None:
        graph.update(i, work)

    def run_graph(self, stream: Any, graph: NativeGraph, answers: list[Any]) -> None:
        try:
            graph.launch(stream.ptr, answers)
        except GraphError as error:
            raise DeviceError(f"cuda: a graph could not be launched ({error})") from error

    # Other libraries

    def array(self, device: int, buffer: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        memory = self.cuda.UnownedMemory(buffer.address, buffer.nbytes, buffer, device)
        return self.cupy.ndarray(shape, dtype, self.cuda.MemoryPointer(memory, 0))

    def adopt(self, x: Any, copy: bool) -> Adopted:
        # Both have the current stream wait for the one that the memory is written on.
        a = self.cupy.from_dlpack(x) if hasattr(x, "__dlpack__") else self.cupy.asarray(x)
        with self.cuda.Device(a.device.id):
            # Kernels read 16 bytes at once: what begins in between is copied too.
            a = a.copy(order="C") if copy or a.data.ptr % ALIGNED else self.cupy.ascontiguousarray(a)
        return Adopted(a.device.id, int(a.data.ptr), int(a.nbytes), tuple(a.shape), np.dtype(a.dtype), a)

    def cudnn(self) -> Any:
        try:
            # NOTE: it ends the process where it does not find cuBLAS, so that is loaded first.
            self.cuda.device.get_cublas_handle()
            found = importlib.import_module("cudnn")
            found.backend_version()
        except (ImportError, AttributeError, AssertionError, OSError, RuntimeError) as error:
            # It searches for libcudnn by itself when it is imported or first called.
            raise DeviceError(f"cuDNN cannot be loaded ({error}): pip install 'lazyt[cudnn]'") from error
        return found

    def name_of(self, stream: Any) -> int:
        # 0 is not allowed there: 1 is the default stream.
        return int(stream.ptr) or 1

    @contextlib.contextmanager
    def _capturing(self, device: int, product: Product) -> Iterator[tuple[int, int, int, int, int, tuple[int, ...]]]:
        """What a product is captured with: a stream of its own, cuBLAS's version and handle, workspace, arguments."""
        if device not in self._spare:
            try:
                self._spare[device] = self.cuda.Stream(non_blocking=True), self.cuda.alloc(WORKSPACE)
            except self.cuda.memory.OutOfMemoryError as error:
                raise GraphError(f"no memory for the workspace of cuBLAS: {error}") from error
        stream, workspace = self._spare[device]
        handle = self.cuda.device.get_cublas_handle()
        with self._gemm(handle, product) as arguments:
            version = self.cuda.cublas.getVersion(handle)
            yield stream.ptr, version, handle, int(workspace.ptr), WORKSPACE, arguments


# `mapping.py` assumes this alignment of a buffer's first element.
ALIGNED = 16
# Memory that cuBLAS may use in a graph: what it asks for on Hopper.
WORKSPACE = 32 << 20
_WHOLE_SUMS = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
_OWN_SHARED = 1  # CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: what a kernel declares itself
_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
# Reserve for that, in addition to a launch's own request: partial sums of folds.
_STATIC_SHARED = 16 << 10

_lock = process_lock()
_driver: Driver | None = None


def get() -> Driver:
    """The driver; DeviceError where CuPy is missing."""
    global _driver
    with _lock:
        if _driver is None:
            _driver = CupyDriver()
        return _driver


def use(driver: Driver | None) -> Driver | None:
    """Install another driver (None: CuPy's, at its next use), and return the one before."""
    global _driver
    with _lock:
        before, _driver = _driver, driver
        return before
