"""`lt.npu` and its like: what a kind of device offers beside tensors on it, with the names of `torch.cuda`.

There is one for each backend but the host's, made when it is named. A backend that is registered also gets `x.npu()`,
`x.is_npu` and `module.npu()`; what is taken already is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from lazyt.backends import interface, registry
from lazyt.errors import DeviceError, NotSupportedError
from lazyt.functions import random
from lazyt.interrupts import uninterrupted
from lazyt.ir import dtypes
from lazyt.runtime import device_names, plan_cache
from lazyt.runtime.context import sync
from lazyt.runtime.decorators import Context
from lazyt.runtime.device import Device
from lazyt.tracing import autocast, tracebacks
from lazyt.tracing.current import restore_mode, set_mode
from lazyt.tracing.trace import local

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np


FIELD = "chosen"


class DeviceModule:
    """A kind of device. A device is given by its number, its name or a Device; None is the current one.

    As `torch.accelerator` and `torch.cuda`.
    """

    def __init__(self, kind: str) -> None:
        self._backend = registry.get(kind)
        self.name = kind

    def __repr__(self) -> str:
        return f"<lazyt.{self.name}: {self.device_count()} devices>"

    def __getattr__(self, name: str) -> Any:
        backend = self.__dict__.get("_backend")
        if backend is not None and name in backend.extensions:
            return backend.extensions[name]
        raise AttributeError(f"lazyt.{self.__dict__.get('name')} has no attribute {name!r}", name=name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._backend.extensions})

    def _named(self, device: Any) -> Device:
        if isinstance(device, bool) or not (device is None or isinstance(device, int | str)):
            raise TypeError(f"{self.name}: a device is a number, a name or None, got {device!r}")
        name = self.name if device is None else f"{self.name}:{device}" if isinstance(device, int) else device
        if isinstance(name, str) and name.partition(":")[0] != self.name:
            raise DeviceError(f"{self.name}: {name!r} is a device of another kind")
        return Device.check(name)

    # Devices

    def is_available(self) -> bool:
        """Whether this machine has such a device."""
        return self.device_count() > 0

    def device_count(self) -> int:
        """How many there are."""
        return self._backend.device_count()

    def current_device(self) -> int:
        """The number of the device that the kind's name alone means in this thread: 0 unless another was chosen."""
        return self._backend.index(str(self._named(None)))

    def set_device(self, device: Any) -> None:
        """Let the kind's name alone mean this device, in this thread."""
        set_mode(FIELD, self._with(self._named(device)))

    def device(self, device: Any) -> ChosenDevice:
        """`set_device` for a `with` block or as a decorator; what was current is so again at its end."""
        return ChosenDevice(self, self._named(device))

    def _with(self, device: Device) -> tuple[tuple[str, str], ...]:
        others = {k: d for k, d in local.trace.mode.chosen if k != self.name}
        # NOTE: what is meant anyway is not said: programs with and without it are the same.
        own = {} if self._backend.device(self.name) == device else {self.name: str(device)}
        return tuple(sorted({**others, **own}.items()))

    def synchronize(self, device: Any = None) -> None:
        """Wait for all that was enqueued on a device."""
        self._named(device).synchronize()

    def get_device_properties(self, device: Any = None) -> interface.Properties:
        """What a device is."""
        return self._backend.properties(str(self._named(device)))

    def get_device_name(self, device: Any = None) -> str:
        """The name of the product."""
        return self.get_device_properties(device).name

    # Streams

    def Stream(self, device: Any = None, priority: int = 0) -> interface.Stream:  # noqa: N802 - as torch.cuda.Stream
        """A new order of work on a device."""
        return self._backend.stream(str(self._named(device)), priority)

    def Event(self, device: Any = None, enable_timing: bool = True) -> interface.Event:  # noqa: N802
        """A moment in a stream: `record`, `query`, `synchronize`, `wait`, `elapsed_time`. All of them have times."""
        return self._backend.event(str(self._named(device)))

    def current_stream(self, device: Any = None) -> interface.Stream:
        """The stream that this thread's work on a device goes to."""
        return self._backend.current_stream(str(self._named(device)))

    def set_stream(self, stream: interface.Stream) -> None:
        """Have this thread's work on the stream's device go there."""
        self._backend.use_stream(stream)

    def stream(self, stream: interface.Stream) -> ChosenStream:
        """`set_stream` for a `with` block or as a decorator. What is recorded goes where it is synced."""
        return ChosenStream(self, stream)

    # Memory

    def memory_allocated(self, device: Any = None) -> int:
        """Bytes in buffers that somebody holds."""
        return self._statistics(device).allocated

    def memory_reserved(self, device: Any = None) -> int:
        """Bytes taken from the system, those that a pool keeps included."""
        return self._statistics(device).reserved

    def max_memory_allocated(self, device: Any = None) -> int:
        """The largest `memory_allocated()` since `reset_peak_memory_stats()`; NotSupportedError if not counted."""
        peak = self._statistics(device).peak
        if peak is None:
            raise NotSupportedError(
                f"not supported: {self.name}.max_memory_allocated(), because its backend does not count it"
            )
        return peak

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """Start a new `max_memory_allocated()`."""
        self._backend.allocator.restart_peak(str(self._named(device)))

    def empty_cache(self, device: Any = None) -> None:
        """Give cached memory of a device back to the system."""
        self._backend.allocator.release_cached(str(self._named(device)))

    def _statistics(self, device: Any) -> interface.Statistics:
        return self._backend.allocator.statistics(str(self._named(device)))

    # Random numbers: those of a program are the same on each device, so all share the thread's generator

    def manual_seed(self, seed: int) -> None:
        """`lt.random.seed`: lazyt's random numbers do not depend on the device, so this seeds all of them."""
        random.seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """As `manual_seed`."""
        random.seed(seed)

    def initial_seed(self) -> int:
        """The seed of this thread's generator."""
        return random.get_state()[0]

    def get_rng_state(self, device: Any = None) -> tuple[int, int]:
        """`lt.random.get_state`: the seed and the count of this thread's generator, which all devices share."""
        self._named(device)
        return random.get_state()

    def set_rng_state(self, new_state: tuple[int, int], device: Any = None) -> None:
        """`lt.random.set_state`."""
        self._named(device)
        random.set_state(new_state)

    # What it computes

    def get_amp_supported_dtype(self) -> list[np.dtype]:
        """The lower dtypes that an autocast region of this kind may have."""
        return [dtypes.as_dtype(d) for d in self._backend.autocast_dtypes]

    def spans(self, device: Any = None) -> Spans:
        """A block whose work on a device is timed: a list of `lt.backends.Span`, filled at the block's end.

        The end waits for the device. NotSupportedError for a backend that does not time its work.
        """
        return Spans(self._backend, str(self._named(device)))

    def fallbacks(self, device: Any = None) -> Mapping[str, int]:
        """How often the host did each function for a device that has no code for it; `explain()` names the lines."""
        return self._backend.fallbacks_of(str(self._named(device)))


class Spans(list["interface.Span"]):
    """What `lt.npu.spans()` gives."""

    def __init__(self, backend: interface.Backend, device: str) -> None:
        super().__init__()
        self._backend, self._device = backend, device

    def __enter__(self) -> Self:
        self._backend.start_spans(self._device)
        return self

    def __exit__(self, *exc: object) -> None:
        self[:] = self._backend.take_spans(self._device)


class ChosenDevice(Context):
    """What `lt.npu.device(1)` gives."""

    def __init__(self, module: DeviceModule, device: Device) -> None:
        self._module, self._device = module, device
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        self._before = [*self._before, set_mode(FIELD, self._module._with(self._device))]
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        restore_mode(FIELD, self._before.pop())

    def _again(self) -> ChosenDevice:
        return ChosenDevice(self._module, self._device)


class ChosenStream(Context):
    """What `lt.npu.stream(s)` gives."""

    def __init__(self, module: DeviceModule, stream: interface.Stream) -> None:
        self._module, self._stream = module, stream
        self._before: list[interface.Stream] = []

    def __enter__(self) -> Self:
        self._before = [*self._before, self._module.current_stream(self._stream.device)]
        self._module.set_stream(self._stream)
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        self._module.set_stream(self._before.pop())

    def _again(self) -> ChosenStream:
        return ChosenStream(self._module, self._stream)


_modules: dict[str, DeviceModule] = {}


def module_of(kind: str) -> DeviceModule:
    """`lt.npu` for 'npu'; DeviceError if its plugin cannot be loaded."""
    backend = registry.get(kind)
    found = _modules.get(kind)
    if found is None or found._backend is not backend:
        found = _modules[kind] = DeviceModule(kind)
    return found


def _check(backend: interface.Backend) -> None:
    name = backend.name
    if what := device_names.taken(name):
        raise ValueError(f"register: a backend cannot be called {name!r}: that is {what}")
    for extension in backend.extensions:
        if hasattr(DeviceModule, extension):
            raise ValueError(f"register: the extension {extension!r} of {name!r} is a name of every device module")


def attach(backend: interface.Backend) -> None:
    """Tensors get `x.npu()` and `x.is_npu`, autocast the policies of the kind of device.

    ValueError, and nothing done, if the backend's name or that of an extension means something else already.
    """
    _check(backend)
    autocast.add_device(backend.name, backend.autocast_policies, backend.autocast_dtype)
    device_names.attach(backend.name)


def detach(backend: interface.Backend) -> None:
    """Compute what is pending, and forget plans and names of a backend; DeviceError where a block is in its device."""
    name, mode = backend.name, local.trace.mode
    if mode.device.partition(":")[0] == name:
        raise DeviceError(f"unregister: {str(mode.device)!r} is the device of the block that this is called in")
    sync()
    set_mode(FIELD, tuple((k, d) for k, d in mode.chosen if k != name))
    sync()
    local.trace.reset_trie()
    plan_cache.forget_plans(name)
    device_names.detach(name)
    autocast.remove_device(name)
    _modules.pop(name, None)


tracebacks.guard_methods(DeviceModule, ("__getattr__", "__dir__"))
