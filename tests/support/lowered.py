"""Lowerings of operations, interpreted: over ints and over symbols, which must give the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyt.ir import dtypes
from lazyt.ir.builder import Builder, Weak
from lazyt.ir.graph import Graph, Node
from lazyt.ir.graph_interpreter import interpret
from lazyt.ir.passes.verify import verify
from lazyt.ir.symbolic import Scope

SCALARS = (bool, int, float, complex)


def lowered(f: Any, operands: Any, statics: Any, ints: Any, offsets: Any, scope: Scope | None) -> list[np.ndarray]:
    b = Builder(scope)
    nodes: list[Any] = []
    leaves: list[np.ndarray] = []
    scalars: list[Any] = []
    extents: list[int] = []

    def symbol(n: int) -> Any:
        extents.append(n)
        return n if scope is None else scope.symbol(len(extents) - 1, n)

    for x in operands:
        if type(x) in SCALARS:
            nodes.append(Weak(len(scalars), type(x)))
            scalars.append(x)
        else:
            a = np.asarray(x)
            nodes.append(b.input(len(leaves), tuple(map(symbol, a.shape)), a.dtype))
            leaves.append(a)
    more: dict[str, Any] = {}
    if ints is not None:
        assert all(type(i) is int for i in ints)
        more["ints"] = tuple(map(symbol, ints))
    if offsets is not None:
        assert all(type(o) is int for o in offsets)
        first = len(scalars)
        scalars += offsets
        more["offsets"] = offsets if scope is None else tuple(scope.offset(first + i, o) for i, o in enumerate(offsets))
    hash(statics)
    out = f(b, *nodes, *statics, **more)
    outputs: list[Node] = list(out) if isinstance(out, tuple) else [out]
    verify(Graph(b.nodes, outputs))
    return interpret(b.nodes, outputs, leaves, scalars, None if scope is None else (extents, scalars))


def lowered_twice(f: Any, operands: Any, statics: Any, ints: Any, offsets: Any) -> list[np.ndarray]:
    """The results of `f`, a lowering, over ints; those over symbols are compared with them."""
    over_ints = lowered(f, operands, statics, ints, offsets, None)
    over_symbols = lowered(f, operands, statics, ints, offsets, Scope())
    for x, y in zip(over_ints, over_symbols, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        # NaN is equal to NaN only in NumPy's own dtypes.
        narrow = x.dtype == dtypes.bfloat16
        np.testing.assert_array_equal(*((x.astype(np.float32), y.astype(np.float32)) if narrow else (x, y)))
    return over_ints
