"""What a step is: one launch, no new plan for other options, hooks around it, all of it or nothing."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import LazytError, StateError

ALL = ["ASGD", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Lion", "Muon", "NAdam", "RAdam",
       "RMSprop", "Rprop"]  # fmt: skip
# What may change from step to step, as long as it does not become or cease to be 0.
NUMBERS = {
    "lr": 0.9, "weight_decay": 1.1, "momentum": 0.9, "alpha": 0.99, "rho": 0.9, "eps": 1.5, "lambd": 0.9,
    "momentum_decay": 1.1, "lr_decay": 1.1, "d": 1.1,
}  # fmt: skip


def parameters(n: int = 3) -> list[Any]:
    return [lt.tensor(np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), requires_grad=True) for _ in range(n)]


@pytest.mark.parametrize("name", ALL)
def test_a_step_is_one_launch_and_other_numbers_are_no_new_plan(name: str) -> None:
    params = parameters()
    optimizer = getattr(lt.optim, name)(params)
    for group in optimizer.param_groups:
        group.update({k: group[k] or 0.1 for k in ("weight_decay", "momentum") if k in group})
    for k in range(8):
        with lt.no_sync():  # nothing is read
            for p in params:
                p.grad = lt.full(p.shape, 0.1 * k + 0.1)
            optimizer.step()
        lt.sync()
        if k >= 2:
            assert lt.last_sync().reason == "", k
            # Products, and sums over a parameter, are launches of their own.
            assert name in ("Muon", "Adafactor") or "in 1 launch" in str(lt.last_sync()), lt.last_sync()
        for group in optimizer.param_groups:
            for option in NUMBERS.keys() & group.keys():
                if not isinstance(group[option], tuple):
                    group[option] = group[option] * NUMBERS[option]
            if "betas" in group:
                group["betas"] = tuple(beta * 0.99 for beta in group["betas"])
    assert all(np.isfinite(p.detach().numpy()).all() for p in params)


def lion(lr: float, betas: tuple[float, float], decay: float, sign: float) -> list[np.ndarray]:
    """Algorithm 2 of Chen et al. (2023) in NumPy."""
    p, m = np.linspace(-1, 1, 6), np.zeros(6)
    for k in range(10):
        g = sign * (p - np.cos(np.arange(6) + k))
        update = np.sign(betas[0] * m + (1 - betas[0]) * g)
        p = p - lr * (update + decay * p)
        m = betas[1] * m + (1 - betas[1]) * g
    return [p, m]


@pytest.mark.parametrize(("decay", "maximize"), [(0.0, False), (0.3, False), (0.1, True)])
def test_lion(decay: float, maximize: bool) -> None:
    p = lt.tensor(np.linspace(-1, 1, 6), requires_grad=True)
    optimizer = lt.optim.Lion([p], 0.05, (0.8, 0.9), decay, maximize=maximize)
    for k in range(10):
        p.grad = p.detach() - np.cos(np.arange(6) + k)
        optimizer.step()
    want, moment = lion(0.05, (0.8, 0.9), decay, -1.0 if maximize else 1.0)
    np.testing.assert_allclose(p.detach().numpy(), want, rtol=1e-12)
    np.testing.assert_allclose(optimizer.state[p]["exp_avg"].numpy(), moment, rtol=1e-12)


def test_hooks_are_called_around_steps() -> None:
    (p,) = parameters(1)
    optimizer, seen = lt.optim.SGD([p], lr=0.5), []
    handles = [
        lt.optim.register_optimizer_step_pre_hook(lambda o, args, kwargs: seen.append("before any")),
        optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before")),
        optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("after")),
        lt.optim.register_optimizer_step_post_hook(lambda o, args, kwargs: seen.append("after any")),
    ]
    optimizer.step()
    assert seen == ["before any", "before", "after", "after any"]
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert len(seen) == 4
    optimizer.register_step_pre_hook(lambda o, args, kwargs: ((o, lambda: "another closure"), {}))
    assert optimizer.step() == "another closure"
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(LazytError, match=r"SGD: a hook before a step returns None or \(args, kwargs\), got 3"):
        optimizer.step()


def test_step_hooks_get_the_arguments_of_the_method() -> None:
    (p,) = parameters(1)
    optimizer, seen = lt.optim.SGD([p], lr=0.5), []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append((o, args, kwargs)))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append((o, args, kwargs)))

    def closure() -> float:
        return 1.0

    optimizer.step(closure)
    optimizer.step(closure=closure)
    given = (optimizer, (optimizer, closure), {})
    named = (optimizer, (optimizer,), {"closure": closure})
    assert seen == [given, given, named, named]
    optimizer.register_step_pre_hook(lambda o, args, kwargs: ((closure,), {}))
    with pytest.raises(LazytError, match="SGD: the args that a hook before a step returns begin with the optimizer"):
        optimizer.step()


def test_hooks_are_called_around_states() -> None:
    (p,) = parameters(1)
    optimizer, seen = lt.optim.SGD([p]), []
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("saves"))
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
    optimizer.register_state_dict_post_hook(lambda o, state: seen.append(sorted(state)), prepend=True)
    optimizer.register_load_state_dict_pre_hook(lambda o, state: {k: v for k, v in state.items() if k != "more"})
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append("loaded"))
    state = optimizer.state_dict()
    assert state["more"] == 1
    optimizer.load_state_dict(state)
    assert seen == ["saves", ["param_groups", "state"], "loaded"]


def test_an_optimizer_of_ones_own_has_the_base_of_pytorchs() -> None:
    class Plain(lt.optim.Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr})

        def step(self, closure: Any = None) -> None:
            with lt.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        state = self.state[p]
                        state["step"] = state.get("step", 0) + 1
                        p -= p.grad * group["lr"]

    (p,) = parameters(1)
    before = p.detach().numpy().copy()
    optimizer, seen = Plain([p], lr=0.5), []
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(o.state[p]["step"]))
    p.grad = lt.ones(p.shape)
    optimizer.step()
    np.testing.assert_allclose(p.detach().numpy(), before - 0.5, rtol=1e-6)
    assert seen == [1] and p in optimizer.state


def test_names_are_kept() -> None:
    model = lt.nn.Linear(2, 1)
    optimizer = lt.optim.SGD(model.named_parameters())
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    with pytest.raises(LazytError, match="all groups are given with names, or none is"):
        optimizer.add_param_group({"params": parameters(1)})


def test_an_option_that_is_turned_on_later_begins_then() -> None:
    (p,) = parameters(1)
    optimizer = lt.optim.Adam([p], lr=0.1)
    for amsgrad in (False, True, True):
        optimizer.param_groups[0]["amsgrad"] = amsgrad
        p.grad = lt.ones(p.shape)
        optimizer.step()
    state = optimizer.state[p]
    assert state["step"] == 3
    np.testing.assert_allclose(state["max_exp_avg_sq"].numpy(), state["exp_avg_sq"].numpy())


def test_states_that_do_not_fit_are_refused() -> None:
    (p,) = parameters(1)
    optimizer = lt.optim.Adam([p])
    group = {"params": [0]}
    with pytest.raises(RuntimeError, match=r"Adam.load_state_dict: \['param_groups'\] missing"):
        optimizer.load_state_dict({"state": {}})
    with pytest.raises(StateError, match=r"parameter 0 has shape \(2, 3\), but its exp_avg has shape \(3,\)"):
        optimizer.load_state_dict({"state": {0: {"step": 1, "exp_avg": np.ones(3)}}, "param_groups": [group]})
    with pytest.raises(StateError, match="state of parameter 4, which is in no group"):
        optimizer.load_state_dict({"state": {4: {}}, "param_groups": [group]})
    assert not optimizer.state


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_an_optimizer_can_be_copied(copied: Any) -> None:
    (p,) = parameters(1)
    optimizer = lt.optim.Adam([p], lr=0.1)
    p.grad = lt.ones(p.shape)
    optimizer.step()
    other = copied(optimizer)
    q = other.param_groups[0]["params"][0]
    q.grad = p.grad
    optimizer.step()
    other.step()
    assert q is not p
    np.testing.assert_array_equal(p.detach().numpy(), q.detach().numpy())
    assert other.state[q]["step"] == 2


def rosenbrock(w: Any) -> Any:
    a, b = w[1:], w[:-1]
    return (100 * (a - b**2) ** 2 + (1 - b) ** 2).sum()


def test_lbfgs_runs_few_plans_and_an_error_leaves_the_last_whole_iteration() -> None:
    w = lt.tensor(np.zeros(6), requires_grad=True)
    optimizer = lt.optim.LBFGS([w], max_iter=12, line_search_fn="strong_wolfe", history_size=4)
    reasons: list[str] = []

    def closure() -> Any:
        reasons.append(lt.last_sync().reason if reasons else "")
        if len(reasons) == 9:
            raise ArithmeticError("the ninth evaluation")
        optimizer.zero_grad()
        loss = rosenbrock(w)
        loss.backward()
        return loss

    with pytest.raises(ArithmeticError, match="the ninth evaluation"):
        optimizer.step(closure)
    state = optimizer.state[w]
    assert state["n_iter"] > 1
    before = lt.tensor(w.detach().numpy() - np.asarray(state["d"]) * state["t"], requires_grad=True)
    rosenbrock(before).backward()
    np.testing.assert_allclose(before.grad.numpy(), state["prev_flat_grad"].numpy(), rtol=1e-6)
    for _ in range(20):
        loss = optimizer.step(closure)
    assert loss.item() < 1e-8 and len(reasons) > 50
    assert not any(reasons[30:]), "the history is full, so nothing is planned anew"
    np.testing.assert_allclose(w.detach().numpy(), 1.0, rtol=1e-3)


def test_what_there_is_no_use_for_says_why() -> None:
    with pytest.raises(AttributeError, match="no 'SparseAdam': gradients are dense here"):
        lt.optim.SparseAdam  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        lt.optim.Nothing  # noqa: B018
