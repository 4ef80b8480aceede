"""Fifty steps of every optimizer, for every option; its state after half of them as PyTorch saves it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tests.support.torch_programs import array

STEPS, HALF = 50, 25
SHAPES: tuple[tuple[int, ...], ...] = ((3, 2), (4,), ())
TALL_AND_WIDE = ((4, 2), (2, 3))


@dataclass(frozen=True)
class Training:
    """`make(lib.optim, params)` gives the optimizer; `change(optimizer, k)` is called before step k."""

    make: Callable[[Any, list[Any]], Any]
    change: Callable[[Any, int], None] | None = None
    shapes: tuple[tuple[int, ...], ...] = SHAPES
    gaps: bool = False  # the second parameter has no gradient at every third step


def start(training: Training) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.uniform(-1, 1, shape) for shape in training.shapes]


def loss_of(lib: Any, params: list[Any]) -> Any:
    """Smooth and convex, with coefficients of its own for every element."""
    total: Any = 0.0
    for i, p in enumerate(params):
        n = int(np.prod(tuple(p.shape)))
        shape = tuple(p.shape)
        weight = lib.tensor((1 + np.arange(n) % 3).reshape(shape), dtype=p.dtype)
        target = lib.tensor((np.cos(np.arange(n) + i) * 1.5).reshape(shape), dtype=p.dtype)
        total = total + (weight * (p - target) ** 2 / 2 + p**4 / 20).sum()
    return total


def gradient(i: int, p: np.ndarray) -> np.ndarray:
    """Of `loss_of` by the i-th parameter."""
    n = np.arange(p.size)
    out: np.ndarray = (1 + n % 3).reshape(p.shape) * (p - np.cos(n + i).reshape(p.shape) * 1.5) + p**3 / 5
    return out


def train(lib: Any, training: Training, params: list[Any], optimizer: Any, first: int, last: int) -> None:
    """Steps first + 1 to last."""
    for k in range(first, last):
        if training.change is not None:
            training.change(optimizer, k)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = loss_of(lib, params)
            loss.backward()
            return loss

        if type(optimizer).__name__ == "LBFGS":
            optimizer.step(closure)
            continue
        for i, p in enumerate(params):  # by NumPy: a step of the optimizer is all that is compiled
            skipped = training.gaps and i == 1 and k % 3 == 1
            p.grad = None if skipped else lib.tensor(gradient(i, array(p)), dtype=p.dtype)
        optimizer.step()


def begin(lib: Any, training: Training, dtype: str, values: list[np.ndarray]) -> tuple[list[Any], Any]:
    params = [lib.tensor(v, dtype=getattr(lib, dtype), requires_grad=True) for v in values]
    return params, training.make(lib.optim, params)


def flat_state(state: dict[str, Any]) -> dict[str, Any]:
    """A state_dict as arrays, and what is no tensor as JSON."""
    arrays: dict[str, Any] = {}
    for i, entries in state["state"].items():
        for name, value in entries.items():
            many = value if isinstance(value, list) else [value]
            for j, x in enumerate(many):
                if x is not None:
                    arrays[f"state/{i}/{name}" + (f"/{j}" if isinstance(value, list) else "")] = array(x).copy()
    arrays["groups"] = json.dumps(state["param_groups"])
    return arrays


def nested_state(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """`flat_state` undone."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in arrays.items():
        if key.startswith("state/"):
            _, i, name, *more = key.split("/")
            entries = state.setdefault(int(i), {})
            if more:
                entries.setdefault(name, []).append(value)
            else:
                entries[name] = value
    return {"state": state, "param_groups": json.loads(str(arrays["groups"]))}


def steps_of(name: str) -> tuple[int, int]:
    """LBFGS has many evaluations a step, and has converged after a few."""
    return (4, 2) if name.startswith("lbfgs") else (STEPS, HALF)


def run(name: str, lib: Any, dtype: str) -> dict[str, Any]:
    """The parameters after half of the steps and all of them; PyTorch's state between."""
    training = TRAININGS[name]
    last, half = steps_of(name)
    params, optimizer = begin(lib, training, dtype, start(training))
    train(lib, training, params, optimizer, 0, half)
    found = {f"half/{i}": array(p).copy() for i, p in enumerate(params)}
    if lib.__name__ == "torch":
        found |= flat_state(optimizer.state_dict())
    train(lib, training, params, optimizer, half, last)
    return found | {f"after/{i}": array(p).copy() for i, p in enumerate(params)}


def go_on(name: str, lib: Any, dtype: str, kept: dict[str, np.ndarray]) -> dict[str, Any]:
    """From PyTorch's parameters and state after half of the steps to the end."""
    training = TRAININGS[name]
    last, half = steps_of(name)
    params, optimizer = begin(lib, training, dtype, [kept[f"half/{i}"] for i in range(len(training.shapes))])
    optimizer.load_state_dict(nested_state(kept))
    train(lib, training, params, optimizer, half, last)
    return {f"after/{i}": array(p) for i, p in enumerate(params)}


def of(name: str, **options: Any) -> Training:
    return Training(lambda optim, params: getattr(optim, name)(params, **options))


def _groups(optim: Any, params: list[Any]) -> Any:
    return optim.AdamW(
        [{"params": params[:2], "weight_decay": 0.2, "betas": (0.8, 0.95)}, {"params": params[2:]}], 0.05
    )


def _schedule(optimizer: Any, k: int) -> None:
    for group in optimizer.param_groups:
        group["lr"] = 0.05 * (1 + np.cos(k / 5)) + 0.01
        group["weight_decay"] = 0.1 + 0.01 * k
        if "betas" in group:
            group["betas"] = (0.9 - 0.002 * k, 0.999 - 0.001 * k)
        if "momentum" in group:
            group["momentum"] = 0.5 + 0.005 * k


TRAININGS = {
    "sgd": of("SGD", lr=0.05),
    "sgd momentum": of("SGD", lr=0.02, momentum=0.9, dampening=0.3, weight_decay=0.1),
    "sgd nesterov": of("SGD", lr=0.02, momentum=0.8, nesterov=True, foreach=True),
    "sgd maximize": Training(lambda optim, ps: optim.SGD(ps, lr=0.001, momentum=0.5, maximize=True)),
    "sgd gaps": Training(lambda optim, ps: optim.SGD(ps, lr=0.02, momentum=0.9, dampening=0.5), gaps=True),
    "sgd schedule": Training(lambda optim, ps: optim.SGD(ps, lr=0.1, momentum=0.5, weight_decay=0.1), _schedule),
    "adam": of("Adam", lr=0.05, fused=False, capturable=False),
    "adam decay": of("Adam", lr=0.05, weight_decay=0.2, betas=(0.7, 0.9), eps=1e-3),
    "adam amsgrad": of("Adam", lr=0.05, amsgrad=True, betas=(0.5, 0.6)),
    "adam decoupled": of("Adam", lr=0.05, weight_decay=0.2, decoupled_weight_decay=True),
    "adam maximize": of("Adam", lr=0.001, maximize=True),
    "adam gaps": Training(lambda optim, ps: optim.Adam(ps, lr=0.05), gaps=True),
    "adam schedule": Training(lambda optim, ps: optim.Adam(ps, lr=0.1, weight_decay=0.1), _schedule),
    "adamw": of("AdamW", lr=0.05, weight_decay=0.3),
    "adamw amsgrad": of("AdamW", lr=0.05, amsgrad=True),
    "adamw groups": Training(_groups),
    "rmsprop": of("RMSprop", lr=0.01),
    "rmsprop centered": of("RMSprop", lr=0.01, alpha=0.8, momentum=0.7, centered=True, eps=1e-3),
    "rmsprop decay": of("RMSprop", lr=0.01, weight_decay=0.2, momentum=0.3),
    "rmsprop maximize": of("RMSprop", lr=0.0005, maximize=True),
    "adagrad": of("Adagrad", lr=0.1),
    "adagrad decay": of(
        "Adagrad", lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5, maximize=False, eps=1e-4
    ),
    "adadelta": of("Adadelta", lr=1.0),
    "adadelta decay": of("Adadelta", lr=0.5, rho=0.7, eps=1e-3, weight_decay=0.2),
    "adadelta maximize": of("Adadelta", lr=0.01, maximize=True),
    "adamax": of("Adamax", lr=0.05),
    "adamax decay": of("Adamax", lr=0.02, betas=(0.7, 0.9), eps=1e-3, weight_decay=0.2),
    "adamax maximize": of("Adamax", lr=0.001, maximize=True),
    "nadam": of("NAdam", lr=0.05),
    "nadam decay": of("NAdam", lr=0.01, betas=(0.7, 0.9), weight_decay=0.2, momentum_decay=0.1),
    "nadam decoupled": of("NAdam", lr=0.05, weight_decay=0.2, decoupled_weight_decay=True, eps=1e-3),
    "nadam maximize": of("NAdam", lr=0.001, maximize=True),
    "nadam gaps": Training(lambda optim, ps: optim.NAdam(ps, lr=0.05), _schedule, gaps=True),
    "radam": of("RAdam", lr=0.05),
    "radam decay": of("RAdam", lr=0.05, betas=(0.7, 0.9), weight_decay=0.2, eps=1e-3),
    "radam decoupled": of("RAdam", lr=0.05, weight_decay=0.2, decoupled_weight_decay=True),
    "radam maximize": of("RAdam", lr=0.001, maximize=True),
    "asgd": of("ASGD", lr=0.05),
    "asgd average": of("ASGD", lr=0.05, lambd=0.01, alpha=0.5, t0=10, weight_decay=0.1),
    "asgd maximize": of("ASGD", lr=0.001, maximize=True),
    "rprop": of("Rprop", lr=0.02),
    "rprop limits": of("Rprop", lr=0.02, etas=(0.4, 1.5), step_sizes=(1e-3, 0.1)),
    "rprop maximize": of("Rprop", lr=0.001, step_sizes=(1e-6, 0.01), maximize=True),
    "adafactor": of("Adafactor", lr=0.01),
    "adafactor decay": of("Adafactor", lr=0.02, beta2_decay=-0.5, eps=(1e-8, 1e-2), d=1.5, weight_decay=0.1),
    "adafactor maximize": of("Adafactor", lr=0.001, maximize=True),
    **{
        f"muon {name}": Training(lambda optim, ps, options=options: optim.Muon(ps, **options), shapes=TALL_AND_WIDE)
        for name, options in {
            "default": {"lr": 0.01},
            "plain": {"lr": 0.01, "nesterov": False, "momentum": 0.5, "weight_decay": 0.0, "ns_steps": 3},
            "rms": {"lr": 0.01, "adjust_lr_fn": "match_rms_adamw", "ns_coefficients": (2.0, -1.5, 0.5), "eps": 1e-3},
        }.items()
    },
    "lbfgs": of("LBFGS", lr=0.1, max_iter=3),
    "lbfgs history": of("LBFGS", lr=0.3, max_iter=6, history_size=3),
    "lbfgs wolfe": of("LBFGS", line_search_fn="strong_wolfe", max_iter=3),
    "lbfgs wolfe bounds": of("LBFGS", line_search_fn="strong_wolfe", max_iter=4, max_eval=3, history_size=2),
    "lbfgs tolerance": of("LBFGS", line_search_fn="strong_wolfe", tolerance_grad=0.3, tolerance_change=0.01),
}

PROGRAMS = {name: partial(run, name) for name in TRAININGS}
