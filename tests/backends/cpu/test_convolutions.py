"""Convolutions by generated code: against the interpreter, against products over windows, in every derivative."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.ir import graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.graph import Convolution
from lazyt.ir.graph_interpreter import interpret
from lazyt.ir.passes.canonicalize import canonicalize
from lazyt.ir.passes.schedule import MatmulCall
from lazyt.ir.passes.verify import verify
from lazyt.ir.symbolic import hint
from lazyt.ir.target import Target
from lazyt.runtime import plan_cache
from tests.support.arrays import assert_close_at_scale, normal
from tests.support.plans import bits_by_threads_and_epilogues, forget

pytestmark = pytest.mark.usefixtures("planned")

CASES = {
    "one of everything": ((1, 1, 3, 4), (1, 1, 3, 3), 0, 1),
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


def convolution(x, w, padding, dilation):
    f = nn.functional.conv2d if x.ndim == 4 else nn.functional.conv1d
    return f(x, w, padding=padding, dilation=dilation)


def results(case, dtype="float32"):
    """The convolution, and its gradients by both operands."""
    shape, filters, padding, dilation = CASES[case]
    x = lt.tensor(normal(*shape, dtype=dtype), requires_grad=True)
    w = lt.tensor(normal(*filters, seed=1, dtype=dtype), requires_grad=True)
    y = lt.relu(convolution(x, w, padding, dilation) + 0.5)
    weight = lt.asarray(normal(*y.shape, seed=2, dtype=dtype))
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
            monkeypatch.setitem(plan_cache.settings, "slices", on)
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
        monkeypatch.setitem(plan_cache.settings, "gemm", False)
        exact, ops = results(case, dtype)
        assert "convolve" not in ops
        assert_close_at_scale(got, exact, 200)

    @pytest.mark.parametrize("case", ["usual", "dilated", "along one axis", "narrow rows"])
    def test_against_the_interpreter(self, case, monkeypatch):
        got, _ = results(case)
        forget()
        monkeypatch.setitem(plan_cache.settings, "interpret", True)
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
        x, w, c = (lt.asarray(v) for v in (normal(2, 3, 10, 12), normal(8, 3, 3, 3, seed=1), normal(8, seed=2)))
        lt.sync()
        y = lt.relu(nn.functional.conv2d(x, w, c))
        (call,) = [c for c in y.explain().plan.schedule.launches if isinstance(c, MatmulCall)]
        assert call.epilogue is not None and not call.kept

    @pytest.mark.parametrize("case", ["usual", "more than one unit an image"])
    def test_bits_do_not_depend_on_threads_or_epilogues(self, case, monkeypatch):
        assert len(bits_by_threads_and_epilogues(lambda: results(case)[0], monkeypatch)) == 1

    def test_a_new_batch_size_makes_no_plan(self):
        w = lt.asarray(normal(6, 2, 3, 3))
        lt.sync()
        for i, n in enumerate((4, 1, 9)):
            x = normal(n, 2, 8, 8)
            y = nn.functional.conv2d(lt.asarray(x), w, padding=1)
            lt.sync()
            assert lt.last_sync().plans == (i == 0)
            assert y.shape == (n, 6, 8, 8)

    def test_every_derivative_of_every_derivative(self):
        """Both primitives are bilinear, and each other's derivatives."""

        def f(x, w):
            return lt.sum(convolution(x, w, 1, 1) ** 3)

        x, w = lt.asarray(normal(2, 2, 4, 5, dtype="float64")), lt.asarray(normal(3, 2, 3, 3, seed=1, dtype="float64"))
        u = lt.asarray(normal(2, 2, 4, 5, seed=2, dtype="float64"))

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
        a = Convolution((3, 2), (2, 1), (1, 1), 1, (0, 0))
        y = b.convolve(x, w, a)
        assert y.shape == (2, 5, 4, 8)
        assert b.convolve_filter(x, y, a, w.shape).shape == (3, 3, 2, 5)
        far = Convolution((3, 2), (2, 1), (3, 2), 1, (1, 0))
        assert b.convolve(x, w, far).shape == (2, 5, 2, 4)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_the_gradient_of_a_padded_input_computes_no_padding(padding: int, given: bool) -> None:
    # A gradient that is given has extents of its own: they are known to be the result's, and not written so.
    x = lt.asarray(np.linspace(-1, 1, 2 * 3 * 6 * 5, dtype=np.float32).reshape(2, 3, 6, 5), copy=True)
    w = lt.asarray(np.linspace(-2, 1, 4 * 3 * 9, dtype=np.float32).reshape(4, 3, 3, 3))
    x.requires_grad_()
    y = lt.nn.functional.conv2d(x, w, padding=padding)
    if given:
        y.backward(lt.asarray(2 * y.detach().numpy()))
    else:
        (y**2).sum().backward()
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


# Image, filters, dilations, strides, groups, padding.
GENERAL = {
    "strided": ((2, 3, 9, 8), (4, 3, 3, 2), (1, 2), (2, 1), 1, (0, 0)),
    "what a stride leaves over": ((2, 3, 10, 11), (4, 3, 3, 3), (1, 1), (3, 2), 1, (0, 0)),
    "padded": ((2, 3, 5, 6), (4, 3, 3, 2), (1, 1), (1, 1), 1, (2, 1)),
    "grouped": ((2, 4, 9, 8), (6, 2, 3, 3), (2, 1), (1, 2), 2, (1, 0)),
    "a channel each": ((2, 4, 9, 8), (4, 1, 3, 3), (1, 1), (2, 2), 4, (1, 1)),
    "a channel each, wide": ((1, 2, 12, 11), (2, 1, 9, 9), (1, 1), (1, 1), 2, (0, 1)),
    "two filters a channel": ((2, 3, 7, 8), (6, 1, 2, 2), (1, 1), (1, 3), 3, (0, 0)),
    "points": ((2, 4, 5, 6), (6, 2, 1, 1), (1, 1), (2, 1), 2, (0, 0)),
    "along one axis": ((2, 4, 19), (6, 2, 3), (2,), (3,), 2, (2,)),
}


def convolved(x, w, a):
    """By plain loops."""
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in a.padding)))
    counts = tuple((d - r - 1) // s + 1 for d, r, s in zip(x.shape[2:], a.reach, a.strides, strict=True))
    y = np.zeros((len(x), len(w), *counts))
    part, depth = len(w) // a.groups, w.shape[1]
    for o, at, k in np.ndindex(len(w), int(np.prod(counts)), int(np.prod(a.sizes))):
        i, j = np.unravel_index(at, counts), np.unravel_index(k, a.sizes)
        place = tuple(int(p * s + q * e) for p, s, q, e in zip(i, a.strides, j, a.dilations, strict=True))
        first = o // part * depth
        y[(slice(None), o, *i)] += x[(slice(None), slice(first, first + depth), *place)] @ w[(o, slice(None), *j)]
    return y


@pytest.mark.parametrize("case", list(GENERAL))
class TestGeneral:
    """The three primitives, and what canonicalize makes of them."""

    def primitives(self, case):
        image, filters, dilations, strides, groups, padding = GENERAL[case]
        a = Convolution(filters[2:], dilations, strides, groups, padding)
        x, w = normal(*image, dtype="float64"), normal(*filters, seed=1, dtype="float64")
        y = convolved(x, w, a)
        b = Builder()
        inputs = [b.make("input", (), g.Input(i), v.shape, v.dtype) for i, v in enumerate((x, w, y))]
        outs = [
            b.convolve(inputs[0], inputs[1], a),
            b.convolve_filter(inputs[0], inputs[2], a, w.shape),
            b.convolve_image(inputs[2], inputs[1], a, x.shape),
        ]
        return outs, (x, w, y)

    def test_they_are_each_others_transposes(self, case):
        outs, (x, w, y) = self.primitives(case)
        verify(g.Graph(g.reachable(outs), outs))
        forward, by_filter, by_image = interpret(g.Graph(g.reachable(outs), outs), outs, [x, w, y])
        np.testing.assert_allclose(forward, y, rtol=1e-12, atol=1e-12)
        # <y, conv(x, w)> is linear in each: what it is by the derivative in that direction.
        want = float((y * y).sum())
        assert float((np.moveaxis(by_filter, -1, 0) * w).sum()) == pytest.approx(want, rel=1e-12)
        assert float((by_image * x).sum()) == pytest.approx(want, rel=1e-12)

    def test_as_products_over_windows(self, case):
        outs, values = self.primitives(case)
        want = interpret(g.Graph(g.reachable(outs), outs), outs, values)
        for convolutions in (True, False):
            graph = canonicalize(g.Graph(g.reachable(outs), outs), None, Target(convolutions=convolutions))
            verify(graph)
            ops = {n.op for n in graph.nodes if n.op.startswith("convolve")}
            assert not ops or convolutions
            for p, q in zip(interpret(graph, graph.outputs, values), want, strict=True):
                np.testing.assert_allclose(p, q, rtol=1e-12, atol=1e-12)

    def test_gradients_of_the_public_function(self, case):
        image, filters, dilations, strides, groups, padding = GENERAL[case]
        f = nn.functional.conv1d if len(image) == 3 else nn.functional.conv2d
        x = lt.tensor(normal(*image, dtype="float64"), requires_grad=True)
        w = lt.tensor(normal(*filters, seed=1, dtype="float64"), requires_grad=True)
        y = f(x, w, stride=strides, padding=padding, dilation=dilations, groups=groups)
        v = normal(*y.shape, seed=2, dtype="float64")
        lt.sum(y * v).backward()
        a = Convolution(filters[2:], dilations, strides, groups, padding)
        want = float((convolved(x.detach().numpy(), w.detach().numpy(), a) * v).sum())
        for p in (x, w):
            assert float((p.grad * p.detach()).sum()) == pytest.approx(want, rel=1e-10)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", [(1, 1), (0, 2), (3, 1)])
def test_a_library_pads_by_itself(stride, padding):
    """Zeros around an image, and what is cut off a gradient's ends, are attributes of what a library computes."""
    a = Convolution((3, 3), (1, 1), (stride, stride), 1, (0, 0))
    x, w = normal(2, 3, 8, 9, dtype="float64"), normal(4, 3, 3, 3, seed=1, dtype="float64")
    b = Builder()
    image, filters = (b.make("input", (), g.Input(i), v.shape, v.dtype) for i, v in enumerate((x, w)))
    around = b.pad(image, (0, 0, *padding), (2, 3, 8 + 2 * padding[0], 9 + 2 * padding[1]), b.constant(0, x.dtype))
    y = b.convolve(around, filters, a)
    if stride == 1:  # by reverse mode's rule
        shape = (*y.shape[:2], *(d + 4 for d in y.shape[2:]))
        framed = b.pad(y, (0, 0, 2, 2), shape, b.constant(0, x.dtype))
        whole = b.convolve(framed, b.flip(b.permute(filters, (1, 0, 2, 3)), (2, 3)), a)
    else:
        whole = b.convolve_image(y, filters, a, around.shape)
    by_image = b.slice(whole, (0, 0, *padding), image.shape, (1,) * 4)
    outs = [y, b.convolve_filter(around, y, a, filters.shape), by_image]
    want = interpret(g.Graph(g.reachable(outs), outs), outs, [x, w])
    graph = canonicalize(g.Graph(g.reachable(outs), outs), None, Target(convolutions=lambda n: True))
    verify(graph)
    assert not any(n.op == "pad" for n in graph.nodes)
    # A window of three reaches two elements further than its first: no more than that is cut off its padding.
    cuts = [n for n in graph.nodes if n.op == "slice" and set(n.attrs.steps) == {1}]
    assert len(cuts) == (stride == 1 and max(padding) > 2)
    for p, q in zip(interpret(graph, graph.outputs, [x, w]), want, strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-12, atol=1e-12)
