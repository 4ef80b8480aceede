"""Matrix products: by cuBLAS where it can read the operands in place, else by CuPy, which copies them first.

A float32 product takes the precision that `lazyt.set_float32_matmul_precision` asks for at the time it runs. Halves are
read as they lie, summed up in float32, and rounded once if the result is a half.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.common import products
from lazyt.backends.common.precision import precision
from lazyt.backends.common.products import NO_TRANS, Choice, leading
from lazyt.backends.cuda import graph_nodes
from lazyt.backends.cuda.driver_api import KEPT
from lazyt.backends.cuda.library import registry
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.common.products import Patches
    from lazyt.backends.cuda.binding import Binding, Run
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import MatmulCall

    Array = np.ndarray[Any, Any]

DTYPES = {d for d in dtypes.ALL if dtypes.kind(d) in "fc"}


def read_by(n: Node) -> np.dtype:
    """The dtype that a product reads: that of both operands."""
    dtype = n.operands[0].dtype
    assert all(x.dtype == dtype for x in n.operands), "both are of one dtype: see Target.alike_products"
    return dtype


def is_tf32(dtype: np.dtype) -> bool:
    """Whether a product that reads this dtype is one of tf32 now."""
    return dtype == np.float32 and precision() != "highest"


class Product(products.Product):
    """One product of a bound plan: the calls of cuBLAS that it takes."""

    bound: Binding

    def __init__(self, bound: Binding, call: MatmulCall) -> None:
        x, y = call.node.operands
        value = bound.value
        found = [leading(o, strides, value) for o, (_, strides, _) in zip((x, y), call.operands, strict=True)]
        m, k = (value(d) for d in x.shape[-2:])
        self.batch = [value(d) for d in x.shape[:-2]] or [1]
        how = "blas" if call.node.dtype in DTYPES and None not in found else "numpy"
        super().__init__(
            bound, call, Choice(how, m, value(y.shape[-1]), k, math.prod(self.batch), 0, int(how == "blas"))
        )
        self.leading = [1 if f is None else f[1] for f in found]
        self.transposed = [f is not None and f[0] != NO_TRANS for f in found]
        self.strides = [[value(s) for s in strides[:-2]] or [0] for _, strides, _ in call.operands]

    def place(self, table: list[int], patches: Patches, level: int) -> None:
        """The addresses of both operands and the result stand in the table, then whether it is of tf32."""
        self.at, self.level = len(table), level
        self.known: dict[tuple[int, ...], list[graph_nodes.Product]] = {}
        place(self.bound, self.call, table, patches)
        table.append(0)

    @property
    def slots(self) -> range:
        """Where its addresses stand in the table."""
        return range(self.at, self.at + 4)

    def works(self, table: Array) -> list[graph_nodes.Product]:
        """The calls of cuBLAS: the longest batch axis in one, the others one by one."""
        starts = tuple(table[self.at : self.at + 4].tolist())
        found = self.known.get(starts)
        if found is None:
            if len(self.known) >= KEPT:
                self.known.pop(next(iter(self.known)))
            found = self.known[starts] = self._works(starts)
        return found

    def _works(self, starts: Sequence[int]) -> list[graph_nodes.Product]:
        ch, dtype, read = self.choice, self.call.node.dtype, read_by(self.call.node)
        sizes = read.itemsize, read.itemsize, dtype.itemsize
        if not (ch.m and ch.n and ch.k and ch.count):
            return []
        *starts, tf32 = starts
        axes = _merged(self.batch, self.strides[0], self.strides[1], ch.m * ch.n)
        count, *steps = axes.pop(max(range(len(axes)), key=lambda i: axes[i][0]))
        found = []
        for index in np.ndindex(*(n for n, *_ in axes)):
            a, b, c = (
                start + sizes[i] * sum(q * axis[1 + i] for q, axis in zip(index, axes, strict=True))
                for i, start in enumerate(starts)
            )
            product = graph_nodes.Product(
                dtype, read, ch.m, ch.n, ch.k, a, b, c, self.leading[0], self.leading[1], self.transposed[0],
                self.transposed[1], count, steps[0], steps[1], steps[2], bool(tf32),
            )  # fmt: skip
            found.append(product)
        return found


def place(bound: Binding, call: MatmulCall, table: list[int], patches: Patches) -> None:
    """The addresses of both operands and the result, at the end of the table."""
    at = len(table)
    table.extend((0, 0, 0))
    for i, (buffer, offset) in enumerate((*((b, o) for b, _, o in call.operands), (call.node, 0))):
        bound._address(buffer, offset, buffer.dtype.itemsize, at + i, patches)


def _merged(batch: Sequence[int], a: Sequence[int], b: Sequence[int], size: int) -> list[tuple[int, int, int, int]]:
    """Batch axes as (extent, strides of both operands and of the result), those that are walked as one made one."""
    axes: list[tuple[int, int, int, int]] = []
    step = size
    for n, sa, sb in zip(reversed(batch), reversed(a), reversed(b), strict=True):
        if n == 1 and len(batch) > 1:
            continue
        if axes and (sa, sb) == (axes[-1][1] * axes[-1][0], axes[-1][2] * axes[-1][0]):
            # This axis goes on where the one inside it ends.
            inner = axes.pop()
            axes.append((inner[0] * n, *inner[1:]))
        else:
            axes.append((n, sa, sb, step))
        step *= n
    return axes[::-1] or [(1, 0, 0, size)]


class ByLibrary:
    """A product that cuBLAS cannot read, or of integers: CuPy's matmul, which no graph can hold."""

    def __init__(self, bound: Binding, call: MatmulCall, table: list[int], patches: Patches) -> None:
        self.bound = bound
        self.call = call
        self.at = len(table)
        place(bound, call, table, patches)

    def run(self, run: Run) -> None:
        bound, n = self.bound, self.call.node
        where, value = bound.where, bound.value
        read = read_by(n)
        size, dtype = read.itemsize, registry.memory_dtype(read)
        a, b, out = (int(x) for x in bound.table[self.at : self.at + 3])
        with where.driver.library(where.number) as xp:
            views = []
            for start, x, (_, strides, _) in zip((a, b), n.operands, self.call.operands, strict=True):
                shape, steps = [value(d) for d in x.shape], [value(s) * size for s in strides]
                view = where.driver.view(where.number, start, dtype, shape, steps)
                views.append(registry.widened(xp, view, read))
            to = where.driver.view(where.number, out, registry.memory_dtype(n.dtype), [value(d) for d in n.shape])
            registry.put(xp, to, n.dtype, xp.matmul(*views))


class Zeros:
    """A product over no elements."""

    def __init__(self, product: products.Product, at: int) -> None:
        self.product, self.at = product, at  # where its addresses stand in the table

    def run(self, run: Run) -> None:
        p = self.product
        ch, where = p.choice, p.bound.where
        nbytes = ch.m * ch.n * ch.count * p.call.node.dtype.itemsize
        if nbytes:
            where.driver.clear(run.stream, int(p.bound.table[self.at + 2]), nbytes)
