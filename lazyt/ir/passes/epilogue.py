"""Epilogues: an elementwise kernel over a product's elements runs on each block of it as soon as that is finished.

    %4 = matmul %0, %1                     product %0 @ %1, then on its elements:
    kernel: gelu(load(%4) + load(%2))  -->     gelu(load(%4) + load(%2))

The kernel stays what it was, a map with arguments of its own; its axes are the product's dimensions (kernelize.py), so
that any block of rows and columns is a part of its domain. A backend may run it on blocks that are still in the cache,
or after the whole product: the bits are the same. A product that nobody else reads needs no memory in the first case.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import replace
from typing import TYPE_CHECKING

from lazyt.errors import LazytInternalError
from lazyt.ir.passes.index_maps import strides_of
from lazyt.ir.passes.kernelize import KernelCall, matrix_shape
from lazyt.ir.symbolic import hint

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import Launch, MatmulCall


# A kernel that moves more arrays of the product's size than this, besides it, has a pass of its own. On blocks each of
# them is many short runs of memory, which costs more than reading the product from the cache saves (Adam moves six).
STREAMS = 4


def attach_epilogues(launches: list[Launch], outputs: set[Node]) -> list[Launch]:
    """Turns kernels over a product's elements into its epilogues, where the order of launches allows that."""
    order = _Order(launches)
    for q, kernel in enumerate(launches):
        if not isinstance(kernel, KernelCall) or kernel.product is None or _streams(kernel) > STREAMS:
            continue
        n = kernel.product
        p = order.product(n)
        product: MatmulCall = order.at[p]  # type: ignore[assignment]
        if product.epilogue is not None:
            continue
        later = not order.between(p, q, reads=product.writes, writes=product.reads | product.writes)
        if not later and order.between(p, q, reads=kernel.writes, writes=kernel.reads | kernel.writes):
            continue
        read = n in outputs or order.others(n, p, q)
        both = replace(product, epilogue=kernel, kept=read)
        order.merge(p, q, both, q if later else p)
    return [c for c in order.at if c is not None]


class _Order:
    """Launches by their places, and the places where each buffer that is written is read and written.

    NOTE: a place is where a launch stood in the beginning, so that those of others stay when one is moved.
    """

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.at: list[Launch | None] = list(launches)
        self.readers: dict[Node, list[int]] = {}
        self.writers: dict[Node, list[int]] = {}
        for i, c in enumerate(launches):
            for n in c.writes:
                self.writers.setdefault(n, []).append(i)
        for i, c in enumerate(launches):
            for n in c.reads:
                if n in self.writers:
                    self.readers.setdefault(n, []).append(i)

    def product(self, n: Node) -> int:
        """The first place of a call that writes n."""
        return next(i for i in self.writers[n] if not isinstance(self.at[i], KernelCall))

    def between(self, p: int, q: int, reads: Collection[Node], writes: Collection[Node]) -> bool:
        """Whether a launch between two places reads one of `reads` or writes one of `writes`."""
        return any(_between(self.readers.get(n), p, q) for n in reads) or any(
            _between(self.writers.get(n), p, q) for n in writes
        )

    def others(self, n: Node, p: int, q: int) -> bool:
        """Whether a launch at another place than these two reads or writes n."""
        return any(i not in (p, q) for by in (self.readers, self.writers) for i in by.get(n, ()))

    def merge(self, p: int, q: int, both: MatmulCall, at: int) -> None:
        """One launch, at one of two places, for the two that stand there."""
        for i in (p, q):
            old = self.at[i]
            assert old is not None, "a launch is made an epilogue once"
            for by, nodes in ((self.readers, old.reads), (self.writers, old.writes)):
                for n in nodes:
                    if n in by:
                        del by[n][bisect_left(by[n], i)]
            self.at[i] = None
        self.at[at] = both
        for by, nodes in ((self.readers, both.reads), (self.writers, both.writes)):
            for n in nodes:
                if n in self.writers:
                    insort(by.setdefault(n, []), at)


def _between(places: list[int] | None, p: int, q: int) -> bool:
    """Whether one of these ascending places lies between two."""
    if not places:
        return False
    i = bisect_right(places, p)
    return i < len(places) and places[i] < q


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
