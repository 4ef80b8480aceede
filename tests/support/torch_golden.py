"""One program run by PyTorch and by lazyt: what it computes, its gradients and twenty steps of training, as arrays.

A `Case` builds a module or a function from a library that it is handed (`torch` or `lazyt`), so both run the same text.
`python -m tools.torch_golden` writes what PyTorch computes to `tests/golden/`; the tests read it without PyTorch.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import golden_files, torch_cases
from tests.support.golden_files import array

STEPS, RATE = 20, 0.01


@dataclass(frozen=True)
class Case:
    """`build(lib)` gives a callable of `inputs`: a shape stands for seeded normal float64, an array for itself.

    `build` may return a Module (its state and its training are compared too) or a function. `steps` is 0 for what is
    not trained; `grad` is False for what has no gradient; `state` is how the drawn parameters are scaled.
    """

    name: str
    build: Callable[[Any], Any]
    inputs: tuple[Any, ...]
    steps: int = STEPS
    grad: bool = True
    scale: float = 0.5
    # rtol and atol in float32, where 1e-5 is not reached, and why
    single: dict[str, float] = field(default_factory=dict)
    # the same in float64: where PyTorch itself computes with constants of float32
    double: dict[str, float] = field(default_factory=dict)

    def arrays(self) -> list[np.ndarray]:
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        return [rng.standard_normal(x) if isinstance(x, tuple) else np.asarray(x) for x in self.inputs]


def areas() -> list[str]:
    """The modules of `torch_cases`: each has a list CASES and a golden file of its name."""
    return sorted(m.name for m in pkgutil.iter_modules(torch_cases.__path__))


def cases(area: str) -> list[Case]:
    found: list[Case] = importlib.import_module(f"{torch_cases.__name__}.{area}").CASES
    twice = {c.name for c in found if [other.name for other in found].count(c.name) > 1}
    assert not twice, f"{area}: cases of one name: {sorted(twice)}"
    return found


def leaves(out: Any) -> list[Any]:
    """The tensors of nested tuples, lists and dicts, in order."""
    if isinstance(out, tuple | list):
        return [x for part in out for x in leaves(part)]
    if isinstance(out, dict):
        return [x for part in out.values() for x in leaves(part)]
    return [] if out is None else [out]


def draw_state(case: Case, module: Any) -> dict[str, np.ndarray]:
    """Values for the parameters and buffers of floats, so that both libraries begin with the same ones."""
    rng = np.random.default_rng(zlib.crc32(case.name.encode()) + 1)
    state = {}
    for name, x in module.state_dict().items():
        old = array(x)
        drawn = rng.standard_normal(old.shape) * case.scale
        if "var" in name.rpartition(".")[2]:
            drawn = np.abs(drawn) + 0.5
        state[name] = drawn if old.dtype.kind == "f" else old
    return state


def objective(out: Any, lib: Any) -> Any:
    """A number that every element of every floating output changes."""
    total = None
    for k, x in enumerate(leaves(out)):
        if not x.requires_grad:
            continue
        weights = np.cos(np.arange(int(np.prod(x.shape))) + k).reshape(tuple(x.shape))
        term = (x * lib.tensor(weights, dtype=x.dtype)).sum()
        total = term if total is None else total + term
    return total


def compute(case: Case, lib: Any, state: dict[str, np.ndarray] | None, dtype: str, steps: int) -> dict[str, np.ndarray]:
    """Outputs, gradients of the inputs and parameters, and the state after `steps` steps of SGD."""
    found: dict[str, np.ndarray] = {}
    f = case.build(lib)
    module = hasattr(f, "state_dict")
    if module:
        f = f.to(dtype=getattr(lib, dtype))
        state = draw_state(case, f) if state is None else state
        found |= {f"state/{k}": v for k, v in state.items()}
        cast = {k: v.astype(dtype) if v.dtype.kind == "f" else v for k, v in state.items()}
        f.load_state_dict({k: lib.tensor(v) for k, v in cast.items()})
    arrays = [a.astype(dtype) if a.dtype.kind == "f" else a for a in case.arrays()]
    inputs = [lib.tensor(a, requires_grad=case.grad and a.dtype.kind == "f") for a in arrays]
    out = f(*inputs)
    for k, x in enumerate(leaves(out)):
        found[f"out/{k}"] = array(x)
    if not case.grad:
        return found
    objective(out, lib).backward()
    for k, x in enumerate(inputs):
        if x.requires_grad and x.grad is not None:
            found[f"grad/{k}"] = array(x.grad)
    if not module:
        return found
    parameters = dict(f.named_parameters())
    for k, p in parameters.items():
        if p.grad is not None:
            found[f"grad/{k}"] = array(p.grad)
    if steps and parameters:
        plain = [lib.tensor(a) for a in arrays]
        optimizer = lib.optim.SGD(list(f.parameters()), lr=RATE)
        for _ in range(steps):
            optimizer.zero_grad()
            objective(f(*plain), lib).backward()
            optimizer.step()
    found |= {f"after/{k}": array(v) for k, v in f.state_dict().items()}
    return found


def write(area: str, lib: Any) -> Path:
    """Run the cases of an area in float64 by PyTorch, and keep what they compute."""
    kept = {}
    for case in cases(area):
        for key, value in compute(case, lib, None, "float64", case.steps).items():
            kept[f"{case.name}|{key}"] = value
    return golden_files.save(area, kept)


def read(area: str, name: str) -> dict[str, np.ndarray]:
    """What PyTorch computed for a case."""
    found = {k.split("|", 1)[1]: v for k, v in golden_files.load(area).items() if k.split("|", 1)[0] == name}
    if not found:
        raise KeyError(f"{area}.npz has no case {name!r}: run python -m tools.torch_golden {area}")
    return found


def compare(case: Case, area: str, lib: Any, dtype: str) -> None:
    """lazyt's against PyTorch's: float64 to 1e-10, trajectories too; float32 to 1e-5 of the largest value, one step."""
    want = read(area, case.name)
    state = {k.removeprefix("state/"): v for k, v in want.items() if k.startswith("state/")}
    double = dtype == "float64"
    got = compute(case, lib, state, dtype, case.steps if double else 0)
    asked = {k for k in want if double or not k.startswith("after/")}
    assert {k for k in got if double or not k.startswith("after/")} == asked, json.dumps([sorted(got), sorted(asked)])
    for key in sorted(asked - {k for k in asked if k.startswith("state/")}):
        a, b = got[key], want[key]
        assert a.shape == b.shape, f"{key}: {a.shape} for {b.shape}"
        size = float(np.max(np.abs(b), initial=0, where=np.isfinite(b))) if b.dtype.kind in "fc" else 0.0
        limits = {"rtol": 1e-10, "atol": 1e-10 * max(size, 1)} | case.double
        if not double:
            limits = {"rtol": 1e-5, "atol": 1e-5 * max(size, 1)} | case.single
        np.testing.assert_allclose(a, b, err_msg=f"{case.name}: {key}", **limits)
