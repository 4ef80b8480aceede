"""Modules that are imported at their first use, so that an import of lazyt loads only what every program needs.

    if TYPE_CHECKING:
        from lazyt.ir.passes import pipeline
    else:
        pipeline = on_demand.module("lazyt.ir.passes.pipeline")

Such a line is an import like any other for the order of packages (tests/test_structure.py). It is not for what runs at
each operation or sync: there a name is bound once. Python's own lock of a module makes the first use safe between
threads; an interrupt in it leaves the module unloaded, and the next use loads it. While a module is being loaded, a
handler of signals can use what is loaded already: another load is refused, as modules would remain that know the half
of one.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import Any

from lazyt.errors import SyncError

# Packages that lazyt cannot do without and loads late: what to say where one is missing.
_MISSING = {"llvmlite": "lazyt compiles for the CPU with llvmlite, which is not installed: pip install llvmlite"}


class _Module:
    """Stands for a module; its attributes are the module's, which is loaded when the first is read."""

    __slots__ = ("_module", "_name")

    _module: Any
    _name: str

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_module", None)

    def __getattr__(self, attribute: str) -> Any:
        module = self._module
        if module is None:
            module = load(self._name)
            if not _is_partial(module):
                object.__setattr__(self, "_module", module)
        return getattr(module, attribute)

    def __setattr__(self, attribute: str, value: Any) -> None:
        setattr(load(self._name), attribute, value)

    def __dir__(self) -> list[str]:
        return dir(load(self._name))

    def __repr__(self) -> str:
        return f"<{self._name}, {'loaded' if self._name in sys.modules else 'loaded on demand'}>"


def module(name: str) -> Any:
    """What stands for the module of this full name."""
    return _Module(name)


class _Loading(threading.local):
    """What this thread is loading."""

    name: str | None = None


_loading = _Loading()


def _is_partial(module: Any) -> bool:
    """Whether a module is being imported just now."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def load(name: str) -> Any:
    """The module itself, imported if it is not yet.

    Raises SyncError in what interrupts a load (a handler of signals, a finalizer), unless the module is there.
    """
    found = sys.modules.get(name)
    if found is not None and not _is_partial(found):
        return found
    if _loading.name is not None:
        raise SyncError(
            f"{name} is needed, and what interrupts an import (a handler of signals, a finalizer) cannot load it: "
            f"{_loading.name} is being imported just now; the same can be done afterwards"
        )
    try:
        _loading.name = name
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in _MISSING:
            raise
        raise ModuleNotFoundError(_MISSING[error.name], name=error.name) from None
    finally:
        _loading.name = None
