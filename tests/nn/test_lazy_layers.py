"""Layers that learn their sizes at the first call: before it, at it, and what becomes of their state."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.errors import NotSupportedError, ShapeError


def net() -> Any:
    return nn.Sequential(nn.LazyConv1d(4, 3), nn.LazyBatchNorm1d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))


def test_a_net_becomes_the_ordinary_one() -> None:
    m = net()
    weight = m[4].weight
    assert isinstance(weight, nn.Parameter) and isinstance(weight, nn.UninitializedParameter)
    assert repr(m[4]) == "LazyLinear(in_features=0, out_features=2, bias=True)"
    assert isinstance(m[4], nn.Linear) and m[4].has_uninitialized_params()
    optimizer = lt.optim.SGD(m.parameters(), lr=0.1)
    before = m(lt.ones((2, 3, 6)))
    assert [type(x) for x in m] == [nn.Conv1d, nn.BatchNorm1d, nn.ReLU, nn.Flatten, nn.Linear]
    assert m[4].weight is weight and weight.shape == (2, 16) and not isinstance(weight, nn.UninitializedParameter)
    assert (m[0].in_channels, m[1].num_features, m[4].in_features) == (3, 4, 16)
    before.sum().backward()
    optimizer.step()
    assert not np.array_equal(m(lt.ones((2, 3, 6))).detach().numpy(), before.detach().numpy())


def test_initial_values_are_those_of_the_ordinary_layer() -> None:
    lt.random.seed(3)
    plain = nn.Linear(3, 2)
    lt.random.seed(3)
    lazy = nn.LazyLinear(2)
    lazy(lt.ones(3))
    np.testing.assert_array_equal(lazy.weight.detach().numpy(), plain.weight.detach().numpy())


@pytest.mark.parametrize("read", [
    lambda w: w + 1, lambda w: lt.exp(w), lambda w: w.shape, lambda w: w.numpy(), lambda w: lt.sync(w),
    lambda w: w.clone(), lambda w: lt.ones(3) @ w, lambda w: len(w), lambda w: lt.asarray([1.0]) * w,
    lambda w: w.share_memory_(),
])  # fmt: skip
def test_what_has_no_value_says_what_to_do(read: Any) -> None:
    with pytest.raises(NotSupportedError, match=r"UninitializedParameter: not supported: .* call that once with an"):
        read(nn.LazyLinear(2).weight)


def test_dtype_and_device_before_the_first_call() -> None:
    m = net().double()
    assert m[4].weight.dtype == np.float64 and m[1].running_mean.dtype == np.float64
    m(lt.ones((2, 3, 6), dtype="float64"))
    assert {x.dtype for x in m.parameters()} == {np.dtype("float64")} and m[1].running_var.dtype == np.float64
    frozen = nn.LazyLinear(2).requires_grad_(False)
    frozen.bias.requires_grad = True
    frozen(lt.ones(3))
    assert not frozen.weight.requires_grad and frozen.weight.shape == (2, 3) and frozen.bias.requires_grad


def test_states_of_both_kinds_load_into_both_kinds() -> None:
    full = net()
    full(lt.ones((2, 3, 6)))
    empty = net()
    assert repr(empty.state_dict()["0.weight"]) == "<UninitializedParameter>"
    assert repr(net().load_state_dict(empty.state_dict())) == "<All keys matched successfully>"
    empty.load_state_dict(full.state_dict())
    x = lt.asarray(np.arange(36.0).reshape(2, 3, 6), dtype="float32")
    np.testing.assert_array_equal(empty.eval()(x).detach().numpy(), full.eval()(x).detach().numpy())
    assert (empty[0].in_channels, empty[1].num_features, empty[4].in_features) == (3, 4, 16)
    with pytest.raises(ShapeError, match=r"0.weight has no shape yet where \(4, 3, 3\) is required: call the saved"):
        full.load_state_dict(net().state_dict())
    waiting = net()
    with pytest.raises(ShapeError, match=r"Missing key\(s\) in state_dict"):
        waiting.load_state_dict({"0.weight": lt.ones((4, 3, 3))})
    assert waiting[0].has_uninitialized_params(), "nothing is loaded if something does not fit"
    other = net()
    other.load_state_dict(full.state_dict(), assign=True)
    assert other[4].weight.shape == (2, 16)


def test_copies_and_pickles_before_the_first_call() -> None:
    for m in (copy.deepcopy(net()), pickle.loads(pickle.dumps(net().double()))):
        assert m[4].has_uninitialized_params() and m[4].weight.requires_grad
        assert m(lt.ones((2, 3, 6), dtype=m[4].weight.dtype)).shape == (2, 2)


def test_a_module_that_users_write() -> None:
    class Scale(nn.lazy_layers.LazyModuleMixin):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.UninitializedParameter()

        def initialize_parameters(self, x: Any) -> None:
            if self.has_uninitialized_params():
                self.scale.materialize(x.shape[1:])
                nn.init.constant_(self.scale, 2.0)

        def forward(self, x: Any) -> Any:
            return x * self.scale

    m = Scale()
    assert m(lt.ones((2, 3))).tolist() == [[2.0] * 3] * 2 and m(lt.ones((1, 3))).shape == (1, 3)


def test_inputs_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match=r"LazyConv2d: an input of 3 or 4 dimensions is required, got shape \(3,\)"):
        nn.LazyConv2d(2, 3)(lt.ones(3))
    with pytest.raises(ShapeError, match=r"LazyConv1d: 2 groups do not divide 3 channels, of shape \(1, 3, 4\)"):
        nn.LazyConv1d(2, 1, groups=2)(lt.ones((1, 3, 4)))
    with pytest.raises(ShapeError, match="LazyConv1d: 2 groups do not divide 3 channels"):
        nn.LazyConv1d(3, 1, groups=2)
    with pytest.raises(ShapeError, match=r"LazyBatchNorm1d: an input of 2 or 3 dimensions is required, got shape \(2,"):
        nn.LazyBatchNorm1d()(lt.ones((2, 2, 2, 2)))
    with pytest.raises(ShapeError, match=r"LazyLinear: an input \(..., in_features\) is required, got shape \(\)"):
        nn.LazyLinear(2)(lt.ones(()))


def test_tensors_are_as_quick_to_ask_as_before() -> None:
    # That there are tensors among the classes of `nn` makes no method of all tensors a boundary.
    shape: Any = lt.Tensor.shape
    assert shape.fget.__code__.co_filename.endswith("tensor.py")
