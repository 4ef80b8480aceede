"""Which values cross from the forward pass to the backward pass."""

from __future__ import annotations

import lazyt as lt
from lazyt.ir.passes import pipeline
from lazyt.ir.passes.program import Options
from lazyt.ir.passes.saved_values import SavedValue, saved_values
from lazyt.ir.symbolic import hint
from lazyt.runtime.liveness import wanted_of
from lazyt.tracing.lower import lower
from lazyt.tracing.trace import local


def _saved() -> list[SavedValue]:
    tr = local.trace
    wanted = wanted_of(tr)[0]
    low = lower(tr.pos.steps(), tr.ext.values, tr.scalars[: tr.pos.scalar_start + tr.pos.n_scalars])
    program = pipeline.compile_graph([low.nodes[s] for s in wanted], low.scope, Options())
    assert program.division is not None
    return saved_values(program.graph, program.division.stored)


def test_a_value_that_several_gradients_read_is_there_once_with_its_line_and_readers():
    lt.sync()
    x = lt.tensor([[1.0, 2.0], [3.0, 4.0]])
    w = lt.tensor([[0.5, 1.0], [1.5, 2.0]], requires_grad=True)
    v = lt.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    h = lt.tanh(x @ w)
    loss = (h @ v).sum()
    loss.backward()
    found = _saved()
    assert [(s.node.op, s.node.site.name, hint(s.nbytes)) for s in found] == [("tanh", "tanh", 16)]
    assert __file__ in str(found[0].node.site)
    # The gradient of v is a product with it, that of w goes through tanh.
    assert {r.site.name for r in found[0].readers} == {"matmul", "tanh"}


def test_a_cheap_function_is_no_saved_value_but_what_it_is_computed_from():
    lt.sync()
    x = lt.tensor([[1.0, -2.0], [3.0, 4.0]])
    w = lt.tensor([[0.5, 1.0], [1.5, 2.0]], requires_grad=True)
    y = x @ w
    loss = lt.where(y > 0, y, 0.1 * y).sum()
    loss.backward()
    assert [s.node.op for s in _saved()] == ["matmul"]


def test_a_program_without_a_backward_saves_nothing():
    lt.sync()
    y = lt.exp(lt.ones(3)) @ lt.ones(3)
    assert y.is_pending
    assert _saved() == []
