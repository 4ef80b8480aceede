"""Places that are neighbours in a row share an address: so tiles of few features are tall, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.backends.cpu.library import convolutions
from lazyt.ir.passes.schedule import MatmulCall
from tests.support.arrays import normal
from tests.support.plans import forget

pytestmark = pytest.mark.usefixtures("planned")

# Image, filters, options: one to four vectors of 16 features, rows of 4 places and of others.
CASES = {
    "one vector": ((2, 5, 9, 16), (13, 5, 3, 3), {"stride": 2, "padding": 1}),
    "two vectors": ((2, 5, 7, 12), (32, 5, 3, 3), {"stride": 2, "padding": 1}),
    "three vectors": ((3, 5, 9, 8), (40, 5, 3, 3), {"stride": (1, 2), "padding": 1}),
    "four vectors and two": ((2, 5, 9, 8), (90, 5, 3, 3), {"stride": 2, "padding": 1}),
    "small images": ((9, 70, 4, 4), (32, 70, 3, 3), {"padding": 1}),
    "many units": ((1, 40, 50, 72), (32, 40, 3, 3), {"stride": 1, "padding": 1}),
    "long steps": ((2, 4, 9, 21), (16, 4, 2, 2), {"stride": (2, 5)}),
    "dilated": ((2, 4, 20, 19), (32, 4, 3, 3), {"dilation": (1, 2), "padding": (0, 1), "stride": 2}),
    "in groups": ((2, 8, 9, 16), (32, 2, 3, 3), {"stride": 2, "padding": 1, "groups": 4}),
    "along one axis": ((3, 6, 31), (20, 6, 4), {"stride": 2, "padding": 2}),
    "rows of others": ((2, 5, 9, 11), (32, 5, 3, 3), {"stride": 2, "padding": 1}),
    "no padding, a part of an image": ((2, 5, 11, 14), (32, 5, 3, 3), {}),
}


def result(case, dtype):
    image, filters, options = CASES[case]
    x, w = lt.asarray(normal(*image, dtype=dtype)), lt.asarray(normal(*filters, seed=1, dtype=dtype))
    lt.sync()
    f = nn.functional.conv1d if len(image) == 3 else nn.functional.conv2d
    if "part" in case:
        x = x[:, :, 1:, 2:]
    return np.array(lt.relu(f(x, w, **options)).numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", list(CASES))
def test_the_bits_are_those_of_places_with_an_address_each(case, dtype, monkeypatch):
    monkeypatch.setattr(convolutions, "_along_places", lambda *_: float("inf"))
    found = [result(case, dtype) for _ in range(2)]
    bound = lt.last_sync().plan.executable.bound
    (made,) = [p for b in bound.values() for c, p in b.products.items() if isinstance(c, MatmulCall)]
    assert made.choice.form == "features"
    if made.tile.lanes * np.dtype(dtype).itemsize == 64:
        assert (made._step > 0) == (result(case, dtype).shape[-1] % 4 == 0)
    forget()
    monkeypatch.setattr(convolutions, "WIDEST", 0)
    found.append(result(case, dtype))
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[1], found[2])


@pytest.mark.parametrize("threads", [1, 3])
def test_no_unit_divides_a_run(threads, monkeypatch):
    monkeypatch.setattr(convolutions, "_along_places", lambda *_: float("inf"))
    before = lt.get_num_threads()
    lt.set_num_threads(threads)
    try:
        result("many units", "float32")
        (b,) = lt.last_sync().plan.executable.bound.values()
        (made,) = b.products.values()
        unit = made._unit_places
        assert made._step == 0 or unit.part % 4 == 0
        assert unit.part < 50 * 72
    finally:
        lt.set_num_threads(before)
