"""The first step of training is divided from what made its parameters: its plan is that of the second step."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn, optim
from lazyt.config import general
from lazyt.errors import IndexOutOfRange
from tests.support.plans import forget

Build = Callable[[], nn.Module]


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    """Let each step be the first one, and alike: a program that another test left may begin as one of these does.

    What another test left in cycles dies before, not between two steps.
    """
    lt.sync()
    gc.collect()
    gc.disable()
    forget()
    yield
    gc.enable()


def data(*shape: int, seed: int = 0) -> Any:
    return lt.asarray(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.ModuleList([nn.LSTM(12, 12, batch_first=True) for _ in range(3)])
        self.head = nn.Linear(12, 4)

    def forward(self, x: Any) -> Any:
        x = x[:, None] + lt.zeros((8, 5, 12))
        for cell in self.cells:
            x = cell(x)[0]
        return self.head(x[:, -1])


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv2d(c, 4, 3, padding=1) for c in (1, 4, 4, 4)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(4) for _ in range(4)])
        self.head = nn.Linear(48, 4)

    def forward(self, x: Any) -> Any:
        x = x.reshape(8, 1, 3, 4)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = lt.relu(norm(convolution(x)))
        return self.head(x.reshape(8, 48))


def perceptron() -> nn.Module:
    return nn.Sequential(*(layer for _ in range(12) for layer in (nn.Linear(12, 12), nn.Tanh())), nn.Linear(12, 4))


OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "sgd": lambda params: optim.SGD(params, lr=0.05),
    "momentum": lambda params: optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=0.01),
    "adamw": lambda params: optim.AdamW(params, lr=0.01),
}


def train(build: Build, optimizer: str, steps: int = 3) -> tuple[list[Any], list[Any]]:
    """The reports of the steps, and all values behind them."""
    lt.random.seed(3)
    model = build()
    opt = OPTIMIZERS[optimizer](model.parameters())
    x, y = data(8, 12), data(8, 4, seed=1)
    reports, losses = [], []
    for _ in range(steps):
        opt.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        lt.sync()
        reports.append(lt.last_sync())
        losses.append(loss)
    return reports, [v.detach().numpy() for v in (*losses, *model.state_dict().values())]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("build", [perceptron, Recurrent, Convolutional])
def test_the_second_step_has_the_plan_of_the_first(
    build: Build, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports, found = train(build, optimizer)
    assert reports[0].parts == 2
    assert [r.plans for r in reports[1:]] == [0, 0]
    monkeypatch.setitem(general, "partition", False)
    reports, whole = train(build, optimizer)
    assert [bool(r.parts) for r in reports] == [False] * 3
    for a, b in zip(found, whole, strict=True):
        np.testing.assert_array_equal(a, b)


def test_loaded_parameters_are_written_before_the_step_too() -> None:
    source = perceptron().state_dict()
    lt.sync()
    model = perceptron()
    model.load_state_dict(source)
    opt = optim.Adam(model.parameters())
    for turn in range(2):
        loss = model(data(8, 12)).sum()
        loss.backward()
        opt.step()
        lt.sync()
        assert bool(lt.last_sync().plans) == (turn == 0)
        opt.zero_grad()


def test_parameters_that_are_there_make_one_program() -> None:
    model = perceptron()
    lt.sync()
    model(data(8, 12)).sum().backward()
    lt.sync()
    assert lt.last_sync().parts == 0


def test_a_trace_without_a_backward_is_one_program() -> None:
    model = perceptron()
    model(data(8, 12)).detach().numpy()
    assert lt.last_sync().parts == 0


def test_a_memory_budget_is_of_the_whole() -> None:
    with lt.memory.budget("1GiB"):
        model = perceptron()
        model(data(8, 12)).sum().backward()
        lt.sync()
    assert lt.last_sync().parts == 0


def test_values_between_parameters_and_the_step_are_its_own() -> None:
    """A prepared batch belongs to the step, as it does in the next one."""
    model = perceptron()
    raw = data(8, 12)
    for turn in range(2):
        x = (raw - raw.mean(0)) / raw.std(0)
        model(x).sum().backward()
        lt.sync()
        assert bool(lt.last_sync().plans) == (turn == 0)
        model.zero_grad()


def test_gradients_and_what_was_asked_for_between_are_kept() -> None:
    found = []
    for on in (True, False):
        general["partition"] = on
        try:
            lt.random.seed(1)
            model = perceptron()
            first = model[0].weight.detach() * 2  # of a parameter, in the trace that makes it
            hidden = model[:3](data(8, 12))
            hidden.retain_grad()
            model[3:](hidden).sum().backward()
            lt.sync()
            found.append(
                [v.detach().numpy() for v in (first, hidden, hidden.grad, *(p.grad for p in model.parameters()))]
            )
        finally:
            general["partition"] = True
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_index_out_of_range_names_its_line_and_parameters_remain() -> None:
    table, model = nn.Embedding(10, 12), perceptron()
    loss = model(table(lt.asarray([1, 99]))).sum()
    loss.backward()
    with pytest.raises(IndexOutOfRange, match="99") as raised:
        loss.item()
    assert "test_first_step.py" in str(raised.value)
    assert np.isfinite(table.weight.detach().numpy()).all()
    table.zero_grad(), model.zero_grad()
    loss = model(table(lt.asarray([1, 9]))).sum()
    loss.backward()
    assert np.isfinite(loss.item())


def test_a_trace_that_comes_again_and_again_is_one_program() -> None:
    """A loop that makes its leaf anew in each turn, of which no turn is a first step."""
    layers = [data(12, 12, seed=i) * 0.2 for i in range(30)]
    lt.sync()
    x, parts = data(8, 12), []
    for _ in range(5):
        x = x.detach().requires_grad_()
        h = x
        for w in layers:
            h = lt.tanh(h @ w)
        h.sum().backward()
        x = x - 0.1 * x.grad
        lt.sync()
        parts.append(lt.last_sync().parts)
    assert parts[-1] == 0 and lt.last_sync().plans == 0


def test_an_attack_on_the_batch_leaves_a_step_whole() -> None:
    """Of the leaves that its backward leads to, the trace makes one."""
    model = perceptron()
    lt.sync()
    for _ in range(2):
        x = data(8, 12).detach().requires_grad_()
        model(x * 2).sum().backward()
        lt.sync()
        assert lt.last_sync().parts == 0
        model.zero_grad()


def test_a_functional_step_is_one_program() -> None:
    """A transform's arguments are no parameters that the trace makes."""
    weights = [lt.random.normal(size=(12, 12)) * 0.2 for _ in range(30)]

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = lt.tanh(x @ w)
        return x.sum()

    slopes = lt.grad(loss)(weights, data(8, 12))
    lt.sync()
    assert lt.last_sync().parts == 0
    assert np.isfinite(slopes[0].numpy()).all()


def wide() -> nn.Module:
    return nn.Sequential(*(layer for _ in range(12) for layer in (nn.Linear(200, 200), nn.Tanh())))


def first_step_of(model: nn.Module) -> None:
    opt = optim.AdamW(model.parameters(), lr=0.01)
    model(data(8, 200)).sum().backward()
    opt.step()
    lt.sync()


def test_where_memory_is_short_the_step_is_one_program() -> None:
    """Divided it needs more: the step may not overwrite the optimizer's state, which the whole may."""
    needed = []
    for on in (False, True):
        general["partition"] = on
        try:
            model = wide()
            before = lt.memory.allocated()
            lt.memory.reset_peak()
            first_step_of(model)
            needed.append(lt.memory.peak() - before)
        finally:
            general["partition"] = True
        del model
    assert needed[0] < needed[1]
    model = wide()
    model[0].weight.register_hook(lambda g: g * 2)  # another program
    lt.memory.set_limit(lt.memory.allocated() + (needed[0] + needed[1]) // 2)
    try:
        first_step_of(model)
    finally:
        lt.memory.set_limit(None)
    assert lt.last_sync().parts == 0
    assert all(np.isfinite(p.detach().numpy()).all() for p in model.parameters())


def test_a_large_model_is_not_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazyt.runtime.first_step.MOST", 1000)
    model = perceptron()
    lt.abs(model(data(8, 12))).sum().backward()
    lt.sync()
    assert lt.last_sync().parts == 0
