"""Normalisations: the halves compute in float32 and round once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from lazyt.errors import DTypeError, ShapeError
from lazyt.ir import dtypes
from lazyt.ir.symbolic import hint, product
from lazyt.ops import samples
from lazyt.ops.definition import Operand, define, node_of, require_kind
from lazyt.ops.reductions import count, mean_node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node, Shape


def floating(b: Builder, name: str, x: Node) -> Node:
    """x in the dtype to compute in."""
    require_kind(name, x.dtype, "f", "a real floating dtype")
    return b.cast(x, dtypes.computed_in(x.dtype))


def centred(b: Builder, v: Node, axes: Sequence[int]) -> tuple[Node, Node, Node]:
    """v minus its mean, the mean and the (biased) variance; the latter two with their axes kept."""
    mean = mean_node(b, v, axes, True)
    d = b.sub(v, b.expand(mean, v.shape))
    return d, mean, mean_node(b, b.mul(d, d), axes, True)


def scaled(b: Builder, d: Node, var: Node, eps: Operand) -> Node:
    return b.mul(d, _reciprocal(b, d, var, eps))


def _reciprocal(b: Builder, d: Node, var: Node, eps: Operand) -> Node:
    return b.expand(b.rsqrt(b.add(var, node_of(b, eps, var.dtype))), d.shape)


def normalized(b: Builder, v: Node, axes: Sequence[int], eps: Operand) -> Node:
    """v minus its mean, over the root of its variance and eps; the derivative of all of it is one formula."""
    d, _, var = centred(b, v, axes)
    r = _reciprocal(b, d, var, eps)
    return b.normalized(b.mul(d, r), v, r, axes)


def affine(b: Builder, y: Node, params: Sequence[Node], scale: bool, shift: bool, shape: Shape) -> Node:
    """y * weight + bias, both reshaped to `shape`, where given."""
    rest = list(params)
    if scale:
        y = b.mul(y, b.expand_to(b.reshape(b.cast(rest.pop(0), y.dtype), shape), y.shape))
    if shift:
        y = b.add(y, b.expand_to(b.reshape(b.cast(rest.pop(0), y.dtype), shape), y.shape))
    return y


def _split(rest: tuple[Any, ...], scale: bool, shift: bool, scalars: int) -> tuple[Sequence[Node], tuple[Operand, ...]]:
    n = scale + shift
    return rest[:n], rest[n : n + scalars]


def require_shape(name: str, params: Sequence[Node], dims: Shape) -> None:
    want = tuple(map(hint, dims))
    for p in params:
        require_kind(name, p.dtype, "biuf", "a weight, bias, mean or variance of a real dtype")
        if tuple(map(hint, p.shape)) != want:
            raise ShapeError(f"{name}: weight and bias of shape {want} are required, got {tuple(map(hint, p.shape))}")


def layer_norm(b: Builder, x: Node, *rest: Any) -> Node:
    """Operands x, [weight], [bias], eps; statics: how many last axes, and whether weight and bias are there."""
    *operands, k, scale, shift = rest
    params, (eps,) = _split(tuple(operands), scale, shift, 1)
    v = floating(b, "layer_norm", x)
    dims = v.shape[v.ndim - k :]
    require_shape("layer_norm", params, dims)
    y = normalized(b, v, range(v.ndim - k, v.ndim), eps)
    return b.cast(affine(b, y, params, scale, shift, dims), x.dtype)


def _numpy_axes(x: np.ndarray, normalized_shape: Any) -> tuple[int, ...]:
    shape = normalized_shape if isinstance(normalized_shape, tuple) else (normalized_shape,)
    return tuple(range(x.ndim - len(shape), x.ndim))


def _layer_norm_numpy(
    x: np.ndarray, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> np.ndarray:
    v = x.astype(np.float64)
    axes = _numpy_axes(x, normalized_shape)
    y = (v - v.mean(axes, keepdims=True)) / np.sqrt(v.var(axes, keepdims=True) + eps)
    return np.asarray((y if weight is None else y * weight) + (0 if bias is None else bias)).astype(x.dtype)


_X = samples.array((2, 3, 4))
_W, _B = samples.array((4,), low=0.5), samples.array((4,), seed=1)
LAYER_NORM = define(
    "layer_norm",
    layer_norm,
    saves=(0, 1),
    numpy=_layer_norm_numpy,
    samples=samples.calls(
        (_X, 4),
        (_X, (4,), _W, _B, {"eps": 1e-3}),
        (_X, (3, 4), samples.array((3, 4))),
        (_X.astype("float16"), 4, _W, _B),
        (samples.array((5, 70)), (70,), None, samples.array((70,))),
    ),
    errors=[
        ((_X, 3), {}, ShapeError, r"layer_norm: normalized_shape \(3,\) is not the end of shape \(2, 3, 4\)"),
        ((_X, 4, _W[:3]), {}, ShapeError, "layer_norm: weight and bias of shape"),
        ((_X.astype(int), 4), {}, DTypeError, "layer_norm: a real floating dtype"),
    ],
)


def rms_norm(b: Builder, x: Node, *rest: Any) -> Node:
    """Operands x, [weight], eps; statics: how many last axes, and whether the weight is there."""
    *operands, k, scale = rest
    params, (eps,) = _split(tuple(operands), scale, False, 1)
    v = floating(b, "rms_norm", x)
    dims = v.shape[v.ndim - k :]
    require_shape("rms_norm", params, dims)
    square = mean_node(b, b.mul(v, v), range(v.ndim - k, v.ndim), True)
    return b.cast(affine(b, scaled(b, v, square, eps), params, scale, False, dims), x.dtype)


def _rms_norm_numpy(x: np.ndarray, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> np.ndarray:
    v = x.astype(np.float64)
    small = float(np.finfo(x.dtype).eps) if eps is None else eps
    y = v / np.sqrt((v * v).mean(_numpy_axes(x, normalized_shape), keepdims=True) + small)
    return np.asarray(y if weight is None else y * weight).astype(x.dtype)


RMS_NORM = define(
    "rms_norm",
    rms_norm,
    saves=(0, 1),
    numpy=_rms_norm_numpy,
    samples=samples.calls((_X, 4), (_X, 4, _W, {"eps": 1e-6}), (_X.astype("float16"), (3, 4))),
    errors=[((_X, 3), {}, ShapeError, "rms_norm: normalized_shape")],
)


def group_norm(b: Builder, x: Node, *rest: Any) -> Node:
    """Operands x, [weight], [bias], eps; statics: how many groups, and whether weight and bias are there."""
    *operands, groups, scale, shift = rest
    params, (eps,) = _split(tuple(operands), scale, shift, 1)
    v = floating(b, "group_norm", x)
    if v.ndim < 2 or hint(v.shape[1]) % groups:
        raise ShapeError(f"group_norm: {groups} groups do not divide the channels of shape {tuple(map(hint, v.shape))}")
    n, channels = v.shape[:2]
    require_shape("group_norm", params, (channels,))
    part = channels // groups
    b.same(channels, part * groups)
    # A group's elements lie side by side: one run of the reduction.
    grouped = b.reshape(v, (n, groups, part * product(v.shape[2:])))
    y = b.reshape(normalized(b, grouped, (2,), eps), v.shape)
    return b.cast(affine(b, y, params, scale, shift, (1, channels, *(1,) * (v.ndim - 2))), x.dtype)


def _group_norm_numpy(
    x: np.ndarray, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> np.ndarray:
    v = x.astype(np.float64).reshape(len(x), num_groups, -1)
    y = ((v - v.mean(2, keepdims=True)) / np.sqrt(v.var(2, keepdims=True) + eps)).reshape(x.shape)
    by_channel = (-1, *(1,) * (x.ndim - 2))
    y = y if weight is None else y * weight.reshape(by_channel)
    return np.asarray(y if bias is None else y + bias.reshape(by_channel)).astype(x.dtype)


GROUP_NORM = define(
    "group_norm",
    group_norm,
    saves=(0, 1),
    numpy=_group_norm_numpy,
    samples=samples.calls(
        (samples.array((2, 4, 3, 5)), 2, _W, _B),
        (samples.array((2, 4)), 1),
        (samples.array((3, 4, 5)), 4, None, _B, {"eps": 1e-3}),
    ),
    errors=[((samples.array((2, 4, 3)), 3), {}, ShapeError, "group_norm: 3 groups do not divide the channels")],
)


def _images(b: Builder, name: str, x: Node) -> tuple[Node, tuple[int, ...]]:
    """x in the dtype to compute in, and the axes that a channel's statistics are over."""
    v = floating(b, name, x)
    if v.ndim < 2:
        raise ShapeError(f"{name}: an input (N, C, ...) is required, got shape {tuple(map(hint, v.shape))}")
    axes = (0, *range(2, v.ndim))
    return v, axes


def _require_several(name: str, v: Node, axes: Sequence[int]) -> None:
    if hint(count(v, axes)) == 1:
        raise ShapeError(f"{name}: more than one value a channel is required, got {tuple(map(hint, v.shape))}")


def batch_norm(b: Builder, x: Node, *rest: Any) -> Node:
    """Operands x, [mean, variance unless in training], [weight], [bias], eps; statics say which are there."""
    *operands, training, scale, shift = rest
    given = 0 if training else 2
    stats = operands[:given]
    params, (eps,) = _split(tuple(operands[given:]), scale, shift, 1)
    v, axes = _images(b, "batch_norm", x)
    channels = v.shape[1]
    require_shape("batch_norm", (*stats, *params), (channels,))
    for p in (*stats, *params):
        # NOTE: before the sums: those of `batch_norm_statistics` are then the same.
        b.same(p.shape[0], channels)
    by_channel = (1, channels, *(1,) * (v.ndim - 2))
    if training:
        _require_several("batch_norm", v, axes)
        y = normalized(b, v, axes, eps)
    else:
        mean, var = (b.reshape(b.cast(s, v.dtype), by_channel) for s in stats)
        y = scaled(b, b.sub(v, b.expand(mean, v.shape)), var, eps)
    return b.cast(affine(b, y, params, scale, shift, by_channel), x.dtype)


def batch_norm_statistics(b: Builder, x: Node, mean: Node, var: Node, momentum: Operand) -> tuple[Node, Node]:
    """The running statistics moved towards those of x; the variance is the unbiased one."""
    v, axes = _images(b, "batch_norm", x)
    _require_several("batch_norm", v, axes)
    require_shape("batch_norm", (mean, var), (v.shape[1],))
    _, now_mean, now_var = centred(b, v, axes)
    n = b.extent(count(v, axes), v.dtype)
    now_var = b.mul(now_var, b.div(n, b.sub(n, b.constant(1, v.dtype))))
    m = node_of(b, momentum, v.dtype)
    rest = b.sub(b.constant(1, v.dtype), m)

    def moved(old: Node, new: Node) -> Node:
        return b.cast(b.add(b.mul(b.cast(old, v.dtype), rest), b.mul(b.reshape(new, old.shape), m)), old.dtype)

    return moved(mean, now_mean), moved(var, now_var)


BATCH_NORM_STATISTICS = define("batch_norm_statistics", batch_norm_statistics, differentiable=False)


def _batch_norm_numpy(
    x: np.ndarray, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> np.ndarray:  # fmt: skip
    v = x.astype(np.float64)
    by_channel = (-1, *(1,) * (x.ndim - 2))
    axes = (0, *range(2, x.ndim))
    mean = v.mean(axes) if training else running_mean
    var = v.var(axes) if training else running_var
    y = (v - mean.reshape(by_channel)) / np.sqrt(var.reshape(by_channel) + eps)
    y = y if weight is None else y * weight.reshape(by_channel)
    return np.asarray(y if bias is None else y + bias.reshape(by_channel)).astype(x.dtype)


_IMAGES, _SPREAD = samples.array((2, 4, 3, 5)), samples.array((4,), low=0.5, seed=2)
BATCH_NORM = define(
    "batch_norm",
    batch_norm,
    saves=(0, 1),
    numpy=_batch_norm_numpy,
    samples=samples.calls(
        (_IMAGES, _B, _SPREAD, _W, _B),
        (_IMAGES, None, None, _W, _B, {"training": True}),
        (samples.array((6, 4)), None, None, {"training": True}),
        (samples.array((6, 4)).astype("float16"), _B, _SPREAD),
    ),
    errors=[
        ((_IMAGES, _B[:2], _SPREAD), {}, ShapeError, "batch_norm: weight and bias of shape"),
        ((_B, _B, _SPREAD), {}, ShapeError, "batch_norm: an input"),
        ((samples.array((1, 4)), None, None), {"training": True}, ShapeError, "batch_norm: more than one value"),
    ],
)


def epsilon(dtype: np.dtype) -> float:
    """The gap between 1 and the next number of a float dtype."""
    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
