"""Losses: one row of logits at a time, so that the whole loss is one pass over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, ShapeError
from lazyt.ir import dtypes
from lazyt.ir.graph import Node
from lazyt.ir.symbolic import hint
from lazyt.ops import samples
from lazyt.ops.activations import softplus
from lazyt.ops.definition import OpDef, Operand, define, fitted, node_of, promoted, require_kind, result_type
from lazyt.ops.reductions import mean_node, reduce

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.ir.builder import Builder

REDUCTIONS = ("mean", "sum", "none")


def _reduced(b: Builder, v: Node, reduction: str) -> Node:
    axes = range(v.ndim)
    if reduction == "none":
        return v
    return mean_node(b, v, axes, False) if reduction == "mean" else reduce(b, "sum", v, axes)


def _numpy_reduced(v: Any, reduction: str) -> Any:
    return v if reduction == "none" else np.mean(v) if reduction == "mean" else np.sum(v)


# Element by element

_P, _T = samples.array((3, 4)), samples.array((3, 4), seed=1)
_UNIT = (samples.array((3, 4), low=0.01, high=0.99), samples.array((3, 4), low=0, high=1, seed=1))
_BROADCAST: Any = ((_P, samples.array((2, 4))), {}, ShapeError, r"shapes \(3, 4\) and \(2, 4\) do not broadcast")
_SIZES: Any = (
    (_P, samples.array((1, 4))),
    {},
    ShapeError,
    r"a target of the input's size \(3, 4\) is required, got \(1, 4\)",
)


def _need_one_size(name: str, x: Operand, target: Operand) -> None:
    """Probabilities and targets are of one size, as in PyTorch; a Python number stands for any."""
    if isinstance(x, Node) and isinstance(target, Node):
        size, other = tuple(map(hint, x.shape)), tuple(map(hint, target.shape))
        if size != other:
            raise ShapeError(f"{name}: a target of the input's size {size} is required, got {other}")


def _pointwise(
    name: str,
    body: Callable[..., Node],
    ref: Callable[..., Any],
    pair: Any = (_P, _T),
    one_size: bool = False,
    **params: float,
) -> OpDef:
    """body(b, x, target, *params) -> the loss of each element; the parameters are scalar operands."""

    def lower(b: Builder, x: Operand, target: Operand, *rest: Any) -> Node:
        *scalars, reduction = rest
        d = result_type(x, target)
        require_kind(name, d, "f", "a real floating dtype")
        if one_size:
            _need_one_size(name, x, target)
        work = dtypes.computed_in(d)
        p, t = promoted(b, name, x, target, dtype=work)
        return b.cast(_reduced(b, body(b, p, t, *(node_of(b, s, work) for s in scalars)), reduction), d)

    def reference(x: Any, target: Any, reduction: str = "mean", **given: Any) -> Any:
        y = ref(x.astype(np.float64), target.astype(np.float64), **given)
        return np.asarray(_numpy_reduced(y, reduction)).astype(x.dtype)

    def calls() -> list[samples.Sample]:
        more: list[dict[str, Any]] = [{"reduction": r} for r in REDUCTIONS]
        half = tuple(a.astype("float16") for a in pair)
        return [*((pair, {**m, **params}) for m in more), (half, dict(params))]

    integers: Any = ((_P.astype(int), _T.astype(int)), {}, DTypeError, f"{name}: a real floating dtype")
    return define(
        name, lower, saves=(0, 1), numpy=reference, samples=calls, errors=[_SIZES if one_size else _BROADCAST, integers]
    )


def _squared(b: Builder, x: Node, t: Node) -> Node:
    d = b.sub(x, t)
    return b.mul(d, d)


MSE_LOSS = _pointwise("mse_loss", _squared, lambda x, t: (x - t) ** 2)
L1_LOSS = _pointwise("l1_loss", lambda b, x, t: b.abs(b.sub(x, t)), lambda x, t: np.abs(x - t))


def _huber(b: Builder, x: Node, t: Node, delta: Node) -> Node:
    d = b.sub(x, t)
    size, half = b.abs(d), b.constant(0.5, x.dtype)
    return b.select(
        b.lt(size, delta),
        b.mul(b.mul(d, d), half),
        b.mul(b.sub(size, b.mul(delta, half)), delta),
    )


def _huber_numpy(x: Any, t: Any, delta: float = 1.0) -> Any:
    d = np.abs(x - t)
    return np.where(d < delta, 0.5 * d * d, delta * (d - 0.5 * delta))


HUBER_LOSS = _pointwise("huber_loss", _huber, _huber_numpy, delta=0.7)


def _smooth_l1(b: Builder, x: Node, t: Node, beta: Node) -> Node:
    # At beta = 0 the first branch is never taken; 0.5 * d * d / 0 there would spoil the derivative.
    zero = b.constant(0, x.dtype)
    safe = b.select(b.gt(beta, zero), beta, b.constant(1, x.dtype))
    d = b.sub(x, t)
    size, half = b.abs(d), b.constant(0.5, x.dtype)
    return b.select(b.lt(size, beta), b.div(b.mul(b.mul(d, d), half), safe), b.sub(size, b.mul(beta, half)))


SMOOTH_L1_LOSS = _pointwise(
    "smooth_l1_loss", _smooth_l1, lambda x, t, beta=1.0: _huber_numpy(x, t, beta) / beta, beta=0.7
)


def _log_at_least(b: Builder, x: Node) -> Node:
    """max(log(x), -100), whose derivative at 0 is 0 and not NaN; NaN of what is no probability."""
    zero, least = b.constant(0, x.dtype), b.constant(-100, x.dtype)
    none = b.eq(x, zero)
    y = b.log(b.select(none, b.constant(1, x.dtype), x))
    return b.select(b.or_(none, b.le(y, b.expand_to(least, y.shape))), least, y)


def _bce(b: Builder, x: Node, t: Node) -> Node:
    one = b.constant(1, x.dtype)
    yes = b.mul(t, _log_at_least(b, x))
    no = b.mul(b.sub(one, t), _log_at_least(b, b.sub(one, x)))
    return b.neg(b.add(yes, no))


BINARY_CROSS_ENTROPY = _pointwise(
    "binary_cross_entropy",
    _bce,
    lambda x, t: -(t * np.maximum(np.log(x), -100) + (1 - t) * np.maximum(np.log(1 - x), -100)),
    _UNIT,
    one_size=True,
)


def _kl_div(b: Builder, x: Node, t: Node) -> Node:
    zero = b.constant(0, t.dtype)
    none = b.eq(t, zero)  # where t log t is 0; of a negative target it is NaN
    log = b.log(b.select(none, b.constant(1, t.dtype), t))
    return b.select(none, zero, b.mul(t, b.sub(log, x)))


def _kl_div_numpy(x: Any, t: Any) -> Any:
    return np.where(t == 0, 0, t * (np.log(np.where(t == 0, 1, t)) - x))


KL_DIV = _pointwise("kl_div", _kl_div, _kl_div_numpy, (_P, _UNIT[1]))
KL_DIV_LOG = _pointwise(
    "kl_div_log", lambda b, x, t: b.mul(b.exp(t), b.sub(t, x)), lambda x, t: np.exp(t) * (t - x), (_P, _T)
)


def binary_cross_entropy_with_logits(b: Builder, x: Operand, target: Operand, *rest: Any) -> Node:
    """Operands x, target, [positive weight], [weight]; statics: which are there, and the reduction."""
    *weights, has_positive, has_weight, reduction = rest
    name = "binary_cross_entropy_with_logits"
    d = result_type(x, target)
    require_kind(name, d, "f", "a real floating dtype")
    for w in weights:
        require_kind(name, result_type(w), "biuf", "a weight of a real dtype")
    _need_one_size(name, x, target)
    p, t = promoted(b, name, x, target, dtype=dtypes.computed_in(d))
    one = b.constant(1, p.dtype)
    tail = softplus(b, b.neg(p))
    if has_positive:
        positive = fitted(b, name, "pos_weight", node_of(b, weights[0], p.dtype), p.shape)
        tail = b.mul(tail, b.add(b.mul(b.sub(positive, one), t), one))
    loss = b.add(b.mul(b.sub(one, t), p), tail)
    if has_weight:
        loss = b.mul(loss, fitted(b, name, "weight", node_of(b, weights[-1], p.dtype), p.shape))
    return b.cast(_reduced(b, loss, reduction), d)


def _bce_logits_numpy(x: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: str = "mean") -> Any:
    v, t = x.astype(np.float64), target.astype(np.float64)
    positive = 1.0 if pos_weight is None else pos_weight
    loss = positive * t * np.log1p(np.exp(-v)) + (1 - t) * np.log1p(np.exp(v))
    loss = loss if weight is None else loss * weight
    return np.asarray(_numpy_reduced(loss, reduction)).astype(x.dtype)


_EACH = samples.array((4,), low=0.5, high=2)
BINARY_CROSS_ENTROPY_WITH_LOGITS = define(
    "binary_cross_entropy_with_logits",
    binary_cross_entropy_with_logits,
    saves=(0, 1),
    numpy=_bce_logits_numpy,
    samples=samples.calls(
        (_P, _UNIT[1]),
        (_P, _UNIT[1], {"reduction": "sum", "pos_weight": _EACH}),
        (_P, _UNIT[1], _EACH, {"reduction": "none"}),
        (_P, _UNIT[1], _EACH, {"pos_weight": _EACH[::-1].copy()}),
    ),
    errors=[_SIZES],
)


# Classes


def _classes(b: Builder, name: str, x: Node, target: Node, ignore: Operand) -> tuple[Node, Node]:
    """Which logits are their row's target, with the class axis; which rows count, without it.

    The targets are compared, not looked up: looking up would break the pass over the rows in two. They go
    through a gather of 0, 1, 2, ... only to be checked when the program runs.
    """
    if dtypes.kind(target.dtype) not in "iu":
        raise DTypeError(f"{name}: integer targets are required, got {target.dtype}")
    axis = 1 if x.ndim > 1 else 0
    want = x.shape[:axis] + x.shape[axis + 1 :]
    if tuple(map(hint, target.shape)) != tuple(map(hint, want)):
        raise ShapeError(
            f"{name}: targets of shape {tuple(map(hint, want))} are required for an input of shape "
            f"{tuple(map(hint, x.shape))}, got {tuple(map(hint, target.shape))}"
        )
    rows = b.same_shape(want, target.shape)
    t = b.cast(target, dtypes.int64)
    valid = b.ne(t, b.expand_to(node_of(b, ignore, dtypes.int64), rows))
    t = b.select(valid, t, b.constant(0, dtypes.int64))
    t = b.gather(b.iota((x.shape[axis],), 0), (t,), (0,))
    shape = x.shape
    column = b.reshape(t, (*rows[:axis], 1, *rows[axis:]))
    return b.eq(b.iota(shape, axis), b.expand(column, shape)), valid


def _row_sum(b: Builder, v: Node) -> Node:
    return reduce(b, "sum", v, (1 if v.ndim > 1 else 0,))


def _class_weights(b: Builder, name: str, x: Node, weights: Any) -> Node | None:
    """The weight of each class in the shape of x, or None."""
    if not weights:
        return None
    axis = 1 if x.ndim > 1 else 0
    require_kind(name, weights[0].dtype, "biuf", "a weight of a real dtype")
    w = b.cast(weights[0], x.dtype)
    if w.ndim != 1 or hint(w.shape[0]) != hint(x.shape[axis]):
        raise ShapeError(f"{name}: one weight a class is required, got shape {tuple(map(hint, w.shape))}")
    return b.expand_to(b.reshape(w, (*w.shape, *(1,) * (x.ndim - axis - 1))), x.shape)


def _weighted_mean(b: Builder, loss: Node, weight: Node, reduction: str) -> Node:
    """loss counts `weight` times (it is multiplied already): the mean divides by the weights' sum."""
    if reduction == "none":
        return loss
    axes = range(loss.ndim)
    total = reduce(b, "sum", loss, axes)
    return b.div(total, reduce(b, "sum", weight, axes)) if reduction == "mean" else total


def _mean_over_rows(
    b: Builder, loss: Node, hit: Node, valid: Node, each: Node | None, reduction: str, smooth: Node | None
) -> Node:
    """The losses of rows that count, by their target's weight (`smooth` is weighted already), reduced."""
    zero = b.constant(0, loss.dtype)
    weight = b.cast(valid, loss.dtype)
    if each is not None:
        weight = b.select(valid, _row_sum(b, b.select(hit, each, zero)), zero)
        loss = b.mul(loss, weight)
    if smooth is not None:
        loss = b.add(loss, smooth)
    return _weighted_mean(b, b.select(valid, loss, zero), weight, reduction)


def cross_entropy(b: Builder, x: Node, target: Node, *rest: Any) -> Node:
    """Operands x, target, [class weights], ignore_index, label_smoothing; statics: smoothed?, the reduction.

    With z = x - max, a row's loss is log(sum(exp(z))) - z[target].
    """
    *operands, smoothed, reduction = rest
    *weights, ignore, smoothing = operands
    name = "cross_entropy"
    require_kind(name, x.dtype, "f", "a real floating dtype")
    if not x.ndim:
        raise ShapeError(f"{name}: an input (N, C, ...) or (C,) is required, got a scalar")
    v = b.cast(x, dtypes.computed_in(x.dtype))
    axis = 1 if v.ndim > 1 else 0
    top = b.stop(reduce(b, "max", v, (axis,), True))
    z = b.sub(v, b.expand(top, v.shape))
    log_total = b.log(_row_sum(b, b.exp(z)))
    each = _class_weights(b, name, v, weights)
    rate = node_of(b, smoothing, v.dtype)
    if dtypes.kind(target.dtype) == "f":
        return b.cast(_probability_loss(b, v, z, log_total, target, each, rate, smoothed, reduction), x.dtype)
    hit, valid = _classes(b, name, v, target, ignore)
    zero = b.constant(0, v.dtype)
    loss = b.sub(log_total, _row_sum(b, b.select(hit, z, zero)))
    smooth = None
    if smoothed:
        classes = b.extent(v.shape[axis], v.dtype)
        if each is None:
            spread = b.sub(log_total, b.div(_row_sum(b, z), classes))
        else:
            whole = b.sub(b.mul(_row_sum(b, each), log_total), _row_sum(b, b.mul(each, z)))
            spread = b.div(whole, classes)
        smooth = b.mul(spread, rate)
        loss = b.mul(loss, b.sub(b.constant(1, v.dtype), rate))
    return b.cast(_mean_over_rows(b, loss, hit, valid, each, reduction, smooth), x.dtype)


def _probability_loss(
    b: Builder,
    v: Node,
    z: Node,
    log_total: Node,
    target: Node,
    each: Node | None,
    rate: Node,
    smoothed: bool,
    reduction: str,
) -> Node:
    """Targets are probabilities of the classes: the loss is -sum(t * log_softmax(x))."""
    if tuple(map(hint, target.shape)) != tuple(map(hint, v.shape)):
        raise ShapeError(
            f"cross_entropy: probabilities of shape {tuple(map(hint, v.shape))} are required, "
            f"got {tuple(map(hint, target.shape))}"
        )
    axis = 1 if v.ndim > 1 else 0
    b.same_shape(v.shape, target.shape)
    t = b.cast(target, v.dtype)
    if smoothed:
        even = b.div(rate, b.extent(v.shape[axis], v.dtype))
        t = b.add(b.mul(t, b.sub(b.constant(1, v.dtype), rate)), even)
    t = t if each is None else b.mul(t, each)
    total = b.reshape(log_total, tuple(1 if i == axis else d for i, d in enumerate(v.shape)))
    loss = _row_sum(b, b.mul(t, b.sub(b.expand(total, v.shape), z)))
    return _reduced(b, loss, reduction)


def nll_loss(b: Builder, x: Node, target: Node, *rest: Any) -> Node:
    """Operands x (log-probabilities), target, [class weights], ignore_index; static: the reduction."""
    *weights, ignore, reduction = rest
    require_kind("nll_loss", x.dtype, "f", "a real floating dtype")
    if not x.ndim:
        raise ShapeError("nll_loss: an input (N, C, ...) or (C,) is required, got a scalar")
    v = b.cast(x, dtypes.computed_in(x.dtype))
    hit, valid = _classes(b, "nll_loss", v, target, ignore)
    loss = b.neg(_row_sum(b, b.select(hit, v, b.constant(0, v.dtype))))
    each = _class_weights(b, "nll_loss", v, weights)
    return b.cast(_mean_over_rows(b, loss, hit, valid, each, reduction, None), x.dtype)


def _nll_numpy(x: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> Any:
    v = x.astype(np.float64)
    v = np.moveaxis(v, 1, -1) if v.ndim > 1 else v
    valid = target != ignore_index
    t = np.where(valid, target, 0)
    w = np.where(valid, 1.0 if weight is None else weight[t], 0.0)
    loss = -np.take_along_axis(v, t[..., None], -1)[..., 0] * w
    y = loss.sum() / w.sum() if reduction == "mean" else _numpy_reduced(loss, reduction)
    return np.asarray(y).astype(x.dtype)


def _cross_entropy_numpy(
    x: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    axis = 1 if x.ndim > 1 else 0
    v = x.astype(np.float64)
    log = v - np.log(np.exp(v).sum(axis, keepdims=True))
    classes = x.shape[axis]
    w = np.ones(classes) if weight is None else weight
    by_class = w.reshape(-1, *(1,) * (x.ndim - axis - 1))
    if dtypes.kind(target.dtype) == "f":
        t = target * (1 - label_smoothing) + label_smoothing / classes
        return np.asarray(_numpy_reduced(-(t * log * by_class).sum(axis), reduction)).astype(x.dtype)
    valid = target != ignore_index
    t = np.where(valid, target, 0)
    hot = np.moveaxis(np.eye(classes)[t], -1, axis)
    smooth = hot * (1 - label_smoothing) + label_smoothing / classes
    loss = np.where(valid, -(smooth * log * by_class).sum(axis), 0)
    y = loss.sum() / (w[t] * valid).sum() if reduction == "mean" else _numpy_reduced(loss, reduction)
    return np.asarray(y).astype(x.dtype)


_LOGITS, _LABELS = samples.array((6, 4)), np.array([0, 3, 1, 1, 2, 0])
_MAPS, _PIXELS = samples.array((2, 4, 3)), np.array([[0, 1, -100], [3, 2, 2]])


def _class_calls(smoothing: bool) -> list[samples.Sample]:
    found: list[samples.Sample] = [
        ((_LOGITS, _LABELS), {"reduction": r}) for r in REDUCTIONS
    ]  # fmt: skip
    found += [
        ((_LOGITS, _LABELS, _EACH), {}),
        ((_LOGITS, _LABELS), {"ignore_index": 1}),
        ((_LOGITS, _LABELS, _EACH), {"ignore_index": 1, "reduction": "none"}),
        ((_MAPS, _PIXELS), {}),
        ((_LOGITS[0], np.array(2)), {}),
        ((_LOGITS.astype("float16"), _LABELS.astype("int32")), {}),
        ((samples.array((3, 70)), np.array([0, 69, 3])), {}),
    ]
    if smoothing:
        found += [
            ((_LOGITS, _LABELS), {"label_smoothing": 0.1}),
            ((_MAPS, _PIXELS, _EACH), {"label_smoothing": 0.1}),
            ((_LOGITS, samples.array((6, 4), low=0, high=1)), {"label_smoothing": 0.2}),
            ((_LOGITS, samples.array((6, 4), low=0, high=1), _EACH), {"reduction": "sum"}),
        ]
    return found


def _class_errors(name: str) -> list[Any]:
    return [
        ((_LOGITS, _LABELS[:3]), {}, ShapeError, rf"{name}: targets of shape \(6,\) are required"),
        ((_LOGITS, _LABELS > 1), {}, DTypeError, f"{name}: integer targets are required"),
        ((_LOGITS, _LABELS, _EACH[:2]), {}, ShapeError, f"{name}: one weight a class"),
        ((_LOGITS, _LABELS), {"reduction": "max"}, ShapeError, f"{name}: reduction is one of"),
    ]


CROSS_ENTROPY = define(
    "cross_entropy",
    cross_entropy,
    saves=(0, 1),
    fallible=True,
    numpy=_cross_entropy_numpy,
    samples=lambda: _class_calls(True),
    errors=_class_errors("cross_entropy"),
)
NLL_LOSS = define(
    "nll_loss",
    nll_loss,
    saves=(1,),
    fallible=True,
    numpy=_nll_numpy,
    samples=lambda: _class_calls(False),
    errors=_class_errors("nll_loss"),
)
