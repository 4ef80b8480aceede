"""The CUDA backend, which is not built yet: one error that says so.

It will mirror `backends/cpu` file by file: the same kernel IR emitted as CUDA C, compiled by NVRTC through CuPy, and
run on CuPy's streams and pools. Nothing imports CuPy until then.
"""

from __future__ import annotations

from typing import NoReturn

from lazyt.errors import DeviceError


def refuse(device: str) -> NoReturn:
    """Raise the DeviceError for a CUDA device.

    >>> import lazyt as lt
    >>> lt.zeros(3, device="cuda:0")
    Traceback (most recent call last):
    ...
    lazyt.errors.DeviceError: device 'cuda:0': cuda is not built yet; lazyt runs on 'cpu', the default device
    """
    raise DeviceError(f"device {device!r}: cuda is not built yet; lazyt runs on 'cpu', the default device")
