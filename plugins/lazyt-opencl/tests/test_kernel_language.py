"""Kernels that users write by `lazyt.kernel`, on the device."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt_opencl.device import NAME
from tests.support.user_kernels import CASES, compared


# NOTE: PoCL takes a second for each; the CPU's tests run all of them.
@pytest.mark.parametrize(("f", "args", "more"), CASES[::4], ids=[f.__name__ for f, _, _ in CASES[::4]])
def test_a_kernel_is_its_function_at_every_index(f, args, more):
    with lt.device(NAME):
        found = f(*(lt.asarray(x) if isinstance(x, np.ndarray) else x for x in args), **more)
        compared(f, args, more, found)


def test_the_code_of_a_kernel():
    f, args, more = CASES[0]
    assert "__kernel" in f.source(*args, device=NAME, **more)
