"""Categories drawn by their weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.errors import DTypeError, LazytError, ShapeError
from lazyt.functions.arguments import tensor
from lazyt.functions.arithmetic import add
from lazyt.functions.elementwise import log, negative
from lazyt.functions.logic import greater, where
from lazyt.functions.manipulation import expand_dims
from lazyt.functions.random import random
from lazyt.functions.reductions import argmax
from lazyt.functions.sorting import topk
from lazyt.ir import dtypes
from lazyt.tracing.current import restore_grad_mode, set_grad_mode

if TYPE_CHECKING:
    from lazyt.functions.random import Generator
    from lazyt.runtime.tensor import Tensor

__all__ = ["multinomial"]


def multinomial(
    weights: Any, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Indices along the last axis, drawn by weights that need not sum to 1: (k,) -> (num_samples,), and rows alike.

    Without replacement the indices of a row differ: num_samples is at most k, and rows of fewer weights above 0 than
    that go on with indices of weight 0, because the weights are not read. Nothing is computed: the draw is the largest
    of the weights' logarithms and Gumbel numbers. Raises ShapeError unless weights has one or two dimensions,
    DTypeError unless they are real floats, LazytError for more samples than there are. As `torch.multinomial`.

    >>> import lazyt as lt
    >>> lt.multinomial(lt.asarray([0.0, 3.0, 0.0]), 4, replacement=True).tolist()
    [1, 1, 1, 1]
    >>> sorted(lt.multinomial(lt.asarray([1.0, 3.0, 2.0]), 3).tolist())
    [0, 1, 2]
    """
    w = tensor(weights)
    if w.ndim not in (1, 2):
        raise ShapeError(f"multinomial: weights have one or two dimensions, got shape {w.shape}")
    if dtypes.kind(w.dtype) != "f":
        raise DTypeError(f"multinomial: weights are real floating numbers, got {w.dtype}")
    if num_samples < 1 or (not replacement and num_samples > w.shape[-1]):
        raise LazytError(
            f"multinomial: from 1 to {w.shape[-1]} samples without replacement, got num_samples={num_samples}"
        )
    before = set_grad_mode(False)
    try:
        logits = where(greater(w, 0), log(w), -math.inf)
        shape = (*w.shape[:-1], num_samples, w.shape[-1]) if replacement else w.shape
        u = random(shape, dtype=w.dtype, generator=generator, device=w.device)
        noise = negative(log(negative(log(where(greater(u, 0), u, 1e-7)))))
        if replacement:
            return argmax(add(expand_dims(logits, -2), noise), axis=-1)
        return topk(add(logits, noise), num_samples)[1]
    finally:
        restore_grad_mode(before)


def __dir__() -> list[str]:
    return sorted(__all__)
