"""The step that stands for a forward pass which was computed before a sync: see `ir/residuals.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.errors import LazytInternalError
from lazyt.ir.builder import Weak
from lazyt.ir.graph import Node
from lazyt.ir.library_calls import register
from lazyt.ops.definition import OpDef, Operand

if TYPE_CHECKING:
    from lazyt.ir import residuals as programs
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Shape
else:
    programs = on_demand.module("lazyt.ir.residuals")


def _earlier(b: Builder, *xs: Operand, ints: Shape = (), offsets: Shape = ()) -> tuple[Node, ...]:
    """Values that have a derivative and that nobody can read: those who hold them have them.

    Operands: what the gradients are of, what is stored, the scalars of the backward, and its `Residuals`.
    """
    *operands, residuals = xs
    found: Any = residuals
    arrays = [x for x in operands if isinstance(x, Node)]
    scalars = tuple(x.position for x in operands if isinstance(x, Weak))
    bound = programs.Bound(found, ints, offsets, scalars)
    return b.opaque("residuals", arrays, (bound,), bound.shapes())


@register("residuals", on_host="it stands for values that nobody computes")
def _residuals(*arrays: Any) -> Any:
    raise LazytInternalError("residuals: its values are those of an earlier program")


EARLIER = OpDef("residuals", _earlier)
