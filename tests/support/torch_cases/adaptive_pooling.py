"""Pooling to a number of windows, by layers and functions."""

from tests.support.torch_golden import Case

ROW, IMAGE, BLOCK = (2, 3, 9), (2, 2, 7, 6), (1, 2, 5, 4, 6)

CASES = [
    Case("mean 1d", lambda t: t.nn.AdaptiveAvgPool1d(4), (ROW,)),
    Case("mean 1d divides", lambda t: t.nn.AdaptiveAvgPool1d(3), (ROW[1:],)),
    Case("mean 1d more", lambda t: t.nn.AdaptiveAvgPool1d(13), (ROW,)),
    Case("mean 2d", lambda t: t.nn.AdaptiveAvgPool2d((3, 4)), (IMAGE,)),
    Case("mean 2d mixed", lambda t: t.nn.AdaptiveAvgPool2d((3, 2)), (IMAGE,)),
    Case("mean 2d none", lambda t: t.nn.AdaptiveAvgPool2d((None, 4)), (IMAGE,)),
    Case("mean 2d function", lambda t: lambda x: t.nn.functional.adaptive_avg_pool2d(x, (1, None)), (IMAGE,)),
    Case("mean 3d", lambda t: t.nn.AdaptiveAvgPool3d((2, 3, 4)), (BLOCK,)),
    Case("mean 3d none", lambda t: t.nn.AdaptiveAvgPool3d((None, 2, None)), (BLOCK[1:],)),
    Case("max 1d", lambda t: t.nn.AdaptiveMaxPool1d(4, return_indices=True), (ROW,)),
    Case("max 1d divides", lambda t: t.nn.AdaptiveMaxPool1d(3, True), (ROW,)),
    Case("max 2d", lambda t: t.nn.AdaptiveMaxPool2d((3, 4), True), (IMAGE,)),
    Case("max 2d none", lambda t: t.nn.AdaptiveMaxPool2d((None, 4)), (IMAGE[1:],)),
    Case("max 2d more", lambda t: lambda x: t.nn.functional.adaptive_max_pool2d(x, 8), (IMAGE,)),
    Case("max 3d", lambda t: t.nn.AdaptiveMaxPool3d((2, 3, 4), True), (BLOCK,)),
]
