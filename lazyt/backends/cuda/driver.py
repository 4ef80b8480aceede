"""What the backend asks of CUDA, through CuPy: memory, copies, code, launches, products. Nothing else imports CuPy.

Tests put another driver in its place (`use`), which runs the same source on the CPU.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import math
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lazyt.backends.cuda import engine
from lazyt.backends.rules.elements import BFLOAT16
from lazyt.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    Array = np.ndarray[Any, Any]

# Turing: the first with all that the kernels use.
OLDEST = 75


@dataclass(frozen=True, slots=True)
class Properties:
    """A device: its name, compute capability (90 for 9.0), multiprocessors, and shared memory that a block may have."""

    name: str
    capability: int
    processors: int
    shared: int


@dataclass(frozen=True, slots=True)
class Product:
    """C = A @ B over a batch: row-major matrices, each transposed or not, by address, leading dimension and stride."""

    dtype: np.dtype
    m: int
    n: int
    k: int
    a: int
    b: int
    c: int
    a_leading: int
    b_leading: int
    a_transposed: bool
    b_transposed: bool
    batch: int
    a_stride: int
    b_stride: int
    c_stride: int
    tf32: bool


class Driver(Protocol):
    def count(self) -> int: ...
    def properties(self, device: int) -> Properties: ...
    def allocate(self, device: int, nbytes: int) -> tuple[int, object]: ...
    def free_cached(self, device: int) -> None: ...
    def write(self, device: int, address: int, array: Array) -> None: ...
    def read(self, device: int, address: int, array: Array) -> None: ...
    def load(self, device: int, source: str, kernels: Mapping[str, int]) -> dict[str, Any]: ...
    def launch(self, device: int, function: Any, blocks: int, threads: int, shared: int, arguments: int) -> None: ...
    def multiply(self, device: int, product: Product) -> None: ...
    def wait(self, device: int) -> None: ...
    def library(self, device: int) -> AbstractContextManager[Any]: ...
    def array(
        self, device: int, address: int, dtype: np.dtype, shape: Sequence[int], strides: Sequence[int] | None = None
    ) -> Any: ...


class CupyDriver:
    """CUDA by way of CuPy: its memory pool, its current stream, cuBLAS."""

    def __init__(self) -> None:
        try:
            self.cupy = importlib.import_module("cupy")
            self.cuda = importlib.import_module("cupy.cuda")
            self.driver = importlib.import_module("cupy_backends.cuda.api.driver")
        except ImportError as error:
            raise DeviceError(f"cuda needs CuPy, which cannot be imported ({error}): {engine.INSTALL}") from error
        self.runtime = self.cuda.runtime

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

    def properties(self, device: int) -> Properties:
        found = self.runtime.getDeviceProperties(device)
        attribute = functools.partial(self.runtime.deviceGetAttribute, device=device)
        return Properties(
            found["name"].decode(),
            10 * found["major"] + found["minor"],
            found["multiProcessorCount"],
            attribute(self.runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin),
        )

    def allocate(self, device: int, nbytes: int) -> tuple[int, object]:
        with self.cuda.Device(device):
            try:
                block = self.cuda.alloc(nbytes)
            except self.cuda.memory.OutOfMemoryError as error:
                raise MemoryError(str(error)) from error
        return int(block.ptr), block

    def free_cached(self, device: int) -> None:
        with self.cuda.Device(device):
            self.cupy.get_default_memory_pool().free_all_blocks()

    def write(self, device: int, address: int, array: Array) -> None:
        with self.cuda.Device(device):
            stream = self.cuda.get_current_stream()
            self.runtime.memcpyAsync(
                address, array.ctypes.data, array.nbytes, self.runtime.memcpyHostToDevice, stream.ptr
            )
            # The host's memory may change when we return.
            stream.synchronize()

    def read(self, device: int, address: int, array: Array) -> None:
        with self.cuda.Device(device):
            stream = self.cuda.get_current_stream()
            self.runtime.memcpyAsync(
                array.ctypes.data, address, array.nbytes, self.runtime.memcpyDeviceToHost, stream.ptr
            )
            stream.synchronize()

    def load(self, device: int, source: str, kernels: Mapping[str, int]) -> dict[str, Any]:
        """The functions of a program; they keep its module loaded."""
        properties = self.properties(device)
        found = engine.compile_program(source, properties.capability)
        with self.cuda.Device(device):
            module = self.cuda.function.Module()
            module.load(found.cubin)
            functions = {name: module.get_function(name) for name in kernels}
            for function in functions.values():
                # What a block may have unasked is less than what it may ask for.
                self.driver.funcSetAttribute(function.ptr, _DYNAMIC_SHARED, properties.shared - _STATIC_SHARED)
        return functions

    def launch(self, device: int, function: Any, blocks: int, threads: int, shared: int, arguments: int) -> None:
        """`arguments` is the address of the kernel's one parameter, which is copied before this returns."""
        parameters = (ctypes.c_void_p * 1)(arguments)
        with self.cuda.Device(device):
            stream = self.cuda.get_current_stream()
            address = ctypes.addressof(parameters)
            self.driver.launchKernel(function.ptr, blocks, 1, 1, threads, 1, 1, shared, stream.ptr, address, 0)

    def multiply(self, device: int, product: Product) -> None:
        """cuBLAS is column-major: its C' = B' A' is our C = A B."""
        p, blas, r = product, self.cuda.cublas, self.runtime
        kinds = {
            np.dtype(np.float16): (r.CUDA_R_16F, blas.CUBLAS_COMPUTE_32F, np.float32),
            BFLOAT16: (r.CUDA_R_16BF, blas.CUBLAS_COMPUTE_32F, np.float32),
            np.dtype(np.float32): (r.CUDA_R_32F, blas.CUBLAS_COMPUTE_32F, np.float32),
            np.dtype(np.float64): (r.CUDA_R_64F, blas.CUBLAS_COMPUTE_64F, np.float64),
            np.dtype(np.complex64): (r.CUDA_C_32F, blas.CUBLAS_COMPUTE_32F, np.complex64),
            np.dtype(np.complex128): (r.CUDA_C_64F, blas.CUBLAS_COMPUTE_64F, np.complex128),
        }
        kind, compute, scalar = kinds[p.dtype]
        if p.tf32:
            compute = blas.CUBLAS_COMPUTE_32F_FAST_TF32
        one, zero = np.ones(1, scalar), np.zeros(1, scalar)
        with self.cuda.Device(device) as current:
            blas.gemmStridedBatchedEx(
                current.cublas_handle,
                blas.CUBLAS_OP_T if p.b_transposed else blas.CUBLAS_OP_N,
                blas.CUBLAS_OP_T if p.a_transposed else blas.CUBLAS_OP_N,
                p.n, p.m, p.k, one.ctypes.data,
                p.b, kind, p.b_leading, p.b_stride,
                p.a, kind, p.a_leading, p.a_stride, zero.ctypes.data,
                p.c, kind, max(p.n, 1), p.c_stride, p.batch, compute, -1,
            )  # fmt: skip

    @contextmanager
    def library(self, device: int) -> Iterator[Any]:
        """CuPy, on a device, raising what NumPy raises for a singular matrix."""
        with self.cuda.Device(device), importlib.import_module("cupyx").errstate(linalg="raise"):
            yield self.cupy

    def array(
        self, device: int, address: int, dtype: np.dtype, shape: Sequence[int], strides: Sequence[int] | None = None
    ) -> Any:
        """CuPy's view of memory that somebody else keeps; strides are in bytes."""
        nbytes = max(math.prod(shape), 1) * dtype.itemsize
        memory = self.cuda.UnownedMemory(address, nbytes, None, device)
        steps = None if strides is None else tuple(strides)
        return self.cupy.ndarray(tuple(shape), dtype, self.cuda.MemoryPointer(memory, 0), steps)

    def wait(self, device: int) -> None:
        with self.cuda.Device(device):
            self.cuda.get_current_stream().synchronize()


_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
# What a kernel declares itself: partial sums of its folds.
_STATIC_SHARED = 16 << 10

_lock = threading.Lock()
_driver: Driver | None = None


def get() -> Driver:
    """The driver; DeviceError where CuPy or a GPU is missing."""
    global _driver
    with _lock:
        if _driver is None:
            _driver = CupyDriver()
        return _driver


def use(driver: Driver | None) -> Driver | None:
    """Put another driver in place (None: CuPy's when it is next wanted), and give the one before."""
    global _driver
    with _lock:
        before, _driver = _driver, driver
        return before
