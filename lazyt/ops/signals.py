"""A vector's windows times another vector: what convolution and correlation of two vectors are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lazyt.ir import dtypes
from lazyt.ops import samples
from lazyt.ops.convolution import padded
from lazyt.ops.core import PRODUCT, Operand, define, node_of, result_type

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node


def sliding_dot(b: Builder, x: Operand, y: Operand, m: int, before: int, after: int) -> Node:
    """sum_k x[i - before + k] y[k], with 0 for what lies outside of x; y has m elements. For bool, whether any is."""
    d = result_type(x, y)
    v, w = node_of(b, x, d), node_of(b, y, d)
    b.same(w.shape[0], m)
    windows = b.window(padded(b, v, ((before, after),), 0), (0,), (m,), (1,), (1,))
    both = (windows, b.expand_to(w, windows.shape))
    return b.reduce("any", b.and_(*both), (1,)) if d == dtypes.bool_ else b.reduce("sum", b.mul(*both), (1,))


def _numpy(x: np.ndarray, y: np.ndarray, m: int, before: int, after: int) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, (before, after)), m)
    return np.asarray((windows & y).any(-1) if x.dtype == np.bool_ else (windows * y).sum(-1).astype(x.dtype))


_X = samples.array((7,))
_CALLS = tuple(
    (_X.astype(d), _X[:3].astype(d), 3, before, after)
    for d in ("f4", "f8", "f2", "i4", "u1", "?", "c8")
    for before, after in ((0, 0), (2, 2), (1, 1))
)
SLIDING_DOT = define("sliding_dot", sliding_dot, saves=PRODUCT, numpy=_numpy, samples=samples.calls(*_CALLS))
