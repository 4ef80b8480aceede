"""The step that marks a value whose gradient will be asked for (`grad` needs no requires_grad on its inputs)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lazyt.ir.graph import Node
    from lazyt.lowering import Lowered
    from lazyt.trace import Step


class Track:
    """The kind of that step: the operand, as an identity of its own that gradients also pass through."""

    name = "track"
    saves: tuple[int, ...] = ()
    differentiable = True
    fallible = False

    def expand(self, low: Lowered, s: Step) -> tuple[Node, ...]:
        """A `track` node."""
        return (low.track(low.nodes[s.operands[0]], s, 0),)


TRACK = Track()
