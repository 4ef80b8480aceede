"""The registry of batching: what every primitive and every library call does to operands of all lanes at once.

    @batching("permute")                              @library_batching("sort")
    def _permute(lanes, n, xs): ...                   def _sort(lanes, n, xs): ...

A rule takes the lanes, the node of one lane, and the operands: each has the lane's shape, if all lanes share it, or one
axis more, which comes first and numbers the lanes; at least one is so. A primitive's rule gives the result of all lanes
(that axis first), a library call's a tuple of its outputs. A name has a rule or a reason why it has none; a test keeps
it so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lazyt.autograd.rules.registry import is_other

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Dim

    Rule = Callable[["Lanes", Node, Sequence[Node]], Node]
    LibraryRule = Callable[["Lanes", Node, Sequence[Node]], tuple[Node, ...]]

# primitive -> rule. `opaque` and `item` are the trace's own: see OPAQUE_BATCHING.
BATCHING: dict[str, Rule] = {}
# library function -> rule
OPAQUE_BATCHING: dict[str, LibraryRule] = {}
# primitive or library function -> why it has none
UNBATCHED: dict[str, str] = {}


class Lanes:
    """How many lanes there are, and what rules do with them."""

    def __init__(self, b: Builder, size: int | Dim) -> None:
        self.b = b
        self.size = size

    def has(self, n: Node, i: int, x: Node) -> bool:
        """Whether operand i of the node of one lane differs between lanes in `x`."""
        return x is not n.operands[i]

    def whole(self, n: Node, i: int, x: Node) -> Node:
        """The operand with its axis of lanes: repeated, if all share it."""
        return x if self.has(n, i, x) else self.repeat(x)

    def repeat(self, x: Node) -> Node:
        """What all lanes share, once a lane."""
        return self.b.expand_to(x, (self.size, *x.shape))

    def number(self, shape: Sequence[int | Dim]) -> Node:
        """Each lane's number, over a shape of one lane."""
        return self.b.iota((self.size, *shape), 0)

    def fold(self, x: Node, axis: int) -> Node:
        """(lanes, .., d, ..) -> (.., lanes * d, ..): the lanes become part of an axis of one lane."""
        order = [*range(1, axis + 1), 0, *range(axis + 1, x.ndim)]
        moved = self.b.permute(x, order)
        shape = moved.shape
        return self.b.reshape(moved, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))

    def unfold(self, y: Node, axis: int, extent: int | Dim) -> Node:
        """`fold` undone; `extent` is that of the axis in one lane."""
        split = self.b.reshape(y, (*y.shape[:axis], self.size, extent, *y.shape[axis + 1 :]))
        return self.b.permute(split, (axis, *(i for i in range(split.ndim) if i != axis)))


def _put(table: dict[str, Any], names: tuple[str, ...], rule: Any) -> Any:
    for name in names:
        assert not is_other(BATCHING.get(name, OPAQUE_BATCHING.get(name)), rule), f"{name} has a rule already"
        assert UNBATCHED.get(name, rule) == rule, f"{name} has a reason: {UNBATCHED[name]}"
        table[name] = rule
    return rule


def batching(*names: str) -> Callable[[Rule], Rule]:
    """Make a function the rule of these primitives."""
    return lambda rule: _put(BATCHING, names, rule)


def library_batching(*names: str) -> Callable[[LibraryRule], LibraryRule]:
    """Make a function the rule of these library calls."""
    return lambda rule: _put(OPAQUE_BATCHING, names, rule)


def unbatched(why: str, *names: str) -> None:
    """Say why these primitives or library calls have no rule."""
    _put(UNBATCHED, names, why)
