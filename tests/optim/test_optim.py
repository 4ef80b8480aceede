"""Optimizers against a NumPy reimplementation of PyTorch's rules; schedulers against their formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import LazytError

STEPS = 6
START = [np.linspace(-1, 1, 6).reshape(2, 3), np.array([0.5, -2.0])]


def gradients(params: list[np.ndarray]) -> list[np.ndarray]:
    """Of sum(p ** 4 / 4 + p * c)."""
    return [p**3 + np.arange(p.size).reshape(p.shape) * 0.1 for p in params]


def trajectory(rule: Any, decay: float = 0.0, maximize: bool = False) -> list[np.ndarray]:
    """Parameters after STEPS of rule(p, g, state, t) in float64."""
    params = [p.copy() for p in START]
    states: list[dict[str, Any]] = [{} for _ in params]
    for t in range(1, STEPS + 1):
        grads = gradients(params)
        for i, (p, g) in enumerate(zip(params, grads, strict=True)):
            g = -g if maximize else g
            params[i] = rule(p, g + decay * p, states[i], t)
    return params


def run(make: Any) -> tuple[list[Any], Any]:
    params = [lt.tensor(p, dtype="float32", requires_grad=True) for p in START]
    optimizer = make(params)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = sum(((p**4) / 4 + p * (lt.arange(p.size, dtype="float32").reshape(p.shape) * 0.1)).sum() for p in params)
        loss.backward()
        optimizer.step()
    return params, optimizer


def sgd(lr: float, momentum: float = 0.0, dampening: float = 0.0, nesterov: bool = False) -> Any:
    def rule(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
        if momentum:
            s["b"] = g if t == 1 else momentum * s["b"] + (1 - dampening) * g
            g = g + momentum * s["b"] if nesterov else s["b"]
        return p - lr * g

    return rule


def adam(lr: float, betas: Any = (0.9, 0.999), eps: float = 1e-8, amsgrad: bool = False, decoupled: float = 0.0) -> Any:
    def rule(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
        p = p * (1 - lr * decoupled)
        s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
        s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
        s["x"] = np.maximum(s.get("x", 0), s["v"])
        v = s["x"] if amsgrad else s["v"]
        size = np.sqrt(v) / math.sqrt(1 - betas[1] ** t) + eps
        return p - lr / (1 - betas[0] ** t) * s["m"] / size

    return rule


def rmsprop(lr: float, alpha: float = 0.99, eps: float = 1e-8, momentum: float = 0.0, centered: bool = False) -> Any:
    def rule(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
        s["v"] = alpha * s.get("v", 0) + (1 - alpha) * g * g
        v = s["v"]
        if centered:
            s["g"] = alpha * s.get("g", 0) + (1 - alpha) * g
            v = v - s["g"] ** 2
        step = g / (np.sqrt(v) + eps)
        s["b"] = momentum * s.get("b", 0) + step
        return p - lr * s["b"]

    return rule


def adagrad(lr: float, lr_decay: float = 0.0, start: float = 0.0, eps: float = 1e-10) -> Any:
    def rule(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
        s["v"] = s.get("v", start) + g * g
        return p - lr / (1 + (t - 1) * lr_decay) * g / (np.sqrt(s["v"]) + eps)

    return rule


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "sgd": (lambda p: lt.optim.SGD(p, lr=0.1), sgd(0.1), {}),
    "sgd momentum": (
        lambda p: lt.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.1),
        sgd(0.1, 0.9, 0.3),
        {"decay": 0.1},
    ),
    "sgd nesterov": (
        lambda p: lt.optim.SGD(p, lr=0.05, momentum=0.8, nesterov=True),
        sgd(0.05, 0.8, nesterov=True),
        {},
    ),
    "sgd maximize": (lambda p: lt.optim.SGD(p, lr=0.01, maximize=True), sgd(0.01), {"maximize": True}),
    "adam": (lambda p: lt.optim.Adam(p, lr=0.1), adam(0.1), {}),
    "adam decay": (lambda p: lt.optim.Adam(p, lr=0.1, weight_decay=0.2), adam(0.1), {"decay": 0.2}),
    "adam amsgrad": (
        lambda p: lt.optim.Adam(p, lr=0.1, betas=(0.5, 0.6), amsgrad=True),
        adam(0.1, (0.5, 0.6), amsgrad=True),
        {},
    ),
    "adamw": (lambda p: lt.optim.AdamW(p, lr=0.1, weight_decay=0.3), adam(0.1, decoupled=0.3), {}),
    "rmsprop": (lambda p: lt.optim.RMSprop(p, lr=0.01), rmsprop(0.01), {}),
    "rmsprop centered": (
        lambda p: lt.optim.RMSprop(p, lr=0.01, alpha=0.8, momentum=0.7, centered=True),
        rmsprop(0.01, 0.8, momentum=0.7, centered=True),
        {},
    ),
    "adagrad": (
        lambda p: lt.optim.Adagrad(p, lr=0.1, lr_decay=0.1, initial_accumulator_value=0.5),
        adagrad(0.1, 0.1, 0.5),
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_trajectory(name: str) -> None:
    make, rule, more = CASES[name]
    params, _ = run(make)
    for got, want in zip(params, trajectory(rule, **more), strict=True):
        np.testing.assert_allclose(got.detach().numpy(), want, rtol=3e-5, atol=3e-6)


def test_groups_have_their_own_options() -> None:
    a, b = (lt.tensor([1.0], requires_grad=True) for _ in range(2))
    optimizer = lt.optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.5}], lr=0.25)
    (a + b).sum().backward()
    optimizer.step()
    assert (a.item(), b.item()) == (0.75, 0.5)
    optimizer.add_param_group({"params": lt.tensor([1.0], requires_grad=True)})
    assert [len(g["params"]) for g in optimizer.param_groups] == [1, 1, 1]


def test_parameters_without_gradient_stay() -> None:
    a, b = (lt.tensor([1.0], requires_grad=True) for _ in range(2))
    optimizer = lt.optim.Adam([a, b], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        a.sum().backward()
        optimizer.step()
    (a + b).sum().backward()
    optimizer.step()
    assert [s["step"] for s in optimizer.state.values()] == [3, 1]
    np.testing.assert_allclose(b.item(), 0.9, rtol=1e-5)


def test_state_can_be_saved_and_loaded() -> None:
    def make(params: Any) -> Any:
        return lt.optim.Adam(params, lr=0.1)

    params, optimizer = run(make)
    copies = [lt.tensor(p.detach().numpy(), requires_grad=True) for p in params]
    other = lt.optim.Adam(copies, lr=0.7)
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["lr"] == 0.1
    for ps, o in ((params, optimizer), (copies, other)):
        for p in ps:
            p.grad = lt.ones(p.shape)
        o.step()
    for p, q in zip(params, copies, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), q.detach().numpy())
    with pytest.raises(LazytError, match=r"groups of .* parameters, not of"):
        lt.optim.Adam(params[:1]).load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize(
    "make",
    [
        lt.optim.AdamW,
        lambda p: lt.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: lt.optim.RMSprop(p, momentum=0.5, centered=True),
        lambda p: lt.optim.Adagrad(p, initial_accumulator_value=0.5),
        lt.optim.NAdam,
        lt.optim.RAdam,
        lt.optim.Adafactor,
        lt.optim.Muon,
    ],
)
def test_the_first_step_is_the_program_of_the_second(make: Any) -> None:
    """Where the parameters are computed: the state is there from the start, so nothing is planned a second time."""
    p = lt.tensor(np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6), requires_grad=True)
    optimizer = make([p])
    reasons = []
    for _ in range(3):
        optimizer.zero_grad()
        (p**2).sum().backward()
        optimizer.step()
        lt.sync()
        reasons.append(lt.last_sync().reason)
    assert reasons[0] and reasons[1:] == ["", ""]


def test_closure_and_zero_grad() -> None:
    p = lt.tensor([3.0], requires_grad=True)
    optimizer = lt.optim.SGD([p], lr=0.5)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 9.0
    assert p.item() == 0.0
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0.0]
    optimizer.zero_grad()
    assert p.grad is None


def test_halves_keep_their_dtype() -> None:
    p = lt.tensor(np.ones(3), dtype="float16", requires_grad=True)
    optimizer = lt.optim.AdamW([p], lr=0.1)
    p.grad = lt.ones(3, dtype="float16")
    optimizer.step()
    assert p.dtype == np.float16 and optimizer.state[p]["exp_avg"].dtype == np.float16


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda p: lt.optim.SGD([p], lr=-1), "SGD: lr is at least 0"),
        (lambda p: lt.optim.SGD([p], lr="1e-3"), "SGD: a number is required for lr, got '1e-3'"),
        (lambda p: lt.optim.RMSprop([{"params": [p], "alpha": None}]), "a number is required for alpha, got None"),
        (lambda p: lt.optim.AdamW([p], betas=(0.9, "0.99")), "AdamW: a number is required for betas, got '0.99'"),
        (lambda p: lt.optim.SGD([p], nesterov=True), "nesterov requires a momentum"),
        (lambda p: lt.optim.Adam([p], betas=(1.0, 0.9)), "betas are in"),
        (lambda p: lt.optim.SGD([]), "no parameters"),
        (lambda p: lt.optim.SGD(p), "not a tensor"),
        (lambda p: lt.optim.SGD([("weight", p), p]), "SGD: all parameters are given with names, or none is"),
        (lambda p: lt.optim.SGD([(p, p)]), "SGD: parameters are tensors, got 'tuple'"),
        (lambda p: lt.optim.SGD([{"lr": 1.0}]), "SGD: a group of parameters has a key 'params'; this one has"),
        (lambda p: lt.optim.SGD([{"params": {1}}]), "SGD: parameters come in an order, so not as a set"),
        (lambda p: lt.optim.Adam([p], differentiable=True), "Adam: not supported: differentiable=True, because"),
        (lambda p: lt.optim.Adadelta([p], rho=2.0), "Adadelta: rho is in"),
        (lambda p: lt.optim.Rprop([p], etas=(1.5, 1.2)), r"Rprop: etas are 0 < .*, got \(1.5, 1.2\)"),
        (lambda p: lt.optim.Adafactor([p], beta2_decay=0.5), "Adafactor: beta2_decay is at most 0, got 0.5"),
        (lambda p: lt.optim.Adafactor([p], d=0.5), "Adafactor: d, where updates are clipped, is at least 1, got 0.5"),
        (lambda p: lt.optim.Adafactor([p], eps=(None, -1.0)), "Adafactor: eps"),
        (lambda p: lt.optim.Muon([p]), r"Muon: not supported: a parameter of shape \(1,\), because"),
        (lambda p: lt.optim.Muon([lt.ones((1, 1))], adjust_lr_fn="x"), "Muon: adjust_lr_fn is None, .*, got 'x'"),
        (lambda p: lt.optim.Muon([lt.ones((1, 1))], ns_coefficients=(1.0,)), "Muon: ns_coefficients are three"),
        (lambda p: lt.optim.Muon([lt.ones((1, 1))], ns_steps=100), "Muon: ns_steps is in"),
        (lambda p: lt.optim.LBFGS([{"params": [p]}, {"params": []}]), "LBFGS: not supported: several groups"),
        (lambda p: lt.optim.LBFGS([p], line_search_fn="armijo"), "LBFGS: line_search_fn is None or .*, got 'armijo'"),
        (lambda p: lt.optim.LBFGS([p], history_size=0), "LBFGS: history_size is at least 1, got 0"),
        (lambda p: lt.optim.LBFGS([lt.ones(1, dtype="complex64")]), "LBFGS: not supported: a parameter of complex64"),
        (lambda p: lt.optim.LBFGS([p]).step(), "LBFGS: step requires a closure"),
        (lambda p: lt.optim.SGD([p]).register_step_pre_hook(3), "a hook is a function, got 'int'"),
        (lambda p: lt.optim.SGD([p, p]), "a parameter is in two places"),
        (lambda p: lt.optim.SGD([p * 2]), "only leaf tensors"),
    ],
)
def test_refusals(make: Any, match: str) -> None:
    with pytest.raises(LazytError, match=match):
        make(lt.tensor([1.0], requires_grad=True))


SCHEDULES: dict[str, tuple[Any, Any]] = {
    "step": (lambda o: lt.optim.lr_scheduler.StepLR(o, 2, 0.5), lambda t: 0.5 ** (t // 2)),
    "milestones": (
        lambda o: lt.optim.lr_scheduler.MultiStepLR(o, [4, 1], 0.1),
        lambda t: 0.1 ** ((t >= 1) + (t >= 4)),
    ),
    "exponential": (lambda o: lt.optim.lr_scheduler.ExponentialLR(o, 0.9), lambda t: 0.9**t),
    "lambda": (lambda o: lt.optim.lr_scheduler.LambdaLR(o, lambda t: 1 / (t + 1)), lambda t: 1 / (t + 1)),
    "linear": (lambda o: lt.optim.lr_scheduler.LinearLR(o, 0.5, 1.0, 4), lambda t: 0.5 + 0.5 * min(t, 4) / 4),
    "cosine": (
        lambda o: lt.optim.lr_scheduler.CosineAnnealingLR(o, 5, 0.1),
        lambda t: 0.05 + 0.95 * (1 + math.cos(math.pi * t / 5)) / 2,
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule(name: str) -> None:
    make, factor = SCHEDULES[name]
    optimizer = lt.optim.SGD([lt.tensor([1.0], requires_grad=True)], lr=2.0)
    scheduler = make(optimizer)
    for t in range(7):
        np.testing.assert_allclose(optimizer.param_groups[0]["lr"], 2.0 * factor(t), rtol=1e-12)
        scheduler.step()
    state = scheduler.state_dict()
    other = lt.optim.SGD([lt.tensor([1.0], requires_grad=True)], lr=2.0)
    again = make(other)
    again.load_state_dict(state)
    assert again.get_last_lr() == scheduler.get_last_lr()


def test_gradients_are_clipped() -> None:
    a, b = lt.tensor([3.0], requires_grad=True), lt.tensor([[4.0]], requires_grad=True)
    a.grad, b.grad = lt.asarray([3.0]), lt.asarray([[-4.0]])
    assert lt.nn.utils.clip_grad_norm_([a, b], 10.0).item() == 5.0
    assert (a.grad.item(), b.grad.item()) == (3.0, -4.0)
    lt.nn.utils.clip_grad_norm_([a, b], 1.0)
    np.testing.assert_allclose([a.grad.item(), b.grad.item()], [0.6, -0.8], rtol=1e-5)
    assert lt.nn.utils.clip_grad_norm_([a, b], 9.0, math.inf).item() == pytest.approx(0.8, rel=1e-5)
    lt.nn.utils.clip_grad_value_([a, b], 0.7)
    np.testing.assert_allclose([a.grad.item(), b.grad.item()], [0.6, -0.7], rtol=1e-5)
    assert lt.nn.utils.clip_grad_norm_([lt.tensor([1.0], requires_grad=True)], 1.0).item() == 0.0


@pytest.mark.parametrize(
    ("made", "want"),
    [
        (lambda o: lt.optim.lr_scheduler.StepLR(o, 2, 0.1), [5.0, 0.5, 0.5, 0.05]),
        (lambda o: lt.optim.lr_scheduler.MultiStepLR(o, [3, 4], 0.5), [5.0, 5.0, 2.5, 1.25]),
        (lambda o: lt.optim.lr_scheduler.ExponentialLR(o, 0.5), [2.5, 1.25, 0.625, 0.3125]),
        (lambda o: lt.optim.lr_scheduler.LinearLR(o, 0.5, 1.0, 2), [5.0 * 0.75 / 0.5, 10.0, 10.0, 10.0]),
        (lambda o: lt.optim.lr_scheduler.CosineAnnealingLR(o, 4),
         [5.0 * (1 + math.cos(math.pi * k / 4)) / 2 for k in (1, 2, 3, 4)]),
        (lambda o: lt.optim.lr_scheduler.LambdaLR(o, lambda e: 0.5**e), [0.05, 0.025, 0.0125, 0.00625]),
    ],
)  # fmt: skip
def test_a_rate_that_was_set_by_hand_goes_on_from_there(made, want):
    """As in PyTorch, but for what is a function of the epoch there too."""
    optimizer = lt.optim.SGD([lt.nn.Parameter([1.0])], lr=0.1)
    scheduler = made(optimizer)
    optimizer.param_groups[0]["lr"] = 5.0
    found = []
    for _ in range(4):
        scheduler.step()
        found += scheduler.get_last_lr()
    np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("scaled", [False, True])
def test_rprop_leaves_a_parameter_without_a_gradient_of_a_sign_as_it_is(scaled: bool):
    """As PyTorch, whose sign of NaN is 0. A step that is skipped changes nothing at all."""
    w = lt.tensor([1.0, 2.0, 3.0], requires_grad=True)
    opt = lt.optim.Rprop([w], lr=0.5)
    scaler = lt.amp.GradScaler("cpu", init_scale=4.0, enabled=scaled)
    for slope in ([math.nan, 1.0, -1.0], [2.0, 2.0, -2.0]):
        opt.zero_grad()
        scaler.scale((w * lt.tensor(slope)).sum()).backward()
        scaler.step(opt)
        scaler.update()
    # The second step along a sign is longer; the first one is skipped as a whole where it is scaled.
    expected = [0.5, 1.5, 3.5] if scaled else [0.5, 2 - 0.5 - 0.6, 3 + 0.5 + 0.6]
    np.testing.assert_allclose(w.tolist(), expected, rtol=1e-6)
