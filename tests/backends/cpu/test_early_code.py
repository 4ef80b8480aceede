"""Code that a plan will need is begun while the plan is made: all of it, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.backends.cpu import engine
from lazyt.config import cpu as switches


class Modules:
    """The names of modules that were begun early, and of those that a plan then asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.early: list[str] = []
        self.needed: list[str] = []
        loader = type(engine._loader)
        for name, found in (("compile_early", self.early), ("compile_ahead", self.needed)):
            monkeypatch.setattr(loader, name, self._noting(getattr(loader, name), found))

    @staticmethod
    def _noting(method: Any, found: list[str]) -> Any:
        def call(loader: Any, modules: Any, *more: Any) -> None:
            found.extend(name for _, name in modules)
            method(loader, modules, *more)

        return call


class Mixed(nn.Module):
    """Convolutions of several kinds, attention, products, pooling."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self.turns = turns
        self.first = nn.Conv2d(3, 24, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(24, 24, 3, padding=1, groups=24)
        self.up = nn.ConvTranspose2d(24, 12, 4, stride=2, padding=1)
        self.attention = nn.MultiheadAttention(12, 2, batch_first=True)
        self.head = nn.Linear(12, 70)

    def forward(self, x: Any) -> Any:
        x = lt.tanh(self.up(lt.relu(self.depthwise(self.first(x)))))
        x = nn.functional.max_pool2d(x, 2).reshape(x.shape[0], 12, -1).transpose(0, 2, 1)
        x, _ = self.attention(x, x, x, need_weights=False)
        for _ in range(self.turns):
            x = lt.sin(x)
        return self.head(x).sum()


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_step_needs_is_begun_early(threads: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAZYT_CACHE_DIR", str(tmp_path))
    lt.random.seed(0)
    model = Mixed(threads)  # NOTE: each is a program of its own
    lt.sync()
    before = lt.get_num_threads()
    lt.set_num_threads(threads)
    seen = Modules(monkeypatch)
    try:
        model(lt.asarray(np.random.default_rng(0).standard_normal((3, 3, 22, 26)).astype(np.float32))).backward()
        lt.sync()
    finally:
        lt.set_num_threads(before)
    if threads == 1 or not switches["ahead"]:
        assert not seen.early
    else:
        assert seen.needed and {*seen.early} == {*seen.needed}
    assert all(np.isfinite(p.grad.numpy()).all() for p in model.parameters())


def test_a_failed_plan_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was begun for a plan that an interrupt ended is made for the next one."""
    monkeypatch.setenv("LAZYT_CACHE_DIR", str(tmp_path))
    lt.set_num_threads(2)
    x = lt.asarray(np.random.default_rng(0).standard_normal((90, 91)).astype(np.float32))
    y = lt.sin(x @ x.T * 0.37) - lt.cos(x).sum()
    monkeypatch.setattr("lazyt.backends.cpu.code_cache.compile_ahead", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        lt.sync()
    monkeypatch.undo()
    a = x.numpy().astype(np.float64)
    np.testing.assert_allclose(y.numpy(), np.sin(a @ a.T * 0.37) - np.cos(a).sum(), rtol=1e-3, atol=1e-2)


def _interrupted(*given: Any) -> None:
    raise KeyboardInterrupt
