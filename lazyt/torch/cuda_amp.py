"""`torch.cuda.amp`, as programs had it before `torch.amp`: for GPUs of NVIDIA's, and off where there is none."""

from __future__ import annotations

from typing import Any

from lazyt import amp, device_modules
from lazyt.config import HOST, NVIDIA
from lazyt.ir import dtypes

__all__ = ["GradScaler", "autocast"]


def _where(asked: bool) -> str:
    """The device, and by it whether it is on."""
    return NVIDIA if asked and device_modules.module_of(NVIDIA).is_available() else HOST


def autocast(enabled: bool = True, dtype: Any = dtypes.float16, cache_enabled: bool = True) -> amp.autocast:
    """`lazyt.amp.autocast` on a GPU."""
    where = _where(enabled)
    return amp.autocast(where, dtype, where != HOST, cache_enabled)


def GradScaler(  # noqa: N802 - PyTorch's name
    init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000,
    enabled: bool = True,
) -> amp.GradScaler:  # fmt: skip
    """`lazyt.amp.GradScaler` on a GPU."""
    where = _where(enabled)
    return amp.GradScaler(where, init_scale, growth_factor, backoff_factor, growth_interval, where != HOST)
