"""Resampling, folding and shuffling: errors, text, dtypes and laziness; their values are in the golden files."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt

nn, F = lt.nn, lt.nn.functional
ROW, IMAGE = lt.ones((2, 3, 5)), lt.ones((2, 4, 3, 2))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: F.interpolate(IMAGE, 4, mode="cubic"), "interpolate: mode 'cubic' is not one of nearest"),
        (
            lambda: F.interpolate(IMAGE, 4, mode="linear"),
            r"mode 'linear' is for 3 dimensions, got shape \(2, 4, 3, 2\)",
        ),
        (lambda: F.interpolate(IMAGE, 4, align_corners=True), "mode 'nearest' takes no align_corners, got True"),
        (
            lambda: F.interpolate(IMAGE, 4, antialias=True),
            "antialias is for bilinear, bicubic, lanczos, got mode 'nearest'",
        ),
        (
            lambda: F.interpolate(IMAGE, 4, mode="lanczos"),
            "mode 'lanczos' is for antialias=True and align_corners=False",
        ),
        (lambda: F.interpolate(IMAGE), "interpolate: give size or scale_factor, got None and None"),
        (lambda: F.interpolate(IMAGE, 4, 2.0), "interpolate: give size or scale_factor, got 4 and 2.0"),
        (lambda: F.interpolate(IMAGE, (4, 4, 4)), r"size is one number or 2 for shape .*, got \(4, 4, 4\)"),
        (lambda: F.interpolate(IMAGE, 4, recompute_scale_factor=True), "recompute_scale_factor is for a scale_factor"),
        (lambda: F.interpolate(IMAGE, scale_factor=0.1), r"the result has extents of at least 1, got \(0, 0\)"),
        (lambda: F.interpolate(IMAGE[:, :, :0], 4), "the resized axes are not empty"),
        (lambda: nn.Upsample(4, mode="trilinear")(IMAGE), "Upsample: mode 'trilinear' is for 5 dimensions"),
        (lambda: nn.PixelShuffle(0), "PixelShuffle: upscale_factor is one or 1 integers, at least 1, got 0"),
        (lambda: nn.PixelShuffle(3)(IMAGE), r"pixel_shuffle: a factor 3 is for \(..., C \* 9, H, W\), got shape"),
        (lambda: nn.PixelUnshuffle(2)(IMAGE), "pixel_unshuffle: a factor 2 is for"),
        (lambda: nn.ChannelShuffle(3)(IMAGE), "channel_shuffle: 3 groups do not divide the channels"),
        (lambda: nn.Unfold(2, padding=-1), "Unfold: padding is one or 2 integers, at least 0, got -1"),
        (lambda: nn.Fold((4, 4), 2)(ROW), r"fold: windows of \(2, 2\) on an image of \(4, 4\)"),
    ],
)
def test_what_does_not_fit_is_named(call, match):
    with pytest.raises(lt.ShapeError, match=match):
        call()


def test_interpolation_is_of_floats():
    with pytest.raises(lt.DTypeError, match="interpolate: mode 'bilinear' is for real floating dtypes, got int64"):
        F.interpolate(lt.zeros((1, 1, 2, 2), dtype="int64"), 4, mode="bilinear")


@pytest.mark.parametrize("dtype", ["uint8", "bool", "float16"])
@pytest.mark.parametrize("how", [{"size": (7, 5)}, {"scale_factor": 2}, {"size": (2, 1)}])
def test_nearest_elements_are_of_any_dtype(dtype, how):
    x = np.arange(12).reshape(1, 1, 4, 3).astype(dtype)
    y = F.interpolate(lt.asarray(x), **how).numpy()
    rows, cols = ((np.arange(n) * d // n) for n, d in zip(y.shape[2:], x.shape[2:], strict=True))
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x[:, :, rows][..., cols])


def test_a_whole_factor_is_movement_alone():
    x = lt.ones((1, 2, 3, 3)).requires_grad_()
    y = F.interpolate(x, scale_factor=2)
    assert "gather" not in str(y.explain())
    y.sum().backward()
    assert "scatter" not in str(lt.explain(x.grad))


def test_gradients_of_linear_resampling_read_and_do_not_scatter():
    x = lt.ones((1, 2, 3, 3)).requires_grad_()
    F.interpolate(x, (5, 7), mode="bilinear").sum().backward()
    assert "scatter" not in str(lt.explain(x.grad))


def test_second_derivatives_pass_through_resampling():
    x = lt.asarray(np.linspace(-1, 1, 9).reshape(1, 1, 3, 3))

    def f(x):
        return (F.interpolate(x, (4, 2), mode="bicubic") ** 3).sum()

    def slope(x):
        return (lt.grad(f)(x) * lt.sin(x)).sum()

    got, step = lt.grad(slope)(x).detach().numpy(), 1e-5
    for at in np.ndindex(x.shape):
        d = np.zeros(x.shape)
        d[at] = step
        want = (float(slope(x + lt.asarray(d))) - float(slope(x - lt.asarray(d)))) / (2 * step)
        assert got[at] == pytest.approx(want, rel=1e-6, abs=1e-6)


def test_text_is_pytorchs():
    assert repr(nn.Upsample(scale_factor=2)) == "Upsample(scale_factor=2.0, mode='nearest')"
    assert repr(nn.UpsamplingBilinear2d(4)) == "UpsamplingBilinear2d(size=4, mode='bilinear')"
    assert repr(nn.PixelShuffle(2)) == "PixelShuffle(upscale_factor=2)"
    assert repr(nn.Fold((4, 5), 2)) == "Fold(output_size=(4, 5), kernel_size=2, dilation=1, padding=0, stride=1)"
    assert repr(nn.ChannelShuffle(2)) == "ChannelShuffle(groups=2)"


GRID = lt.zeros((2, 1, 1, 2))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: F.grid_sample(IMAGE, GRID, "linear"), "grid_sample: mode 'linear' is not one of bilinear, nearest"),
        (lambda: F.grid_sample(IMAGE, GRID, padding_mode="wrap"), "padding_mode 'wrap' is not one of zeros, border"),
        (
            lambda: F.grid_sample(IMAGE, GRID[:1]),
            r"grid_sample: an input .* got shapes \(2, 4, 3, 2\) and \(1, 1, 1, 2\)",
        ),
        (lambda: F.affine_grid(lt.ones((1, 2, 3)), (2, 1, 4, 4)), r"affine_grid: .* got shape \(1, 2, 3\) for \(2, 1,"),
    ],
)
def test_a_grid_that_does_not_fit_is_named(call, match):
    with pytest.raises(lt.ShapeError, match=match):
        call()


def test_grids_of_blocks_have_no_cubic_mode():
    with pytest.raises(lt.NotSupportedError, match="grid_sample: not supported: mode 'bicubic'"):
        F.grid_sample(lt.ones((1, 1, 2, 2, 2)), lt.zeros((1, 1, 1, 1, 3)), "bicubic")


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_a_position_that_is_no_number_reads_nothing(mode):
    y = F.grid_sample(IMAGE, GRID + float("nan"), mode).numpy()
    assert not np.nan_to_num(y).any()
