"""Modules: hooks of every kind, state with hooks and extra state, conversions, copies, and errors' places."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.errors import DTypeError, LazytError, NotSupportedError, ShapeError, StateError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        self.again = self.body[0]
        self.register_buffer("shift", lt.zeros(2))

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        return self.body(x) * scale + self.shift


X = lt.asarray(np.arange(6.0, dtype="f4").reshape(2, 3))


def test_hooks_of_forward_in_order_with_keywords_and_after_errors() -> None:
    net, seen = Net(), []
    net.register_forward_pre_hook(lambda m, args: seen.append("second"))
    net.register_forward_pre_hook(lambda m, args: seen.append("first"), prepend=True)
    net.register_forward_pre_hook(lambda m, args, kw: (args, {"scale": 0.0}), with_kwargs=True)
    after = net.register_forward_hook(lambda m, args, kw, out: out + kw["scale"] + 5, with_kwargs=True)
    assert net(X, scale=3.0).tolist() == [[5.0, 5.0], [5.0, 5.0]] and seen == ["first", "second"]
    after.remove()
    net.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    with pytest.raises(ShapeError):
        net(lt.ones((2, 7)))
    assert seen[-1] is None
    net.register_forward_pre_hook(lambda m, args, kw: 3, with_kwargs=True)
    with pytest.raises(
        LazytError, match=r"Net: a forward pre-hook with kwargs returns None or \(args, kwargs\), got 3"
    ):
        net(X)


def test_hooks_of_backward_see_and_replace_gradients() -> None:
    layer = nn.Linear(3, 2)
    x = lt.tensor(np.ones((1, 3), "f4"), requires_grad=True)
    seen: list[Any] = []
    layer.register_full_backward_pre_hook(lambda m, out: (out[0] * 2,))
    handle = layer.register_full_backward_hook(lambda m, given, out: (seen.append((given, out)), (given[0] * 10,))[1])
    layer(x).sum().backward()
    weight = layer.weight.detach().numpy()
    np.testing.assert_allclose(x.grad.numpy(), 20 * weight.sum(0, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(layer.bias.grad.numpy(), [2.0, 2.0])
    (given,), (out,) = seen[0]
    np.testing.assert_allclose(given.numpy(), 2 * weight.sum(0, keepdims=True), rtol=1e-6)
    assert out.tolist() == [[2.0, 2.0]]
    handle.remove()
    x.grad = None
    layer(x).sum().backward()
    assert len(seen) == 1
    layer.register_full_backward_hook(lambda m, given, out: (1, 2))
    with pytest.raises(LazytError, match="Linear: a full backward hook returns 1 gradients or None, got 2"):
        layer(x).sum().backward()


def test_hooks_of_backward_see_all_inputs_and_outputs_at_once() -> None:
    class Pair(nn.Module):
        def forward(self, a: Any, n: int, b: Any) -> Any:
            return a * b, a + n

    pair, seen = Pair(), []
    pair.register_full_backward_hook(lambda m, given, out: seen.append((given, out)))
    a, b = (lt.tensor(np.full((2,), k, "f4"), requires_grad=True) for k in (2.0, 3.0))
    product, total = pair(a, 1, b)
    (product.sum() + 5 * total.sum()).backward()
    assert a.grad.tolist() == [8.0, 8.0] and b.grad.tolist() == [2.0, 2.0]
    ((ga, none, gb), (gp, gt)) = seen[0]
    assert none is None and ga.tolist() == [8.0, 8.0] and gb.tolist() == [2.0, 2.0]
    assert gp.tolist() == [1.0, 1.0] and gt.tolist() == [5.0, 5.0]
    wide = lt.tensor(np.ones(2), requires_grad=True)
    with pytest.raises(
        NotSupportedError, match="Pair: not supported: full backward hooks of tensors of several dtypes"
    ):
        pair(a, 1, wide)


def test_hooks_of_backward_are_called_where_no_input_has_a_gradient() -> None:
    layer, seen = nn.Linear(3, 2), []
    layer.register_full_backward_hook(lambda m, given, out: seen.append((given, out)))
    layer(X).sum().backward()
    assert seen[0][0] == (None,) and seen[0][1][0].shape == (2, 2)
    with lt.no_grad():
        layer(X)
    layer.register_full_backward_hook(lambda m, given, out: (out[0],))
    with pytest.raises(LazytError, match="replaced the gradients of inputs, of which none requires grad"):
        layer(X).sum().backward()


def test_hooks_of_all_modules() -> None:
    seen: list[str] = []
    names = lambda m, *_: seen.append(type(m).__name__)
    handles = [
        nn.register_module_forward_pre_hook(names),
        nn.register_module_forward_hook(names, always_call=True),
        nn.register_module_full_backward_hook(names),
        nn.register_module_full_backward_pre_hook(names),
    ]
    try:
        nn.Linear(3, 2)(X).sum().backward()
        assert seen == ["Linear"] * 4
    finally:
        for handle in handles:
            handle.remove()
    nn.Linear(3, 2)(X)
    assert len(seen) == 4


def test_hooks_of_state() -> None:
    net, seen = Net(), []
    net.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append((prefix, keep)))
    net.body.register_state_dict_post_hook(lambda m, state, prefix, meta: state.update({prefix + "note": lt.ones(1)}))
    state = net.state_dict(prefix="model.", keep_vars=True)
    assert seen == [("model.", True)] and "model.body.note" in state
    assert state["model.body.0.weight"] is net.body[0].weight
    more: dict[str, Any] = {"other": 1}
    assert net.state_dict(destination=more) is more and "shift" in more
    plain = {k.removeprefix("model."): v for k, v in state.items() if "note" not in k}

    def renamed(m: Any, given: Any, prefix: str, *rest: Any) -> None:
        given[prefix + "shift"] = given.pop("moved")

    net.register_load_state_dict_pre_hook(renamed)
    net.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
    plain["moved"] = plain.pop("shift")
    del plain["body.0.bias"]
    assert net.load_state_dict(plain, strict=False).missing_keys == []
    assert "moved" in plain
    net.register_load_state_dict_post_hook(lambda m, keys: keys)
    with pytest.raises(DTypeError, match="Net: a load_state_dict post-hook changes the keys in place"):
        net.load_state_dict(plain, strict=False)


def test_extra_state_is_saved_and_set() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def get_extra_state(self) -> Any:
            return {"count": self.count}

        def set_extra_state(self, state: Any) -> None:
            self.count = state["count"]

    one, two = nn.Sequential(Counter()), nn.Sequential(Counter())
    one[0].count = 7
    assert list(one.state_dict()) == ["0._extra_state"]
    two.load_state_dict(one.state_dict())
    assert two[0].count == 7
    with pytest.raises(ShapeError, match=r'Missing key\(s\) in state_dict: "0._extra_state"'):
        two.load_state_dict({})


def test_a_state_that_does_not_fit_lists_everything_at_once() -> None:
    net = Net()
    state = net.state_dict()
    wrong = {k: v for k, v in state.items() if k != "shift"}
    wrong |= {"more": lt.ones(1), "body.0.bias": lt.ones(9), "body.2.weight": lt.ones((1, 1))}
    with pytest.raises(RuntimeError) as found:  # as PyTorch's
        net.load_state_dict(wrong)
    assert isinstance(found.value, StateError)
    text = str(found.value)
    given = "copying a param with shape"
    for part in (
        'load_state_dict of Net: Missing key(s) in state_dict: "shift"; Unexpected key(s) in state_dict: "more"; size',
        f"size mismatch for body.0.bias: {given} (9,) from checkpoint, the shape in current model is (4,)",
        f"size mismatch for body.2.weight: {given} (1, 1) from checkpoint, the shape in current model is (2, 4)",
    ):
        assert part in text
    with pytest.raises(DTypeError, match="a dict of tensors is required, got list"):
        net.load_state_dict([1])  # type: ignore[arg-type]


def test_a_state_can_be_assigned() -> None:
    layer = nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    state = {"weight": lt.ones((2, 2), dtype="float64"), "bias": lt.zeros(2)}
    assert repr(layer.load_state_dict(state, assign=True)) == "<All keys matched successfully>"
    assert layer.weight.dtype == np.float64 and layer.weight.requires_grad and not layer.bias.requires_grad


def test_frozen_parameters_and_buffers_are_registered_by_assignment() -> None:
    m = nn.Module()
    m.frozen = nn.Parameter(lt.ones(2), requires_grad=False)
    m.kept, m.scratch = nn.Buffer(lt.zeros(1)), nn.Buffer(lt.zeros(1), persistent=False)
    assert [n for n, _ in m.named_parameters()] == ["frozen"] and list(m.state_dict()) == ["frozen", "kept"]
    assert isinstance(m.frozen, nn.Parameter) and isinstance(m.kept, nn.Buffer)
    assert not isinstance(lt.ones(2), nn.Parameter | nn.Buffer)
    m.double()
    assert m.frozen.dtype == np.float64 and isinstance(m.frozen, nn.Parameter) and isinstance(m.kept, nn.Buffer)
    m.register_buffer("count", lt.zeros((), dtype="int64"))
    assert m.type("float32").count.dtype == np.float32
    m.w = nn.Parameter(lt.ones(1))
    with pytest.raises(DTypeError, match="type: a floating dtype is required for parameter 'w', got int32"):
        m.type("int32")
    with pytest.raises(DTypeError, match="parameter 'p' is a leaf tensor or None, got a float"):
        m.register_parameter("p", 1.0)
    with pytest.raises(DTypeError, match="buffer 'b' is a tensor or None, got a list"):
        m.register_buffer("b", [1.0])
    with pytest.raises(DTypeError, match="child 'c' is a Module or None, got a str"):
        m.register_module("c", "x")  # type: ignore[arg-type]


def test_what_is_a_child_or_a_buffer_stays_one() -> None:
    m = nn.Module()
    m.layer = nn.Linear(1, 1)
    m.register_buffer("mean", lt.zeros(1))
    with pytest.raises(DTypeError, match=r"cannot assign 'int' to 'layer', which is a submodule \(Module or None exp"):
        m.layer = 3
    with pytest.raises(DTypeError, match=r"cannot assign 'float' to 'mean', which is a buffer \(a tensor or None exp"):
        m.mean = 0.5
    m.layer, m.mean = nn.ReLU(), lt.ones(1)
    assert list(m.state_dict()) == ["mean"] and isinstance(m.layer, nn.ReLU)
    del m.layer, m.mean
    m.layer, m.mean = 3, 0.5
    assert (m.layer, m.mean, list(m.children())) == (3, 0.5, [])


def test_the_tree_once_or_by_every_path() -> None:
    net = Net()
    assert [n for n, _ in net.named_modules()].count("again") == 0
    assert "again" in [n for n, _ in net.named_modules(remove_duplicate=False)]
    assert "again.weight" in [n for n, _ in net.named_parameters(remove_duplicate=False)]
    assert net.get_buffer("shift") is net.shift
    with pytest.raises(AttributeError, match="no buffer 'body'"):
        net.get_buffer("body")
    net.set_submodule("body.1", nn.Tanh())
    assert isinstance(net.body[1], nn.Tanh)
    with pytest.raises(AttributeError, match="'Sequential' has no submodule 'act'"):
        net.set_submodule("body.act", nn.Tanh(), strict=True)
    with pytest.raises(DTypeError, match="set_submodule: a Module is required, got a int"):
        net.set_submodule("body.1", 3)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="train: mode is True or False, got 'yes'"):
        net.train("yes")  # type: ignore[arg-type]
    with pytest.raises(NotSupportedError, match="compile: not needed"):
        net.compile()


def test_to_takes_a_tensor_and_pytorchs_positions() -> None:
    layer = nn.Linear(2, 1).to(lt.ones(1, dtype="float64"))
    assert layer.weight.dtype == np.float64
    assert layer.to("cpu", lt.float32, True).weight.dtype == np.float32


def test_copies_and_pickles_keep_what_is_shared() -> None:
    net = Net()
    net.again.bias.requires_grad_(False)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other.again is other.body[0] and other.body[0].weight is not net.body[0].weight
        assert other.body[0].weight.requires_grad and not other.again.bias.requires_grad
        np.testing.assert_array_equal(other(X).detach().numpy(), net(X).detach().numpy())
        assert list(other.state_dict()) == list(net.state_dict())


def test_a_deep_copy_has_the_gradients_too() -> None:
    net = Net()
    net(X).sum().backward()
    other = copy.deepcopy(net)
    for layers in (net, other):
        lt.optim.SGD(layers.parameters(), 0.5).step()
    for mine, theirs in zip(net.parameters(), other.parameters(), strict=True):
        np.testing.assert_array_equal(mine.detach().numpy(), theirs.detach().numpy())
        assert theirs.grad is not mine.grad
    net(X).sum().backward()  # which adds to its own gradients alone
    assert (net.body[0].weight.grad != other.body[0].weight.grad).any()


def test_an_error_names_the_layer_by_its_path() -> None:
    with pytest.raises(ShapeError) as found:
        Net()(lt.ones((2, 7)))
    assert found.value.__notes__ == [
        "in the forward of Net.body.0, which is Linear(in_features=3, out_features=4, bias=True)"
    ]
