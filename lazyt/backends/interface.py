"""The interface of a backend: everything that recording and planning need from the code that runs programs.

    schedule (ir/schedule.py)  -- Backend.compile -->  Executable  -- bind, run for given extents -->  buffers

A backend subclasses `Backend`, which has defaults for all optional methods, and is added by
`registry.register(backend)`. The `Target` of a device lists its optional features: no other code refers to a backend by
name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from lazyt.errors import DeviceError, KernelError, NotSupportedError
from lazyt.ir.records import dataclass
from lazyt.ir.target import Target

# Changes whenever a backend that is written for one version could fail with the next.
INTERFACE_VERSION = 1

if TYPE_CHECKING:
    import numpy as np

    from lazyt.backends.common.commit_flag import Receipt
    from lazyt.ir.graph import Graph, Node
    from lazyt.ir.kernel import Kernel
    from lazyt.ir.passes.schedule import Donation, Launch, Schedule
    from lazyt.ir.symbolic import Dim, Scope

    Array = np.ndarray[Any, Any]
    Extents = tuple[int, ...]
    # A buffer with the dtype and the shape of its value.
    Placed = tuple[Any, np.dtype[Any], tuple[int, ...]]


# The name that plugins import it by.
Capabilities = Target


class Buffer(Protocol):
    """Memory on a device, released with the last reference."""

    address: int
    nbytes: int
    device: str


@dataclass(frozen=True)
class Statistics:
    """Bytes in live buffers, bytes taken from the system, and the most of the former where that is counted."""

    allocated: int
    reserved: int
    peak: int | None = None


class Allocator(Protocol):
    """Memory of a backend's devices, and copies from and to the host."""

    def allocate(self, nbytes: int, device: str) -> Any:
        """A buffer with undefined content. Raises OutOfMemory."""

    def from_host(self, array: Array, device: str) -> Any:
        """A buffer with a copy of an array, in C order; the array may change when this returns."""

    def to_host(self, buffer: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """The value of a buffer as a read-only array: a copy, unless it is in the host's memory. Waits for it."""

    def block(self, nbytes: int) -> int:
        """What a buffer of so many bytes counts in `statistics`."""

    def arena_block(self, nbytes: int) -> int:
        """The same, of the temporaries of a run."""
        return self.block(nbytes)

    def statistics(self, device: str) -> Statistics:
        """How much memory of a device is in use."""

    def restart_peak(self, device: str) -> None:
        """Start a new `Statistics.peak` at what is allocated now."""
        raise DeviceError(f"{device}: the most memory that was in use is not counted")

    def release_cached(self, device: str) -> None:
        """Give what is reserved and not allocated back to the system."""
        return


class HostAllocator(Allocator, Protocol):
    """Memory of the host: the numbers of `lazyt.runtime.memory`, and NumPy arrays that are used without a copy."""

    def wrap(self, array: Array) -> Any:
        """A buffer over a C-contiguous array, which the buffer keeps alive."""

    def peak(self) -> int:
        """The most bytes that were allocated since the last `reset_peak`."""

    def reset_peak(self) -> None:
        """Start a new peak at what is allocated now."""

    def set_limit(self, nbytes: int | None) -> None:
        """Fail rather than have more than this allocated; None: no limit."""

    def packed(self) -> int:
        """Bytes of copies of operands that stay packed from run to run; they are allocated."""

    def set_packed_share(self, share: float) -> None:
        """Let these be at most this share of the limit, or of the machine's memory where there is none."""

    def empty_cache(self) -> None:
        """Give cached memory back to the system."""


class Bound(Protocol):
    """An executable for given extents: its sizes are known."""

    extents: Extents
    shapes: list[tuple[int, ...]]  # of the graph's outputs
    sizes: list[int]  # bytes of each of the executable's outputs
    arena_size: int  # bytes of temporaries
    nowhere: set[Node]  # temporaries that are never in memory: their reader takes them as they are computed

    def temporaries(self) -> int:
        """Bytes of temporaries of a run, also where the launches are not written yet, which may add to the arena."""

    def spared(self, inputs: Sequence[Any] | None = None) -> int:
        """What results that take the memory of inputs do not allocate, in whole blocks.

        Of these inputs, or, with None, if nothing else holds any.
        """

    def to_stay(self, inputs: Sequence[Any]) -> int:
        """Bytes that a run with these inputs allocates beside results and temporaries, and that stay."""

    def value(self, e: int | Dim) -> int:
        """The value of an extent expression of the plan."""


class Replayable(Bound, Protocol):
    """The attributes that a replay of a sync uses to run a plan itself, if `Target.replay` is set.

    A launch takes its *bases*: the addresses of inputs, of results, of the arena and of the status word, then the words
    of scalars, then the bases that move with scalars (`moving`).
    """

    allocate: Callable[[int], Any]
    lend: Callable[[int], Any]  # memory of temporaries, which dies with the run
    n_inputs: int
    moving: list[tuple[int, int, int, int]]  # (base or -1 for a number, byte offset, expression, itemsize)
    exe: Any  # its executable, with `scalars`, `words` and `expressions` (see backends/common/executable.py)
    donations: list[Donation]
    # Of the last run: references, the binding that ran, the input that each result overwrote.
    chosen: tuple[Any, Any, Sequence[int]]
    checks: list[Node]
    status: Array  # the check that failed, from 1, and the index; 0: none
    status_address: int
    flag: Array  # set by the last launch of a run that overwrites inputs
    lock: Any
    has_replay: bool  # whether the last sync of these extents prepared a replay

    def moved(self, bases: Sequence[int], values: Sequence[int]) -> list[int]:
        """The bases that move every run."""

    def launch(self, bases: list[int], outs: list[Any], arena: Any, inputs: Sequence[Any]) -> None:
        """Run."""

    def launch_only(self) -> Callable[[list[int]], None] | None:
        """The native call that makes up a run, given its bases; None if a run is more than one call."""

    def lets_go(self) -> bool:
        """Whether that call releases the interpreter lock."""

    def donating(self, inputs: Sequence[Any], scalars: Sequence[Any], waits: bool = False) -> tuple[Any, Sequence[int]]:
        """The binding to run when results take inputs' memory, and the input of each result, -1 for fresh memory.

        waits: as of `Receipt`.
        """


class Enqueuing(Bound, Protocol):
    """The attributes that a replay of a sync uses of a binding for an asynchronous device."""

    # As of `Replayable`.
    donations: Sequence[Donation]
    chosen: tuple[Any, Any, Sequence[int]]
    donating: Callable[..., tuple[Any, Sequence[int]]]
    checks: list[Node]
    has_replay: bool

    def enqueue(
        self, scalars: Sequence[Any], inputs: Sequence[Any], sites: Callable[[], Sequence[Any]], places: Sequence[int],
        receipt: Receipt,
    ) -> list[Any] | None:  # fmt: skip
        """As `Executable.run`. sites: the lines that were recorded; places: the input of each result, as of `donating`.

        None, with nothing done, where these inputs cannot be overwritten after all.
        """


@dataclass(frozen=True)
class Run:
    """One of several runs that `Backend.link` makes one of, whose values and scalars have the numbers of all of them.

    Values that are given have the first numbers, in their order.
    """

    bound: Any
    inputs: Sequence[int]
    outputs: Sequence[int]  # each its own number
    scalars: Sequence[int]  # by the number of a scalar in this run


class KernelArrays(Protocol):
    """The arrays of a device that a user's kernel in a source language runs on, as `xp`.

    They are C-contiguous, with `shape`, `dtype`, `size`, `item()`, `copy()`, lanes by `a[i]`, and copies to `a[i] = b`
    and `a[...] = b`. `Zoned` is a subclass of `lazyt.library.guards.Zoned`, for checking mode.
    """

    Zoned: type

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
        """A new array of any content."""

    def asarray(self, x: Any, dtype: np.dtype[Any] | None = None) -> Any:
        """An array as it is, or one with the values of a sequence of numbers."""

    def ascontiguousarray(self, x: Any) -> Any:
        """An array that a kernel can be given, with the values of `x`."""

    def broadcast_to(self, x: Any, shape: Sequence[int]) -> Any:
        """An array with the values of `x` repeated along new axes before its own."""

    def load_source(self, source: str, name: str, language: str) -> Callable[..., None]:
        """A function of the numbers of blocks, the size of a block, and arguments: arrays, NumPy's numbers.

        KernelError for a source that the compiler refuses, with its message, and for a name that it does not have.
        """


class Description:
    """A description of how a launch is computed at given sizes, for people. Nothing here runs or compiles anything."""

    library: str = ""  # the library and its routine, or the name of the routine; '' for a kernel alone
    reason: str = ""  # why a product or a call is computed so
    strategies: Sequence[str] = ()  # the optimisations in its code
    fallback: str = ""  # the reason, for a call that the host computes instead of the device
    on_stack: bool = False  # whether a product stays on the stack
    # Where its machine code is: 'memory', 'disk', 'library', 'routine', 'product', or '' when not compiled yet.
    code: str = "library"
    flops: int | None = None  # for a call whose shapes do not determine it
    is_sass: bool = False  # whether `assembly` is that of an NVIDIA GPU

    def source(self, notes: Sequence[str] = ()) -> str:
        """The code that is generated for it, with notes where comments go; '' where none is."""
        return ""

    def assembly(self) -> str:
        """The machine code for its device as text; '' where none is made for it alone."""
        return ""


class LoadedCode(Protocol):
    """A function of a user's in memory, which stays as long as this object."""

    address: int


class Executable(Protocol):
    """A schedule that a backend has compiled."""

    outputs: list[Node]  # the stored value of each buffer that `run` gives
    bound: dict[Extents, Any]  # bindings that ran, by extents
    compiles: int  # kernels compiled so far, and the seconds that took
    compile_time: float

    def begin(self) -> None:
        """A hint that it will be compiled next."""

    def compile(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> None:
        """Compile or load the machine code that a run for these extents uses."""

    def bind(self, extents: Extents, scalars: Sequence[Any]) -> Any:
        """A `Bound` for these extents, for inspection: nothing is compiled or cached."""

    def run(
        self, extents: Extents, scalars: Sequence[Any], inputs: Sequence[Any], receipt: Receipt | None = None
    ) -> list[Any]:
        """Run; the buffer of each of `outputs`, or the input whose memory it took. Raises with nothing changed.

        inputs: values with a buffer, an address, a dtype and a shape. receipt: None without `Target.donation`.
        """

    def describe(self, launch: Launch, bound: Any) -> Description:
        """How a launch of the schedule is computed at these sizes."""

    def notes(self, bound: Any) -> list[tuple[str, str]]:
        """Further lines of `explain()` on a run as a whole: (word, text)."""


@dataclass(frozen=True)
class Properties:
    """A device for people: its name, bytes of memory (0: not known), and whatever else a backend knows of it."""

    name: str
    total_memory: int = 0
    details: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Span:
    """A piece of a device's work: its name, and when it began and ended, in seconds of `time.perf_counter`."""

    name: str  # the operations in it, or what else it is
    device: str
    begin: float
    end: float
    on_host: bool = False  # whether the host did it for the device

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.end - self.begin


class Stream:
    """The only order of work of a device. Streams of a backend that has more are subclasses that override all."""

    def __init__(self, backend: Backend, device: str) -> None:
        self.backend, self.device = backend, device

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.device!r}>"

    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) is Stream and self.device == other.device)

    def __hash__(self) -> int:
        return hash(self.device)

    def synchronize(self) -> None:
        """Wait for all that was enqueued on it."""
        self.backend.synchronize(self.device)

    def query(self) -> bool:
        """Whether all that was enqueued on it is done."""
        self.synchronize()
        return True

    def record_event(self, event: Event | None = None) -> Event:
        """The event, or a new one, recorded here."""
        found = self.backend.event(self.device) if event is None else event
        found.record(self)
        return found

    def wait_event(self, event: Event) -> None:
        """What is enqueued here from now on waits for an event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """What is enqueued here from now on waits for what is enqueued there by now."""
        self.wait_event(stream.record_event())


class Event:
    """A moment in a stream. That of a backend with one order of work waits for it at once."""

    _at: float | None = None

    def record(self, stream: Stream) -> None:
        """It is the moment when all that is enqueued on a stream by now is done."""
        stream.synchronize()
        self._at = perf_counter()

    def wait(self, stream: Stream) -> None:
        """What is enqueued on a stream from now on waits for it."""
        return

    def query(self) -> bool:
        """Whether it has come; so has one that was never recorded."""
        return True

    def synchronize(self) -> None:
        """Wait for it."""
        return

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to another. ValueError if one was not recorded."""
        if self._at is None or end._at is None:
            raise ValueError("elapsed_time: both events have to be recorded before")
        return (end._at - self._at) * 1e3


class Backend(Protocol):
    """A kind of device."""

    name: str  # the name of its first device, and the prefix of the names of others
    allocator: Allocator
    dlpack_type: int = 0  # the number of its devices' type in DLPack, if it shares memory that way
    # The `INTERFACE_VERSION` that it is written for, which a plugin has to say. NOTE: as a number, not by that name.
    interface_version: int | None = None
    # Autocast: its lower dtype where a region gives none, those that it may have, and, by lazyt's names of operations,
    # what differs from PyTorch's lists for GPUs (lazyt/ops/autocast_policies.py; '' for no policy).
    autocast_dtype: str = "float16"
    autocast_dtypes: tuple[str, ...] = ("float16", "bfloat16")
    autocast_policies: Mapping[str, str] = MappingProxyType({})
    # Of users' kernels (`lt.library.kernel_source`), such as 'OpenCL C': its executables compile their sources, and run
    # them on `KernelArrays`.
    languages: tuple[str, ...] = ()
    extensions: Mapping[str, Any] = MappingProxyType({})  # further names in `lt.npu`, for a backend called `npu`

    @abstractmethod
    def compile(self, schedule: Schedule, device: str) -> Executable:
        """An executable of a schedule on a device."""

    def identity(self, device: str) -> tuple[str, ...] | None:
        """All that a schedule for a device depends on beside its program, lazyt's source and `config.general`.

        None: its plans are not kept on disk.
        """
        return None

    def device(self, name: str) -> str:
        """The full name of the device `name`, which begins with the backend's name; DeviceError if there is none."""
        if name != self.name:
            raise DeviceError(f"device {name!r}: no such device; there is {self.name!r}")
        return name

    def device_count(self) -> int:
        """How many devices there are; 0 where there is none, and why `device` says."""
        return 1

    def synchronize(self, device: str) -> None:
        """Wait for all that was enqueued on a device."""
        return

    def properties(self, device: str) -> Properties:
        """What a device is."""
        return Properties(device)

    def fallbacks_of(self, device: str) -> Mapping[str, int]:
        """How often the host did each function for a device that has no code for it."""
        return {}

    def stream(self, device: str, priority: int = 0) -> Stream:
        """A new order of work on a device; the only one, where it has one."""
        return Stream(self, device)

    def current_stream(self, device: str) -> Stream:
        """The stream that this thread's work on a device goes to."""
        return Stream(self, device)

    def use_stream(self, stream: Stream) -> None:
        """This thread's work on a stream's device goes to that stream from now on."""
        return

    def event(self, device: str) -> Event:
        """A moment in a stream, not yet recorded."""
        return Event()

    def start_spans(self, device: str) -> None:
        """Note when each piece of work on a device begins and ends, from now on."""
        raise NotSupportedError(f"not supported: spans of {device!r}, because its backend does not time its work")

    def take_spans(self, device: str) -> list[Span]:
        """What was noted since `start_spans`, after waiting for it; nothing is noted any more."""
        return []

    def close(self) -> None:
        """The backend was removed: nothing will be asked of it but by values that are still held."""
        return

    def capabilities(self, device: str) -> Target:
        """The optional features of a device."""
        return Target()

    def link(self, runs: Sequence[Run], n_inputs: int, wanted: Sequence[int], extents: tuple[int, ...]) -> Any | None:
        """Runs, one after another, as one that gives the values `wanted`; None if there is none.

        A `Replayable`, for these extents of the whole.
        """
        return None

    def prefetch(self, graph: Graph, scope: Scope | None, target: Target) -> None:
        """A hint that the calls in a graph will be compiled and run next; target: without what flags take away."""
        return

    def is_crowded(self) -> bool:
        """Whether so much code is loaded that plans must be dropped; if so, False until more was loaded."""
        return False

    def load_code(self, text: str, name: str) -> LoadedCode:
        """The function `name` of a user's source, LLVM IR for the host; KernelError if it cannot be loaded."""
        raise KernelError(f"{self.name}: no source of users' kernels is compiled for it")

    def kernel_text(self, kernel: Kernel, assembly: bool = False) -> str:
        """The code of a kernel, or its assembly, as it would be for aligned arrays; no device is needed."""
        raise NotSupportedError(f"not supported: the code of a kernel for {self.name!r}, because it shows none")

    def fallback(self, fn: str) -> str:
        """Why the host computes this library function for the device, which has no code for it; '' if it does not."""
        return ""

    # Values of other libraries, and results whose shapes are data

    def index(self, device: str) -> int:
        """The number of a device among those of its kind."""
        return int(device.partition(":")[2] or 0)

    def find(self, fn: str, values: Sequence[Placed], statics: Sequence[Any]) -> list[Placed] | None:
        """The results of a function whose result shapes depend on data, on the device; None: computed on the host."""
        return None

    def share(self, buffer: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        """Another library's array over a buffer, with `__dlpack__`."""
        raise DeviceError(f"{buffer.device}: its memory cannot be shared with other libraries")

    def array_interface(self, buffer: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> dict[str, Any]:
        """A buffer as `__cuda_array_interface__`; AttributeError for other memory."""
        raise AttributeError(f"__cuda_array_interface__: the value is on {buffer.device!r}")

    def adopt(self, x: Any, copy: bool) -> Placed:
        """The memory of another library's array on a device, kept as long as the buffer, or a copy of it."""
        raise DeviceError(f"{self.name}: memory of other libraries cannot be taken over")


class HostBackend(Backend, Protocol):
    """The backend of the host's memory and processors."""

    allocator: HostAllocator
    work_sizes: tuple[tuple[Any, str], ...]  # (module, name) of the least amounts of work for a thread, for tests

    @abstractmethod
    def set_num_threads(self, n: int) -> None:
        """Use n threads for kernels and matrix products."""

    @abstractmethod
    def get_num_threads(self) -> int:
        """How many threads kernels use."""

    @abstractmethod
    def set_flush_denormal(self, mode: bool) -> bool:
        """Have kernels take subnormal numbers as zeros, and give zeros for such, or not; whether they can."""


__all__ = [
    "INTERFACE_VERSION", "Allocator", "Backend", "Bound", "Buffer", "Capabilities", "Description", "Enqueuing", "Event",
    "Executable", "HostAllocator", "HostBackend", "KernelArrays", "LoadedCode", "Properties", "Replayable", "Span",
    "Statistics", "Stream",
]  # fmt: skip
