"""nn.utils: total norms, fused layers, calls with other parameters, parametrizations and their removal."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.errors import LazytError, ShapeError
from lazyt.nn.utils import parametrizations, parametrize
from lazyt.nn.utils.stateless import functional_call

X = lt.asarray(np.random.default_rng(0).standard_normal((4, 3)).astype("f4"))


def values(x: Any) -> np.ndarray:
    return np.asarray(x.detach().numpy())


@pytest.mark.parametrize(
    ("order", "norm"),
    [(0, 2.0), (1, 19.0), (2, 75**0.5), (3, 307 ** (1 / 3)), (-1, 0.0), (-np.inf, 0.0), (np.inf, 5.0)],
)
def test_total_norms_of_every_order(order: float, norm: float) -> None:
    gradients = [lt.asarray([3.0, 0.0, 4.0]), lt.asarray([5.0, 4.0, 3.0]), lt.zeros(2)]
    parameters = [lt.zeros(g.shape).requires_grad_() for g in gradients]
    for p, g in zip(parameters, gradients, strict=True):
        p.grad = g
    assert nn.utils.get_total_norm(gradients, order).item() == pytest.approx(norm, rel=1e-6)
    found = nn.utils.clip_grad_norm_(parameters, 1.0, norm_type=order)
    assert found.item() == pytest.approx(norm, rel=1e-6)
    scale = min(1.0, 1 / (norm + 1e-6))
    np.testing.assert_allclose(parameters[1].grad.numpy(), np.multiply(scale, [5.0, 4.0, 3.0]), rtol=1e-5)


def test_norms_of_gradients() -> None:
    w = lt.tensor([3.0, 4.0], requires_grad=True)
    assert nn.utils.clip_grad_norm_([w], 1.0).item() == 0.0
    (w * lt.asarray([1.0, lt.nan])).sum().backward()
    with pytest.raises(LazytError, match=r"The total norm of order 2.0 for gradients .* is non-finite"):
        nn.utils.clip_grad_norm_(iter([w]), 1.0, error_if_nonfinite=True)
    with pytest.raises(ShapeError, match="vector_to_parameters: a vector of 2 elements is required, got"):
        nn.utils.vector_to_parameters(lt.ones(3), [w])
    with pytest.raises(ShapeError, match="parameters_to_vector: at least one parameter is required"):
        nn.utils.parameters_to_vector([])


def test_fused_layers_do_the_same() -> None:
    for layer, bn, fuse, x in (
        (nn.Linear(3, 2), nn.BatchNorm1d(2), nn.utils.fuse_linear_bn_eval, X),
        (nn.Conv2d(1, 2, 2, bias=False), nn.BatchNorm2d(2), nn.utils.fuse_conv_bn_eval, X.reshape(1, 1, 4, 3)),
    ):
        bn(layer(x) * 3 + 1)  # statistics other than 0 and 1
        with pytest.raises(LazytError, match=r"both modules in eval mode are required"):
            fuse(layer, bn)
        made = fuse(layer.eval(), bn.eval())
        np.testing.assert_allclose(values(made(x)), values(bn(layer(x))), rtol=1e-4, atol=1e-5)
        assert made is not layer and made.weight is not layer.weight
    with pytest.raises(LazytError, match="a batch norm with running statistics is required"):
        nn.utils.fuse_conv_bn_eval(layer, nn.BatchNorm2d(2, track_running_stats=False).eval())
    with pytest.raises(LazytError, match="fuse_linear_bn_eval: a batch norm of 3 features is required, got 2"):
        nn.utils.fuse_linear_bn_eval(nn.Linear(3, 3).eval(), nn.BatchNorm1d(2).eval())


def test_a_call_with_other_parameters_has_gradients_and_changes_nothing() -> None:
    net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    net[1].weight = net[0].weight
    own = net[0].weight
    w = lt.tensor(np.eye(3, dtype="f4"), requires_grad=True)
    y = functional_call(net, {"0.weight": w * 2}, X)
    np.testing.assert_allclose(values(y), values(X) * 4, rtol=1e-6)
    y.sum().backward()
    assert w.grad is not None and own.grad is None and net[1].weight is own
    loose = functional_call(net, ({"0.weight": w}, {"1.weight": w * 3}), (X,), tie_weights=False, strict=True)
    np.testing.assert_allclose(values(loose), values(X) * 3, rtol=1e-6)
    with pytest.raises(LazytError, match=r"functional_call of Sequential: unexpected keys \['2.weight'\]"):
        functional_call(net, {"2.weight": w}, X)
    with pytest.raises(LazytError, match=r"missing keys \['0.weight'\]"):
        functional_call(nn.Sequential(nn.Linear(3, 3)), {"0.bias": lt.ones(3)}, X, strict=True)
    with pytest.raises(LazytError, match=r"'0.weight'.* are in several dicts"):
        functional_call(net, ({"0.weight": w}, {"0.weight": w}), X)
    norm = nn.BatchNorm1d(3)
    mean = lt.zeros(3)
    functional_call(norm, {"running_mean": mean}, X)
    assert values(mean).any() and not values(norm.running_mean).any()


def test_a_module_without_initial_values_draws_nothing() -> None:
    before = lt.random.get_state()
    layer = nn.utils.skip_init(nn.Linear, 3, 2)
    assert lt.random.get_state() == before and layer.weight.requires_grad
    with pytest.raises(LazytError, match="skip_init: a class of modules is required"):
        nn.utils.skip_init(len)


class Doubled(nn.Module):
    calls = 0

    def forward(self, x: Any) -> Any:
        Doubled.calls += 1
        return x * 2


def test_parametrized_tensors_are_computed_assigned_copied_and_removed() -> None:
    layer = nn.Linear(3, 2)
    weight = layer.weight
    parametrize.register_parametrization(layer, "weight", Doubled())
    assert parametrize.is_parametrized(layer) and not parametrize.is_parametrized(layer, "bias")
    assert type(layer).__name__ == "ParametrizedLinear" and layer.parametrizations.weight.original is weight
    assert parametrize.type_before_parametrizations(layer) is nn.Linear and "Doubled" in repr(layer)
    np.testing.assert_allclose(values(layer.weight), values(weight) * 2)
    layer.bias = nn.Parameter(lt.zeros(2))
    layer.weight = lt.ones((2, 3))
    assert values(weight).tolist() == np.ones((2, 3)).tolist()
    made = copy.deepcopy(layer)
    assert made.parametrizations.weight.original is not weight and (values(made.weight) == 2).all()
    with pytest.raises(LazytError, match="ParametrizedLinear: not supported: pickling a parametrized module"):
        pickle.dumps(layer)
    Doubled.calls = 0
    with parametrize.cached():
        layer(X), layer(X)
    assert Doubled.calls == 1
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and layer.weight is weight and (values(weight) == 2).all()
    parametrize.register_parametrization(layer, "weight", Doubled())
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert layer.weight is weight and (values(weight) == 2).all()


def test_parametrizations_that_do_not_fit_are_refused() -> None:
    class Wider(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.astype("float64")

    layer = nn.Linear(3, 2)
    with pytest.raises(LazytError, match="register_parametrization of 'w': Linear has no parameter or buffer"):
        parametrize.register_parametrization(layer, "w", Doubled())
    with pytest.raises(LazytError, match=r"a parametrization that gives float32 \(2, 3\) is required, got float64"):
        parametrize.register_parametrization(layer, "weight", Wider())
    assert not parametrize.is_parametrized(layer)
    with pytest.raises(LazytError, match=r"Linear.weight is not parametrized"):
        parametrize.remove_parametrizations(layer, "weight")
    parametrizations.weight_norm(layer)
    with pytest.raises(LazytError, match="is made of 2 tensors"):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    with pytest.raises(LazytError, match="the module to transfer from is not parametrized"):
        parametrize.transfer_parametrizations_and_params(nn.Linear(1, 1), layer)


def test_older_norms_are_applied_once_and_removed() -> None:
    layer = nn.Linear(3, 2)
    before = values(layer.weight)
    for add, remove in (
        (nn.utils.weight_norm, nn.utils.remove_weight_norm),
        (nn.utils.spectral_norm, nn.utils.remove_spectral_norm),
    ):
        with pytest.raises(LazytError, match=r"Linear.weight has no such norm"):
            remove(layer)
        add(layer)
        with pytest.raises(LazytError, match=r"Linear.weight has such a norm already"):
            add(layer)
        remove(layer)
        assert isinstance(layer.weight, nn.Parameter) and not layer._forward_pre_hooks
    ratio = values(layer.weight) / before
    np.testing.assert_allclose(ratio, np.full((2, 3), ratio[0, 0]), rtol=1e-5)


def test_spectral_norm_needs_an_axis_and_iterations() -> None:
    with pytest.raises(LazytError, match="spectral_norm: dim 2 is out of range for a weight of shape"):
        parametrizations.spectral_norm(nn.Linear(3, 2), dim=2)
    with pytest.raises(LazytError, match="spectral_norm: at least 1 power iteration is required, got 0"):
        parametrizations.spectral_norm(nn.Linear(3, 2), n_power_iterations=0)
    with pytest.raises(ShapeError, match="spectral_norm: a tensor 'w' of Linear is required, got None"):
        parametrizations.spectral_norm(nn.Linear(3, 2), "w")
    with pytest.raises(LazytError, match="weight_norm: dim 5 is out of range"):
        parametrizations.weight_norm(nn.Linear(3, 2), dim=5)
