"""Layers without state (`lazyt.nn.functional`); activations, convolutions, norms and losses have their own files."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions import (
    activations,
    adaptive_pooling,
    convolution,
    ctc,
    distances,
    dropout as dropouts,
    embedding as embeddings,
    folding,
    fractional_pooling,
    grids,
    inplace_activations,
    likelihood_losses,
    losses,
    margin_losses,
    normalization,
    pooling,
    resampling,
    shrinking,
    shuffling,
    softmaxes,
    spatial_padding,
    unpooling,
)
from lazyt.functions.activations import *  # noqa: F403  one namespace, as in PyTorch
from lazyt.functions.adaptive_pooling import *  # noqa: F403
from lazyt.functions.arguments import record, tensor, tensors
from lazyt.functions.convolution import *  # noqa: F403
from lazyt.functions.ctc import *  # noqa: F403
from lazyt.functions.distances import *  # noqa: F403
from lazyt.functions.dropout import *  # noqa: F403
from lazyt.functions.dropout import rate_of
from lazyt.functions.embedding import *  # noqa: F403
from lazyt.functions.folding import *  # noqa: F403
from lazyt.functions.fractional_pooling import *  # noqa: F403
from lazyt.functions.grids import *  # noqa: F403
from lazyt.functions.inplace_activations import *  # noqa: F403
from lazyt.functions.likelihood_losses import *  # noqa: F403
from lazyt.functions.losses import *  # noqa: F403
from lazyt.functions.manipulation import expand_dims, permute_dims, reshape
from lazyt.functions.margin_losses import *  # noqa: F403
from lazyt.functions.normalization import *  # noqa: F403
from lazyt.functions.pooling import *  # noqa: F403
from lazyt.functions.products import matmul
from lazyt.functions.random import default_generator
from lazyt.functions.reductions import sum
from lazyt.functions.resampling import *  # noqa: F403
from lazyt.functions.shrinking import *  # noqa: F403
from lazyt.functions.shuffling import *  # noqa: F403
from lazyt.functions.softmaxes import *  # noqa: F403
from lazyt.functions.spatial_padding import *  # noqa: F403
from lazyt.functions.unpooling import *  # noqa: F403
from lazyt.ops import nn as ops
from lazyt.tracing.autocast import autocasts

if TYPE_CHECKING:
    from lazyt.functions.random import Generator
    from lazyt.runtime.tensor import Tensor

__all__ = [
    *activations.__all__,
    "bilinear",
    *adaptive_pooling.__all__,
    *convolution.__all__,
    *ctc.__all__,
    *distances.__all__,
    *dropouts.__all__,
    *embeddings.__all__,
    *inplace_activations.__all__,
    *likelihood_losses.__all__,
    "linear",
    *losses.__all__,
    *margin_losses.__all__,
    *normalization.__all__,
    *pooling.__all__,
    *resampling.__all__,
    *folding.__all__,
    *shuffling.__all__,
    *grids.__all__,
    *fractional_pooling.__all__,
    *spatial_padding.__all__,
    *unpooling.__all__,
    "scaled_dot_product_attention",
    *shrinking.__all__,
    *softmaxes.__all__,
]


def linear(x: Any, weight: Any, bias: Any = None) -> Tensor:
    """x @ weight.T + bias: (..., in) with a weight (out, in) gives (..., out).

    Raises ShapeError if the shapes do not fit. As `torch.nn.functional.linear`.

    >>> import lazyt as lt
    >>> lt.nn.functional.linear(lt.asarray([1.0, 2.0]), lt.asarray([[1.0, 1.0]]), lt.asarray([0.5])).tolist()
    [3.5]
    """
    return record(ops.LINEAR, (x, weight) if bias is None else (x, weight, bias))


@autocasts("bilinear")
def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Tensor:
    """input1 @ weight[o] @ input2 + bias for each output o: (..., in1), (..., in2) and (out, in1, in2) give (..., out).

    Raises ShapeError if the shapes do not fit. As `torch.nn.functional.bilinear`.

    >>> import lazyt as lt
    >>> lt.nn.functional.bilinear(lt.ones((1, 2)), lt.ones((1, 3)), lt.ones((4, 2, 3))).tolist()
    [[6.0, 6.0, 6.0, 6.0]]
    """
    a, b, w = tensors((input1, input2, weight))
    fits = w.ndim == 3 and a.shape[:-1] == b.shape[:-1] and a.shape[-1:] + b.shape[-1:] == w.shape[1:]
    if not fits:
        raise ShapeError(
            "bilinear: inputs (..., in1) and (..., in2) with a weight (out, in1, in2) are required, got "
            f"{a.shape}, {b.shape} and {w.shape}"
        )
    out, first, second = w.shape
    # One product of matrices with all outputs side by side; the second product is a sum in the same pass.
    left = reshape(matmul(a, reshape(permute_dims(w, (1, 0, 2)), (first, out * second))), (*a.shape[:-1], out, second))
    y = sum(left * expand_dims(b, -2), axis=-1)
    return y if bias is None else y + bias


def _grouped(q: Any, k: Any, v: Any, mask: Any) -> tuple[Any, Any, Any, Any]:
    """The query's heads in groups, (..., groups, heads of a group, length, features), and keys and values for each."""
    heads, shared = (x.shape[-3] if len(x.shape) > 2 else 0 for x in (q, k))
    if not shared or len(v.shape) < 3 or v.shape[-3] != shared or heads % shared:
        raise ShapeError(
            "scaled_dot_product_attention: with enable_gqa, as many heads of keys as of values, which divide those of "
            f"the query, are required, got shapes {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
        )
    q = reshape(q, (*q.shape[:-3], shared, heads // shared, *q.shape[-2:]))
    if mask is not None and len(mask.shape) > 2:
        found = (shared, heads // shared) if mask.shape[-3] == heads else (1, 1)
        mask = reshape(mask, (*mask.shape[:-3], *found, *mask.shape[-2:]))
    return q, expand_dims(k, -3), expand_dims(v, -3), mask


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """softmax(query @ key.T * scale) @ value over (..., length, features); scale is by default 1 / sqrt(features).

    A bool mask says which keys a query sees, another one is added to the products; a query that sees none gives 0.
    `is_causal` hides later keys. With `enable_gqa`, (..., heads, length, features) of key and value are shared by equal
    groups of the query's heads. Raises ShapeError if the shapes do not fit. As
    `torch.nn.functional.scaled_dot_product_attention`.

    >>> import lazyt as lt
    >>> q = lt.ones((1, 2, 4))
    >>> lt.nn.functional.scaled_dot_product_attention(q, q, q).shape
    (1, 2, 4)
    """
    if is_causal and attn_mask is not None:
        raise ShapeError("scaled_dot_product_attention: give attn_mask or is_causal, not both")
    query = tensor(query)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1]) if len(query.shape) and query.shape[-1] else 1.0
    if enable_gqa:
        q, k, v, mask = _grouped(query, key, value, attn_mask)
        y = scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal, scale, generator=generator)
        return reshape(y, (*query.shape[:-1], v.shape[-1]))
    operands = (query, key, value, *(() if attn_mask is None else (attn_mask,)), float(scale))
    if dropout_p:
        operands += (*rate_of("scaled_dot_product_attention", dropout_p), *(generator or default_generator()).step())
    statics = (attn_mask is not None, bool(is_causal), bool(dropout_p))
    return record(ops.SCALED_DOT_PRODUCT_ATTENTION, operands, statics)
