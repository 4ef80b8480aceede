"""Level "L3" of compression: bits that follow the ranges and the gradients of samples and arrays."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.functions.sensitivity import Sensitivity
from lazyt.nn import functional as F
from lazyt.runtime import plan_cache
from tests.support.compressed import kept

SAMPLES = 16


def _array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class _Net:
    """Two layers, for samples whose values and whose gradients are of very different sizes."""

    def __init__(self, samples: int = SAMPLES) -> None:
        self.w = [lt.tensor(_array(n, m, seed=n) / n**0.5, requires_grad=True) for n, m in ((64, 128), (128, 128))]
        self.v = lt.tensor(_array(128, 8, seed=3), requires_grad=True)
        sizes = np.exp(1.5 * _array(2, samples, 1, seed=4))
        self.x = lt.tensor(_array(samples, 64, seed=5) * sizes[0])
        self.t = lt.tensor(_array(samples, 8, seed=6) * sizes[1])

    def forward(self, c: Any) -> lt.Tensor:
        for p in (*self.w, self.v):
            p.grad = None
        with c:
            y = F.relu(F.relu(self.x @ self.w[0]) @ self.w[1]) @ self.v
        return (y * self.t).sum()

    def gradients(self, c: Any) -> np.ndarray:
        loss = self.forward(c)
        loss.backward()
        del loss
        lt.sync()
        return np.concatenate([p.grad.numpy().ravel() for p in (*self.w, self.v)])


def _plans() -> int:
    return sum(len(p.plans) for p in plan_cache._programs.values())


def _error(c: Any, draws: int = 24) -> tuple[float, float]:
    """The mean squared distance of gradients from the exact ones, and that of their mean; after two steps."""
    net = _Net()
    exact = net.gradients(lt.memory.compress(level="L0"))
    found = [net.gradients(c.samples(range(SAMPLES)) if c._level == "L3" else c) for _ in range(draws + 2)][2:]
    return float(np.mean([((g - exact) ** 2).sum() for g in found])), float(((np.mean(found, 0) - exact) ** 2).sum())


def test_gradients_are_unbiased_and_far_more_exact_than_by_equal_bits():
    equal, _ = _error(lt.memory.compress(bits=2), 8)
    mixed, mean = _error(lt.memory.compress(bits=2, level="L3"))
    assert mixed < 0.2 * equal
    assert mean < 2 * mixed / 24


def test_the_first_step_follows_ranges_and_is_unbiased():
    net = _Net()
    exact = net.gradients(lt.memory.compress(level="L0"))
    found = [net.gradients(lt.memory.compress(bits=2, level="L3")) for _ in range(24)]
    error = np.mean([((g - exact) ** 2).sum() for g in found])
    assert ((np.mean(found, 0) - exact) ** 2).sum() < 2 * error / 24
    assert error < 0.6 * _error(lt.memory.compress(bits=2), 8)[0]


def test_other_bits_are_no_other_plan():
    net, c = _Net(), lt.memory.compress(bits=2, level="L3")
    averages = set()
    for i in range(9):
        net.x = lt.tensor(_array(SAMPLES, 64, seed=i) * np.exp(2 * _array(SAMPLES, 1, seed=i)))
        net.gradients(c.samples(np.arange(SAMPLES) + SAMPLES * (i % 2)))
        averages.add(c._sensitivity.averages)
        if i == 1:
            plans = _plans()
    assert len(averages) > 2
    assert _plans() == plans


def test_another_batch_size_is_no_other_plan():
    c = lt.memory.compress(bits=2, level="L3")
    for i, n in enumerate((16, 16, 16, 24, 16)):
        net = _Net(n)
        net.gradients(c.samples(range(n)))
        if i == 2:
            plans = _plans()
    assert _plans() == plans


@pytest.mark.parametrize(("average", "least"), [(1, 27), (1.25, 22), (2, 14.5), (4, 7.5)])
def test_what_is_kept_is_bounded_by_the_average(average: float, least: float):
    """Of an array of 4096 elements a sample; with minima, steps, and the bits of each sample."""
    x, w = lt.tensor(_array(8, 8, 16, 16) * np.exp(_array(8, 1, 1, 1))), lt.tensor(_array(8, 8, 3, 3) * 0.1)
    w.requires_grad = True
    c = lt.memory.compress(bits=average, level="L3")
    for _ in range(3):
        with c:
            y = F.conv2d(F.conv2d(x, w, padding=1), w, padding=1)
        y.sum().backward()
        found = kept()
        assert [name for name, _ in found.arrays] == ["conv2d"]
        assert found.whole / found.packed >= least
        lt.sync()


def test_nothing_syncs_and_steps_without_a_sync_between_go_on():
    net, c = _Net(), lt.memory.compress(bits=2, level="L3")
    optimizer = lt.optim.SGD([*net.w, net.v], lr=1e-6)
    losses = []
    for _ in range(6):
        with lt.expect(syncs=0):
            loss = net.forward(c)
            loss.backward()
            optimizer.step()
        losses.append(loss.detach())
    lt.sync()
    assert c._sensitivity.arrays == 0 and len(c._sensitivity.waiting) == 4
    net.gradients(c)
    assert c._sensitivity.arrays == 2


def test_a_block_with_more_arrays_than_the_last_step_told_of():
    net, c, v = _Net(), lt.memory.compress(bits=2, level="L3"), lt.tensor(_array(128, 128, seed=7) / 11)
    v.requires_grad_()
    net.gradients(c)

    def deeper(c: Any) -> np.ndarray:
        for p in (*net.w, net.v):
            p.grad = None
        with c:
            y = F.relu(F.relu(F.relu(F.relu(net.x @ net.w[0]) @ net.w[1]) @ v) @ v) @ net.v
        loss = (y * net.t).sum()
        loss.backward()
        return np.concatenate([p.grad.numpy().ravel() for p in (*net.w, net.v)])

    exact = deeper(lt.memory.compress(level="L0"))
    found = deeper(c)
    assert 0 < ((found - exact) ** 2).sum() < (exact**2).sum()


def test_two_blocks_of_one_step_and_a_forward_pass_alone():
    net, other, c = _Net(), _Net(), lt.memory.compress(bits=2, level="L3")
    other.x = -other.x
    for _ in range(2):
        first = net.forward(c.samples(range(SAMPLES)))
        (first + other.forward(c.samples(range(SAMPLES, 2 * SAMPLES)))).backward()
        lt.sync()
    net.forward(c).item()
    assert np.isfinite(net.gradients(c)).all()
    s = c._sensitivity
    assert s.arrays == 2 and s.seen[: 2 * SAMPLES].all()


def test_a_block_that_cannot_be_entered_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch):
    net, c = _Net(), lt.memory.compress(bits=2, level="L3")

    def fails(*args: Any) -> Any:
        raise lt.OutOfMemory("no room")

    monkeypatch.setattr(c._sensitivity, "told", fails)
    with pytest.raises(lt.OutOfMemory, match="no room"):
        net.forward(c)
    net.forward(lt.memory.compress(level="L0")).backward()
    assert kept().packed == 0


def test_as_a_decorator_it_remembers_too():
    net, c = _Net(), lt.memory.compress(bits=2, level="L3")

    @c
    def forward() -> Any:
        return F.relu(F.relu(net.x @ net.w[0]) @ net.w[1]) @ net.v

    for _ in range(2):
        (forward() * net.t).sum().backward()
        lt.sync()
    forward()
    assert c._sensitivity.arrays == 2


def _report(norms: list[list[float]], size: float = 100) -> np.ndarray:
    n = np.asarray(norms, np.float32)
    return np.stack([n, n * 7, np.full_like(n, size), np.full_like(n, n.shape[1])])


def test_a_sample_has_half_of_its_last_gradient_and_half_of_those_before():
    s = Sensitivity(2)
    s.learn(_report([[1, 2], [10, 20]]), np.array([5, 3]))
    s.learn(_report([[3, 8], [30, 80]]), np.array([5, 9]))
    told, averages = s.told(np.array([3, 5, 9, 4]))
    np.testing.assert_allclose(told[0, 0, :3], [2, 2, 8])
    np.testing.assert_allclose(told[0, 1], [20, 20, 80, 40])
    assert averages is not None and len(averages) == 2 and sum(averages) <= 2 * 2 * 64
    assert averages[1] > averages[0]


def test_without_indices_an_array_has_what_the_last_step_said():
    s = Sensitivity(2)
    assert (s.told(None)[0][0] == 1).all()
    s.learn(_report([[1], [10]]), None)
    s.learn(_report([[3], [0]]), None)
    np.testing.assert_array_equal(s.told(None)[0][0], [[3], [1]])


def test_a_report_of_nothing_or_of_an_overflow_changes_nothing():
    s = Sensitivity(2)
    s.learn(_report([[1], [10]]), None)
    s.learn(_report([[np.inf], [10]]), None)
    s.learn(-np.ones((4, 2, 1), np.float32), None)
    np.testing.assert_array_equal(s.told(None)[0][0], [[1], [10]])


def test_an_array_without_a_product_has_the_bits_of_the_one_before():
    s = Sensitivity(2)
    report = _report([[1], [1], [1000], [1]])
    report[1, (1, 3)] = 0
    s.learn(report, None)
    a = s.averages
    assert a is not None and a[0] == a[1] < a[2] == a[3] and sum(a) <= 4 * 2 * 64


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bits": 0.5, "level": "L3"}, "compress: at level 'L3' bits are an average from 1 to 8, got 0.5"),
        ({"bits": 9, "level": "L3"}, "compress: at level 'L3' bits are an average from 1 to 8, got 9"),
        ({"bits": True, "level": "L3"}, "compress: at level 'L3' bits are an average from 1 to 8, got True"),
        ({"bits": "2", "level": "L3"}, "compress: at level 'L3' bits are an average from 1 to 8, got '2'"),
        ({"bits": float("nan"), "level": "L3"}, "compress: at level 'L3' bits are an average from 1 to 8, got nan"),
        ({"bits": 1.5}, "compress: bits are one of 1, 2, 4, 8, got 1.5"),
    ],
)
def test_bad_averages(given: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=re.escape(message)):
        lt.memory.compress(**given)


@pytest.mark.parametrize("indices", [[-1, 2], [[1, 2]], [0.5], []])
def test_bad_indices_of_samples(indices: Any):
    c = lt.memory.compress(level="L3")
    with pytest.raises(ValueError, match=re.escape(f"indices of samples are whole numbers from 0 on, got {indices}")):
        c.samples(indices)


def test_samples_and_adapt_are_of_one_level_each():
    with pytest.raises(ValueError, match=re.escape("samples have bits of their own at level 'L3', this has 'L2'")):
        lt.memory.compress(level="L2").samples([1])
    with pytest.raises(ValueError, match=re.escape("compress: level='L3' adapts its bits by itself")):
        lt.memory.compress(level="L3").adapt(list)


def test_indices_that_are_no_rows_of_a_table():
    c = lt.memory.compress(level="L3")
    with pytest.raises(ValueError, match=re.escape("rows of a table, below 268435456, got 1099511627776")):
        c.samples([0, 2**40])
    c.samples([0, 2**28 - 1])


@pytest.mark.parametrize("given", [2, 6])
def test_indices_of_other_samples_than_a_block_has(given: int):
    """They were taken for none at all."""
    net, c = _Net(), lt.memory.compress(bits=2, level="L3")
    message = f"compress: samples were given {given} indices, and no array of the block has {given} rows"
    with pytest.raises(ValueError, match=re.escape(message)):
        net.forward(c.samples(range(given)))
    with c.samples([1, 2]):
        pass
    assert np.isfinite(net.gradients(c.samples(range(SAMPLES)))).all()
