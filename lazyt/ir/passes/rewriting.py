"""Rewrites of a graph: tables of rules (operations, condition, function), and the walk that applies them node by node.

    Rule("mul", lambda r, n, x, y: is_one(y), lambda r, n, x, y: x)    mul(x, 1)  -->  x

Condition and function are given the rewriter, the node, and what its operands have become. A node becomes what the
first rule gives that is for its operation, holds, and gives anything but None; else a copy of it over those operands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyt.forking import cached_property
from lazyt.ir import graph as g
from lazyt.ir.builder import Builder

if TYPE_CHECKING:
    from lazyt.ir.graph import Graph, Node
    from lazyt.ir.symbolic import Scope


class Rule(NamedTuple):
    """A row of a table; `ops` has spaces between names, and "" stands for the operations without a row of their own."""

    ops: str
    holds: Callable[..., bool]
    rewrite: Callable[..., Any]


Rules = Mapping[str, Sequence[Rule]]


def table(*rules: Rule) -> Rules:
    """The rules by operation, each in the order given."""
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        for op in rule.ops.split() or [""]:
            found.setdefault(op, []).append(rule)
    return found


def always(*_: object) -> bool:
    return True


class Rewriter:
    """A graph, and what each of its nodes has become so far."""

    def __init__(self, graph: Graph, b: Builder) -> None:
        self.graph, self.b = graph, b
        self.new: dict[Node, Node] = {}

    @cached_property
    def readers(self) -> Counter[Node]:
        """Number of readers of each node of the graph; an output counts as one."""
        return Counter(x for n in self.graph.nodes for x in n.operands) + Counter(self.graph.outputs)

    def run(self, rules: Rules) -> Graph:
        """The graph by the rules; the same graph where none applies."""
        changed = False
        for n in self.graph.nodes:
            self.b.site = n.site
            changed = self.write(n, rules) or changed
        return self.written([self.whole(n) for n in self.graph.outputs]) if changed else self.graph

    def whole(self, n: Node) -> Node:
        """The value that n has become."""
        return self.new[n]

    def write(self, n: Node, rules: Rules) -> bool:
        """Set what n becomes: whether a rule applied."""
        operands = tuple([self.new[x] for x in n.operands])
        found = self.value(rules, n, *operands)
        self.new[n] = self.copy(n, *operands) if found is None else found
        return found is not None

    def value(self, rules: Rules, n: Node, *operands: Any) -> Any:
        """Result of the first rule that applies to n with these operands; None if none does."""
        for rule in rules.get(n.op) or rules.get("", ()):
            if rule.holds(self, n, *operands) and (found := rule.rewrite(self, n, *operands)) is not None:
                return found
        return None

    def copy(self, n: Node, *operands: Node) -> Node:
        return self.b.make(n.op, operands, n.attrs, n.shape, n.dtype)

    def written(self, outputs: list[Node]) -> Graph:
        """The new graph of these outputs."""
        kept = frozenset(self.new[n] for n in self.graph.kept)
        return g.Graph(g.reachable(outputs), outputs, kept, self.graph.rounded)


def replaced(graph: Graph, scope: Scope | None, *rules: Rule) -> Graph:
    """The graph by these rules; the same graph where none applies."""
    return Rewriter(graph, Builder(scope)).run(table(*rules))
