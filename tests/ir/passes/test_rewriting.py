"""Tables of rules, and the walk that applies them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lazyt.errors import NotSupportedError
from lazyt.ir import prims
from lazyt.ir.builder import Builder
from lazyt.ir.graph import Graph
from lazyt.ir.passes import canonical, canonical_complex, canonicalize, collect_sums, compress, merge_axes
from lazyt.ir.passes.program import USUAL
from lazyt.ir.passes.rewriting import Rewriter, Rule, always, replaced, table

PRIMITIVES = prims.SOURCES | prims.MOVEMENT | prims.REDUCTIONS | prims.OTHERS | set(prims.ELEMENTWISE)
TABLES = {
    "canonicalize": canonicalize._BY_OP,
    "of complex values": canonical_complex.BY_OP,
    "of movement": canonical._BY_OP,
    "collect_sums": collect_sums._RULES,
    "merge_axes": merge_axes._RULES,
    "compress": compress._RULES,
}


@pytest.fixture
def graph() -> Graph:
    """exp(x) + exp(x) * y"""
    b = Builder()
    x, y = (b.input(i, (3,), np.dtype(np.float32)) for i in range(2))
    e = b.exp(x)
    return Graph(b.nodes, [b.add(e, b.mul(e, y))])


def ops(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes]


@pytest.mark.parametrize("name", TABLES)
def test_rules_are_for_primitives(name: str) -> None:
    """A row of another name would never apply, and nothing would tell."""
    assert not set(TABLES[name]) - PRIMITIVES - {""}


def test_the_first_rule_that_holds_and_gives_a_value_decides(graph: Graph) -> None:
    rules = (
        Rule("exp", lambda r, n, x: False, lambda r, n, x: r.b.sin(x)),
        Rule("exp", always, lambda r, n, x: None),
        Rule("exp log", always, lambda r, n, x: r.b.cos(x)),
        Rule("exp", always, lambda r, n, x: r.b.tan(x)),
    )
    assert ops(replaced(graph, None, *rules)) == ["input", "input", "cos", "mul", "add"]


def test_a_row_without_names_is_for_operations_without_a_row_of_their_own(graph: Graph) -> None:
    met = []

    def meet(r: Rewriter, n: Any, *operands: Any) -> None:
        met.append((n.op, len(operands)))

    rules = Rule("", always, meet), Rule("mul", lambda r, n, x, y: False, meet)
    assert replaced(graph, None, *rules) is graph
    assert met == [("input", 0), ("input", 0), ("exp", 1), ("add", 2)]


def test_a_rule_is_given_what_operands_have_become_and_nothing_dead_stays(graph: Graph) -> None:
    rules = (
        Rule("exp", always, lambda r, n, x: x),
        Rule("mul", lambda r, n, x, y: x.op == "input", lambda r, n, x, y: y),
    )
    new = replaced(graph, None, *rules)
    assert ops(new) == ["input", "input", "add"]
    assert new.outputs[0].operands == tuple(new.nodes[:2])
    assert ops(graph) == ["input", "input", "exp", "mul", "add"]


def test_readers_are_counted_in_the_graph_that_was_given(graph: Graph) -> None:
    counts = Rewriter(graph, Builder()).readers
    assert [counts[n] for n in graph.nodes] == [1, 1, 2, 1, 1]


def test_what_has_no_rule_for_complex_values_is_refused_by_name() -> None:
    b = Builder()
    b.exp(b.input(0, (3,), np.dtype(np.complex64)))
    with pytest.raises(NotSupportedError, match="not supported: exp of complex64, because it has no complex form yet"):
        canonicalize.canonicalize(Graph(b.nodes, b.nodes[-1:]), None, USUAL)


def test_tables_keep_the_order_of_rows() -> None:
    first, second = Rule("exp log", always, always), Rule("log", always, always)
    assert table(first, second) == {"exp": [first], "log": [first, second]}
