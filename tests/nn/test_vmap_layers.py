"""`vmap` of every layer, function and loss that is compared with PyTorch's: equal to a loop over the lanes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from tests.support.golden_files import array
from tests.support.torch_golden import Case, areas, cases, leaves


def one_of_each() -> list[Any]:
    """The first case of each layer or function: those of other options differ in what is recorded, not in its kind."""
    found: dict[tuple[str, str], Case] = {}
    for area in areas():
        for case in cases(area):
            if any(a.dtype.kind == "f" for a in case.arrays()):
                found.setdefault((area, re.split(r"[ ,(]", case.name)[0]), case)
    return [pytest.param(case, id=f"{area}-{case.name}") for (area, _), case in found.items()]


@pytest.mark.parametrize("case", one_of_each())
def test_vmap_is_the_loop(case: Case) -> None:
    f = case.build(lt)
    if isinstance(f, lt.nn.Module):
        f = f.to(dtype=lt.float64).eval()  # what training writes to buffers is no lane's
    arrays = case.arrays()
    # Integers (targets, indices) are shared; floats are another in each lane.
    axes = tuple(0 if a.dtype.kind == "f" else None for a in arrays)
    lanes = [[0.5 * k * a + a if axis == 0 else a for a, axis in zip(arrays, axes, strict=True)] for k in (0, 1)]
    loop = [leaves(f(*map(lt.asarray, lane))) for lane in lanes]
    stacked = [np.stack(x) if axis == 0 else x[0] for x, axis in zip(zip(*lanes, strict=True), axes, strict=True)]
    with lt.no_sync():
        found = leaves(lt.vmap(f, in_axes=axes)(*map(lt.asarray, stacked)))
    for got, *want in zip(found, *loop, strict=True):
        np.testing.assert_allclose(array(got), np.stack([array(x) for x in want]), rtol=1e-9, atol=1e-9)


def test_what_a_lane_would_write_for_all_is_refused() -> None:
    with pytest.raises(lt.LazytError, match="vmap"):
        lt.vmap(lt.nn.BatchNorm1d(3))(lt.ones((2, 4, 3)))
