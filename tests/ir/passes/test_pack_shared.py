"""A matrix that products of few rows read transposed is copied so, once: which are, and that no bit changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.ir import dtypes, graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.graph_interpreter import interpret
from lazyt.ir.passes.pack_shared import FEW, READERS, ROWS, pack_shared
from lazyt.ir.passes.verify import verify

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
