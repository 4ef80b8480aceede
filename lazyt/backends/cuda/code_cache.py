"""The code of kernels on the devices of this process: each is compiled once for a mapping, and shared by all plans."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from lazyt.backends.cuda.codegen.emit import arguments, program
from lazyt.backends.cuda.codegen.mapping import shared_bytes
from lazyt.backends.cuda.flags import variant
from lazyt.forking import CODE, process_lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.cuda.codegen.mapping import Mapping
    from lazyt.backends.cuda.device import Device
    from lazyt.ir import kernel as k

_lock = process_lock(CODE)
# Code lives as long as some plan uses it.
_functions: weakref.WeakValueDictionary[tuple[int, str, Mapping], Function] = weakref.WeakValueDictionary()


class Function:
    """A kernel under one mapping, loaded on a device."""

    __slots__ = ("__weakref__", "entries", "handle", "mapping", "shared")

    def __init__(self, handle: Any, kernel: k.Kernel, mapping: Mapping) -> None:
        self.handle = handle
        self.mapping = mapping
        self.entries = arguments(kernel, mapping)
        self.shared = shared_bytes(kernel, mapping)


def functions(where: Device, wanted: Sequence[tuple[k.Kernel, Mapping]]) -> tuple[list[Function], int]:
    """The code of each kernel under its mapping, missing ones compiled as one program; and their number."""
    with _lock:
        key = id(where)
        found = {(key_of(w), m): f for w, m in wanted if (f := _functions.get((key, key_of(w), m))) is not None}
        missing = {(key_of(w), m): w for w, m in wanted if (key_of(w), m) not in found}
        names = {pair: symbol_of(kernel, pair[1]) for pair, kernel in missing.items()}
        if missing:
            source = program([(kernel, pair[1], names[pair]) for pair, kernel in missing.items()])
            sizes = {names[pair]: arguments(kernel, pair[1]) for pair, kernel in missing.items()}
            with where.work():
                handles = where.driver.load(where.number, source, sizes)
            for pair, kernel in missing.items():
                f = found[pair] = _functions[key, *pair] = Function(handles[names[pair]], kernel, pair[1])
                assert f.mapping == pair[1]
    return [found[key_of(w), m] for w, m in wanted], len(missing)


def key_of(kernel: k.Kernel) -> str:
    """The identity of a kernel's code under one mapping."""
    return kernel.key + variant()


def symbol_of(kernel: k.Kernel, mapping: Mapping) -> str:
    """The name of a kernel's function under a mapping."""
    return f"lazyt_k_{key_of(kernel)}_{mapping.key}"


def is_loaded(where: Device, kernel: k.Kernel, mapping: Mapping) -> bool:
    """Whether a kernel's code under a mapping is on a device."""
    return (id(where), key_of(kernel), mapping) in _functions
