"""Convolutions by Winograd's algorithm: against products over windows, with their gradients, and where it is used."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.backends.cpu.library import winograd
from lazyt.ir.library_calls import WINOGRAD
from lazyt.ir.passes import lower_winograd
from lazyt.ir.passes.schedule import LibraryCall
from lazyt.runtime import plan_cache
from tests.support.arrays import normal
from tests.support.plans import bits_by_threads_and_epilogues, forget

pytestmark = pytest.mark.usefixtures("planned", "high")

# Image, features, padding.
CASES = {
    "usual": ((2, 32, 8, 8), 32, 1),
    "no whole tiles": ((3, 40, 9, 13), 33, 1),
    "no padding": ((2, 20, 11, 7), 24, 0),
    "more padding": ((2, 17, 6, 5), 20, 2),
    "padding that differs": ((2, 18, 10, 7), 70, (1, 0)),
    "a tile": ((5, 16, 3, 4), 16, 1),
    "few places": ((3, 16, 3, 5), 19, 0),
    "wide": ((1, 16, 5, 150), 16, 1),
    "few channels and features": ((2, 3, 12, 12), 5, 1),
    "several panels": ((2, 24, 8, 8), 150, 1),
    "deep": ((9, 512, 4, 4), 96, 1),
    "no images": ((0, 16, 8, 8), 16, 1),
    "many tiles": ((12, 16, 15, 17), 32, 1),
    "many tiles, few rows of them": ((11, 48, 3, 130), 16, (1, 0)),
}
TOLERANCE = 3e-5


@pytest.fixture
def high(monkeypatch):
    """Winograd's algorithm is allowed, and used whatever the sizes are."""
    monkeypatch.setattr(lower_winograd, "_least_images", lambda *sizes: 0)
    lt.set_float32_convolution_precision("high")
    yield
    lt.set_float32_convolution_precision("highest")


def calls():
    """The names of its calls in the last plan."""
    launches = lt.last_sync().plan.schedule.launches
    return {c.node.attrs.fn for c in launches if isinstance(c, LibraryCall)} & WINOGRAD


def results(case):
    """The convolution with what follows it, and its gradients by both operands."""
    image, features, padding = CASES[case]
    x = lt.tensor(normal(*image), requires_grad=True)
    w = lt.tensor(normal(features, image[1], 3, 3, seed=1), requires_grad=True)
    y = lt.relu(nn.functional.conv2d(x, w, padding=padding) + 0.5)
    lt.sum(y * lt.asarray(normal(*y.shape, seed=2))).backward()
    lt.sync()
    return [np.array(v.detach().numpy()) for v in (y, x.grad, w.grad)]


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_convolution(case):
    got = results(case)
    derivative = "winograd_filter_sums" if case.startswith("many") else "winograd_tiles"
    assert calls() == {"winograd_filters", "winograd_convolve", derivative, "winograd_filter_slope"}
    forget()
    lt.set_float32_convolution_precision("highest")
    want = results(case)
    assert not calls()
    for p, q in zip(got, want, strict=True):
        np.testing.assert_allclose(p, q, rtol=0, atol=TOLERANCE * max(np.abs(q).max(initial=0), 1))


@pytest.mark.parametrize("case", ["usual", "no whole tiles", "several panels", "many tiles"])
def test_generated_code_is_what_the_calls_mean(case, monkeypatch):
    """NumPy's functions in its place."""
    got = results(case)
    forget()
    monkeypatch.setattr(winograd, "native", lambda c: False)
    for p, q in zip(got, results(case), strict=True):
        np.testing.assert_allclose(p, q, rtol=0, atol=TOLERANCE * np.abs(q).max())


@pytest.mark.parametrize("case", ["usual", "no whole tiles", "deep", "many tiles"])
def test_bits_do_not_depend_on_threads(case, monkeypatch):
    assert len(bits_by_threads_and_epilogues(lambda: results(case), monkeypatch)) == 1


def test_bits_do_not_depend_on_stores_past_the_caches(monkeypatch):
    usual = results("deep")
    forget()
    monkeypatch.setattr(winograd, "STREAMED", 0)
    for p, q in zip(results("deep"), usual, strict=True):
        np.testing.assert_array_equal(p, q)


def test_where_a_units_rows_are_too_large_numpy_computes_it(monkeypatch):
    usual = results("wide")
    forget()
    monkeypatch.setattr(winograd, "WORKSPACE", 1 << 12)
    for p, q in zip(results("wide"), usual, strict=True):
        np.testing.assert_allclose(p, q, rtol=0, atol=TOLERANCE * np.abs(q).max())


def test_second_derivatives():
    def f(x, w):
        return (nn.functional.conv2d(x, w, padding=1) ** 3).sum()

    x, w = lt.asarray(normal(2, 16, 4, 4) / 8), lt.asarray(normal(16, 16, 3, 3, seed=1) / 4)
    found = []
    for precision in ("high", "highest"):
        lt.set_float32_convolution_precision(precision)
        forget()
        slope = lt.func.grad(lambda x, w: (lt.func.grad(f)(x, w) ** 2).sum(), argnums=(0, 1))
        found.append([v.numpy() for v in slope(x, w)])
    for p, q in zip(*found, strict=True):
        assert (p != q).any()
        np.testing.assert_allclose(p, q, rtol=0, atol=1e-3 * np.abs(q).max())


def test_an_unknown_precision_is_refused():
    with pytest.raises(
        ValueError, match=r"^set_float32_convolution_precision: 'low' is none of 'highest', 'high', 'medium'$"
    ):
        lt.set_float32_convolution_precision("low")
    assert lt.get_float32_convolution_precision() == "high"


def test_a_flag_turns_it_off(monkeypatch):
    got = results("usual")
    forget()
    monkeypatch.setitem(plan_cache.settings, "winograd", False)
    off = results("usual")
    assert not calls()
    forget()
    lt.set_float32_convolution_precision("highest")
    for p, q, r in zip(got, off, results("usual"), strict=True):
        assert (p != q).any()
        np.testing.assert_array_equal(q, r)


@pytest.mark.parametrize(
    ("options", "dtype", "size"),
    [
        ({"stride": 2}, "float32", 3), ({"dilation": 2}, "float32", 3), ({"groups": 2}, "float32", 3),
        ({}, "float64", 3), ({}, "float32", 5),
    ],
)  # fmt: skip
def test_other_convolutions_keep_their_bits(options, dtype, size):
    x = lt.asarray(normal(2, 16, 12, 12, dtype=dtype))
    w = lt.asarray(normal(16, 16 // options.get("groups", 1), size, size, seed=1, dtype=dtype))
    found = []
    for precision in ("high", "highest"):
        lt.set_float32_convolution_precision(precision)
        forget()
        found.append(nn.functional.conv2d(x, w, padding=1, **options).numpy())
        assert not calls()
    np.testing.assert_array_equal(*found)


def test_halves_are_computed_in_float32_and_rounded():
    x, w = (lt.asarray(normal(*s, seed=i)).astype("float16") for i, s in enumerate([(2, 16, 8, 8), (16, 16, 3, 3)]))
    y = nn.functional.conv2d(x, w, padding=1).numpy()
    assert calls() and y.dtype == np.float16
    forget()
    lt.set_float32_convolution_precision("highest")
    np.testing.assert_allclose(y.astype("f4"), nn.functional.conv2d(x, w, padding=1).numpy(), rtol=2e-3, atol=1e-3)


def test_bits_are_of_the_sizes_whatever_was_planned_first(monkeypatch):
    """One image of 4 x 4 would wait for its filters: the number of images is a guard of the plan."""
    monkeypatch.undo()
    x, w = normal(64, 256, 4, 4), lt.asarray(normal(256, 256, 3, 3, seed=1))
    found = {}
    for order in ((1, 64), (64, 1)):
        forget()
        for n in order:
            y = nn.functional.conv2d(lt.asarray(x[:n]), w, padding=1).numpy()
            assert bool(calls()) == (n == 64)
            np.testing.assert_array_equal(found.setdefault(n, y), y)


def test_a_plan_is_for_all_batches_that_are_large_enough(monkeypatch):
    monkeypatch.undo()
    model = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
    for n in (40, 48, 52, 41):
        x = lt.tensor(normal(n, 32, 8, 8), requires_grad=True)
        model(x).sum().backward()
        lt.sync()
        assert "winograd_convolve" in calls()
    assert lt.last_sync().plan_hit


def test_what_is_kept_in_few_bits_stays_so():
    """The same values are kept, and no more is in memory at the end of the forward pass."""
    x = lt.tensor(normal(8, 32, 16, 16))
    filters = [lt.tensor(normal(32, 32, 3, 3, seed=i) / 17, requires_grad=True) for i in range(3)]
    found = []
    for precision in ("high", "highest"):
        lt.set_float32_convolution_precision(precision)
        forget()
        with lt.memory.compress(bits=2):
            h = x
            for w in filters:
                h = lt.relu(nn.functional.conv2d(h, w, padding=1))
            loss = (h * h).sum()
        loss.backward()
        saved = lt.memory.plan(loss).saved
        found.append(sorted((s.operation, s.nbytes, s.decision) for s in saved))
        lt.sync()
        assert bool(calls()) == (precision == "high")
        for w in filters:
            w.grad = None
    assert found[0] == found[1] and any("bit" in d or "pack" in d or "compress" in d for _, _, d in found[0])
