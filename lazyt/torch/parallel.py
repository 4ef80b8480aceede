"""`torch.nn.parallel`: programs import it, and use it where there are several GPUs; lazyt runs a plan on one device."""

from __future__ import annotations

from typing import Any, Never

from lazyt.errors import NotSupportedError


def _refused(name: str) -> Never:
    raise NotSupportedError(f"{name}: not supported: a model on several devices, because a plan runs on one")


def data_parallel(module: Any, inputs: Any, device_ids: Any = None, **options: Any) -> Never:
    """NotSupportedError."""
    _refused("data_parallel")


class DataParallel:
    """NotSupportedError when it is made."""

    def __init__(self, module: Any, device_ids: Any = None, **options: Any) -> None:
        _refused("DataParallel")


class DistributedDataParallel:
    """NotSupportedError when it is made."""

    def __init__(self, module: Any, device_ids: Any = None, **options: Any) -> None:
        _refused("DistributedDataParallel")
