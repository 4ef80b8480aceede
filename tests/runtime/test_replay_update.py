"""A training step's sync like the last one does the same again: every update once, and nothing when it is different."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu import executor
from lazyt.backends.cpu.flags import switches
from lazyt.config import general as settings
from lazyt.runtime import replay_update
from tests.support.interrupt_places import Interrupt

N = 64  # parameters of 16 KB: large enough to be overwritten where they are
DATA = np.random.default_rng(0).standard_normal((8, N)).astype(np.float32)
WEIGHTS = np.random.default_rng(1).standard_normal((N, N)).astype(np.float32) / 8
LABELS = np.arange(8) % N


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every sync that was a repetition by `replay_update.py`."""
    found: list[Any] = []
    again = replay_update.Update._repeat

    def counting(self: Any, *args: Any) -> bool:
        done = again(self, *args)
        if done:
            found.append(self)
        return done

    monkeypatch.setattr(replay_update.Update, "_repeat", counting)
    return found


class Model:
    """Two layers, a loss, and an optimizer: what steps of training are made of."""

    def __init__(self, kind: Any = lt.optim.Adam, **options: Any) -> None:
        self.net = lt.nn.Sequential(lt.nn.Linear(N, N), lt.nn.ReLU(), lt.nn.Linear(N, N))
        for p in self.net.parameters():
            with lt.no_grad():
                p[...] = lt.asarray(WEIGHTS if len(p.shape) == 2 else WEIGHTS[0])
        self.optimizer = kind(self.net.parameters(), lr=0.01, **options)

    def loss(self, rows: int = 8) -> Any:
        x, y = lt.asarray(DATA[:rows]), lt.asarray(LABELS[:rows])
        return lt.nn.functional.cross_entropy(self.net(x), y)

    def step(self, rows: int = 8) -> Any:
        loss = self.loss(rows)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def values(self) -> list[np.ndarray]:
        return [p.detach().numpy().copy() for p in self.net.parameters()]


def both_ways(train: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits, with syncs repeated and without."""
    with_it = train()
    with monkeypatch.context() as m:
        m.setitem(settings, "repeat", False)
        without = train()
    assert len(with_it) == len(without)
    for a, b in zip(with_it, without, strict=True):
        np.testing.assert_array_equal(a, b)


def is_on() -> bool:
    return settings["repeat"] and not settings["interpret"]


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "SGD": (lt.optim.SGD, {}),
    "momentum": (lt.optim.SGD, {"momentum": 0.9}),
    "Adam": (lt.optim.Adam, {}),
    "AdamW, amsgrad": (lt.optim.AdamW, {"amsgrad": True}),
}


@pytest.mark.parametrize("name", KINDS)
def test_steps_of_training_are_repeated_with_the_same_bits(
    name: str, repeated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def train() -> list[Any]:
        kind, options = KINDS[name]
        model, losses = Model(kind, **options), []
        for _ in range(9):
            loss = model.step()
            lt.sync()
            losses.append(loss.item())
            report = lt.last_sync()
            assert report is not None and report.outputs >= 5
        return [losses, *model.values()]

    both_ways(train, monkeypatch)
    assert len(repeated) >= 4 * is_on()


def test_scalars_that_are_converted_first(repeated: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """An int beside floats is no word of a kernel's as it is."""

    def train() -> list[Any]:
        model = Model()
        for i in range(9):
            (model.loss() * (i + 1)).backward()
            model.optimizer.step()
            model.optimizer.zero_grad()
            lt.sync()
        return model.values()

    both_ways(train, monkeypatch)
    assert len(repeated) >= 4 * is_on()
    if repeated and switches["donate"]:
        assert repeated[-1].in_place >= 2


def test_the_report_says_what_was_overwritten(repeated: list[Any]) -> None:
    model = Model()
    for _ in range(8):
        model.step()
        lt.sync()
    report = lt.last_sync()
    assert bool(repeated) == is_on()
    assert report is not None and report.plan_hit and report.kernels >= 1 and report.launches >= 1
    assert report.in_place >= 2 * switches["donate"] * (not settings["interpret"])


@pytest.mark.parametrize("how", ["item", "zero first", "gradients kept", "gradients added", "clipped"])
def test_ways_to_write_a_loop(how: str, repeated: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def train() -> list[Any]:
        model, seen = Model(), []
        for i in range(9):
            if how == "zero first":
                model.optimizer.zero_grad()
            loss = model.loss()
            loss.backward()
            if how == "clipped":
                lt.nn.utils.clip_grad_norm_(list(model.net.parameters()), 0.5)
            model.optimizer.step()
            if how == "item":
                seen.append(loss.item())
            else:
                lt.sync()
            if how in ("item", "clipped"):
                model.optimizer.zero_grad()
            if how == "gradients kept":
                seen += [p.grad.numpy() for p in model.net.parameters()]
                model.optimizer.zero_grad()
            if how == "gradients added" and i % 3 == 2:
                seen += [p.grad.numpy() for p in model.net.parameters()]
        return [*seen, *model.values()]

    both_ways(train, monkeypatch)
    assert bool(repeated) == is_on()


def test_who_holds_the_old_value_of_a_parameter_keeps_it(repeated: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def train() -> list[Any]:
        model, kept = Model(), []
        first = next(iter(model.net.parameters()))
        for i in range(12):
            array = first.detach().numpy() if i % 3 == 1 else None  # an export: its memory is somebody else's
            with lt.no_grad():
                copy = first * 1.0 if i % 4 == 3 else None
            model.step()
            lt.sync()
            kept += [x.copy() if isinstance(x, np.ndarray) else x.numpy() for x in (array, copy) if x is not None]
            if array is not None:
                assert not np.array_equal(array, first.detach().numpy())
        return [*kept, *model.values()]

    both_ways(train, monkeypatch)


def test_views_of_parameters_see_every_step(repeated: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def train() -> list[Any]:
        model, seen = Model(), []
        first = next(iter(model.net.parameters()))
        row, state = first.detach()[3], model.net.state_dict()
        for i in range(10):
            model.step()
            lt.sync()
            if i % 2:
                np.testing.assert_array_equal(row.numpy(), first.detach().numpy()[3])
                seen += [row.numpy().copy(), *(v.numpy().copy() for v in state.values())]
        return seen

    both_ways(train, monkeypatch)
    assert bool(repeated) == is_on()


def test_a_parameter_that_is_replaced_is_another_one(repeated: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def train() -> list[Any]:
        model, seen = Model(lt.optim.SGD), []
        for i in range(12):
            if i in (5, 9):
                layer = model.net[0]
                seen.append(layer.weight.detach().numpy().copy())
                layer.weight = lt.nn.Parameter(WEIGHTS * i)
                model.optimizer = lt.optim.SGD(model.net.parameters(), lr=0.01 * i)
            if i == 7:
                with lt.no_grad():
                    model.net[2].bias[...] = 0.5
            model.step()
            lt.sync()
        return [*seen, *model.values()]

    both_ways(train, monkeypatch)


def test_other_extents_and_rates_are_another_sync_or_the_same(
    repeated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def train() -> list[Any]:
        model, losses = Model(), []
        schedule = lt.optim.lr_scheduler.ExponentialLR(model.optimizer, 0.9)
        for i in range(16):
            loss = model.step(8 if i % 4 else 5)
            lt.sync()
            schedule.step()
            losses.append(loss.item())
        return [losses, *model.values()]

    both_ways(train, monkeypatch)
    assert bool(repeated) == is_on()


def test_hooks_are_called_each_time(repeated: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def train() -> list[Any]:
        model, calls, seen = Model(), [], []
        first = next(iter(model.net.parameters()))
        handle = first.register_hook(lambda g: (calls.append(1), g * 0.5)[1])
        for i in range(12):
            if i == 8:
                handle.remove()
            hidden = model.net[1](model.net[0](lt.asarray(DATA)))
            if i % 2:
                hidden.register_hook(lambda g: g * 2.0)
            if i % 4 == 3:
                hidden.retain_grad()
            loss = lt.nn.functional.cross_entropy(model.net[2](hidden), lt.asarray(LABELS))
            loss.backward()
            model.optimizer.step()
            model.optimizer.zero_grad()
            lt.sync()
            if i % 4 == 3:
                seen.append(hidden.grad.numpy())
        assert len(calls) == 8
        return [*seen, *model.values()]

    both_ways(train, monkeypatch)


def test_backward_at_one_line_asks_for_what_it_is_told(repeated: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def train() -> list[Any]:
        model, seen = Model(lt.optim.SGD), []
        params = list(model.net.parameters())
        for i in range(16):
            loss = model.loss()
            inputs = params[:2] if i % 4 == 1 else None
            gradient = lt.asarray(np.float32(2)) if i % 5 == 2 else None
            loss.backward(gradient, retain_graph=i % 3 == 0, inputs=inputs)
            assert [p.grad is not None for p in params] == [inputs is None or k < 2 for k in range(4)]
            if i % 3 == 0:
                loss.backward()
            if i == 9:
                params[1].requires_grad_(False)
            seen += [p.grad for p in params if p.grad is not None]
            model.optimizer.step()
            model.optimizer.zero_grad()
            lt.sync()
            params[1].requires_grad_()
        return [*(g.numpy() for g in seen), *model.values()]

    both_ways(train, monkeypatch)


def test_parameters_that_made_other_numbers_of_steps(repeated: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def train() -> list[Any]:
        model, losses = Model(lt.optim.Adam), []
        for i in range(14):
            model.net[0].weight.requires_grad_(i % 5 != 1)
            losses.append(model.step().item())
        assert [s["step"] for s in model.optimizer.state.values()] == [11, 14, 14, 14]
        return [losses, *model.values()]

    both_ways(train, monkeypatch)
    assert bool(repeated) == is_on()


def test_every_other_sync_may_be_another_one(repeated: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def train() -> list[Any]:
        model, seen = Model(lt.optim.SGD), []
        for i in range(16):
            loss = model.step()
            if i % 2:
                del loss
            lt.sync()
            if not i % 2:
                seen.append(loss.item())
        return [*seen, *model.values()]

    both_ways(train, monkeypatch)
    # Five in a fresh process; one fewer where earlier tests left plans behind.
    assert len(repeated) >= 4 * is_on()


def test_a_graph_is_kept_for_a_backward_after_the_sync(repeated: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def train() -> list[Any]:
        model, losses = Model(lt.optim.SGD), []
        for _ in range(9):
            loss = model.loss()
            losses.append(loss.item())
            loss.backward()
            model.optimizer.step()
            model.optimizer.zero_grad()
            lt.sync()
            with pytest.raises(lt.AutogradError, match="second time"):
                loss.backward()
        return [losses, *model.values()]

    both_ways(train, monkeypatch)
    assert bool(repeated) == is_on()


def test_a_loss_that_is_looked_at_has_its_graph_or_has_none(repeated: list[Any]) -> None:
    model = Model(lt.optim.SGD)
    for i in range(8):
        loss = model.loss()
        loss.backward(retain_graph=i == 6)
        model.optimizer.step()
        model.optimizer.zero_grad()
        lt.sync()
        assert loss.requires_grad and not loss.is_leaf and loss._meta is not None
    assert bool(repeated) == is_on()


def test_a_value_somebody_else_holds_is_another_sync(repeated: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def train() -> list[Any]:
        model, seen = Model(), []
        for i in range(12):
            logits = model.net(lt.asarray(DATA))
            loss = lt.nn.functional.cross_entropy(logits, lt.asarray(LABELS))
            loss.backward()
            gradients = [p.grad for p in model.net.parameters()] if i % 3 == 2 else []
            model.optimizer.step()
            model.optimizer.zero_grad()
            if i % 4 != 3:
                del logits
            lt.sync()
            seen += [g.numpy() for g in gradients]
            if i % 4 == 3:
                seen.append(logits.detach().numpy())
        return [*seen, *model.values()]

    both_ways(train, monkeypatch)


def test_a_wrong_label_is_refused_before_anything_is_overwritten(repeated: list[Any]) -> None:
    model = Model()
    for _ in range(7):
        model.step()
        lt.sync()
    before = model.values()
    loss = lt.nn.functional.cross_entropy(model.net(lt.asarray(DATA)), lt.asarray(LABELS + N))
    loss.backward()
    model.optimizer.step()
    model.optimizer.zero_grad()
    with pytest.raises(lt.IndexOutOfRange):
        lt.sync()
    assert loss.is_pending and next(iter(model.net.parameters())).is_pending
    with pytest.raises(lt.IndexOutOfRange):
        loss.item()
    assert len(before) == 4


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_update_has_happened_once(repeated: list[Any]) -> None:
    p = lt.nn.Parameter(np.full((N, N), 2.0, np.float32))
    optimizer = lt.optim.SGD([p], lr=0.25)
    want, n, interrupt = 2.0, 1, Interrupt(0)

    def step() -> Any:
        loss = (p * 1.0).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    while interrupt.seen >= interrupt.n:
        for last in (False, False, False, True):  # the first ones make it known, and nothing of them is left
            loss, before = step(), len(repeated)
            interrupt = Interrupt(n if last else -1)
            interrupt.run(lt.sync)
            np.testing.assert_allclose(loss.item(), want * N * N, rtol=1e-5, err_msg=f"at place {n}")
            want -= 0.25
            np.testing.assert_array_equal(p.detach().numpy(), np.full((N, N), want), err_msg=f"at place {n}")
        n += 1
    assert (len(repeated) > before) == is_on(), "the last one was not interrupted, and the others were like it"
    assert n > 10


def test_an_interrupt_right_after_the_run_lets_the_results_stand(
    repeated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if settings["interpret"]:
        pytest.skip("nothing is launched")
    model, twin = Model(lt.optim.SGD), Model(lt.optim.SGD)
    for _ in range(6):
        for m in (model, twin):
            m.step()
            lt.sync()
    launch = executor.Bound.launch

    def interrupted(*args: Any) -> None:
        launch(*args)
        raise KeyboardInterrupt

    for _ in range(3):
        model.step()
        with monkeypatch.context() as m:
            m.setattr(executor.Bound, "launch", interrupted)
            with pytest.raises(KeyboardInterrupt):
                lt.sync()
        twin.step()
        lt.sync()
        for a, b in zip(model.values(), twin.values(), strict=True):
            np.testing.assert_array_equal(a, b)


def test_no_memory_leaves_everything_pending(repeated: list[Any]) -> None:
    large = np.ones((256, 256), np.float32)
    p = lt.nn.Parameter(large)
    optimizer = lt.optim.SGD([p], lr=0.5)

    def step() -> Any:
        out = p * 3.0
        out.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return out.detach()

    for _ in range(6):
        out = step()
        lt.sync()
    before = p.detach().numpy().copy()
    out = step()
    lt.memory.set_limit(lt.memory.allocated())
    try:
        with pytest.raises(MemoryError):
            lt.sync()
    finally:
        lt.memory.set_limit(None)
    np.testing.assert_array_equal(p.detach().numpy(), before - 1.5)
    np.testing.assert_array_equal(out.numpy(), before * 3)


def test_threads_train_models_of_their_own_at_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(results: list[Any], at: int) -> None:
        model = Model(lt.optim.SGD, momentum=0.9)
        for _ in range(20):
            model.step()
            lt.sync()
        results[at] = model.values()

    results: list[Any] = [None] * 3
    threads = [threading.Thread(target=train, args=(results, i)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    with monkeypatch.context() as m:
        m.setitem(settings, "repeat", False)
        want: list[Any] = [None]
        train(want, 0)
    for got in results:
        for a, b in zip(got, want[0], strict=True):
            np.testing.assert_array_equal(a, b)


def test_another_thread_reads_while_a_step_is_repeated(repeated: list[Any]) -> None:
    model = Model(lt.optim.SGD)
    first = next(iter(model.net.parameters()))
    for _ in range(12):
        with lt.no_grad():
            q = first + 10.0
        want = first.detach().numpy().copy() + np.float32(10)
        model.step()
        got: list[Any] = []
        reader = threading.Thread(target=lambda q=q, got=got: got.append(q.numpy()))  # type: ignore[misc]
        reader.start()
        lt.sync()
        reader.join(60)
        np.testing.assert_array_equal(got[0], want)


def test_very_many_results_are_repeated(repeated: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    x = lt.asarray(np.arange(8, dtype=np.float32))

    def run() -> list[Any]:
        out = []
        for i in range(6):
            results = [x + float(k + i) for k in range(300)]
            lt.sync()
            out.append(np.stack([r.numpy() for r in results[::50]]))
        return out

    both_ways(run, monkeypatch)
    assert bool(repeated) == is_on()


def test_a_model_without_gradients_shares_nothing_with_its_training(repeated: list[Any]) -> None:
    model = Model()
    for _ in range(8):
        model.step()
        lt.sync()
        with lt.no_grad():
            first = model.net(lt.asarray(DATA)).numpy()
            second = model.net(lt.asarray(DATA)).numpy()
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("every", [1, 3, 7])
def test_a_validation_between_steps_leaves_the_next_one_its_gradients(every: int, repeated: list[Any]) -> None:
    model, losses = Model(), []
    for k in range(21):
        losses.append(model.step().item())
        if k % every == 0:
            with lt.no_grad():
                for _ in range(k % 4 + 1):
                    loss = model.loss()
                    assert not loss.requires_grad
                    assert loss.item() < losses[-1]
    assert losses == sorted(losses, reverse=True)
    assert bool(repeated) == is_on()
