"""Padding layers and `functional.pad`: errors and text; their values are in the golden files."""

from __future__ import annotations

import pytest

import lazyt as lt

nn, F = lt.nn, lt.nn.functional
X = lt.ones((2, 3, 5))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: F.pad(X, (1, 2), "edge"), "pad: mode 'edge' is not one of constant, reflect, replicate, circular"),
        (lambda: F.pad(X, (1, 2), "reflect", 1.0), "pad: mode 'reflect' takes no value, got 1.0"),
        (lambda: F.pad(X, (1, 2, 3)), r"pad: pad is a pair for each of the last axes of shape \(2, 3, 5\), got"),
        (lambda: F.pad(X, (1, 2) * 4), "pad: pad is a pair for each"),
        (lambda: F.pad(X, (1, 2) * 3, "reflect"), "pad: mode 'reflect' pads one to three axes .* got 3 pairs"),
        (lambda: F.pad(X, (5, 0), "reflect"), "pad: mode 'reflect' pads axis 2 .* by at most 4, got"),
        (lambda: F.pad(X, (6, 0), "circular"), "pad: mode 'circular' pads axis 2 .* by at most 5, got"),
        (lambda: F.pad(X, (-3, -3)), r"pad: widths \(-3, -3\) leave nothing of axis 2"),
        (lambda: nn.ReflectionPad1d(7)(X), "ReflectionPad1d: mode 'reflect' pads axis 2 .* by at most 4"),
        (lambda: nn.ReflectionPad2d((1, 2)), r"ReflectionPad2d: padding is one or 4 integers, got \(1, 2\)"),
        (lambda: nn.CircularPad3d(1)(X), "CircularPad3d: an input of 4 or 5 dimensions is required, got"),
    ],
)
def test_what_does_not_fit_is_named(call, match):
    with pytest.raises(lt.ShapeError, match=match):
        call()


def test_widths_are_integers_in_a_sequence():
    with pytest.raises(lt.DTypeError, match="pad: pad is a sequence of widths, got 1"):
        F.pad(X, 1)
    with pytest.raises(TypeError, match="ZeroPad1d: padding"):
        nn.ZeroPad1d(1.5)


def test_text_is_pytorchs():
    assert repr(nn.ZeroPad2d(1)) == "ZeroPad2d((1, 1, 1, 1))"
    assert repr(nn.ConstantPad1d(2, 3.0)) == "ConstantPad1d(padding=(2, 2), value=3.0)"


def test_padding_is_one_step():
    with lt.no_sync():
        y = F.pad(X, (1, 2, 1, 0), "replicate")
    assert "pending: pad" in repr(y)
