"""Convolutions by generated code: against the interpreter, against products over windows, in every derivative."""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_programs import forget

import lazyt as lt
from lazyt import nn, planning
from lazyt.ir.builder import Builder
from lazyt.ir.extents import hint
from lazyt.ir.schedule import MatmulCall

CASES = {
    "one of everything": ((1, 1, 3, 3), (1, 1, 3, 3), 0, 1),
    "usual": ((3, 5, 14, 28), (7, 5, 3, 3), 1, 1),
    "wide rows": ((2, 3, 6, 70), (13, 3, 3, 3), 1, 1),
    "narrow rows": ((2, 3, 9, 4), (6, 3, 3, 2), 0, 1),
    "deep": ((2, 70, 8, 9), (20, 70, 3, 3), 1, 1),
    "many filters": ((2, 4, 8, 9), (150, 4, 3, 3), 1, 1),
    "dilated": ((2, 3, 12, 17), (5, 3, 3, 2), 2, 2),
    "no images": ((0, 3, 6, 6), (4, 3, 3, 3), 1, 1),
    "along one axis": ((4, 3, 30), (8, 3, 5), 2, 1),
    "more than one unit an image": ((1, 8, 90, 90), (64, 8, 3, 3), 1, 1),
}


@pytest.fixture(autouse=True)
def _planned(monkeypatch):
    forget()
    for name, value in {"tiers": False, "verify": True}.items():
        monkeypatch.setitem(planning.settings, name, value)
    yield
    forget()


def array(*shape, seed=0, dtype="float32"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def convolution(x, w, padding, dilation):
    f = nn.functional.conv2d if x.ndim == 4 else nn.functional.conv1d
    return f(x, w, padding=padding, dilation=dilation)


def results(case, dtype="float32"):
    """The convolution, and its gradients by both operands."""
    shape, filters, padding, dilation = CASES[case]
    x = lt.tensor(array(*shape, dtype=dtype), requires_grad=True)
    w = lt.tensor(array(*filters, seed=1, dtype=dtype), requires_grad=True)
    y = lt.relu(convolution(x, w, padding, dilation) + 0.5)
    weight = lt.asarray(array(*y.shape, seed=2, dtype=dtype))
    lt.sum(y * weight).backward()
    lt.sync()
    ops = [c.node.op for c in lt.last_sync().plan.schedule.launches if isinstance(c, MatmulCall)]
    return [np.array(v.detach().numpy()) for v in (y, x.grad, w.grad)], ops


class TestConvolutions:
    @pytest.mark.parametrize("case", list(CASES))
    def test_only_the_places_that_are_read(self, case, monkeypatch):
        # The gradient of a padded input is the middle of a convolution.
        sizes = []
        for on in (True, False):
            monkeypatch.setitem(planning.settings, "slices", on)
            forget()
            got, _ = results(case)
            calls = [c for c in lt.last_sync().plan.schedule.launches if isinstance(c, MatmulCall)]
            sizes.append(sum(math.prod(map(hint, c.node.shape[1:])) for c in calls if c.node.op == "convolve"))
            if on:
                want = got
        assert sizes[0] < sizes[1] if CASES[case][2] else sizes[0] == sizes[1]
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(b).max(initial=0))

    @pytest.mark.parametrize("case", list(CASES))
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_generated_or_by_products(self, case, dtype, monkeypatch):
        got, ops = results(case, dtype)
        assert {"convolve", "convolve_filter"} <= set(ops)
        forget()
        monkeypatch.setitem(planning.settings, "gemm", False)
        exact, ops = results(case, dtype)
        assert "convolve" not in ops
        eps = float(np.finfo(dtype).eps)
        for p, q in zip(got, exact, strict=True):
            scale = float(np.abs(q).max(initial=0)) or 1.0
            np.testing.assert_allclose(p, q, rtol=0, atol=200 * eps * scale)

    @pytest.mark.parametrize("case", ["usual", "dilated", "along one axis", "narrow rows"])
    def test_against_the_interpreter(self, case, monkeypatch):
        got, _ = results(case)
        forget()
        monkeypatch.setitem(planning.settings, "interpret", True)
        exact, _ = results(case)
        for p, q in zip(got, exact, strict=True):
            np.testing.assert_allclose(p, q, rtol=1e-4, atol=1e-4 * float(np.abs(q).max()))

    def test_integers(self):
        rng = np.random.default_rng(0)
        x, w = rng.integers(0, 9, (2, 3, 6, 7)), rng.integers(0, 9, (4, 3, 3, 3))
        y = nn.functional.conv2d(lt.asarray(x), lt.asarray(w)).numpy()
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
        np.testing.assert_array_equal(y, np.einsum("nchwij,ocij->nohw", windows, w))

    def test_bias_and_activation_are_an_epilogue(self):
        x, w, c = (lt.asarray(v) for v in (array(2, 3, 10, 12), array(8, 3, 3, 3, seed=1), array(8, seed=2)))
        lt.sync()
        y = lt.relu(nn.functional.conv2d(x, w, c))
        (call,) = [c for c in y.explain().plan.schedule.launches if isinstance(c, MatmulCall)]
        assert call.epilogue is not None and not call.kept

    @pytest.mark.parametrize("case", ["usual", "more than one unit an image"])
    def test_bits_do_not_depend_on_threads_or_epilogues(self, case, monkeypatch):
        before = lt.get_num_threads()
        found = set()
        try:
            for threads, epilogues in [(1, True), (2, True), (4, True), (2, False)]:
                lt.set_num_threads(threads)
                monkeypatch.setitem(planning.settings, "epilogues", epilogues)
                forget()
                found.add(b"".join(v.tobytes() for v in results(case)[0]))
        finally:
            lt.set_num_threads(before)
        assert len(found) == 1

    def test_a_new_batch_size_makes_no_plan(self):
        w = lt.asarray(array(6, 2, 3, 3))
        lt.sync()
        for i, n in enumerate((4, 1, 9)):
            x = array(n, 2, 8, 8)
            y = nn.functional.conv2d(lt.asarray(x), w, padding=1)
            lt.sync()
            assert lt.last_sync().plans == (i == 0)
            assert y.shape == (n, 6, 8, 8)

    def test_every_derivative_of_every_derivative(self):
        """Both primitives are bilinear, and each other's derivatives."""

        def f(x, w):
            return lt.sum(convolution(x, w, 1, 1) ** 3)

        x, w = lt.asarray(array(2, 2, 4, 5, dtype="float64")), lt.asarray(array(3, 2, 3, 3, seed=1, dtype="float64"))
        u = lt.asarray(array(2, 2, 4, 5, seed=2, dtype="float64"))

        def by_x(x, w):
            return lt.sum(lt.grad(f)(x, w) * u)

        h, second = 1e-6, lt.grad(by_x, argnums=1)(x, w).detach().numpy()
        for at in [(0, 0, 0, 0), (2, 1, 1, 2), (1, 0, 2, 1)]:
            d = np.zeros(w.shape)
            d[at] = h
            step = lt.asarray(d)
            slope = (float(by_x(x, w + step).detach()) - float(by_x(x, w - step).detach())) / (2 * h)
            np.testing.assert_allclose(second[at], slope, rtol=1e-5, atol=1e-5)

    def test_builder_infers_shapes(self):
        b = Builder()
        x = b.make("iota", (), None, (2, 3, 8, 9), np.dtype("int64"))
        w = b.make("iota", (), None, (5, 3, 3, 2), np.dtype("int64"))
        y = b.convolve(x, w, (3, 2), (2, 1))
        assert y.shape == (2, 5, 4, 8)
        assert b.convolve_filter(x, y, (3, 2), (2, 1)).shape == (3, 3, 2, 5)


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_the_gradient_of_a_padded_input_computes_no_padding(padding: int) -> None:
    x = lt.asarray(np.linspace(-1, 1, 2 * 3 * 6 * 5, dtype=np.float32).reshape(2, 3, 6, 5), copy=True)
    w = lt.asarray(np.linspace(-2, 1, 4 * 3 * 9, dtype=np.float32).reshape(4, 3, 3, 3))
    x.requires_grad_()
    (lt.nn.functional.conv2d(x, w, padding=padding) ** 2).sum().backward()
    assert x.grad is not None
    found = x.grad.numpy()
    graph = lt.last_sync().plan.graph
    last = [n for n in graph.nodes if n.op == "convolve"][-1]
    assert tuple(hint(d) for d in last.shape) == (2, 3, 6, 5)
    padded = np.pad(x.detach().numpy().astype(np.float64), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    ct = 2 * np.einsum("ncyxij,ocij->noyx", windows, w.numpy())
    want = np.zeros_like(padded)
    for i, j in np.ndindex(3, 3):
        want[:, :, i : i + ct.shape[2], j : j + ct.shape[3]] += np.einsum("noyx,oc->ncyx", ct, w.numpy()[:, :, i, j])
    want = want[:, :, padding : padding + 6, padding : padding + 5]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-3)
