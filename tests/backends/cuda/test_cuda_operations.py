"""Every operation of the table on a device, its generated source run on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt.ops.definition import OPS
from tests.support import operations
from tests.support.cuda.fake import FakeDriver


@pytest.mark.parametrize("name", operations.NAMES)
def test_the_operation_table(name: str, gpu: FakeDriver) -> None:
    for args, kwargs in OPS[name].samples():  # type: ignore[misc]
        with lt.device("cuda:0"):
            got = operations.run(name, args, kwargs)
        for g, w in zip(got, operations.expected(name, args, kwargs, len(got) > 1), strict=True):
            assert (g.shape, g.dtype) == (w.shape, w.dtype)
            tolerance = operations.TOLERANCE.get(g.dtype.name, 0)
            np.testing.assert_allclose(operations.wide(g), operations.wide(w), rtol=tolerance, atol=tolerance / 10)
