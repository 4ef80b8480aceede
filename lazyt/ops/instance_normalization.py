"""Normalisation of each channel of each sample, and its running statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.ir.symbolic import hint
from lazyt.ops import samples
from lazyt.ops.definition import Operand, define, node_of
from lazyt.ops.normalization import affine, centred, floating, normalized, require_shape
from lazyt.ops.reductions import count, mean_node

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node


def _images(b: Builder, x: Node) -> tuple[Node, range]:
    """x in the dtype to compute in, and the axes that statistics are over."""
    v = floating(b, "instance_norm", x)
    shape = tuple(map(hint, v.shape))
    if v.ndim < 3:
        raise ShapeError(f"instance_norm: an input (N, C, ...) is required, got shape {shape}")
    axes = range(2, v.ndim)
    if hint(count(v, axes)) == 1:
        raise ShapeError(f"instance_norm: more than one value a channel of a sample is required, got shape {shape}")
    return v, axes


def instance_norm(b: Builder, x: Node, *rest: Any) -> Node:
    """Operands x, [weight], [bias], eps; statics say which are there."""
    *params, eps, scale, shift = rest
    v, axes = _images(b, x)
    require_shape("instance_norm", params, (v.shape[1],))
    by_channel = (1, v.shape[1], *(1,) * (v.ndim - 2))
    return b.cast(affine(b, normalized(b, v, axes, eps), params, scale, shift, by_channel), x.dtype)


def instance_norm_statistics(b: Builder, x: Node, mean: Node, var: Node, momentum: Operand) -> tuple[Node, Node]:
    """The running statistics moved towards the mean of those of the samples; variances are the unbiased ones."""
    v, axes = _images(b, x)
    require_shape("instance_norm", (mean, var), (v.shape[1],))
    _, now_mean, now_var = centred(b, v, axes)
    n = b.extent(count(v, axes), v.dtype)
    now_var = b.mul(now_var, b.expand_to(b.div(n, b.sub(n, b.constant(1, v.dtype))), now_var.shape))
    m = node_of(b, momentum, v.dtype)
    rest = b.sub(b.constant(1, v.dtype), m)

    def moved(old: Node, new: Node) -> Node:
        new = b.reshape(mean_node(b, new, (0,), False), old.shape)
        return b.cast(b.add(b.mul(b.cast(old, v.dtype), rest), b.mul(new, m)), old.dtype)

    return moved(mean, now_mean), moved(var, now_var)


def _numpy(x: np.ndarray, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> np.ndarray:
    v, axes = x.astype(np.float64), tuple(range(2, x.ndim))
    y = (v - v.mean(axes, keepdims=True)) / np.sqrt(v.var(axes, keepdims=True) + eps)
    by_channel = (-1, *(1,) * (x.ndim - 2))
    y = y if weight is None else y * weight.reshape(by_channel)
    return np.asarray(y if bias is None else y + bias.reshape(by_channel)).astype(x.dtype)


def _reference(
    x: np.ndarray, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> np.ndarray:  # fmt: skip
    return _numpy(x, weight, bias, eps)


_X, _W = samples.array((2, 3, 4, 5)), samples.array((3,))
INSTANCE_NORM = define(
    "instance_norm",
    instance_norm,
    saves=(0, 1),
    numpy=_reference,
    samples=samples.calls(
        (_X,),
        (_X, None, None, _W, _W + 1),
        (_X[:, :, 0], None, None, _W, {"eps": 1e-3}),
        (_X.astype("float16"), None, None, None, _W),
    ),
    errors=[
        ((_X[0, 0],), {}, ShapeError, "instance_norm: an input"),
        ((_X[:, :, :1, :1],), {}, ShapeError, "instance_norm: more than one value a channel of a sample"),
        ((_X, None, None, _W[:2]), {}, ShapeError, "instance_norm: weight and bias of shape"),
    ],
)
INSTANCE_NORM_STATISTICS = define("instance_norm_statistics", instance_norm_statistics, differentiable=False)
