"""Optimizers that wrap another one and call no `super().__init__()`."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import lazyt as lt


class Lookahead(lt.optim.Optimizer):
    """Slow weights follow the fast ones every other step."""

    def __init__(self, base: Any) -> None:
        self.base, self.n = base, 0
        self.param_groups, self.state = base.param_groups, base.state
        self.slow = [p.detach().clone() for g in self.param_groups for p in g["params"]]

    def step(self, closure: Any = None) -> Any:
        loss = self.base.step(closure)
        self.n += 1
        if self.n % 2 == 0:
            with lt.no_grad():
                for slow, p in zip(self.slow, (p for g in self.param_groups for p in g["params"]), strict=True):
                    slow += (p - slow) * 0.5
                    p[...] = slow
        return loss


def made() -> tuple[Any, Any]:
    p = lt.nn.Parameter(lt.ones(2))
    return p, Lookahead(lt.optim.SGD([p], lr=0.1, momentum=0.9))


def step(o: Any, p: Any) -> None:
    o.zero_grad()
    (p * 1.0).sum().backward()
    o.step()


def test_a_wrapper_steps() -> None:
    p, o = made()
    for _ in range(2):
        step(o, p)
    assert p.tolist() == pytest.approx([1 - 0.5 * (0.1 + 0.19)] * 2)
    assert o.state is o.base.state and p in o.state
    assert list(o.state_dict()["state"]) == [0] and "lr=0.1" in repr(o)


def test_a_wrapper_takes_a_closure_and_a_scheduler() -> None:
    p, o = made()
    scheduler = lt.optim.lr_scheduler.StepLR(o, 1, gamma=0.5)

    def closure() -> Any:
        o.zero_grad()
        loss = (p * 1.0).sum()
        loss.backward()
        return loss

    assert o.step(closure).item() == 2
    scheduler.step()
    assert o.base.param_groups[0]["lr"] == 0.05


@pytest.mark.parametrize(
    ("kind", "act"),
    [
        ("step_pre", step),
        ("step_post", step),
        ("state_dict_pre", lambda o, p: o.state_dict()),
        ("state_dict_post", lambda o, p: o.state_dict()),
        ("load_state_dict_pre", lambda o, p: o.load_state_dict(o.base.state_dict())),
        ("load_state_dict_post", lambda o, p: o.load_state_dict(o.base.state_dict())),
    ],
)
def test_hooks_are_of_the_wrapper_alone(kind: str, act: Any) -> None:
    (p, o), (q, other) = made(), made()
    called: list[Any] = []
    handle = getattr(o, f"register_{kind}_hook")(lambda optimizer, *_: called.append(optimizer))
    act(o, p)
    act(other, q)
    assert called == [o]
    handle.remove()
    act(o, p)
    assert called == [o]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_copies_have_no_hooks(copied: Any) -> None:
    p, o = made()
    step(o, p)
    o.register_step_pre_hook(lambda *_: None)
    other = copied(o)
    (q,) = other.param_groups[0]["params"]
    assert other.base.param_groups is other.param_groups and q in other.state
    for opt, x in ((o, p), (other, q)):
        step(opt, x)
    assert p.tolist() == q.tolist()


def test_what_pytorch_pickles_can_be_set() -> None:
    # As old implementations of Lookahead load a state.
    p, o = made()
    step(o, p)
    assert set(o.base.__getstate__()) >= {"defaults", "param_groups", "state"}
    o.__setstate__({"state": {"mine": 1}, "param_groups": []})
    assert o.state["mine"] == 1 and p not in o.state and o.param_groups == [] and o.n == 1
