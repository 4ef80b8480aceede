"""Convolutions in phases: transposed ones, input gradients with strides, and groups, by generated code."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.ir.passes import phases
from lazyt.ir.passes.schedule import MatmulCall
from lazyt.runtime import plan_cache
from tests.support.arrays import assert_close_at_scale, normal
from tests.support.plans import bits_by_threads_and_epilogues, forget

pytestmark = pytest.mark.usefixtures("planned")

# Transposed or not, image, filters, options.
CASES = {
    "one of everything": (True, (1, 1, 1, 2), (1, 1, 2, 2), {"stride": 2}),
    "step of two": (True, (2, 5, 7, 9), (5, 7, 4, 4), {"stride": 2, "padding": 1}),
    "filters no multiple of the step": (True, (2, 3, 6, 11), (3, 8, 3, 3), {"stride": 2, "padding": 1}),
    "what no window reaches": (True, (1, 3, 5, 6), (3, 4, 3, 5), {"stride": (2, 3), "output_padding": (1, 2)}),
    "long steps": (True, (2, 3, 4, 5), (3, 4, 2, 3), {"stride": (5, 4), "padding": (0, 1)}),
    "steps and dilation": (True, (1, 3, 6, 7), (3, 7, 3, 2), {"stride": (2, 3), "dilation": (2, 3)}),
    "step along one axis only": (True, (2, 3, 6, 7), (3, 4, 3, 3), {"stride": (2, 1), "padding": (3, 1)}),
    "groups": (True, (2, 6, 5, 18), (6, 5, 3, 4), {"stride": 2, "groups": 3}),
    "a long sum": (True, (1, 130, 4, 5), (130, 3, 4, 3), {"stride": 2}),
    "along one axis": (True, (3, 4, 21), (4, 6, 5), {"stride": 3, "padding": 2}),
    "no images": (True, (0, 3, 5, 6), (3, 4, 3, 3), {"stride": 2}),
    "a convolution in groups": (False, (2, 6, 9, 17), (14, 3, 3, 3), {"padding": 1, "groups": 2}),
    "two features a group": (False, (2, 3, 9, 4), (6, 1, 3, 2), {"groups": 3, "dilation": 2}),
    "one feature a group": (False, (1, 6, 5, 40), (3, 2, 1, 3), {"groups": 3}),
    "groups and steps": (False, (2, 4, 11, 12), (6, 2, 3, 3), {"groups": 2, "stride": 2, "padding": 1}),
    "steps longer than filters": (False, (2, 4, 11, 12), (6, 4, 2, 1), {"stride": 3, "padding": 1}),
    "more than one unit an image": (False, (1, 8, 70, 70), (64, 4, 3, 3), {"groups": 2}),
}


# Rows of a phase have few places: a plain convolution for each phase.
SHORT = {
    "short rows": (True, (3, 20, 4, 4), (20, 18, 4, 4), {"stride": 2, "padding": 1}),
    "short rows, odd filters": (True, (3, 5, 4, 8), (5, 17, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    "short rows, no padding": (True, (2, 3, 3, 5), (3, 4, 2, 4), {"stride": 2}),
    "short rows, more padding":
        (True, (2, 3, 6, 5), (3, 4, 6, 5), {"stride": (3, 2), "padding": (3, 2), "output_padding": (0, 1)}),
    "short rows, step along one axis":
        (True, (2, 3, 6, 7), (3, 4, 3, 3), {"stride": (1, 2), "padding": 1, "output_padding": (0, 1)}),
    "short rows of a gradient": (False, (3, 9, 8, 8), (16, 9, 3, 3), {"stride": 2, "padding": 1}),
}  # fmt: skip
CASES |= SHORT


def results(case, dtype="float32"):
    """The convolution with what follows it, and its gradients by both operands; the operations of its calls."""
    transposed, image, filters, options = CASES[case]
    rank = len(image) - 2
    f = getattr(nn.functional, f"conv_transpose{rank}d" if transposed else f"conv{rank}d")
    x = lt.tensor(normal(*image, dtype=dtype), requires_grad=True)
    w = lt.tensor(normal(*filters, seed=1, dtype=dtype), requires_grad=True)
    y = lt.relu(f(x, w, **options) + 0.5)
    weight = lt.asarray(normal(*y.shape, seed=2, dtype=dtype))
    lt.sum(y * weight).backward()
    lt.sync()
    ops = {c.node.op for c in lt.last_sync().plan.schedule.launches if isinstance(c, MatmulCall)}
    return [np.array(v.detach().numpy()) for v in (y, x.grad, w.grad)], ops


@pytest.mark.parametrize(
    ("case", "dtype"),
    [*((c, "float32") for c in CASES), *((c, "float64") for c in ("step of two", "a convolution in groups"))],
)
def test_generated_or_by_products(case, dtype, monkeypatch):
    got, ops = results(case, dtype)
    assert ops & {"convolve", "convolve_image"}
    forget()
    monkeypatch.setitem(plan_cache.settings, "gemm", False)
    exact, ops = results(case, dtype)
    assert not ops & {"convolve", "convolve_image"}
    assert_close_at_scale(got, exact, 200)


@pytest.mark.parametrize("case", SHORT)
def test_short_rows_are_plain_convolutions(case, monkeypatch):
    got, ops = results(case)
    assert "convolve_image" not in ops
    forget()
    monkeypatch.setattr(phases, "SHORT", 0)
    by_phases, ops = results(case)
    assert "convolve_image" in ops
    assert_close_at_scale(got, by_phases, 200)


@pytest.mark.parametrize("case", ["step of two", "long steps", "a convolution in groups", "short rows"])
def test_bits_do_not_depend_on_threads_or_epilogues(case, monkeypatch):
    assert len(bits_by_threads_and_epilogues(lambda: results(case)[0], monkeypatch)) == 1


@pytest.mark.parametrize(("transposed", "filters"), [(True, (4, 8, 3, 3)), (False, (8, 2, 3, 3))])
def test_bias_and_activation_are_an_epilogue(transposed, filters):
    x, w, c = (lt.asarray(v) for v in (normal(2, 4, 10, 12), normal(*filters, seed=1), normal(8, seed=2)))
    lt.sync()
    f = nn.functional
    z = f.conv_transpose2d(x, w, c, stride=2, padding=1) if transposed else f.conv2d(x, w, c, groups=2)
    y = lt.relu(z)
    (call,) = [c for c in y.explain().plan.schedule.launches if isinstance(c, MatmulCall)]
    assert call.epilogue is not None and not call.kept


def test_integers():
    x, w = (np.random.default_rng(0).integers(-9, 9, shape) for shape in ((2, 3, 5, 6), (3, 4, 3, 3)))
    got = nn.functional.conv_transpose2d(lt.asarray(x), lt.asarray(w), stride=2).numpy()
    want = np.zeros((2, 4, 11, 13), x.dtype)
    for i, j in np.ndindex(3, 3):
        want[:, :, i : i + 9 : 2, j : j + 11 : 2] += np.einsum("ncyx,co->noyx", x, w[:, :, i, j])
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("transposed", [True, False])
def test_of_one_place_it_is_a_product(transposed):
    f = nn.functional.conv_transpose2d if transposed else nn.functional.conv2d
    x = lt.tensor(normal(5, 6, *((1, 1) if transposed else (4, 3))), requires_grad=True)
    w = lt.tensor(normal(*((6, 7) if transposed else (7, 6)), 4, 3, seed=1), requires_grad=True)
    y = f(x, w)
    (y * y).sum().backward()
    lt.sync()
    ops = [c.node.op for c in lt.last_sync().plan.schedule.launches if isinstance(c, MatmulCall)]
    assert ops == ["matmul"] * 3
    xs, ws = (v.detach().numpy().astype(np.float64) for v in (x, w))
    line = "noij,ocij->ncij" if transposed else "ncij,ocij->no"
    if transposed:
        xs = np.broadcast_to(xs, (5, 6, 4, 3))
    want = np.einsum(line, xs, ws).reshape(y.shape)
    by_x = (
        np.einsum("ncij,ocij->no", 2 * want, ws) if transposed else np.einsum("no,ocij->ncij", 2 * want[..., 0, 0], ws)
    )
    by_w = (
        np.einsum("noij,ncij->ocij", xs, 2 * want)
        if transposed
        else np.einsum("no,ncij->ocij", 2 * want[..., 0, 0], xs)
    )
    for got, exact in ((y.detach(), want), (x.grad, by_x), (w.grad, by_w)):
        np.testing.assert_allclose(got.numpy().reshape(exact.shape), exact, rtol=1e-4, atol=1e-3)


def test_new_sizes_make_no_plan():
    w = lt.asarray(normal(6, 2, 3, 3))
    lt.sync()
    for i, (n, extent) in enumerate([(4, 8), (1, 8), (9, 11), (2, 20)]):
        x = normal(n, 6, extent, extent + 1)
        y = nn.functional.conv_transpose2d(lt.asarray(x), w, stride=2, padding=1)
        lt.sync()
        assert lt.last_sync().plans == (i == 0)
        assert y.shape == (n, 2, 2 * extent - 1, 2 * extent + 1)
