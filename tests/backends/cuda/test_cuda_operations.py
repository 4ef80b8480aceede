"""Every operation of the table on a device, its generated source run on the CPU."""

from __future__ import annotations

import pytest

import lazyt as lt
from lazyt.errors import DTypeError
from tests.support import operations
from tests.support.cuda.fake import FakeDriver


@pytest.mark.parametrize("name", operations.NAMES)
def test_the_operation_table(name: str, gpu: FakeDriver) -> None:
    operations.check(name, "cuda:0")


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_floats_of_8_bits_are_stored_but_not_computed(dtype: str, gpu: FakeDriver) -> None:
    there = lt.asarray([1.0, 2.0], dtype=dtype).to("cuda")
    assert there.to("cpu").tolist() == [1, 2]
    for name, f in {
        "add": lambda: there + 1,
        "getitem": lambda: there[:1],
        "astype": lambda: lt.ones(2, device="cuda").astype(dtype),
        "ones": lambda: lt.ones(2, dtype=dtype, device="cuda"),
    }.items():
        with pytest.raises(DTypeError, match=f"not supported: {name} of {dtype} on 'cuda:0', because only the CPU"):
            f()
