"""Sums of products over labelled axes: the lowering of einsum, tensordot, dot and similar functions.

A label names an axis; axes of equal labels run together, and labels that the result lacks are summed over.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from lazyt.errors import ShapeError
from lazyt.ir import dtypes
from lazyt.ir.extents import maximum, minimum
from lazyt.ir.symbolic import hint, product
from lazyt.ops.reductions import reduce

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node, Shape

Label = str | int  # a letter; a negative int is an axis of the ellipsis, counted from its end
Labels = tuple[Label, ...]


def summed(b: Builder, x: Node, axes: Sequence[int]) -> Node:
    """The sum in x's dtype; of bool, whether any is true."""
    return reduce(b, "any" if x.dtype == dtypes.bool_ else "sum", x, tuple(axes))


def contract(b: Builder, x: Node, xl: Labels, y: Node, yl: Labels, out: Labels) -> Node:
    """The sum of x * y over every label that `out` lacks. Labels are unique in each operand, extents equal."""
    x, xl = _sum_out(b, x, xl, (*yl, *out))
    y, yl = _sum_out(b, y, yl, (*xl, *out))
    rows = tuple(k for k in out if k in xl and k not in yl)
    cols = tuple(k for k in out if k in yl and k not in xl)
    inner = tuple(k for k in xl if k in yl and k not in out)
    if not inner or not (rows or cols):
        return _product(b, x, xl, y, yl, out, inner)
    batch = tuple(k for k in out if k in xl and k in yl)
    dims = dict(zip((*yl, *xl), (*y.shape, *x.shape), strict=True))
    for k in (*batch, *inner):
        dims[k] = b.same(dims[k], y.shape[yl.index(k)])

    def extents(labels: Labels) -> Shape:
        return tuple(dims[k] for k in labels)

    def matrix(v: Node, vl: Labels, left: Labels, right: Labels) -> Node:
        v = b.permute(v, [vl.index(k) for k in (*batch, *left, *right)])
        return b.reshape(v, (*extents(batch), product(extents(left)), product(extents(right))))

    z = b.matmul(matrix(x, xl, rows, inner), matrix(y, yl, inner, cols))
    z = b.reshape(z, (*extents(batch), *extents(rows), *extents(cols)))
    order = (*batch, *rows, *cols)
    return b.permute(z, [order.index(k) for k in out])


def _sum_out(b: Builder, x: Node, xl: Labels, needed: Labels) -> tuple[Node, Labels]:
    axes = [i for i, k in enumerate(xl) if k not in needed]
    return summed(b, x, axes), tuple(k for k in xl if k in needed)


def _product(b: Builder, x: Node, xl: Labels, y: Node, yl: Labels, out: Labels, inner: Labels) -> Node:
    """Elementwise over the labels of `out` and `inner`, then the sum over `inner`."""
    # What is summed up is read as the operand with more axes lies.
    first, second = (xl, yl) if len(xl) >= len(yl) else (yl, xl)
    order = (*first, *(k for k in second if k not in first)) if inner else out
    xs, ys = (_aligned(b, v, vl, order) for v, vl in ((x, xl), (y, yl)))
    shape = tuple(
        b.same(p, q) if k in xl and k in yl else p if k in xl else q
        for k, p, q in zip(order, xs.shape, ys.shape, strict=True)
    )
    z = b.mul(b.expand(xs, shape), b.expand(ys, shape))
    left = [k for k in order if k not in inner]
    return b.permute(summed(b, z, [order.index(k) for k in inner]), [left.index(k) for k in out])


def _aligned(b: Builder, x: Node, xl: Labels, order: Labels) -> Node:
    x = b.permute(x, [xl.index(k) for k in order if k in xl])
    dims = iter(x.shape)
    return b.reshape(x, tuple(next(dims) if k in xl else 1 for k in order))


def diagonal_of(b: Builder, x: Node, i: int, j: int, offset: int = 0) -> Node:
    """The diagonal of axes i and j (j is `offset` ahead) as the last axis: gathered, so nothing else of x is read."""
    found = b.gather(x, *places_on_diagonal(b, x, i, j, offset))
    return b.permute(found, (*range(1, found.ndim), 0))


def places_on_diagonal(b: Builder, x: Node, i: int, j: int, offset: int) -> tuple[list[Node], list[int]]:
    """Where its elements stand: indices along two axes, and which axes."""
    starts = {i: max(-offset, 0), j: max(offset, 0)}
    m, n = (maximum(x.shape[a] - k, 0) if k else x.shape[a] for a, k in starts.items())
    at = b.iota((minimum(m, n),), 0)
    axes = sorted(starts)
    return [_moved(b, at, starts[a]) for a in axes], axes


def _moved(b: Builder, at: Node, start: int) -> Node:
    return b.elementwise("add", at, b.constant(start, at.dtype)) if start else at


# einsum


@lru_cache(maxsize=256)
def parse(subscripts: str) -> tuple[tuple[str, ...], str]:
    """The subscripts of each operand and of the result, which is worked out if `->` is missing."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = tuple(left.split(","))
    for part in (*inputs, right):
        letters = part.replace("...", "", 1)
        if not (letters == "" or (letters.isascii() and letters.isalpha())):
            raise ShapeError(f"einsum: subscripts are letters, commas, '...' and '->', got {subscripts!r}")
    if not arrow:
        letters = left.replace("...", "")
        right = "..." if "..." in left else ""
        right += "".join(c for c in sorted(set(letters)) if c != "," and letters.count(c) == 1)
    letters = right.replace("...", "")
    if len(set(letters)) != len(letters):
        raise ShapeError(f"einsum: an index occurs twice in the result of {subscripts!r}")
    for c in letters:
        if c not in left:
            raise ShapeError(f"einsum: index {c!r} of the result is in no operand of {subscripts!r}")
    return inputs, right


def _labels(part: str, ellipsis: int) -> Labels:
    before, dots, after = part.partition("...")
    return (*before, *(range(-ellipsis, 0) if dots else ()), *after)


def _operand_labels(subscripts: str, part: str, x: Node, position: int) -> tuple[Labels, int]:
    """The labels of one operand, and how many axes its ellipsis has."""
    named = len(part.replace("...", ""))
    rest = x.ndim - named
    if rest < 0 or (rest > 0 and "..." not in part):
        raise ShapeError(f"einsum: operand {position} has {x.ndim} axes, and {part!r} in {subscripts!r} names {named}")
    return _labels(part, rest), rest


def _without_repeats(b: Builder, x: Node, xl: Labels) -> tuple[Node, Labels]:
    """Take the diagonal over axes of one label."""
    for k in dict.fromkeys(xl):
        while xl.count(k) > 1:
            i = xl.index(k)
            j = xl.index(k, i + 1)
            if hint(x.shape[i]) != hint(x.shape[j]):
                raise ShapeError(f"einsum: index {k!r} has extents {hint(x.shape[i])} and {hint(x.shape[j])}")
            b.same(x.shape[i], x.shape[j])
            rest = [a for a in range(x.ndim) if a not in (i, j)]
            x = diagonal_of(b, x, i, j)
            xl = (*(xl[a] for a in rest), k)
    return x, xl


def _broadcast_labels(b: Builder, xs: list[Node], labels: list[Labels]) -> list[Node]:
    """Extents of 1 grow to what the other operands have at that label."""
    dims: dict[Label, int] = {}
    whole: dict[Label, object] = {}
    for x, xl in zip(xs, labels, strict=True):
        for d, k in zip(x.shape, xl, strict=True):
            if dims.get(k, 1) == 1:
                dims[k], whole[k] = hint(d), d
            elif hint(d) not in (1, dims[k]):
                raise ShapeError(f"einsum: index {k!r} has extents {dims[k]} and {hint(d)}")
    return [
        b.expand(x, tuple(whole[k] for k in xl))  # type: ignore[misc]
        for x, xl in zip(xs, labels, strict=True)
    ]


def _next_pair(labels: list[Labels], out: Labels) -> tuple[int, int, Labels]:
    """The pair whose product has the fewest axes left (the first such), and those axes."""
    best: tuple[int, int, Labels] | None = None
    for i in range(len(labels)):
        for j in range(i + 1, len(labels)):
            others = {k for n, xl in enumerate(labels) if n not in (i, j) for k in xl} | set(out)
            left = tuple(k for k in dict.fromkeys((*labels[i], *labels[j])) if k in others)
            if best is None or len(left) < len(best[2]):
                best = (i, j, left)
    assert best is not None, "a pair needs two operands"
    return best


def einsum_nodes(b: Builder, subscripts: str, xs: list[Node]) -> Node:
    """einsum of nodes of one dtype, contracted pair by pair."""
    inputs, right = parse(subscripts)
    if len(inputs) != len(xs):
        raise ShapeError(f"einsum: {subscripts!r} is for {len(inputs)} operands, got {len(xs)}")
    labels: list[Labels] = []
    ellipsis = 0
    for i, (part, x) in enumerate(zip(inputs, xs, strict=True)):
        xl, rest = _operand_labels(subscripts, part, x, i)
        labels.append(xl)
        ellipsis = max(ellipsis, rest)
    if ellipsis and "..." not in right:
        raise ShapeError(f"einsum: {subscripts!r} has '...' in an operand and not in its result")
    out = _labels(right, ellipsis)
    for i, x in enumerate(xs):
        xs[i], labels[i] = _without_repeats(b, x, labels[i])
    xs = _broadcast_labels(b, xs, labels)
    while len(xs) > 1:
        i, j, left = _next_pair(labels, out)
        left = left if len(xs) > 2 else out
        z = contract(b, xs[i], labels[i], xs[j], labels[j], left)
        xs = [x for n, x in enumerate(xs) if n not in (i, j)] + [z]
        labels = [xl for n, xl in enumerate(labels) if n not in (i, j)] + [left]
    x, xl = _sum_out(b, xs[0], labels[0], out)
    return b.permute(x, [xl.index(k) for k in out])
