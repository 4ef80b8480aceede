"""Convolutions in groups of several channels: each group has the bits that it has by itself."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.backends.cpu.library import convolutions, phases
from lazyt.ir.passes.schedule import MatmulCall
from tests.support.arrays import assert_close_at_scale, normal
from tests.support.plans import bits_by_threads_and_epilogues, forget

pytestmark = pytest.mark.usefixtures("planned")

# Groups, image, filters, options.
CASES = {
    "usual": (4, (3, 8, 13, 18), (12, 2, 3, 3), {"stride": 2, "padding": 1}),
    "a feature each": (3, (2, 6, 9, 8), (3, 2, 3, 3), {"stride": 2, "padding": 1}),
    "filters of one channel": (3, (2, 3, 7, 8), (6, 1, 2, 2), {"stride": (1, 3)}),
    "points": (2, (2, 8, 9, 6), (10, 4, 1, 1), {"stride": (2, 1)}),
    "panels of features": (2, (2, 6, 8, 7), (300, 3, 3, 3), {"stride": 2, "padding": 1}),
    "parts of an image": (2, (1, 8, 70, 80), (20, 4, 3, 3), {"stride": 2, "padding": 1}),
    "a deep sum": (2, (1, 120, 9, 8), (8, 60, 3, 3), {"stride": 2, "padding": 1}),
    "many images": (2, (70, 4, 5, 5), (6, 2, 3, 3), {"stride": 2, "padding": 1}),
    "dilated": (2, (2, 4, 12, 17), (6, 2, 3, 2), {"dilation": (2, 3), "padding": 2, "stride": 2}),
    "a wide window a channel": (3, (2, 3, 20, 21), (3, 1, 9, 9), {"stride": 2, "padding": 4}),
    "no step": (4, (2, 8, 11, 20), (8, 2, 3, 3), {"padding": 1}),
    "no images": (2, (0, 4, 6, 6), (4, 2, 3, 3), {"stride": 2}),
    "along one axis": (2, (3, 4, 19), (6, 2, 3), {"stride": 3, "padding": 2}),
    "along three axes": (2, (2, 4, 6, 5, 7), (6, 2, 2, 3, 2), {"stride": (1, 2, 2), "padding": 1}),
}


def operands(case, dtype="float32"):
    groups, image, filters, options = CASES[case]
    f = {3: nn.functional.conv1d, 4: nn.functional.conv2d, 5: nn.functional.conv3d}[len(image)]
    x = lt.tensor(normal(*image, dtype=dtype), requires_grad=True)
    w = lt.tensor(normal(*filters, seed=1, dtype=dtype), requires_grad=True)
    return f, x, w, groups, options


def gradients(y, x, w):
    """The result, and the gradients by both operands."""
    ct = lt.asarray(normal(*y.shape, seed=2, dtype=str(y.dtype)))
    y.backward(ct)
    lt.sync()
    return [np.array(v.detach().numpy()) for v in (y, x.grad, w.grad)]


def together(case, dtype="float32"):
    f, x, w, groups, options = operands(case, dtype)
    return gradients(f(x, w, groups=groups, **options), x, w)


def apart(case, dtype="float32"):
    """Each group as a convolution of its own."""
    f, x, w, groups, options = operands(case, dtype)
    parts = zip(lt.split(x, groups, axis=1), lt.split(w, groups), strict=True)
    return gradients(lt.concatenate([f(p, q, **options) for p, q in parts], axis=1), x, w)


def calls():
    return [c for c in lt.last_sync().plan.schedule.launches if isinstance(c, MatmulCall)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", list(CASES))
def test_groups_have_the_bits_that_each_has_alone(case, dtype):
    got, want = together(case, dtype), apart(case, dtype)
    by_image = 1  # by the phases of a transposed convolution, or by the window of flipped filters
    others = case in ("points", "along three axes")  # alone it is a product, or several
    for i, (p, q) in enumerate(zip(got, want, strict=True)):
        if i == by_image or others:
            assert_close_at_scale([p], [q], 200)
        else:
            np.testing.assert_array_equal(p, q)


@pytest.mark.parametrize("case", ["usual", "points", "many images", "a wide window a channel"])
def test_no_window_is_copied(case):
    together(case)
    ops = [c.node.op for c in calls()]
    assert sorted(ops) == ["convolve", "convolve_filter", "convolve_image"]
    (forward,) = [c for c in calls() if c.node.op == "convolve"]
    assert not phases.takes(forward.node)


def test_a_step_of_one_is_computed_in_phases():
    together("no step")
    assert [phases.takes(c.node) for c in calls() if c.node.op == "convolve"] == [True]


@pytest.mark.parametrize("case", ["usual", "panels of features", "parts of an image", "many images"])
def test_bits_do_not_depend_on_threads_or_epilogues(case, monkeypatch):
    def results():
        f, x, w, groups, options = operands(case)
        bias = lt.asarray(normal(w.shape[0], 1, 1, seed=3))
        return gradients(lt.relu(f(x, w, groups=groups, **options) + bias), x, w)

    assert len(bits_by_threads_and_epilogues(results, monkeypatch)) == 1


def test_bits_do_not_depend_on_how_many_images_are_packed_together(monkeypatch):
    want = together("many images")
    forget()
    monkeypatch.setattr(convolutions, "TOGETHER", 1)
    got = together("many images")
    assert "convolve_filter" in {c.node.op for c in calls()}
    for p, q in zip(got, want, strict=True):
        np.testing.assert_array_equal(p, q)


def test_a_new_batch_size_makes_no_plan():
    w = lt.asarray(normal(6, 2, 3, 3))
    lt.sync()
    for i, (n, extent) in enumerate([(4, 8), (1, 9), (9, 30)]):
        y = nn.functional.conv2d(lt.asarray(normal(n, 4, extent, 8)), w, padding=1, stride=2, groups=2)
        lt.sync()
        assert lt.last_sync().plans == (i == 0)
        assert y.shape == (n, 6, (extent + 1) // 2, 4)
