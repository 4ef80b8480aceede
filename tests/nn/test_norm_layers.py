"""Normalising layers: errors, text and statistics; their values are in the golden files."""

from __future__ import annotations

import pytest

import lazyt as lt

nn, F = lt.nn, lt.nn.functional
ROW, IMAGE = lt.ones((2, 3, 5)), lt.ones((2, 4, 3, 2))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: nn.BatchNorm3d(4)(IMAGE), r"BatchNorm3d: an input of 5 dimensions is required"),
        (lambda: nn.InstanceNorm1d(3)(IMAGE), "InstanceNorm1d: an input of 2 or 3 dimensions is required"),
        (lambda: nn.InstanceNorm2d(3, affine=True)(IMAGE), "InstanceNorm2d: 3 channels are required, got shape"),
        (lambda: nn.InstanceNorm1d(3)(ROW[..., :1]), "instance_norm: more than one value a channel of a sample"),
        (lambda: F.instance_norm(ROW, use_input_stats=False), "instance_norm: running statistics are required"),
        (lambda: F.instance_norm(ROW, weight=lt.ones(2)), r"instance_norm: weight and bias of shape \(3,\)"),
        (lambda: nn.GroupNorm(3, 4), "GroupNorm: 3 groups do not divide 4 channels"),
        (lambda: nn.GroupNorm(2, 4)(ROW), r"GroupNorm: an input \(N, 4, ...\) is required, got shape \(2, 3, 5\)"),
        (lambda: F.local_response_norm(lt.ones((2, 3)), 2), r"local_response_norm: an input \(N, C, ...\)"),
        (lambda: nn.LocalResponseNorm(0)(ROW), "a size of at least 1 are required, got shape .* and 0"),
    ],
)
def test_what_does_not_fit_is_named(call, match):
    with pytest.raises(lt.ShapeError, match=match):
        call()


def test_text_is_pytorchs():
    assert repr(nn.BatchNorm1d(3, momentum=None)) == (
        "BatchNorm1d(3, eps=1e-05, momentum=None, affine=True, bias=True, track_running_stats=True)"
    )
    assert repr(nn.InstanceNorm1d(3)) == (
        "InstanceNorm1d(3, eps=1e-05, momentum=0.1, affine=False, bias=False, track_running_stats=False)"
    )
    assert repr(nn.GroupNorm(2, 4)) == "GroupNorm(2, 4, eps=1e-05, affine=True, bias=True)"
    assert repr(nn.LayerNorm(4, bias=False)) == "LayerNorm((4,), eps=1e-05, elementwise_affine=True, bias=False)"
    assert repr(nn.RMSNorm(4)) == "RMSNorm((4,), eps=None, elementwise_affine=True)"
    assert repr(nn.LocalResponseNorm(2)) == "LocalResponseNorm(2, alpha=0.0001, beta=0.75, k=1.0)"


def test_statistics_and_parameters_go_back_to_their_first_values():
    layer = nn.BatchNorm2d(4, dtype="float64", device="cpu")
    before = {k: v.tolist() for k, v in layer.state_dict().items()}
    layer(lt.random.normal(size=(2, 4, 3, 2)))
    nn.init.constant_(layer.weight, 3.0)
    assert {k: v.tolist() for k, v in layer.state_dict().items()} != before
    layer.reset_parameters()
    assert {k: v.tolist() for k, v in layer.state_dict().items()} == before


def test_running_statistics_are_moved_without_a_sync():
    layer = nn.InstanceNorm2d(4, track_running_stats=True)
    with lt.no_sync():
        layer(IMAGE * 2)
        layer(IMAGE * 3)
    assert layer.running_mean.tolist() == pytest.approx([0.1 * 2 * 0.9 + 0.1 * 3] * 4)
