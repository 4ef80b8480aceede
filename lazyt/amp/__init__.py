"""Mixed precision (`lazyt.amp`): autocast regions, gradient scaling, and apex's presets."""

from lazyt.amp.autocast import (
    autocast,
    custom_bwd,
    custom_fwd,
    get_autocast_dtype,
    is_autocast_available,
    is_autocast_enabled,
)
from lazyt.amp.grad_scaler import GradScaler
from lazyt.amp.initialize import initialize, loss_scalers, master_params, scale_loss
from lazyt.tracing import tracebacks as _tracebacks

__all__ = [
    "GradScaler",
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "get_autocast_dtype",
    "initialize",
    "is_autocast_available",
    "is_autocast_enabled",
    "loss_scalers",
    "master_params",
    "scale_loss",
]

_tracebacks.guard_functions(globals(), __all__)
_tracebacks.guard_classes(globals(), __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
