"""Layers that learn their sizes at the first call: called once, then compared like any other."""

from tests.support.torch_golden import Case


def lazy(name, *args, shape, **options):
    def build(t):
        m = getattr(t.nn, name)(*args, **options)
        m(t.ones(shape) * t.arange(shape[-1], dtype=t.float32))
        return m

    # Two elements with the mean and variance of these two: what is left of a gradient is rounding.
    single = {"rtol": 1e-4, "atol": 1e-4} if name == "LazyInstanceNorm1d" else {}
    return Case(f"{name} {args} {options}", build, (shape,), steps=3, single=single)


CASES = [
    lazy("LazyLinear", 3, shape=(2, 4)),
    lazy("LazyLinear", 2, bias=False, shape=(2, 3, 4)),
    *(lazy(f"LazyConv{n}d", 4, 2, shape=(1, 2, *(3,) * n)) for n in (1, 2, 3)),
    lazy("LazyConv1d", 4, 2, 2, 1, 1, 2, False, "circular", shape=(2, 2, 6)),
    *(lazy(f"LazyConvTranspose{n}d", 4, 2, shape=(1, 2, *(2,) * n)) for n in (1, 2, 3)),
    lazy("LazyConvTranspose2d", 4, 3, 2, 1, 1, 2, False, 1, shape=(2, 3, 3)),
    *(lazy(f"LazyBatchNorm{n}d", shape=(2, 3, *(2,) * n)) for n in (1, 2, 3)),
    lazy("LazyBatchNorm1d", 1e-3, 0.2, bias=False, shape=(3, 2)),
    lazy("LazyBatchNorm2d", affine=False, track_running_stats=False, shape=(2, 2, 1, 3)),
    *(lazy(f"LazyInstanceNorm{n}d", shape=(2, 3, *(2,) * n)) for n in (1, 2, 3)),
]
