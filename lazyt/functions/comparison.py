"""Whole arrays compared; the answer is a deferred 0-d bool, so asking `if` of it is what computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lazyt.functions.arguments import tensor, tensors
from lazyt.functions.arithmetic import isclose
from lazyt.functions.elementwise import isnan
from lazyt.functions.logic import equal, logical_and, logical_or
from lazyt.functions.reductions import all
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from lazyt.functions.arguments import ArrayLike
    from lazyt.runtime.tensor import Tensor

__all__ = ["allclose", "array_equal", "array_equiv"]


def allclose(a: ArrayLike, b: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Whether all elements are close (see `isclose`): a 0-d bool. Raises ShapeError if the shapes do not broadcast.

    As `numpy.allclose`.

    >>> import lazyt as lt
    >>> lt.allclose(lt.asarray([1.0, 2.0]), [1.0, 2.0 + 1e-9]).item()
    True
    """
    return all(isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan))


def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> Tensor:
    """Whether shapes and all elements are equal, NaN to NaN with `equal_nan`: a 0-d bool. As `numpy.array_equal`.

    >>> import lazyt as lt
    >>> lt.array_equal(lt.asarray([1, 2]), [1, 2]).item()
    True
    """
    x, y = tensors((a1, a2))
    if x.shape != y.shape:
        return tensor(np.asarray(False), x)
    same = equal(x, y)
    if equal_nan and dtypes.kind(x.dtype) in "fc" and dtypes.kind(y.dtype) in "fc":
        same = logical_or(same, logical_and(isnan(x), isnan(y)))
    return all(same)


def array_equiv(a1: ArrayLike, a2: ArrayLike) -> Tensor:
    """Whether the arrays broadcast and are then equal: a 0-d bool. As `numpy.array_equiv`.

    >>> import lazyt as lt
    >>> lt.array_equiv(lt.asarray([1, 1]), 1).item()
    True
    """
    x, y = tensors((a1, a2))
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return tensor(np.asarray(False), x)
    return all(equal(x, y))
