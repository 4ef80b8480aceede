"""Steps over what an earlier program stored (`ir/residuals.py`): one stands for a forward pass, one pulls back."""

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

    Operands: what the gradients are of, what is stored, the scalars of the backward; its `Residuals`, and which of the
    first each value leads to.
    """
    *operands, residuals, _ = xs
    found: Any = residuals
    arrays = [x for x in operands if isinstance(x, Node)]
    scalars = tuple(x.position for x in operands if isinstance(x, Weak))
    bound = programs.Bound(found, ints, offsets, scalars)
    return b.opaque("residuals", arrays, (bound,), bound.shapes())


@register("residuals", on_host="it stands for values that nobody computes")
def _residuals(*arrays: Any) -> Any:
    raise LazytInternalError("residuals: its values are those of an earlier program")


EARLIER = OpDef("residuals", _earlier)
# What `PULL` has of the cotangent of a value: an operand, that it is 1, or that there is none.
GIVEN, ONE, ABSENT = range(3)


def _pull(b: Builder, *xs: Operand, ints: Shape = (), offsets: Shape = ()) -> tuple[Node, ...]:
    """The gradients of an earlier program.

    Operands: what it stored, the cotangents of its values, the scalars of the backward, its `Residuals`, and what there
    is of each cotangent.
    """
    *operands, residuals, which = xs
    found: Any = residuals
    known: Any = which
    arrays = [x for x in operands if isinstance(x, Node)]
    scalars = tuple(x.position for x in operands if isinstance(x, Weak))
    bound = programs.Bound(found, ints, offsets, scalars)
    n = len(found.stored)
    given = iter(arrays[n:])
    cotangents: list[Node | None] = []
    for how, (shape, dtype) in zip(known, found.values, strict=True):
        one = b.expand_to(b.constant(1, dtype), bound.moved(shape)) if how == ONE else None
        cotangents.append(next(given) if how == GIVEN else one)
    pulled = programs.pulled_back(b, bound, arrays[:n], cotangents)
    return tuple(
        b.expand_to(b.constant(0, x.dtype), bound.moved(x.shape)) if y is None else y
        for x, y in zip(found.gradients, pulled, strict=True)
    )


PULL = OpDef("pull", _pull)
