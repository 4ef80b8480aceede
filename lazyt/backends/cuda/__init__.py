"""The CUDA backend: the kernel IR as CUDA C, compiled by NVRTC and run through CuPy.

Its files mirror `backends/cpu`; shared code is in `backends/common` and `backends/math`. CuPy is imported when a GPU is
first used, never before; and so are these modules, at the first access to an attribute of `cuda`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lazyt.backends.cuda import device, executor
    from lazyt.backends.cuda.codegen import emit, mapping, needs
    from lazyt.backends.cuda.library import finding, registry

# The path of each module that `backend.py` uses; a module is imported at its first use.
_PLACES = {
    "device": "device",
    "emit": "codegen.emit",
    "executor": "executor",
    "finding": "library.finding",
    "mapping": "codegen.mapping",
    "needs": "codegen.needs",
    "registry": "library.registry",
}
__all__ = ["device", "emit", "executor", "finding", "mapping", "needs", "registry"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{_PLACES[name]}")
