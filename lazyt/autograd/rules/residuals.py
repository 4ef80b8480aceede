"""The derivative of a forward pass that was computed before a sync: it is written of what that stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.autograd.rules.registry import library_vjp
from lazyt.ir import graph as g
from lazyt.ir.residuals import Bound, pulled_back

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    Cotangents = tuple[Node | None, ...]


@library_vjp("residuals")
def _residuals(b: Builder, n: Node, cts: Cotangents) -> Cotangents:
    assert isinstance(n.attrs, g.Opaque)
    (bound,) = n.attrs.statics
    assert isinstance(bound, Bound)
    r = bound.residuals
    at = len(r.gradients)
    return (*pulled_back(b, bound, n.operands[at:], cts), *(None for _ in r.stored))
