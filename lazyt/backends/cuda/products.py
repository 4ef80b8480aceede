"""Matrix products: by cuBLAS where it can read the operands as they stand, else by NumPy on the host."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.cpu import blas, products
from lazyt.backends.cpu.products import Choice, leading
from lazyt.backends.cuda import driver
from lazyt.backends.rules.elements import BFLOAT16

if TYPE_CHECKING:
    from lazyt.backends.cpu.products import Patches
    from lazyt.backends.cuda.executor import Bound, Run
    from lazyt.ir.schedule import MatmulCall

    Array = np.ndarray[Any, Any]

DTYPES = {np.dtype(t) for t in ("f2", "f4", "f8", "c8", "c16")} | {BFLOAT16}


class Product(products.Product):
    """One product of a bound plan: the calls of cuBLAS that it takes."""

    bound: Bound

    def __init__(self, bound: Bound, call: MatmulCall) -> None:
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
        self.transposed = [f is not None and f[0] != blas.NO_TRANS for f in found]
        self.strides = [[value(s) for s in strides[:-2]] or [0] for _, strides, _ in call.operands]

    def place(self, table: list[int], patches: Patches, level: int) -> None:
        """The addresses of both operands and the result stand in the table."""
        self.at, self.level = len(table), level
        table.extend((0, 0, 0))
        size = self.call.node.dtype.itemsize
        for i, (buffer, offset) in enumerate((*((b, o) for b, _, o in self.call.operands), (self.call.node, 0))):
            self.bound._address(buffer, offset, size, self.at + i, patches)

    @property
    def slots(self) -> range:
        """Where its addresses stand in the table."""
        return range(self.at, self.at + 3)

    def works(self, table: Array) -> list[driver.Product]:
        """The calls of cuBLAS: all batch axes but the last one by one."""
        ch, dtype = self.choice, self.call.node.dtype
        size = dtype.itemsize
        if not (ch.m and ch.n and ch.k and ch.count):
            return []
        *starts, out = (int(a) for a in table[self.at : self.at + 3])
        found = []
        for i, index in enumerate(np.ndindex(*self.batch[:-1])):
            a, b = (
                start + size * sum(q * s for q, s in zip(index, strides, strict=False))
                for start, strides in zip(starts, self.strides, strict=True)
            )
            product = driver.Product(
                dtype, ch.m, ch.n, ch.k, a, b, out + i * size * self.batch[-1] * ch.m * ch.n,
                self.leading[0], self.leading[1], self.transposed[0], self.transposed[1],
                self.batch[-1], self.strides[0][-1], self.strides[1][-1],
            )  # fmt: skip
            found.append(product)
        return found


class Zeros:
    """A product over no elements."""

    def __init__(self, product: Product) -> None:
        self.product = product

    def run(self, run: Run) -> None:
        p = self.product
        ch, where = p.choice, p.bound.where
        nbytes = ch.m * ch.n * ch.count * p.call.node.dtype.itemsize
        if nbytes:
            where.driver.clear(run.stream, int(p.bound.table[p.at + 2]), nbytes)
