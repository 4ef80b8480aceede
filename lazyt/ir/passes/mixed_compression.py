"""The part of the pass `compress` that is about bits which differ among samples: see ../mixed_bits.py.

How much the error of a sample counts is the squared norm of what it is multiplied with in the backward:

    product     dw = x' @ ct            the variance of x_n times |ct_n| ** 2
    filters     of K places, P pixels   K / P times that, by groups
    elementwise x * ct, D elements      1 / D times that, among the samples of x alone

A forward pass cannot know them; it takes those of an earlier step, which `Draw.told` has, and reports its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import dtypes, graph as g
from lazyt.ir.compression import PARTS_OF_A_BIT
from lazyt.ir.mixed_bits import Mixed, mixed, width_of
from lazyt.ir.prims import CONVOLUTIONS
from lazyt.ir.symbolic import hint, product

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Draw, Node

# Bits are given out among at most so many samples; one of fewer elements is mostly minimum and step.
SAMPLES, ELEMENTS = 512, 32
PRODUCTS = frozenset(("matmul", *CONVOLUTIONS))


def is_mixed(n: Node) -> bool:
    """Whether the samples of a rounded array have bits of their own."""
    draw = n.site.draw
    if draw is None or not draw.settings.mixed or draw.told is None or len(n.shape) < 2:
        return False
    return 2 <= hint(n.shape[0]) <= SAMPLES and hint(product(n.shape[1:])) >= ELEMENTS


class Mixer:
    """The arrays of mixed bits of a graph, in their order."""

    def __init__(self, b: Builder, arrays: Sequence[Node]) -> None:
        self.b = b
        self.numbers: dict[Node, int] = {}  # of an array among those of its draw
        self.draws: dict[int, list[Node]] = {}  # by the step of the draw
        for n in arrays:
            of_draw = self.draws.setdefault(n.site.draw.step, [])
            self.numbers[n] = len(of_draw)
            of_draw.append(n)
        self.packed: dict[Node, Mixed] = {}
        self.weights: dict[Node, list[Node]] = {n: [] for n in arrays}
        self.met: set[tuple[Node, Node]] = set()
        self.products: set[Node] = set()  # arrays that products are made of

    def pack(self, n: Node, x: Node, draw: tuple[Node, Node, int]) -> Mixed:
        """x, which is n in the new graph, in few bits."""
        b, made, number = self.b, n.site.draw, self.numbers[n]
        average = made.averages[number] if number < len(made.averages) else made.settings.mixed
        rows = n.shape[0] * average // PARTS_OF_A_BIT
        self.packed[n] = mixed(b, x, rows, self._told(made, number, n), draw)
        return self.packed[n]

    def _told(self, draw: Draw, number: int, n: Node) -> Node:
        """The weight of each sample of n, from earlier steps."""
        b, told, samples = self.b, draw.told, n.shape[0]
        assert told is not None, "see `is_mixed`"
        if number >= hint(told.shape[1]):
            return b.expand_to(b.constant(1, dtypes.float32), (samples,))
        given = b.make("input", (), told.attrs, told.shape, told.dtype)
        if self._by_sample(draw, n):
            b.same(samples, told.shape[2])
            return b.reshape(b.slice(given, (0, number, 0), (1, 1, samples), (1, 1, 1)), (samples,))
        one = b.reshape(b.slice(given, (0, number, 0), (1, 1, 1), (1, 1, 1)), (1,))
        return b.expand(one, (samples,))

    def _by_sample(self, draw: Draw, n: Node) -> bool:
        """Whether the samples of n are those that are told of."""
        assert draw.told is not None, "see `is_mixed`"
        return draw.settings.by_sample and hint(draw.told.shape[2]) == hint(n.shape[0])

    def weigh(self, n: Node, reader: Node, carried: Sequence[Node]) -> None:
        """A reader multiplies n with what is carried there."""
        b = self.b
        factor = _factor(n, reader)
        for ct in carried:
            if (n, ct) in self.met:
                continue
            self.met.add((n, ct))
            if reader.op in PRODUCTS:
                self.products.add(n)
            b.site = g.pulled(reader.site)
            norms = self._norms(ct, n)
            self.weights[n].append(b.mul(norms, b.constant(factor, dtypes.float32)))

    def _norms(self, ct: Node, n: Node) -> Node:
        """The squared norm of what belongs to each sample; the mean of all where that cannot be said."""
        b, samples = self.b, n.shape[0]
        x = ct
        while x.op in ("permute", "reshape", "cast") and not (x.ndim and x.shape[0] == samples):
            x = x.operands[0]
        found = x if x.ndim and x.shape[0] == samples else ct
        found = b.cast(found, dtypes.float32)
        square = b.mul(found, found)
        if found.ndim and found.shape[0] == samples:
            return b.reduce("sum", square, tuple(range(1, found.ndim))) if found.ndim > 1 else square
        every = b.reduce("sum", square, tuple(range(found.ndim))) if found.ndim else square
        return b.expand(b.reshape(b.div(every, b.cast(b.extent(samples), dtypes.float32)), (1,)), (samples,))

    def reports(self) -> dict[int, Node]:
        """Of each draw whose arrays a backward reads: what is to be told to the next steps."""
        found = {}
        for step, arrays in self.draws.items():
            draw = arrays[0].site.draw
            arrays = arrays[: hint(draw.told.shape[1])]
            if any(self.weights[n] for n in arrays):
                self.b.site = g.Origin("compress", None, step=step)
                found[step] = self._report(draw, arrays)
        return found

    def _report(self, draw: Draw, arrays: Sequence[Node]) -> Node:
        b, f = self.b, dtypes.float32
        assert draw.told is not None, "see `is_mixed`"
        _, most, columns = draw.told.shape
        lines: list[list[Node]] = [[], [], [], []]
        for n in arrays:
            p = self.packed[n]
            weight = b.expand(b.reshape(b.constant(0, f), (1,)), (n.shape[0],))
            for x in self.weights[n]:
                weight = b.add(weight, x)
            scale = hint(width_of(n.shape)) / 4 if n in self.products else 0
            variance = b.mul(b.mul(p.ranges, weight), b.constant(scale, f))
            size, samples = (b.cast(b.extent(x), f) for x in (product(n.shape[1:]), n.shape[0]))
            for line, x in zip(lines[:2], (weight, variance), strict=True):
                if self._by_sample(draw, n):
                    line.append(b.reshape(x, (1, columns)))
                else:
                    mean = b.div(b.reduce("sum", x, (0,)), samples)
                    line.append(b.expand(b.reshape(mean, (1, 1)), (1, columns)))
            for line, x in zip(lines[2:], (size, samples), strict=True):
                line.append(b.expand(b.reshape(x, (1, 1)), (1, columns)))
        zero = b.constant(0, f)
        padded = [b.pad(b.concat(line, 0), (0, 0), (most, columns), zero) for line in lines]
        return b.concat([b.reshape(x, (1, most, columns)) for x in padded], 0)


def _factor(n: Node, reader: Node) -> float:
    """What the squared norm of a cotangent counts for the variance of an element of n, by the hints."""
    if reader.op == "matmul":
        return 1.0
    if isinstance(reader.attrs, g.Convolution):
        places = 1
        for size in reader.attrs.sizes:
            places *= size
        return places / (reader.attrs.groups * max(1, hint(product(n.shape[2:]))))
    return 1 / max(1, hint(product(n.shape[1:])))
