"""Elements that lie side by side, and are computed at two indices of an axis, are stored together; the bits stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.engine import host_features
from lazyt.backends.cpu.flags import switches
from lazyt.ir.kernel import verify
from tests.support.plans import forget

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.usefixtures("planned"),
    pytest.mark.skipif("avx512bw" not in host_features(), reason="where a masked store takes no longer than another"),
]
F = lt.nn.functional


def together() -> bool:
    kernels = [c.kernel for c in lt.last_sync().plan.schedule.kernels]
    for kernel in kernels:
        verify(kernel)
    return any(a.beside is not None for kernel in kernels for a in kernel.accesses)


def pooled(*windows: int) -> Callable[[lt.Tensor], lt.Tensor]:
    def gradient(x: lt.Tensor) -> lt.Tensor:
        t = (x + 0).requires_grad_()
        y = F.max_pool2d(t, *windows)
        y.backward(y.detach() * 3)
        grad = t.grad
        assert grad is not None
        return grad

    return gradient


PROGRAMS = {"2 x 2": pooled(2), "3 x 3 apart by 2": pooled(3, 2, 1), "2 x 2 apart by 2, around": pooled(2, 2, 1)}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("width", [2, 7, 14, 16, 30, 32, 33, 64, 70])
def test_bits_are_those_of_stores_one_after_another(
    program: str, dtype: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = lt.asarray((np.random.default_rng(width).standard_normal((3, 5, 6, width)) * 4).astype(dtype))
    lt.sync()
    found = PROGRAMS[program](x).numpy()
    used = together()
    forget()
    monkeypatch.setitem(switches, "interleave", False)
    np.testing.assert_array_equal(found, PROGRAMS[program](x).numpy())
    assert not together()
    # NOTE: lanes along a row of few windows run along another axis.
    assert used or width < 10
