"""Convolution layers and functions: errors, text and state; their values are in the golden files."""

from __future__ import annotations

import re

import pytest

import lazyt as lt

nn, F = lt.nn, lt.nn.functional
X = lt.ones((2, 4, 6, 5))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: nn.Conv2d(4, 6, 3, groups=3), "Conv2d: 3 groups do not divide 4 and 6 channels"),
        (lambda: nn.Conv2d(4, 6, 3, groups=0), "Conv2d: groups is one or 1 integers, at least 1, got 0"),
        (lambda: nn.Conv3d(4, 6, (3, 3)), r"Conv3d: kernel_size is one or 3 integers, at least 1, got \(3, 3\)"),
        (lambda: nn.Conv1d(4, 6, 3, padding="full"), "Conv1d: padding is integers, 'same' or 'valid', got 'full'"),
        (lambda: nn.Conv1d(4, 6, 3, 2, "same"), "Conv1d: padding='same' is for a stride of 1, got 2"),
        (lambda: nn.Conv1d(4, 6, 3, padding_mode="wrap"), "Conv1d: padding_mode 'wrap' is not one of zeros, reflect"),
        (lambda: nn.Conv2d(3, 6, 3)(X), "conv2d: 4 input channels in 1 group do not fit a weight"),
        (lambda: nn.Conv2d(4, 6, 3, 1, 6, padding_mode="reflect")(X), "Conv2d: mode 'reflect' pads axis 3"),
        (lambda: nn.ConvTranspose2d(4, 6, 3, padding_mode="reflect"), "ConvTranspose2d: padding_mode is 'zeros'"),
        (lambda: nn.ConvTranspose2d(4, 6, 3, padding="same"), "ConvTranspose2d: padding is integers, got 'same'"),
        (lambda: nn.ConvTranspose2d(4, 6, 3, groups=4), "ConvTranspose2d: 4 groups do not divide 4 and 6 channels"),
        (lambda: nn.ConvTranspose2d(4, 6, 3, 2, output_padding=2)(X), "conv_transpose2d: output_padding is smaller"),
        (lambda: nn.ConvTranspose2d(3, 6, 3)(X), "conv_transpose2d: 4 input channels in 1 group do not fit a weight"),
        (lambda: nn.ConvTranspose2d(4, 6, 3, 2)(X, output_size=(9, 11)), r"output_size is from \(13, 11\) to \(14"),
        (lambda: nn.ConvTranspose2d(4, 6, 3, 2)(X, output_size=(9,)), "output_size has 2 or 4 extents"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(call, match):
    with pytest.raises(lt.ShapeError, match=match):
        call()


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (lambda: nn.Conv1d(2, 3, 4), "Conv1d(2, 3, kernel_size=(4,), stride=(1,))"),
        (
            lambda: nn.Conv2d(2, 4, 3, padding="same", padding_mode="reflect", groups=2, dilation=2, bias=False),
            (
                "Conv2d(2, 4, kernel_size=(3, 3), stride=(1, 1), padding=same, dilation=(2, 2), groups=2, bias=False, "
                "padding_mode=reflect)"
            ),
        ),
        (
            lambda: nn.ConvTranspose1d(2, 4, 3, dilation=2, groups=2, bias=False),
            "ConvTranspose1d(2, 4, kernel_size=(3,), stride=(1,), dilation=(2,), groups=2, bias=False)",
        ),
    ],
)
def test_text_is_pytorchs(layer, text):
    assert repr(layer()) == text


@pytest.mark.parametrize("make", [nn.Conv2d, nn.ConvTranspose2d])
def test_parameters_have_the_dtype_and_the_spread_of_pytorchs(make):
    lt.random.seed(0)
    layer = make(4, 6, 3, groups=2, dtype="float64", device="cpu")
    assert {p.dtype for p in layer.parameters()} == {lt.float64}
    bound = float(lt.prod(lt.asarray(layer.weight.shape[1:]))) ** -0.5
    for p in layer.parameters():
        assert 0.5 * bound < float(lt.abs(p).max()) <= bound


def test_a_transposed_convolution_is_a_convolution_and_no_scatter():
    text = str(F.conv_transpose2d(X, lt.ones((4, 2, 4, 4)), stride=2, padding=1).explain())
    assert re.search(r"conv_transpose2d: .* product, .* @ ", text)
    assert "scatter" not in text
