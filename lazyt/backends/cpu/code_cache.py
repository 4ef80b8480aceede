"""The machine code of kernels: compiled once a process, kept while some plan uses it."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence

from lazyt.backends.cpu.codegen.emit import emit
from lazyt.backends.cpu.engine import (
    Module,
    assembly,
    compile_ahead,
    compile_early,
    compile_module,
    is_cached,
    load_named,
    remember,
)
from lazyt.backends.cpu.flags import variant
from lazyt.config import general as settings
from lazyt.forking import CODE, process_lock
from lazyt.ir import kernel as k

# Machine code is kept while some plan uses it.
_kernels: weakref.WeakValueDictionary[str, Compiled] = weakref.WeakValueDictionary()
_lock = process_lock(CODE)


class Compiled:
    """A kernel's machine code."""

    __slots__ = ("__weakref__", "address", "kernel", "module")

    def __init__(self, kernel: k.Kernel, module: Module) -> None:
        self.kernel = kernel
        self.module = module
        self.address = module.address(symbol_of(kernel))


def _found(kernel: k.Kernel) -> Compiled | None:
    """The code that another process made of a kernel, found without writing its text."""
    module = load_named(symbol_of(kernel), lambda: source_of(kernel)) if settings["stored"] else None
    return None if module is None else Compiled(kernel, module)


def _made(kernel: k.Kernel, source: str) -> Compiled:
    name = symbol_of(kernel)
    made = Compiled(kernel, compile_module(source, [name]))
    if settings["stored"]:
        remember(name, source)
    return made


def compiled(kernel: k.Kernel) -> Compiled:
    """The machine code of a kernel, made once a process (and kept on disk)."""
    name = kernel.key + variant()
    c = _kernels.get(name)
    if c is None:
        with _lock:
            c = _kernels.get(name)
            if c is None:
                c = _kernels[name] = _found(kernel) or _made(kernel, source_of(kernel))
    return c


class _Begun:
    """What `begin` has found and written for the plan in preparation."""

    found: Mapping[str, Compiled] = {}
    texts: Mapping[str, str] = {}


_begun = _Begun()


def _missing(kernels: Sequence[k.Kernel]) -> dict[str, k.Kernel]:
    """Those without machine code in memory, by their names."""
    return {x.key + variant(): x for x in kernels if x.key + variant() not in _kernels}


def _looked_up(
    new: Mapping[str, k.Kernel], written: Mapping[str, str]
) -> tuple[dict[str, Compiled], dict[str, str]]:  # fmt: skip
    """The code that is on disk, which is loaded, and the texts of the other kernels, of which some are written."""
    with _lock:
        here = {name: c for name, x in new.items() if name not in written and (c := _found(x)) is not None}
        _kernels.update(here)
    return here, {name: written.get(name) or source_of(x) for name, x in new.items() if name not in here}


def begin(kernels: Sequence[k.Kernel]) -> None:
    """Begin to make the code of kernels on another thread; `compile_all` takes it from there."""
    new = _missing(kernels)
    _begun.found, _begun.texts = _looked_up(new, {})
    compile_early([(text, symbol_of(new[name])) for name, text in _begun.texts.items()])


def compile_all(kernels: Sequence[k.Kernel], lanes: int, others: Sequence[tuple[str, str]] = ()) -> list[Compiled]:
    """The machine code of kernels; missing code is compiled by so many threads.

    So are `others`, modules with one function each (text, its name), which are left for `compile_module`.
    """
    new = _missing(kernels)
    # NOTE: code is kept while somebody has it.
    _here, sources = _looked_up(new, _begun.texts)
    compile_ahead([*((text, symbol_of(new[name])) for name, text in sources.items()), *others], lanes)
    with _lock:
        made = {name: _made(new[name], text) for name, text in sources.items() if name not in _kernels}
        _kernels.update(made)
    out = [compiled(x) for x in kernels]
    _begun.found, _begun.texts = {}, {}
    return out


def code_at(kernel: k.Kernel) -> str:
    """The place of a kernel's machine code: 'memory', 'disk', or '' if it is not compiled yet."""
    if kernel.key + variant() in _kernels:
        return "memory"
    return "disk" if is_cached(source_of(kernel)) else ""


def source_of(kernel: k.Kernel) -> str:
    """A kernel's LLVM IR; compiles nothing."""
    return emit(kernel, symbol_of(kernel))


def assembly_of(kernel: k.Kernel) -> str:
    """A kernel's assembly for this host, generated for reading; loads nothing."""
    return assembly(source_of(kernel), [symbol_of(kernel)])


def symbol_of(kernel: k.Kernel) -> str:
    """The name of a kernel's function."""
    return f"lazyt_k_{kernel.key}{variant()}"
