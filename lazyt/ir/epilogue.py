"""Epilogues: an elementwise kernel over a product's elements runs on each part of it as soon as that is finished.

    %4 = matmul %0, %1                     product %0 @ %1, then on its elements:
    kernel: gelu(load(%4) + load(%2))  -->     gelu(load(%4) + load(%2))

The kernel stays what it was, a map with arguments of its own; its axes are the product's dimensions (kernelize.py), so
that any block of rows and columns is a part of its domain. A backend may run it on blocks that are still in the cache,
or after the whole product: the bits are the same. A product that nobody else reads needs no memory in the first case.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lazyt.errors import LazytInternalError
from lazyt.ir.access import strides_of
from lazyt.ir.extents import hint
from lazyt.ir.kernelize import KernelCall, matrix_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.ir.graph import Node
    from lazyt.ir.schedule import Launch, MatmulCall


# A kernel that moves more arrays of the product's size than this, besides it, has a pass of its own. On blocks each of
# them is many short runs of memory, which costs more than it saves to meet the product in the cache (Adam moves six).
STREAMS = 4


def over_product(kernel: KernelCall, products: Sequence[Node], along: Callable[[Node], KernelCall]) -> KernelCall:
    """A map kernel made again over the axes of the latest product that it reads, where that can be."""
    if kernel.kernel.rows:
        return kernel
    reads = kernel.reads
    for p in reversed(products):
        if p in reads:
            again = along(p)
            if again.product is not None:
                return again
    return kernel


def attach_epilogues(launches: list[Launch], outputs: set[Node]) -> list[Launch]:
    """The launches with kernels over a product's elements made epilogues of it, where the order allows that."""
    out: list[Launch] = list(launches)
    for kernel in launches:
        if not isinstance(kernel, KernelCall) or kernel.product is None or _streams(kernel) > STREAMS:
            continue
        q = out.index(kernel)
        p = next(i for i, c in enumerate(out) if not isinstance(c, KernelCall) and kernel.product in c.writes)
        product: MatmulCall = out[p]  # type: ignore[assignment]
        if product.epilogue is not None:
            continue
        between = out[p + 1 : q]
        later = not any(c.reads & product.writes or c.writes & (product.reads | product.writes) for c in between)
        earlier = not any(c.writes & (kernel.reads | kernel.writes) or c.reads & kernel.writes for c in between)
        if not (later or earlier):
            continue
        read = product.node in outputs or any(
            product.node in c.reads or product.node in c.writes for c in out if c is not kernel and c is not product
        )
        both = replace(product, epilogue=kernel, kept=read)
        if later:
            out[q] = both
            del out[p]
        else:
            out[p] = both
            del out[q]
    return out


def _streams(kernel: KernelCall) -> int:
    """How many arrays of the product's size a kernel moves, besides the product itself."""
    own = [a for a in kernel.accesses if a.buffer is not kernel.product]
    return sum(all(hint(s) != 0 for s in a.strides) for a in own)


def verify_epilogue(call: MatmulCall) -> None:
    """Raise LazytInternalError naming the first rule that a product with an epilogue breaks."""
    c, n = call.epilogue, call.node
    if c is None:
        return

    def need(cond: bool, why: str) -> None:
        if not cond:
            raise LazytInternalError(f"invalid epilogue of {n}: {why}\n{c.kernel.text}")

    need(c.product is n, "it is over another product")
    need(c.kernel.rows == 0 and c.kernel.vector == "outer", "it is a map")
    need(not c.checks, "it cannot fail")
    shape = matrix_shape(n)
    need(len(c.extents) == len(shape), "it has one axis a dimension")
    need(all(hint(a) == hint(b) for a, b in zip(c.extents, shape, strict=True)), "its axes have the product's extents")
    own = [a for a, x in zip(c.accesses, c.kernel.accesses, strict=True) if a.buffer is n and not x.writes]
    need(len(own) == 1, "it reads the product once")
    strides = zip(own[0].strides, strides_of(shape), shape, strict=True)
    need(own[0].offset == 0 and all(hint(a) == hint(b) or hint(d) == 1 for a, b, d in strides), "element by element")
    need(all(a.buffer is not n for a, x in zip(c.accesses, c.kernel.accesses, strict=True) if x.writes), "it writes it")
