"""Products of a vector's windows with another vector: convolution and correlation of two vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lazyt.ir import dtypes
from lazyt.ops import samples
from lazyt.ops.definition import PRODUCT, OpDef, Operand, define, node_of, result_type

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

# Measured: from so many results on, neighbours side by side take less time than each along its window.
MANY = 16


def sliding_dot(b: Builder, x: Operand, y: Operand, m: int, before: int, after: int) -> Node:
    """sum_k x[i - before + k] y[k], with 0 for what lies outside of x; y has m elements. For bool, whether any is."""
    d = result_type(x, y)
    v, w = node_of(b, x, d), node_of(b, y, d)
    b.same(w.shape[0], m)
    if before or after:
        # NOTE: a concatenation is stored, where a pad would be a condition at every product.
        zeros = [b.expand_to(b.constant(0, d), (n,)) for n in (before, after)]
        v = b.concat([zeros[0], v, zeros[1]], 0)
    windows = b.window(v, (0,), (m,), (1,), (1,))
    # The lanes are neighbouring results, which read neighbours; along the windows only where there are few of these.
    if columns := b.at_least(windows.shape[0], MANY):
        windows, w = b.permute(windows, (1, 0)), b.reshape(w, (m, 1))
    both, axis = (windows, b.expand_to(w, windows.shape)), int(not columns)
    return b.reduce("any", b.and_(*both), (axis,)) if d == dtypes.bool_ else b.reduce("sum", b.mul(*both), (axis,))


def _numpy(x: np.ndarray, y: np.ndarray, m: int, before: int, after: int) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, (before, after)), m)
    return np.asarray((windows & y).any(-1) if x.dtype == np.bool_ else (windows * y).sum(-1).astype(x.dtype))


_X = samples.array((20,))
_CALLS = tuple(
    (_X[:n].astype(d), _X[:3].astype(d), 3, before, after)
    for d in ("f4", "f8", "f2", "i4", "u1", "?", "c8")
    for n in (7, 20)
    for before, after in ((0, 0), (2, 2), (1, 0))
)
SLIDING_DOT = define("sliding_dot", sliding_dot, saves=PRODUCT, numpy=_numpy, samples=samples.calls(*_CALLS))

# Of two arrays of one shape and dtype.
COMPLEX = OpDef("complex", lambda b, x, y: b.complex(x, y))
