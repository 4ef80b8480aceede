"""Both forms of generated convolutions at all kinds of sizes: against plain loops, and the same bits from each."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.backends.cpu.library import convolutions
from lazyt.ir.passes.schedule import MatmulCall
from tests.support.plans import forget

pytestmark = pytest.mark.usefixtures("planned")

# Images, channels, extents, filters, sizes, strides, padding, dilations.
CASES = {
    "small images, whole ones to a unit": (37, 5, (4, 4), 20, (3, 3), (1, 1), (1, 1), (1, 1)),
    "strided": (3, 7, (15, 18), 33, (3, 3), (2, 2), (1, 1), (1, 1)),
    "strides that differ": (2, 3, (17, 11), 9, (3, 2), (3, 1), (0, 1), (1, 1)),
    "strided and dilated": (2, 4, (19, 16), 17, (3, 3), (2, 3), (2, 2), (2, 1)),
    "a stem": (1, 3, (37, 41), 64, (7, 7), (2, 2), (3, 3), (1, 1)),
    "deeper than a block": (5, 90, (5, 3), 18, (3, 3), (2, 1), (1, 1), (1, 1)),
    "two places": (3, 6, (3, 4), 40, (3, 3), (1, 1), (0, 0), (1, 1)),
    "one feature": (2, 6, (9, 9), 1, (3, 3), (2, 2), (0, 0), (1, 1)),
    "more features than a unit": (2, 2, (5, 5), 1500, (3, 3), (2, 2), (1, 1), (1, 1)),
    "deep filters of small images": (6, 40, (4, 4), 150, (3, 3), (1, 1), (1, 1), (1, 1)),
    "along one axis": (4, 3, (31,), 11, (5,), (2,), (2,), (1,)),
    "parts of an image": (1, 2, (70, 70), 70, (3, 3), (1, 1), (0, 0), (1, 1)),
    "rows that are too long to copy in parts": (1, 40, (7, 900), 3, (3, 3), (2, 1), (2, 3), (2, 1)),
    "more zeros than image": (2, 3, (2, 1), 9, (3, 4), (1, 2), (3, 4), (1, 1)),
    "no images": (0, 3, (8, 8), 4, (3, 3), (2, 2), (1, 1), (1, 1)),
    "no channels": (2, 0, (8, 8), 4, (3, 3), (2, 2), (1, 1), (1, 1)),
}


def operands(case, dtype):
    n, channels, extents, features, sizes, *_ = CASES[case]
    rng = np.random.default_rng(len(case))
    shapes = (n, channels, *extents), (features, channels, *sizes)
    if np.dtype(dtype).kind == "i":
        return [rng.integers(-9, 9, s).astype(dtype) for s in shapes]
    return [rng.normal(size=s).astype(dtype) for s in shapes]


def plain(x, w, strides, padding, dilations):
    """In float64 or integers, an element of the window after another."""
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    reach = [(k - 1) * e for k, e in zip(w.shape[2:], dilations, strict=True)]
    counts = [(d - r - 1) // s + 1 for d, r, s in zip(x.shape[2:], reach, strides, strict=True)]
    y = np.zeros((len(x), len(w), *counts), x.dtype)
    for at in np.ndindex(*w.shape[2:]):
        steps = zip(at, dilations, counts, strides, strict=True)
        read = tuple(slice(i * e, i * e + (c - 1) * s + 1, s) for i, e, c, s in steps)
        y += np.einsum("nc...,oc->no...", x[(..., *read)], w[(..., *at)])
    return y


# How a convolution is computed; of 'few', vectors lie along the features too, and units have few of them, or as many
# places as they can.
FORMS = ("features", "few", "places")


def run(case, dtype, form, monkeypatch, epilogue=True):
    """The convolution, one of which an epilogue reads alone, and the gradients by both operands."""
    monkeypatch.setattr(convolutions, "ALONG_FEATURES", 1e-9 if form == "places" else 1e9)
    monkeypatch.setattr(convolutions, "STAYS", -1 if form == "few" else 1 << 60)
    monkeypatch.setattr(convolutions, "FRAMES", 0)
    monkeypatch.setattr(convolutions, "TRANSPOSED", 0)
    monkeypatch.setattr(convolutions, "PACKED", 0)
    forget()
    *_, strides, padding, dilations = CASES[case]
    x, w = operands(case, dtype)
    f = nn.functional.conv1d if x.ndim == 3 else nn.functional.conv2d
    how = {"stride": strides, "padding": padding, "dilation": dilations}
    inputs = lt.asarray(x), lt.asarray(w)
    lt.sync()
    out = [f(*inputs, **how).numpy()]
    calls = [c for c in lt.last_sync().plan.schedule.launches if isinstance(c, MatmulCall)]
    assert [c.node.op for c in calls] == ["convolve"], "it has generated code"
    alone = f(*inputs, **how) * 2 + 1
    out.append(alone.numpy())
    if np.dtype(dtype).kind == "f":
        x_, w_ = (lt.tensor(v, requires_grad=True) for v in (x, w))
        y = f(x_, w_, **how)
        weight = np.cos(np.arange(math.prod(y.shape), dtype=dtype)).reshape(y.shape)
        lt.sum(y * weight).backward()
        out += [x_.grad.numpy(), w_.grad.numpy()]
    return [np.array(v) for v in out], calls


@pytest.mark.parametrize("case", list(CASES))
def test_forms_agree_with_plain_loops_and_each_other(case, monkeypatch):
    x, w = operands(case, "float32")
    want = plain(x.astype(np.float64), w.astype(np.float64), *CASES[case][5:])
    depth = max(math.prod(w.shape[1:]), 1)
    found = {}
    for form in FORMS:
        found[form], _ = run(case, "float32", form, monkeypatch)
        y, alone, *gradients = found[form]
        bound = 1e-6 * depth * 25
        np.testing.assert_allclose(y, want, rtol=0, atol=bound)
        np.testing.assert_array_equal(alone, y * 2 + 1)
        # <y, weight> is linear in x and in w.
        weight = np.cos(np.arange(want.size, dtype="float32")).reshape(want.shape)
        total = float((want * weight).sum())
        for v, by in zip((x, w), gradients, strict=True):
            scale = 1 + float(np.abs(v * by).sum())
            assert abs(float((v.astype(np.float64) * by).sum()) - total) < 1e-4 * scale
    for p, q, r in zip(*found.values(), strict=True):
        np.testing.assert_array_equal(p, q)
        np.testing.assert_array_equal(p, r)


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64"])
@pytest.mark.parametrize("case", ["strided", "small images, whole ones to a unit"])
def test_other_dtypes(case, dtype, monkeypatch):
    x, w = operands(case, dtype)
    want = plain(x, w, *CASES[case][5:])
    for form in FORMS:
        (y, *_), _ = run(case, dtype, form, monkeypatch)
        np.testing.assert_allclose(y, want, rtol=0, atol=1e-10)


@pytest.mark.parametrize("case", ["small images, whole ones to a unit", "more features than a unit", "a stem"])
def test_bits_do_not_depend_on_threads(case, monkeypatch):
    before, found = lt.get_num_threads(), set()
    try:
        for threads in (1, 2, 5):
            lt.set_num_threads(threads)
            out, _ = run(case, "float32", "features", monkeypatch)
            y, alone, _, by_filters = out  # the gradient by a strided image may be BLAS'
            found.add(b"".join(v.tobytes() for v in (y, alone, by_filters)))
    finally:
        lt.set_num_threads(before)
    assert len(found) == 1


def test_deep_filters_are_read_by_many_places(monkeypatch):
    """The filters of a stage of small images do not stay in a cache: units have few of them, and whole images."""
    units = []
    spied = convolutions.Convolution._pack_filters

    def spy(self, *args):
        units.append(self._unit_places)
        return spied(self, *args)

    monkeypatch.setattr(convolutions.Convolution, "_pack_filters", spy)
    before = lt.get_num_threads()
    try:
        lt.set_num_threads(2)
        for channels, size in ((512, 4), (64, 8)):
            forget()
            w, x = lt.ones((channels, channels, 3, 3)), lt.ones((32, channels, size, size))
            assert nn.functional.conv2d(x, w, padding=1)[0, 0, 1, 1].item() == 9 * channels
    finally:
        lt.set_num_threads(before)
    deep, flat = units
    assert deep.features <= 128
    assert deep.rows == 0
    assert deep.images >= 8
    assert flat.features == 64
    assert flat.rows == 10


@pytest.mark.parametrize("seed", range(12))
def test_any_sizes(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 3))
    sizes, strides, dilations = (tuple(map(int, rng.integers(1, 4, rank))) for _ in range(3))
    padding = tuple(map(int, rng.integers(0, 3, rank)))
    extents = tuple(int((k - 1) * e + 1 + rng.integers(0, 12)) for k, e in zip(sizes, dilations, strict=True))
    sizes = tuple(max(k, 2) for k in sizes) if max(sizes) == 1 else sizes
    extents = tuple(max(d, (k - 1) * e + 1) for d, k, e in zip(extents, sizes, dilations, strict=True))
    n, channels, features = (int(v) for v in rng.integers(1, 30, 3))
    case = f"seed {seed}"
    monkeypatch.setitem(CASES, case, (n, channels, extents, features, sizes, strides, padding, dilations))
    test_forms_agree_with_plain_loops_and_each_other(case, monkeypatch)
