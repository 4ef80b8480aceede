"""The CUDA backend: the kernel IR as CUDA C, compiled by NVRTC and run through CuPy.

File by file as `backends/cpu`, and what both need is in `backends/common` and `backends/math`. CuPy is imported when a
GPU is first asked for, never before; and so are these modules, by whoever names one behind `cuda`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lazyt.backends.cuda import device, executor
    from lazyt.backends.cuda.codegen import needs
    from lazyt.backends.cuda.library import finding, registry

# Where each module that `backend.py` asks for stands; it is imported when it is first used.
_PLACES = {
    "device": "device",
    "executor": "executor",
    "finding": "library.finding",
    "needs": "codegen.needs",
    "registry": "library.registry",
}
__all__ = ["device", "executor", "finding", "needs", "registry"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{_PLACES[name]}")
