"""Reads and writes of every other element are neighbours and a shuffle, and the bits stay."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.flags import switches
from tests.support.plans import forget

pytestmark = pytest.mark.usefixtures("planned")


def _classes() -> str:
    plan = lt.last_sync().plan
    return "".join(a.classes for c in plan.schedule.kernels for a in c.kernel.accesses)


PROGRAMS = {
    "product": lambda x: x * lt.conj(x) + 1,
    "row": lambda x: lt.sum(x, axis=1),
    "column": lambda x: lt.sum(x, axis=0),
    "slice": lambda x: lt.where(lt.isfinite(x[:, 1::2]), x[:, 1::2], 0),
    "stack": lambda x: lt.stack([x, x + x], axis=-1),
    "back": lambda x: lt.flip(x, axis=1) + 1,
    "both back": lambda x: lt.flip(x) + 1,
    "slice back": lambda x: x[:, ::-2] + 1,
    "slice back, whole": lambda x: lt.copy(x[::-1, ::-2]),
    "padded slice": lambda x: lt.pad(lt.pad(x, ((1, 1), (3, 2)))[:, 1::2], ((0, 0), (1, 1))) + 1,
    "padded": lambda x: lt.pad(x + x, ((1, 1), (3, 2)))[:, ::2] + lt.pad(x * 2, ((1, 1), (3, 2)))[:, ::2],
    "rows": lambda x: x[lt.asarray([2, 0, 0, 1]), ::2] + 1,
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("dtype", ["complex64", "complex128", "float32", "float64", "int64", "int16", "uint8"])
@pytest.mark.parametrize("width", [1, 2, 15, 16, 17, 33, 1000])
def test_bits_are_those_of_gathered_lanes(
    program: str, dtype: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(width)
    x = (rng.standard_normal((3, width)) * 50).astype(dtype)
    if x.dtype.kind == "c":
        x = x + 1j * rng.standard_normal((3, width)).astype(x.real.dtype)
    found = PROGRAMS[program](lt.asarray(x)).numpy()
    used = bool({"2", "="} & {*_classes()})
    forget()
    monkeypatch.setitem(switches, "alternate", False)
    want = PROGRAMS[program](lt.asarray(x)).numpy()
    np.testing.assert_array_equal(found, want)
    assert not {"2", "="} & {*_classes()}
    # A row of one element has no lanes along it.
    of_slices = ("slice", "padded", "padded slice", "stack", "rows", "slice back", "slice back, whole")
    assert used or width <= 2 or (program not in of_slices and x.dtype.kind != "c")


def test_a_read_stays_within_its_array() -> None:
    """The odd neighbour of the last element may be another's memory: it is neither read nor written."""
    x = lt.arange(33, dtype=lt.float32)
    lt.sync()
    y = lt.zeros(64, dtype=lt.float32)
    y[1::2] = x[:32] + 1
    np.testing.assert_array_equal(y.numpy()[::2], 0)
    np.testing.assert_array_equal(y.numpy()[1::2], np.arange(32) + 1)
