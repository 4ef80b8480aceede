"""Convolutions, by layers and functions."""

from tests.support.torch_golden import Case

ROW, IMAGE, BLOCK = (2, 4, 7), (2, 4, 6, 5), (2, 4, 4, 5, 3)

CASES = [
    Case("conv1d", lambda t: t.nn.Conv1d(4, 6, 3), (ROW,), steps=3),
    Case("conv1d unbatched", lambda t: t.nn.Conv1d(4, 2, 3, 2, 1), (ROW[1:],), steps=0),
    Case("conv1d circular", lambda t: t.nn.Conv1d(4, 2, 4, padding=2, padding_mode="circular"), (ROW,), steps=0),
    Case("conv1d same even", lambda t: t.nn.Conv1d(4, 2, 4, padding="same", dilation=2), (ROW,), steps=0),
    Case("conv1d function", lambda t: t.nn.functional.conv1d, (ROW, (3, 4, 2), (3,)), steps=0),
    Case("conv2d", lambda t: t.nn.Conv2d(4, 3, (3, 2), (2, 1), (1, 0), bias=False), (IMAGE,), steps=3),
    Case("conv2d groups", lambda t: t.nn.Conv2d(4, 6, 2, dilation=2, groups=2), (IMAGE,), steps=0),
    Case("conv2d depthwise", lambda t: t.nn.Conv2d(4, 8, 3, padding=1, groups=4), (IMAGE,), steps=0),
    Case("conv2d valid", lambda t: t.nn.Conv2d(4, 2, 3, padding="valid"), (IMAGE,), steps=0),
    Case(
        "conv2d reflect", lambda t: t.nn.Conv2d(4, 2, 3, 2, padding=(2, 1), padding_mode="reflect"), (IMAGE,), steps=0
    ),
    Case(
        "conv2d replicate same",
        lambda t: t.nn.Conv2d(4, 2, (4, 3), padding="same", padding_mode="replicate"),
        (IMAGE,),
        steps=0,
    ),
    Case("conv2d unbatched circular", lambda t: t.nn.Conv2d(4, 2, 3, 1, 1, padding_mode="circular"), (IMAGE[1:],), 0),
    Case("conv3d", lambda t: t.nn.Conv3d(4, 3, (3, 2, 2)), (BLOCK,), steps=3),
    Case("conv3d options", lambda t: t.nn.Conv3d(4, 2, 2, (1, 2, 1), (1, 0, 2), (2, 1, 2), 2), (BLOCK,), steps=0),
    Case("conv3d depthwise", lambda t: t.nn.Conv3d(4, 4, 2, padding=1, groups=4, bias=False), (BLOCK,), steps=0),
    Case("conv3d replicate", lambda t: t.nn.Conv3d(4, 2, 3, padding=1, padding_mode="replicate"), (BLOCK,), steps=0),
    Case("conv3d unbatched same", lambda t: t.nn.Conv3d(4, 2, (2, 3, 1), padding="same"), (BLOCK[1:],), steps=0),
    Case("conv3d point", lambda t: t.nn.functional.conv3d, (BLOCK, (3, 4, 1, 1, 1)), steps=0),
]
