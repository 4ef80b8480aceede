"""The backends by name; no other module outside their packages names one. A backend is loaded at its first use.

`register(backend)` adds one under the prefix of its devices' names: `interp` has `interp` and `interp:1`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from lazyt.config import HOST
from lazyt.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lazyt.backends.interface import Backend, HostBackend

# Each has a `BACKEND`.
_MODULES = {HOST: "lazyt.backends.cpu.backend", "cuda": "lazyt.backends.cuda.backend"}
_loaded: dict[str, Backend] = {}


class _Devices(dict[str, "Backend"]):
    """The backend of each device that was used, by the device's name."""

    def __missing__(self, device: str) -> Backend:
        found = self[device] = get(device.partition(":")[0])
        return found


backends = _Devices()


def get(name: str) -> Backend:
    """The backend of this name, loaded if it is not yet; KeyError for one that is not registered."""
    found = _loaded.get(name)
    if found is None:
        found = _loaded[name] = importlib.import_module(_MODULES[name]).BACKEND
    return found


def host() -> HostBackend:
    """The backend of the host's memory."""
    return cast("HostBackend", get(HOST))


def register(backend: Backend) -> None:
    """Add a backend; ValueError if its name is taken."""
    if backend.name in (*_MODULES, *_loaded):
        raise ValueError(f"register: a backend called {backend.name!r} is registered already")
    _loaded[backend.name] = backend


def unregister(name: str) -> None:
    """Remove a backend that was registered; KeyError if there was none."""
    if name in _MODULES:
        raise ValueError(f"unregister: {name!r} is one of lazyt's own backends")
    del _loaded[name]
    for device in [d for d in backends if d.partition(":")[0] == name]:
        del backends[device]


def names() -> list[str]:
    """The names of all backends, loaded or not: the kinds of devices."""
    return [*dict.fromkeys((*_MODULES, *_loaded))]


def loaded() -> Iterator[Backend]:
    """The backends that some program used."""
    return iter(_loaded.values())


def device_of(name: object) -> str:
    """The full name of a device, `cuda:0` for `cuda`; DeviceError if it does not exist."""
    if isinstance(name, str) and (kind := name.partition(":")[0]) in names():
        return get(kind).device(str(name))
    known = [repr(HOST), "'cuda:0', 'cuda:1', ..."] + [repr(n) for n in _loaded if n not in _MODULES]
    raise DeviceError(f"device {name!r}: no such device; lazyt runs on {', '.join(known[:-1])} and {known[-1]}")


def is_device_name(text: str) -> bool:
    """Whether a string names a device of some backend, whether or not this machine has it."""
    return text.partition(":")[0] in names()


def available() -> list[str]:
    """The kinds of devices of which this machine has one."""
    found = []
    for name in names():
        try:
            device_of(name)
        except DeviceError:
            continue
        found.append(name)
    return found


def by_dlpack(kind: int) -> Backend | None:
    """The backend of a DLPack device type; None if there is none."""
    for name in names():
        backend = get(name)
        if backend.dlpack_type == kind:
            return backend
    return None
