"""Resampling along axes by tables of what each result reads (lazyt/ops/axis_maps.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.ir import dtypes
from lazyt.ops import samples
from lazyt.ops.axis_maps import AxisMap, mapped, picked
from lazyt.ops.definition import define

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node


def resample(b: Builder, x: Node, *rest: Any) -> Node:
    """Operands x and four tables an axis; statics: the axes, and for each how wide its tables are."""
    *tables, axes, widths = rest
    v = b.cast(x, dtypes.computed_in(x.dtype)) if dtypes.kind(x.dtype) == "f" else x
    for i, (axis, (width, shared)) in enumerate(zip(axes, widths, strict=True)):
        reads, weights, fed, shares = tables[4 * i : 4 * i + 4]
        b.same(fed.shape[0], v.shape[axis])
        for table, wide in ((reads, width), (weights, width), (fed, shared), (shares, shared)):
            b.same(table.shape[1], wide)
        if dtypes.kind(x.dtype) == "f":
            m = AxisMap(_wide(b, reads, width), _wide(b, weights, width, v.dtype),
                        _wide(b, fed, shared), _wide(b, shares, shared, v.dtype))  # fmt: skip
            v = mapped(b, v, axis, m)
        else:
            v = picked(b, v, axis, _wide(b, reads, width))
    return b.cast(v, x.dtype)


def _wide(b: Builder, table: Node, width: int, dtype: np.dtype | None = None) -> Node:
    """A table whose width is part of the program."""
    table = b.reshape(table, (table.shape[0], width))
    return table if dtype is None else b.cast(table, dtype)


def _numpy(x: np.ndarray, *tables: np.ndarray, axes: tuple[int, ...] = (-1,)) -> np.ndarray:
    y = x.astype(np.float64)
    for i, axis in enumerate(axes):
        reads, weights = tables[4 * i], tables[4 * i + 1]
        parts = np.moveaxis(y, axis, -1)[..., reads]
        y = np.moveaxis((parts * weights).sum(-1), -1, axis)
    return y.astype(x.dtype)


RESAMPLE = define(
    "resample",
    resample,
    numpy=_numpy,
    samples=samples.calls(
        (
            samples.array((2, 3)),
            np.array([[0, 1], [1, 2]]),
            np.full((2, 2), 0.5),
            np.array([[0, 0], [0, 1], [1, 1]]),
            np.array([[0.5, 0], [0.5, 0.5], [0.5, 0]]),
        )
    ),
)
