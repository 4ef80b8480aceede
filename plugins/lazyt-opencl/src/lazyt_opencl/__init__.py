"""Devices that have an OpenCL driver, for lazyt: `opencl:0`, `opencl:1`, ...

>>> import lazyt as lt, lazyt_opencl
>>> lazyt_opencl.register()
>>> x = lt.arange(4.0, device="opencl")
>>> (x * x).sum().item()
14.0
"""

from __future__ import annotations

from lazyt.backends import registry
from lazyt_opencl.backend import BACKEND
from lazyt_opencl.device import Device, device, devices

__all__ = ["BACKEND", "Device", "device", "devices", "register"]


def register() -> None:
    """Add the backend to lazyt's, unless it is one of them."""
    if BACKEND.name not in registry.names():
        registry.register(BACKEND)
