"""Losses that have the last layer in them: of many classes, and of logits that nobody else needs."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyt.errors import ShapeError
from lazyt.functions import nn as functional
from lazyt.functions.arguments import tensor
from lazyt.functions.arithmetic import clip
from lazyt.functions.indexing import take_along_axis
from lazyt.functions.joining import concat
from lazyt.functions.logic import greater_equal, less, logical_and, where
from lazyt.functions.loss_arguments import reduction_of
from lazyt.functions.manipulation import expand_dims, reshape, squeeze
from lazyt.functions.reductions import argmax, mean
from lazyt.functions.statistics import log_softmax
from lazyt.nn.containers import ModuleList, Sequential
from lazyt.nn.linear import Linear
from lazyt.nn.module import Module
from lazyt.ops.axes import integer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.runtime.tensor import Tensor

__all__ = ["AdaptiveLogSoftmaxWithLoss", "LinearCrossEntropyLoss"]


class ASMoutput(NamedTuple):
    """The log-probability of each target, and the mean of their negatives."""

    output: Any
    loss: Any


class AdaptiveLogSoftmaxWithLoss(Module):
    """The log-softmax of many classes, the frequent ones first: clusters of rare ones have smaller weights.

    (N, in_features) or (in_features,) and integer targets (N,) or () give a pair `output` (as the targets) and `loss`.
    Classes below `cutoffs[0]` are the head's, the others those of clusters whose layers are `div_value` times smaller
    each. Every cluster is computed of every row, so that nothing syncs; one without targets has
    gradients of 0, not None. Raises ShapeError for cutoffs or inputs that do
    not fit, IndexOutOfRange at the sync for a target that is no class. As `torch.nn.AdaptiveLogSoftmaxWithLoss`. Grave
    et al. (2017).

    >>> import lazyt as lt
    >>> m = lt.nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[4, 10])
    >>> m(lt.ones((2, 8)), lt.asarray([0, 19])).output.shape, m.log_prob(lt.ones((2, 8))).shape
    ((2,), (2, 20))
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        bounds = [integer(name, "cutoffs", c) for c in cutoffs]
        if not bounds or bounds != sorted(set(bounds)) or bounds[0] < 1 or bounds[-1] >= n_classes:
            raise ShapeError(f"{name}: cutoffs grow and are from 1 to n_classes - 1 = {n_classes - 1}, got {cutoffs}")
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*bounds, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = bounds[0], len(bounds)
        self.head_size = self.shortlist_size + self.n_clusters
        options = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **options)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            width = int(in_features // div_value ** (i + 1))
            first = Linear(in_features, width, bias=False, **options)
            self.tail.append(Sequential(first, Linear(width, high - low, bias=False, **options)))

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        self.head.reset_parameters()
        for cluster in self.tail:
            first, second = cluster.children()
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_: Any, target_: Any) -> Any:
        x, y = tensor(input_), tensor(target_)
        if y.ndim > 1 or x.ndim != y.ndim + 1 or x.shape[-1] != self.in_features or x.shape[:-1] != y.shape:
            raise ShapeError(
                f"{type(self).__name__}: an input (N, {self.in_features}) and targets (N,) are required, or both "
                f"without N, got shapes {x.shape} and {y.shape}"
            )
        lone = not y.ndim
        if lone:
            x, y = expand_dims(x, 0), expand_dims(y, 0)
        # NOTE: what is no class has a number beyond the head, and fails where that is indexed.
        at = where(logical_and(greater_equal(y, 0), less(y, self.shortlist_size)), y, self.head_size)
        parts = []
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            inside = logical_and(greater_equal(y, low), less(y, high))
            own = log_softmax(self.tail[i](x), axis=1)
            chosen = squeeze(take_along_axis(own, expand_dims(clip(y - low, 0, high - low - 1), 1), axis=1), 1)
            parts.append(where(inside, chosen, 0.0))
            at = where(inside, self.shortlist_size + i, at)
        output = squeeze(take_along_axis(log_softmax(self.head(x), axis=1), expand_dims(at, 1), axis=1), 1)
        for part in parts:
            output = output + part
        loss = mean(-output)
        return ASMoutput(squeeze(output, 0) if lone else output, loss)

    def log_prob(self, input: Any) -> Tensor:
        """The log-probabilities of all classes: (N, in_features) gives (N, n_classes)."""
        head = log_softmax(self.head(input), axis=1)
        short = self.shortlist_size
        parts = [
            log_softmax(cluster(input), axis=1) + head[:, short + i : short + i + 1]
            for i, cluster in enumerate(self.tail)
        ]
        return concat([head[:, :short], *parts], axis=1)

    def predict(self, input: Any) -> Tensor:
        """The likeliest classes: (N, in_features) gives (N,)."""
        return argmax(self.log_prob(input), axis=1)


class LinearCrossEntropyLoss(Module):
    """`cross_entropy` of a linear layer's outputs, the layer being `linear`. As `torch.nn.LinearCrossEntropyLoss`.

    (N, in_features) with targets (N,) or, with `out_features`, (N, *out_features), of classes or of probabilities. How
    the work is divided is the planner's matter: there are no `options`. Raises as
    `functional.linear_cross_entropy`.

    >>> import lazyt as lt
    >>> lt.nn.LinearCrossEntropyLoss(5, 10, out_features=(4,))(lt.ones((2, 5)), lt.zeros((2, 4), dtype="int64")).shape
    ()
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Any = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        given = None if weight is None else tensor(weight)
        if given is not None and given.shape != (num_classes,):
            raise ShapeError(f"{name}: a weight of shape {(num_classes,)} is required, got {given.shape}")
        if not 0 <= label_smoothing <= 1:
            raise ShapeError(f"{name}: label_smoothing is in [0, 1], got {label_smoothing}")
        self.num_classes, self.out_features = num_classes, tuple(out_features)
        self.reduction = reduction_of(name, reduction)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing
        self.register_buffer("weight", given)
        rows = math.prod(self.out_features, start=num_classes)
        self.linear = Linear(in_features, rows, bias=bias, device=device, dtype=dtype)

    def forward(self, input: Any, target: Any) -> Any:
        ends = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return functional.linear_cross_entropy(
            input,
            reshape(self.linear.weight, (*ends, self.linear.in_features)),
            target,
            linear_bias=None if bias is None else reshape(bias, ends),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, out_features={self.out_features}, "
            f"bias={self.linear.bias is not None}, reduction={self.reduction!r}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}"
        )
