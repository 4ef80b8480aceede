"""A backend of lazyt to copy: two devices in NumPy's memory, with streams, staging memory and generated code."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from lazyt.backends import Capabilities, Event, KernelArguments, Pending, Properties, SmallBackend, Stream
from lazyt.ir import kernel as k
from lazyt.ir.kernel_interpreter import convert_scalar, evaluate_op
from lazyt.ir.library_calls import FUNCTIONS
from lazyt.ir.numpy_semantics import cast

Array = np.ndarray[Any, Any]

DEVICES, MEMORY = 2, 1 << 30


class ThreadStream(Stream):
    """An order of work: a thread that does one thing after another."""

    def __init__(self, backend: ExampleBackend, device: str) -> None:
        super().__init__(backend, device)
        self._todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._last = Pending()
        self._last.finish()
        threading.Thread(target=self._work, name=f"stream of {device}", daemon=True).start()

    def _work(self) -> None:
        while (work := self._todo.get()) is not None:
            work()

    def submit(self, work: Callable[[], object]) -> Pending:
        """Do this behind what was submitted before; what it raises is raised by who waits for it."""
        done = self._last = Pending()
        self._todo.put(lambda: done.run(work))
        return done

    def stop(self) -> None:
        self._todo.put(None)

    def synchronize(self) -> None:
        self.submit(lambda: None).wait()

    def query(self) -> bool:
        return self._last.is_done()


class ThreadEvent(Event):
    """A moment in a stream."""

    _done: Pending | None = None

    def _note(self) -> None:
        self._at = perf_counter()

    def record(self, stream: Stream) -> None:
        assert isinstance(stream, ThreadStream)
        self._at, self._done = None, stream.submit(self._note)

    def wait(self, stream: Stream) -> None:
        assert isinstance(stream, ThreadStream)
        if self._done is not None:
            stream.submit(self._done.wait)

    def query(self) -> bool:
        return self._done is None or self._done.is_done()

    def synchronize(self) -> None:
        if self._done is not None:
            self._done.wait()


class StagingPool:
    """Memory that copies to a device go through, kept for the next: on a real device it would be page-locked."""

    def __init__(self) -> None:
        self.free: defaultdict[int, list[Array]] = defaultdict(list)  # by size, a power of two

    def take(self, nbytes: int) -> Array:
        size = 1 << max(nbytes - 1, 4095).bit_length()
        try:
            return self.free[size].pop()
        except IndexError:
            return np.empty(size, np.uint8)

    def give(self, a: Array) -> None:
        self.free[a.nbytes].append(a)


class ExampleBackend(SmallBackend):
    """Devices `example:0` and `example:1`."""

    name = "example"
    interface_version = 1
    autocast_dtype = "bfloat16"

    def __init__(self) -> None:
        super().__init__()
        self.staging = StagingPool()
        self._streams = {f"{self.name}:{i}": [ThreadStream(self, f"{self.name}:{i}")] for i in range(DEVICES)}
        self._chosen = threading.local()

    def device_count(self) -> int:
        return DEVICES

    def properties(self, device: str) -> Properties:
        return Properties("NumPy's memory", MEMORY)

    def capabilities(self, device: str) -> Capabilities:
        return Capabilities(asynchronous=True)

    # Memory

    def allocate(self, nbytes: int, device: str) -> Array:
        if self.allocator.statistics(device).allocated + nbytes > MEMORY:
            raise MemoryError(f"it has {MEMORY:,}")
        return np.empty(nbytes, np.uint8)

    def write(self, block: Array, content: Array, device: str) -> Pending:
        staged = self.staging.take(content.nbytes)
        staged[: content.nbytes] = content

        def copy() -> None:
            block[: content.nbytes] = staged[: content.nbytes]
            self.staging.give(staged)

        return self.current_stream(device).submit(copy)

    def read(self, block: Array, into: Array, device: str) -> None:
        into[:] = block[: into.nbytes]

    def view(self, block: Array) -> Array:
        return block

    # Code

    def compile_kernel(self, kernel: k.Kernel, device: str) -> Callable[[KernelArguments], None] | None:
        return ElementwiseCode(kernel) if ElementwiseCode.suits(kernel) else None

    def function(self, fn: str) -> Callable[..., Any] | None:
        return np.matmul if fn == "matmul" else FUNCTIONS[fn] if fn == "sort" else None

    # Order

    def submit(self, device: str, work: Callable[[], None]) -> None:
        self.current_stream(device).submit(work)

    def synchronize(self, device: str) -> None:
        for s in list(self._streams[device]):
            s.synchronize()

    def stream(self, device: str, priority: int = 0) -> ThreadStream:
        self._streams[device].append(found := ThreadStream(self, device))
        return found

    def current_stream(self, device: str) -> ThreadStream:
        found: ThreadStream = self._chosen.__dict__.get(device) or self._streams[device][0]
        return found

    def use_stream(self, stream: Stream) -> None:
        self._chosen.__dict__[stream.device] = stream

    def event(self, device: str) -> ThreadEvent:
        return ThreadEvent()

    def close(self) -> None:
        for several in self._streams.values():
            for s in several:
                s.stop()


class ElementwiseCode:
    """A map kernel as a Python function over NumPy views: a statement for each value of the kernel IR."""

    def __init__(self, kernel: k.Kernel) -> None:
        lines = [f"# {kernel.title}", "def run(view, op, cast, full, scalars):"]
        for i, v in enumerate(kernel.values):
            match v:
                case k.Load():
                    lines.append(f"    v{i} = view({v.access})")
                case k.Const():
                    lines.append(f"    v{i} = full({v.value!r}, {v.dtype.name!r})")
                case k.Scalar():
                    lines.append(f"    v{i} = full(scalars[{v.position}], {v.dtype.name!r})")
                case k.Op():
                    lines.append(
                        f"    v{i} = op({v.name!r}, [{', '.join(f'v{o}' for o in v.operands)}], {v.dtype.name!r})"
                    )
                case k.Cast():
                    lines.append(f"    v{i} = cast(v{v.operand}, {v.dtype.name!r})")
        lines += [f"    view({s.access})[...] = v{s.value}" for stage in kernel.stages for s in stage.stores]
        self.source = "\n".join(lines) + "\n"
        self._dtypes = {v.dtype.name: v.dtype for v in kernel.values if hasattr(v, "dtype")}
        space: dict[str, Any] = {"inf": np.inf, "nan": np.nan}
        exec(compile(self.source, f"<kernel {kernel.title}>", "exec"), space)
        self._run = space["run"]

    @staticmethod
    def suits(kernel: k.Kernel) -> bool:
        """Whether it only loads, computes element by element, and stores."""
        plain = all(isinstance(v, k.Load | k.Const | k.Scalar | k.Op | k.Cast) for v in kernel.values)
        return plain and kernel.rows == 0 and all(getattr(v, "where", None) is None for v in kernel.values)

    def __call__(self, args: KernelArguments) -> None:
        def view(access: int) -> Array:
            a = args.accesses[access]
            strides = [s * a.dtype.itemsize for s in a.strides]
            return np.lib.stride_tricks.as_strided(a.array[a.offset :], args.extents, strides)

        d = self._dtypes
        with np.errstate(all="ignore"):
            self._run(
                view,
                lambda name, xs, dtype: evaluate_op(name, xs, d[dtype]),
                lambda x, dtype: cast(x, d[dtype]),
                lambda x, dtype: np.asarray(convert_scalar(x, d[dtype]), d[dtype]),
                args.scalars,
            )
