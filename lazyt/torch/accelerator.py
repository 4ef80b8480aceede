"""`torch.accelerator`: the kind of device that computes beside the host, if this machine has one."""

from __future__ import annotations

from typing import Any

import lazyt as lt
from lazyt import device_modules
from lazyt.backends import registry
from lazyt.config import HOST

__all__ = ["current_accelerator", "current_device_index", "device_count", "is_available", "synchronize"]


def _kind() -> str | None:
    kinds = [name.partition(":")[0] for name in registry.available()]
    return next((kind for kind in kinds if kind != HOST), None)


def is_available() -> bool:
    """Whether there is one."""
    return _kind() is not None


def device_count() -> int:
    """How many there are."""
    kind = _kind()
    return 0 if kind is None else device_modules.module_of(kind).device_count()


def current_accelerator(check_available: bool = False) -> Any:
    """Its kind, as a device; None where there is none."""
    kind = _kind()
    return None if kind is None else lt.device(kind)


def current_device_index() -> int:
    """The number of the current one; 0 where there is none."""
    kind = _kind()
    return 0 if kind is None else device_modules.module_of(kind).current_device()


def synchronize(device: Any = None) -> None:
    """Compute what is pending, and wait for the devices."""
    kind = _kind()
    lt.sync() if kind is None else device_modules.module_of(kind).synchronize(device)
