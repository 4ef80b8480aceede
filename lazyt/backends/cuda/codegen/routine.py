"""Kernels outside the kernel IR (scatters, attention): programs loaded on a device, once each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.backends.cuda.codegen.mapping import Mapping

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.cuda.device import Device


class Function:
    """One of the kernels, loaded on a device."""

    def __init__(self, handle: Any, threads: int, entries: int) -> None:
        self.handle = handle
        self.mapping = Mapping(threads=threads)
        self.entries = entries
        self.shared = 0


_loaded: dict[tuple[int, str], dict[str, Function]] = {}


def loaded(where: Device, source: str, names: Sequence[str], threads: int, entries: int) -> dict[str, Function]:
    """The kernels of a program on a device, each of so many threads a block and so many arguments."""
    key = (id(where), source)
    if key not in _loaded:
        with where.work():
            handles = where.driver.load(where.number, source, dict.fromkeys(names, entries))
        _loaded[key] = {name: Function(handle, threads, entries) for name, handle in handles.items()}
    return _loaded[key]


def is_loaded(where: Device, source: str) -> bool:
    return (id(where), source) in _loaded
