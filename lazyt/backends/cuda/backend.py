"""NVIDIA GPUs as a backend: CUDA C by NVRTC, memory and libraries through CuPy.

Modules are loaded at their first use.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from lazyt.backends import cuda
from lazyt.backends.interface import Allocator, Backend, Statistics
from lazyt.errors import DeviceError
from lazyt.ir.target import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from lazyt.backends.cuda.device import DeviceBuffer
    from lazyt.backends.cuda.executor import Executable
    from lazyt.backends.interface import Placed
    from lazyt.ir.kernel import Kernel
    from lazyt.ir.passes.schedule import Schedule

    Array = np.ndarray[Any, Any]

NAME = "cuda"

# The extents that a kernel is shown for.
EXTENT = 1024


class DeviceAllocator(Allocator):
    """CuPy's pool of each device."""

    def allocate(self, nbytes: int, device: str) -> DeviceBuffer:
        return cuda.device.device(device).allocate(nbytes)

    def from_host(self, array: Array, device: str) -> DeviceBuffer:
        return cuda.device.from_host(array, device)

    def to_host(self, buffer: DeviceBuffer, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        return cuda.device.to_host(buffer, dtype, shape)

    def block(self, nbytes: int) -> int:
        return cuda.device.block_of(nbytes)

    def statistics(self, device: str) -> Statistics:
        return Statistics(*cuda.device.device(device).usage())

    def release_cached(self, device: str) -> None:
        cuda.device.device(device).free_cached()


@cache
def _capabilities(device: str) -> Target:
    """A GPU's products are a library's: nothing runs on their blocks, and windows are copied for them, unless cuDNN
    computes convolutions. What its kernels need again of a row stays in shared memory.
    """
    return Target(
        convolutions=partial(cuda.executor.keeps, device), attention=partial(cuda.executor.attends, device),
        alike_products=True, offload=True, light_functions=True, share=cuda.needs.share_of, replay=True,
        asynchronous=True, donation=True,
    )  # fmt: skip


class CudaBackend(Backend):
    """The GPUs that CuPy finds."""

    name = NAME
    allocator = DeviceAllocator()
    dlpack_type = 2  # kDLCUDA
    languages = ("CUDA C",)

    def device(self, name: str) -> str:
        if not cuda.device.NAME.fullmatch(name):
            raise DeviceError(f"device {name!r}: no such device; GPUs are '{NAME}:0', '{NAME}:1', ...")
        return cuda.device.device(name).name

    def device_count(self) -> int:
        return cuda.device.count()

    def synchronize(self, device: str) -> None:
        cuda.device.device(device).synchronize()

    def capabilities(self, device: str) -> Target:
        return _capabilities(device)

    def compile(self, schedule: Schedule, device: str) -> Executable:
        return cuda.executor.Executable(schedule, device)

    def kernel_text(self, kernel: Kernel, assembly: bool = False) -> str:
        if assembly:
            return super().kernel_text(kernel, assembly)
        # NOTE: extents and addresses are arguments; of these a kernel for large, aligned arrays is made.
        entries = [EXTENT] * kernel.axes + [0] * (kernel.layout.size - kernel.axes)
        return cuda.emit.alone(kernel, cuda.mapping.choose(kernel, entries), f"kernel_{kernel.key}")

    def fallback(self, fn: str) -> str:
        return cuda.registry.ON_HOST.get(fn, "")

    def index(self, device: str) -> int:
        return cuda.device.number_of(device)

    def find(self, fn: str, values: Sequence[Placed], statics: Sequence[Any]) -> list[Placed]:
        return cuda.finding.find(fn, values, statics)

    def share(self, buffer: DeviceBuffer, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        return cuda.device.shared(buffer, dtype, shape)

    def array_interface(self, buffer: DeviceBuffer, dtype: np.dtype[Any], shape: tuple[int, ...]) -> dict[str, Any]:
        return cuda.device.described(buffer, dtype, shape)

    def adopt(self, x: Any, copy: bool) -> Placed:
        return cuda.device.adopted(x, copy)


BACKEND = CudaBackend()
