"""The device of the tests of this folder; without pyopencl or a driver they are skipped, with the reason."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import lazyt as lt
import lazyt_opencl
from lazyt.tracing.trace import local
from lazyt_opencl.device import NAME, Device


@pytest.fixture(scope="session")
def opencl() -> Device:
    """The first device."""
    try:
        found = lazyt_opencl.device(NAME)
    except lt.DeviceError as e:
        pytest.skip(str(e))
    # PoCL compiles in a third of the time so. `optimized` is without.
    found.options.append("-cl-opt-disable")
    return found


@pytest.fixture(scope="module")
def optimized(opencl: Device) -> Iterator[Device]:
    """The first device, with the options that users have."""
    options, opencl.options = opencl.options, opencl.options[:-1]
    yield opencl
    opencl.options = options


@pytest.fixture(autouse=True)
def nothing_pending(opencl: Device) -> Device:
    """Every test has the device, and begins with an empty trace, whatever ran before it."""
    try:
        lt.sync()
    except Exception:  # noqa: BLE001 - an earlier test's mistake, which it has reported
        if not local.trace.empty:
            local.trace.leave()
    return opencl


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240)
