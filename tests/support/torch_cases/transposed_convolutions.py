"""Transposed convolutions, by layers and functions."""

from tests.support.torch_golden import Case

ROW, IMAGE, BLOCK = (2, 4, 5), (2, 4, 3, 4), (2, 4, 2, 3, 2)


def with_size(make, *size):
    """A layer that is called with an output size."""

    def build(t):
        layer = make(t)
        inner = layer.forward
        layer.forward = lambda x: inner(x, output_size=size)
        return layer

    return build


CASES = [
    Case("1d", lambda t: t.nn.ConvTranspose1d(4, 3, 3), (ROW,), steps=3),
    Case("1d options", lambda t: t.nn.ConvTranspose1d(4, 2, 3, 2, 1, 1, 2, False, 2), (ROW,), steps=0),
    Case("1d unbatched", lambda t: t.nn.ConvTranspose1d(4, 2, 2, 3, 0, 2), (ROW[1:],), steps=0),
    Case("1d output padding by dilation", lambda t: t.nn.ConvTranspose1d(4, 2, 2, 1, 0, 2, dilation=3), (ROW,), 0),
    Case("1d output size", with_size(lambda t: t.nn.ConvTranspose1d(4, 2, 3, 3, 1), 14), (ROW,), steps=0),
    Case("1d function", lambda t: t.nn.functional.conv_transpose1d, (ROW, (4, 3, 2), (3,)), steps=0),
    Case("2d", lambda t: t.nn.ConvTranspose2d(4, 3, 4, 2, 1), (IMAGE,), steps=3),
    Case("2d plain", lambda t: t.nn.ConvTranspose2d(4, 3, (3, 2), bias=False), (IMAGE,), steps=0),
    Case("2d plain padded", lambda t: t.nn.ConvTranspose2d(4, 3, (3, 2), padding=1), (IMAGE,), steps=0),
    Case("2d options", lambda t: t.nn.ConvTranspose2d(4, 4, 3, (2, 3), (1, 0), (1, 2), 2, True, (1, 2)), (IMAGE,), 0),
    Case("2d depthwise", lambda t: t.nn.ConvTranspose2d(4, 4, 3, 2, groups=4), (IMAGE,), steps=0),
    Case("2d point", lambda t: t.nn.ConvTranspose2d(4, 2, 1, 2, 0, 1), (IMAGE,), steps=0),
    Case("2d unbatched", lambda t: t.nn.ConvTranspose2d(4, 2, 3, 2), (IMAGE[1:],), steps=0),
    Case("2d output size", with_size(lambda t: t.nn.ConvTranspose2d(4, 2, 3, 2, 1), 2, 2, 6, 7), (IMAGE,), steps=0),
    Case("3d", lambda t: t.nn.ConvTranspose3d(4, 3, (2, 3, 2), 2, (1, 0, 1), (0, 1, 1)), (BLOCK,), steps=3),
    Case("3d options", lambda t: t.nn.ConvTranspose3d(4, 2, 2, 1, 0, 0, 2, False, (2, 1, 1)), (BLOCK,), steps=0),
    Case("3d depthwise", lambda t: t.nn.ConvTranspose3d(4, 4, 2, (1, 2, 1), groups=4), (BLOCK,), steps=0),
    Case("3d unbatched", lambda t: t.nn.ConvTranspose3d(4, 2, 2, 2), (BLOCK[1:],), steps=0),
]
