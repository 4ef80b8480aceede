"""What a function under `jit` reads by itself is met together: in programs that do other things with it in between."""

from __future__ import annotations

import gc
import random
import threading
import weakref

import numpy as np
import pytest

import lazyt as lt
from lazyt.tracing import input_groups
from tests.support.arrays import normal
from tests.support.plans import forget

pytestmark = pytest.mark.usefixtures("planned")

SHAPES = [(3, 4), (4,), (4,), (3, 4), (4,)]


@pytest.fixture(autouse=True)
def _new():
    forget()


@pytest.fixture
def bound(monkeypatch) -> list[bool]:
    """Whether each group that was to be met together was."""
    found = []
    bind = input_groups.InputGroup.bind

    def spy(self, tr):
        found.append(bind(self, tr))
        return found[-1]

    monkeypatch.setattr(input_groups.InputGroup, "bind", spy)
    return found


class Reads:
    """Some tensors, leaves and others, and a function that reads them."""

    def __init__(self) -> None:
        self.values = [lt.asarray(normal(*shape, seed=i)) for i, shape in enumerate(SHAPES)]
        for i in (0, 1, 4):
            self.values[i].requires_grad_()
        self.jitted = lt.jit(self.plain)

    def plain(self, x):
        a, b, c, d, e = self.values
        return lt.tanh(x @ a.mT + d.sum(1)) @ a * b + c, x @ e

    def check(self, x):
        """The same values, and the same gradients where they are asked for."""
        found = [self.gradients(f, x) for f in (self.jitted, self.plain)]
        for p, q in zip(*found, strict=True):
            np.testing.assert_array_equal(p, q)

    def gradients(self, f, x):
        leaves = [v for v in self.values if v.requires_grad and v.is_leaf]
        y, z = f(x)
        if not leaves or not lt.is_grad_enabled():
            return [v.detach().numpy().copy() for v in (y, z)]
        found = lt.autograd.grad((y * y).sum() + z.sum(), leaves, allow_unused=True)
        return [v.detach().numpy().copy() for v in (y, z, *found) if v is not None]


def observation(seed=9):
    return lt.asarray(normal(2, 4, seed=seed))


def test_they_are_met_together(bound):
    reads = Reads()
    for i in range(6):
        with lt.no_grad():
            got = [v.numpy() for v in reads.jitted(observation(i))]
            want = [v.numpy() for v in reads.plain(observation(i))]
        for p, q in zip(got, want, strict=True):
            np.testing.assert_array_equal(p, q)
    assert bound[-3:] == [True] * 3, bound


def test_one_value_of_two_holders_is_one_input(bound):
    reads = Reads()
    with lt.no_grad():
        for _ in range(4):
            reads.check(observation())
        met = len(bound)
        assert bound[-1]
        shared = lt.asarray(normal(4, seed=33))
        lt.sync()
        # NOTE: as a load does that finds one array for both.
        reads.values[2]._buffer = reads.values[1]._buffer = shared._buffer
        for _ in range(3):
            reads.check(observation())
        assert bound[met:] == [False] * len(bound[met:])


def test_a_record_of_a_gradient_dies_with_its_tensor():
    reads = Reads()
    with lt.no_grad():
        for _ in range(4):
            reads.check(observation())
    records = [weakref.ref(v._meta) for v in reads.values if v._meta is not None]
    tensors = [weakref.ref(v) for v in reads.values]
    del reads
    gc.collect()
    observation().numpy()
    assert [r() for r in (*tensors, *records)] == [None] * (len(tensors) + len(records))


def _write(reads, rng):
    v = rng.choice(reads.values)
    with lt.no_grad():
        v += 0.25


def _ask(reads, rng):
    v = rng.choice([v for v in reads.values if v.is_leaf])
    v.requires_grad_(not v.requires_grad)


def _view(reads, rng):
    v = rng.choice(reads.values)
    with lt.no_grad():
        v.reshape(-1)[0:1].sum().numpy()


def _pending(reads, rng):
    """A value that was used, or made, before the call in the same program."""
    n = rng.randrange(len(reads.values))
    v = reads.values[n]
    if rng.random() < 0.5:
        with lt.no_grad():
            v * 2
    elif not v.requires_grad:
        reads.values[n] = v * 0.5


def _another(reads, rng):
    n = rng.randrange(len(reads.values))
    v = reads.values[n].detach().clone()
    lt.sync()
    reads.values[n] = v.requires_grad_(reads.values[n].requires_grad)


def _same(reads, rng):
    with lt.no_grad():
        reads.values[1][...] = reads.values[2]
    lt.sync()


def _thread(reads, rng):
    v = rng.choice(reads.values).detach()
    own = threading.Thread(target=lambda: (v + 1).numpy())
    own.start()
    own.join()


MOVES = (_write, _ask, _view, _pending, _another, _same, _thread, lambda reads, rng: None)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.filterwarnings("ignore:jit")
def test_random_programs(seed, bound):
    rng, reads = random.Random(seed), Reads()
    for turn in range(40):
        if rng.random() < 0.2:
            rng.choice(MOVES)(reads, rng)
        mode = rng.choice([lt.no_grad, lt.no_grad, lt.enable_grad, lt.inference_mode if turn > 30 else lt.no_grad])
        with mode():
            reads.check(observation(turn))
    for turn in range(6):  # at rest it is met together again
        with lt.no_grad():
            reads.check(observation(turn))
    assert bound[-1:] == [True] or any(v._storage is not None for v in reads.values)
