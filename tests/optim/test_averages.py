"""Averages of models: what they are, that they stay lazy, and what they refuse."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import LazytError, ShapeError
from lazyt.optim import swa_utils


def model_of(value: float) -> Any:
    m = lt.nn.Sequential(lt.nn.Linear(2, 1, bias=False), lt.nn.BatchNorm1d(1, affine=False))
    lt.nn.init.constant_(m[0].weight, value)
    m[1].running_mean.fill(value * 10)
    return m


RULES: dict[str, tuple[dict[str, Any], list[float]]] = {
    "mean": ({}, [2.0, 3.0, 4.0]),
    "mean of each": ({"avg_fn": swa_utils.get_swa_avg_fn()}, [2.0, 3.0, 4.0]),
    "ema": ({"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.75)}, [2.0, 2.5, 3.375]),
    "ema of each": ({"avg_fn": swa_utils.get_ema_avg_fn(0.75)}, [2.0, 2.5, 3.375]),
    "one's own": ({"multi_avg_fn": lambda xs, ys, n: [x.fill(n) for x in xs]}, [2.0, 1.0, 2.0]),
}


@pytest.mark.parametrize("name", RULES)
def test_parameters_are_averaged_and_buffers_copied(name: str) -> None:
    options, want = RULES[name]
    averaged = swa_utils.AveragedModel(model_of(7.0), **options)
    for value, expected in zip((2.0, 4.0, 6.0), want, strict=True):
        averaged.update_parameters(model_of(value))
        np.testing.assert_allclose(averaged.module[0].weight.detach().numpy(), expected, rtol=1e-6)
        assert averaged.module[1].running_mean.item() == value * 10
    assert averaged.n_averaged.item() == 3 and averaged.module[0].weight.requires_grad


def test_buffers_are_averaged_on_request() -> None:
    averaged = swa_utils.AveragedModel(model_of(7.0), use_buffers=True)
    for value in (2.0, 4.0):
        averaged.update_parameters(model_of(value))
    assert averaged.module[1].running_mean.item() == 30.0


def test_a_training_step_with_an_average_is_one_plan() -> None:
    model = lt.nn.Linear(3, 1)
    averaged = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = lt.optim.SGD(model.parameters(), lr=0.1)
    scheduler = lt.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    x, reasons = lt.ones((4, 3)), []
    for _ in range(6):
        with lt.no_sync():
            optimizer.zero_grad()
            (model(x) ** 2).mean().backward()
            optimizer.step()
            scheduler.step()
            averaged.update_parameters(model)
        lt.sync()
        reasons.append(lt.last_sync().reason)
    assert reasons[3:] == ["", "", ""]


def test_a_loaded_count_is_used() -> None:
    averaged = swa_utils.AveragedModel(model_of(7.0))
    for value in (2.0, 4.0):
        averaged.update_parameters(model_of(value))
    other = swa_utils.AveragedModel(model_of(7.0))
    other.update_parameters(model_of(1.0))
    other.load_state_dict(averaged.state_dict())
    third = copy.deepcopy(other)
    for m in (other, third):
        m.update_parameters(model_of(9.0))
        np.testing.assert_allclose(m.module[0].weight.detach().numpy(), 5.0)


def test_statistics_are_computed_anew() -> None:
    model = lt.nn.Sequential(lt.nn.Linear(2, 1), lt.nn.BatchNorm1d(1, momentum=0.3))
    model.eval()
    batches = [(lt.asarray(np.random.default_rng(k).standard_normal((4, 2)), dtype="float32"), k) for k in range(3)]
    swa_utils.update_bn(batches, model)
    outs = [model[0](x).detach().numpy() for x, _ in batches]
    np.testing.assert_allclose(model[1].running_mean.numpy(), np.mean(outs, axis=(0, 1)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model[1].running_var.numpy(), np.mean([o.var(ddof=1) for o in outs]), rtol=1e-5)
    assert model[1].momentum == 0.3 and not model.training and not model[1].training
    swa_utils.update_bn(batches, lt.nn.Linear(2, 1))  # nothing to do


def test_refusals() -> None:
    f = swa_utils.get_swa_avg_fn()
    with pytest.raises(LazytError, match="AveragedModel: avg_fn or multi_avg_fn, got both"):
        swa_utils.AveragedModel(model_of(1.0), avg_fn=f, multi_avg_fn=f)
    with pytest.raises(LazytError, match=r"get_ema_multi_avg_fn: decay is between 0 and 1, got 1.5"):
        swa_utils.get_ema_multi_avg_fn(1.5)
    with pytest.raises(ShapeError, match="AveragedModel: the model is not like the one that is averaged"):
        swa_utils.AveragedModel(model_of(1.0)).update_parameters(lt.nn.Linear(2, 2))
    optimizer = lt.optim.SGD([lt.ones(1)])
    with pytest.raises(LazytError, match="SWALR: anneal_strategy is 'cos' or 'linear', got 'exp'"):
        swa_utils.SWALR(optimizer, 0.1, anneal_strategy="exp")
    with pytest.raises(LazytError, match="SWALR: anneal_epochs is an integer of at least 0, got -1"):
        swa_utils.SWALR(optimizer, 0.1, -1)


S = lt.optim.lr_scheduler


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda o: S.StepLR(o.param_groups, 3), "StepLR: an optimizer is required, got 'list'"),
        (lambda o: S.StepLR(o, 3, last_epoch=4), "StepLR: last_epoch is 4, but group 0 has no 'initial_lr'"),
        (lambda o: S.LambdaLR(o, [abs, abs]), "LambdaLR: lr_lambda has 2 values for 1 groups"),
        (lambda o: S.MultiplicativeLR(o, 0.5), "MultiplicativeLR: lr_lambda is a function, got 'float'"),
        (lambda o: S.ConstantLR(o, 1.5), "ConstantLR: factor is between 0 and 1, got 1.5"),
        (lambda o: S.LinearLR(o, 0.0), r"LinearLR: start_factor is in \(0, 1\], got 0.0"),
        (lambda o: S.LinearLR(o, 0.5, 2.0), r"LinearLR: end_factor is in \[0, 1\], got 2.0"),
        (lambda o: S.CyclicLR(o, 0.1, 1.0, mode="saw"), "CyclicLR: mode is .*, got 'saw'"),
        (lambda o: S.CyclicLR(lt.optim.Adagrad([lt.ones(1)]), 0.1, 1.0), "CyclicLR: cycle_momentum requires"),
        (lambda o: S.OneCycleLR(o, 1.0), "OneCycleLR: total_steps is required, or epochs and steps_per_epoch"),
        (lambda o: S.OneCycleLR(o, 1.0, total_steps=0), "OneCycleLR: total_steps is a positive integer, got 0"),
        (lambda o: S.OneCycleLR(o, 1.0, 9, pct_start=2.0), "OneCycleLR: pct_start is between 0 and 1, got 2.0"),
        (lambda o: S.OneCycleLR(o, 1.0, 9, anneal_strategy="x"), "OneCycleLR: anneal_strategy is .*, got 'x'"),
        (lambda o: [s.step() for s in [S.OneCycleLR(o, 1.0, 2)] * 3], "OneCycleLR: step 3, but total_steps is 2"),
        (lambda o: S.CosineAnnealingWarmRestarts(o, 0), "T_0 is a positive integer, got 0"),
        (lambda o: S.CosineAnnealingWarmRestarts(o, 3).step(-1), "epoch is at least 0, got -1"),
        (lambda o: S.SequentialLR(o, [], []), "SequentialLR: no schedulers were given"),
        (lambda o: S.SequentialLR(o, [S.StepLR(o, 1)], [2]), "1 schedulers have 0 milestones between them, got 1"),
        (lambda o: S.ChainedScheduler([o]), "ChainedScheduler: a scheduler is required at position 0, got 'SGD'"),
        (lambda o: S.ChainedScheduler([S.ReduceLROnPlateau(o)]), "ReduceLROnPlateau at position 0 needs a metric"),
        (lambda o: S.ChainedScheduler([S.StepLR(o, 1), S.StepLR(lt.optim.SGD([lt.ones(1)]), 1)]), "another optimizer"),
        (lambda o: S.ChainedScheduler([S.StepLR(o, 1)]).step(3), "ChainedScheduler: step counts epochs by itself"),
        (lambda o: S.ReduceLROnPlateau(o, factor=1.0), "ReduceLROnPlateau: factor is below 1, got 1.0"),
        (lambda o: S.ReduceLROnPlateau(o, "least"), "ReduceLROnPlateau: mode is 'min' or 'max', got 'least'"),
        (lambda o: S.ReduceLROnPlateau(o, threshold_mode="x"), "threshold_mode is 'rel' or 'abs', got 'x'"),
        (lambda o: S.ReduceLROnPlateau(o, min_lr=[1.0, 2.0]), "min_lr has 2 values for 1 groups"),
    ],
)
def test_schedulers_refuse(make: Any, match: str) -> None:
    with pytest.raises(LazytError, match=match):
        make(lt.optim.SGD([lt.tensor([1.0], requires_grad=True)], lr=0.1))


def test_epochs_can_be_given() -> None:
    optimizer = lt.optim.SGD([lt.ones(1)], lr=1.0)
    scheduler = S.ExponentialLR(optimizer, 0.5)
    scheduler.step(3)
    assert scheduler.get_last_lr() == [0.125]
    restarts = S.CosineAnnealingWarmRestarts(lt.optim.SGD([lt.ones(1)], lr=1.0), 2, 2)
    restarts.step(4.5)
    np.testing.assert_allclose(restarts.get_last_lr(), (1 + np.cos(np.pi * 2.5 / 4)) / 2)
    optimizer.add_param_group({"params": [lt.ones(1)]})
    with pytest.raises(LazytError, match="ExponentialLR: 1 learning rates for 2 groups"):
        scheduler.step(4)
