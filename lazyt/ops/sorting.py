"""Sorting: library calls on one axis, stable, with NaN as the greatest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.ir import dtypes
from lazyt.ir.symbolic import hint
from lazyt.ops import samples
from lazyt.ops.axes import one_axis
from lazyt.ops.definition import Operand, define, node_of, require_kind, result_type

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Dim


def _keys(b: Builder, name: str, x: Operand, axis: int) -> tuple[Node, int]:
    d = result_type(x)
    require_kind(name, d, "biuf", "a real dtype")
    v = node_of(b, x, d)
    return v, one_axis(name, axis, v.ndim)


def order(b: Builder, v: Node, axis: int, descending: bool) -> Node:
    """The int64 positions of the elements in order."""
    return b.opaque("argsort", (v,), (axis, descending), [(v.shape, dtypes.int64)])[0]


def sort(b: Builder, x: Operand, axis: int, descending: bool) -> Node:
    v, at = _keys(b, "sort", x, axis)
    return b.opaque("sort", (v,), (at, descending), [(v.shape, v.dtype)])[0]


def argsort(b: Builder, x: Operand, axis: int, descending: bool) -> Node:
    v, at = _keys(b, "argsort", x, axis)
    return order(b, v, at, descending)


def along(b: Builder, v: Node, index: Node, axis: int) -> Node:
    """v at `index` along one axis: both have the other axes alike."""
    return b.gather(v, [index if i == axis else b.iota(index.shape, i) for i in range(v.ndim)], tuple(range(v.ndim)))


def topk(b: Builder, x: Operand, axis: int, largest: bool, *, ints: tuple[int | Dim]) -> tuple[Node, Node]:
    v, at = _keys(b, "topk", x, axis)
    (k,) = ints
    if not 0 <= hint(k) <= hint(v.shape[at]):
        raise ShapeError(f"topk: k is between 0 and the extent {hint(v.shape[at])}, got {hint(k)}")
    shape = tuple(k if i == at else n for i, n in enumerate(v.shape))
    (index,) = b.opaque("topk", (v,), (at, largest, k), [(shape, dtypes.int64)])
    return along(b, v, index, at), index


def numpy_argsort(x: np.ndarray, axis: int = -1, descending: bool = False, stable: bool = True) -> np.ndarray:
    x = x.astype(dtypes.computed_in(x.dtype), copy=False)
    if not descending:
        return np.asarray(np.argsort(x, axis=axis, stable=True))
    backwards = np.argsort(np.flip(x, axis), axis=axis, stable=True)
    return np.asarray(x.shape[axis] - 1 - np.flip(backwards, axis))


def _numpy_sort(x: np.ndarray, axis: int = -1, descending: bool = False, stable: bool = True) -> np.ndarray:
    return np.take_along_axis(x, numpy_argsort(x, axis, descending), axis)


def _numpy_topk(
    x: np.ndarray, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    index = np.take(numpy_argsort(x, axis, largest), np.arange(k), axis)
    return np.take_along_axis(x, index, axis), index


_X = samples.array((3, 5))
_TIES = np.array([2, 1, 2, 0, 1, 2])
_NAN = np.array([1.0, np.nan, -np.inf, np.inf, np.nan, 0.0])
_BAD_AXIS = ((_X,), {"axis": 2}, ShapeError, "axis 2 is out of bounds")
_COMPLEX: Any = ((_X.astype("c8"),), {}, TypeError, "a real dtype is required")
_CALLS: tuple[Any, ...] = (
    (_X,), (_X, {"axis": 0}), (_X, {"descending": True}), (_TIES,), (_TIES, {"descending": True}), (_NAN,),
    (_NAN, {"descending": True}), (_X > 0,), (_X.astype("f2"),), (_X.astype(dtypes.bfloat16),), (_X[:0], {"axis": 0}),
)  # fmt: skip
SORT = define("sort", sort, saves=(0,), numpy=_numpy_sort, samples=samples.calls(*_CALLS), errors=[_BAD_AXIS, _COMPLEX])
ARGSORT = define(
    "argsort",
    argsort,
    numpy=numpy_argsort,
    samples=samples.calls(*_CALLS),
    errors=[_BAD_AXIS, _COMPLEX],
    differentiable=False,
)
TOPK = define(
    "topk",
    topk,
    saves=(1,),
    numpy=_numpy_topk,
    samples=samples.calls(
        (_X, 2), (_X, 3, {"axis": 0}), (_TIES, 4, {"largest": False}), (_X, 0), (_X, 5), (_X.astype("f2"), 1)
    ),
    errors=[((_X, 6), {}, ShapeError, "topk: k is between 0 and the extent 5, got 6")],
)
