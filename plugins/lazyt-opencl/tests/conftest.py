"""The backend is registered for the tests of this folder; without a driver they are skipped, with the reason."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import lazyt as lt

pytest.importorskip("pyopencl", reason="pyopencl is missing: pip install pyopencl pocl-binary-distribution")
import lazyt_opencl
from lazyt_opencl.device import NAME, Device


@pytest.fixture(scope="session")
def opencl() -> Device:
    """The first device."""
    lazyt_opencl.register()
    try:
        return lazyt_opencl.device(NAME)
    except lt.DeviceError as e:
        pytest.skip(str(e))


@pytest.fixture(autouse=True)
def nothing_pending(opencl: Device) -> Iterator[None]:
    """Every test has the device, and leaves nothing that is recorded."""
    lt.sync()
    yield
    lt.sync()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240)
