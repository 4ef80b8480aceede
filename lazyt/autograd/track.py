"""Steps that change how gradients flow: `track` marks a value that they are asked for, `custom` takes them over, and
`again` hands them on to the value that it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import graph as g
from lazyt.ops.definition import OpDef
from lazyt.tracing.program import INPUT

if TYPE_CHECKING:
    from lazyt.ir.graph import Node
    from lazyt.tracing.lower import Lowered
    from lazyt.tracing.program import Slot
    from lazyt.tracing.trace import Step


class Track:
    """The kind of step whose value is its operand, as an identity of its own that gradients also pass through.

    statics: (OWN,) where a transform asks for its gradients, so that nobody else does; () for a tensor that is a leaf.
    """

    name = "track"
    saves: tuple[int, ...] = ()
    differentiable = True
    fallible = False

    def expand(self, low: Lowered, s: Step) -> tuple[Node, ...]:
        """A `track` node."""
        return (low.track(low.nodes[s.operands[0]], s, 0),)


class Custom:
    """The kind of step whose values are results of a function with a derivative of its own (see custom.py).

    statics: (n results,); operands: the results as computed, the inputs that cotangents go on to.
    """

    name = "custom_function"
    saves: tuple[int, ...] = ()
    differentiable = True
    fallible = False

    def expand(self, low: Lowered, s: Step) -> tuple[Node, ...]:
        """The results, cut off from what made them, each as an identity of its own."""
        found = (low.nodes[x] for x in s.operands[: s.statics[0]])
        return tuple(low.track(low.builder.stop(x), s, k) for k, x in enumerate(found))


class Again:
    """The kind of step whose value, a view that is derived anew, stands for the view that an earlier trace had.

    It ends a trace's graph as an input that a sync computed does: its record says where its graph goes on.
    """

    name = "view_again"
    saves: tuple[int, ...] = ()
    differentiable = True
    fallible = False

    def expand(self, low: Lowered, s: Step) -> tuple[Node, ...]:
        """The view, cut off from what it was derived from here."""
        return (low.track(low.builder.stop(low.nodes[s.operands[0]]), s, 0),)


# The third static of an input: whether gradients are asked of it, or it stands for a value that a sync computed.
SYNCED = 2


def is_synced(s: Step) -> bool:
    """Whether the value of a step stands for one of an earlier trace, with the graph that is behind that."""
    return s.op is AGAIN or (s.op is INPUT and s.statics[2] == SYNCED)


# A value as one of its own, where nobody asks for its gradient any more but what was derived by it is derived again.
SAME = OpDef("track", lambda b, x: b.make("track", (x,), g.Identity(-1 - len(b.nodes), 0), x.shape, x.dtype))
TRACK, OWN = Track(), True
CUSTOM = Custom()
AGAIN = Again()


def is_tracked(x: Slot) -> bool:
    """Whether x is an identity that a transform gave to a value with a graph of its own."""
    return x.step.op is TRACK and x.leaf is x and x.step.operands[0].requires_grad


def has_graph(x: Slot) -> bool:
    """Whether gradients of x flow on to other values, so that a sync has to keep the graph behind it."""
    return x.requires_grad and (x.leaf is None or is_tracked(x))
