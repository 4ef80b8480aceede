"""Arrays in few bits, as graphs: groups of 256 elements with a minimum and a step each, rounded at random.

    v     (x - low) / step, in [0, 2 ** bits - 1], as a fixed-point number with 16 bits behind the point
    code  floor(v + u), u uniform among the 2 ** 16 numbers in [0, 1): its expectation is v
    x'    code * step + low: its expectation is x

`low` and `step` are bfloat16, rounded down and up *before* the codes are made, so that no value lies outside of what
the codes span and nothing is biased. A group is 32 columns of 8 elements, and a column is one word of `8 * bits` bits.
A kernel makes a word of strided reads of x and one random number, and nothing at full size is stored beside x. Of the
16 bits of u the high ones are an element's own, the low ones the group's.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from lazyt.ir import dtypes
from lazyt.ir.compression import GROUP
from lazyt.ir.records import dataclass
from lazyt.ir.symbolic import hint, product

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node, Shape
    from lazyt.ir.symbolic import Dim

COLUMNS, PARTS = 32, GROUP // 32
# The dtype of words of so many bits an element, and what their codes are computed in.
WORDS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
WIDE = {1: dtypes.int32, 2: dtypes.int32, 4: dtypes.int64, 8: dtypes.int64}
# Bits behind the point, and random ones among them that are an element's own.
POINT, OWN = 16, 8
# The smallest step: its inverse is finite.
LEAST = 2.0**-100
# Random numbers of one array have indices from a multiple of this on.
STREAM = 1 << 40
# What finds the ends of a group, and what fills up the last one.
ENDS = (("min", float("inf")), ("max", float("-inf")))


@dataclass(frozen=True, slots=True)
class Packed:
    """An array in few bits: `stored` are the nodes that hold it."""

    words: Node
    low: Node | None  # None where the codes are the values: masks and indices
    step: Node | None
    bits: int
    shape: Shape
    dtype: np.dtype

    @property
    def stored(self) -> tuple[Node, ...]:
        """What has to be kept."""
        return tuple(n for n in (self.words, self.low, self.step) if n is not None)


def _grouped(b: Builder, x: Node, fill: Node) -> Node:
    """x as (groups, 256), in its order; the last group is filled up."""
    n = product(x.shape)
    rows: int | Dim = (n + (GROUP - 1)) // GROUP
    if hint(n) % GROUP == 0:
        whole = n // GROUP
        b.same(n, whole * GROUP)
        return b.reshape(x, (whole, GROUP))
    flat = b.pad(b.reshape(x, (n,)), (0,), (rows * GROUP,), fill)
    return b.reshape(flat, (rows, GROUP))


def _ungrouped(b: Builder, x: Node, shape: Shape) -> Node:
    """The inverse of `_grouped`: an array of this shape."""
    n = product(shape)
    flat = b.reshape(x, (product(x.shape),))
    return b.reshape(b.slice(flat, (0,), (n,), (1,)), shape)


def _parts(b: Builder, x: Node) -> list[Node]:
    """The elements of (groups, 8 columns) that share words: arrays (groups, columns), the lowest bits first."""
    columns = x.shape[1] // PARTS
    return [b.slice(x, (0, i * columns), (x.shape[0], columns), (1, 1)) for i in range(PARTS)]


def _joined(b: Builder, codes: list[Node], bits: int) -> Node:
    """Words of codes."""
    wide = [b.cast(c, WIDE[bits]) for c in codes]
    shifted = [c if i == 0 else b.shl(c, b.constant(i * bits, c.dtype)) for i, c in enumerate(wide)]
    return b.cast(functools.reduce(b.or_, shifted), WORDS[bits])


def _bfloat16(b: Builder, x: Node, up: bool) -> Node:
    """The nearest bfloat16 that is not greater than x (with `up`: not less), as float32."""
    near = b.cast(b.cast(x, dtypes.bfloat16), x.dtype)
    # NOTE: more than half and at most one unit in the last place, so what it is rounded to lies on the other side.
    unit = b.mul(b.abs(x), b.constant(2.0**-8, x.dtype))
    beyond = b.cast(b.cast(b.add(x, unit) if up else b.sub(x, unit), dtypes.bfloat16), x.dtype)
    wrong = b.lt(near, x) if up else b.gt(near, x)
    return b.select(wrong, beyond, near)


def quantized(
    b: Builder, x: Node, bits: int, seed: Node, counter: Node, ordinal: int, top: Node | None = None
) -> Packed:
    """x in so many bits an element. seed, counter: uint64, 0-d; ordinal: of this array among those of the draw.

    top: the largest code, float32, where it is another one than these bits have.
    """
    f = dtypes.float32
    low, most = ends(b, [_grouped(b, b.cast(x, f), b.constant(end, f)) for _, end in ENDS])
    top = b.constant(2.0**bits - 1, f) if top is None else top
    step = step_between(b, low, most, top)
    grouped = _grouped(b, x, b.constant(0, x.dtype))
    codes = codes_of(b, grouped, low, step, top, (seed, counter, ordinal))
    return Packed(_joined(b, codes, bits), low, step, bits, x.shape, x.dtype)


def ends(b: Builder, grouped: list[Node]) -> tuple[Node, Node]:
    """Of each group the minimum, rounded down to bfloat16, and the maximum; `grouped`: filled up as `ENDS` says."""
    least, most = (b.reduce(name, x, (1,)) for (name, _), x in zip(ENDS, grouped, strict=True))
    return b.cast(_bfloat16(b, least, False), dtypes.bfloat16), most


def step_between(b: Builder, low: Node, most: Node, top: Node) -> Node:
    """The step of each group in bfloat16: with codes of 0 to `top` it reaches the maximum."""
    f = dtypes.float32
    span = b.div(b.sub(most, b.cast(low, f)), top)
    return b.cast(b.maximum(_bfloat16(b, span, True), b.constant(LEAST, f)), dtypes.bfloat16)


def codes_of(b: Builder, grouped: Node, low: Node, step: Node, top: Node, draw: tuple[Node, Node, int]) -> list[Node]:
    """Of (groups, 8 columns) the codes of 8 parts: int32, (groups, columns). top: one, or one for each group."""
    f = dtypes.float32
    shape = (grouped.shape[0], grouped.shape[1] // PARTS)
    # NOTE: of what is stored, so that both passes have the same numbers.
    inverse = b.div(b.constant(2.0**POINT, f), b.cast(step, f))
    start, inverse = (along_rows(b, n, shape) for n in (b.cast(low, f), inverse))
    most = b.mul(top, b.constant(2.0**POINT, f))
    most = along_rows(b, most, shape) if most.ndim else most
    codes = []
    for part, u in zip(_parts(b, grouped), _drawn(b, shape, *draw), strict=True):
        v = b.add(b.mul(b.sub(b.cast(part, f), start), inverse), b.constant(0.5, f))
        # NOTE: v is not negative but in what fills up the last group, where only other such elements meet its bits.
        fixed = b.cast(b.minimum(v, most), dtypes.int32)
        codes.append(b.shr(b.add(fixed, u), b.constant(POINT, dtypes.int32)))
    return codes


def along_rows(b: Builder, x: Node, shape: Shape) -> Node:
    """One value for each row, as (rows, columns)."""
    return b.expand(b.reshape(x, (shape[0], 1)), shape)


def _drawn(b: Builder, shape: Shape, seed: Node, counter: Node, ordinal: int) -> list[Node]:
    """Random integers of 16 bits as int32, one array (groups, columns) a part."""
    i32, i64, u64 = dtypes.int32, dtypes.int64, dtypes.uint64

    # NOTE: no constant, so that equal layers share their kernels.
    first = b.argument(ordinal * STREAM)

    def words(n: int | Dim, start: int) -> Node:
        index = b.add(b.iota((n,), 0), b.add(first, b.constant(start, i64)) if start else first)
        return b.elementwise("random_bits", seed, counter, index)

    def byte(x: Node, i: int) -> Node:
        moved = x if i == 0 else b.shr(x, b.constant(OWN * i, u64))
        return b.cast(b.and_(moved, b.constant((1 << OWN) - 1, u64)), i32)

    own = b.reshape(words(product(shape), 0), shape)
    common = byte(words(shape[0], STREAM // 2), 0)
    common = b.expand(b.reshape(common, (shape[0], 1)), shape)
    return [b.or_(b.shl(byte(own, i), b.constant(OWN, i32)), common) for i in range(PARTS)]


def exactly(b: Builder, x: Node, bits: int) -> Packed:
    """Booleans, or integers in [0, 2 ** bits), in so many bits an element."""
    parts = _parts(b, _grouped(b, x, b.constant(0, x.dtype)))
    return Packed(_joined(b, parts, bits), None, None, bits, x.shape, x.dtype)


def unpacked(b: Builder, p: Packed) -> Node:
    """The array that was packed, or an estimate of it: each element has a shift of its part's, and reads its word.

    NOTE: parts that are written one by one and joined cost nothing where fusion counts. A mask was applied again by all
    that read the result, and each kept the terms of a sum of cotangents, in place of the sum.
    """
    groups, columns = p.words.shape
    shape = (groups, PARTS, columns)
    wide = b.cast(p.words, dtypes.int32 if p.bits < 8 else dtypes.uint64)
    by = b.cast(b.mul(b.iota((PARTS,), 0), b.constant(p.bits, dtypes.int64)), wide.dtype)
    moved = b.shr(*(b.expand(b.reshape(x, s), shape) for x, s in ((wide, (groups, 1, columns)), (by, (1, PARTS, 1)))))
    x = b.cast(b.and_(moved, b.constant((1 << p.bits) - 1, wide.dtype)), dtypes.int32)
    if p.low is not None and p.step is not None:
        f = dtypes.float32
        low, step = (b.expand(b.reshape(b.cast(n, f), (groups, 1, 1)), shape) for n in (p.low, p.step))
        x = b.add(b.mul(b.cast(x, f), step), low)
    return _ungrouped(b, b.reshape(b.cast(x, p.dtype), (groups, GROUP)), p.shape)
