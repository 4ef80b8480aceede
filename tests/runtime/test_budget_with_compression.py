"""A memory budget around compression: each saved value is kept, computed again, or kept in few bits."""

from __future__ import annotations

import gc
import re
from contextlib import ExitStack

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import NotSupportedError, SettingError
from lazyt.inspect.memory_plan import MemoryPlan
from lazyt.runtime.memory_policy import Saved
from tests.support.small_models import mlp


class Run:
    """A training step: what its plan says, its loss, and the parameters behind it."""

    def __init__(self, how: lt.memory.budget | None, compressed: lt.memory.compress | None) -> None:
        lt.random.seed(0)
        model, x = mlp()
        opt = lt.optim.SGD(model.parameters(), lr=0.1)
        lt.sync()
        with ExitStack() as stack:
            for context in (how, compressed):
                if context is not None:
                    stack.enter_context(context)
            loss = (model(x) ** 2).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        self.plan: MemoryPlan = lt.memory.plan(loss)
        self.needed = self.plan.inputs + self.plan.results + self.plan.temporaries
        self.loss = loss.item()
        self.parameters = [p.detach().numpy().copy() for p in model.parameters()]

    def count(self, decision: str) -> int:
        return sum(s.decision == decision for s in self.plan.saved)


def _two_bits() -> lt.memory.compress:
    return lt.memory.compress(bits=2)


def _least(compressed: lt.memory.compress | None) -> int:
    try:
        Run(lt.memory.budget(4096), compressed)
    except lt.OutOfMemory as e:
        found = re.search(r"needs at least (\d+) bytes", str(e))
    gc.collect()
    assert found is not None
    return int(found[1])


def test_what_there_is_room_for_is_not_compressed():
    exact, roomy = Run(None, None), Run(lt.memory.budget("1 GiB"), _two_bits())
    assert roomy.count("compressed") == 0
    assert roomy.loss == exact.loss
    for a, b in zip(exact.parameters, roomy.parameters, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_a_budget_compresses_some_and_less_memory_is_enough_than_without():
    exact, every = Run(None, None), Run(None, _two_bits())
    least = _least(_two_bits())
    assert least < _least(None)
    tight = Run(lt.memory.budget(least), _two_bits())
    assert tight.needed <= least
    between = Run(lt.memory.budget(int(0.8 * exact.needed)), _two_bits())
    assert between.needed <= 0.8 * exact.needed
    assert between.count("compressed") < every.count("compressed")
    for run in (tight, between):
        assert run.loss == pytest.approx(exact.loss, rel=1e-6)
    assert "compressed" in str(tight.plan)


def test_bits_that_are_measured_belong_to_all_arrays():
    exact = Run(None, None)
    mixed = lt.memory.compress(bits=2, level="L3")
    run = Run(lt.memory.budget(int(0.8 * exact.needed)), mixed)
    assert run.needed <= 0.8 * exact.needed
    assert run.loss == pytest.approx(exact.loss, rel=1e-6)


def test_a_policy_says_what_is_compressed():
    def policy(s: Saved) -> str:
        return "compress" if s.operation == "gelu" else "keep"

    run = Run(lt.memory.budget(None, policy=policy), _two_bits())
    found = {s.operation for s in run.plan.saved if s.decision == "compressed"}
    assert found == {"gelu"}
    with pytest.raises(SettingError, match=r"returned 'compress' for .*, recorded outside of memory\.compress"):
        Run(lt.memory.budget(None, policy=policy), None)
    with pytest.raises(NotSupportedError, match=r"returned 'offload' for .*, because values on 'cpu' do not move"):
        Run(lt.memory.budget(None, policy=lambda s: "offload"), None)
