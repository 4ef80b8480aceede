"""Losses that ask for a margin: between classes, between a pair of inputs, or between distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions.activations import logsigmoid
from lazyt.functions.arguments import broadcasts_to, tensor
from lazyt.functions.arithmetic import minimum
from lazyt.functions.creation import arange
from lazyt.functions.distances import pairwise_distance
from lazyt.functions.elementwise import relu, sqrt, square
from lazyt.functions.indexing import take, take_along_axis
from lazyt.functions.logic import equal, less, logical_and, logical_not, not_equal, where
from lazyt.functions.loss_arguments import (
    floating,
    integers,
    need_broadcast,
    need_shape,
    reduced,
    reduction_of,
)
from lazyt.functions.manipulation import expand_dims
from lazyt.functions.reductions import any, sum
from lazyt.functions.statistics import cumulative_sum
from lazyt.ir import dtypes
from lazyt.tracing.autocast import autocasts

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "cosine_embedding_loss",
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]


@autocasts("hinge_embedding_loss")
def hinge_embedding_loss(
    input: Any,
    target: Any,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The input where the target is 1, max(0, margin - input) where it is -1.

    Raises ShapeError if the shapes do not broadcast, DTypeError unless floating. As
    `torch.nn.functional.hinge_embedding_loss`.

    >>> import lazyt as lt
    >>> lt.nn.functional.hinge_embedding_loss(lt.asarray([0.5, 0.25]), lt.asarray([1, -1]), reduction="none").tolist()
    [0.5, 0.75]
    """
    name = "hinge_embedding_loss"
    reduction = reduction_of(name, reduction, size_average, reduce)
    x = floating(name, input)
    t = tensor(target, x)
    need_broadcast(name, x, t)
    far = where(not_equal(t, 1), relu(margin - x), 0.0)
    return reduced(far + where(not_equal(t, -1), x, 0.0), reduction)


@autocasts("soft_margin_loss")
def soft_margin_loss(
    input: Any,
    target: Any,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-target * input)) for targets of 1 and -1, without overflow.

    Raises ShapeError if the shapes do not broadcast, DTypeError unless floating. As
    `torch.nn.functional.soft_margin_loss`.

    >>> import lazyt as lt
    >>> lt.nn.functional.soft_margin_loss(lt.asarray([-1000.0]), lt.asarray([1.0])).item()
    1000.0
    """
    reduction = reduction_of("soft_margin_loss", reduction, size_average, reduce)
    x = floating("soft_margin_loss", input)
    t = tensor(target, x)
    need_broadcast("soft_margin_loss", x, t)
    return reduced(-logsigmoid(x * t), reduction)


@autocasts("margin_ranking_loss")
def margin_ranking_loss(
    input1: Any,
    input2: Any,
    target: Any,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -target * (input1 - input2) + margin): a target of 1 ranks input1 above input2, -1 below.

    Raises ShapeError if the shapes do not broadcast or differ in rank, DTypeError unless floating. As
    `torch.nn.functional.margin_ranking_loss`.

    >>> import lazyt as lt
    >>> a, b, t = lt.asarray([1.0]), lt.asarray([3.0]), lt.asarray([1.0])
    >>> lt.nn.functional.margin_ranking_loss(a, b, t).item()
    2.0
    """
    name = "margin_ranking_loss"
    reduction = reduction_of(name, reduction, size_average, reduce)
    a, b = floating(name, input1, "input1"), floating(name, input2, "input2")
    t = tensor(target, a)
    if not a.ndim == b.ndim == t.ndim:
        raise ShapeError(
            f"{name}: inputs and target of one number of dimensions are required, got {a.shape}, {b.shape}, {t.shape}"
        )
    need_broadcast(name, a, b, t)
    return reduced(relu(-t * (a - b) + margin), reduction)


@autocasts("cosine_embedding_loss")
def cosine_embedding_loss(
    input1: Any,
    input2: Any,
    target: Any,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos(input1, input2) where the target is 1, max(0, cos - margin) where it is -1.

    Inputs (N, D) with targets (N,), or (D,) with (). Raises ShapeError for others, DTypeError unless floating. As
    `torch.nn.functional.cosine_embedding_loss`.

    >>> import lazyt as lt
    >>> a, b = lt.asarray([1.0, 0.0]), lt.asarray([0.0, 1.0])
    >>> round(lt.nn.functional.cosine_embedding_loss(a, b, lt.asarray(1)).item(), 4)
    1.0
    """
    name = "cosine_embedding_loss"
    reduction = reduction_of(name, reduction, size_average, reduce)
    a, b = floating(name, input1, "input1"), floating(name, input2, "input2")
    t = tensor(target, a)
    if not (a.ndim == b.ndim == t.ndim + 1 <= 2):
        raise ShapeError(
            f"{name}: inputs (N, D) with a target (N,), or (D,) with (), are required, got {a.shape}, {b.shape} and "
            f"{t.shape}"
        )
    need_broadcast(name, a, b)
    lengths = (sum(a * a, axis=-1) + 1e-12) * (sum(b * b, axis=-1) + 1e-12)
    cos = sum(a * b, axis=-1) / sqrt(lengths)
    need_broadcast(name, cos, t)
    loss = where(equal(t, 1), 1 - cos, 0.0) + where(equal(t, -1), relu(cos - margin), 0.0)
    return reduced(loss, reduction)


def multilabel_soft_margin_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over the classes (the last axis) of the binary cross entropy of logits; `weight` has one a class.

    Raises ShapeError if the shapes do not fit, DTypeError unless floating. As
    `torch.nn.functional.multilabel_soft_margin_loss`.

    >>> import lazyt as lt
    >>> x, t = lt.asarray([[100.0, -100.0]]), lt.asarray([[0.0, 0.0]])
    >>> lt.nn.functional.multilabel_soft_margin_loss(x, t).item()
    50.0
    """
    name = "multilabel_soft_margin_loss"
    reduction = reduction_of(name, reduction, size_average, reduce)
    x = floating(name, input)
    t = tensor(target, x)
    need_shape(name, "a target", t, x.shape)
    if not x.ndim:
        raise ShapeError(f"{name}: an input (..., C) is required, got a scalar")
    loss = -(t * logsigmoid(x) + (1 - t) * logsigmoid(-x))
    if weight is not None:
        w = tensor(weight, x)
        if not broadcasts_to(w.shape, x.shape):
            raise ShapeError(f"{name}: a weight that broadcasts to {x.shape} is required, got {w.shape}")
        loss = loss * w
    return reduced(sum(loss, axis=-1) / x.shape[-1], reduction)


def _class_scores(name: str, input: Any) -> Tensor:
    x = floating(name, input)
    if x.ndim not in (1, 2) or not x.shape[-1]:
        raise ShapeError(f"{name}: an input (N, C) or (C,) is required, got {x.shape}")
    return x


@autocasts("multilabel_margin_loss")
def multilabel_margin_loss(
    input: Any,
    target: Any,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """sum(max(0, 1 - (x[y] - x[i]))) / C over the labels y and the classes i that are none.

    Input (N, C) or (C,); targets are labels of the same shape, of which those before the first negative one count.
    Raises ShapeError if the shapes do not fit, DTypeError; IndexOutOfRange at the sync for a label that is no class.
    As `torch.nn.functional.multilabel_margin_loss`.

    >>> import lazyt as lt
    >>> x, y = lt.asarray([0.0, 0.0]), lt.asarray([1, -1])
    >>> lt.nn.functional.multilabel_margin_loss(x, y).item()
    0.5
    """
    name = "multilabel_margin_loss"
    reduction = reduction_of(name, reduction, size_average, reduce)
    x = _class_scores(name, input)
    t = integers(name, target, x)
    need_shape(name, "a target", t, x.shape)
    counts = equal(cumulative_sum(less(t, 0).astype(dtypes.int64), axis=-1), 0)
    labels = where(counts, t, 0).astype(dtypes.int64)
    classes = arange(x.shape[-1], device=x.device)
    # (..., labels, classes)
    named = logical_and(equal(expand_dims(labels, -1), classes), expand_dims(counts, -1))
    others = logical_not(any(named, axis=-2, keepdims=True))
    gap = 1 - (expand_dims(take_along_axis(x, labels, axis=-1), -1) - expand_dims(x, -2))
    asked = logical_and(others, expand_dims(counts, -1))
    return reduced(sum(where(asked, relu(gap), 0.0), axis=(-2, -1)) / x.shape[-1], reduction)


@autocasts("multi_margin_loss")
def multi_margin_loss(
    input: Any,
    target: Any,
    p: int = 1,
    margin: float = 1.0,
    weight: Any = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """sum(max(0, margin - x[y] + x[i]) ** p) / C over the classes i that are not the label y; p is 1 or 2.

    Input (N, C) with labels (N,), or (C,) with (); `weight` has one a class. Raises ShapeError, DTypeError;
    IndexOutOfRange at the sync for a label that is no class. As `torch.nn.functional.multi_margin_loss`.

    >>> import lazyt as lt
    >>> lt.nn.functional.multi_margin_loss(lt.asarray([0.0, 0.0]), lt.asarray(1)).item()
    0.5
    """
    name = "multi_margin_loss"
    reduction = reduction_of(name, reduction, size_average, reduce)
    x = _class_scores(name, input)
    t = integers(name, target, x)
    if p not in (1, 2):
        raise ShapeError(f"{name}: p is 1 or 2, got {p}")
    need_shape(name, "a target", t, x.shape[:-1])
    label = expand_dims(t.astype(dtypes.int64), -1)
    gap = relu(margin - take_along_axis(x, label, axis=-1) + x)
    gap = gap if p == 1 else square(gap)
    if weight is not None:
        w = tensor(weight, x)
        need_shape(name, "a weight", w, x.shape[-1:])
        gap = gap * take(w, label, axis=0)
    others = not_equal(arange(x.shape[-1], device=x.device), label)
    return reduced(sum(where(others, gap, 0.0), axis=-1) / x.shape[-1], reduction)


@autocasts("triplet_margin_loss")
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin + d(anchor, positive) - d(anchor, negative)) for `pairwise_distance` d.

    With `swap`, the second distance is from the anchor or the positive, whichever is nearer. Raises ShapeError if the
    shapes do not broadcast or differ in rank or the margin is not positive, DTypeError unless floating. As
    `torch.nn.functional.triplet_margin_loss`.

    >>> import lazyt as lt
    >>> a, p, n = lt.zeros((1, 2)), lt.zeros((1, 2)), lt.asarray([[3.0, 4.0]])
    >>> round(lt.nn.functional.triplet_margin_loss(a, p, n, margin=6.0).item(), 3)
    1.0
    """
    reduction = reduction_of("triplet_margin_loss", reduction, size_average, reduce)

    def distance(x: Any, y: Any) -> Tensor:
        return pairwise_distance(x, y, p, eps)

    return _of_triplets("triplet_margin_loss", (anchor, positive, negative), distance, margin, swap, reduction)


def triplet_margin_with_distance_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    *,
    distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` by a distance of your own, `pairwise_distance` by default.

    Raises ShapeError, DTypeError. As `torch.nn.functional.triplet_margin_with_distance_loss`.

    >>> import lazyt as lt
    >>> a, p, n = lt.zeros((1, 2)), lt.zeros((1, 2)), lt.ones((1, 2))
    >>> manhattan = lambda x, y: abs(x - y).sum(-1)
    >>> lt.nn.functional.triplet_margin_with_distance_loss(a, p, n, distance_function=manhattan, margin=3.0).item()
    1.0
    """
    name = "triplet_margin_with_distance_loss"
    distance = pairwise_distance if distance_function is None else distance_function
    return _of_triplets(name, (anchor, positive, negative), distance, margin, swap, reduction_of(name, reduction))


def _of_triplets(
    name: str, triplet: tuple[Any, Any, Any], distance: Callable[[Any, Any], Any], margin: float, swap: bool, how: str
) -> Tensor:
    anchor, positive, negative = (floating(name, x, "an operand") for x in triplet)
    if not anchor.ndim == positive.ndim == negative.ndim:
        shapes = ", ".join(str(x.shape) for x in (anchor, positive, negative))
        raise ShapeError(f"{name}: operands of one number of dimensions are required, got {shapes}")
    need_broadcast(name, anchor, positive, negative)
    if margin <= 0:
        raise ShapeError(f"{name}: a positive margin is required, got {margin}")
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    need_broadcast(name, near, far)
    return reduced(relu(near - far + margin), how)
