"""Rewrites before fusion: remove autograd's marks, split complex arithmetic into parts, drop dead code.

    stop x, track x, known(y, x)      -->  x
    scatter(x, v, i, j) at axes 0, 1  -->  scatter of rows, at position(i, j) alone (every axis before the last
                                           that is indexed gets an index, which is its own number)
    add(z, w) of complex              -->  complex(add(re z, re w), add(im z, im w))        and so on
    real(complex(a, b))               -->  a
    movement of a complex array, all  -->  the same, of whole elements        (where nobody reads its parts)
    mul(x, 1), div(x, 1)              -->  x                                  (exact for every x)
    attention, attention_gradient     -->  products, where a backend has no code for them (ir/attention.py)
    update(x, v), most of x           -->  select(inside, pad(v), x)          (one pass; see `_covers`)
    slice(convolve(x, w)) of places   -->  convolve(slice x, w)               (what nobody reads is not computed)
    matmul(a, b) transposed           -->  matmul(b transposed, a transposed) (its readers meet it row by row)
    matmul(a, a column)               -->  sum(a * the column) along rows     (where those lie in memory)
    matmul(a, a column)               -->  matmul(the column as a row, a transposed)  (where those are short)
    matmul(a, b), many of 3 x 3       -->  sum(a * b)                         (or fewer rows, columns, terms)
    matmul(float32 of halves a, b)    -->  matmul(a, b)                       (which a backend reads as they are)
    matmul(halves a, b) as that half  -->  matmul(a, b) that gives the half   (where a library rounds it)
    convolve(pad(x, 0), w)            -->  convolve(x, w) with padding        (where a library computes it)
    convolve(float32 of halves x, w)  -->  convolve(x, w)                     (where a backend wants it so)
    convolve(float32 x, w), matmul    -->  the same of bfloat16(x), bfloat16(w) (where the program allows that)

Of these the last one changes values, and attention of bfloat16, whose weights are rounded; no other does. Library
calls, products through BLAS and outputs take whole complex arrays.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from lazyt.errors import NotSupportedError
from lazyt.ir import dtypes, graph as g
from lazyt.ir.attention import before_cast, by_products as attention_by_products, halved, is_attention
from lazyt.ir.passes.half_operands import OperandBuilder, may_be_rounded
from lazyt.ir.passes.lower_convolution import by_one_place, by_products, cut_at_both_ends, is_depthwise, zeros_around
from lazyt.ir.passes.phases import by_planes, framed, in_phases
from lazyt.ir.prims import CONVOLUTIONS, MOVEMENT
from lazyt.ir.symbolic import hint, product

if TYPE_CHECKING:
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Scope
    from lazyt.ir.target import Target

# So many values are looked at to find what one is made of.
NEAR = 64
# Matrices of at most so many rows, columns and terms of a sum are multiplied element by element, if they are so many.
TINY, MANY = 3, 64
# A matrix in memory, of as many rows, each of so many elements at most, is multiplied by a vector.
FEW, SHORT = 16, 64

Parts = tuple["Node", "Node"]


def canonicalize(graph: g.Graph, scope: Scope | None, target: Target, off: frozenset[str] = frozenset()) -> g.Graph:
    """The graph of what a graph's outputs need, rewritten; off: of `cover`, `slices`, `turn` and `vectors`."""
    c = _Canonicalizer(scope, target, off)
    nodes, outputs = graph.nodes, graph.outputs
    c.readers = Counter(x for n in nodes for x in n.operands) + Counter(outputs)
    for n in nodes:
        c.b.site = n.site
        c.visit(n)
    outs = [c.whole(n) for n in outputs]
    return g.Graph(g.reachable(outs), outs)


def _made_of(n: Node, source: Node) -> bool:
    """Whether `source` is among the values nearest to n that n is made from."""
    seen: set[Node] = set()
    todo = [n]
    while todo and len(seen) < NEAR:
        y = todo.pop()
        if y is source:
            return True
        if y not in seen:
            seen.add(y)
            todo.extend(y.operands)
    return False


def _is_one(n: Node) -> bool:
    while n.op in ("expand", "reshape"):
        n = n.operands[0]
    return isinstance(n.attrs, g.Constant) and n.attrs.value == 1


class _Canonicalizer:
    def __init__(self, scope: Scope | None, target: Target, off: frozenset[str]) -> None:
        self.b = OperandBuilder(scope, target)
        self.target, self.off = target, off
        self.vectors = target.vector_products and "vectors" not in off
        self.results: dict[Node, tuple[Node, ...]] = {}  # old call -> new results, where it is no call any more
        self.readers: Counter[Node] = Counter()  # old -> how many read it
        self.real: dict[Node, Node] = {}  # old -> new, for what is not split
        self.parts: dict[Node, Parts] = {}  # old complex -> its new parts
        self.wholes: dict[Node, Node] = {}

    def visit(self, n: Node) -> None:
        self.b.rounds = may_be_rounded(n)
        if n.op in ("stop", "track", "normalized"):
            self._same(n, n.operands[0])
        elif n.op == "known":
            self._same(n, n.operands[1])
        elif any(dtypes.kind(x.dtype) == "c" for x in (n, *n.operands)):
            self._complex(n)
        elif is_attention(n):
            xs = [self.real[x] for x in n.operands]
            attends = self.target.attention
            calls = attends(self.b, n, xs) if attends is not None else None
            self.results[n] = attention_by_products(self.b, n, xs) if calls is None else calls
        elif isinstance(n.attrs, g.Item) and n.operands[0] in self.results:
            self.real[n] = self.results[n.operands[0]][n.attrs.index]
        else:
            self.real[n] = self._plain(n)
        if (found := self.real.get(n)) is not None and found.shape is not n.shape:
            self.real[n] = self._sized(found, n.shape)

    def _sized(self, x: Node, shape: g.Shape) -> Node:
        """The replacement of a value of this shape: an extent that is a number there is one here.

        NOTE: a stored copy has symbols for all extents, and rewrites ask whether an extent is 1 always.
        """
        known = any(isinstance(p, int) and not isinstance(q, int) for p, q in zip(shape, x.shape, strict=True))
        return self.b.reshape(x, shape) if known else x

    def _same(self, n: Node, x: Node) -> None:
        if x in self.real:
            self.real[n] = self.real[x]
        if x in self.parts:
            self.parts[n] = self.parts[x]

    def _plain(self, n: Node) -> Node:
        xs = tuple(self.real[x] for x in n.operands)
        if n.op == "mul" and _is_one(xs[1]):
            return xs[0]
        if n.op == "mul" and _is_one(xs[0]):
            return xs[1]
        if n.op == "div" and _is_one(xs[1]):
            return xs[0]
        if n.op == "cast" and xs[0].op == "cast" and xs[0].operands[0].op == "item" and n.dtype in dtypes.HALVES:
            return halved(self.b, xs[0], n.dtype)
        if n.op == "cast" and self.target.alike_products and (rounded := self._rounded(n)) is not None:
            return rounded
        if n.op in CONVOLUTIONS:
            return self._convolution(n, *xs)
        whole = n.operands[0] if n.op == "slice" and "slices" not in self.off else None
        if whole is not None and whole.op == xs[0].op in CONVOLUTIONS and self.readers[whole] == 1:
            return self._part_of_places(n, xs[0])
        if n.op == "matmul" and self._by_vector(n):
            return self._with_vector(*xs)
        if n.op == "matmul" and self._is_tiny(n):
            return self._by_sums(*xs)
        if n.op == "matmul":
            return self.b.matmul(xs[0], xs[1])
        if n.op == "permute" and self._turns(n, xs[0]):
            assert isinstance(n.attrs, g.Axes)
            x, y = (self.b.permute(o, n.attrs.axes) for o in xs[0].operands)
            return self.b.matmul(y, x)
        return self._make(n, xs)

    def _rounded(self, n: Node) -> Node | None:
        """The cast n of a product of halves, or of movement of one, that nothing else reads, as the product's dtype."""
        x = n.operands[0]
        while x.op in ("permute", "reshape") and self.readers[x] == 1:
            x = x.operands[0]
        if x.op != "matmul" or self.readers[x] != 1:
            return None
        found = self.real[n.operands[0]]
        moved = []
        while found.op in ("permute", "reshape"):
            moved.append(found)
            found = found.operands[0]
        if found.op != "matmul" or any(y.dtype != n.dtype for y in found.operands):
            return None
        found = self.b.matmul(found.operands[0], found.operands[1], n.dtype)
        for y in reversed(moved):
            found = self.b.make(y.op, (found,), y.attrs, y.shape, n.dtype)
        return found

    def _by_vector(self, n: Node) -> bool:
        """Whether one operand of a product is a vector, as written: not where an extent only happens to be 1."""
        one = any(isinstance(d, int) and d == 1 for d in n.shape[-2:])
        # NOTE: a product of halves is rounded once, what is added up here each by itself.
        return self.vectors and one and n.dtype in (dtypes.float32, dtypes.float64)

    def _with_vector(self, x: Node, y: Node) -> Node:
        """A matrix and a column, or a row and a matrix: a sum along the matrix' rows, or down its columns a product."""
        b, last = self.b, x.ndim - 1
        shape = (*x.shape[:-1], y.shape[-1])
        transposed = (*range(last - 1), last, last - 1)
        if y.shape[-1] == 1:
            matrix, vector = x, b.reshape(y, (*y.shape[:-2], 1, y.shape[-2]))
        else:
            matrix, vector = b.permute(y, transposed), x
        # From here on (..., m, k) and (..., 1, k).
        if matrix.dtype == vector.dtype and self._lies_in_short_rows(matrix):
            return b.reshape(b.matmul(vector, b.permute(matrix, transposed)), shape)
        if matrix.op != "permute" or not isinstance(matrix.attrs, g.Axes) or matrix.attrs.axes != transposed:
            return b.reshape(b.reduce("sum", b.mul(matrix, b.expand_to(vector, matrix.shape)), (last,)), shape)
        return b.reshape(b.matmul(vector, matrix.operands[0]), shape)

    def _lies_in_short_rows(self, matrix: Node) -> bool:
        """Whether a matrix (..., m, k) is in memory, and a product by a vector takes less time than a sum a row."""
        found = matrix
        while found.op == "reshape":
            found = found.operands[0]
        rows, length = matrix.shape[-2:]
        return found.op == "input" and self.b.at_least(rows, FEW) and not self.b.at_least(length, SHORT + 1)

    def _is_tiny(self, n: Node) -> bool:
        """Whether a product is of many matrices that lanes along a row would leave empty; guarded either way.

        NOTE: sums have other bits than the product, so these must not depend on the size that was planned first.
        """
        if not self.vectors or n.dtype not in (dtypes.float32, dtypes.float64):
            return False
        if any(x.dtype != n.dtype for x in n.operands):
            return False
        extents = (*n.shape[-2:], n.operands[0].shape[-1])
        many = product(n.shape[:-2])
        if isinstance(many, int) and many < MANY:
            return False
        if self.b.at_least(max(extents, key=hint), TINY + 1) or not self.b.at_least(many, MANY):
            return False
        return not any(self.b.at_least(d, TINY + 1) for d in extents)

    def _by_sums(self, x: Node, y: Node) -> Node:
        """Each element by itself: a sum of products."""
        b = self.b
        y = b.permute(y, (*range(y.ndim - 2), y.ndim - 1, y.ndim - 2))
        # From here on (..., m, 1, k) and (..., 1, n, k).
        x, z = b.reshape(x, (*x.shape[:-1], 1, x.shape[-1])), b.reshape(y, (*y.shape[:-2], 1, *y.shape[-2:]))
        shape = (*x.shape[:-2], *y.shape[-2:])
        return b.reduce("sum", b.mul(b.expand(x, shape), b.expand(z, shape)), (len(shape) - 1,))

    def _turns(self, n: Node, y: Node) -> bool:
        """Whether n is a transposed product that nobody else reads: the gradient of a weight that is met transposed."""
        x = n.operands[0]
        assert isinstance(n.attrs, g.Axes)
        transposed = n.attrs.axes == (*range(y.ndim - 2), y.ndim - 1, y.ndim - 2)
        return "turn" not in self.off and transposed and x.op == y.op == "matmul" and self.readers[x] == 1

    def _convolution(self, n: Node, x: Node, y: Node) -> Node:
        """As it is if plain and wanted, with its image's zeros as padding where a library computes it, or products."""
        a = n.attrs
        assert isinstance(a, g.Convolution)
        kept = self.target.convolutions
        if isinstance(kept, bool):
            if (found := by_one_place(self.b, n, x, y)) is not None:
                return found
            if kept and by_planes(self.b, n):
                return self._with_padding(n, x, y)
            if kept and in_phases(n):
                return self._of_halves(n, x, y, a) or framed(self.b, n, x, y)
            wanted = kept and n.op != "convolve_image" and not self._is_depthwise(n, x, y)
        else:
            wanted = kept(n)
        if not wanted:
            return by_products(self.b, n, x, y)
        return self._with_padding(n, x, y)

    def _is_depthwise(self, n: Node, x: Node, y: Node) -> bool:
        a, features = n.attrs, n.shape[-1] if n.op == "convolve_filter" else y.shape[0]
        assert isinstance(a, g.Convolution)
        return is_depthwise(self.b, x.shape[1], features, a)

    def _with_padding(self, n: Node, x: Node, y: Node) -> Node:
        a = n.attrs
        assert isinstance(a, g.Convolution)
        if n.op != "convolve_image" and (found := zeros_around(self.b, x)) is not None:
            x, more = found
            a = replace(a, padding=tuple(p + q for p, q in zip(a.padding, more, strict=True)))
        return self._of_halves(n, x, y, a) or self.b.make(n.op, (x, y), a, n.shape, n.dtype)

    def _of_halves(self, n: Node, x: Node, y: Node, a: g.Convolution) -> Node | None:
        """The convolution n as one of bfloat16: of what its operands are copies of, or may be rounded to; else None."""
        wanted = self.target.half_convolutions
        if wanted is None or n.dtype != dtypes.float32:
            return None
        p, q = (before_cast(self.b, z) or (self.b.as_bfloat16(z) if self.b.rounds else None) for z in (x, y))
        if p is None or q is None or not p.dtype == q.dtype == dtypes.bfloat16:
            return None
        made = self.b.make(n.op, (p, q), a, n.shape, n.dtype)
        return made if wanted(self.b, made) else None

    def _part_of_places(self, n: Node, y: Node) -> Node:
        """A slice of a convolution that nobody else reads: the gradient of an input that had been padded."""
        a, c = n.attrs, y.attrs
        assert isinstance(a, g.Slice)
        assert isinstance(c, g.Convolution)
        whole = a.starts[:2] == (0, 0) and all(
            self.b.equal(p, q) for p, q in zip(n.shape[:2], y.shape[:2], strict=True)
        )
        if not whole or any(s != 1 for s in a.steps) or y.op == "convolve_filter":
            return self._make(n, (y,))
        x, w = y.operands
        cut = cut_at_both_ends(self.b, a.starts[2:], n.shape[2:], y.shape[2:])
        if y.op == "convolve_image":
            if cut is None:
                return self._make(n, (y,))
            c = replace(c, padding=tuple(p + q for p, q in zip(c.padding, cut, strict=True)))
            return self.b.make("convolve_image", (x, w), c, n.shape, n.dtype)
        if c.is_plain:
            sizes = [d + r for d, r in zip(n.shape[2:], c.reach, strict=True)]
            part = self.b.slice(x, a.starts, (*x.shape[:2], *sizes), a.steps)
            return self.b.make("convolve", (part, w), c, n.shape, n.dtype)
        if cut is None or set(c.strides) != {1} or any(p < q for p, q in zip(c.padding, cut, strict=True)):
            return self._make(n, (y,))
        c = replace(c, padding=tuple(p - q for p, q in zip(c.padding, cut, strict=True)))
        return self.b.make("convolve", (x, w), c, n.shape, n.dtype)

    def _make(self, n: Node, xs: tuple[Node, ...], dtype: object = None) -> Node:
        b = self.b
        if n.op == "permute":
            assert isinstance(n.attrs, g.Axes)
            return b.permute(xs[0], n.attrs.axes)
        if n.op == "reshape":
            x = xs[0].operands[0] if xs[0].op == "reshape" else xs[0]
            return x if x.shape == n.shape else b.make("reshape", (x,), None, n.shape, xs[0].dtype)
        if n.op == "scatter":
            return self._rows(n, *xs)
        if n.op == "update" and self._covers(n, *xs):
            return self._covered(n, *xs)
        d = xs[0].dtype if dtype is not None else n.dtype
        return b.make(n.op, xs, n.attrs, n.shape, d)

    def _covers(self, n: Node, x: Node, v: Node) -> bool:
        """Whether an update is better computed over all of x than as a copy of x that v is then written over.

        Where v is most of it that halves what is moved. Not where the copy may fall away because x, an input, is
        overwritten in place (see donate.py): that cannot be if v is made of x.
        """
        assert isinstance(n.attrs, g.Slice)
        if "cover" in self.off or any(s != 1 for s in n.attrs.steps):
            return False
        if 2 * hint(product(v.shape)) < hint(product(x.shape)):
            return False
        while x.op == "reshape":
            x = x.operands[0]
        return x.op != "input" or _made_of(v, x)

    def _covered(self, n: Node, x: Node, v: Node) -> Node:
        """update(x, v) as select(inside, pad(v), x)."""
        b, attrs = self.b, n.attrs
        assert isinstance(attrs, g.Slice)
        inside = b.expand_to(b.constant(True, dtypes.bool_), v.shape)
        there = b.pad(inside, attrs.starts, x.shape, b.constant(False, dtypes.bool_))
        return b.select(there, b.pad(v, attrs.starts, x.shape, b.constant(0, x.dtype)), x)

    def _rows(self, n: Node, x: Node, v: Node, *indices: Node) -> Node:
        """A scatter as one of rows: x as (positions, rest), v as (indices, rest)."""
        assert isinstance(n.attrs, g.Scatter)
        b, axes, inner = self.b, n.attrs.axes, indices[0].shape
        last = max(axes) + 1
        lead = [a for a in range(last) if a not in axes]
        # Axes of v: the indices', those before the last indexed axis, the rest.
        k = len(inner)
        v = b.permute(v, (*range(k, k + len(lead)), *range(k), *range(k + len(lead), v.ndim)))
        grid = tuple(x.shape[a] for a in lead) + inner
        found: dict[int, Node] = {a: b.iota(grid, i) for i, a in enumerate(lead)}
        for a, i in zip(axes, indices, strict=True):
            found[a] = b.expand_to(i, grid)
        sizes, rest = x.shape[:last], x.shape[last:]
        at = b.position([found[a] for a in range(last)], sizes)
        y = b.make(
            "scatter",
            (
                b.reshape(x, (product(sizes), *rest)),
                b.reshape(v, (product(grid), *rest)),
                b.reshape(at, (product(grid),)),
            ),
            g.Scatter((0,), n.attrs.mode),
            (product(sizes), *rest),
            x.dtype,
        )
        return b.reshape(y, x.shape)

    def whole(self, n: Node) -> Node:
        """n as one value: parts are put together where it was split."""
        if n in self.real:
            return self.real[n]
        w = self.wholes.get(n)
        if w is None:
            w = self.wholes[n] = self._moved(n) or self._together(n)
        return w

    def _moved(self, n: Node) -> Node | None:
        """n as movement of whole elements of an array that is stored; None where it is not, or is read by parts too.

        A copy then moves words, and a table is not taken apart before it is read at indices.
        """
        if self.readers[n] > 1:
            return None
        chain = []
        x = n
        while x not in self.real and self._is_movement(x):
            chain.append(x)
            x = x.operands[0]
        if x not in self.real or dtypes.kind(self.real[x].dtype) != "c":
            return None
        moved, site = self.real[x], self.b.site
        for y in reversed(chain):
            self.b.site = y.site  # whose index may be out of range
            more = [self.b.constant(0, n.dtype)] if y.op == "pad" else [self.real[i] for i in y.operands[1:]]
            moved = self._make(y, (moved, *more))
        self.b.site = site
        return moved

    def _is_movement(self, n: Node) -> bool:
        if n.op == "gather":
            # NOTE: costly where others read its parts: those would be read at its indices once more.
            return self.readers[n] == 1
        if n.op == "pad":
            fill = n.operands[1].attrs
            return isinstance(fill, g.Constant) and repr(complex(fill.value)) == "0j"  # and no part is -0.0
        if n.op == "slice" and n.dtype == dtypes.complex128:
            # Two words that do not follow one another would be two passes over memory, their parts are one.
            assert isinstance(n.attrs, g.Slice)
            return n.attrs.steps[-1:] in ((), (1,))
        return n.op in MOVEMENT and n.op != "concat"

    def _together(self, n: Node) -> Node:
        """n as one value that a kernel can store."""
        re, im = self.split(n)
        return self.b.make("complex", (re, im), None, n.shape, n.dtype)

    def split(self, n: Node) -> Parts:
        """n's parts; a whole complex array is read part by part."""
        p = self.parts.get(n)
        if p is None:
            x = self.real[n]
            if dtypes.kind(x.dtype) != "c":
                zero = self.b.expand_to(self.b.constant(0, x.dtype), x.shape)
                p = (x, zero)
            else:
                d = dtypes.real_of(x.dtype)
                p = (
                    self.b.make("real", (x,), None, x.shape, d),
                    self.b.make("imag", (x,), None, x.shape, d),
                )
            self.parts[n] = p
        return p

    def _complex(self, n: Node) -> None:
        op = n.op
        if op in ("input", "matmul", "opaque", "item"):
            self.real[n] = self.b.make(op, tuple(map(self.whole, n.operands)), n.attrs, n.shape, n.dtype)
        elif op in ("constant", "scalar"):
            self.parts[n] = self._source(n)
        elif op == "concat":
            # It is stored anyhow: with its parts side by side, as whoever wants all of it does.
            self.real[n] = self.b.make(op, tuple(map(self.whole, n.operands)), n.attrs, n.shape, n.dtype)
        elif op == "reshape" and n.operands[0] in self.real:
            # What is stored under another shape: its parts are read where they lie.
            self.real[n] = self._make(n, (self.real[n.operands[0]],))
        elif op in MOVEMENT or op in ("sum", "gather", "scatter", "update", "select"):
            self._partwise(n)
        elif op == "cast":
            self._cast(n)
        elif op in ("real", "imag"):
            self.real[n] = self.split(n.operands[0])[op == "imag"]
        elif op in ("isnan", "isinf", "isfinite"):
            re, im = (self.b.elementwise(op, x) for x in self.split(n.operands[0]))
            self.real[n] = self.b.elementwise("and" if op == "isfinite" else "or", re, im)
        elif op == "complex":
            self.parts[n] = (self.real[n.operands[0]], self.real[n.operands[1]])
        elif (rule := getattr(self, f"_{op}", None)) is not None:
            rule(n)
        else:
            dtype = n.operands[-1].dtype if n.operands else n.dtype
            raise NotSupportedError(f"not supported: {op} of {dtype}, because it has no complex form yet")

    def _source(self, n: Node) -> Parts:
        d = dtypes.real_of(n.dtype)
        if isinstance(n.attrs, g.Constant):
            v = complex(n.attrs.value)
            return self.b.constant(v.real, d), self.b.constant(v.imag, d)
        s = self.b.make("scalar", (), n.attrs, (), n.dtype)
        return self.b.make("real", (s,), None, (), d), self.b.make("imag", (s,), None, (), d)

    def _partwise(self, n: Node) -> None:
        split = [self.split(x) if dtypes.kind(x.dtype) == "c" else (self.real[x],) * 2 for x in n.operands]
        self.parts[n] = (
            self._make(n, tuple(p[0] for p in split), True)
            if n.op != "select"
            else self.b.select(*(p[0] for p in split)),
            self._make(n, tuple(p[1] for p in split), True)
            if n.op != "select"
            else self.b.select(*(p[1] for p in split)),
        )

    def _cast(self, n: Node) -> None:
        x, b = n.operands[0], self.b
        if dtypes.kind(n.dtype) == "c":
            d = dtypes.real_of(n.dtype)
            if dtypes.kind(x.dtype) == "c":
                re, im = self.split(x)
                self.parts[n] = (b.cast(re, d), b.cast(im, d))
            else:
                self.parts[n] = (b.cast(self.real[x], d), b.expand_to(b.constant(0, d), x.shape))
        elif dtypes.kind(n.dtype) == "b":
            zero = b.expand_to(b.constant(0, dtypes.real_of(x.dtype)), x.shape)
            re, im = self.split(x)
            self.real[n] = b.or_(b.ne(re, zero), b.ne(im, zero))
        else:
            self.real[n] = b.cast(self.split(x)[0], n.dtype)

    def _each(self, n: Node) -> None:
        z, w = (self.split(x) for x in n.operands)
        self.parts[n] = (self.b.elementwise(n.op, z[0], w[0]), self.b.elementwise(n.op, z[1], w[1]))

    _add = _sub = _each

    def _mul(self, n: Node) -> None:
        (a, b), (c, d) = (self.split(x) for x in n.operands)
        m = self.b
        self.parts[n] = (m.sub(m.mul(a, c), m.mul(b, d)), m.add(m.mul(a, d), m.mul(b, c)))

    def _div(self, n: Node) -> None:
        """Smith's algorithm (1962), as NumPy: scale by the larger part of the divisor."""
        (a, b), (c, d) = (self.split(x) for x in n.operands)
        m = self.b
        big = m.ge(m.abs(c), m.abs(d))
        zero = m.and_(m.eq(c, m.sub(c, c)), m.eq(d, m.sub(d, d)))
        r1, r2 = m.div(d, c), m.div(c, d)
        s1, s2 = m.add(c, m.mul(d, r1)), m.add(m.mul(c, r2), d)
        re = m.select(big, m.div(m.add(a, m.mul(b, r1)), s1), m.div(m.add(m.mul(a, r2), b), s2))
        im = m.select(big, m.div(m.sub(b, m.mul(a, r1)), s1), m.div(m.sub(m.mul(b, r2), a), s2))
        self.parts[n] = (m.select(zero, m.div(a, m.abs(c)), re), m.select(zero, m.div(b, m.abs(c)), im))

    def _neg(self, n: Node) -> None:
        re, im = self.split(n.operands[0])
        self.parts[n] = (self.b.neg(re), self.b.neg(im))

    def _conj(self, n: Node) -> None:
        re, im = self.split(n.operands[0])
        self.parts[n] = (re, self.b.neg(im))

    def _abs(self, n: Node) -> None:
        self.real[n] = self.b.hypot(*self.split(n.operands[0]))

    def _sign(self, n: Node) -> None:
        """z / |z|, zero at zero (Array API, NumPy 2)."""
        re, im = self.split(n.operands[0])
        m = self.b
        size = m.hypot(re, im)
        zero = m.eq(size, m.sub(size, size))
        self.parts[n] = (m.select(zero, re, m.div(re, size)), m.select(zero, im, m.div(im, size)))

    def _eq(self, n: Node) -> None:
        z, w = (self.split(x) for x in n.operands)
        self.real[n] = self.b.and_(self.b.eq(z[0], w[0]), self.b.eq(z[1], w[1]))

    def _ne(self, n: Node) -> None:
        z, w = (self.split(x) for x in n.operands)
        self.real[n] = self.b.or_(self.b.ne(z[0], w[0]), self.b.ne(z[1], w[1]))
