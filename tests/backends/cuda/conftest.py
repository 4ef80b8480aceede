"""Fixtures of the CUDA backend's tests."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest

from lazyt.backends.cuda import engine
from lazyt.backends.cuda.flags import switches
from lazyt.errors import DeviceError
from tests.support.cuda.fake import FakeDriver, installed
from tests.support.cuda.shim import compiler


@pytest.fixture
def cpp_compiler() -> None:
    """Skips the test where no C++ compiler is: generated source runs on the CPU by way of one."""
    compiler()


@pytest.fixture
def nvrtc() -> None:
    """Skips the test where NVRTC is not."""
    try:
        engine.nvrtc()
    except DeviceError as error:
        pytest.skip(f"kernels are compiled by NVRTC: {error}")


@pytest.fixture
def gpu(cpp_compiler: None) -> Iterator[FakeDriver]:
    """A device without a GPU; the rules that all backends share give the bits of the CPU."""
    with installed(FakeDriver()) as fake, mock.patch.dict(switches, {"native-math": False}):
        yield fake
