"""Saved values in the host's memory: chosen by a policy, a budget or a level; copied beside the kernels; equal bits.

Above the fake driver, whose streams do nothing until something waits for them: a launch that does not wait for a copy
reads what is not there, or overwrites what has not gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Self
from unittest import mock

import numpy as np
import pytest

import lazyt as lt
from lazyt.config import cpu as switches, general
from lazyt.errors import DeviceError, NotSupportedError, OutOfMemory, SettingError
from lazyt.functions import compression
from lazyt.ir.passes import compress, recompute
from lazyt.nn import functional as F
from tests.support.cuda.fake import FakeDriver
from tests.support.plans import forget

Context = Callable[[], Any]


class Step:
    """Steps of a small network on the GPU; the same numbers each time."""

    def __init__(self, width: int = 64, layers: int = 4, rows: int = 48, kind: str = "tanh") -> None:
        lt.random.seed(0)
        rng = np.random.default_rng(0)
        self.kind = kind
        self.x = lt.asarray(rng.standard_normal((rows, width)).astype(np.float32), device="cuda")
        self.weights = [
            lt.asarray(rng.standard_normal((width, width)).astype(np.float32) / 8, device="cuda").requires_grad_()
            for _ in range(layers)
        ]

    def loss(self, how: Context) -> Any:
        for w in self.weights:
            w.grad = None
        with how():
            h = self.x
            for i, w in enumerate(self.weights):
                y = h @ w
                h = {
                    "tanh": lambda y, h: lt.tanh(y),
                    "gelu": lambda y, h: F.gelu(y) + h,
                    "norm": lambda y, h: F.layer_norm(F.relu(y), (h.shape[1],)) + 0.5 * h,
                    "dropout": lambda y, h: F.dropout(F.silu(y), 0.5) * (1 + lt.tanh(h)),
                }[self.kind](y, h)
                if i % 2 and self.kind != "tanh":
                    h = h * 0.5
        return (h * h).mean()

    def recorded(self, how: Context = contextlib.nullcontext) -> Any:
        loss = self.loss(how)
        loss.backward()
        return loss

    def run(self, how: Context = contextlib.nullcontext, turns: int = 3) -> list[np.ndarray]:
        """The loss and the gradients of the last of some turns: replayed, as graphs."""
        found = []
        for _ in range(turns):
            lt.random.seed(1)
            loss = self.recorded(how)
            found = [loss.detach().numpy(), *(w.grad.numpy() for w in self.weights)]
            del loss
        return found


def _offload(_: Any) -> str:
    return "offload"


def _everything() -> Any:
    return lt.memory.budget(None, policy=_offload)


def _same(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("kind", ["tanh", "gelu", "norm", "dropout"])
def test_what_a_policy_names_lies_in_the_hosts_memory_and_changes_no_bit(gpu: FakeDriver, kind: str) -> None:
    step = Step(kind=kind)
    expected = step.run()
    usual = lt.memory.plan(step.recorded())
    lt.sync()
    plan = lt.memory.plan(step.recorded(_everything))
    lt.sync()
    moved = [s for s in plan.saved if s.decision == "offloaded"]
    assert len(moved) >= len(step.weights)
    assert plan.offloaded == sum(s.nbytes for s in moved)
    assert plan.kept < usual.kept
    assert plan.temporaries < usual.temporaries
    _same(step.run(_everything), expected)


def test_a_copy_back_is_enqueued_before_what_reads_it_and_the_memory_on_the_host_is_taken_once(
    gpu: FakeDriver,
) -> None:
    step = Step()
    step.run(_everything, turns=1)
    copies = _Copies(gpu)
    with copies:
        step.run(_everything, turns=2)
    assert copies.pinned == 0
    assert copies.out == copies.back == 2 * len(step.weights)
    assert copies.aside


class _Copies(contextlib.AbstractContextManager):
    """Counts copies between the host and the device on another stream than the caller's."""

    def __init__(self, gpu: FakeDriver) -> None:
        self.gpu = gpu
        self.out = self.back = self.pinned = 0
        self.aside = True

    def __enter__(self) -> Self:
        gpu = self.gpu
        self.before = gpu.to_host, gpu.to_device, gpu.pinned

        def out(stream: Any, *rest: int) -> None:
            self.out += stream is not gpu.stream
            self.before[0](stream, *rest)

        def back(stream: Any, *rest: int) -> None:
            self.back += stream is not gpu.stream
            self.before[1](stream, *rest)

        def pinned(nbytes: int) -> tuple[int, object]:
            self.pinned += 1
            return self.before[2](nbytes)

        gpu.to_host, gpu.to_device, gpu.pinned = out, back, pinned  # type: ignore[method-assign]
        return self

    def __exit__(self, *exc: object) -> None:
        self.gpu.to_host, self.gpu.to_device, self.gpu.pinned = self.before  # type: ignore[method-assign]


def test_explain_and_the_plan_say_what_is_moved(gpu: FakeDriver) -> None:
    step = Step()
    loss = step.recorded(_everything)
    text, plan = str(lt.explain(loss)), lt.memory.plan(loss)
    assert "in the host's memory until the backward reads them" in text
    assert "as the policy says" in text
    assert "copy to the host's memory, beside the kernels" in text
    assert "copy from the host's memory, beside the kernels" in text
    assert "to the host's memory, and back ahead of need" in text
    assert "in the host's memory" in str(plan)
    moved = next(s for s in plan.saved if s.decision == "offloaded")
    assert moved.operation == "tanh"
    assert any(r.startswith("matmul at") for r in moved.readers)
    assert 0 < moved.made < moved.dies
    lt.sync()


def test_a_budget_moves_what_takes_long_to_compute_again(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product that adds up many numbers an element is moved, what is made of it by a cheap function is not."""
    monkeypatch.setattr(recompute, "NANOSECONDS", 8.0)  # as much as a sum of 800 numbers
    step = Step(width=1536, layers=3, rows=16, kind="gelu")
    expected = step.run(turns=1)
    found = {}
    for nbytes in _between(step):
        plan = lt.memory.plan(step.recorded(lambda nbytes=nbytes: lt.memory.budget(nbytes)))
        lt.sync()
        found[nbytes] = {s.decision for s in plan.saved}
    moving = [nbytes for nbytes, decisions in found.items() if "offloaded" in decisions]
    assert moving
    _same(step.run(lambda: lt.memory.budget(moving[0]), turns=2), expected)


def test_a_budget_moves_what_is_not_done_twice(gpu: FakeDriver) -> None:
    """The rows that positions name may fail for their data, so they are not looked up again."""
    rng = np.random.default_rng(0)
    table = lt.asarray(rng.standard_normal((300, 64)).astype(np.float32), device="cuda").requires_grad_()
    weight = lt.asarray(rng.standard_normal((64, 64)).astype(np.float32), device="cuda").requires_grad_()
    at = lt.asarray(rng.integers(0, 300, (512,)), device="cuda")

    def record(how: Any) -> Any:
        table.grad = weight.grad = None
        with how:
            h = F.embedding(at, table) @ weight
            for _ in range(4):
                h = lt.tanh(h @ weight)
        loss = (h * h).mean()
        del h
        loss.backward()
        return loss

    record(contextlib.nullcontext())
    expected = [table.grad.numpy(), weight.grad.numpy()]
    loss = record(lt.memory.budget(1))
    with pytest.raises(OutOfMemory) as found:
        loss.detach().numpy()
    with lt.memory.budget("1 GiB"):
        lt.sync()
    least = int(str(found.value).split("at least ")[1].split(" bytes")[0])
    plan = lt.memory.plan(record(lt.memory.budget(least)))
    assert "embedding" in [s.operation for s in plan.saved if s.decision == "offloaded"]
    _same([table.grad.numpy(), weight.grad.numpy()], expected)


def _least(step: Step) -> int:
    """The smallest budget that a step can have."""
    loss = step.recorded(lambda: lt.memory.budget(1))
    with pytest.raises(OutOfMemory, match="is too little") as found:
        loss.detach().numpy()
    with lt.memory.budget("1 GiB"):
        lt.sync()
    return int(str(found.value).split("at least ")[1].split(" bytes")[0])


def _between(step: Step) -> list[int]:
    """Budgets from the smallest one that a step can have to one that all fits into."""
    least = _least(step)
    loss = step.recorded()
    whole = lt.memory.plan(loss)
    lt.sync()
    most = whole.inputs + whole.results + whole.temporaries
    return [least + (most - least) * i // 6 for i in range(6)]


def test_a_budget_computes_again_what_is_cheap(gpu: FakeDriver) -> None:
    step = Step(width=64, layers=4, rows=1024)
    found = set()
    for nbytes in _between(step):
        plan = lt.memory.plan(step.recorded(lambda nbytes=nbytes: lt.memory.budget(nbytes)))
        lt.sync()
        found |= {s.decision for s in plan.saved}
    assert "recomputed" in found
    assert found <= {"kept", "recomputed", "offloaded"}


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in range(1, 6))])
@pytest.mark.parametrize("kind", ["tanh", "gelu", "norm", "dropout"])
def test_any_mixture_of_choices_has_the_same_bits(gpu: FakeDriver, kind: str, seed: int) -> None:
    step = Step(kind=kind, layers=5)
    expected = step.run(turns=1)

    def policy(s: Any) -> str | None:
        rng = np.random.default_rng([seed, *map(ord, s.operation), len(s.readers), *s.shape])
        return [None, "keep", "recompute", "offload", "offload"][rng.integers(5)]

    _same(step.run(lambda: lt.memory.budget(None, policy=policy), turns=2), expected)


def test_a_run_that_fails_between_copies_leaves_the_next_one_right(gpu: FakeDriver) -> None:
    step = Step()
    expected = step.run()
    for at in range(1, 12):
        loss = step.recorded(_everything)
        count, launch = 0, gpu.launch

        def failing(stream: Any, node: Any, at: int = at, launch: Any = launch) -> None:
            nonlocal count
            count += 1
            if count == at:
                gpu.failure = "the device fails here"
            launch(stream, node)

        gpu.launch = failing  # type: ignore[method-assign]
        try:
            with contextlib.suppress(DeviceError), mock.patch.dict(switches, {"graphs": False}):
                loss.detach().numpy()
        finally:
            gpu.launch, gpu.failure = launch, ""  # type: ignore[method-assign]
        other = lt.ones((48, 64), device="cuda") * 3
        assert float(other.sum()) == 3 * 48 * 64
        _same(step.run(_everything, turns=1), expected)


@pytest.fixture
def small() -> Iterator[None]:
    """Levels move arrays of any size."""
    with mock.patch.object(compression, "LEAST", 1), mock.patch.object(compress, "LEAST", 256):
        yield


def test_levels_move_only_what_is_large(gpu: FakeDriver) -> None:
    step = Step()
    plan = lt.memory.plan(step.recorded(lambda: lt.memory.compress(level="swap", device="cuda")))
    lt.sync()
    assert {s.decision for s in plan.saved} == {"kept"}


def test_swap_moves_and_changes_no_bit(gpu: FakeDriver, small: None) -> None:
    step = Step()
    fine = step.run(lambda: lt.memory.compress(level="swap", device="cuda"), turns=2)
    _same(fine, step.run(turns=2))
    plan = lt.memory.plan(step.recorded(lambda: lt.memory.compress(level="swap", device="cuda")))
    lt.sync()
    assert "offloaded" in {s.decision for s in plan.saved}


def test_l4_has_the_bits_of_l3(gpu: FakeDriver, small: None) -> None:
    found = []
    for level in ("L3", "L4"):
        step = Step(layers=2)
        c = lt.memory.compress(bits=2, level=level, device="cuda")
        found.append(step.run(lambda c=c: c, turns=2))
        loss = step.recorded(lambda c=c: c)
        moved = [s for s in lt.memory.plan(loss).saved if s.decision == "offloaded"]
        lt.sync()
        assert bool(moved) == (level == "L4")
    _same(*found)


def test_a_sync_between_the_passes_keeps_packed_arrays_on_the_device(gpu: FakeDriver, small: None) -> None:
    found = []
    for level in ("L3", "L4"):
        step = Step(layers=2)
        lt.random.seed(3)
        loss = step.loss(lambda level=level: lt.memory.compress(bits=2, level=level, device="cuda"))
        loss.item()
        loss.backward()
        found.append([w.grad.numpy() for w in step.weights])
    _same(*found)


def test_swap_within_a_budget_keeps_its_bytes_and_refuses_another_policy(gpu: FakeDriver) -> None:
    step = Step()
    with lt.memory.budget("1 GiB"):
        expected = step.run(lambda: lt.memory.compress(level="swap", device="cuda"), turns=1)
    _same(step.run(turns=1), expected)
    with (
        lt.memory.budget(None, policy=lambda s: None),
        pytest.raises(SettingError, match=r"level='swap' is a policy of memory\.budget, and there is one already"),
        lt.memory.compress(level="swap", device="cuda"),
    ):
        pass
    with pytest.raises(ValueError, match="level='swap' keeps arrays as they are, got bits=2"):
        lt.memory.compress(level="swap", bits=2, device="cuda")


@pytest.mark.parametrize("level", ["L4", "swap"])
def test_a_device_whose_memory_is_the_hosts_refuses_levels_that_move(gpu: FakeDriver, level: str) -> None:
    text = rf"compress\(level='{level}'\) on 'cpu', because arrays there do not move to the host's memory"
    with pytest.raises(NotSupportedError, match=text):
        lt.memory.compress(level=level)
    with lt.device("cuda"):
        lt.memory.compress(level=level)


@pytest.mark.parametrize("setting", ["interpret", "verify"])
def test_the_graph_with_moves_is_valid_and_means_the_same(gpu: FakeDriver, setting: str) -> None:
    step = Step(kind="gelu")
    expected = step.run(turns=1)
    with mock.patch.dict(general, {setting: True}):
        forget()
        for a, b in zip(step.run(_everything, turns=1), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    forget()
