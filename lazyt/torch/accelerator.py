"""`torch.accelerator`: the kind of device that computes beside the host, if this machine has one."""

from __future__ import annotations

from typing import Any

import lazyt as lt

__all__ = ["current_accelerator", "current_device_index", "device_count", "is_available", "synchronize"]


def is_available() -> bool:
    """Whether there is one."""
    return lt.cuda.is_available()  # type: ignore[no-any-return]


def device_count() -> int:
    """How many there are."""
    return lt.cuda.device_count()  # type: ignore[no-any-return]


def current_accelerator(check_available: bool = False) -> Any:
    """Its kind, as a device; None where there is none."""
    return lt.device("cuda") if is_available() else None


def current_device_index() -> int:
    """The number of the current one."""
    return lt.cuda.current_device()  # type: ignore[no-any-return]


def synchronize(device: Any = None) -> None:
    """Compute what is pending, and wait for the devices."""
    if is_available():
        lt.cuda.synchronize(device)
    else:
        lt.sync()
