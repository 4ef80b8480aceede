"""LLVM IR that users wrote: compiled, checked and loaded apart from lazyt's own code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import llvmlite.binding as llvm

from lazyt.backends.cpu import engine
from lazyt.errors import KernelError

if TYPE_CHECKING:
    from lazyt.backends.interface import LoadedCode


class _Loaded:
    """The address of a function, and the engine that it is in."""

    def __init__(self, address: int, generation: engine._Generation) -> None:
        self.address = address
        self._generation = generation


def load(text: str, name: str) -> LoadedCode:
    """The function `name` of a module. KernelError for IR that LLVM refuses, and for symbols that are not there."""
    host = engine.host()
    try:
        parsed = llvm.parse_assembly(text)
        parsed.triple, parsed.data_layout = host.triple, host.data_layout
        parsed.verify()
    except RuntimeError as error:
        raise KernelError(f"llvm_ir: LLVM refuses the text: {str(error).strip()}") from None
    defined = [f.name for f in parsed.functions if not f.is_declaration]
    if name not in defined:
        raise KernelError(f"llvm_ir: the text defines no function {name!r}; it has {', '.join(defined) or 'none'}")
    data = host.machine.emit_object(parsed)
    symbols = engine.elf_symbols(data)
    # NOTE: LLVM ends the process on a symbol that it does not find.
    missing = sorted(s for s in (symbols[1] if symbols else ()) if llvm.address_of_symbol(s) is None)
    if missing:
        raise KernelError(f"llvm_ir: {name!r} calls what this process does not have: {', '.join(missing)}")
    generation = engine._Generation()
    generation.add(text, data, [name])
    return _Loaded(generation.find(name), generation)
