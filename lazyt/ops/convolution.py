"""Convolutions over one to three axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.ir import dtypes
from lazyt.ir.graph import Convolution
from lazyt.ir.passes.lower_convolution import convolved, is_depthwise
from lazyt.ir.symbolic import hint
from lazyt.ops import samples
from lazyt.ops.definition import PRODUCT, OpDef, define, require_kind, result_type

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node, Shape
    from lazyt.ir.symbolic import Dim


def padded(b: Builder, x: Node, padding: tuple[tuple[int, int], ...], value: float) -> Node:
    """x with (before, after) elements of `value` around its last axes."""
    if not any(p or q for p, q in padding):
        return x
    lead = x.ndim - len(padding)
    lo = (0,) * lead + tuple(p for p, _ in padding)
    shape = (*x.shape[:lead], *(d + p + q for d, (p, q) in zip(x.shape[lead:], padding, strict=True)))
    return b.pad(x, lo, shape, b.constant(value, x.dtype))


def counts(x: Node, sizes: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]) -> Shape:
    """How many windows fit along each of the last axes."""
    dims = x.shape[x.ndim - len(sizes) :]
    return tuple((d - ((k - 1) * e + 1)) // s + 1 for d, k, s, e in zip(dims, sizes, strides, dilations, strict=True))


def offsets_of(sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The positions in a window, in order."""
    return list(np.ndindex(*sizes))


def strided(b: Builder, x: Node, at: tuple[int, ...], steps: tuple[int, ...], sizes: Shape) -> Node:
    """x[..., at + i * step] along the last axes."""
    lead = x.ndim - len(at)
    return b.slice(x, (*(0,) * lead, *at), (*x.shape[:lead], *sizes), (*(1,) * lead, *steps))


def require_windows(name: str, x: Node, sizes: tuple[int, ...], dilations: tuple[int, ...]) -> None:
    """ShapeError unless a window fits along each of the last axes."""
    for d, k, e in zip(x.shape[x.ndim - len(sizes) :], sizes, dilations, strict=True):
        if hint(d) < (k - 1) * e + 1:
            raise no_window(name, (k - 1) * e + 1, d)


def no_window(name: str, window: int, extent: int | Dim) -> ShapeError:
    """The error for a window that does not fit."""
    return ShapeError(f"{name}: a window of {window} does not fit into an extent of {hint(extent)}")


def same_padding(sizes: tuple[int, ...], dilations: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """What keeps the extents at stride 1; an odd element goes to the end."""
    totals = [e * (k - 1) for k, e in zip(sizes, dilations, strict=True)]
    return tuple((t // 2, t - t // 2) for t in totals)


def convolve(
    b: Builder, name: str, x: Node, w: Node, sizes: tuple[int, ...],
    strides: tuple[int, ...], padding: tuple[tuple[int, int], ...], dilations: tuple[int, ...], groups: int,
    winograd: bool = False,
) -> Node:  # fmt: skip
    """(N, C, *extents) with (O, C / groups, *sizes) gives (N, O, *counts); all of one dtype."""
    x = padded(b, x, padding, 0)
    require_windows(name, x, sizes, dilations)
    allowed = winograd and x.dtype == dtypes.float32
    attrs = Convolution(sizes, dilations, strides, groups, (0,) * len(sizes), allowed)
    # What reads the result of a depthwise one may rely on its features, too.
    features = groups if is_depthwise(b, x.shape[1], w.shape[0], attrs) else None
    if len(sizes) > 2 and features is None and any(k > 1 for k in sizes):
        return _by_planes(b, x, w, attrs)
    if len(sizes) < 3 and dtypes.kind(x.dtype) != "c" and (groups > 1 or any(k > 1 for k in sizes)):
        return b.convolve(x, w, attrs, features)
    return convolved(b, x, w, attrs)


def _by_planes(b: Builder, x: Node, w: Node, a: Convolution) -> Node:
    """Over three axes: over the last two of each plane, with the planes that a window takes as channels.

    NOTE: libraries have convolutions over two axes.
    """
    windows = b.window(x, (2,), a.sizes[:1], a.strides[:1], a.dilations[:1])
    n, channels, depth, *extents, _ = windows.shape
    planes = b.reshape(b.permute(windows, (0, 2, 1, 5, 3, 4)), (n * depth, channels * a.sizes[0], *extents))
    filters = b.reshape(w, (w.shape[0], w.shape[1] * a.sizes[0], *a.sizes[1:]))
    flat = Convolution(a.sizes[1:], a.dilations[1:], a.strides[1:], a.groups, (0, 0))
    one = dtypes.kind(x.dtype) == "c" or (a.groups == 1 and all(k == 1 for k in flat.sizes))
    z = convolved(b, planes, filters, flat) if one else b.convolve(planes, filters, flat)
    return b.permute(b.reshape(z, (n, depth, *z.shape[1:])), (0, 2, 1, 3, 4))


def _check(name: str, x: Node, w: Node, bias: Node | None, groups: int, rank: int) -> None:
    if w.ndim != rank + 2 or x.ndim not in (rank + 1, rank + 2):
        names = ", ".join("DHW"[-rank:])
        raise ShapeError(
            f"{name}: an input of shape (N, C, {names}) or (C, {names}) and a weight of {rank + 2} dimensions "
            f"are required, got {x.ndim} and {w.ndim} dimensions"
        )
    channels, features = hint(x.shape[-rank - 1]), hint(w.shape[0])
    if channels != hint(w.shape[1]) * groups or features % groups:
        raise ShapeError(
            f"{name}: {channels} input channels in {groups} group{'s' * (groups > 1)} do not fit a weight "
            f"of shape {tuple(map(hint, w.shape))}"
        )
    if bias is not None and tuple(map(hint, bias.shape)) != (features,):
        raise ShapeError(f"{name}: a bias of shape ({features},) is required, got {tuple(map(hint, bias.shape))}")


def _convolution(name: str, rank: int) -> OpDef:
    def lower(
        b: Builder, x: Node, w: Node, *rest: Any,
    ) -> Node:  # fmt: skip
        *biases, sizes, strides, padding, dilations, groups, winograd = rest
        bias: Node | None = biases[0] if biases else None
        d = result_type(x, w, *biases)
        require_kind(name, d, "iufc", "a number dtype")
        _check(name, x, w, bias, groups, rank)
        work = dtypes.computed_in(d)
        for have, k in zip(w.shape[2:], sizes, strict=True):
            b.same(have, k)
        if x.ndim == rank + 2:
            b.same(x.shape[1], w.shape[1] * groups)
            v = x
        else:
            b.same(x.shape[0], w.shape[1] * groups)
            v = b.reshape(x, (1, *x.shape))
        z = convolve(b, name, b.cast(v, work), b.cast(w, work), sizes, strides, padding, dilations, groups, winograd)
        if bias is not None:
            column = b.reshape(b.cast(bias, work), (1, *bias.shape, *(1,) * rank))
            z = b.add(z, b.expand(column, z.shape))
        z = b.cast(z, d)
        return z if x.ndim == rank + 2 else b.reshape(z, z.shape[1:])

    return define(
        name,
        lower,
        saves=PRODUCT,
        numpy=_reference(rank),
        samples=lambda: _calls(rank),
        errors=[
            (
                (samples.array((1, 3) + (5,) * rank), samples.array((4, 2) + (3,) * rank)),
                {},
                ShapeError,
                "input channels",
            ),
            (
                (samples.array((1, 2) + (2,) * rank), samples.array((4, 2) + (3,) * rank)),
                {},
                ShapeError,
                "does not fit",
            ),
            ((samples.array((3,)), samples.array((4, 2) + (3,) * rank)), {}, ShapeError, f"{name}: an input of shape"),
        ],
    )


def _reference(rank: int) -> Any:
    """Plain loops over the window's positions."""

    def spread(v: Any) -> tuple[Any, ...]:
        return v if isinstance(v, tuple) else (v,) * rank

    def convolution(
        x: np.ndarray, weight: np.ndarray, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1,
    ) -> np.ndarray:  # fmt: skip
        s, e, sizes = spread(stride), spread(dilation), weight.shape[2:]
        lone = x.ndim == rank + 1
        wide = np.result_type(np.float64, x, weight)
        v = (x[None] if lone else x).astype(wide)
        if padding == "same":
            pads = same_padding(sizes, e)
        else:
            pads = tuple((p, p) for p in spread(0 if padding == "valid" else padding))
        v = np.pad(v, ((0, 0), (0, 0), *pads))
        n, c = v.shape[:2]
        out = tuple((d - (k - 1) * f - 1) // t + 1 for d, k, t, f in zip(v.shape[2:], sizes, s, e, strict=True))
        w = weight.astype(wide).reshape(groups, -1, *weight.shape[1:])
        y: Any = np.zeros((n, groups, w.shape[1], *out), wide)
        for at in np.ndindex(*sizes):
            cut = tuple(slice(i * f, i * f + (o - 1) * t + 1, t) for i, f, t, o in zip(at, e, s, out, strict=True))
            part = v[(slice(None), slice(None), *cut)].reshape(n, groups, c // groups, *out)
            y += np.einsum("ngc...,goc->ngo...", part, w[(slice(None), slice(None), slice(None), *at)])
        y = y.reshape(n, len(weight), *out)
        if bias is not None:
            y = y + bias.reshape(-1, *(1,) * rank)
        return samples.as_given(y[0] if lone else y, x, weight, bias)

    return convolution


def _calls(rank: int) -> list[samples.Sample]:
    big = (7, 6, 5)[:rank]
    x, w = samples.array((2, 4, *big)), samples.array((6, 4, *(3, 2, 2)[:rank]))
    grouped, deep = samples.array((6, 2, *(3,) * rank)), samples.array((4, 1, *(3,) * rank))
    point, bias = samples.array((5, 4, *(1,) * rank)), samples.array((6,))
    if rank > 2:  # sums so long are exact of whole numbers
        x, w, grouped, deep = (np.floor(v) for v in (x, w, grouped, deep))
    return [
        ((x, w), {}),
        ((x, w, bias), {"stride": 2, "padding": 1}),
        ((x[0], w, bias), {"dilation": 2}),
        ((x, grouped, bias), {"groups": 2, "padding": "same"}),
        ((x, deep), {"groups": 4, "padding": 1, "stride": (2, 1, 2)[:rank]}),
        ((x, point), {}),
        ((x, point), {"stride": 2}),
        ((x.astype("float16"), w.astype("float16")), {"padding": "valid"}),
        ((x[:0], w), {}),
    ]


CONV1D = _convolution("conv1d", 1)
CONV2D = _convolution("conv2d", 2)
CONV3D = _convolution("conv3d", 3)
