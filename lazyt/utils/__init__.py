"""`lazyt.utils`: what stands beside a model. `lazyt.utils.checkpoint` trades time for memory."""

from lazyt.tracing import tracebacks as _tracebacks
from lazyt.utils import checkpoint as checkpoint

__all__ = ["checkpoint"]

_tracebacks.guard_functions(vars(checkpoint), checkpoint.__all__)


def __dir__() -> list[str]:
    return sorted(__all__)
