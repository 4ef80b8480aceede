"""Helper functions of kernels, compiled once in a process and found by name.

A sine's reduction of huge angles, or a power, is as much to compile as a small kernel. A kernel
whose `text.Module` has this library declares such a function; its object is cached on disk as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import llvmlite.binding as llvm

from lazyt.backends.cpu import engine

if TYPE_CHECKING:
    from collections.abc import Callable

_loaded: dict[str, engine.Module] = {}


def provide(symbol: str, write: Callable[[], str]) -> None:
    """Have `symbol` known to the process; `write` gives the text of a module that defines it."""
    if symbol not in _loaded:
        module = engine.compile_module(write(), [symbol], permanent=True)
        llvm.add_symbol(symbol, module.address(symbol))
        _loaded[symbol] = module
