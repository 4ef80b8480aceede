"""Distances and similarities of vectors, and vectors of length 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.functions.arguments import tensor, tensors
from lazyt.functions.arithmetic import maximum
from lazyt.functions.conversion import asarray
from lazyt.functions.indexing import take
from lazyt.functions.linalg import vector_norm
from lazyt.functions.loss_arguments import floating, need_broadcast
from lazyt.functions.manipulation import broadcast_to, expand_dims
from lazyt.functions.reductions import sum
from lazyt.tracing.autocast import autocasts

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = ["cdist", "cosine_similarity", "normalize", "pairwise_distance", "pdist"]

_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")


def at_least(x: Tensor, low: float) -> Tensor:
    """max(x, low) whose gradient is x's everywhere: PyTorch clamps without telling autograd."""
    v = x.detach()
    return x + (maximum(v, low) - v)


@autocasts("cosine_similarity")
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along `dim`; lengths count as at least eps, and operands broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError unless floating. As
    `torch.nn.functional.cosine_similarity`.

    >>> import lazyt as lt
    >>> lt.nn.functional.cosine_similarity(lt.asarray([[1.0, 0.0]]), lt.asarray([[2.0, 0.0]])).tolist()
    [1.0]
    """
    x1, x2 = tensors((x1, x2))
    a, b = floating("cosine_similarity", x1, "x1"), floating("cosine_similarity", x2, "x2")
    shape = need_broadcast("cosine_similarity", a, b)
    a, b = (v if v.shape == shape else broadcast_to(v, shape) for v in (a, b))
    lengths = [at_least(vector_norm(v, axis=dim, keepdims=True), eps) for v in (a, b)]
    return sum(a / lengths[0] * (b / lengths[1]), axis=dim)


def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last axis; operands broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError unless floating. As
    `torch.nn.functional.pairwise_distance`.

    >>> import lazyt as lt
    >>> lt.nn.functional.pairwise_distance(lt.asarray([[3.0, 4.0]]), lt.zeros((1, 2)), eps=0.0).tolist()
    [5.0]
    """
    x1, x2 = tensors((x1, x2))
    a, b = floating("pairwise_distance", x1, "x1"), floating("pairwise_distance", x2, "x2")
    need_broadcast("pairwise_distance", a, b)
    return vector_norm(a - b + eps, axis=-1, keepdims=keepdim, ord=p)


@autocasts("cdist")
def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: str = _MODES[0]) -> Tensor:
    """The p-norm distances of all vectors of x1 (..., P, M) to all of x2 (..., R, M): (..., P, R).

    Every `compute_mode` of PyTorch's subtracts the vectors, which is exact; none goes by a matrix product. Raises
    ShapeError if the shapes do not fit or p is negative, DTypeError unless floating. As `torch.cdist`.

    >>> import lazyt as lt
    >>> lt.cdist(lt.asarray([[0.0, 0.0]]), lt.asarray([[3.0, 4.0], [0.0, 1.0]])).tolist()
    [[5.0, 1.0]]
    """
    x1, x2 = tensors((x1, x2))
    a, b = floating("cdist", x1, "x1"), floating("cdist", x2, "x2")
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"cdist: x1 (..., P, M) and x2 (..., R, M) are required, got {a.shape} and {b.shape}")
    if p < 0:
        raise ShapeError(f"cdist: a non-negative p is required, got {p}")
    if compute_mode not in _MODES:
        raise ShapeError(f"cdist: compute_mode is one of {', '.join(_MODES)}, got {compute_mode!r}")
    a, b = expand_dims(a, -2), expand_dims(b, -3)
    need_broadcast("cdist", a, b)
    return vector_norm(a - b, axis=-1, ord=p)


@autocasts("pdist")
def pdist(input: Any, p: float = 2.0) -> Tensor:
    """The p-norm distances of the rows i < j of a matrix (N, M), one after another: (N * (N - 1) / 2,).

    Raises ShapeError unless given a matrix and a p of at least 0, DTypeError unless floating. As
    `torch.nn.functional.pdist`.

    >>> import lazyt as lt
    >>> lt.nn.functional.pdist(lt.asarray([[0.0], [1.0], [3.0]])).tolist()
    [1.0, 3.0, 2.0]
    """
    x = floating("pdist", input)
    if x.ndim != 2:
        raise ShapeError(f"pdist: a matrix (N, M) is required, got {x.shape}")
    if p < 0:
        raise ShapeError(f"pdist: a non-negative p is required, got {p}")
    first, second = (tensor(asarray(i, device=x.device)) for i in np.triu_indices(x.shape[0], 1))
    return vector_norm(take(x, first, axis=0) - take(x, second, axis=0), axis=-1, ord=p)


def normalize(input: Any, p: float = 2.0, dim: int | tuple[int, ...] = 1, eps: float = 1e-12) -> Tensor:
    """input / max(its p-norm along `dim`, eps). Raises AxisError for a bad axis, DTypeError unless floating.

    As `torch.nn.functional.normalize`.

    >>> import lazyt as lt
    >>> lt.nn.functional.normalize(lt.asarray([[0.0, 4.0]])).tolist()
    [[0.0, 1.0]]
    """
    x = floating("normalize", input)
    return x / maximum(vector_norm(x, axis=dim, keepdims=True, ord=p), eps)
