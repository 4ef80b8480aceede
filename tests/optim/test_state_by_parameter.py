"""An optimizer's state belongs to a parameter, whatever becomes of its groups. The reference values are PyTorch's."""

from __future__ import annotations

import collections
import copy
import pickle
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import InvalidKey, LazytError

SIMPLE = [lt.optim.Adam, lt.optim.RMSprop, lt.optim.Adagrad, lt.optim.Adadelta, lt.optim.Rprop, lt.optim.NAdam]


def parameters(n: int) -> list[Any]:
    return [lt.nn.Parameter(lt.ones(2) * (i + 1)) for i in range(n)]


def update(o: Any, *params: Any) -> None:
    """One step with a gradient of i + 1 for the i-th."""
    for i, p in enumerate(params):
        p.grad = lt.ones(p.shape) * (i + 1)
    o.step()
    o.zero_grad()


def momentum(o: Any, p: Any) -> float:
    return float(o.state[p]["momentum_buffer"][0])


def test_a_parameter_that_takes_anothers_place_begins_anew() -> None:
    p, q = parameters(2)
    o = lt.optim.SGD([p, q], lr=0.1, momentum=0.9)
    for _ in range(2):
        update(o, p, q)
    (n,) = parameters(1)
    o.param_groups[0]["params"][0] = n
    update(o, n, q)
    assert n.tolist() == pytest.approx([0.9, 0.9])
    assert momentum(o, n) == 1 and momentum(o, p) == pytest.approx(1.9)
    assert momentum(o, q) == pytest.approx(2 * (1 + 0.9 + 0.81))


@pytest.mark.parametrize(
    "edit",
    [
        lambda groups, new: groups.pop(0),
        lambda groups, new: groups.reverse(),
        lambda groups, new: groups[0]["params"].append(new),
        lambda groups, new: groups[0]["params"].insert(0, new),
        lambda groups, new: groups.insert(0, {**groups[0], "params": [new]}),
        lambda groups, new: groups[1].update(params=[new, *groups[1]["params"]]),
    ],
)
def test_edits_of_groups_move_no_state(edit: Any) -> None:
    *ps, new = parameters(4)
    o = lt.optim.SGD([{"params": [p]} for p in ps], lr=0.1, momentum=0.9)
    for _ in range(3):
        update(o, *ps)
    before = [momentum(o, p) for p in ps]
    edit(o.param_groups, new)
    there = {id(p) for g in o.param_groups for p in g["params"]}
    update(o, *ps, new)
    for i, (p, old) in enumerate(zip(ps, before, strict=True)):
        assert momentum(o, p) == pytest.approx(0.9 * old + i + 1 if id(p) in there else old)
    assert (new in o.state) == (id(new) in there)
    if id(new) in there:
        assert momentum(o, new) == 4


@pytest.mark.parametrize("kind", SIMPLE)
def test_states_go_with_their_parameters_in_every_optimizer(kind: Any) -> None:
    def run(swap: bool) -> list[Any]:
        ps = parameters(3)
        o = kind(ps, lr=0.1)
        for t in range(4):
            if t == 2 and swap:
                o.param_groups[0]["params"] = ps[::-1]
            update(o, *ps)
        return [p.tolist() for p in ps]

    assert run(True) == run(False)


def test_a_parameter_grows_with_its_moments() -> None:
    # As the densification of Gaussian splatting.
    p, q = parameters(2)
    o = lt.optim.Adam([{"params": [p], "name": "a"}, {"params": [q], "name": "b"}], lr=0.1)
    update(o, p, q)
    for group in o.param_groups:
        old = group["params"][0]
        stored = o.state.get(old, None)
        stored["exp_avg"] = lt.concat([stored["exp_avg"], lt.zeros(1)])
        stored["exp_avg_sq"] = lt.concat([stored["exp_avg_sq"], lt.zeros(1)])
        del o.state[old]
        group["params"][0] = lt.nn.Parameter(lt.concat([old.detach(), lt.ones(1)]))
        o.state[group["params"][0]] = stored
    a, b = (g["params"][0] for g in o.param_groups)
    update(o, a, b)
    assert [s["step"] for s in o.state.values()] == [2, 2] and len(o.state) == 2
    np.testing.assert_allclose(o.state[a]["exp_avg"].numpy(), [0.19, 0.19, 0.1], rtol=1e-5)
    np.testing.assert_allclose(o.state[b]["exp_avg"].numpy(), [0.38, 0.38, 0.2], rtol=1e-5)


def test_state_is_a_mapping_from_parameters() -> None:
    p, q = parameters(2)
    o = lt.optim.SGD([p, q], lr=0.1, momentum=0.9)
    state = o.state
    assert p not in state and state.get(p) is None and state.get(p, 1) == 1 and state.pop(p, 2) == 2 and not state
    update(o, p, q)
    assert [x is y for x, y in zip(state, (p, q), strict=True)] == [True, True] and p in state
    assert [k is p for k, _ in state.items()] == [True, False] and len(state.values()) == 2
    assert state.get(p) is state[p] is state.setdefault(p, {})
    assert lt.ones(2) not in state and p + 0 not in state, "by identity, not by value"
    taken = state.pop(p)
    assert p not in state and q in state and momentum(o, q) == 2
    with pytest.raises(InvalidKey, match=r"^state: no state of a tensor of shape \(2,\)$") as e:
        del state[p]
    assert isinstance(e.value, KeyError) and isinstance(e.value, LazytError)
    with pytest.raises(KeyError, match="no state of a tensor"):
        state.pop(p)
    state[p] = taken
    assert state.copy() == state and state.copy() is not state
    update(o, p, q)
    assert momentum(o, p) == pytest.approx(1.9)
    state.clear()
    update(o, p, q)
    assert momentum(o, p) == 1
    assert state["loops"] == {} and 0 not in state, "keys that are no tensors are themselves"


def test_state_keeps_its_parameters() -> None:
    o = lt.optim.SGD(parameters(1), lr=0.1, momentum=0.9)
    update(o, *o.param_groups[0]["params"])
    o.param_groups[0]["params"][0] = lt.nn.Parameter(lt.ones(2))
    for _ in range(50):  # a new tensor at the old one's address would be taken for it
        assert lt.nn.Parameter(lt.ones(2)) not in o.state


@pytest.mark.parametrize("empty", [dict, lambda: collections.defaultdict(dict), lt.optim.SGD(parameters(1)).state.copy])
def test_another_mapping_may_be_assigned(empty: Any) -> None:
    p, q = parameters(2)
    o = lt.optim.SGD([p, q], lr=0.1, momentum=0.9)
    update(o, p, q)
    o.state = empty()
    assert p not in o.state and o.state[p] == {}
    update(o, p, q)
    assert momentum(o, p) == 1 and momentum(o, q) == 2


def test_a_state_that_counts_no_steps_goes_on() -> None:
    (p,) = parameters(1)
    o = lt.optim.SGD([p], lr=0.1, momentum=0.9, dampening=0.5)
    o.state[p] = {"momentum_buffer": lt.ones(2)}
    update(o, p)
    assert momentum(o, p) == pytest.approx(0.9 + 0.5)
    plain = lt.optim.SGD([p], lr=0.1)
    assert plain.state[p] == {}
    update(plain, p)
    assert plain.state[p] == {"step": 1}


def test_positions_are_those_of_the_groups_when_saved() -> None:
    p, q, n = parameters(3)
    o = lt.optim.SGD([{"params": [p]}, {"params": [q]}], lr=0.1, momentum=0.9)
    update(o, p, q)
    o.param_groups[0]["params"].insert(0, n)
    o.state["mine"] = 5
    saved = o.state_dict()
    assert [g["params"] for g in saved["param_groups"]] == [[0, 1], [2]] and list(saved["state"]) == [1, 2, "mine"]
    assert float(saved["state"][2]["momentum_buffer"][0]) == 2
    other = lt.optim.SGD([{"params": [n, p]}, {"params": [q]}], lr=0.1, momentum=0.9)
    other.load_state_dict(saved)
    assert n not in other.state and momentum(other, q) == 2 and other.state["mine"] == 5
    o.param_groups.pop(1)
    with pytest.raises(KeyError, match=r"SGD.state_dict: there is a state of a tensor of shape \(2,\), which is in no"):
        o.state_dict()
    del o.state[q]
    assert list(o.state_dict()["state"]) == [1, "mine"]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_copies_keep_what_is_whose(copied: Any) -> None:
    p, q = parameters(2)
    o = lt.optim.SGD([p, q], lr=0.1, momentum=0.9)
    update(o, p, q)
    o.param_groups[0]["params"].reverse()
    other = copied(o)
    b, a = other.param_groups[0]["params"]
    assert a is not p and momentum(other, a) == 1 and momentum(other, b) == 2 and p not in other.state


def test_lbfgs_keeps_its_state_by_the_first_parameter() -> None:
    p, q = parameters(2)
    o = lt.optim.LBFGS([p], max_iter=2)

    def closure() -> Any:
        o.zero_grad()
        loss = sum(((x - 3) ** 2).sum() for x in o.param_groups[0]["params"])
        loss.backward()
        return loss

    o.step(closure)
    assert list(o.state_dict()["state"]) == [0] and o.state[p]["n_iter"] == 1
    o.param_groups[0]["params"][0] = q
    o.step(closure)
    assert o.state[q]["n_iter"] == 1 and o.state[p]["n_iter"] == 1


def test_master_weights_take_over_the_states() -> None:
    model = lt.nn.Linear(2, 1)
    o = lt.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    update(o, model.weight, model.bias)
    model, o = lt.amp.initialize(model, o, opt_level="O2")
    assert [float(o.state[p]["momentum_buffer"].sum()) for p in lt.amp.master_params(o)] == [2, 2] and len(o.state) == 2
