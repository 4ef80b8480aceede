"""Devices: the CPU, and CUDA when it is built."""

from __future__ import annotations

import re

from lazyt.backends.cuda import refuse
from lazyt.errors import DeviceError


class Device(str):
    """Where a tensor lives; compares equal to its name, as in `x.device == 'cpu'`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Device({str(self)!r})"

    @property
    def type(self) -> str:
        """'cpu' or 'cuda'."""
        return self.partition(":")[0]

    @staticmethod
    def check(device: object) -> Device:
        """The device that `device` (None, a Device or its name) means; DeviceError for any other."""
        if device is None or device == "cpu":
            return CPU
        if isinstance(device, str) and re.fullmatch(r"cuda(:\d+)?", device):
            refuse(str(device))
        raise DeviceError(f"device {device!r}: no such device; lazyt runs on 'cpu'")


CPU = Device("cpu")
default_device = CPU


check = Device.check
