"""A matrix that products of few rows read transposed is copied so, once: which are, and that no bit changes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.ir import dtypes, graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.graph_interpreter import interpret
from lazyt.ir.passes.pack_shared import FEW, READERS, ROWS, pack_shared
from lazyt.ir.passes.verify import verify
from tests.support.plans import forget

F4 = dtypes.float32


def _graph(readers: int, rows: int = 9, dtype: Any = F4, halves: bool = False) -> g.Graph:
    b = Builder()
    w = b.input(0, (5, 4), dtypes.float16 if halves else dtype)
    transposed = b.permute(b.cast(w, dtype) if halves else w, (1, 0))
    outs = [b.matmul(b.input(1 + i, (rows, 4), dtype), transposed) for i in range(readers)]
    return g.Graph(g.reachable(outs), outs)


def test_products_read_one_matrix_with_its_rows_apart() -> None:
    before = _graph(READERS)
    after = pack_shared(before, None)
    verify(after)
    (operand,) = {n.operands[1] for n in after.nodes if n.op == "matmul"}
    assert operand.op == "slice"
    assert operand.operands[0].op == "concat"
    assert operand.shape == (4, 5)
    assert operand.operands[0].shape > operand.shape
    values = [np.random.default_rng(i).standard_normal(s).astype("f") for i, s in enumerate([(5, 4)] + [(9, 4)] * 4)]
    found, want = (interpret(x, x.outputs, values) for x in (after, before))
    for x, y in zip(found, want, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    "graph",
    [
        _graph(READERS - 1),
        _graph(READERS, rows=ROWS + 1),
        _graph(READERS, rows=FEW),
        _graph(READERS, dtype=dtypes.int64),
        _graph(READERS, halves=True),
    ],
    ids=["few readers", "many rows", "few rows", "integers", "halves"],
)
def test_others_stay_as_they_are(graph: g.Graph) -> None:
    assert pack_shared(graph, None) is graph


@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize("rows", [1, FEW, FEW + 1])
def test_a_recurrence_has_the_bits_of_its_turns_one_by_one(rows: int) -> None:
    rng = np.random.default_rng(0)
    w, h0 = rng.standard_normal((48, 48)).astype("f"), rng.standard_normal((rows, 48)).astype("f")

    def states(sync: bool) -> list[np.ndarray]:
        u, h, found = lt.tensor(w), lt.tensor(h0), []
        for _ in range(6):
            h = lt.tanh(h @ u.T)
            found.append(h)
            if sync:
                lt.sync()
        return [x.numpy() for x in found]

    for one, all_at_once in zip(states(sync=True), states(sync=False), strict=True):
        np.testing.assert_array_equal(one, all_at_once)


@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize("cell", [lt.nn.LSTM, lt.nn.GRU, lt.nn.RNN])
def test_bits_do_not_depend_on_the_size_that_a_plan_was_made_for(cell: Any) -> None:
    """A plan with a copy served few rows, too. So a budget, which makes another plan, changed bits."""
    lt.random.seed(0)
    layer = cell(64, 64, batch_first=True)

    def gradients(rows: int, how: Any = None) -> list[np.ndarray]:
        layer.zero_grad()
        x = lt.tensor(np.random.default_rng(rows).standard_normal((rows, READERS + 2, 64)).astype("f"))
        lt.sync()
        with how or nullcontext():
            loss = (layer(lt.tanh(x))[0] ** 2).mean()
        loss.backward()
        lt.sync()
        return [p.grad.numpy().copy() for p in layer.parameters()]

    lt.sync()
    forget()
    alone = gradients(FEW)
    layer.zero_grad()
    lt.sync()
    forget()
    gradients(4 * FEW)
    for found in (gradients(FEW), gradients(FEW, lt.memory.budget("1 GiB"))):
        for x, y in zip(alone, found, strict=True):
            np.testing.assert_array_equal(x, y)


def test_products_of_few_rows_leave_a_matrix_as_it_is() -> None:
    b = Builder()
    w = b.permute(b.input(0, (5, 4), F4), (1, 0))
    outs = [b.matmul(b.input(1 + i, (9 if i else FEW, 4), F4), w) for i in range(READERS + 1)]
    graph = g.Graph(g.reachable(outs), outs)
    assert pack_shared(graph, None) is graph
