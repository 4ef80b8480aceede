"""Errors of arguments are lazyt's and, for `except` clauses that were written for PyTorch, also its classes."""

from __future__ import annotations

from typing import Any

import pytest

import lazyt as lt

optim, sched = lt.optim, lt.optim.lr_scheduler


def leaf() -> Any:
    return lt.nn.Parameter(lt.ones(2))


def sgd() -> Any:
    return optim.SGD([leaf()], lr=0.1, momentum=0.9)


def twice(kind: Any) -> None:
    p = leaf()
    kind([{"params": [p]}, {"params": [p]}])


def overrun() -> None:
    scheduler = sched.OneCycleLR(sgd(), 1.0, total_steps=2)
    for _ in range(3):
        scheduler.step()


CASES: list[tuple[Any, type[Exception], str]] = [
    (lambda: optim.SGD(leaf()), TypeError, "SGD: params is an iterable of tensors"),
    (lambda: optim.SGD(lt.nn.Linear(1, 1)), TypeError, r"pass model.parameters\(\)"),
    (lambda: optim.SGD([]), ValueError, "SGD: no parameters were given"),
    (lambda: optim.SGD([3]), TypeError, "parameters are tensors, got 'int'"),
    (lambda: optim.SGD([{"params": {1}}]), TypeError, "parameters come in an order"),
    (lambda: optim.SGD([leaf() * 2]), ValueError, "only leaf tensors"),
    (lambda: optim.SGD([("a", leaf()), leaf()]), ValueError, "all parameters are given with names, or none"),
    (lambda: sgd().add_param_group([leaf()]), TypeError, "a group of parameters is a dict, got 'list'"),
    (lambda: sgd().add_param_group({"lr": 1}), KeyError, "^SGD: a group of parameters has a key 'params'; this one"),
    (lambda: twice(optim.SGD), ValueError, "a parameter is in two places"),
    (lambda: optim.SGD([leaf()], lr=-1), ValueError, "SGD: lr is at least 0, got -1"),
    (lambda: optim.SGD([leaf()], lr="a"), TypeError, "a number is required for lr"),
    (lambda: optim.SGD([leaf()], nesterov=True), ValueError, "nesterov requires a momentum"),
    (lambda: optim.Adam([leaf()], betas=(2, 0.1)), ValueError, "betas are in"),
    (lambda: optim.Adadelta([leaf()], rho=3), ValueError, "rho is in"),
    (lambda: optim.Rprop([leaf()], etas=(2, 3)), ValueError, "etas are 0 <"),
    (lambda: optim.Adafactor([leaf()], d=0.1), ValueError, "d, where updates are clipped"),
    (lambda: optim.LBFGS([leaf()]).step(), TypeError, "step requires a closure"),
    (lambda: sched.ConstantLR(3), TypeError, "an optimizer is required, got 'int'"),
    (lambda: sched.ConstantLR(sgd(), last_epoch=3), KeyError, "^ConstantLR: last_epoch is 3, but group 0 has no 'ini"),
    (lambda: sched.ConstantLR(sgd(), factor=3), ValueError, "factor is between 0 and 1"),
    (lambda: sched.LinearLR(sgd(), start_factor=3), ValueError, "start_factor is in"),
    (lambda: sched.LambdaLR(sgd(), [len, len]), ValueError, "has 2 values for 1 groups"),
    (lambda: sched.ReduceLROnPlateau(sgd(), factor=2), ValueError, "factor is below 1"),
    (lambda: sched.CyclicLR(optim.Adagrad([leaf()]), 0.1, 0.2), ValueError, "cycle_momentum requires"),
    (lambda: sched.OneCycleLR(sgd(), 1.0), ValueError, "total_steps is required"),
    (overrun, ValueError, "OneCycleLR: step 3, but total_steps is 2"),
    (lambda: sched.CosineAnnealingWarmRestarts(sgd(), 0), ValueError, "T_0 is a positive integer"),
    (lambda: sched.ChainedScheduler([]), ValueError, "no schedulers were given"),
    (lambda: sched.SequentialLR(o := sgd(), [sched.ConstantLR(o)], [1, 2]), ValueError, "0 milestones between them"),
    (lambda: optim.swa_utils.get_ema_avg_fn(3), ValueError, "decay is between 0 and 1"),
]


@pytest.mark.parametrize(("call", "kind", "match"), CASES)
def test_the_class_is_pytorchs_too(call: Any, kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match) as found:
        call()
    assert isinstance(found.value, lt.LazytError)


def test_every_argument_error_is_also_a_builtin() -> None:
    for error in (lt.ArgumentError, lt.InvalidKey, lt.UninitializedModule):
        assert error.__mro__[1] is lt.LazytError and len(error.__bases__) == 2
    assert str(lt.InvalidKey("plain text")) == "plain text"


def test_gradients_that_cannot_be_clipped() -> None:
    p = leaf()
    p.grad = lt.asarray([1.0, float("nan")]).astype(p.dtype)
    with pytest.raises(RuntimeError, match="non-finite, so it cannot be clipped") as found:
        lt.nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    assert isinstance(found.value, lt.LazytError)


@pytest.mark.parametrize("value", [leaf, lambda: lt.nn.Linear(1, 1)])
def test_a_module_before_its_init(value: Any) -> None:
    class Early(lt.nn.Module):
        def __init__(self) -> None:
            self.part = value()

    with pytest.raises(AttributeError, match=r"Early: call super\(\).__init__\(\) before assigning 'part'") as found:
        Early()
    assert isinstance(found.value, lt.LazytError)


@pytest.mark.parametrize("method", ["register_buffer", "register_parameter", "add_module", "register_module"])
@pytest.mark.parametrize("name", ["a.b", "", "forward"])
def test_names_that_cannot_be(method: str, name: str) -> None:
    with pytest.raises(
        KeyError, match=r"a name without dots is required|attribute 'forward' is there already"
    ) as found:
        getattr(lt.nn.Linear(1, 1), method)(name, None)
    assert isinstance(found.value, lt.LazytError)
