"""Products and convolutions in the form that a backend computes best: rules of `canonicalize`.

matmul(a, b) transposed           -->  matmul(b transposed, a transposed) (its readers meet it row by row)
matmul(a, a column)               -->  sum(a * the column) along rows     (where those lie in memory)
matmul(a, a column)               -->  matmul(the column as a row, a transposed)  (where those are short)
matmul(a, b), many of 3 x 3       -->  sum(a * b)                         (or fewer rows, columns, terms)
matmul(float32 of halves a, b)    -->  matmul(a, b)                       (which a backend reads as they are)
matmul(halves a, b) as that half  -->  matmul(a, b) that gives the half   (where a library rounds it)
    slice(convolve(x, w)) of places   -->  convolve(slice x, w)               (what nobody reads is not computed)
    convolve(pad(x, 0), w)            -->  convolve(x, w) with padding        (where a library computes it)
    convolve(float32 of halves x, w)  -->  convolve(x, w)                     (where a backend wants it so)
    convolve(x, w)                    -->  products                           (where a backend has no code for it)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lazyt.ir import dtypes, graph as g
from lazyt.ir.attention import before_cast, halved, transposed, under
from lazyt.ir.passes.call_operands import buffer_of
from lazyt.ir.passes.lower_convolution import by_one_place, by_products, cut_at_both_ends, is_depthwise, zeros_around
from lazyt.ir.passes.phases import by_planes, framed, in_phases
from lazyt.ir.passes.rewriting import Rule, always
from lazyt.ir.prims import CONVOLUTIONS
from lazyt.ir.symbolic import hint, product

if TYPE_CHECKING:
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.canonical import Canonicalizer

# At least MANY matrices of at most TINY rows, columns and terms of a sum are multiplied element by element.
TINY, MANY = 3, 64
# A matrix in memory with at least FEW rows of at most SHORT elements is multiplied by a vector.
FEW, SHORT = 16, 64


def _rounded(c: Canonicalizer, n: Node, found: Node) -> Node | None:
    """The cast n of a product of halves, or of movement of one, that nothing else reads, as the product's dtype."""
    x = n.operands[0]
    while x.op in ("permute", "reshape") and c.readers[x] == 1:
        x = x.operands[0]
    if x.op != "matmul" or c.readers[x] != 1:
        return None

    def as_half(y: Node) -> Node | None:
        rounds = y.op == "matmul" and all(z.dtype == n.dtype for z in y.operands)
        return c.b.matmul(y.operands[0], y.operands[1], n.dtype) if rounds else None

    return under(c.b, found, ("permute", "reshape"), as_half)


def _by_vector(c: Canonicalizer, n: Node, x: Node, y: Node) -> bool:
    """Whether one operand of a product is a vector, as written: not where an extent only happens to be 1."""
    one = any(isinstance(d, int) and d == 1 for d in n.shape[-2:])
    # NOTE: a product of halves is rounded once, what is added up here each by itself.
    return c.vectors and one and n.dtype in (dtypes.float32, dtypes.float64)


def _with_vector(c: Canonicalizer, n: Node, x: Node, y: Node) -> Node:
    """A matrix and a column, or a row and a matrix: a sum along the matrix' rows, or down its columns a product."""
    b, last = c.b, x.ndim - 1
    shape = (*x.shape[:-1], y.shape[-1])
    if y.shape[-1] == 1:
        matrix, vector = x, b.reshape(y, (*y.shape[:-2], 1, y.shape[-2]))
    else:
        matrix, vector = transposed(b, y), x
    # From here on (..., m, k) and (..., 1, k).
    if matrix.dtype == vector.dtype and _lies_in_short_rows(c, matrix):
        return b.reshape(b.matmul(vector, transposed(b, matrix)), shape)
    if matrix.op != "permute" or not _transposes(matrix):
        return b.reshape(b.reduce("sum", b.mul(matrix, b.expand_to(vector, matrix.shape)), (last,)), shape)
    return b.reshape(b.matmul(vector, matrix.operands[0]), shape)


def _lies_in_short_rows(c: Canonicalizer, matrix: Node) -> bool:
    """Whether a matrix (..., m, k) is in memory, and a product by a vector takes less time than a sum a row."""
    rows, length = matrix.shape[-2:]
    return buffer_of(matrix).op == "input" and c.b.at_least(rows, FEW) and not c.b.at_least(length, SHORT + 1)


def _is_tiny(c: Canonicalizer, n: Node, x: Node, y: Node) -> bool:
    """Whether a product is of many matrices that lanes along a row would leave empty; guarded either way.

    NOTE: sums have other bits than the product, so these must not depend on the size that was planned first.
    """
    if not c.vectors or n.dtype not in (dtypes.float32, dtypes.float64):
        return False
    if any(z.dtype != n.dtype for z in n.operands):
        return False
    extents = (*n.shape[-2:], n.operands[0].shape[-1])
    many = product(n.shape[:-2])
    if isinstance(many, int) and many < MANY:
        return False
    if c.b.at_least(max(extents, key=hint), TINY + 1) or not c.b.at_least(many, MANY):
        return False
    return not any(c.b.at_least(d, TINY + 1) for d in extents)


def _by_sums(c: Canonicalizer, n: Node, x: Node, y: Node) -> Node:
    """Each element by itself: a sum of products."""
    b = c.b
    y = transposed(b, y)
    # From here on (..., m, 1, k) and (..., 1, n, k).
    x, z = b.reshape(x, (*x.shape[:-1], 1, x.shape[-1])), b.reshape(y, (*y.shape[:-2], 1, *y.shape[-2:]))
    shape = (*x.shape[:-2], *y.shape[-2:])
    return b.reduce("sum", b.mul(b.expand(x, shape), b.expand(z, shape)), (len(shape) - 1,))


def _turns(c: Canonicalizer, n: Node, y: Node) -> bool:
    """Whether n is the transpose of a product without other readers, as the gradient of a weight often is."""
    x = n.operands[0]
    return "turn" not in c.off and _transposes(n) and x.op == y.op == "matmul" and c.readers[x] == 1


def _turned(c: Canonicalizer, n: Node, y: Node) -> Node:
    left, right = (transposed(c.b, x) for x in y.operands)
    return c.b.matmul(right, left)


def _transposes(n: Node) -> bool:
    """Whether a permutation exchanges the last two axes."""
    return isinstance(n.attrs, g.Axes) and n.attrs.axes == (*range(n.ndim - 2), n.ndim - 1, n.ndim - 2)


def _is_wanted(c: Canonicalizer, n: Node, x: Node, y: Node) -> bool:
    """Whether a backend computes it as it is."""
    wanted, a = c.target.convolutions, n.attrs
    assert isinstance(a, g.Convolution)
    if not isinstance(wanted, bool):
        return wanted(n)
    features = n.shape[-1] if n.op == "convolve_filter" else y.shape[0]
    return wanted and n.op != "convolve_image" and not is_depthwise(c.b, x.shape[1], features, a)


def _with_padding(c: Canonicalizer, n: Node, x: Node, y: Node) -> Node:
    """Keeps the convolution, with the zeros around its image as padding."""
    a = n.attrs
    assert isinstance(a, g.Convolution)
    if n.op != "convolve_image" and (found := zeros_around(c.b, x)) is not None:
        x, more = found
        a = replace(a, padding=tuple(p + q for p, q in zip(a.padding, more, strict=True)))
    return _of_halves(c, n, x, y, a) or c.b.make(n.op, (x, y), a, n.shape, n.dtype)


def _of_halves(c: Canonicalizer, n: Node, x: Node, y: Node, a: g.Convolution) -> Node | None:
    """The convolution n as one of bfloat16: of what its operands are copies of, or may be rounded to; else None."""
    b, wanted = c.b, c.target.half_convolutions
    if wanted is None or n.dtype != dtypes.float32:
        return None
    p, q = (before_cast(b, z) or (b.as_bfloat16(z) if b.rounds else None) for z in (x, y))
    if p is None or q is None or not p.dtype == q.dtype == dtypes.bfloat16:
        return None
    made = b.make(n.op, (p, q), a, n.shape, n.dtype)
    return made if wanted(b, made) else None


def _is_part(c: Canonicalizer, n: Node, y: Node) -> bool:
    """Whether n is a slice of a convolution without other readers: the gradient of an input that had been padded."""
    x = n.operands[0]
    return "slices" not in c.off and x.op == y.op in CONVOLUTIONS and c.readers[x] == 1


def _part_of_places(c: Canonicalizer, n: Node, y: Node) -> Node | None:
    """The convolution that gives these places alone; None where there is none."""
    b, a, v = c.b, n.attrs, y.attrs
    assert isinstance(a, g.Slice)
    assert isinstance(v, g.Convolution)
    whole = a.starts[:2] == (0, 0) and all(b.equal(p, q) for p, q in zip(n.shape[:2], y.shape[:2], strict=True))
    if not whole or any(s != 1 for s in a.steps) or y.op == "convolve_filter":
        return None
    x, w = y.operands
    cut = cut_at_both_ends(b, a.starts[2:], n.shape[2:], y.shape[2:])
    if y.op == "convolve" and v.is_plain:
        sizes = [d + r for d, r in zip(n.shape[2:], v.reach, strict=True)]
        part = b.slice(x, a.starts, (*x.shape[:2], *sizes), a.steps)
        return b.make("convolve", (part, w), v, n.shape, n.dtype)
    if cut is None:
        return None
    if y.op == "convolve":
        if set(v.strides) != {1} or any(p < q for p, q in zip(v.padding, cut, strict=True)):
            return None
        cut = tuple(-q for q in cut)
    v = replace(v, padding=tuple(p + q for p, q in zip(v.padding, cut, strict=True)))
    return b.make(y.op, (x, w), v, n.shape, n.dtype)


_CONVOLUTIONS = " ".join(CONVOLUTIONS)

RULES = (
    Rule(
        "cast",
        lambda c, n, x: x.op == "cast" and x.operands[0].op == "item" and n.dtype in dtypes.HALVES,
        lambda c, n, x: halved(c.b, x, n.dtype),
    ),
    Rule("cast", lambda c, n, x: c.target.alike_products, _rounded),
    Rule("matmul", _by_vector, _with_vector),
    Rule("matmul", _is_tiny, _by_sums),
    Rule("matmul", always, lambda c, n, x, y: c.b.matmul(x, y)),
    Rule("permute", _turns, _turned),
    Rule(
        _CONVOLUTIONS,
        lambda c, n, x, y: isinstance(c.target.convolutions, bool),
        lambda c, *nxy: by_one_place(c.b, *nxy),
    ),
    Rule(_CONVOLUTIONS, lambda c, n, x, y: c.target.convolutions is True and by_planes(c.b, n), _with_padding),
    Rule(
        _CONVOLUTIONS,
        lambda c, n, x, y: c.target.convolutions is True and in_phases(n),
        lambda c, n, x, y: _of_halves(c, n, x, y, n.attrs) or framed(c.b, n, x, y),
    ),
    Rule(_CONVOLUTIONS, _is_wanted, _with_padding),
    Rule(_CONVOLUTIONS, always, lambda c, *nxy: by_products(c.b, *nxy)),
    Rule("slice", _is_part, _part_of_places),
)
