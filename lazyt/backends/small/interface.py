"""What a small backend is asked: a device in a dozen methods. What it does not compute itself, the host does for it.

A subclass of `SmallBackend` (backend.py) says what its devices are and how bytes get to them: `name`, `device_count`,
`allocate`, `free`, `write`, `read` and, where the host can address the memory, `view`. With these alone every operation
works: kernels are interpreted, and products and library calls are NumPy's, on copies where there is no `view`. Each
further method takes work over: `compile_kernel` kernels, `function` library calls, `submit` and the streams the order
of work.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Any

from lazyt.backends.interface import Backend
from lazyt.backends.small.memory import SmallAllocator
from lazyt.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    import numpy as np

    from lazyt.backends.interface import Span
    from lazyt.backends.small.arguments import KernelArguments
    from lazyt.backends.small.memory import Pending
    from lazyt.ir.kernel import Kernel

    Array = np.ndarray[Any, Any]


# What `fallback` is asked about, beside the names of library functions.
KERNEL, MATMUL, SCATTER = "kernel", "matmul", "scatter"


class SmallInterface(Backend):
    """A kind of device, most of whose work is inherited. A block is whatever `allocate` gives."""

    allocator: SmallAllocator
    # Whether the host may compute what the device has no code for: all, nothing, or what has these names (see
    # `fallback`). What it may not is an error when it is planned.
    host_fallback: bool | Collection[str] = True

    def __init__(self) -> None:
        self.allocator = SmallAllocator(self)
        # By device, the calls that the host did for it, and the kernels that were interpreted for want of code.
        self.fallbacks: dict[str, Counter[str]] = {}
        self.spans: dict[str, list[Span]] = {}  # by the devices whose work is timed now

    # Memory

    @abstractmethod
    def allocate(self, nbytes: int, device: str) -> Any:
        """A block of so many bytes of a device's memory, of any content; nbytes may be 0. Raises MemoryError."""

    def free(self, block: Any, nbytes: int, device: str) -> None:
        """A block is no longer used by anything; any thread may say so."""
        return

    @abstractmethod
    def write(self, block: Any, content: Array, device: str) -> Pending | None:
        """Copy bytes from the host to the beginning of a block; they may change when this returns.

        A copy that is still under way is returned, for who reads the block to wait for.
        """

    @abstractmethod
    def read(self, block: Any, into: Array, device: str) -> None:
        """Copy bytes from the beginning of a block, which has them by now, to the host."""

    def view(self, block: Any) -> Array | None:
        """A block's bytes as a NumPy array over the same memory; None: the host cannot address it."""
        return None

    def address(self, block: Any) -> int:
        """A number that tells apart the blocks that are in use: an address, if they have one."""
        return id(block)

    def reserved(self, device: str) -> int:
        """Bytes taken from the system, where that is more than what is in use: a pool."""
        return 0

    # Code

    def compile_kernel(self, kernel: Kernel, device: str) -> Callable[[KernelArguments], None] | None:
        """A function that runs a kernel (lazyt/ir/kernel.py) on a device; None: it is interpreted.

        Called once for each kernel of a plan. The text of its attribute `source`, if it has one, is what `explain()`
        shows. It is called inside of the work that `submit` is given.
        """
        return None

    def function(self, fn: str) -> Callable[..., Any] | None:
        """The device's own library function, on arrays that `view` gave, then arguments that are no arrays.

        `lazyt.ir.library_calls.FUNCTIONS` says what each does; `matmul` is a product of matrices, `scatter` is not
        asked for. None: the host computes it, which is counted, and named by `explain()`.
        """
        return None

    def fallback(self, fn: str) -> str:
        """As `Backend.fallback`; asked about `kernel`, `matmul` and `scatter` too. '' where that is as it should be.

        Kernels are interpreted for a reason where there is a `compile_kernel` that refused one.
        """
        if fn == KERNEL:
            own = type(self).compile_kernel is not SmallInterface.compile_kernel
            return f"{self.name} has no code for this kernel: it is interpreted" if own else ""
        return "" if self.function(fn) is not None else f"{self.name} has no code for it"

    # Order

    def submit(self, device: str, work: Callable[[], None]) -> None:
        """Do this work, which raises nothing: now or, with `Target.asynchronous`, behind what was submitted."""
        work()

    # Times: of each launch, where it is computed

    def start_spans(self, device: str) -> None:
        self.synchronize(device)
        self.spans[device] = []

    def take_spans(self, device: str) -> list[Span]:
        self.synchronize(device)
        return self.spans.pop(device, [])

    # What follows from the above

    def device(self, name: str) -> str:
        """With more than one device `npu` is `npu:0`; a single one has just the name."""
        kind, colon, index = name.partition(":")
        count = self.device_count()
        if kind == self.name and count == 1 and not colon:
            return name
        if kind == self.name and not (colon and not index.isdecimal()) and int(index or 0) < count and count > 1:
            return f"{kind}:{int(index or 0)}"
        listed = {0: "there is none", 1: f"there is {self.name!r}"}.get(
            count, f"there are {count}: {self.name}:0 to {self.name}:{count - 1}"
        )
        raise DeviceError(f"device {name!r}: no such device; {listed}")

    def fallbacks_of(self, device: str) -> Mapping[str, int]:
        return dict(self.fallbacks.get(device, {}))

    def allows_fallback(self, what: str) -> bool:
        """Whether the host may compute something that the device has no code for."""
        allowed = self.host_fallback
        return allowed if isinstance(allowed, bool) else what in allowed

    def count_fallback(self, device: str, what: str) -> None:
        """The host did a call, or interpreted a kernel, for a device."""
        self.fallbacks.setdefault(device, Counter())[what] += 1
