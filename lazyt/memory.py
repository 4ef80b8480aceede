"""`lazyt.memory`: how much memory tensors take, and how much they may; see `lazyt/runtime/memory.py`."""

from lazyt.functions.compression import compress
from lazyt.functions.protocols.signatures import publish as _publish
from lazyt.inspect.memory_plan import plan
from lazyt.runtime.memory import allocated, empty_cache, packed, peak, reserved, reset_peak, set_limit, set_packed_share
from lazyt.runtime.memory_budget import budget
from lazyt.tracing.tracebacks import guard_classes as _guard_classes

__all__ = [
    "allocated", "budget", "compress", "empty_cache", "packed", "peak", "plan", "reserved", "reset_peak", "set_limit",
    "set_packed_share",
]  # fmt: skip

_publish(globals(), __all__)
_guard_classes(globals(), __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
