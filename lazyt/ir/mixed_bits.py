"""Arrays whose samples (along the first axis) have 1 to 8 bits an element each, as graphs: ActNN's level L3.

The bits of a sample are a value of the program, so other bits are no other plan. All samples of an array share a
number of *rows*, which is known before: the bits that they have together. They are given out here, by the ranges of
this very array: a sample begins with one bit, and each further one goes where it takes most from the variance of
gradients, `c_n / (2 ** bits_n - 1) ** 2`. Within one array that is ActNN's greedy choice, and the best there is.

    words   (samples, columns)  the codes of 8 elements, `bits` each, in one int64: made at once, and not kept
    rows    (rows, columns)     their bytes that are in use, sample by sample: uint8, 8 elements of one byte
    first   (samples,)          the first row of each sample

Groups lie within a sample: 256 elements, or all where a sample has fewer. Minimum, step, codes and random numbers are
those of quantize.py.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from lazyt.ir import dtypes
from lazyt.ir.compression import GROUP
from lazyt.ir.quantize import ENDS, PARTS, along_rows, codes_of, ends, step_between
from lazyt.ir.records import dataclass
from lazyt.ir.symbolic import hint, product

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node, Shape
    from lazyt.ir.symbolic import Dim

MOST_BITS = 8


@dataclass(frozen=True, slots=True)
class Mixed:
    """An array in few bits: `stored` are the nodes that hold it."""

    rows: Node
    low: Node
    step: Node
    bits: Node
    first: Node
    ranges: Node  # of each sample the squared ranges of its groups, added up
    shape: Shape
    dtype: np.dtype

    @property
    def stored(self) -> tuple[Node, ...]:
        """What has to be kept."""
        return self.rows, self.low, self.step, self.bits, self.first


def width_of(shape: Shape) -> int | Dim:
    """The elements of a group."""
    size = product(shape[1:])
    return GROUP if hint(size) >= GROUP else (size + (PARTS - 1)) // PARTS * PARTS


def _grouped(b: Builder, x: Node, fill: Node) -> Node:
    """x as (samples * groups, width); the last group of each sample is filled up."""
    n, size, width = x.shape[0], product(x.shape[1:]), width_of(x.shape)
    if hint(size) % hint(width) == 0:
        groups = size // width
        b.same(size, groups * width)
        return b.reshape(x, (n * groups, width))
    groups = (size + (width - 1)) // width
    flat = b.pad(b.reshape(x, (n, size)), (0, 0), (n, groups * width), fill)
    return b.reshape(flat, (n * groups, width))


def _ungrouped(b: Builder, x: Node, shape: Shape) -> Node:
    """The inverse of `_grouped`: an array of this shape."""
    n, size = shape[0], product(shape[1:])
    flat = b.reshape(x, (n, product(x.shape) // n))
    return b.reshape(b.slice(flat, (0, 0), (n, size), (1, 1)), shape)


def allocated(b: Builder, sensitivity: Node, rows: int | Dim) -> Node:
    """The bits of each sample, int64, 1 to 8: `rows` in all. Samples that are equally sensitive get equal bits."""
    n = sensitivity.shape[0]
    f, i64 = dtypes.float32, dtypes.int64
    share = [1 / (2.0**bits - 1) ** 2 for bits in range(1, MOST_BITS + 1)]
    gains = [b.mul(sensitivity, b.constant(share[k] - share[k + 1], f)) for k in range(MOST_BITS - 1)]
    # NOTE: the second bits of all samples, then the third ones: the order of what is equally good.
    every = b.reshape(b.concat([b.reshape(x, (1, n)) for x in gains], 0), ((MOST_BITS - 1) * n,))
    order = b.opaque("argsort", (every,), (0, True), [(every.shape, i64)])[0]
    shape = (n, every.shape[0])
    whose = b.expand(b.reshape(b.rem(order, b.extent(n)), (1, shape[1])), shape)
    taken = b.lt(b.iota(shape, 1), b.extent(rows - n))
    return b.add(_count(b, b.and_(b.eq(whose, b.iota(shape, 0)), taken)), b.constant(1, i64))


def _count(b: Builder, x: Node) -> Node:
    """How many of each row are true."""
    return b.reduce("sum", b.cast(x, dtypes.int64), (1,))


def _firsts(b: Builder, bits: Node) -> Node:
    """The bits of the samples before each one."""
    n = bits.shape[0]
    before = b.lt(b.iota((n, n), 1), b.iota((n, n), 0))
    every = b.expand(b.reshape(bits, (1, n)), (n, n))
    return b.reduce("sum", b.select(before, every, b.constant(0, dtypes.int64)), (1,))


def mixed(b: Builder, x: Node, rows: int | Dim, weight: Node, draw: tuple[Node, Node, int]) -> Mixed:
    """x in so many rows. weight: float32, (samples,), what each sample's variance counts; draw: as for `quantized`."""
    f, i64 = dtypes.float32, dtypes.int64
    n = x.shape[0]
    low, most = ends(b, [_grouped(b, b.cast(x, f), b.constant(end, f)) for _, end in ENDS])
    each = (n, low.shape[0] // n)
    span = b.sub(most, b.cast(low, f))
    ranges = b.reduce("sum", b.reshape(b.mul(span, span), each), (1,))
    bits = allocated(b, b.mul(ranges, weight), rows)
    first = _firsts(b, bits)
    of_groups = b.reshape(along_rows(b, bits, each), low.shape)
    top = b.cast(b.sub(b.shl(b.constant(1, i64), of_groups), b.constant(1, i64)), f)
    step = step_between(b, low, most, top)
    codes = codes_of(b, _grouped(b, x, b.constant(0, x.dtype)), low, step, top, draw)
    wide = [b.cast(c, i64) for c in codes]
    words = functools.reduce(b.or_, [wide[0], *(_moved(b, "shl", c, of_groups, i) for i, c in enumerate(wide) if i)])
    kept = b.cast(bits, dtypes.uint8), b.cast(first, dtypes.int32)
    return Mixed(_packed(b, words, bits, first, rows), low, step, *kept, ranges, x.shape, x.dtype)


def _moved(b: Builder, way: str, x: Node, bits: Node, i: int) -> Node:
    """x (groups, columns) shifted by i codes of so many bits a group."""
    return b.elementwise(way, x, along_rows(b, b.mul(bits, b.constant(i, dtypes.int64)), x.shape))


def _packed(b: Builder, words: Node, bits: Node, first: Node, rows: int | Dim) -> Node:
    """The bytes of words (samples * groups, columns) that are in use."""
    n, i64 = bits.shape[0], dtypes.int64
    ended = b.expand(b.reshape(b.add(first, bits), (1, n)), (rows, n))
    # NOTE: the greatest index is one that exists also where the bits of a NaN are too few.
    owner = b.minimum(_count(b, b.le(ended, b.iota((rows, n), 0))), b.sub(b.extent(n), b.constant(1, i64)))
    byte = b.sub(b.iota((rows,), 0), b.gather(first, [owner], (0,)))
    found = b.gather(b.reshape(words, (n, product(words.shape) // n)), [owner], (0,))
    moved = b.shr(found, along_rows(b, b.mul(byte, b.constant(8, i64)), found.shape))
    return b.cast(b.and_(moved, b.constant(255, i64)), dtypes.uint8)


def restored(b: Builder, p: Mixed) -> Node:
    """An estimate of the array that was packed."""
    f, i64 = dtypes.float32, dtypes.int64
    n, columns = p.bits.shape[0], p.rows.shape[1]
    bits_of, first = b.cast(p.bits, i64), b.cast(p.first, i64)
    last = b.sub(b.extent(p.rows.shape[0]), b.constant(1, i64))
    parts = []
    for i in range(MOST_BITS):
        at = b.minimum(b.add(first, b.constant(i, i64)), last)
        byte = b.cast(b.gather(p.rows, [at], (0,)), i64)
        moved = b.shl(byte, b.constant(8 * i, i64)) if i else byte
        used = along_rows(b, b.gt(bits_of, b.constant(i, i64)), (n, columns))
        parts.append(b.select(used, moved, b.constant(0, i64)))
    each = (n, p.low.shape[0] // n)
    words = b.reshape(functools.reduce(b.or_, parts), (p.low.shape[0], n * columns // p.low.shape[0]))
    bits = b.reshape(along_rows(b, bits_of, each), p.low.shape)
    one = b.constant(1, i64)
    mask = along_rows(b, b.sub(b.shl(one, bits), one), words.shape)
    low, step = (along_rows(b, b.cast(x, f), words.shape) for x in (p.low, p.step))
    codes = [b.and_(_moved(b, "shr", words, bits, i) if i else words, mask) for i in range(PARTS)]
    values = [b.cast(b.add(b.mul(b.cast(c, f), step), low), p.dtype) for c in codes]
    return _ungrouped(b, b.concat(values, 1), p.shape)
