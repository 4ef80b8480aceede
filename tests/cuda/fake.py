"""A driver without a GPU: memory is NumPy's, programs run as C++ (shim.py). For tests of all that stands above it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from lazyt.backends.cuda.driver import Product, Properties
from tests.cuda.shim import built

ALIGNMENT = 256


class FakeDriver:
    """Two devices with separate memory: an address of the other one, or of the host, is an error."""

    def __init__(self) -> None:
        self.launches = self.products = self.loads = self.library_calls = 0
        self.tf32 = False  # of the last product
        self.limit = 1 << 30
        self.used = 0
        self.freed_cache = 0
        self._spans: dict[int, list[tuple[int, int]]] = {0: [], 1: []}

    def count(self) -> int:
        return 2

    def properties(self, device: int) -> Properties:
        return Properties("a fake GPU", 90, 2, 64 << 10)

    def allocate(self, device: int, nbytes: int) -> tuple[int, object]:
        if self.used + nbytes > self.limit:
            raise MemoryError(f"{self.used} of {self.limit} bytes are in use")
        # What nobody has written is not zero.
        memory = np.full(nbytes + ALIGNMENT, 0xA5, np.uint8)
        address = -(-memory.ctypes.data // ALIGNMENT) * ALIGNMENT
        self.used += nbytes
        self._spans[device].append((address, address + nbytes))
        return address, _Block(self, device, memory, (address, address + nbytes))

    def free_cached(self, device: int) -> None:
        self.freed_cache += 1

    def _check(self, device: int, address: int, nbytes: int) -> None:
        inside = any(low <= address and address + nbytes <= high for low, high in self._spans[device])
        assert inside, f"{nbytes} bytes at {address:#x} are not memory of device {device}"

    def write(self, device: int, address: int, array: np.ndarray) -> None:
        self._check(device, address, array.nbytes)
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def read(self, device: int, address: int, array: np.ndarray) -> None:
        self._check(device, address, array.nbytes)
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def load(self, device: int, source: str, kernels: Mapping[str, int]) -> dict[str, Any]:
        self.loads += 1
        library = built(source, kernels)
        return {name: getattr(library, f"run_{name}") for name in kernels}

    def launch(self, device: int, function: Any, blocks: int, threads: int, shared: int, arguments: int) -> None:
        self.launches += 1
        low, high = (ctypes.c_void_p * 64)(), (ctypes.c_void_p * 64)()
        # An access may begin outside its buffer (a pad does), so here all memory of the device is allowed;
        # tests/test_cuda_emit.py checks each access against its own buffer.
        for i in range(64):
            low[i], high[i] = min(self._spans[device])[0], max(self._spans[device])[1]
        kept = np.full(shared + 16, 0xA5, np.uint8)
        function.restype = ctypes.c_char_p
        failure = function(ctypes.c_void_p(arguments), blocks, threads, ctypes.c_void_p(kept.ctypes.data), low, high)
        assert failure is None, failure.decode()

    def multiply(self, device: int, product: Product) -> None:
        self.products += 1
        self.tf32 = product.tf32
        p = product
        a = self._matrices(p.a, p.dtype, p.batch, p.a_stride, p.m, p.k, p.a_leading, p.a_transposed)
        b = self._matrices(p.b, p.dtype, p.batch, p.b_stride, p.k, p.n, p.b_leading, p.b_transposed)
        c = self._matrices(p.c, p.dtype, p.batch, p.c_stride, p.m, p.n, max(p.n, 1), False)
        wide = np.float32 if p.dtype.itemsize == 2 else p.dtype
        c[...] = np.matmul(a.astype(wide), b.astype(wide)).astype(p.dtype)

    @contextmanager
    def library(self, device: int) -> Iterator[Any]:
        """NumPy, which has what the table of library calls asks of CuPy."""
        self.library_calls += 1
        yield np

    def array(
        self, device: int, address: int, dtype: np.dtype, shape: Sequence[int], strides: Sequence[int] | None = None
    ) -> np.ndarray:
        size = int(np.prod(shape)) * dtype.itemsize
        if strides is not None:
            size = (sum(s * (n - 1) for s, n in zip(strides, shape, strict=True)) + dtype.itemsize) if size else 0
        if size:
            self._check(device, address, size)
        raw = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8)), (size,)).view(dtype)
        return raw.reshape(shape) if strides is None else np.lib.stride_tricks.as_strided(raw, shape, strides)

    def _matrices(
        self,
        address: int,
        dtype: np.dtype,
        batch: int,
        stride: int,
        rows: int,
        columns: int,
        leading: int,
        turned: bool,
    ) -> np.ndarray:
        size = dtype.itemsize
        last = (batch - 1) * stride + ((columns - 1) * leading + rows if turned else (rows - 1) * leading + columns)
        raw = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8)), (last * size,))
        strides = (stride * size, size, leading * size) if turned else (stride * size, leading * size, size)
        return np.lib.stride_tricks.as_strided(raw.view(dtype), (batch, rows, columns), strides)

    def wait(self, device: int) -> None:
        return None


class _Block:
    """Gives its memory back when the last reference goes."""

    def __init__(self, driver: FakeDriver, device: int, memory: np.ndarray, span: tuple[int, int]) -> None:
        self.driver, self.device, self.memory, self.span = driver, device, memory, span

    def __del__(self) -> None:
        self.driver.used -= self.span[1] - self.span[0]
        self.driver._spans[self.device].remove(self.span)
