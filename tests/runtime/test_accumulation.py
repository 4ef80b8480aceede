"""The gradients of several batches are added up by the same plans, however many batches there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn, optim
from lazyt.config import general as settings
from lazyt.runtime import division, plan_cache

if TYPE_CHECKING:
    from collections.abc import Callable

    Train = Callable[[int], Any]


def full(*shape: int) -> lt.Tensor:
    return lt.asarray((np.arange(int(np.prod(shape))) % 7 * 0.1 - 0.3).astype(np.float32).reshape(shape))


@pytest.fixture(autouse=True)
def nothing_met() -> None:
    division._accumulations.clear()


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each plan that is made."""
    made: list[int] = []
    init = plan_cache.Plan.__init__

    def counted(self: Any, *args: Any, **options: Any) -> None:
        made.append(1)
        init(self, *args, **options)

    monkeypatch.setattr(plan_cache.Plan, "__init__", counted)
    return made


def layers(clips: bool = False, between: type[nn.Module] = nn.Tanh) -> tuple[Train, nn.Module]:
    """A training step over k batches; the sum of losses is read at its end."""
    lt.random.seed(0)
    model = nn.Sequential(nn.Linear(6, 5), between(), nn.Linear(5, 3))
    optimizer = optim.Adam(model.parameters(), lr=0.05)
    xs, ys = [full(4, 6) * (i + 1.0) for i in range(9)], lt.asarray(np.arange(4) % 3)
    lt.sync()

    def train(k: int) -> Any:
        optimizer.zero_grad()
        total: Any = 0.0
        for x in xs[:k]:
            loss = nn.functional.cross_entropy(model(x), ys) / k
            loss.backward()
            total = total + loss.detach()
        if clips:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return total.item()

    return train, model


def noisy() -> tuple[Train, nn.Module]:
    """With random numbers, and with buffers that each batch changes."""
    lt.random.seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 1))
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    xs = [full(4, 6) * (i + 1.0) for i in range(9)]
    lt.sync()

    def train(k: int) -> Any:
        for x in xs[:k]:
            (model(x) ** 2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        lt.sync()

    return train, model


PROGRAMS = {"adam": layers, "clipped": lambda: layers(clips=True), "noisy": noisy}
NUMBERS = (2, 3, 4, 5, 7, 8, 2, 6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_after_two_numbers_of_batches_any_further_one_makes_no_plan(name: str, plans: list[int]) -> None:
    train, _ = PROGRAMS[name]()
    train(2)
    train(2)
    train(3)
    train(3)
    plans.clear()
    for k in NUMBERS:
        train(k)
    assert not plans


def test_a_number_that_stays_is_one_plan_for_all_batches() -> None:
    train, _ = layers(between=nn.ReLU)  # no other test's, whose traces know how they were divided
    for k, divided in ((4, 0), (4, 0), (5, 6), (4, 0), (5, 6)):
        train(k)
        assert lt.last_sync().parts == divided


@pytest.mark.parametrize("name", PROGRAMS)
def test_divided_accumulations_give_what_undivided_ones_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for divides in (True, False):
        monkeypatch.setitem(settings, "partition", divides)
        train, model = PROGRAMS[name]()
        losses = [train(k) for k in NUMBERS[:3]]
        found.append([*filter(None, losses), *(np.asarray(v) for v in model.state_dict().values())])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_updates_between_backwards_are_no_accumulation() -> None:
    """Steps of a training loop that nobody reads are planned as before."""
    model = nn.Linear(3, 2)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    x = full(4, 3)
    lt.sync()
    for k in (2, 3, 4):
        for _ in range(k):
            (model(x) ** 2).mean().backward()
            optimizer.step()
        lt.sync()
        assert lt.last_sync().parts == 0


def test_gradients_that_are_read_on_the_way_are_those_of_the_batches_so_far() -> None:
    w, xs = full(3).requires_grad_(), [full(3) * (i + 1.0) for i in range(5)]
    for k in (2, 3, 4, 5):
        w.grad = None
        so_far = []
        for x in xs[:k]:
            (w * x).sum().backward()
            so_far.append(w.grad * 1.0)
        lt.sync()
        sums = np.cumsum([np.asarray(x) for x in xs[:k]], axis=0)
        np.testing.assert_allclose([np.asarray(g) for g in so_far], sums, rtol=1e-6)
