"""Depthwise convolutions by generated code: against products over windows, and sums over windows."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.backends.cpu.library import depthwise
from lazyt.backends.cpu.library.depthwise_ir import Window
from lazyt.ir.passes.schedule import MatmulCall
from lazyt.runtime import plan_cache
from tests.support.arrays import assert_close_at_scale, normal
from tests.support.plans import bits_by_threads_and_epilogues, forget

pytestmark = pytest.mark.usefixtures("planned")

# Transposed or not, image, sizes of the window, options.
CASES = {
    "one of everything": (False, (1, 2, 1, 1), (1, 1), {}),
    "usual": (False, (2, 3, 14, 16), (3, 3), {"padding": 1}),
    "rows that are no vectors": (False, (2, 3, 9, 13), (3, 3), {"padding": 1}),
    "short rows": (False, (2, 5, 6, 3), (3, 2), {"padding": (2, 1)}),
    "steps of two": (False, (2, 3, 11, 21), (3, 3), {"stride": 2, "padding": 1}),
    "steps of two, no padding": (False, (1, 2, 12, 38), (4, 4), {"stride": 2}),
    "long steps": (False, (2, 3, 13, 23), (2, 5), {"stride": (4, 3), "padding": (1, 2)}),
    "dilated": (False, (2, 3, 12, 17), (3, 2), {"dilation": (2, 3), "padding": 2}),
    "a large window": (False, (1, 2, 17, 19), (7, 7), {"padding": 3}),
    "a large window over few places": (False, (2, 3, 7, 7), (7, 7), {"padding": 3}),
    "more padding than a window has": (False, (1, 2, 5, 6), (2, 3), {"padding": (4, 5)}),
    "parts of a plane": (False, (1, 2, 90, 70), (3, 3), {"padding": 1}),
    "no images": (False, (0, 2, 5, 6), (3, 3), {"padding": 1}),
    "transposed": (True, (2, 3, 7, 9), (3, 3), {"padding": 1}),
    "transposed by two": (True, (2, 3, 7, 9), (4, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    "transposed by more": (True, (1, 3, 6, 11), (3, 2), {"stride": (2, 3), "dilation": (1, 2)}),
    "transposed, wide": (True, (1, 2, 40, 33), (2, 2), {"stride": 2}),
}


def results(case, dtype="float32"):
    """The convolution with what follows it, and its gradients by both operands; the operations of its calls."""
    transposed, image, sizes, options = CASES[case]
    f = nn.functional.conv_transpose2d if transposed else nn.functional.conv2d
    x = lt.tensor(normal(*image, dtype=dtype), requires_grad=True)
    w = lt.tensor(normal(image[1], 1, *sizes, seed=1, dtype=dtype), requires_grad=True)
    y = lt.relu(f(x, w, groups=image[1], **options) + 0.5)
    weight = lt.asarray(normal(*y.shape, seed=2, dtype=dtype))
    lt.sum(y * weight).backward()
    lt.sync()
    ops = {c.node.op for c in lt.last_sync().plan.schedule.launches if isinstance(c, MatmulCall)}
    return [np.array(v.detach().numpy()) for v in (y, x.grad, w.grad)], ops


@pytest.mark.parametrize(
    ("case", "dtype"), [*((c, "float32") for c in CASES), *((c, "float64") for c in ("usual", "transposed by two"))]
)
def test_generated_or_by_sums(case, dtype, monkeypatch):
    got, ops = results(case, dtype)
    assert ops == {"convolve", "convolve_image", "convolve_filter"}
    forget()
    monkeypatch.setitem(plan_cache.settings, "gemm", False)
    exact, ops = results(case, dtype)
    assert not ops
    assert_close_at_scale(got, exact, 100)


@pytest.mark.parametrize(
    "case", ["rows that are no vectors", "parts of a plane", "a large window", "transposed by two"]
)
def test_bits_do_not_depend_on_threads_or_epilogues(case, monkeypatch):
    assert len(bits_by_threads_and_epilogues(lambda: results(case)[0], monkeypatch)) == 1


def test_padding_bias_and_activation_are_one_launch():
    x, w, c = (lt.asarray(v) for v in (normal(2, 4, 10, 12), normal(4, 1, 3, 3, seed=1), normal(4, seed=2)))
    lt.sync()
    y = lt.relu(nn.functional.conv2d(x, w, c, padding=1, groups=4))
    (call,) = y.explain().plan.schedule.launches
    assert isinstance(call, MatmulCall) and call.epilogue is not None and not call.kept


def test_integers():
    x, w = np.arange(2 * 3 * 5 * 6).reshape(2, 3, 5, 6), np.arange(3 * 9).reshape(3, 1, 3, 3)
    got = nn.functional.conv2d(lt.asarray(x), lt.asarray(w), groups=3).numpy()
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    np.testing.assert_array_equal(got, np.einsum("nchwij,cij->nchw", windows, w[:, 0]))


@pytest.mark.parametrize(("width", "sizes"), [(13000, (1, 3)), (5000, (3, 3))])
def test_rows_that_are_too_long_are_sums_over_windows(width, sizes):
    x, w = normal(1, 2, 3, width), normal(2, 1, *sizes, seed=1)
    y = nn.functional.conv2d(lt.asarray(x), lt.asarray(w), groups=2)
    assert not [c for c in y.explain().plan.schedule.launches if isinstance(c, MatmulCall)]
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), sizes, (2, 3))
    np.testing.assert_allclose(y.numpy(), np.einsum("nchwij,cij->nchw", windows, w[:, 0]), rtol=1e-4, atol=1e-4)


def test_new_sizes_make_no_plan():
    w = lt.asarray(normal(4, 1, 3, 3))
    lt.sync()
    for i, (n, extent) in enumerate([(4, 8), (1, 8), (9, 11), (2, 40)]):
        y = nn.functional.conv2d(lt.asarray(normal(n, 4, extent, extent + 1)), w, padding=1, groups=4)
        lt.sync()
        assert lt.last_sync().plans == (i == 0)
        assert y.shape == (n, 4, extent, extent + 1)


def test_elements_of_a_window_by_phase():
    # Places 2 * i + r of three elements, one of padding: phase 0 meets the middle one, phase 1 those beside it.
    window = Window((1, 3), (1, 2), (1, 1), (0, 1), True)
    assert [[(t.number, t.column) for t in window.taps(0, r)] for r in range(2)] == [[(1, 0)], [(0, 1), (2, 0)]]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("order", [(8, 4), (4, 8)])
def test_groups_of_several_channels_and_depthwise_have_plans_of_their_own(transposed, order):
    """One program but for the sizes: what is planned for groups of two channels holds for one, and is much slower."""
    forget()
    f = nn.functional.conv_transpose2d if transposed else nn.functional.conv2d
    for channels in (*order, *order):
        x = lt.tensor(normal(2, channels, 9, 20), requires_grad=True)
        w = lt.tensor(normal(channels, channels // 4, 3, 3, seed=1), requires_grad=True)
        lt.sum(f(x, w, groups=4, padding=1) ** 2).backward()
        lt.sync()
        calls = [c for c in lt.last_sync().plan.schedule.launches if isinstance(c, MatmulCall)]
        assert {depthwise.takes(c.node) for c in calls} == {channels == 4}
        with lt.no_grad():
            n = channels // 4
            each = [f(x[:, i : i + n], w[i : i + n], padding=1) for i in range(0, channels, n)]
            y = lt.concatenate(each, axis=1)
            np.testing.assert_allclose(f(x, w, groups=4, padding=1).numpy(), y.numpy(), rtol=1e-4, atol=1e-4)
