"""Pooling layers and functions: errors, text and what stays dynamic; their values are in the golden files."""

from __future__ import annotations

import pytest

import lazyt as lt

nn, F = lt.nn, lt.nn.functional
X = lt.ones((2, 3, 8, 6))
I = lt.zeros((2, 3, 8, 6), dtype="int64")  # noqa: E741  indices


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: nn.MaxPool2d((2, 2, 2)), r"MaxPool2d: kernel_size is one or 2 integers, at least 1, got \(2, 2, 2\)"),
        (lambda: nn.AvgPool3d(2, 0), "AvgPool3d: stride is one or 3 integers, at least 1, got 0"),
        (lambda: nn.MaxPool1d(2)(X), "max_pool1d: an input of 2 or 3 dimensions is required, got 4"),
        (lambda: nn.MaxPool2d(2, padding=2, return_indices=True)(X), "max_pool2d: padding is at most half the window"),
        (lambda: nn.MaxPool2d(9)(X), "max_pool2d: a window of 9 does not fit into an extent of 8"),
        (lambda: F.avg_pool2d(X, 2, divisor_override=0), "avg_pool2d: divisor_override is not 0"),
        (lambda: nn.AdaptiveAvgPool2d(0), "AdaptiveAvgPool2d: output_size is one or 2 integers, at least 1"),
        (lambda: F.adaptive_max_pool2d(X, (3, 0)), r"adaptive_max_pool2d: output_size is one or 2 .*got \(3, 0\)"),
        (lambda: F.adaptive_avg_pool1d(X, 3), "adaptive_avg_pool1d: an input of 2 or 3 dimensions is required"),
        (lambda: F.adaptive_avg_pool2d(X[:, :, :0], 3), "adaptive_avg_pool2d: the pooled axes are not empty"),
        (lambda: F.lp_pool2d(X, 0, 2), "lp_pool2d: norm_type is a number other than 0, got 0"),
        (lambda: F.max_unpool2d(X, I[0], 2), "max_unpool2d: an input of 3 or 4 dimensions and indices of its shape"),
        (lambda: nn.MaxUnpool2d(2)(X, I, (16,)), "max_unpool2d: output_size has 2 extents"),
        (lambda: nn.MaxUnpool2d(2)(X, I, (16, 20)), r"less than a stride from \(16, 12\), got \(16, 20\)"),
    ],
)
def test_what_does_not_fit_is_named(call, match):
    with pytest.raises(lt.ShapeError, match=match):
        call()


def test_means_are_of_floats():
    with pytest.raises(lt.DTypeError, match="adaptive_avg_pool2d: a real floating dtype is required, got int64"):
        F.adaptive_avg_pool2d(I, 3)


def test_an_index_out_of_range_is_an_error_of_its_line():
    y = F.max_unpool2d(X, I + 10_000, 2)
    with pytest.raises(lt.IndexOutOfRange, match="10000"):
        y.numpy()


def test_text_is_pytorchs():
    assert repr(nn.MaxPool2d(2, ceil_mode=True)) == (
        "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=True)"
    )
    assert repr(nn.AvgPool1d(2)) == "AvgPool1d(kernel_size=(2,), stride=(2,), padding=(0,))"
    assert repr(nn.MaxUnpool2d(2)) == "MaxUnpool2d(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0))"
    assert repr(nn.LPPool2d(2, 3)) == "LPPool2d(norm_type=2, kernel_size=3, stride=None, ceil_mode=False)"
    assert repr(nn.AdaptiveAvgPool2d((2, None))) == "AdaptiveAvgPool2d(output_size=(2, None))"


def test_the_gradient_of_an_adaptive_mean_reads_and_does_not_scatter():
    x = lt.ones((1, 1, 7, 5)).requires_grad_()
    F.adaptive_avg_pool2d(x, (3, 2)).sum().backward()
    assert "scatter" not in str(lt.explain(x.grad))


def test_an_infinity_stays_in_its_windows():
    x = lt.asarray([[1.0, 2.0, float("inf"), 4.0, 5.0]])
    assert F.adaptive_avg_pool1d(x, 3).tolist() == [[1.5, float("inf"), 4.5]]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: nn.FractionalMaxPool2d(2), "FractionalMaxPool2d: give output_size or output_ratio, got None and None"),
        (lambda: nn.FractionalMaxPool2d(2, output_ratio=1.5), "output_ratio is one or 2 numbers between 0 and 1"),
        (lambda: nn.FractionalMaxPool2d(2, 8)(X), r"fractional_max_pool2d: \(8, 8\) windows of \(2, 2\) do not fit"),
        (lambda: nn.FractionalMaxPool3d(2, 3)(X[0, 0]), "fractional_max_pool3d: an input of 4 or 5 dimensions"),
        (lambda: F.fractional_max_pool2d(X, 2, 3, None, False, lt.ones(3)), r"random samples of shape \(2, 3, 2\)"),
    ],
)
def test_fractional_windows_that_do_not_fit_are_named(call, match):
    with pytest.raises(lt.ShapeError, match=match):
        call()


def test_fractional_windows_follow_the_seed():
    x = lt.arange(2 * 3 * 8 * 6, dtype="float32").reshape(2, 3, 8, 6)
    lt.random.seed(3)
    first, second = (nn.FractionalMaxPool2d(2, (5, 4))(x).tolist() for _ in range(2))
    lt.random.seed(3)
    assert nn.FractionalMaxPool2d(2, (5, 4))(x).tolist() == first != second
