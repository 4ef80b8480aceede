"""Reads and writes at places that are data, and orders: gather, scatter-add, sort, cumulative sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.core import Array, Inputs, everywhere, seeded, workload


def _table(quick: bool) -> Inputs:
    rows, picked, width = (500, 1000, 16) if quick else (50_000, 100_000, 128)
    return {"table": seeded((rows, width)), "index": np.random.default_rng(1).integers(0, rows, picked)}


def _embedding_numpy(m: Any, table: Any, index: Any) -> list[Array]:
    rows = table[index]
    back = np.zeros_like(table)
    np.add.at(back, index, rows)
    return [rows, back]


def _embedding_lazyt(m: Any, table: Any, index: Any) -> Any:
    rows = table[index]
    return rows, m.index_add(m.zeros_like(table), 0, index, rows)


def _embedding_torch(m: Any, table: Any, index: Any) -> Any:
    rows = table[index]
    return rows, m.zeros_like(table).index_add_(0, index, rows)


def _embedding_jax(m: Any, table: Any, index: Any) -> Any:
    rows = table[index]
    return rows, m.zeros_like(table).at[index].add(rows)


def _embedding_bytes(inputs: Inputs) -> float:
    """The rows read and written, read again to be added, and where they are added written."""
    rows = len(inputs["index"]) * inputs["table"][0].nbytes
    return 3 * rows + inputs["table"].nbytes


workload(
    name="embedding",
    what="100,000 rows of a 50,000 x 128 table gathered, and added back at the same places",
    inputs=_table,
    reference=lambda inputs: _embedding_numpy(np, **inputs),
    builds=everywhere(
        _embedding_numpy, "numpy",
        lazyt=_embedding_lazyt,
        torch=_embedding_torch,
        jax=_embedding_jax,
        mlx=_embedding_jax,
    ),
    nbytes=_embedding_bytes,
    rtol=1e-4,
    atol=1e-5,
)  # fmt: skip
workload(
    name="sort",
    what="2M floats sorted",
    inputs=lambda quick: {"x": seeded((1 << 12 if quick else 1 << 21,))},
    reference=lambda inputs: [np.sort(inputs["x"])],
    builds=everywhere(
        lambda m, x: m.sort(x), "lazyt", "numpy", "jax", "mlx",
        torch=lambda m, x: m.sort(x).values,
        tinygrad=lambda m, x: x.sort()[0],
    ),
    rtol=0,
    atol=1e-30,
)  # fmt: skip
workload(
    name="cumsum",
    what="the cumulative sum of 8M floats",
    inputs=lambda quick: {"x": seeded((1 << 12 if quick else 1 << 23,))},
    reference=lambda inputs: [np.cumsum(inputs["x"])],
    builds=everywhere(
        lambda m, x: m.cumsum(x), "lazyt", "numpy", "jax", "mlx",
        torch=lambda m, x: m.cumsum(x, 0),
        tinygrad=lambda m, x: x.cumsum(0),
    ),
    nbytes=lambda inputs: 2 * inputs["x"].nbytes,
    rtol=1e-3,
    atol=0.5,  # float32 sums one after the other, as NumPy's are, lose about so much over 8M
)  # fmt: skip
