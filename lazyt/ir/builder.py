"""Builds graphs: one constructor a primitive; equal nodes are made once (hash-consing is the CSE).

The same builder serves twice: when an operation is first recorded, over ints, to infer and check its
result; when a program is planned, over symbolic extents. Rules that need two extents to be equal call
`same`, which unifies them in the plan's scope.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lazyt.errors import LazytInternalError, ShapeError
from lazyt.ir import dtypes, graph as g
from lazyt.ir.extents import prefix_sums
from lazyt.ir.graph import Node
from lazyt.ir.prims import ELEMENTWISE, result_dtype
from lazyt.ir.records import dataclass
from lazyt.ir.symbolic import Dim, Scope, guarded, product, short

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


# The Python type of a number of each dtype kind.
_NUMBERS: dict[str, Callable[[Any], bool | int | float | complex]] = {
    "b": bool, "i": int, "u": int, "f": float, "c": complex,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Weak:
    """A Python scalar operand: its value is an argument; its dtype follows the other operands (NEP 50)."""

    position: int
    type: type


class Builder:
    """Constructs nodes in order. `scope` is None while inferring over ints."""

    def __init__(self, scope: Scope | None = None, share: bool = True) -> None:
        self.scope = scope
        # NOTE: before reverse mode equal nodes stay apart, or gradients would be summed in another order (and other
        # bits) than where a sync keeps them apart.
        self.share = share
        self.nodes: list[Node] = []
        self.site: Any = None
        self._made: dict[tuple[Any, ...], Node] = {}
        self.tracked: list[bool] = []  # by serial number: whether a node is made from a `track`; kept by reverse mode
        self.copies: dict[Node, Node] = {}  # of values that are stored: what reads the stored copy

    def make(self, op: str, operands: tuple[Node, ...], attrs: g.Attrs, shape: g.Shape, dtype: np.dtype) -> Node:
        """The node with these parts, made once; extents that are long polynomials get names (symbolic.py)."""
        if self.scope is not None:
            shape = tuple([d if d.__class__ is int else short(d) for d in shape])
        if self.share:
            key = (op, operands, attrs, shape, dtype)
            n = self._made.get(key)
            if n is not None:
                return n
            n = self._made[key] = Node(op, operands, attrs, shape, dtype, len(self.nodes), self.site)
        else:
            n = Node(op, operands, attrs, shape, dtype, len(self.nodes), self.site)
        self.nodes.append(n)
        return n

    def fork(self) -> Builder:
        """A builder that continues from here: its nodes are not seen here, but its guards are (one scope)."""
        other = Builder(self.scope, self.share)
        other.nodes, other._made, other.site = list(self.nodes), dict(self._made), self.site
        other.tracked, other.copies = list(self.tracked), dict(self.copies)
        return other

    # Extents

    def same(self, a: int | Dim, b: int | Dim) -> int | Dim:
        """Rely on a == b, which the caller has checked on hints."""
        if a is b:
            return a
        if self.scope is None:
            if a != b:
                raise LazytInternalError(f"{a} and {b} must be equal here, and the operation has not checked it")
            return a
        return self.scope.unify(a, b)

    def same_shape(self, a: g.Shape, b: g.Shape) -> g.Shape:
        return tuple(self.same(x, y) for x, y in zip(a, b, strict=True))

    def equal(self, a: int | Dim, b: int | Dim) -> bool:
        """Whether a == b wherever the guards so far hold; adds no guard."""
        return a == b if self.scope is None else self.scope.known_equal(a, b)

    def at_least(self, a: int | Dim, bound: int) -> bool:
        """Whether a >= bound; the plan then holds only where the answer is the same."""
        if self.scope is None:
            return guarded(a) >= bound
        return self.scope.at_least(a, bound)

    # Sources

    def input(self, index: int, shape: g.Shape, dtype: np.dtype) -> Node:
        return self.make("input", (), g.Input(index), shape, dtype)

    def scalar(self, position: int, dtype: np.dtype) -> Node:
        """The Python number at this position of the trace's scalars, as a 0-d value of `dtype`."""
        return self.make("scalar", (), g.Scalar(position), (), dtype)

    def constant(self, value: bool | complex, dtype: np.dtype) -> Node:
        v = _NUMBERS[dtypes.kind(dtype)](value)
        return self.make("constant", (), g.Constant(v, repr(v)), (), dtype)

    def extent(self, n: int | Dim, dtype: np.dtype = dtypes.int64) -> Node:
        """An extent as a 0-d value (the count under a mean)."""
        return self.make("extent", (), g.ExtentValue(n), (), dtype)

    def argument(self, n: int) -> Node:
        """A number as a 0-d int64 that is no part of the kernels which read it, unlike a constant."""
        return self.make("extent", (), g.ExtentValue(n, True), (), dtypes.int64)

    def iota(self, shape: g.Shape, axis: int) -> Node:
        return self.make("iota", (), g.Axis(axis), shape, dtypes.int64)

    # Elementwise

    def elementwise(self, name: str, *xs: Node) -> Node:
        """Apply a primitive to operands of one shape and dtype (see prims.ELEMENTWISE); a 0-d operand is spread."""
        shape = max((x.shape for x in xs), key=len)
        ys = []
        for x in xs:
            if x.shape == shape:
                ys.append(x)
            elif not x.shape:
                ys.append(self.expand_to(x, shape))
            else:
                shape = self.same_shape(shape, x.shape)
                ys.append(x)
        return self.make(name, tuple(ys), None, shape, result_dtype(name, ys[-1].dtype))

    def __getattr__(self, name: str) -> Callable[..., Node]:
        """`b.exp(x)` is `b.elementwise('exp', x)`; a trailing underscore avoids keywords (`b.and_`)."""
        op = name.rstrip("_")
        if op not in ELEMENTWISE:
            raise AttributeError(name)
        return lambda *xs: self.elementwise(op, *xs)

    def cast(self, x: Node, dtype: np.dtype) -> Node:
        return x if x.dtype == dtype else self.make("cast", (x,), None, x.shape, dtype)

    def stop(self, x: Node) -> Node:
        return self.make("stop", (x,), None, x.shape, x.dtype)

    def known(self, y: Node, x: Node, copy: bool = False) -> Node:
        """The value x with the gradient of y; copy: x is the stored value of y, so the derivative of y reads it too."""
        n = self.make("known", (y, x), None, self.same_shape(y.shape, x.shape), x.dtype)
        if copy:
            self.copies[y] = n
        return n

    def normalized(self, y: Node, x: Node, r: Node, axes: Sequence[int]) -> Node:
        """y, which is (x - mean(x)) * r over `axes`; all of one shape."""
        return self.make("normalized", (y, x, r), g.Axes(tuple(axes)), y.shape, y.dtype)

    # Movement

    def permute(self, x: Node, axes: Sequence[int]) -> Node:
        axes = tuple(axes)
        if axes == tuple(range(x.ndim)):
            return x
        if x.op == "permute":
            assert isinstance(x.attrs, g.Axes)
            inner = x.attrs.axes
            return self.permute(x.operands[0], tuple(inner[a] for a in axes))
        return self.make("permute", (x,), g.Axes(axes), tuple(x.shape[a] for a in axes), x.dtype)

    def reshape(self, x: Node, shape: g.Shape) -> Node:
        """Row-major reshape; extents of `shape` that are new symbols are solved against x's."""
        if self.scope is not None:
            shape = self._match(x.shape, shape)
        if x.op == "reshape":
            x = x.operands[0]
        if shape == x.shape:
            return x
        return self.make("reshape", (x,), None, shape, x.dtype)

    def _match(self, old: g.Shape, new: g.Shape) -> g.Shape:
        """Group both shapes into runs of equal products (by hint) and unify run by run."""
        assert self.scope is not None
        scope, out = self.scope, list(new)
        if any(guarded(d) == 0 for d in old) or self._groups(old, new):
            return tuple(scope.normal(d) for d in out)
        # Only literal ones are inserted or removed; a symbol that happens to be 1 is not one of them.
        kept, places = ([i for i, d in enumerate(s) if not (isinstance(d, int) and d == 1)] for s in (old, new))
        if [guarded(old[i]) for i in kept] == [guarded(new[j]) for j in places]:
            for i, j in zip(kept, places, strict=True):
                out[j] = scope.unify(old[i], new[j])
            return tuple(out)
        i = j = 0
        while i < len(old) or j < len(new):
            if i < len(old) and j < len(new) and guarded(old[i]) == guarded(new[j]):
                out[j] = scope.unify(old[i], new[j])
                i, j = i + 1, j + 1
                continue
            i0, j0 = i, j
            p = q = 1
            while i == i0 or j == j0 or p != q:
                if i < len(old) and (p <= q or j >= len(new)):
                    p, i = p * guarded(old[i]), i + 1
                elif j < len(new):
                    q, j = q * guarded(new[j]), j + 1
                else:
                    break
            whole = scope.normal(product(old[i0:i]))
            self._factor(whole, new[j0:j])
            scope.unify(product(new[j0:j]), whole)
        return tuple(scope.normal(d) for d in out)

    def _groups(self, old: g.Shape, new: g.Shape) -> bool:
        """Whether runs of both shapes have equal products for every binding: then nothing needs to be relied on."""
        assert self.scope is not None
        i = j = 0
        while i < len(old) or j < len(new):
            i0, j0 = i, j
            p: int | Dim = 1
            q: int | Dim = 1
            while (i, j) == (i0, j0) or not self.scope.known_equal(p, q):
                if i < len(old) and (guarded(p) <= guarded(q) or j == len(new)):
                    p, i = p * old[i], i + 1
                elif j < len(new):
                    q, j = q * new[j], j + 1
                else:
                    return False
        return True

    def _factor(self, whole: int | Dim, parts: g.Shape) -> None:
        """Identify parts of a split that equal a factor of `whole`: (b*t) -> (b', t') finds b' = b, t' = t."""
        assert self.scope is not None
        if isinstance(whole, int) or len(whole.terms) != 1 or len(parts) < 2:
            return
        atoms = [Dim(self.scope, (((n,), 1),)) for n in whole.terms[0][0]]
        if len(atoms) < 2:
            return
        for p in parts:
            match = next((a for a in atoms if a.hint == guarded(p)), None)
            if match is not None and isinstance(p, Dim):
                atoms.remove(match)
                self.scope.unify(p, match)

    def expand(self, x: Node, shape: g.Shape) -> Node:
        """Grow axes of extent 1; same rank."""
        out = []
        for d, n in zip(x.shape, shape, strict=True):
            if guarded(d) == guarded(n):
                # A static 1 grows whatever n turns out to be; two equal symbols become one.
                out.append(n if isinstance(d, int) and d == 1 else self.same(d, n))
            else:
                self.same(d, 1)
                out.append(n)
        final = tuple(out)
        return x if final == x.shape else self.make("expand", (x,), None, final, x.dtype)

    def expand_to(self, x: Node, shape: g.Shape) -> Node:
        """Broadcast x against `shape`: new leading axes, then `expand`."""
        if x.ndim < len(shape):
            x = self.reshape(x, (1,) * (len(shape) - x.ndim) + x.shape)
        return self.expand(x, shape)

    def slice(self, x: Node, starts: g.Shape, sizes: g.Shape, steps: Sequence[int]) -> Node:
        """y[i] = x[start + i * step]; the caller has normalised and checked the bounds."""
        at_start = all(isinstance(s, int) and s == 0 for s in starts) and all(s == 1 for s in steps)
        if at_start and all(self.equal(p, q) for p, q in zip(sizes, x.shape, strict=True)):
            return x
        return self.make("slice", (x,), g.Slice(tuple(starts), tuple(steps)), tuple(sizes), x.dtype)

    def flip(self, x: Node, axes: Sequence[int]) -> Node:
        starts = tuple(d - 1 if i in axes else 0 for i, d in enumerate(x.shape))
        return self.slice(x, starts, x.shape, tuple(-1 if i in axes else 1 for i in range(x.ndim)))

    def pad(self, x: Node, lo: g.Shape, shape: g.Shape, value: Node) -> Node:
        """Grow to `shape`: x at offset `lo`, `value` (0-d, x's dtype) elsewhere."""
        return self.make("pad", (x, value), g.Pad(tuple(lo)), shape, x.dtype)

    def concat(self, xs: Sequence[Node], axis: int) -> Node:
        xs = list(xs)
        if len(xs) == 1:
            return xs[0]
        shape = list(xs[0].shape)
        for x in xs[1:]:
            for i, d in enumerate(x.shape):
                if i != axis:
                    shape[i] = self.same(shape[i], d)
        shape[axis] = prefix_sums([x.shape[axis] for x in xs])[-1]
        return self.make("concat", tuple(xs), g.Axis(axis), tuple(shape), xs[0].dtype)

    def window(
        self, x: Node, axes: Sequence[int], sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
    ) -> Node:
        """Sliding windows over `axes`: their extents become counts, and window axes are appended at the end."""
        shape = list(x.shape)
        for a, k, s, d in zip(axes, sizes, strides, dilations, strict=True):
            shape[a] = (shape[a] - ((k - 1) * d + 1)) // s + 1
        attrs = g.Window(tuple(axes), tuple(sizes), tuple(strides), tuple(dilations))
        return self.make("window", (x,), attrs, (*shape, *sizes), x.dtype)

    # Reductions, contraction, indexing

    def reduce(self, name: str, x: Node, axes: Sequence[int], joined: bool = False) -> Node:
        """Reduce over `axes` (non-negative), which are removed; the last two in the order of one, if `joined`."""
        kept = tuple(sorted(set(axes)))
        if not kept:
            return x if name not in ("argmax", "argmin") else self.expand_to(self.constant(0, dtypes.int64), x.shape)
        shape = tuple(d for i, d in enumerate(x.shape) if i not in kept)
        dtype = dtypes.int64 if name in ("argmax", "argmin") else x.dtype
        return self.make(name, (x,), g.Axes(kept, joined), shape, dtype)

    def matmul(self, a: Node, b: Node, dtype: np.dtype | None = None) -> Node:
        """(..., m, k) @ (..., k, n): equal rank, equal batch extents, one dtype; or halves, which give float32.

        dtype: of what two operands of one half give, where that is not float32: the half.
        """
        batch = self.same_shape(a.shape[:-2], b.shape[:-2])
        self.same(a.shape[-1], b.shape[-2])
        halves = a.dtype in dtypes.HALVES or b.dtype in dtypes.HALVES
        given = dtype if dtype is not None else dtypes.float32 if halves else a.dtype
        return self.make("matmul", (a, b), None, (*batch, a.shape[-2], b.shape[-1]), given)

    def convolve(self, x: Node, w: Node, a: g.Convolution, features: int | Dim | None = None) -> Node:
        """(N, C, *extents) with (O, C / groups, *sizes) gives (N, O, *counts); `features` is O by another name."""
        self._in_groups(x.shape[1], w.shape, a.groups)
        shape = (x.shape[0], w.shape[0] if features is None else features, *a.counts(x.shape[2:]))
        return self.make("convolve", (x, w), a, shape, x.dtype)

    def convolve_filter(self, x: Node, y: Node, a: g.Convolution, shape: g.Shape) -> Node:
        """`convolve` of x, linear in the filters, transposed, for filters of `shape`: gives (C / groups, *sizes, O)."""
        self.same(x.shape[0], y.shape[0])
        self.same_shape(a.counts(x.shape[2:]), y.shape[2:])
        self.same(y.shape[1], shape[0])
        self._in_groups(x.shape[1], shape, a.groups)
        return self.make("convolve_filter", (x, y), a, (shape[1], *a.sizes, shape[0]), x.dtype)

    def convolve_image(self, y: Node, w: Node, a: g.Convolution, shape: g.Shape) -> Node:
        """`convolve` with w, linear in the image, transposed, for images of `shape`: gives (N, C, *extents)."""
        self.same(y.shape[0], shape[0])
        self.same_shape(a.counts(shape[2:]), y.shape[2:])
        self.same(y.shape[1], w.shape[0])
        self._in_groups(shape[1], w.shape, a.groups)
        return self.make("convolve_image", (y, w), a, shape, y.dtype)

    def part(self, d: int | Dim, groups: int) -> int | Dim:
        """The extent of one of n equal parts."""
        return d if groups == 1 else (d if self.scope is None else self.scope.normal(d)) // groups

    def _in_groups(self, channels: int | Dim, filters: g.Shape, groups: int) -> None:
        self.same(channels, filters[1] * groups)
        if groups > 1:
            self.same(filters[0], filters[0] // groups * groups)

    def gather(self, x: Node, indices: Sequence[Node], axes: Sequence[int]) -> Node:
        """x at int64 `indices` (one shape, non-negative) along `axes`: shape indices + the other axes."""
        rest = tuple(d for i, d in enumerate(x.shape) if i not in axes)
        return self.make("gather", (x, *indices), g.Axes(tuple(axes)), (*indices[0].shape, *rest), x.dtype)

    def scatter(self, x: Node, v: Node, indices: Sequence[Node], axes: Sequence[int], mode: str) -> Node:
        return self.make("scatter", (x, v, *indices), g.Scatter(tuple(axes), mode), x.shape, x.dtype)

    def position(self, indices: Sequence[Node], sizes: g.Shape) -> Node:
        """The row-major number of int64 `indices` (one shape) in an array of `sizes`; checked at run time."""
        return self.make("position", tuple(indices), g.Sizes(tuple(sizes)), indices[0].shape, dtypes.int64)

    def update(self, x: Node, v: Node, starts: g.Shape, steps: Sequence[int]) -> Node:
        """x with v put at x[start + i * step]."""
        if all(isinstance(s, int) and s == 0 for s in starts) and all(s == 1 for s in steps) and v.shape == x.shape:
            return v
        return self.make("update", (x, v), g.Slice(tuple(starts), tuple(steps)), x.shape, x.dtype)

    def opaque(
        self,
        fn: str,
        operands: Sequence[Node],
        statics: tuple[Any, ...],
        outputs: Sequence[tuple[g.Shape, np.dtype]],
    ) -> tuple[Node, ...]:
        """A library call `opaque.FUNCTIONS[fn](*arrays, *statics)` giving these outputs."""
        call = self.make("opaque", tuple(operands), g.Opaque(fn, statics, tuple(outputs)), (), dtypes.bool_)
        return tuple(self.make("item", (call,), g.Item(i), s, d) for i, (s, d) in enumerate(outputs))


def broadcast_shapes(b: Builder, name: str, *shapes: g.Shape) -> g.Shape:
    """The common shape under NumPy's rule, unified in the plan's scope; ShapeError names the operation."""
    rank = max(map(len, shapes), default=0)
    out: list[int | Dim] = [1] * rank
    for shape in shapes:
        for i, d in enumerate(shape, rank - len(shape)):
            o = out[i]
            if isinstance(o, int) and o == 1:
                out[i] = d
            elif guarded(d) == guarded(o):
                if not (isinstance(d, int) and d == 1):
                    out[i] = b.same(o, d)
            elif guarded(o) == 1:
                b.same(o, 1)
                out[i] = d
            elif guarded(d) == 1:
                b.same(d, 1)
            else:
                texts = " and ".join(g.shape_text(tuple(guarded(k) for k in s)) for s in shapes)
                raise ShapeError(f"{name}: shapes {texts} do not broadcast")
    return tuple(out)


def internal(cond: bool, why: str) -> None:
    """Our own invariants."""
    if not cond:
        raise LazytInternalError(why)
