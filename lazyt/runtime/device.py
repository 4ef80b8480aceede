"""Devices: the CPU, and NVIDIA GPUs."""

from __future__ import annotations

import re

from lazyt.backends import cuda
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

    def synchronize(self) -> None:
        """Wait for all that was enqueued here, as to time it; on the CPU a sync has waited itself.

        >>> import lazyt as lt
        >>> lt.ones(3).device.synchronize()
        """
        if self != "cpu":
            cuda.device.device(str(self)).synchronize()

    @staticmethod
    def check(device: object) -> Device:
        """The device that `device` (None, a Device or its name) means; DeviceError for one that is not there.

        >>> import lazyt as lt
        >>> lt.Device.check("tpu")
        Traceback (most recent call last):
        ...
        lazyt.errors.DeviceError: device 'tpu': no such device; lazyt runs on 'cpu' and 'cuda:0', 'cuda:1', ...
        """
        if device is None or device == "cpu":
            return CPU
        if isinstance(device, str) and re.fullmatch(r"cuda(:\d+)?", device):
            return Device(cuda.device.device(str(device)).name)
        raise DeviceError(f"device {device!r}: no such device; lazyt runs on 'cpu' and 'cuda:0', 'cuda:1', ...")


CPU = Device("cpu")


check = Device.check
