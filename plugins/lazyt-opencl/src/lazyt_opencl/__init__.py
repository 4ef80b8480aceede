"""Devices that have an OpenCL driver, for lazyt: `opencl:0`, `opencl:1`, ..."""

from __future__ import annotations

from lazyt_opencl.backend import BACKEND
from lazyt_opencl.device import Device, device, devices

__all__ = ["BACKEND", "Device", "device", "devices"]
