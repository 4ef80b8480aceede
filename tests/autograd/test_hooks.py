"""Hooks: where Python functions take a cotangent over, in derivatives of derivatives too."""

from __future__ import annotations

import pytest

import lazyt as lt


@pytest.mark.parametrize("synced", [False, True])
def test_a_gradient_past_a_hook_is_derived_again_behind_a_sync(synced):
    x = lt.ones(3).requires_grad_()
    y = x * x
    y.register_hook(lambda g: None)
    z = y * y
    (g,) = lt.autograd.grad(z.sum(), [x], create_graph=True)
    penalty = (g * g).sum()
    if synced:
        lt.sync()
    penalty.backward()
    assert x.grad.tolist() == [96.0] * 3
    assert z.tolist() == [1.0] * 3


@pytest.mark.parametrize("synced", [False, True])
def test_a_gradient_penalty_of_a_network_with_a_backward_hook(synced):
    net = lt.nn.Sequential(lt.nn.Linear(2, 2, bias=False), lt.nn.Tanh(), lt.nn.Linear(2, 1, bias=False))
    lt.nn.init.constant_(net[0].weight, 0.5)
    lt.nn.init.constant_(net[2].weight, 1.0)
    net[1].register_full_backward_hook(lambda m, given, out: None)
    x = lt.asarray([[0.3, 0.4]]).requires_grad_()
    out = net(x)
    (g,) = lt.autograd.grad(out.sum(), [x], create_graph=True)
    penalty = (g * g).sum()
    if synced:
        lt.sync()
    penalty.backward()
    # With t = tanh(0.35) for both units, g = 1 - t^2 in both columns and the penalty is 2 * (1 - t^2)^2.
    t = lt.tanh(lt.asarray(0.35)).item()
    expected = -8 * t * (1 - t * t) ** 2 * 0.5
    assert x.grad.tolist()[0] == pytest.approx([expected] * 2, rel=1e-5)
    assert out.shape == (1, 1)
