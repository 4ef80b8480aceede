"""The CUDA backend: the kernel IR as CUDA C, compiled by NVRTC and run through CuPy.

File by file as `backends/cpu`, and what both need is in `backends/rules`. CuPy is imported when a GPU is first asked
for, never before; and so are these rooms, by whoever names one behind `cuda`: a program on the CPU loads none.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lazyt.backends.cuda import (
        attention,
        attention_kernels,
        convolutions,
        device,
        executor,
        finding,
        library,
        needs,
        products,
        scatter,
    )

# What the rest of the house asks for.
__all__ = [
    "attention", "attention_kernels", "convolutions", "device", "executor", "finding", "library", "needs", "products",
    "scatter",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
