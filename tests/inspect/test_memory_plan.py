"""`lazyt.memory.plan`: the peak before it is there, and what the backward keeps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import lazyt as lt
from lazyt import nn, optim
from lazyt.errors import NoResult
from lazyt.runtime import plan_cache
from lazyt.utils.checkpoint import checkpoint


def _loss() -> tuple[lt.Tensor, lt.Tensor, lt.Tensor]:
    x, w, v = lt.ones((256, 64)), lt.ones((64, 64)).requires_grad_(), lt.ones((64, 64)).requires_grad_()
    lt.sync()
    return lt.exp(lt.tanh(x @ w) @ v).sum(), w, v


def test_each_kept_value_has_its_line_its_readers_and_its_launches():
    loss, w, v = _loss()
    loss.backward()
    found = lt.memory.plan(loss)
    kept = {s.operation: s for s in found.saved}
    assert kept.keys() == {"tanh", "exp"}
    tanh = kept["tanh"]
    assert (tanh.shape, tanh.dtype, tanh.nbytes, tanh.decision) == ((256, 64), "float32", 65536, "kept")
    assert "test_memory_plan.py:" in tanh.line
    assert {r.partition(" at ")[0] for r in tanh.readers} == {"tanh", "matmul"}
    assert 1 <= tanh.made < tanh.dies <= len(found.launches)
    assert found.kept == 2 * 65536
    assert loss.is_pending
    assert w.grad is not None
    assert v.grad is not None


def test_the_peak_is_what_is_measured_then():
    loss, w, v = _loss()
    loss.backward()
    found = lt.memory.plan(loss)
    assert max(found.launches) <= found.peak
    lt.memory.reset_peak()
    loss.item()
    assert found.peak == pytest.approx(lt.memory.peak(), rel=0.05)
    assert w.grad is not None
    assert v.grad is not None


def test_the_peak_of_a_program_that_is_small_and_new_too():
    x, w = lt.ones((256, 128)), lt.ones((128, 512))
    lt.sync()
    out = lt.log(lt.exp(lt.tanh(x @ w)) + 1).sum()
    found = lt.memory.plan(out)
    lt.memory.reset_peak()
    out.item()
    assert found.peak == pytest.approx(lt.memory.peak(), rel=0.05)


def _trained(net: nn.Module, x: lt.Tensor) -> Callable[[], lt.Tensor]:
    optimizer = optim.AdamW(net.parameters(), lr=0.1)

    def step() -> lt.Tensor:
        optimizer.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def _mlp() -> Callable[[], lt.Tensor]:
    layers = nn.Linear(33, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10)
    return _trained(nn.Sequential(*layers), lt.ones((32, 33)))


def _convolutions() -> Callable[[], lt.Tensor]:
    layers = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3)
    return _trained(nn.Sequential(*layers), lt.ones((4, 3, 16, 16)))


def _in_place() -> Callable[[], lt.Tensor]:
    a = lt.zeros((300, 300)) + 0.5

    def step() -> lt.Tensor:
        a[1:-1, 1:-1] += 0.1 * (a[2:, 1:-1] - a[:-2, 1:-1])
        a[0] = 2.0
        return (a @ a).sum()

    return step


def _long_sums() -> Callable[[], Any]:
    x = lt.ones((1000, 500))
    return lambda: (lt.tanh(x) + lt.exp(x).sum(), x.max(axis=0), lt.softmax(x.reshape(2, -1), axis=1))


def _calls() -> Callable[[], Any]:
    x, at = lt.ones((100, 100)), lt.arange(50)
    return lambda: (lt.linalg.solve(x[at][:, :50] + 100 * lt.eye(50), lt.sort(x[at], axis=1)), lt.fft.rfft(x).real)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("made", [_mlp, _convolutions, _in_place, _long_sums, _calls])
def test_the_peak_of_a_step_is_enough_to_run_it(made: Callable[[], Callable[[], Any]], threads: int):
    before = lt.get_num_threads()
    lt.set_num_threads(threads)
    try:
        step = made()
        for k in range(3):
            lt.sync()
            kept = step()
            found = lt.memory.plan()
            lt.memory.reset_peak()
            lt.memory.set_limit(found.peak)
            lt.sync()
            lt.memory.set_limit(None)
            assert lt.memory.peak() == found.peak, f"step {k}"
            del kept
    finally:
        lt.memory.set_limit(None)
        lt.set_num_threads(before)


def test_a_sync_runs_the_plan_that_was_shown(monkeypatch: pytest.MonkeyPatch):
    loss, w, v = _loss()
    with lt.memory.budget("1 MiB"):
        loss = loss * 2
    loss.backward()
    text = str(lt.memory.plan(loss))
    with monkeypatch.context() as m:
        m.setattr(plan_cache, "build", None)
        assert str(lt.memory.plan(loss)) == text
        assert loss.item() > 0
    report = lt.last_sync()
    assert (report.plans, report.kernels > 0) == (1, True)
    assert w.grad is not None
    assert v.grad is not None


def test_what_was_shown_serves_no_other_sync():
    loss, w, _ = _loss()
    lt.memory.plan(loss)
    other = loss / 2
    assert other.item() == loss.item() / 2
    assert w.requires_grad


def test_what_checkpoint_computes_again_is_not_kept():
    x, w, v = lt.ones((256, 64)), lt.ones((64, 64)).requires_grad_(), lt.ones((64, 64)).requires_grad_()
    lt.sync()
    loss = x
    for _ in range(2):
        loss = checkpoint(lambda x: lt.exp(lt.tanh(x @ w) @ v), loss)
    loss = loss.sum()
    loss.backward()
    found = lt.memory.plan(loss)
    again = [s for s in found.saved if s.decision == "recomputed"]
    assert {s.operation for s in again} == {"tanh", "exp"}
    assert all(1 <= s.made <= s.dies <= len(found.launches) for s in again)
    assert found.recomputed == len(again) * 65536
    assert found.kept < found.recomputed
    assert "checkpoint calls its function again" in str(found)
    assert w.grad is not None
    assert v.grad is not None


def test_before_backward_it_names_what_a_later_one_reads():
    loss, w, v = _loss()
    found = lt.memory.plan(loss)
    assert {s.operation for s in found.saved} >= {"tanh", "exp"}
    assert all(s.readers == ("a later backward",) and s.dies == 0 for s in found.saved)
    assert w.requires_grad
    assert v.requires_grad


def test_the_text_has_the_peak_a_line_a_value_and_a_picture():
    loss, w, _ = _loss()
    loss.backward()
    found = lt.memory.plan(loss)
    text = str(found)
    assert text.startswith("peak ")
    assert "the backward reads 2 values: 128.0 KiB kept" in text
    assert "tanh float32 (256, 64)" in text
    bars = found.picture()
    assert bars[0] == "live at each launch:"
    assert len(bars) - 1 == len(found.launches)
    assert all("#" in bar for bar in bars[1:])
    assert repr(found) == text
    assert "<pre>" in found._repr_html_()
    assert w.grad is not None


def test_nothing_pending_is_an_error():
    lt.sync()
    with pytest.raises(NoResult, match=r"memory\.plan: nothing would run: nothing is pending"):
        lt.memory.plan()
    x = lt.ones(3) + 1
    lt.sync()
    with pytest.raises(NoResult, match="the value is there"):
        lt.memory.plan(x)


def test_a_value_that_is_pending_in_another_thread_is_planned_there():
    """It said that nothing would run."""
    loss, *_ = _loss()
    found: list[str] = []

    def other() -> None:
        with pytest.raises(NoResult) as caught:
            lt.memory.plan(loss)
        found.append(str(caught.value))

    t = threading.Thread(target=other)
    t.start()
    t.join()
    assert found == ["memory.plan: a value that is pending in another thread is planned there: call it in that thread"]
    assert lt.memory.plan(loss).peak > 0
