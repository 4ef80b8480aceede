"""Outputs that are gradients for a later backward give way to what that reads: the residuals."""

from __future__ import annotations

from lazyt.ir import graph as g
from lazyt.ir.passes.compress import free_values
from lazyt.ir.residuals import Residuals, residuals_of


def save_residuals(graph: g.Graph, values: int, gradients: int) -> tuple[g.Graph, Residuals]:
    """The graph with residuals as its last outputs, in place of so many gradients; and what computes those of them.

    values: how many of the outputs before are results of what is differentiated; they are the last of those.
    """
    n = len(graph.outputs) - gradients
    outputs = graph.outputs[:n]
    residuals = residuals_of(graph, outputs, values, graph.outputs[n:], free_values(graph))
    outputs = [*outputs[: n - values], *residuals.stored]
    nodes = g.reachable(outputs)
    alive = {*nodes}
    return g.Graph(nodes, outputs, graph.kept & alive, graph.rounded), residuals
