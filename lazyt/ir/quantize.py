"""Arrays in few bits, as graphs: groups of 256 elements with a minimum and a step each, rounded at random.

    v     (x - low) / step, in [0, 2 ** bits - 1]
    code  floor(v + u), u uniform in (0, 1) and of 16 random bits: its expectation is v
    x'    code * step + low: its expectation is x

`low` and `step` are bfloat16, rounded down and up *before* the codes are made, so that no value lies outside of what
the codes span and nothing is biased. A group is 64 columns of `256 / 64 = 4` elements; a column is one word of `4 *
bits` bits (of 1 bit: 32 columns of 8). So a kernel makes a word of strided reads of x and one random number, and
nothing at full size is stored beside x.
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

# The dtype of a word of so many bits.
WORDS = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32}
# Random bits that round one element.
ROUNDING = 16
# The smallest step: its inverse is finite.
LEAST = 2.0**-100
# Random numbers of one array have indices from a multiple of this on.
STREAM = 1 << 40
# What finds the ends of a group, and what fills up the last one.
_ENDS = (("min", float("inf")), ("max", float("-inf")))


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


def _columns(bits: int) -> int:
    return 32 if bits == 1 else 64


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
    """The inverse of `_grouped`: (groups, parts, columns) as an array of this shape."""
    n = product(shape)
    flat = b.reshape(x, (product(x.shape),))
    return b.reshape(b.slice(flat, (0,), (n,), (1,)), shape)


def _parts(b: Builder, x: Node, bits: int) -> list[Node]:
    """The elements of (groups, 256) that share words: arrays (groups, columns), the lowest bits first."""
    columns = _columns(bits)
    rows = x.shape[0]
    return [b.slice(x, (0, i * columns), (rows, columns), (1, 1)) for i in range(GROUP // columns)]


def _joined(b: Builder, codes: list[Node], bits: int) -> Node:
    """Words of codes, which are int32 (int64 for words of 32 bits)."""
    shifted = [c if i == 0 else b.shl(c, b.constant(i * bits, c.dtype)) for i, c in enumerate(codes)]
    return b.cast(functools.reduce(b.or_, shifted), WORDS[bits * len(codes)])


def _codes(b: Builder, words: Node, bits: int) -> Node:
    """Codes as int32 (groups, parts, columns)."""
    rows, columns = words.shape
    parts = GROUP // _columns(bits)
    shape = (rows, parts, columns)
    wide = dtypes.int64 if words.dtype == dtypes.uint32 else dtypes.int32
    spread = b.cast(b.expand(b.reshape(words, (rows, 1, columns)), shape), wide)
    by = b.mul(b.cast(b.iota(shape, 1), wide), b.constant(bits, wide))
    return b.cast(b.and_(b.shr(spread, by), b.constant((1 << bits) - 1, wide)), dtypes.int32)


def _bfloat16(b: Builder, x: Node, up: bool) -> Node:
    """The nearest bfloat16 that is not greater than x (with `up`: not less), as float32."""
    near = b.cast(b.cast(x, dtypes.bfloat16), x.dtype)
    # NOTE: more than half and at most one unit in the last place, so what it is rounded to lies on the other side.
    unit = b.mul(b.abs(x), b.constant(2.0**-8, x.dtype))
    beyond = b.cast(b.cast(b.add(x, unit) if up else b.sub(x, unit), dtypes.bfloat16), x.dtype)
    wrong = b.lt(near, x) if up else b.gt(near, x)
    return b.select(wrong, beyond, near)


def quantized(b: Builder, x: Node, bits: int, seed: Node, counter: Node, ordinal: int) -> Packed:
    """x in so many bits an element. seed, counter: uint64, 0-d; ordinal: of this array among those of the draw."""
    f = dtypes.float32
    least, most = (b.reduce(name, _grouped(b, b.cast(x, f), b.constant(end, f)), (1,)) for name, end in _ENDS)
    low = b.cast(_bfloat16(b, least, False), dtypes.bfloat16)
    top = b.constant(2.0**bits - 1, f)
    span = b.div(b.sub(most, b.cast(low, f)), top)
    step = b.cast(b.maximum(_bfloat16(b, span, True), b.constant(LEAST, f)), dtypes.bfloat16)
    grouped = _grouped(b, x, b.constant(0, x.dtype))
    rows, columns = grouped.shape[0], _columns(bits)
    shape = (rows, columns)
    # NOTE: of what is stored, so that both passes have the same numbers.
    inverse = b.div(b.constant(1, f), b.cast(step, f))
    start, inverse = (b.expand(b.reshape(n, (rows, 1)), shape) for n in (b.cast(low, f), inverse))
    words = _random_words(b, shape, seed, counter, ordinal, GROUP // columns)
    codes = []
    for part, u in zip(_parts(b, grouped, bits), words, strict=True):
        v = b.add(b.mul(b.sub(b.cast(part, f), start), inverse), u)
        v = b.minimum(b.maximum(v, b.constant(0, f)), top)
        codes.append(b.cast(v, dtypes.int64 if bits == 8 else dtypes.int32))
    return Packed(_joined(b, codes, bits), low, step, bits, x.shape, x.dtype)


def _random_words(b: Builder, shape: Shape, seed: Node, counter: Node, ordinal: int, parts: int) -> list[Node]:
    """Uniform numbers in (0, 1), one array (groups, columns) a part."""
    each = 64 // ROUNDING
    f, u64, i64 = dtypes.float32, dtypes.uint64, dtypes.int64
    n = product(shape)
    out = []
    for k in range(parts // each):
        first = ordinal * STREAM + k * (STREAM >> 2)
        index = b.add(b.iota((n,), 0), b.constant(first, i64))
        drawn = b.reshape(b.elementwise("random_bits", seed, counter, index), shape)
        for i in range(each):
            low = b.and_(b.shr(drawn, b.constant(i * ROUNDING, u64)), b.constant((1 << ROUNDING) - 1, u64))
            # NOTE: int32: its conversion to a float is one instruction everywhere.
            half = b.add(b.cast(b.cast(low, dtypes.int32), f), b.constant(0.5, f))
            out.append(b.mul(half, b.constant(2.0**-ROUNDING, f)))
    return out


def exactly(b: Builder, x: Node, bits: int) -> Packed:
    """Booleans, or integers in [0, 2 ** bits), in so many bits an element."""
    wide = dtypes.int64 if bits == 8 else dtypes.int32
    parts = _parts(b, _grouped(b, x, b.constant(0, x.dtype)), bits)
    return Packed(_joined(b, [b.cast(part, wide) for part in parts], bits), None, None, bits, x.shape, x.dtype)


def unpacked(b: Builder, p: Packed) -> Node:
    """The array that was packed, or an estimate of it."""
    codes = _codes(b, p.words, p.bits)
    if p.low is None or p.step is None:
        return _ungrouped(b, b.cast(codes, p.dtype), p.shape)
    f = dtypes.float32
    rows = codes.shape[0]
    low, step = (b.expand(b.reshape(b.cast(n, f), (rows, 1, 1)), codes.shape) for n in (p.low, p.step))
    return _ungrouped(b, b.cast(b.add(b.mul(b.cast(codes, f), step), low), p.dtype), p.shape)
