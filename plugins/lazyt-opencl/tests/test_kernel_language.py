"""`lt.kernel` on the device: what the functions give that are called by Python at every index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt_opencl.device import NAME, Device
from tests.support.user_kernels import CASES, compared


def test_kernels_of_users_are_opencl_c(opencl: Device) -> None:
    before, found = sum(opencl.fallbacks.values()), []
    with lt.device(NAME):
        for f, args, more in CASES:
            given = [lt.asarray(x) if isinstance(x, np.ndarray) else x for x in args]
            found.append(f(*given, **more))
    lt.sync()
    for (f, args, more), result in zip(CASES, found, strict=True):
        results: tuple[Any, ...] = result if isinstance(result, tuple) else (result,)
        assert all(r.device == f"{NAME}:0" for r in results)
        compared(f, args, more, result)
    assert sum(opencl.fallbacks.values()) == before


def test_an_index_that_a_kernel_reads_outside_names_the_line() -> None:
    @lt.kernel
    def taken(i: Any, /, x: Any, at: Any) -> Any:
        return x[at[i]]

    y = taken(lt.asarray(np.arange(4.0), device=NAME), lt.asarray(np.array([1, 7]), device=NAME), shape=(2,))
    with pytest.raises(lt.IndexOutOfRange, match="test_kernel_language"):
        y.numpy()


def test_the_code_of_a_kernel() -> None:
    f, args, more = CASES[0]
    assert "__kernel" in f.source(*args, device=NAME, **more)
