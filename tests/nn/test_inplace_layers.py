"""Layers with `inplace=True` write their result to their input, under PyTorch's rules."""

from __future__ import annotations

from typing import Any

import pytest

import lazyt as lt
from lazyt import nn

LAYERS: list[Any] = [
    nn.ReLU(True), nn.ReLU6(True), nn.ELU(1.0, True), nn.SELU(True), nn.CELU(1.0, True), nn.LeakyReLU(0.1, True),
    nn.SiLU(True), nn.Mish(True), nn.Hardtanh(-1.0, 1.0, True), nn.Hardswish(True), nn.Hardsigmoid(True),
    nn.Threshold(0.5, 0.0, True), nn.RReLU(inplace=True), nn.Dropout(0.5, True), nn.AlphaDropout(0.5, True),
    nn.Dropout1d(0.5, True), nn.FeatureAlphaDropout(0.5, True),
]  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS, ids=lambda m: type(m).__name__)
def test_the_result_is_the_input(layer: nn.Module) -> None:
    assert "inplace=True" in repr(layer)
    x = lt.asarray([[0.25, -2.0, 8.0]])
    version, part = x._version, x[0]
    y = layer(x)
    assert y is x and x._version > version
    assert part.tolist() == x[0].tolist(), "a view sees what is written"


def test_a_leaf_that_requires_grad_is_refused() -> None:
    x = lt.ones(3).requires_grad_()
    with pytest.raises(lt.AutogradError, match="a leaf Variable that requires grad is being used in an in-place"):
        nn.ReLU(inplace=True)(x)
    with pytest.raises(lt.DTypeError, match="inplace=True: a tensor is required, which is written, got list"):
        nn.SiLU(inplace=True)([1.0])


def test_what_others_need_is_not_overwritten_unseen() -> None:
    x = lt.ones(3).requires_grad_()
    y = x * 2
    squared = y * y
    nn.ReLU(inplace=True)(y)
    with pytest.raises(lt.AutogradError, match="has been modified by an inplace operation"):
        squared.sum().backward()


def test_dropout_that_does_nothing_writes_nothing() -> None:
    x = lt.ones(3).requires_grad_()
    assert nn.Dropout(0.5, inplace=True).eval()(x) is x


def test_a_net_with_activations_in_place_is_one_plan() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(True), nn.Linear(4, 1), nn.LeakyReLU(0.2, inplace=True))
    optimizer = lt.optim.SGD(net.parameters(), lr=0.1)
    x = lt.ones((2, 3))
    for _ in range(3):
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
        lt.sync()
    assert lt.last_sync().compiles == 0 and lt.last_sync().plan_hit
