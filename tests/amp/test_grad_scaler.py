"""GradScaler: PyTorch's trace, states and errors; a skipped step is decided by the plan."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import lazyt as lt

F = lt.nn.functional
INF, NAN = float("inf"), float("nan")


def _parameter(*values: float) -> Any:
    return lt.nn.Parameter(lt.asarray(np.array(values or (1.0,), np.float32)))


def test_the_trace_of_pytorch() -> None:
    p = _parameter(1.0)
    opt, scaler = lt.optim.SGD([p], lr=1.0), lt.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
    found: list[tuple[float, int, float]] = []
    for g in (1, 1, INF, 1, NAN, 1, 1):
        opt.zero_grad()
        with lt.expect(syncs=0):
            scaler.scale((p * g).sum()).backward()
            scaler.step(opt)
            scaler.update()
        found.append((scaler.get_scale(), scaler.state_dict()["_growth_tracker"], p.item()))
    scales, trackers, values = zip(*found, strict=True)
    assert scales == (4, 8, 4, 4, 2, 2, 4)
    assert trackers == (1, 0, 0, 1, 0, 1, 0)
    assert values == (0, -1, -1, -2, -2, -3, -4)


OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "dampening": 0.5},
    "Adam": {"lr": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.1},
    "RMSprop": {"lr": 0.1, "momentum": 0.5},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.5},
    "Adamax": {"lr": 0.1},
    "Adadelta": {},
    "Lion": {"lr": 0.1},
    # These are asked on the host.
    "NAdam": {"lr": 0.1},
    "RAdam": {"lr": 0.1},
}


def _trained(name: str, scaled: bool, bad: tuple[int, ...]) -> tuple[Any, Any]:
    w = lt.nn.Parameter(lt.asarray(np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)))
    opt = getattr(lt.optim, name)([w], **OPTIMIZERS[name])
    scaler = lt.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2, enabled=scaled)
    for i in range(6):
        if i in bad and not scaled:
            continue
        x = lt.asarray(np.full((2, 3), INF if i in bad else 0.25 * (i + 1), np.float32))
        opt.zero_grad()
        with lt.expect(syncs=0 if opt.skippable or not scaled else 1):
            scaler.scale(((w * x) ** 2).mean()).backward()
            scaler.step(opt)
            scaler.update()
        with lt.expect(plans=0 if i > 4 and opt.skippable else None):
            lt.sync()
    return w.detach().numpy(), opt.state[w]


@pytest.mark.parametrize(
    "name", [n if n in ("SGD", "Adam", "NAdam") else pytest.param(n, marks=pytest.mark.slow) for n in OPTIMIZERS]
)
def test_a_skipped_step_changes_nothing(name: str) -> None:
    expected, state = _trained(name, False, (0, 3))
    found, scaled = _trained(name, True, (0, 3))
    np.testing.assert_array_equal(found, expected)
    assert scaled.keys() == state.keys()
    for key, value in state.items():
        np.testing.assert_array_equal(np.asarray(scaled[key]), np.asarray(value), err_msg=key)


def test_a_scaled_step_is_one_plan_whatever_the_scale_is() -> None:
    model = lt.nn.Linear(4, 3)
    opt = lt.optim.AdamW(model.parameters(), lr=0.01)
    scaler = lt.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=1)

    def step(bad: float = 1.0) -> None:
        opt.zero_grad()
        with lt.autocast("cpu"):
            loss = F.mse_loss(model(lt.full((5, 4), bad)), lt.zeros((5, 3)))
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()

    for _ in range(4):
        step()
        lt.sync()
    scale = scaler.get_scale()
    for bad in (1.0, INF, 1.0, 1.0):
        with lt.expect(syncs=0):
            step(bad)
        with lt.expect(syncs=1, plans=0, compiles=0):
            lt.sync()
    assert scaler.get_scale() == scale * 4  # grown three times, shrunk once
    assert {p.dtype for p in model.parameters()} == {lt.float32}


def test_gradients_that_were_unscaled_may_be_clipped() -> None:
    p = _parameter(3.0, 4.0)
    opt, scaler = lt.optim.SGD([p], lr=1.0), lt.amp.GradScaler("cpu", init_scale=16.0)
    scaler.scale((p * lt.asarray([3.0, 4.0])).sum()).backward()
    scaler.unscale_(opt)
    np.testing.assert_allclose(p.grad.numpy(), [3.0, 4.0])
    lt.nn.utils.clip_grad_norm_([p], 1.0)
    scaler.step(opt)
    scaler.update()
    np.testing.assert_allclose(p.tolist(), [2.4, 3.2], rtol=1e-5)


def test_several_optimizers_share_a_scale_and_skip_apart() -> None:
    a, b = _parameter(1.0), _parameter(1.0)
    first, second = lt.optim.SGD([a], lr=1.0), lt.optim.Adam([b], lr=1.0)
    scaler = lt.amp.GradScaler("cpu", init_scale=8.0, growth_interval=5)
    for loss in scaler.scale([(a * INF).sum(), (b * 2).sum()]):
        loss.backward()
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert (a.item(), round(b.item(), 3), scaler.get_scale()) == (1.0, 0.0, 4.0)
    assert (int(first.state[a]["step"]), int(second.state[b]["step"])) == (0, 1)


def test_an_optimizer_goes_on_without_a_scaler() -> None:
    p = _parameter(1.0)
    opt, scaler = lt.optim.Adam([p], lr=0.1), lt.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(p.sum()).backward()
    scaler.step(opt)
    opt.step()
    assert float(opt.state[p]["step"]) == 2
    other = lt.optim.Adam([p], lr=0.1)
    other.load_state_dict(opt.state_dict())
    assert other.state[p]["step"] == 2


def test_a_scale_does_not_grow_past_what_float32_holds() -> None:
    p = _parameter(1.0)
    opt, scaler = lt.optim.SGD([p], lr=1.0), lt.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1)
    scaler.scale((p * 2.0**-100).sum()).backward()
    scaler.step(opt)
    scaler.update()
    assert (scaler.get_scale(), scaler.state_dict()["_growth_tracker"]) == (2.0**127, 0)


def test_dtypes_of_scaled_values() -> None:
    scaler = lt.amp.GradScaler("cpu", init_scale=2.0)
    half, number = lt.ones(2, dtype=lt.float16), lt.ones((), dtype=lt.float16)
    assert [x.dtype for x in scaler.scale((half, number))] == [lt.float16, lt.float32]
    assert [float(x) for x in scaler.scale(lt.ones(()) * k for k in (1, 2))] == [2.0, 4.0]


def test_states_are_saved_and_loaded() -> None:
    scaler = lt.amp.GradScaler("cpu", init_scale=4.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=7)
    expected = {"scale": 4.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 7, "_growth_tracker": 0}
    assert scaler.state_dict() == expected
    used = lt.amp.GradScaler("cpu", init_scale=2.0)
    used.scale(lt.ones(()))
    used.load_state_dict({**expected, "_growth_tracker": 6})
    assert used.state_dict() == {**expected, "_growth_tracker": 6}
    assert float(used.scale(lt.ones(()))) == 4.0
    copy = pickle.loads(pickle.dumps(used))
    assert copy.state_dict() == used.state_dict()
    with pytest.raises(RuntimeError, match="The source state dict is empty"):
        used.load_state_dict({})
    with pytest.raises(lt.AutocastError, match=r"'scale'.* missing"):
        used.load_state_dict({"growth_factor": 2.0})


def test_a_disabled_scaler_passes_through() -> None:
    p = _parameter(1.0)
    opt, scaler = lt.optim.SGD([p], lr=1.0), lt.amp.GradScaler("cpu", enabled=False)
    loss = p.sum()
    assert scaler.scale(loss) is loss
    loss.backward()
    scaler.unscale_(opt)
    scaler.step(opt)
    scaler.update()
    assert (p.item(), scaler.get_scale(), scaler.state_dict(), scaler.is_enabled()) == (0.0, 1.0, {}, False)
    assert repr(scaler) == "GradScaler(enabled=False)"


def test_the_factors_can_be_set() -> None:
    scaler = lt.amp.GradScaler("cpu")
    scaler.set_growth_factor(4)
    scaler.set_backoff_factor(0.125)
    scaler.set_growth_interval(3)
    assert repr(scaler) == "GradScaler('cpu', growth_factor=4.0, backoff_factor=0.125, growth_interval=3)"
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()) == (4.0, 0.125, 3)


def test_a_new_scale_is_a_number_or_a_tensor_of_one() -> None:
    scaler = lt.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(lt.ones(()))
    scaler.update(8.0)
    assert scaler.get_scale() == 8.0
    scaler.update(lt.asarray(np.array([16.0], np.float32)))
    assert scaler.get_scale() == 16.0
    with pytest.raises(AssertionError, match="new_scale should be a float or a 1-element float32 tensor"):
        scaler.update(lt.ones(2))
    with pytest.raises(AssertionError, match="got '3'"):
        scaler.update("3")


def test_calls_out_of_turn() -> None:
    p = _parameter(1.0)
    opt, scaler = lt.optim.SGD([p], lr=1.0), lt.amp.GradScaler("cpu")
    with pytest.raises(AssertionError, match="Attempted unscale_ but _scale is None"):
        scaler.unscale_(opt)
    with pytest.raises(AssertionError, match="Attempted update but _scale is None"):
        scaler.update()
    scaler.scale(p.sum()).backward()
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
        scaler.update()
    scaler.unscale_(opt)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) has already been called on this optimizer since the last"):
        scaler.unscale_(opt)
    with pytest.raises(AssertionError, match="may only be pickled at the beginning of an iteration"):
        pickle.dumps(scaler)
    with pytest.raises(RuntimeError, match="Closure use is not currently supported if GradScaler is enabled"):
        scaler.step(opt, closure=lambda: 0)
    scaler.step(opt)
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called since the last update\(\)"):
        scaler.step(opt)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) is being called after step\(\)"):
        scaler.unscale_(opt)
    scaler.update()
    opt.zero_grad()
    with pytest.raises(AssertionError, match="No inf checks were recorded for this optimizer"):
        scaler.step(opt)


def test_bad_values() -> None:
    with pytest.raises(AssertionError, match=r"The growth factor must be > 1\.0, got 1\.0"):
        lt.amp.GradScaler("cpu", growth_factor=1.0)
    with pytest.raises(AssertionError, match=r"The backoff factor must be < 1\.0, got 1\.0"):
        lt.amp.GradScaler("cpu", backoff_factor=1.0)
    scaler = lt.amp.GradScaler("cpu")
    with pytest.raises(ValueError, match="outputs must be a Tensor or an iterable of Tensors, got 'float'"):
        scaler.scale(3.0)
    p = lt.nn.Parameter(lt.ones(2, dtype=lt.float16))
    scaler.scale(p.sum()).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.unscale_(lt.optim.SGD([p], lr=1.0))
