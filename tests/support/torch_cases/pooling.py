"""Pooling over windows, by layers and functions."""

import math

import numpy as np

from tests.support.torch_golden import Case

ROW, IMAGE, BLOCK = (2, 3, 9), (2, 2, 7, 6), (1, 2, 5, 4, 6)
# Equal elements and windows of nothing but the lowest value: which one is taken.
TIES = np.array([[[1.0, 1.0, 0.0, -math.inf, -math.inf, -math.inf, 2.0, 2.0, 2.0]]])


def fractional(name, *how):
    """Places of windows by samples, which are an input."""
    return lambda t: lambda x, u: getattr(t.nn.functional, name)(x, *how, True, _random_samples=u.detach())


SAMPLES = np.array([0.1, 0.7, 0.35, 0.9, 0.52, 0.04, 0.66, 0.23])


def unpooled(pool, unpool, **more):
    """What is pooled with indices, put back."""

    def build(t):
        first, second = pool(t.nn), unpool(t.nn)
        return lambda x: second(*first(x), **more)

    return build


CASES = [
    Case("max 1d", lambda t: t.nn.MaxPool1d(3), (ROW,)),
    Case("max 1d options", lambda t: t.nn.MaxPool1d(3, 2, 1, 2, True, True), (ROW,)),
    Case("max 1d unbatched", lambda t: t.nn.MaxPool1d(2, return_indices=True), (ROW[1:],)),
    Case("max 1d ties", lambda t: t.nn.MaxPool1d(3, 1, 1, return_indices=True), (TIES,), grad=False),
    Case("max 2d", lambda t: t.nn.MaxPool2d(2), (IMAGE,)),
    Case("max 2d options", lambda t: t.nn.MaxPool2d((3, 2), (2, 1), (1, 0), (1, 2), True), (IMAGE,)),
    Case("max 2d ceil", lambda t: t.nn.MaxPool2d(3, 2, 1, ceil_mode=True), (IMAGE,)),
    Case(
        "max 2d large",
        lambda t: lambda x: t.nn.functional.max_pool2d_with_indices(x, 9, 1, 4),
        ((1, 1, 10, 9),),
        grad=False,
    ),
    Case("max 3d", lambda t: t.nn.MaxPool3d(2, return_indices=True), (BLOCK,)),
    Case("max 3d options", lambda t: t.nn.MaxPool3d(2, (2, 1, 3), (1, 0, 1), (1, 2, 1), ceil_mode=True), (BLOCK,)),
    Case(
        "unpool 1d",
        unpooled(lambda nn: nn.MaxPool1d(2, return_indices=True), lambda nn: nn.MaxUnpool1d(2), output_size=(9,)),
        (ROW,),
    ),
    Case(
        "unpool 2d",
        unpooled(lambda nn: nn.MaxPool2d(3, 3, 1, 1, True), lambda nn: nn.MaxUnpool2d(3, 3, 1), output_size=(7, 6)),
        (IMAGE,),
    ),
    Case(
        "unpool 2d size",
        unpooled(
            lambda nn: nn.MaxPool2d(2, return_indices=True), lambda nn: nn.MaxUnpool2d(2), output_size=(2, 2, 7, 6)
        ),
        (IMAGE,),
    ),
    Case("unpool 3d", unpooled(lambda nn: nn.MaxPool3d(2, 2, 0, 1, True), lambda nn: nn.MaxUnpool3d(2)), (BLOCK,)),
    Case("mean 1d", lambda t: t.nn.AvgPool1d(2), (ROW,)),
    Case("mean 1d options", lambda t: t.nn.AvgPool1d(3, 2, 1, True, False), (ROW,)),
    Case("mean 2d", lambda t: t.nn.AvgPool2d((3, 2)), (IMAGE,)),
    Case("mean 2d ceil", lambda t: t.nn.AvgPool2d(3, 2, 1, ceil_mode=True), (IMAGE,)),
    Case("mean 2d divisor", lambda t: t.nn.AvgPool2d(2, 2, 1, divisor_override=3), (IMAGE[1:],)),
    Case("mean 3d", lambda t: t.nn.AvgPool3d(2, (1, 2, 2), 1, count_include_pad=False), (BLOCK,)),
    Case("mean 3d divisor", lambda t: t.nn.AvgPool3d(2, ceil_mode=True, divisor_override=-2), (BLOCK,)),
    Case("power 1d", lambda t: t.nn.LPPool1d(2, 3, 2), (ROW,)),
    Case("power 1d largest", lambda t: t.nn.LPPool1d(math.inf, 3), (ROW,)),
    Case("power 2d ceil", lambda t: t.nn.LPPool2d(2.0, (2, 3), ceil_mode=True), (IMAGE,)),
    Case("power 2d odd", lambda t: t.nn.LPPool2d(3, 2), (IMAGE,)),
    Case("power 3d", lambda t: t.nn.LPPool3d(4, 2, 1), (BLOCK,)),
    Case("fractional 2d", fractional("fractional_max_pool2d", 2, (4, 3), None), (IMAGE, SAMPLES.reshape(2, 2, 2))),
    Case(
        "fractional 2d ratio",
        fractional("fractional_max_pool2d", (3, 2), None, (0.5, 0.5)),
        (IMAGE[1:], SAMPLES[:4].reshape(1, 2, 2)),
    ),
    Case(
        "fractional 3d", fractional("fractional_max_pool3d", 2, (3, 1, 4), None), (BLOCK, SAMPLES[:6].reshape(1, 2, 3))
    ),
]
