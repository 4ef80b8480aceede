"""Backends of other distributions: entry points of the group `lazyt.backends`, loaded when their device is named.

    [project.entry-points."lazyt.backends"]
    npu = "lazyt_npu:NpuBackend"

An entry point has the name of the backend, and names a subclass of `Backend`, an instance, or a function that returns
one. Nothing is looked for at `import lazyt`. `LAZYT_BACKEND_AUTOLOAD=0` leaves plugins to `lazyt.backends.load`.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lazyt.backends.interface import INTERFACE_VERSION, Backend
from lazyt.backends.plugin_names import GROUP
from lazyt.errors import DeviceError
from lazyt.forking import process_lock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.metadata import EntryPoint

AUTOLOAD = "LAZYT_BACKEND_AUTOLOAD"

_lock = process_lock()
_found: dict[str, list[Plugin]] | None = None


class Plugin:
    """One entry point. `error`: why it could not be loaded, once that was tried."""

    def __init__(self, entry: EntryPoint) -> None:
        self.entry = entry
        self.name, self.value = entry.name, entry.value
        self.distribution = (
            "an unknown distribution" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
        )
        self.error: Exception | None = None

    def __repr__(self) -> str:
        return f"<plugin {self.name!r} = {self.value} of {self.distribution}>"

    def load(self) -> Backend:
        """The backend; DeviceError, with the cause, for a plugin that fails or is none. A failure is remembered."""
        if self.error is None:
            try:
                return self._loaded()
            except Exception as e:  # noqa: BLE001 - whatever a plugin raises is told to who asks for its device
                self.error = e
        why = f"{type(self.error).__name__}: {self.error}"
        raise DeviceError(f"{self._who()} cannot be loaded: {why}") from self.error

    def _who(self) -> str:
        return f"device {self.name!r}: its plugin {self.value} (of {self.distribution})"

    def _loaded(self) -> Backend:
        found: Any = self.entry.load()
        if callable(found) and not _is_backend(found):
            found = found()
        if not _is_backend(found):
            raise TypeError(f"it gives {found!r}, and a plugin gives an instance of lazyt.backends.Backend")
        if found.name != self.name:
            raise ValueError(f"its backend is called {found.name!r}, and its entry point {self.name!r}")
        if found.interface_version is None:
            raise ValueError(
                f"its backend does not say for which version of the interface it is written: `interface_version = "
                f"{INTERFACE_VERSION}` for that of this lazyt"
            )
        check_version(found)
        backend: Backend = found
        return backend


def _is_backend(x: object) -> bool:
    return Backend in type(x).__mro__


def check_version(backend: Backend) -> None:
    """DeviceError for a backend that is written for another version of the interface."""
    if backend.interface_version not in (None, INTERFACE_VERSION):
        raise DeviceError(
            f"backend {backend.name!r} is written for version {backend.interface_version} of the interface of "
            f"backends; this lazyt has version {INTERFACE_VERSION}"
        )


def is_automatic() -> bool:
    """Whether plugins are loaded when their devices are named."""
    return os.environ.get(AUTOLOAD, "1") != "0"


def installed(again: bool = False) -> dict[str, list[Plugin]]:
    """The plugins of this environment by name, more than one where several have a name; found once, or again."""
    global _found
    with _lock:
        if _found is None or again:
            # NOTE: it takes longer to import than to ask, and most programs do not ask.
            entries = import_module("importlib.metadata").entry_points(group=GROUP)
            before, _found = _found or {}, {}
            for entry in entries:
                known = [p for p in before.get(entry.name, ()) if p.value == entry.value]
                _found.setdefault(entry.name, []).append(known[0] if known else Plugin(entry))
        return _found


def plugins_installed() -> list[Plugin]:
    """The plugins that are installed, whether or not they can be loaded. None of them is loaded by asking.

    >>> import lazyt as lt
    >>> [p.name for p in lt.backends.plugins_installed() if p.distribution.startswith("numpy")]
    []
    """
    return [p for several in installed(again=True).values() for p in _distinct(several)]


def load(name: str) -> Backend | None:
    """The backend of the plugin with this name; None if there is none. DeviceError if it fails, or there are two."""
    found = _distinct(installed().get(name, ()))
    if not found:
        return None
    if len(found) > 1:
        raise DeviceError(
            f"device {name!r}: {len(found)} plugins have this name, and neither is loaded: "
            + ", ".join(f"{p.value} (of {p.distribution})" for p in found)
        )
    return found[0].load()


def _distinct(plugins: Sequence[Plugin]) -> list[Plugin]:
    """Without those that stand twice on the path: an editable distribution does."""
    return list({(p.value, p.distribution): p for p in plugins}.values())
