"""Products in the form that a backend computes best: rules of `canonicalize`.

matmul(a, b) transposed           -->  matmul(b transposed, a transposed) (its readers meet it row by row)
matmul(a, a column)               -->  sum(a * the column) along rows     (where those lie in memory)
matmul(a, a column)               -->  matmul(the column as a row, a transposed)  (where those are short)
matmul(a, b), many of 3 x 3       -->  sum(a * b)                         (or fewer rows, columns, terms)
matmul(float32 of halves a, b)    -->  matmul(a, b)                       (which a backend reads as they are)
matmul(halves a, b) as that half  -->  matmul(a, b) that gives the half   (where a library rounds it)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import dtypes, graph as g
from lazyt.ir.attention import halved, transposed
from lazyt.ir.passes.rewriting import Rule, always
from lazyt.ir.symbolic import hint, product

if TYPE_CHECKING:
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.canonical import Canonicalizer

# Matrices of at most so many rows, columns and terms of a sum are multiplied element by element, if they are so many.
TINY, MANY = 3, 64
# A matrix in memory, of as many rows, each of so many elements at most, is multiplied by a vector.
FEW, SHORT = 16, 64


def _rounded(c: Canonicalizer, n: Node, found: Node) -> Node | None:
    """The cast n of a product of halves, or of movement of one, that nothing else reads, as the product's dtype."""
    x = n.operands[0]
    while x.op in ("permute", "reshape") and c.readers[x] == 1:
        x = x.operands[0]
    if x.op != "matmul" or c.readers[x] != 1:
        return None
    moved = []
    while found.op in ("permute", "reshape"):
        moved.append(found)
        found = found.operands[0]
    if found.op != "matmul" or any(y.dtype != n.dtype for y in found.operands):
        return None
    found = c.b.matmul(found.operands[0], found.operands[1], n.dtype)
    for y in reversed(moved):
        found = c.b.make(y.op, (found,), y.attrs, y.shape, n.dtype)
    return found


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
    found = matrix
    while found.op == "reshape":
        found = found.operands[0]
    rows, length = matrix.shape[-2:]
    return found.op == "input" and c.b.at_least(rows, FEW) and not c.b.at_least(length, SHORT + 1)


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
    """Whether n is a transposed product that nobody else reads: the gradient of a weight that is met transposed."""
    x = n.operands[0]
    return "turn" not in c.off and _transposes(n) and x.op == y.op == "matmul" and c.readers[x] == 1


def _turned(c: Canonicalizer, n: Node, y: Node) -> Node:
    left, right = (transposed(c.b, x) for x in y.operands)
    return c.b.matmul(right, left)


def _transposes(n: Node) -> bool:
    """Whether a permutation exchanges the last two axes."""
    return isinstance(n.attrs, g.Axes) and n.attrs.axes == (*range(n.ndim - 2), n.ndim - 1, n.ndim - 2)


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
)
