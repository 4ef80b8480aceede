"""Searches whose result has the shape of an operand; searches with data-dependent shapes are functions only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.ir import dtypes
from lazyt.ops import samples
from lazyt.ops.definition import Operand, define, node_of, require_kind, result_type
from lazyt.ops.logic import is_mixed

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node


def searchsorted(b: Builder, x1: Operand, x2: Operand, *rest: Any) -> Node:
    """Operands x1, x2, [sorter]; statics: the side."""
    *sorter, side = rest
    if side not in ("left", "right"):
        raise ShapeError(f"searchsorted: side is 'left' or 'right', got {side!r}")
    d = result_type(x1, x2)
    require_kind("searchsorted", d, "biuf", "a real dtype")
    v, w = node_of(b, x1, d), node_of(b, x2, d)
    if v.ndim != 1:
        raise ShapeError(f"searchsorted: a sorted vector is required, got {v.ndim} dimensions")
    if sorter:
        require_kind("searchsorted", sorter[0].dtype, "iu", "an integer sorter")
        if sorter[0].ndim != 1:
            raise ShapeError(f"searchsorted: the sorter is a vector, got {sorter[0].ndim} dimensions")
        v = b.gather(v, (b.cast(sorter[0], dtypes.int64),), (0,))
    return b.opaque("searchsorted", (v, w), (side,), [(w.shape, dtypes.int64)])[0]


_SORTED = np.array([0.0, 1.0, 1.0, 2.5])
_WANTED = np.array([[1.0, -1.0], [3.0, np.nan]])
SEARCHSORTED = define(
    "searchsorted",
    searchsorted,
    fallible=True,
    numpy=np.searchsorted,
    samples=samples.calls(
        (_SORTED, _WANTED),
        (_SORTED, _WANTED, {"side": "right"}),
        (np.array([3, 1, 2]), np.array([2, 9]), {"sorter": np.array([1, 2, 0])}),
        (_SORTED, np.array(1.0)),
        (_SORTED[:0], _WANTED),
    ),
    errors=[
        ((_WANTED, _WANTED), {}, ShapeError, "searchsorted: a sorted vector is required"),
        ((_SORTED, _WANTED), {"side": "middle"}, ShapeError, "searchsorted: side is"),
    ],
    differentiable=False,
)


def isin(b: Builder, x1: Operand, x2: Operand, invert: bool) -> Node:
    mixed = is_mixed(x1, x2)
    d = dtypes.uint64 if mixed else result_type(x1, x2)
    v, w = node_of(b, x1, d), node_of(b, x2, d)
    (found,) = b.opaque("isin", (v, w), (), [(v.shape, dtypes.bool_)])
    if mixed:
        # As uint64 a negative number is 2**63 or more, which no signed one is.
        found = b.and_(found, b.ge(b.cast(v, dtypes.int64), b.constant(0, dtypes.int64)))
    return b.not_(found) if invert else found


ISIN = define(
    "isin",
    isin,
    numpy=np.isin,
    samples=samples.calls(
        (np.array([[1, 2], [3, 4]]), np.array([2, 4])),
        (np.array([1.0, np.nan]), np.array([np.nan, 2.0]), {"invert": True}),
        (np.array([1, 2]), np.array([], int)),
        (np.array(3), np.array([3, 5])),
    ),
    differentiable=False,
)
