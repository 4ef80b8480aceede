"""A target of another size than the input: a warning or an error, as in PyTorch."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn

F = lt.nn.functional
REGRESSION = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
MODULES = (nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss)


def ones(*shape: int) -> lt.Tensor:
    return lt.asarray(np.ones(shape, "f4"))


def line() -> int:
    frame: Any = inspect.currentframe()
    return int(frame.f_back.f_lineno)


@pytest.mark.parametrize(
    "call",
    [*(getattr(F, n) for n in REGRESSION), *(m() for m in MODULES)],
    ids=lambda f: getattr(f, "__name__", type(f).__name__),
)
def test_a_target_of_another_size_is_warned_of_at_the_users_line(call: Any) -> None:
    text = r"target size \(\(4,\)\) that is different to the input size \(\(4, 1\)\)\. This will likely lead"
    with pytest.warns(UserWarning, match=text) as found:
        loss, here = call(ones(4, 1), ones(4)), line()
    assert [(w.filename, w.lineno) for w in found] == [(__file__, here)]
    assert loss.item() == 0


def test_each_record_is_asked_and_the_filters_decide_how_often_it_is_told() -> None:
    x = ones(4, 1) * 2
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for n in (4, 1, 4, 2, 4, 4):
            F.mse_loss(x[:n], ones(n))
    assert [str(w.message)[21:25] for w in found] == ["(4,)", "(1,)", "(4,)", "(2,)", "(4,)", "(4,)"]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(5):
            F.mse_loss(x, ones(4))
    assert len(found) == 1


def test_equal_sizes_and_numbers_are_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (4, 1, 3, 0, 4):
            assert F.mse_loss(ones(n, 1), ones(n, 1), reduction="sum").item() == 0
            assert F.l1_loss(ones(n, 1), 1.0, reduction="sum").item() == 0
            assert F.huber_loss(np.ones((n, 1), "f4"), ones(n, 1), reduction="sum").item() == 0


@pytest.mark.parametrize("name", ["binary_cross_entropy", "binary_cross_entropy_with_logits"])
def test_cross_entropies_of_another_size_are_refused_in_every_turn(name: str) -> None:
    loss = getattr(F, name)
    for n in (4, 3, 1, 5, 4):
        with pytest.raises(lt.ShapeError, match=rf"{name}: a target of the input's size \({n}, 1\) is required, got"):
            loss(ones(n, 1), ones(n))
    for n in (4, 4, 3, 2, 1):
        if n != 4:
            with pytest.raises(lt.ShapeError, match=rf"size \(4,\) is required, got \({n},\)"):
                loss(ones(4), ones(n))
        else:
            assert loss(ones(4), ones(n)).shape == ()
    assert loss(ones(4), 1.0).shape == ()


def test_a_loss_that_is_computed_at_once_warns_too() -> None:
    with (
        lt.eager(),
        pytest.warns(UserWarning, match=r"target size \(\(4,\)\) that is different to the input size \(\(4, 1\)\)"),
    ):
        assert F.mse_loss(lt.ones((4, 1)), lt.zeros(4)).item() == 1.0
