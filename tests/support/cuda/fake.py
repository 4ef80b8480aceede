"""A driver without a GPU: memory is NumPy's, programs run as C++ (shim.py). For tests of all that stands above it.

Nothing runs when it is enqueued: a stream is a list of what is to do, done when somebody waits for it. So a value that
is read too early, a buffer of the host that changes too early, or a stream that is not waited for gives a wrong result.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.backends.cuda import cupy_driver as driver
from lazyt.backends.cuda.cupy_driver import Adopted, Properties
from lazyt.backends.cuda.driver_api import GraphError
from lazyt.backends.cuda.graph_nodes import KernelNode, Ordered, Product, Work
from lazyt.errors import DeviceError
from lazyt.runtime import plan_cache
from lazyt.tracing.trace import local
from tests.support.cuda.shim import built

ALIGNMENT = 256


@dataclass(eq=False)
class FakeStream:
    todo: list[Callable[[], None]] = field(default_factory=list)
    done: int = 0

    def drain(self, upto: int | None = None) -> None:
        while self.done < (len(self.todo) if upto is None else upto):
            self.done += 1
            self.todo[self.done - 1]()
            self.todo[self.done - 1] = _nothing


def _nothing() -> None:
    return None


class FakeFailure(Exception):
    """What CUDA would report."""


class FakeGraph:
    """Nodes with their arguments, as they were when they were set."""

    def __init__(self, driver: FakeDriver, device: int, nodes: Sequence[Ordered]) -> None:
        self.driver, self.device = driver, device
        self.after = [before for _, before in nodes]
        self.works = [driver.captured(device, work) for work, _ in nodes]
        self.updates = 0

    def run(self) -> None:
        """Each node behind those that it names, otherwise the last first: an order that is not promised is not kept."""
        left = set(range(len(self.works)))
        while left:
            ready = max(i for i in left if not left & set(self.after[i]))
            left.remove(ready)
            self.works[ready]()


class FakeDriver:
    """Two devices with separate memory: an address of the other one, or of the host, is an error."""

    errors: tuple[type[Exception], ...] = (FakeFailure,)
    keeps_freed = False  # so that freed memory is known

    def __init__(self) -> None:
        self.launches = self.products = self.loads = self.graphs = self.graph_runs = self.waits = self.library_calls = 0
        self.reads = 0  # copies to the host
        self.asked: list[Product] = []
        self.tf32 = False  # of the last product
        self.limit = 1 << 30
        self.used = 0
        self.freed_cache = 0
        self.refuse_graphs = self.refuse_products = False
        self.stream = FakeStream()  # the caller's
        self.failure = ""  # of the next launch
        self.front_end: Any = None  # cuDNN's
        self._spans: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
        self._parked: list[Any] = []  # freed, but named by what is still to do
        self._streams: list[FakeStream] = [self.stream]

    def count(self) -> int:
        return 2

    def properties(self, device: int) -> Properties:
        return Properties("a fake GPU", 90, 2, 64 << 10)

    @contextlib.contextmanager
    def on(self, device: int) -> Iterator[FakeStream]:
        if self.stream not in self._streams:
            self._streams.append(self.stream)
        yield self.stream

    # Memory

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

    def usage(self, device: int) -> tuple[int, int]:
        return self.used, self.limit

    def pinned(self, nbytes: int) -> tuple[int, object]:
        memory = np.full(nbytes, 0x5A, np.uint8)
        return memory.ctypes.data, memory

    def park(self, device: int, memory: np.ndarray, span: tuple[int, int]) -> None:
        """Freed memory stays what it was for work that was enqueued before."""
        self.used -= span[1] - span[0]
        if any(s.done < len(s.todo) for s in self._streams):
            self._parked.append((device, memory, span))
        else:
            self._spans[device].remove(span)

    def _drained(self) -> None:
        if all(s.done == len(s.todo) for s in self._streams):
            for device, _, span in self._parked:
                self._spans[device].remove(span)
            self._parked.clear()

    def _check(self, device: int, address: int, nbytes: int) -> None:
        inside = any(low <= address and address + nbytes <= high for low, high in self._spans[device])
        assert inside, f"{nbytes} bytes at {address:#x} are not memory of device {device}"

    def _device_of(self, address: int, nbytes: int) -> int:
        found = [
            d for d in self._spans if any(low <= address and address + nbytes <= high for low, high in self._spans[d])
        ]
        assert found, f"{nbytes} bytes at {address:#x} are not memory of a device"
        return found[0]

    # Copies and order

    def to_device(self, stream: FakeStream, address: int, host: int, nbytes: int) -> None:
        self._device_of(address, nbytes)
        stream.todo.append(lambda: ctypes.memmove(address, host, nbytes) and None)

    def to_host(self, stream: FakeStream, host: int, address: int, nbytes: int) -> None:
        self.reads += 1
        self._device_of(address, nbytes)
        stream.todo.append(lambda: ctypes.memmove(host, address, nbytes) and None)

    def clear(self, stream: FakeStream, address: int, nbytes: int) -> None:
        self._device_of(address, nbytes)
        stream.todo.append(lambda: ctypes.memset(address, 0, nbytes) and None)

    def new_stream(self, device: int) -> FakeStream:
        self._streams.append(FakeStream())
        return self._streams[-1]

    def record(self, stream: FakeStream) -> tuple[FakeStream, int]:
        return stream, len(stream.todo)

    def is_done(self, event: tuple[FakeStream, int]) -> bool:
        return event[0].done >= event[1]

    def wait_event(self, event: tuple[FakeStream, int]) -> None:
        self.waits += 1
        event[0].drain(event[1])
        self._drained()

    def after(self, stream: FakeStream, event: tuple[FakeStream, int]) -> None:
        stream.todo.append(lambda: event[0].drain(event[1]))

    def wait(self, stream: FakeStream) -> None:
        self.waits += 1
        stream.drain()
        self._drained()

    # Code

    def load(self, device: int, source: str, kernels: Mapping[str, int]) -> dict[str, Any]:
        self.loads += 1
        library = built(source, kernels)
        return {name: getattr(library, f"run_{name}") for name in kernels}

    def launch(self, stream: FakeStream, node: KernelNode) -> None:
        if self.failure:
            text, self.failure = self.failure, ""
            raise FakeFailure(text)
        self.launches += 1
        stream.todo.append(self.captured(0, node))

    def multiply(self, device: int, stream: FakeStream, product: Product) -> None:
        self.products += 1
        stream.todo.append(self.captured(device, product))

    def captured(self, device: int, work: Work) -> Callable[[], None]:
        """What a node does, with the arguments as they are now."""
        if isinstance(work, Product):
            self.asked.append(work)
            return lambda: self._multiply(work)
        arguments = ctypes.c_void_p.from_address(work.parameters).value
        entries = np.ctypeslib.as_array((ctypes.c_int64 * work.entries).from_address(arguments or 0)).copy()
        return lambda: self._run(work, entries)

    def _run(self, node: KernelNode, entries: np.ndarray) -> None:
        low, high = (ctypes.c_void_p * 64)(), (ctypes.c_void_p * 64)()
        # An access may begin outside its buffer (a pad does), so here all memory of the devices is allowed;
        # tests/backends/cuda/test_cuda_emit.py checks each access against its own buffer.
        spans = [s for some in self._spans.values() for s in some]
        for i in range(64):
            low[i], high[i] = min(spans)[0], max(spans)[1]
        kept = np.full(node.shared + 16, 0xA5, np.uint8)
        run = node.function
        run.restype = ctypes.c_char_p
        at = ctypes.c_void_p(entries.ctypes.data)
        failure = run(at, node.blocks, node.threads, ctypes.c_void_p(kept.ctypes.data), low, high)
        assert failure is None, failure.decode()

    def _multiply(self, p: Product) -> None:
        self.tf32 = p.tf32
        a = self._matrices(p.a, p.read, p.batch, p.a_stride, p.m, p.k, p.a_leading, p.a_transposed)
        b = self._matrices(p.b, p.read, p.batch, p.b_stride, p.k, p.n, p.b_leading, p.b_transposed)
        c = self._matrices(p.c, p.dtype, p.batch, p.c_stride, p.m, p.n, max(p.n, 1), False)
        wide = np.float32 if p.read.itemsize == 2 else p.dtype
        c[...] = np.matmul(a.astype(wide), b.astype(wide)).astype(p.dtype)

    @contextlib.contextmanager
    def library(self, device: int) -> Iterator[Any]:
        """NumPy, which has what the table of library calls asks of CuPy; behind what was enqueued before."""
        self.library_calls += 1
        self.stream.drain()
        yield np

    def view(
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
        self._device_of(address, last * size)
        raw = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8)), (last * size,))
        strides = (stride * size, size, leading * size) if turned else (stride * size, leading * size, size)
        return np.lib.stride_tricks.as_strided(raw.view(dtype), (batch, rows, columns), strides)

    # Graphs

    def graph(self, device: int, nodes: Sequence[Ordered]) -> FakeGraph:
        if self.refuse_graphs:
            raise GraphError("libcuda.so.1: too old")
        if self.refuse_products and any(isinstance(work, Product) for work, _ in nodes):
            raise GraphError("cublasGemmStridedBatchedEx: error 7")
        self.graphs += 1
        return FakeGraph(self, device, nodes)

    def update(self, graph: FakeGraph, i: int, work: Work) -> None:
        if self.refuse_products and isinstance(work, Product):
            raise GraphError("cuGraphExecChildGraphNodeSetParams: error 910")
        graph.updates += 1
        graph.works[i] = self.captured(graph.device, work)

    def run_graph(self, stream: FakeStream, graph: FakeGraph, answers: list[Any]) -> None:
        if self.failure:
            text, self.failure = self.failure, ""
            raise FakeFailure(text)
        self.graph_runs += 1
        works, after = list(graph.works), graph.after
        launched = FakeGraph.__new__(FakeGraph)
        launched.works, launched.after = works, after
        answers.extend(map(stream.todo.append, (launched.run,)))

    # Other libraries

    def array(self, device: int, buffer: Any, shape: tuple[int, ...], dtype: np.dtype) -> FakeArray:
        return FakeArray(device, buffer.address, shape, dtype, buffer)

    def adopt(self, x: Any, copy: bool) -> Adopted:
        a = x.array if hasattr(x, "array") else x
        nbytes = int(np.prod(a.shape)) * a.dtype.itemsize
        if not copy:
            return Adopted(a.device, a.address, nbytes, a.shape, a.dtype, a)
        address, owner = self.allocate(a.device, nbytes)
        self.stream.todo.append(lambda: ctypes.memmove(address, a.address, nbytes) and None)
        return Adopted(a.device, address, nbytes, a.shape, a.dtype, (owner, a))

    def cudnn(self) -> Any:
        if self.front_end is None:
            raise DeviceError("there is none")
        return self.front_end

    def name_of(self, stream: Any) -> int:
        return 1


class FakeArray:
    """Another library's array over a device's memory: what CuPy would hand over and take."""

    def __init__(self, device: int, address: int, shape: tuple[int, ...], dtype: np.dtype, owner: object) -> None:
        self.device, self.address, self.shape, self.dtype, self.owner = device, address, shape, dtype, owner

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self, kwargs


@contextlib.contextmanager
def installed(fake: FakeDriver) -> Iterator[FakeDriver]:
    """The fake in the place of CuPy, and no plan that was made for another one."""
    lt.sync()
    before = driver.use(fake)
    _forget()
    try:
        yield fake
        lt.sync()
    finally:
        local.trace.start()
        _forget()
        driver.use(before)


def _forget() -> None:
    plan_cache._programs.clear()
    plan_cache._shown = None
    local.trace.reset_trie()


class _Block:
    """Gives its memory back when the last reference goes."""

    def __init__(self, driver: FakeDriver, device: int, memory: np.ndarray, span: tuple[int, int]) -> None:
        self.driver, self.device, self.memory, self.span = driver, device, memory, span

    def __del__(self) -> None:
        self.driver.park(self.device, self.memory, self.span)
