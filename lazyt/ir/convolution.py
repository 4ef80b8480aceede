"""Convolutions as matrix products over windows, for what has no code of its own for them.

convolve x, w          -->  matmul(w as (O, K), windows of x as (N, K, places))          K = C * sizes
convolve_filter x, y   -->  sum over N of matmul(windows of x as (N, K, places), y as (N, places, O))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import graph as g
from lazyt.ir.extents import product

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node


def by_products(b: Builder, n: Node, x: Node, y: Node) -> Node:
    """The value of the convolution n, of these operands."""
    a = n.attrs
    assert isinstance(a, g.Convolution)
    columns = _columns(b, x, a)
    images, depth, area = columns.shape
    if n.op == "convolve":
        features = y.shape[0]
        matrix = b.expand_to(b.reshape(y, (features, depth)), (images, features, depth))
        return b.reshape(b.matmul(matrix, columns), n.shape)
    features = y.shape[1]
    flat = b.reshape(y, (images, features, area))
    each = b.matmul(columns, b.permute(flat, (0, 2, 1)))
    return b.reshape(b.reduce("sum", each, (0,)), n.shape)


def _columns(b: Builder, x: Node, a: g.Convolution) -> Node:
    """x at every place of a window over its last axes: (N, C * sizes, places)."""
    axes, r = range(2, x.ndim), len(a.sizes)
    windows = b.window(x, axes, a.sizes, (1,) * r, a.dilations)
    columns = b.permute(windows, [0, 1, *(i + r for i in axes), *axes])
    return b.reshape(columns, (x.shape[0], product((x.shape[1], *a.sizes)), product(windows.shape[2 : 2 + r])))
