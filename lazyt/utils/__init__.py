"""`lazyt.utils`: what stands beside a model, under PyTorch's names.

`lazyt.utils.checkpoint` trades time for memory; `lazyt.utils.data` is `lazyt.data`.
"""

from lazyt.tracing import tracebacks as _tracebacks
from lazyt.utils import checkpoint as checkpoint, data as data

__all__ = ["checkpoint", "data"]

_tracebacks.guard_functions(vars(checkpoint), checkpoint.__all__)


def __dir__() -> list[str]:
    return sorted(__all__)
