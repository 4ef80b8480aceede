"""What a compilation is asked for under a memory budget, and what `recompute` decided."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar

from lazyt.ir.passes.moments import Held
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from lazyt.ir.graph import Graph, Node
    from lazyt.ir.passes.checkpointing import Problem
    from lazyt.ir.passes.saved_values import SavedValue

    # What a user's function says of a saved value: 'keep', 'recompute', or None, which leaves it to the pass.
    Verdict = Callable[[SavedValue], str | None]

T = TypeVar("T")


@dataclass(frozen=True)
class Wish:
    """What a compilation is asked for: the peak that the choice aims at, and for which steps there is a choice."""

    limit: int | None  # bytes in the backward, as `checkpointing` counts; None: everything is kept
    steps: frozenset[int]  # the steps that were recorded under a budget
    verdict: Verdict | None = None
    # Numbers of the products of this graph that have an epilogue if nothing is computed again: how a product is
    # computed, hence its last bits, must not depend on the budget.
    charged: frozenset[int] | None = frozenset()  # None: bits may depend on it, because some are compressed
    # What was found of a graph already, for wishes that differ in their limit alone.
    known: dict[tuple[Hashable, int], tuple[Graph, Any]] = field(default_factory=dict)

    def once(self, what: Hashable, graph: Graph, find: Callable[[], T]) -> T:
        """What `find` gives for a graph, found once."""
        key = what, id(graph)
        if key not in self.known:
            # NOTE: the graph is kept, so that no other one has its address.
            self.known[key] = graph, find()
        found: T = self.known[key][1]
        return found


@dataclass(frozen=True)
class Again:
    """A value that is computed again, or moved: what was stored, its readers, and the nanoseconds that takes, about."""

    value: SavedValue
    cost: float
    asked: bool  # by the user's policy


@dataclass(frozen=True)
class Choice:
    """What the pass decided."""

    problem: Problem
    kept: frozenset[int]
    again: tuple[Again, ...] = ()
    held: Held = field(default_factory=Held)
    numbers: Mapping[Node, int] = field(default_factory=dict)  # of a node: its number in the graph before the pass
    moved: tuple[Again, ...] = ()  # what lies in the host's memory meanwhile

    @property
    def peak(self) -> int:
        """The bytes in the backward, as `checkpointing` counts."""
        return self.problem.peak(self.kept)
