"""Negative log-likelihoods of counts and of normal variables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions.arguments import tensor
from lazyt.functions.distances import at_least
from lazyt.functions.elementwise import exp, log, square
from lazyt.functions.logic import less_equal, where
from lazyt.functions.loss_arguments import floating, need_broadcast, reduced, reduction_of
from lazyt.functions.manipulation import expand_dims
from lazyt.tracing.autocast import autocasts

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = ["gaussian_nll_loss", "poisson_nll_loss"]


@autocasts("poisson_nll_loss")
def poisson_nll_loss(
    input: Any,
    target: Any,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """exp(input) - target * input, or input - target * log(input + eps) without `log_input`.

    With `full`, Stirling's approximation of log(target!) is added where the target is above 1. Raises ShapeError if
    the shapes do not broadcast, DTypeError unless floating. As `torch.nn.functional.poisson_nll_loss`.

    >>> import lazyt as lt
    >>> lt.nn.functional.poisson_nll_loss(lt.asarray([0.0]), lt.asarray([3.0])).item()
    1.0
    """
    reduction = reduction_of("poisson_nll_loss", reduction, size_average, reduce)
    x = floating("poisson_nll_loss", input)
    t = tensor(target, x)
    need_broadcast("poisson_nll_loss", x, t)
    loss = exp(x) - t * x if log_input else x - t * log(x + eps)
    if full:
        small = less_equal(t, 1)
        safe = where(small, 1.0, t)  # no log of 0, whose gradient is NaN
        loss = loss + where(small, 0.0, safe * log(safe) - safe + 0.5 * log(2 * math.pi * safe))
    return reduced(loss, reduction)


def gaussian_nll_loss(
    input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """(log(var) + (input - target)**2 / var) / 2, with variances of at least eps.

    `var` is of the input's size, or lacks its last axis, or has one axis of extent 1, or is a number. With `full`,
    log(2 * pi) / 2 is added. Raises ShapeError for other sizes and for a negative number, DTypeError unless floating.
    A negative element counts as eps: to refuse it would take a sync. As `torch.nn.functional.gaussian_nll_loss`.

    >>> import lazyt as lt
    >>> lt.nn.functional.gaussian_nll_loss(lt.asarray([1.0]), lt.asarray([3.0]), lt.asarray([1.0])).item()
    2.0
    """
    name = "gaussian_nll_loss"
    reduction = reduction_of(name, reduction)
    x = floating(name, input)
    t = tensor(target, x)
    need_broadcast(name, x, t)
    if isinstance(var, int | float):
        if var < 0:
            raise ShapeError(f"{name}: a non-negative var is required, got {var}")
        v = tensor(var, x).astype(x.dtype)
    else:
        v = tensor(var, x)
        if v.shape != x.shape and v.shape == x.shape[:-1]:
            v = expand_dims(v, -1)
        elif v.shape != x.shape:
            shared = v.ndim == x.ndim and [b for a, b in zip(x.shape, v.shape, strict=True) if a != b] == [1]
            if not shared:
                raise ShapeError(
                    f"{name}: var of the input's size {x.shape}, or of extent 1 along one axis, is "
                    f"required, got {v.shape}"
                )
    v = at_least(v, eps)
    loss = 0.5 * (log(v) + square(x - t) / v)
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)
