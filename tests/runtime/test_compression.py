"""Compressed activations: results are exact, gradients are unbiased, and what a backward keeps has few bits."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import NotSupportedError
from lazyt.nn import functional as F
from lazyt.runtime import plan_cache
from tests.support.compressed import (
    array as _array,
    blocks as _blocks,
    filters as _filters,
    kept,
    model as _model,
    weights as _weights,
)


def _gradients(bits: int | None, draws: int = 1) -> tuple[float, list[np.ndarray]]:
    """The loss, and gradients averaged over so many draws."""
    w = _weights((16, 64), (64, 64), (64, 8))
    x = lt.tensor(_array(32, 16, seed=9))
    for _ in range(draws):
        if bits is None:
            y = _model(x, w)
        else:
            with lt.memory.compress(bits=bits):
                y = _model(x, w)
        loss = (y * y).mean()
        loss.backward()
        lt.sync()
    return float(loss), [p.grad.numpy() / draws for p in w]


@pytest.mark.parametrize("bits", [1, 2, 8])
def test_results_are_exact_and_gradients_unbiased(bits: int):
    value, exact = _gradients(None)
    found, once = _gradients(bits)
    assert found == value
    _, often = _gradients(bits, 200)
    for g, one, many in zip(exact, once, often, strict=True):
        error = np.linalg.norm(one - g)
        assert 0 < error < [4, 1.5, 0.02][(1, 2, 8).index(bits)] * np.linalg.norm(g)
        # Of independent estimates the error of the average is one by the square root of their number.
        assert np.linalg.norm(many - g) < 2 * error / 200**0.5


def test_another_step_is_another_draw_and_no_new_plan():
    w = _weights((16, 64), (64, 64), (64, 8))
    x = lt.tensor(_array(32, 16))
    seen = []
    for _ in range(4):
        for p in w:
            p.grad = None
        with lt.memory.compress(bits=2):
            y = _model(x, w)
        y.sum().backward()
        lt.sync()
        seen.append(w[0].grad.numpy().copy())
        if len(seen) == 2:
            plans = sum(len(p.plans) for p in plan_cache._programs.values())
    assert sum(len(p.plans) for p in plan_cache._programs.values()) == plans
    assert all(not np.array_equal(a, b) for a, b in itertools.pairwise(seen))


def test_a_seed_gives_the_same_gradients_again_and_other_random_numbers_stay():
    found = []
    for compressed in (True, True, False):
        lt.random.seed(4)
        w = _weights((16, 64), (64, 64), (64, 8))
        with lt.memory.compress(level=None if compressed else "L0"):
            y = _model(lt.tensor(_array(32, 16)), w)
        y.sum().backward()
        found.append((w[0].grad.numpy(), lt.random.random(4).numpy()))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[2][1])


def test_convolution_normalization_and_relu_keep_a_twelfth():
    x, w = lt.tensor(_array(8, 8, 16, 16)), _filters()
    with lt.memory.compress(bits=2):
        y = _blocks(x, w)
    loss = (y * lt.tensor(_array(8, 8, 16, 16, seed=8))).sum()
    loss.backward()
    found = kept()
    # Of each block the convolution's result, and a mask; the ReLU's results feed the next convolution.
    assert found.arrays == [("conv2d", 2)] * 3 + [("relu", 1)] * 3 + [("relu", 2)] * 2
    assert found.full == []
    elements = 8 * 8 * 16 * 16
    # Without compression: two arrays of float32 for each block.
    assert 2 * 3 * 4 * elements / found.packed >= 12


def test_a_linear_layer_keeps_a_fifteenth():
    w = _weights((256, 256), (256, 256))
    with lt.memory.compress(bits=2):
        y = (lt.tensor(_array(64, 256)) @ w[0]) @ w[1]
    y.sum().backward()
    found = kept()
    assert found.arrays == [("matmul", 2)]
    assert found.whole / found.packed >= 15


@pytest.mark.parametrize(
    ("f", "bits"),
    [
        (F.relu, 1),
        (lambda x: F.dropout(x, 0.5, training=True), 1),
        (lambda x: F.max_pool2d(x, 2), 2),
        (lambda x: F.max_pool2d(x, 3, 2, 1), 4),
    ],
)
def test_masks_and_places_are_exact(f: Callable[[Any], Any], bits: int):
    """So is the gradient of what has only a mask, or the places of maxima."""
    grads = []
    w = lt.tensor(_array(32, 32))
    for level in ("L0", "L2"):
        lt.random.seed(0)
        x = lt.tensor(_array(2, 4, 32, 32), requires_grad=True)
        with lt.memory.compress(level=level):
            y = f(x @ w)
        (y * 3).sum().backward()
        if bits is not None and level == "L2":
            assert kept().arrays == [(kept().arrays[0][0], bits)]
        grads.append(x.grad.numpy())
    np.testing.assert_array_equal(grads[0], grads[1])


def test_what_is_recorded_outside_of_the_block_is_exact():
    x = lt.tensor(_array(32, 64), requires_grad=True)
    with lt.memory.compress(bits=2):
        y = lt.exp(x * 0.1)
    z = lt.exp(y)
    del y
    z.sum().backward()
    assert kept().arrays == [("exp", 2)]


def test_what_a_variable_holds_is_read_from_there():
    x = lt.tensor(_array(32, 64), requires_grad=True)
    with lt.memory.compress(bits=2):
        y = lt.exp(x)
        z = lt.exp(y)
    (z * z).sum().backward()
    assert kept().arrays == []
    del y
    assert kept().arrays == [("exp", 2)]


def test_parameters_small_arrays_and_integers_are_left_alone():
    w = lt.tensor(_array(64, 64), requires_grad=True)
    index = lt.tensor(np.arange(64) % 7)
    x = lt.tensor(_array(2, 64), requires_grad=True)
    with lt.memory.compress(bits=2):
        y = lt.tanh(x) @ w.mT + lt.take(w, index + 0, axis=0).sum()
    y.sum().backward()
    assert kept().arrays == []


def test_an_array_that_several_derivatives_read_is_packed_once():
    x = lt.tensor(_array(64, 64), requires_grad=True)
    w, v = _weights((64, 64), (64, 64))
    with lt.memory.compress(bits=4):
        h = lt.tanh(x)
        y = (h @ w).sum() + (h @ v).sum() + (h.T @ w).sum()
        del h
    y.backward()
    # `h` for the products, and its square for tanh.
    assert kept().arrays == [("tanh", 4), ("tanh", 4)]


def test_levels():
    x, w = lt.tensor(_array(8, 8, 16, 16)), _filters()
    found = {}
    for level, bits in (("L1", None), ("L2", None), ("L1", 2)):
        with lt.memory.compress(bits, level):
            y = _blocks(x, w)
        y.sum().backward()
        found[level, bits] = {*kept().arrays}
        lt.sync()
    assert found["L2", None] == {("conv2d", 4), ("relu", 4), ("relu", 1)}
    assert found["L1", None] == {("relu", 4), ("relu", 1)}
    assert found["L1", 2] == {("relu", 2), ("relu", 1)}
    with lt.memory.compress(2, "L0"):
        y = _blocks(x, w)
    y.sum().backward()
    assert kept().packed == 0


def test_as_a_decorator_nested_and_switched_off_in_the_middle():
    x = lt.tensor(_array(64, 64), requires_grad=True)

    @lt.memory.compress(bits=4)
    def f(x: Any) -> Any:
        with lt.memory.compress(level="L0"):
            y = lt.exp(x)
        return lt.exp(y)

    f(x).sum().backward()
    assert kept().arrays == [("exp", 4)]


def test_a_loop_in_one_program_with_updates_leaves_parameters_exact():
    """Two steps of training without a sync between: the second forward pass reads what the first one updated."""
    w = lt.nn.Parameter(lt.tensor(_array(64, 64) * 0.1))
    opt = lt.optim.SGD([w], lr=0.1)
    x = lt.tensor(_array(32, 64))
    for _ in range(2):
        opt.zero_grad()
        with lt.memory.compress(bits=2):
            loss = (lt.tanh(x @ w) ** 2).sum()
            loss.backward()
            opt.step()
    assert {name for name, _ in kept().arrays} <= {"tanh", "power", "square", "pow"}


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"bits": 3}, ValueError, "compress: bits are one of 1, 2, 4, 8, got 3"),
        ({"bits": 2.0}, ValueError, "compress: bits are one of 1, 2, 4, 8, got 2.0"),
        ({"level": "L9"}, ValueError, "compress: the levels are L0, L1, L2, L3, L4, swap, got 'L9'"),
        ({"level": ["L2"]}, ValueError, "compress: the levels are L0, L1, L2, L3, L4, swap, got ['L2']"),
        ({"level": "L3.1"}, NotSupportedError, "not supported: compress(level='L3.1'), because it is L3 with settings"),
        (
            {"level": "L4"},
            NotSupportedError,
            "not supported: compress(level='L4') on 'cpu', because arrays there do not move to the host's memory",
        ),
        (
            {"level": "L5"},
            NotSupportedError,
            "not supported: compress(level='L5'), because it is L4 with an allocator that closes gaps",
        ),
        (
            {"level": "swap"},
            NotSupportedError,
            "not supported: compress(level='swap') on 'cpu', because arrays there do not move to the host's memory",
        ),
        ({"bits": 1.5}, ValueError, "compress: bits are one of 1, 2, 4, 8, got 1.5"),
        ({"device": "tpu"}, lt.DeviceError, "device 'tpu': no such device"),
    ],
)
def test_bad_settings(given: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=re.escape(message)):
        lt.memory.compress(**given)


def _two_branches(c: Any) -> Callable[[], list[Any]]:
    """Gradients by products with two arrays, of which the first one's count a hundred times as much."""
    w = _weights((64, 64), (64, 64), (64, 64), (64, 64))
    x, y = (lt.tensor(_array(64, 64, seed=s)) for s in (8, 9))

    def gradients() -> list[Any]:
        for p in w:
            p.grad = None
        with c:
            a, b = x @ w[0], y @ w[1]
            z = 100 * (a @ w[2]) + b @ w[3]
        (z * lt.tensor(_array(64, 64, seed=3))).sum().backward()
        return [p.grad for p in w]

    return gradients


def test_bits_are_adapted_to_what_gradients_need():
    c = lt.memory.compress(bits=2)
    gradients = _two_branches(c)
    state = lt.random.get_state()
    assert c.adapt(gradients, average=3) == [4, 2]
    assert lt.random.get_state() == state
    held = gradients()
    lt.sync()
    plan = lt.last_sync().plan
    assert {n.dtype.name for n in plan.graph.kept} == {"bfloat16", "uint16", "uint32"}
    del held


def test_a_program_with_other_arrays_has_the_bits_of_all():
    c = lt.memory.compress(bits=2)
    c.adapt(_two_branches(c), average=3)
    x = lt.tensor(_array(64, 64), requires_grad=True)
    with c:
        z = (lt.exp(x) * lt.tensor(_array(64, 64, seed=1))).sum()
    z.backward()
    lt.sync()
    plan = lt.last_sync().plan
    assert {n.dtype.name for n in plan.graph.kept} == {"bfloat16", "uint16"}


def test_adapting_needs_something_that_is_rounded():
    with pytest.raises(ValueError, match=re.escape("compress: level='L0' has nothing to adapt")):
        lt.memory.compress(level="L0").adapt(list)
    with pytest.raises(ValueError, match=re.escape("an average of at least 1 bit is required, got 0.5")):
        lt.memory.compress().adapt(list, average=0.5)
    w = lt.tensor(_array(4, 4), requires_grad=True)

    def gradients() -> list[Any]:
        with lt.memory.compress():
            y = lt.exp(w)
        y.sum().backward()
        return [w.grad]

    with pytest.raises(ValueError, match=re.escape("compress: no array is rounded in what `gradients` computes")):
        lt.memory.compress().adapt(gradients)


def test_what_a_gradient_would_be_multiplied_with_twice_is_kept_as_it_is():
    """The square of an estimate is no estimate of the square."""
    x, v = lt.tensor(_array(64, 64), requires_grad=True), lt.tensor(_array(64, 64, seed=1))
    with lt.memory.compress(bits=2):
        y = lt.exp(x)
        z = y * lt.tanh(y)
        del y
    (z * v).sum().backward()
    found = kept()
    assert found.full == ["exp"] and {name for name, _ in found.arrays} == {"tanh"}


def test_gradients_of_gradients_are_refused():
    x = lt.tensor(_array(64, 64), requires_grad=True)

    def gradient() -> Any:
        with lt.memory.compress(bits=2):
            y = (lt.exp(x) * 2).sum()
        return lt.autograd.grad(y, x, create_graph=True)[0]

    first = gradient()
    message = "not supported: differentiating a gradient through sum"
    with pytest.raises(NotSupportedError, match=re.escape(message)):
        (first * first).sum().backward()
    with lt.memory.compress(level="L0"):
        y = (lt.exp(x) * 2).sum()
    lt.autograd.grad(lt.autograd.grad(y, x, create_graph=True)[0].sum(), x)


def test_what_follows_a_sync_in_the_block_is_compressed():
    x = lt.tensor(_array(64, 64), requires_grad=True)
    v = lt.tensor(_array(64, 64, seed=1))
    with lt.memory.compress(bits=2):
        y = lt.exp(x * 0.1)
        lt.sync()
        z = lt.exp(y)
    loss = (z * v).sum()
    del z
    loss.backward()
    assert kept().arrays == [("exp", 2)]


def test_the_peak_of_a_step_is_a_third():
    peaks = []
    for level in ("L0", None):
        w = _weights(*[(128, 128)] * 8)
        h = x = lt.tensor(_array(512, 128))
        lt.sync()
        lt.memory.reset_peak()
        before = lt.memory.allocated()
        with lt.memory.compress(level=level):
            for p in w:
                h = F.relu(h @ p)
        h.sum().backward()
        del h
        lt.sync()
        peaks.append(lt.memory.peak() - before)
        del w, x
    assert peaks[1] < 0.35 * peaks[0]


def test_a_residual_stream_keeps_the_sum_of_its_cotangents_and_not_the_terms():
    """Of three blocks and one of half the size: it was 10 arrays."""
    x = lt.tensor(_array(8, 8, 32, 32))
    shapes = [(8, 8, 3, 3)] * 6 + [(16, 8, 3, 3), (16, 16, 3, 3), (16, 8, 1, 1)]
    *same, a, b, past = [lt.tensor(0.1 * _array(*s, seed=i), requires_grad=True) for i, s in enumerate(shapes)]

    def normal(h: Any, w: Any, stride: int = 1) -> Any:
        return F.batch_norm(F.conv2d(h, w, stride=stride, padding=w.shape[-1] // 2), None, None, training=True)

    with lt.memory.compress(bits=2):
        h = x
        for v, w in zip(same[::2], same[1::2], strict=True):
            h = F.relu(normal(F.relu(normal(h, v)), w) + h)
        h = F.relu(normal(F.relu(normal(h, a, 2)), b) + normal(h, past, 2))
    (h * h).sum().backward()
    lt.sync()
    (bound,) = lt.last_sync().plan.executable.bound.values()
    assert bound.temporaries() < 9 * x.nbytes


def test_no_kernel_packs_arrays_of_several_steps():
    """They have the same numbers and shapes. The first would be kept at full precision until the last is there."""
    x, w = lt.tensor(_array(8, 8, 16, 16)), _filters()
    with lt.memory.compress(bits=2):
        y = _blocks(x, w)
    (y * lt.tensor(_array(8, 8, 16, 16, seed=8))).sum().backward()
    lt.sync()
    schedule = lt.last_sync().plan.schedule
    packing = [{n.site.step for n in c.writes if n in schedule.graph.kept} for c in schedule.launches]
    assert sum(len(steps) == 1 for steps in packing) >= 8
    assert max(map(len, packing)) == 1


def test_a_loop_that_is_divided_into_parts():
    """Each part has its own turn's draw."""
    found = {}
    for level in ("L0", "L2"):
        w = [lt.nn.Parameter(p.detach()) for p in _weights((16, 64), (64, 64), (64, 8))]
        opt = lt.optim.SGD(w, lr=0.05)
        x = lt.tensor(_array(32, 16))
        losses = []
        for _ in range(16):
            opt.zero_grad()
            with lt.memory.compress(level=level):
                y = _model(x, w)
            loss = (y * y).mean()
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        lt.sync()
        assert lt.last_sync().parts > 1
        found[level] = np.array([float(v) for v in losses])
    assert found["L2"][0] == found["L0"][0] and found["L2"][-1] != found["L0"][-1]
    np.testing.assert_allclose(found["L2"], found["L0"], rtol=0.05)
