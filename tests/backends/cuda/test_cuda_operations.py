"""Every operation of the table on a device, its generated source run on the CPU."""

from __future__ import annotations

import pytest

from tests.support import operations
from tests.support.cuda.fake import FakeDriver


@pytest.mark.parametrize("name", operations.NAMES)
def test_the_operation_table(name: str, gpu: FakeDriver) -> None:
    operations.check(name, "cuda:0")
