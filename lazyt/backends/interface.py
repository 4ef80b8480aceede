"""What a backend is: the one interface between what is recorded and planned, and what runs it.

    schedule (ir/schedule.py)  -- Backend.compile -->  Executable  -- bind, run for given extents -->  buffers

A backend subclasses `Backend`, which has a default for all that it need not have, and is added by
`registry.register(backend)`. What it can do beyond running a schedule stands in its `Capabilities`: nobody outside
asks for a backend by name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from lazyt.errors import DeviceError
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    import numpy as np

    from lazyt.backends.common.commit_flag import Receipt
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Graph, Node
    from lazyt.ir.passes.donate import Donation
    from lazyt.ir.passes.kernelize import KernelCall
    from lazyt.ir.passes.schedule import Launch, Schedule
    from lazyt.ir.symbolic import Dim

    Array = np.ndarray[Any, Any]
    Extents = tuple[int, ...]
    # The results of a call of attention, of these operands, as a backend wants it; None: as products.
    Attention = Callable[[Builder, Node, Sequence[Node]], tuple[Node, ...] | None]
    # A buffer with the dtype and the shape of what lies in it.
    Placed = tuple[Any, np.dtype[Any], tuple[int, ...]]


@dataclass(frozen=True)
class Capabilities:
    """What planning, syncs and inspection may do with a backend's device. The defaults suit any backend."""

    # Planning
    convolutions: bool | Callable[[Node], bool] = False  # which stay calls (see `Rewrites`); others become products
    attention: Attention | None = None  # the calls of attention that stay such; None: all become products
    epilogues: bool = False  # a kernel may run on the blocks of a product (see ir/epilogue.py)
    stage_reuse: bool = False  # a kernel keeps what several of its stages need in memory (see ir/reuse.py)
    vector_products: bool = False  # a product with a vector is better as a reduction
    share: Callable[[KernelCall], float] | None = None  # of what a kernel's code may need; above 1 it is divided
    # Syncs
    first_run: bool = False  # a new, small program may run step by step, by NumPy: buffers are in the host's memory
    replay: bool = False  # what it binds is `Replayable`, so a repeated sync runs it without planning anew
    donation: bool = False  # results take the memory of inputs that nobody else holds, and then fill in a `Receipt`
    asynchronous: bool = False  # a run may end before its values are there: their buffers have `settle()`


class Buffer(Protocol):
    """Memory on a device, given back with the last reference."""

    address: int
    nbytes: int
    device: str


@dataclass(frozen=True)
class Statistics:
    """Bytes: in buffers that somebody holds, and taken from the system."""

    allocated: int
    reserved: int


class Allocator(Protocol):
    """Memory of a backend's devices, and the way there and back."""

    def allocate(self, nbytes: int, device: str) -> Any:
        """A buffer with undefined content. Raises OutOfMemory."""

    def from_host(self, array: Array, device: str) -> Any:
        """A buffer with a copy of an array, in C order, which may change when this returns."""

    def to_host(self, buffer: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """What lies in a buffer as a read-only array: a copy, unless it is in the host's memory. Waits for it."""

    def statistics(self, device: str) -> Statistics:
        """How much memory of a device is in use."""


class HostAllocator(Allocator, Protocol):
    """Memory of the host: what `lazyt.runtime.memory` shows, and arrays of NumPy's taken over as they are."""

    def wrap(self, array: Array) -> Any:
        """A buffer over a C-contiguous array, which it keeps alive."""

    def peak(self) -> int:
        """The most bytes that were allocated since the last `reset_peak`."""

    def reset_peak(self) -> None:
        """Start a new peak at what is allocated now."""

    def set_limit(self, nbytes: int | None) -> None:
        """Refuse to have more than this allocated; None: no limit."""

    def empty_cache(self) -> None:
        """Give cached memory back to the system."""


class Bound(Protocol):
    """An executable for given extents: its sizes are known."""

    extents: Extents
    shapes: list[tuple[int, ...]]  # of the graph's outputs
    sizes: list[int]  # bytes of each of the executable's outputs
    arena_size: int  # bytes of temporaries

    def value(self, e: int | Dim) -> int:
        """The value of an extent expression of the plan."""


class Replayable(Bound, Protocol):
    """What a replay of a sync uses to run a plan itself, where `Capabilities.replay` says so.

    A launch takes its *bases*: the addresses of inputs, of results, of the arena and of the status word, then the words
    of scalars, then the bases that move with scalars (`moving`).
    """

    allocate: Callable[[int], Any]
    n_inputs: int
    moving: list[tuple[int, int, int, int]]  # (base or -1 for a number, byte offset, expression, itemsize)
    exe: Any  # its executable, with `scalars`, `words` and `expressions` (see backends/common/executable.py)
    donations: list[Donation]
    chosen: tuple[Any, Any, Sequence[int]]  # of the last run: references, what ran, the input each result overwrote
    checks: list[Node]
    status: Array  # the check that failed, from 1, and the index; 0: none
    status_address: int
    flag: Array  # set by the last launch of a run that overwrites inputs
    lock: Any
    met: bool  # whether the last sync of these extents left it for the next

    def moved(self, bases: Sequence[int], values: Sequence[int]) -> list[int]:
        """The bases that move every run."""

    def launch(self, bases: list[int], outs: list[Any], arena: Any, inputs: Sequence[Any]) -> None:
        """Run."""

    def launch_only(self) -> Callable[[list[int]], None] | None:
        """The native call that a run is, given its bases; None if it is more than that."""

    def lets_go(self) -> bool:
        """Whether that call releases the interpreter lock."""

    def donating(self, inputs: Sequence[Any], scalars: Sequence[Any]) -> tuple[Any, Sequence[int]]:
        """What runs when results take inputs' memory, and the leaf of each result, -1 for fresh memory."""


class Description:
    """How a launch is computed at given sizes, for a person to read. Nothing here runs or compiles anything."""

    library: str = ""  # the library and its routine, or the name of the routine; '' for a kernel alone
    reason: str = ""  # why a product or a call is computed so
    strategies: Sequence[str] = ()  # the optimisations in its code
    fallback: str = ""  # of a call that the host does instead of the device: why
    on_stack: bool = False  # whether a product is never in memory
    # Where its machine code is: 'memory', 'disk', 'library', 'routine', 'product', or '' when not compiled yet.
    code: str = "library"
    flops: int | None = None  # of a call whose shapes do not say it
    is_sass: bool = False  # whether `assembly` is that of an NVIDIA GPU

    def source(self, notes: Sequence[str] = ()) -> str:
        """The code that is generated for it, with notes where comments go; '' where none is."""
        return ""

    def assembly(self) -> str:
        """The machine code for its device as text; '' where none is made for it alone."""
        return ""


class Executable(Protocol):
    """A schedule that a backend has made ready to run."""

    outputs: list[Node]  # the stored value of each buffer that `run` gives
    bound: dict[Extents, Any]  # what ran, by extents
    compiles: int  # kernels compiled so far, and the seconds that took
    compile_time: float

    def compile(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> None:
        """Have the machine code at hand that a run for these extents takes."""

    def bind(self, extents: Extents, scalars: Sequence[Any]) -> Any:
        """A `Bound` for these extents, to look at: nothing is compiled or kept."""

    def run(
        self, extents: Extents, scalars: Sequence[Any], inputs: Sequence[Any], receipt: Receipt | None = None
    ) -> list[Any]:
        """Run; the buffer of each of `outputs`, or the input whose memory it took. Raises with nothing changed.

        inputs: values with a buffer, an address, a dtype and a shape. receipt: None without `Capabilities.donation`.
        """

    def describe(self, launch: Launch, bound: Any) -> Description:
        """How a launch of the schedule is computed at these sizes."""

    def notes(self, bound: Any) -> list[tuple[str, str]]:
        """What else `explain()` says of a run as a whole: (word, text)."""


class Backend(Protocol):
    """A kind of device."""

    name: str  # of its first device, and what the names of others begin with
    allocator: Allocator
    dlpack_type: int = 0  # the number of its devices' type in DLPack, if it shares memory that way

    @abstractmethod
    def compile(self, schedule: Schedule, device: str) -> Executable:
        """An executable of a schedule on a device."""

    def device(self, name: str) -> str:
        """The full name of the device called `name`, which begins with the backend's; DeviceError: it is not there."""
        if name != self.name:
            raise DeviceError(f"device {name!r}: no such device; there is {self.name!r}")
        return name

    def synchronize(self, device: str) -> None:
        """Wait for all that was enqueued on a device."""
        return

    def capabilities(self, device: str) -> Capabilities:
        """What can be done with a device."""
        return Capabilities()

    def prefetch(self, graph: Graph) -> None:
        """A hint: the calls in a graph will be compiled and run soon."""
        return

    def is_crowded(self) -> bool:
        """Whether so much code is loaded that plans must be dropped; if so, not again before more came."""
        return False

    def fallback(self, fn: str) -> str:
        """Why the host computes this library function for the device, which has no code for it; '' if it does not."""
        return ""

    # Values of other libraries, and results whose shapes are data

    def index(self, device: str) -> int:
        """The number of a device among those of its kind."""
        return int(device.partition(":")[2] or 0)

    def find(self, fn: str, values: Sequence[Placed], statics: Sequence[Any]) -> list[Placed] | None:
        """What a function whose results' shapes are data finds in values, there; None: the host is to look."""
        return None

    def share(self, buffer: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        """Another library's array over a buffer, with `__dlpack__`."""
        raise DeviceError(f"{buffer.device}: its memory cannot be shared with other libraries")

    def array_interface(self, buffer: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> dict[str, Any]:
        """A buffer as `__cuda_array_interface__`; AttributeError where it is not such memory."""
        raise AttributeError(f"__cuda_array_interface__: the value is on {buffer.device!r}")

    def adopt(self, x: Any, copy: bool) -> Placed:
        """The memory that another library's array has on a device, kept as long as the buffer, or a copy of it."""
        raise DeviceError(f"{self.name}: memory of other libraries cannot be taken over")


class HostBackend(Backend, Protocol):
    """The backend of the host's memory and processors."""

    allocator: HostAllocator
    work_sizes: tuple[tuple[Any, str], ...]  # (module, name) of the amounts of work worth a thread, for tests

    @abstractmethod
    def set_num_threads(self, n: int) -> None:
        """Use n threads for kernels and matrix products."""

    @abstractmethod
    def get_num_threads(self) -> int:
        """How many threads kernels use."""


__all__ = [
    "Allocator", "Backend", "Bound", "Buffer", "Capabilities", "Description", "Executable", "HostAllocator",
    "HostBackend", "Replayable", "Statistics",
]  # fmt: skip
