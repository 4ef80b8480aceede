"""Transposed convolutions: the gradient of a convolution in its image, as an operation of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.ir import dtypes
from lazyt.ir.adjoints import fold, image_of
from lazyt.ir.graph import Convolution, Window
from lazyt.ir.passes.lower_convolution import imaged, is_depthwise
from lazyt.ir.symbolic import hint
from lazyt.ops import samples
from lazyt.ops.definition import PRODUCT, OpDef, define, require_kind, result_type

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node, Shape

Sizes = tuple[int, ...]


def _image(b: Builder, y: Node, w: Node, a: Convolution, shape: Shape) -> Node:
    """The adjoint of `convolve` (lazyt/ops/convolution.py) in an image of `shape`, without padding."""
    apart = is_depthwise(b, w.shape[0], shape[1], a)
    if apart:
        b.same(w.shape[1], 1)
        shape = (shape[0], a.groups, *shape[2:])
    if dtypes.kind(y.dtype) == "c" or (a.groups == 1 and all(k == 1 for k in a.sizes)) or (apart and len(a.sizes) > 2):
        return imaged(b, y, w, a, shape)
    if len(a.sizes) > 2:
        return _by_planes(b, y, w, a, shape)
    return image_of(b, y, w, a, shape)


def _by_planes(b: Builder, y: Node, w: Node, a: Convolution, shape: Shape) -> Node:
    """Over three axes: each plane of y gives as many planes as the filters have, which are added where they belong."""
    n, features, depth, *extents = y.shape
    planes = b.reshape(b.permute(y, (0, 2, 1, 3, 4)), (n * depth, features, *extents))
    filters = b.reshape(w, (w.shape[0], w.shape[1] * a.sizes[0], *a.sizes[1:]))
    flat = Convolution(a.sizes[1:], a.dilations[1:], a.strides[1:], a.groups, (0, 0))
    found = _image(b, planes, filters, flat, (n * depth, shape[1] * a.sizes[0], *shape[3:]))
    apart = b.reshape(found, (n, depth, shape[1], a.sizes[0], *shape[3:]))
    windows = b.permute(apart, (0, 2, 1, 4, 5, 3))
    return fold(b, windows, shape, Window((2,), a.sizes[:1], a.strides[:1], a.dilations[:1]))


def transposed(b: Builder, y: Node, w: Node, a: Convolution, padding: Sizes, more: Sizes) -> Node:
    """(N, C, *extents) with (C, O / groups, *sizes) gives (N, O, *larger): `padding` less, `more` at the end."""
    channels = w.shape[1] * a.groups
    # Elements that no window reaches count as part of the image while there is no further window in it.
    inside = tuple(min(m, s - 1) for m, s in zip(more, a.strides, strict=True))
    spread = zip(y.shape[2:], a.strides, a.reach, inside, strict=True)
    whole = (y.shape[0], channels, *((d - 1) * s + r + 1 + m for d, s, r, m in spread))
    image = _image(b, y, w, a, whole)
    beyond = [max(m - p - i, 0) for m, p, i in zip(more, padding, inside, strict=True)]
    if any(beyond):
        larger = tuple(d + e for d, e in zip(whole[2:], beyond, strict=True))
        image = b.pad(image, (0,) * y.ndim, (*image.shape[:2], *larger), b.constant(0, image.dtype))
    cut = zip(whole[2:], padding, inside, more, strict=True)
    sizes = (*image.shape[:2], *(d - i - 2 * p + m for d, p, i, m in cut))
    return b.slice(image, (0, 0, *padding), sizes, (1,) * y.ndim)


def _check(name: str, x: Node, w: Node, bias: Node | None, groups: int, rank: int) -> None:
    if w.ndim != rank + 2 or x.ndim not in (rank + 1, rank + 2):
        names = ", ".join("DHW"[-rank:])
        raise ShapeError(
            f"{name}: an input of shape (N, C, {names}) or (C, {names}) and a weight of {rank + 2} dimensions "
            f"are required, got {x.ndim} and {w.ndim} dimensions"
        )
    channels, features = hint(x.shape[-rank - 1]), hint(w.shape[1]) * groups
    if channels != hint(w.shape[0]) or channels % groups:
        raise ShapeError(
            f"{name}: {channels} input channels in {groups} group{'s' * (groups > 1)} do not fit a weight "
            f"of shape {tuple(map(hint, w.shape))}"
        )
    if bias is not None and tuple(map(hint, bias.shape)) != (features,):
        raise ShapeError(f"{name}: a bias of shape ({features},) is required, got {tuple(map(hint, bias.shape))}")


def _transposed_convolution(name: str, rank: int) -> OpDef:
    def lower(b: Builder, x: Node, w: Node, *rest: Any) -> Node:
        *biases, sizes, strides, padding, more, dilations, groups = rest
        bias: Node | None = biases[0] if biases else None
        d = result_type(x, w, *biases)
        require_kind(name, d, "iufc", "a number dtype")
        _check(name, x, w, bias, groups, rank)
        work = dtypes.computed_in(d)
        for have, k in zip(w.shape[2:], sizes, strict=True):
            b.same(have, k)
        v = x if x.ndim == rank + 2 else b.reshape(x, (1, *x.shape))
        b.same(v.shape[1], w.shape[0])
        a = Convolution(sizes, dilations, strides, groups, (0,) * rank)
        for extent, s, r, p, m in zip(v.shape[2:], strides, a.reach, padding, more, strict=True):
            if (found := (hint(extent) - 1) * s + r + 1 - 2 * p + m) < 1:
                raise ShapeError(f"{name}: padding {padding} leaves {found} of an extent of {hint(extent)}")
        z = transposed(b, b.cast(v, work), b.cast(w, work), a, padding, more)
        if bias is not None:
            column = b.reshape(b.cast(bias, work), (1, *bias.shape, *(1,) * rank))
            z = b.add(z, b.expand(column, z.shape))
        z = b.cast(z, d)
        return z if x.ndim == rank + 2 else b.reshape(z, z.shape[1:])

    x, w = samples.array((1, 3) + (5,) * rank), samples.array((4, 2) + (3,) * rank)
    return define(
        name, lower, saves=PRODUCT, numpy=_reference(rank), samples=lambda: _calls(rank),
        errors=[
            ((x, w), {}, ShapeError, f"{name}: 3 input channels in 1 group do not fit a weight"),
            ((x[0, 0, 0], w), {}, ShapeError, f"{name}: an input of shape"),
            ((x, w[:3]), {"padding": 9}, ShapeError, f"{name}: padding .* leaves"),
            ((x, w[:3], samples.array((3,))), {}, ShapeError, f"{name}: a bias of shape"),
        ],
    )  # fmt: skip


def _reference(rank: int) -> Any:
    """Plain loops over the window's positions."""

    def spread(v: Any) -> Sizes:
        return v if isinstance(v, tuple) else (v,) * rank

    def transposed_convolution(
        x: np.ndarray, weight: np.ndarray, bias: Any = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
    ) -> np.ndarray:  # fmt: skip
        s, p, more, e = map(spread, (stride, padding, output_padding, dilation))
        lone = x.ndim == rank + 1
        wide = np.result_type(np.float64, x, weight)
        v = (x[None] if lone else x).astype(wide)
        n, c, *dims = v.shape
        w = weight.astype(wide).reshape(groups, c // groups, *weight.shape[1:])
        full = [(d - 1) * t + (k - 1) * f + 1 + m
                for d, t, k, f, m in zip(dims, s, weight.shape[2:], e, more, strict=True)]  # fmt: skip
        y = np.zeros((n, groups, w.shape[2], *full), wide)
        v = v.reshape(n, groups, c // groups, *dims)
        for at in np.ndindex(*weight.shape[2:]):
            cut = tuple(slice(i * f, i * f + (d - 1) * t + 1, t) for i, f, d, t in zip(at, e, dims, s, strict=True))
            y[(slice(None),) * 3 + cut] += np.einsum("ngc...,gco->ngo...", v, w[(slice(None),) * 3 + at])
        y = y.reshape(n, -1, *full)[(slice(None),) * 2 + tuple(slice(q, d - q) for q, d in zip(p, full, strict=True))]
        if bias is not None:
            y = y + bias.reshape(-1, *(1,) * rank)
        return samples.as_given(y[0] if lone else y, x, weight, bias)

    return transposed_convolution


def _calls(rank: int) -> list[samples.Sample]:
    big, kernel = (2, 4, 3)[-rank:], (2, 3, 2)[-rank:]
    x, w, bias = samples.array((2, 4, *big)), samples.array((4, 3, *kernel)), samples.array((3,))
    x, w = np.floor(x), np.floor(w)
    return [
        ((x, w), {}),
        ((x, w, bias), {"stride": 2, "padding": 1, "output_padding": 1}),
        ((x[0], w, bias), {"dilation": 2, "output_padding": 1}),
        ((x, samples.array((4, 2, *kernel))), {"groups": 2, "stride": (1, 3, 2)[-rank:]}),
        ((x, samples.array((4, 1, *kernel))), {"groups": 4, "stride": 2}),
        ((x, samples.array((4, 5, *(1,) * rank))), {"stride": 2}),
        ((x.astype("float16"), w.astype("float16")), {}),
        ((x.astype("int32"), w.astype("int32")), {}),
    ]


CONV_TRANSPOSE1D = _transposed_convolution("conv_transpose1d", 1)
CONV_TRANSPOSE2D = _transposed_convolution("conv_transpose2d", 2)
CONV_TRANSPOSE3D = _transposed_convolution("conv_transpose3d", 3)
