"""Derivatives of matrix products and convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.autograd.rules.formula import Value
from lazyt.autograd.rules.registry import vjp
from lazyt.ir import graph as g
from lazyt.ir.adjoints import image_of

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    Cotangents = tuple[Node | None, ...]


@vjp("matmul")
def _matmul(b: Builder, n: Node, ct: Node) -> Cotangents:
    x, y, c = (Value(b, v) for v in (*n.operands, ct))
    return ((c @ y.H).node, (x.H @ c).node)


def _as_filter(b: Builder, found: Node) -> Node:
    """A `convolve_filter` with its features first again."""
    return b.permute(found, (found.ndim - 1, *range(found.ndim - 1)))


@vjp("convolve")
def _convolve(b: Builder, n: Node, ct: Node) -> Cotangents:
    a, (x, w) = n.attrs, n.operands
    assert isinstance(a, g.Convolution)
    return image_of(b, ct, w, a, x.shape), _as_filter(b, b.convolve_filter(x, ct, a, w.shape))


@vjp("convolve_filter")
def _convolve_filter(b: Builder, n: Node, ct: Node) -> Cotangents:
    a, (x, y) = n.attrs, n.operands
    assert isinstance(a, g.Convolution)
    w = _as_filter(b, ct)
    return image_of(b, y, w, a, x.shape), b.convolve(x, w, a, y.shape[1])


@vjp("convolve_image")
def _convolve_image(b: Builder, n: Node, ct: Node) -> Cotangents:
    a, (y, w) = n.attrs, n.operands
    assert isinstance(a, g.Convolution)
    return b.convolve(ct, w, a, y.shape[1]), _as_filter(b, b.convolve_filter(ct, y, a, w.shape))
