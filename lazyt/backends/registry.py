"""The backends by name; no other module outside their packages names one. A backend is loaded at its first use.

`register(backend)` adds one under the prefix of its devices' names: `npu` has `npu:0` and `npu:1`. A name that
is not registered may be that of a plugin (lazyt/backends/plugins.py).
"""

from __future__ import annotations

import importlib
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, cast

from lazyt.backends import plugins
from lazyt.config import HOST
from lazyt.errors import DeviceError
from lazyt.forking import NAMES, process_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from lazyt.backends.interface import Backend, HostBackend

# Each has a `BACKEND`.
_MODULES = {HOST: "lazyt.backends.cpu.backend", "cuda": "lazyt.backends.cuda.backend"}
_loaded: dict[str, Backend] = {}
# What attaches a backend to tensors and modules, and detaches it; loaded with the first backend that is registered.
_FACES = "lazyt.device_modules"
# What is called with the name of a backend that is to be removed, or whose plugin failed.
before_removing: list[Callable[[str], None]] = []
# The contexts in which a plugin of this name is loaded.
around_loading: list[Callable[[str], AbstractContextManager[None]]] = []
_lock = process_lock(NAMES)
# The plugins that were unregistered: naming their devices does not load them again.
_removed: set[str] = set()


class _Loading(threading.local):
    """The plugin that this thread is loading."""

    name = ""


loading = _Loading()


def _none_chosen(kind: str) -> str | None:
    return None


# The device that the name of a kind alone means in this thread, if one was chosen; what records knows.
chosen: Callable[[str], str | None] = _none_chosen


class _Devices(dict[str, "Backend"]):
    """The backend of each device that was used, by the device's name."""

    def __missing__(self, device: str) -> Backend:
        found = self[device] = get(device.partition(":")[0])
        return found


backends = _Devices()


def get(name: str) -> Backend:
    """The backend of this name, loaded if it is not yet; DeviceError for one that is not registered, or fails."""
    found = _loaded.get(name)
    if found is None:
        if name in _MODULES:
            found = _loaded[name] = importlib.import_module(_MODULES[name]).BACKEND
        elif not load_plugin(name):
            raise DeviceError(f"device {name!r}: its backend is not registered, or no longer")
        else:
            found = _loaded[name]
    return found


def host() -> HostBackend:
    """The backend of the host's memory."""
    return cast("HostBackend", get(HOST))


def register(backend: Backend) -> None:
    """Add a backend. ValueError if its name is taken or no name; DeviceError for another version of the interface.

    >>> import lazyt as lt
    >>> class Mine(lt.backends.SmallBackend):
    ...     name = "mine"
    ...     def allocate(self, nbytes, device):
    ...         return bytearray(nbytes)
    ...     def write(self, block, content, device):
    ...         block[: content.nbytes] = content.tobytes()
    ...     def read(self, block, into, device):
    ...         into[:] = memoryview(block)[: into.nbytes]
    >>> lt.backends.register(Mine())
    >>> print(lt.arange(3, device="mine") + 1)
    [1 2 3]
    >>> lt.backends.unregister("mine")
    """
    name = backend.name
    with _lock:
        if name in (*_MODULES, *_loaded):
            raise ValueError(f"register: a backend called {name!r} is registered already")
        if not (name.isidentifier() and name.islower()):
            raise ValueError(f"register: {name!r} cannot be the name of a backend: small letters, digits and _ can")
        plugins.check_version(backend)
        importlib.import_module(_FACES).attach(backend)
        _loaded[name] = backend
        _removed.discard(name)


def unregister(name: str) -> None:
    """Remove a backend that was registered, with its plans; see `register`. KeyError if there was none.

    What is pending in this thread is computed before. ValueError for one of lazyt's own; DeviceError in a block whose
    device is one of the backend's.
    """
    if name in _MODULES:
        raise ValueError(f"unregister: {name!r} is one of lazyt's own backends")
    with _lock:
        backend = _loaded[name]
        importlib.import_module(_FACES).detach(backend)
        for tell in before_removing:
            tell(name)
        del _loaded[name]
        if name in plugins.installed():
            _removed.add(name)
        for device in [d for d in backends if d.partition(":")[0] == name]:
            del backends[device]
    backend.close()


def load_plugin(name: str) -> bool:
    """Register the plugin of this name, where there is one and plugins are automatic; DeviceError if it fails."""
    if not plugins.is_automatic() or not name.isidentifier():
        return False
    with _lock:
        if name not in _loaded:
            if name in _removed:
                raise DeviceError(
                    f"device {name!r}: its backend was removed; lazyt.backends.load({name!r}) loads it again"
                )
            return _load_plugin(name)
    return True


def _load_plugin(name: str) -> bool:
    """Register the plugin of this name, if there is one; one that fails leaves nothing registered."""
    before, loading.name = loading.name, name
    try:
        with ExitStack() as contexts:
            for context in around_loading:
                contexts.enter_context(context(name))
            found = plugins.load(name)
            if found is None:
                return False
            if name not in _loaded:
                _adopt(found)
    except BaseException:
        for tell in before_removing:
            tell(name)
        raise
    finally:
        loading.name = before
    return True


def _adopt(found: Backend) -> None:
    try:
        register(found)
    except ValueError as e:
        raise DeviceError(f"device {found.name!r}: its plugin cannot be registered: {e}") from e


def load(name: str) -> Backend:
    """The backend of this name, of a plugin also where plugins are not automatic. DeviceError if there is none.

    >>> import lazyt as lt
    >>> lt.backends.load("cpu").name
    'cpu'
    """
    with _lock:
        if name not in (*_MODULES, *_loaded):
            plugins.installed(again=True)
            _removed.discard(name)
            if not _load_plugin(name):
                raise DeviceError(f"load: no plugin is called {name!r}; {_plugin_names()}")
    return get(name)


def _plugin_names() -> str:
    there = sorted(plugins.installed())
    return f"installed are {', '.join(map(repr, there))}" if there else "none is installed"


def is_kind(name: str) -> bool:
    """Whether a backend has this name, or an installed plugin that is loaded when it is named."""
    if name in _MODULES or name in _loaded:
        return True
    return plugins.is_automatic() and name.isidentifier() and name in plugins.installed()


def names() -> list[str]:
    """The names of all backends, loaded or not: the kinds of devices.

    >>> import lazyt as lt
    >>> "cpu" in lt.backends.names()
    True
    """
    return [*dict.fromkeys((*_MODULES, *_loaded, *(plugins.installed() if plugins.is_automatic() else ())))]


def loaded() -> Iterator[Backend]:
    """The backends that some program used."""
    return iter(_loaded.values())


def device_of(name: object) -> str:
    """The full name of a device, `cuda:0` for `cuda`; DeviceError if it does not exist."""
    if isinstance(name, str):
        kind, _, index = name.partition(":")
        if kind in _MODULES or kind in _loaded or load_plugin(kind):
            # NOTE: without an index it is the device that this thread has chosen.
            return get(kind).device(str(name if index else chosen(kind) or name))
    known = [repr(HOST), "'cuda:0', 'cuda:1', ..."] + [repr(n) for n in names() if n not in _MODULES]
    raise DeviceError(
        f"device {name!r}: no such device; lazyt runs on {', '.join(known[:-1])} and {known[-1]}{_why_not(name)}"
    )


def _why_not(name: object) -> str:
    kind = name.partition(":")[0] if isinstance(name, str) else ""
    if plugins.is_automatic() or kind not in plugins.installed():
        return ""
    return f"; the plugin of {kind!r} is not loaded, because {plugins.AUTOLOAD} is 0"


def is_device_name(text: str) -> bool:
    """Whether a string names a device of some backend, whether or not this machine has it. A plugin is loaded."""
    kind = text.partition(":")[0]
    return kind in _MODULES or kind in _loaded or load_plugin(kind)


def available() -> list[str]:
    """The kinds of devices of which this machine has one, and whose plugin, if it has one, can be loaded.

    >>> import lazyt as lt
    >>> "cpu" in lt.backends.available()
    True
    """
    return [name for name in names() if is_available(name)]


def is_available(kind: str) -> bool:
    """Whether this machine has a device of a kind; the others are not asked for."""
    try:
        device_of(kind)
    except DeviceError:
        return False
    return True


def by_dlpack(kind: int) -> Backend | None:
    """The backend of a DLPack device type; None if there is none."""
    for name in names():
        try:
            backend = get(name)
        except DeviceError:  # a plugin that fails has no memory to take over
            continue
        if backend.dlpack_type == kind:
            return backend
    return None
