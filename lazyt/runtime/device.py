"""Devices by name: the CPU, NVIDIA GPUs, and those of any backend that is registered."""

from __future__ import annotations

from lazyt.backends import registry
from lazyt.backends.registry import backends
from lazyt.config import HOST
from lazyt.tracing.trace import local


class Device(str):
    """Where a tensor lives; compares equal to its name, as in `x.device == 'cpu'`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Device({str(self)!r})"

    @property
    def type(self) -> str:
        """The name of its backend, such as 'cpu' or 'cuda'."""
        return str(self).partition(":")[0]

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """Its number among those of its kind; None where there is one alone."""
        number = self.partition(":")[2]
        return int(number) if number else None

    def synchronize(self) -> None:
        """Wait for all that was enqueued here, as to time it; on the CPU a sync has waited itself.

        >>> import lazyt as lt
        >>> lt.ones(3).device.synchronize()
        """
        backends[self].synchronize(str(self))

    @staticmethod
    def check(device: object) -> Device:
        """The device that `device` (None, a Device or its name) means; DeviceError for one that is not there.

        >>> import lazyt as lt
        >>> lt.Device.check("tpu")
        Traceback (most recent call last):
        ...
        lazyt.errors.DeviceError: device 'tpu': no such device; lazyt runs on 'cpu' and 'cuda:0', 'cuda:1', ...
        """
        return CPU if device is None or device == HOST else Device(registry.device_of(device))


CPU = Device(HOST)


def _chosen(kind: str) -> str | None:
    """The device that the name of a kind alone means in this thread, if one was chosen."""
    for known, device in local.trace.mode.chosen:
        if known == kind:
            return device
    return None


registry.chosen = _chosen


check = check_device = Device.check
