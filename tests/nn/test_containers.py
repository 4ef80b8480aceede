"""Containers: every dunder of PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

import lazyt as lt
from lazyt import nn
from lazyt.errors import DTypeError, NotSupportedError


def kinds(modules: Any) -> str:
    return "".join(type(m).__name__[0] for m in modules)


def test_a_sequence_of_modules() -> None:
    net = nn.Sequential(nn.ReLU(), nn.Tanh())
    assert kinds(net * 2) == "RTRT" and kinds(2 * net) == "RTRT" and kinds(net + nn.Sequential(nn.GELU())) == "RTG"
    net *= 2
    net += nn.Sequential(nn.GELU())
    assert kinds(net) == "RTRTG" and kinds(reversed(net)) == "GTRTR" and net[0] in net
    assert type(net.pop(1)).__name__ == "Tanh" and kinds(net[1:3]) == "RT" and list(net[1:3]._modules) == ["1", "2"]
    del net[::2]
    assert kinds(net) == "RG" and list(net._modules) == ["0", "1"]
    net[-1] = nn.Sigmoid()
    assert kinds(net.insert(0, nn.ELU())) == "ERS" and kinds(net.extend([nn.GELU()])) == "ERSG"
    named = nn.Sequential({"a": nn.ReLU(), "b": nn.Tanh()})
    del named["a".index("a")]
    assert list(named._modules) == ["b"]
    with pytest.raises(DTypeError, match="Sequential: a positive number of repetitions is required, got 0"):
        net * 0
    with pytest.raises(DTypeError, match="Sequential: child '4' is a Module or None, got a int"):
        net.append(3)
    with pytest.raises(DTypeError, match=r"Sequential.extend: modules one after another are required, got 5"):
        net.extend(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        net + 5


def test_a_list_and_a_dict_of_modules() -> None:
    layers = nn.ModuleList([nn.ReLU()]) + nn.ModuleList([nn.Tanh()])
    layers += [nn.GELU()]
    assert kinds(layers) == "RTG" and type(layers.pop()).__name__ == "GELU" and len(layers) == 2
    with pytest.raises(NotSupportedError, match="ModuleList: a list of modules is not called"):
        layers(1)
    table = nn.ModuleDict([("a", nn.ReLU())])
    table.update(nn.ModuleDict({"b": nn.Tanh()}))
    assert list(reversed(table)) == ["b", "a"] and kinds(table.values()) == "RT" and "a" in table.keys()  # noqa: SIM118
    del table["a"]
    assert type(table.pop("b")).__name__ == "Tanh" and not len(table)
    with pytest.raises(NotSupportedError, match="ModuleDict: a dict of modules is not called"):
        table(1)
    table["c"] = nn.ReLU()
    table.clear()
    assert not list(table.items())


def test_a_list_of_parameters() -> None:
    ps = nn.ParameterList([lt.ones(1), nn.Parameter(lt.ones(2)), "text"])
    assert [n for n, _ in ps.named_parameters()] == ["0", "1"] and ps[-1] == "text"
    ps += [lt.ones(3)]
    ps[2] = nn.Parameter(lt.zeros(4))
    assert [p.shape for p in ps] == [(1,), (2,), (4,), (3,)] and ps[0] in ps
    assert isinstance(ps[1:], nn.ParameterList) and [p.shape for p in ps[1:]] == [(2,), (4,), (3,)]
    del ps[0]
    assert ps.pop().shape == (3,) and list(ps.state_dict()) == ["0", "1"]
    assert "(0): Parameter of float32 (2,)" in repr(ps) and repr(nn.ParameterList()) == "ParameterList()"
    with pytest.raises(IndexError, match="ParameterList: index 2 is out of range for 2 parameters"):
        ps[2]
    with pytest.raises(DTypeError, match=r"ParameterList.extend: a list of parameters is required"):
        ps.extend(lt.ones(2))
    with pytest.raises(NotSupportedError, match="ParameterList: not called"):
        ps(1)


def test_a_dict_of_parameters() -> None:
    p = nn.ParameterDict({"a": lt.ones(1)})
    p |= {"b": lt.ones(2)}
    q = {"z": lt.ones(3)} | p
    assert list(q) == ["z", "a", "b"] and list(reversed(p)) == ["b", "a"] and isinstance(q, nn.ParameterDict)
    assert p.copy()["a"] is p["a"] and p.get("none", 3) == 3 and p.setdefault("c", lt.ones(4)).requires_grad
    assert p.popitem()[0] == "c" and p.pop("b").shape == (2,) and len(p) == 1 and "a" in p
    assert list(p.state_dict()) == ["a"] and list(p.fromkeys(["x", "y"])) == ["x", "y"]
    assert [k for k, _ in p.items()] == list(p.keys()) == ["a"] and next(iter(p.values())) is p["a"]
    with pytest.raises(DTypeError, match="ParameterDict: a key is a str, got 3"):
        p[3] = lt.ones(1)  # type: ignore[index]
    with pytest.raises(KeyError, match="attribute 'forward' is there already"):
        p["forward"] = lt.ones(1)
    for call in (lambda: p["none"], lambda: p.__delitem__("none")):
        with pytest.raises(KeyError, match="none"):
            call()
    p.clear()
    with pytest.raises(KeyError, match="empty"):
        p.popitem()


def test_modules_that_look_alike_are_one_line() -> None:
    layers = nn.ModuleList([nn.ReLU(), nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1), nn.Sequential(nn.Tanh())])
    assert repr(layers).splitlines() == [
        "ModuleList(",
        "  (0): ReLU()",
        "  (1-2): 2 x Linear(in_features=2, out_features=2, bias=True)",
        "  (3): Linear(in_features=2, out_features=1, bias=True)",
        "  (4): Sequential(",
        "    (0): Tanh()",
        "  )",
        ")",
    ]
    assert repr(nn.ModuleList()) == "ModuleList()"
