"""The CUDA backend: the kernel IR as CUDA C, compiled by NVRTC and run through CuPy.

File by file as `backends/cpu`, and what both need is in `backends/rules`. CuPy is imported when a GPU is first asked
for, never before; and so are these rooms, by whoever names one behind `cuda`: a program on the CPU loads none.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lazyt.backends.cuda import device, executor
    from lazyt.backends.cuda.codegen import needs
    from lazyt.backends.cuda.library import (
        attention,
        attention_kernels,
        convolutions,
        finding,
        products,
        registry,
        scatter,
    )

# Where each module that the rest of lazyt asks for stands; it is imported when it is first used.
_PLACES = {
    "device": "device",
    "executor": "executor",
    "needs": "codegen.needs",
    **{
        name: f"library.{name}"
        for name in ("attention", "attention_kernels", "convolutions", "finding", "products", "registry", "scatter")
    },
}
__all__ = [
    "attention", "attention_kernels", "convolutions", "device", "executor", "finding", "needs", "products", "registry",
    "scatter",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{_PLACES[name]}")
