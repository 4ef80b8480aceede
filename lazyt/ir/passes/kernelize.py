"""From a fused group to a kernel: values at places become kernel values, buffers become accesses.

Structure goes into the `Kernel`; sizes go into `KernelCall`, as expressions over the plan's symbols.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.errors import LazytInternalError
from lazyt.ir import dtypes, graph as g, kernel as k
from lazyt.ir.graph import Node
from lazyt.ir.passes.call_operands import buffer_of
from lazyt.ir.passes.complex_words import word
from lazyt.ir.passes.fusion_result import AccessArg, Group, KernelCall, Root, ScalarArg
from lazyt.ir.passes.index_maps import (
    AxisVar,
    Guard,
    Index,
    Place,
    Split,
    add,
    axis_index,
    count_of,
    digits,
    flat,
    strides_of,
    through,
)
from lazyt.ir.passes.renumber import numbered
from lazyt.ir.prims import MOVEMENT, SOURCES
from lazyt.ir.symbolic import Dim, Scope, hint

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    Extent = int | Dim

YES, NO = k.Const(True, dtypes.bool_), k.Const(False, dtypes.bool_)
# A map whose last axis has at most this many elements has its lanes along the one before; so that what these reach is
# still in a cache at the next of those elements, an axis of so many at least becomes no longer than that.
NARROW = 4
LANES, LONGEST = 32, 1024


def kernelize(
    group: Group, scope: Scope | None, stored: set[Node], title: str = "", products: Mapping[Node, int] | None = None,
    begins: Mapping[Node | Root, tuple[Extent, ...]] | None = None,
) -> KernelCall:  # fmt: skip
    """The kernel of a group; over the axes of the latest of `products` that it reads, if its own are parts of those.

    begins: where slices, and parts of targets, begin instead (symbols, so that the kernel does for any).
    """
    return _Kernelizer(group, scope, stored, begins or {}).run(title, products or {})


def matrix_shape(product: Node) -> g.Shape:
    """The shape of a product as matrices: of a convolution filters by places, one matrix an image."""
    if product.op in ("convolve", "convolve_image"):
        return (*product.shape[:2], count_of(product.shape[2:]))
    return product.shape


Key = tuple[Node, Place]


class _Kernelizer:
    def __init__(
        self, group: Group, scope: Scope | None, stored: set[Node], begins: Mapping[Node | Root, tuple[Extent, ...]]
    ) -> None:
        self.group = group
        self.begins = begins
        self.scope = scope
        self.stored = stored
        self.own = {r.node for r in group.roots if r.target is r.node} | set(group.reductions)
        self.values: list[k.Value] = []
        self.numbers: dict[object, int] = {}
        self.made: dict[Key, int] = {}
        self.stage: list[int] = []
        self.accesses: list[tuple[np.dtype, bool, Node, Index]] = []
        self.access_numbers: dict[tuple[object, ...], int] = {}
        # In order, with their positions.
        self.affines: dict[Index, int] = {}
        self.scalars: dict[ScalarArg, int] = {}
        self.reduce_values: dict[Node, int] = {}
        self.checks: list[Node] = []

    # Values

    def value(self, v: k.Value, stage: int) -> int:
        key = k.key_of(v)
        n = self.numbers.get(key)
        if n is None:
            n = self.numbers[key] = len(self.values)
            self.values.append(v)
            self.stage.append(stage)
        return n

    def op(self, name: str, operands: tuple[int, ...], dtype: np.dtype) -> int:
        """One operation; a select between True and False is its condition, one within another of the same is not there.

        (So comes out what canonicalize makes of an update.)
        """
        if name == "select":
            cond, x, y = operands
            if dtype == dtypes.bool_ and (self.values[x], self.values[y]) == (YES, NO):
                return cond
            inner = self.values[x]
            if isinstance(inner, k.Op) and inner.name == "select" and inner.operands[0] == cond:
                operands = (cond, inner.operands[1], y)
        return self.value(k.Op(name, operands, dtype), max(self.stage[o] for o in operands))

    def scalar(self, arg: ScalarArg, dtype: np.dtype) -> int:
        return self.value(k.Scalar(self.scalars.setdefault(arg, len(self.scalars)), dtype), 0)

    def extent(self, e: int | Dim) -> int:
        if isinstance(e, int):
            return self.value(k.Const(e, dtypes.int64), 0)
        return self.scalar(ScalarArg(extent=e), dtypes.int64)

    def index(self, x: Index) -> int:
        if not x.terms:
            return self.extent(x.offset)
        return self.value(k.Index(self.affines.setdefault(x, len(self.affines)), dtypes.int64), 0)

    def access(self, dtype: np.dtype, writes: bool, buffer: Node, address: Index) -> int:
        key = (dtype, writes, buffer, address)
        n = self.access_numbers.get(key)
        if n is None:
            n = self.access_numbers[key] = len(self.accesses)
            self.accesses.append(key)
        return n

    def guard(self, guards: tuple[Guard, ...]) -> int | None:
        """The condition that all guards hold."""
        out: int | None = None
        for q in guards:
            i = self.index(q.index)
            low = self.op("ge", (i, self.extent(q.lo)), dtypes.bool_)
            both = self.op("and", (low, self.op("lt", (i, self.extent(q.hi)), dtypes.bool_)), dtypes.bool_)
            out = both if out is None else self.op("and", (out, both), dtypes.bool_)
        return out

    def load(self, n: Node, address: Index, guards: tuple[Guard, ...]) -> int:
        where = self.guard(guards)
        at = self.access(word(n.dtype), False, buffer_of(n), self.in_words(n, address))
        return self.value(k.Load(at, word(n.dtype), where), 0 if where is None else self.stage[where])

    def in_words(self, n: Node, address: Index) -> Index:
        """An address of n's elements as one of what a kernel moves of them: every other word of a complex128."""
        if n.dtype != dtypes.complex128:
            return address
        assert self.group.pair is not None, "a complex128 is moved by both of its words"
        (half,) = self.group.normal(Place((axis_index(self.group.pair),))).indices
        return add(address.times(2), half)

    # Nodes at places

    def needs(self, n: Node, p: Place) -> list[Key]:
        """The nodes that must be made before n at p; empty when it is loaded or a source."""
        if self.loaded(n) or n in self.group.reductions or n.op in ("constant", "scalar", "extent", "iota"):
            return []
        if self.is_part(n):
            return []
        if n.op == "gather":
            kk = n.operands[1].ndim
            return [(i, Place(p.indices[:kk], p.guards)) for i in n.operands[1:]]
        if n.op in MOVEMENT:
            x = n.operands[0]
            if n.op == "reshape" and self.loaded(x):
                return []
            q = self.through(n, p)
            if not isinstance(q, Place):
                if self.loaded(x):
                    return []
                raise LazytInternalError(f"no affine map through {n}")
            return [(x, q), (n.operands[1], Place((), p.guards))] if n.op == "pad" else [(x, q)]
        return [(x, p) for x in n.operands]

    def loaded(self, n: Node) -> bool:
        """Whether n is read from a buffer that another unit wrote."""
        if n in self.own:
            return False
        b = buffer_of(n)
        return b.op == "input" or (b in self.stored and b not in self.own)

    def is_part(self, n: Node) -> bool:
        """Whether n is read as a part of a complex number, though the same kernel may move that number as a word."""
        return n.op in ("real", "imag") and (self.loaded(n.operands[0]) or n.operands[0].op == "scalar")

    def make(self, n: Node, p: Place) -> int:
        """Makes n at p and everything it needs, in recorded order.

        A chain's results are then used soon after they are made: an order by depth would keep them all in registers.
        """
        root: Key = (n, p)
        if root in self.made:
            return self.made[root]
        found: dict[Key, int] = {root: 0}
        todo = [root]
        while todo:
            for x in self.needs(*todo.pop()):
                if x not in self.made and x not in found:
                    found[x] = len(found)
                    todo.append(x)
        # NOTE: operands have lower serials than what is made of them.
        for key in sorted(found, key=lambda key: (key[0].serial, found[key])):
            self.made[key] = self.emit(*key)
        return self.made[root]

    def emit(self, n: Node, p: Place) -> int:
        if n in self.group.reductions:
            return self.reduce_values[n]
        if self.loaded(n):
            return self.load(n, flat(p, n.shape), p.guards)
        match n.op:
            case "constant":
                assert isinstance(n.attrs, g.Constant)
                # NOTE: of complex numbers nothing but zero is moved as a word.
                value = n.attrs.value if dtypes.kind(n.dtype) != "c" else 0
                return self.value(k.Const(value, word(n.dtype)), 0)  # type: ignore[arg-type]
            case "scalar":
                assert isinstance(n.attrs, g.Scalar)
                return self.scalar(ScalarArg(n.attrs.position, "", dtypes.kind(n.dtype) == "f"), n.dtype)
            case "extent":
                assert isinstance(n.attrs, g.ExtentValue)
                if n.attrs.argument:
                    (number,) = self.begins.get(n, (n.attrs.extent,))
                    return self.scalar(ScalarArg(extent=number, part="argument"), n.dtype)
                e = self.extent(n.attrs.extent)
                return e if n.dtype == dtypes.int64 else self.value(k.Cast(e, n.dtype), 0)
            case "iota":
                assert isinstance(n.attrs, g.Axis)
                return self.index(p.indices[n.attrs.axis])
            case "cast":
                x = self.made[n.operands[0], p]
                return self.value(k.Cast(x, n.dtype), self.stage[x])
            case "gather":
                return self.gather(n, p)
            case "position":
                return self.position(n, p)
            case "real" | "imag" if self.is_part(n):
                return self.part(n, p)
        if n.op in MOVEMENT:
            return self.movement(n, p)
        return self.op(n.op, tuple(self.made[x, p] for x in n.operands), n.dtype)

    def through(self, n: Node, p: Place) -> Place | Split | None:
        starts = self.begins.get(n)
        if starts is None:
            return through(self.scope, n, p)
        assert isinstance(n.attrs, g.Slice)
        return Place(
            tuple([i.times(s).plus(o) for i, s, o in zip(p.indices, n.attrs.steps, starts, strict=True)]), p.guards
        )

    def movement(self, n: Node, p: Place) -> int:
        x = n.operands[0]
        q = self.through(n, p)
        if not isinstance(q, Place) or (n.op == "reshape" and self.loaded(x)):
            # A stored value is contiguous: its element number is the reshaped one's.
            return self.load(x, flat(p, n.shape), p.guards)
        inner = self.made[x, q]
        if n.op != "pad":
            return inner
        cond = self.guard(q.guards[len(p.guards) :])
        if cond is None:
            return inner
        fill = self.made[n.operands[1], Place((), p.guards)]
        return self.op("select", (cond, inner, fill), word(n.dtype))

    def part(self, n: Node, p: Place) -> int:
        """The real or imaginary part of a complex scalar, or of a complex value in memory."""
        x = n.operands[0]
        if x.op == "scalar":
            assert isinstance(x.attrs, g.Scalar)
            return self.scalar(ScalarArg(x.attrs.position, n.op, True), n.dtype)
        address = flat(p, x.shape).times(2).plus(1 if n.op == "imag" else 0)
        where = self.guard(p.guards)
        at = self.access(n.dtype, False, buffer_of(x), address)
        return self.value(k.Load(at, n.dtype, where), 0 if where is None else self.stage[where])

    def gather(self, n: Node, p: Place) -> int:
        assert isinstance(n.attrs, g.Axes)
        x, *indices = n.operands
        kk = indices[0].ndim
        strides = strides_of(x.shape)
        where = self.guard(p.guards)
        rest = iter(p.indices[kk:])
        address = add(*(next(rest).times(strides[a]) for a in range(x.ndim) if a not in n.attrs.axes))
        self.checks.append(n)
        # NOTE: the part keeps a code apart from a stride of the same value: each plan numbers its own codes.
        code = ScalarArg(extent=len(self.checks), part="code")
        self.scalars[code] = len(self.scalars)
        terms, stage = [], 0
        for i, a in zip(indices, n.attrs.axes, strict=True):
            v = self.made[i, Place(p.indices[:kk], p.guards)]
            bound = self.extent(x.shape[a])
            check = k.Check(v, bound, self.scalars[code], dtypes.int64, where)
            c = self.value(check, max(self.stage[v], 0 if where is None else self.stage[where]))
            stride = ScalarArg(extent=strides[a] * (2 if x.dtype == dtypes.complex128 else 1))
            terms.append((c, self.scalars.setdefault(stride, len(self.scalars))))
            stage = max(stage, self.stage[c])
            if x.op == "iota":  # its value at a checked index is the index
                return c
        at = self.access(word(x.dtype), False, buffer_of(x), self.in_words(x, address))
        return self.value(k.Gather(at, tuple(terms), word(x.dtype), where), stage)

    def position(self, n: Node, p: Place) -> int:
        """Indices, each checked, as one number."""
        assert isinstance(n.attrs, g.Sizes)
        where = self.guard(p.guards)
        self.checks.append(n)
        code = ScalarArg(extent=len(self.checks), part="code")
        self.scalars[code] = len(self.scalars)
        total: int | None = None
        for i, size in zip(n.operands, n.attrs.sizes, strict=True):
            v, bound = self.made[i, p], self.extent(size)
            check = k.Check(v, bound, self.scalars[code], dtypes.int64, where)
            c = self.value(check, max(self.stage[v], 0 if where is None else self.stage[where]))
            total = c if total is None else self.op("add", (self.op("mul", (total, bound), dtypes.int64), c), n.dtype)
        assert total is not None
        return total

    # The kernel

    def run(self, title: str, products: Mapping[Node, int]) -> KernelCall:
        group = self.group
        if not group.outer and not group.rows:
            group.outer = [AxisVar(1)]
        for r in sorted(group.reductions, key=lambda n: n.serial):
            v = self.make(r.operands[0], group.normal(group.reductions[r]))
            self.reduce_values[r] = self.value(k.Reduce(r.op, v, r.dtype), self.stage[v] + 1)
        stores: list[tuple[int, int, bool]] = []  # access, value, over rows
        for root in sorted(group.roots, key=lambda r: (r.node.serial, r.target.serial)):
            stores.extend(self.store(root))
        rows, outer = list(group.rows), list(group.outer)
        indices = [a[3] for a in self.accesses] + list(self.affines)
        product, merged = self.over_product(products, indices, outer)
        if merged is None:
            indices, outer = _collapse(self.scope, indices, outer, 0 if rows else LONGEST)
        else:
            indices, outer = merged
        if not rows and product is None and _narrow(outer):
            # The lanes go along an axis that has work for them; elements of a map may be computed in any order.
            outer[-2:] = reversed(outer[-2:])
        order = [*outer, *rows]
        n_access = len(self.accesses)
        coefs = [_coefs(x, order) for x in indices]
        kernel = k.Kernel(
            len(outer), len(rows), group.vector if rows else "outer",  # type: ignore[arg-type]
            tuple(
                k.Access(d, _classes(c), w)
                for (d, w, _, _), c in zip(self.accesses, coefs[:n_access], strict=True)
            ),
            tuple(k.Affine(_classes(c)) for c in coefs[n_access:]),
            len(self.scalars), tuple(self.values), self.stages(stores), title,
        )  # fmt: skip
        accesses = [
            AccessArg(b, x.offset, c, d.itemsize)
            for (d, _, b, _), x, c in zip(self.accesses, indices[:n_access], coefs[:n_access], strict=True)
        ]
        affines = [(c, x.offset) for x, c in zip(indices[n_access:], coefs[n_access:], strict=True)]
        scalars = list(self.scalars)
        found = numbered(kernel)
        return KernelCall(
            found.kernel,
            tuple(a.extent for a in order),
            [accesses[i] for i in found.accesses],
            [affines[i] for i in found.affines],
            [scalars[i] for i in found.scalars],
            group,
            self.checks,
            nodes=self.computed(),
            product=product,
        )

    def over_product(
        self, products: Mapping[Node, int], indices: list[Index], outer: list[AxisVar]
    ) -> tuple[Node | None, tuple[list[Index], list[AxisVar]] | None]:
        """The latest product over whose axes a map can be, and what indices and axes are then; None where none is."""
        if not products or self.group.rows:
            return None, None
        reads = {b for _, w, b, _ in self.accesses if not w and b in products}
        reads -= {b for _, w, b, _ in self.accesses if w}
        for product in sorted(reads, key=products.__getitem__, reverse=True):
            along = self.along(product)
            merged = None if along is None else _collapse_along(self.scope, indices, outer, along)
            if merged is not None:
                return product, merged
        return None, None

    def along(self, product: Node) -> list[list[AxisVar]] | None:
        """The outer axes of a map that make up each dimension of a product, if it reads every element at one place."""
        reads = [(d, x) for d, w, b, x in self.accesses if b is product and not w]
        if self.group.rows or len(reads) != 1 or reads[0][0] != product.dtype or self.checks:
            return None
        shape = matrix_shape(product)
        if isinstance(shape[-1], int) and shape[-1] == 1:
            # NOTE: rows of one element would be next to each other in this kernel's code; those of a block are not.
            return None
        found = digits(self.scope, reads[0][1], shape)
        if found is None:
            return None
        parts = [[a for a, _ in x.terms] for x in found]
        axes = [a for part in parts for a in part]
        if len(set(axes)) != len(axes) or set(axes) != {a for a in self.group.outer if not _static_one(a)}:
            return None
        whole = all(part or (isinstance(d, int) and d == 1) for part, d in zip(parts, shape, strict=True))
        return parts if whole else None

    def computed(self) -> tuple[Node, ...]:
        """The nodes whose values this kernel computes."""
        made = {n for n, _ in self.made if n.op not in SOURCES and (n in self.own or not self.loaded(n))}
        return tuple(sorted(made | set(self.group.reductions), key=lambda n: n.serial))

    def store(self, root: Root) -> list[tuple[int, int, bool]]:
        """The stores of one root: one, or two for the parts of a complex value."""
        group = self.group
        n, place = root.node, group.normal(root.place)
        target = root.target
        at = place
        if root.at is not None:
            moved = group.normal(root.at)
            if root in self.begins:
                both = zip(moved.indices, self.begins[root], strict=True)
                moved = Place(tuple([Index(x.terms, start) for x, start in both]), moved.guards)
            moves = any(x.terms for x in moved.indices)
            at = moved if moves else Place(tuple(add(x, o) for x, o in zip(place.indices, moved.indices, strict=True)))
        address = flat(at, target.shape)
        over_rows = bool(group.rows) and any(a in group.rows for x in address.terms for a in x[:1])
        if group.rows and not over_rows and n not in group.reductions and all(_static_one(a) for a in group.rows):
            over_rows = False
        if n.op == "complex" and not self.loaded(n):
            out = []
            for i, x in enumerate(n.operands):
                v = self.make(x, place)
                out.append((self.access(x.dtype, True, target, address.times(2).plus(i)), v, over_rows))
            return out
        v = self.make(n, place)
        return [(self.access(word(n.dtype), True, target, self.in_words(n, address)), v, over_rows)]

    def stages(self, stores: list[tuple[int, int, bool]]) -> tuple[k.Stage, ...]:
        if not self.group.rows:
            return (k.Stage(False, (), tuple(k.Store(a, v) for a, v, _ in stores)),)
        out: list[k.Stage] = []
        last = max(self.stage)
        for s in range(last + 1):
            once = tuple(k.Store(a, v) for a, v, over in stores if not over and self.stage[v] == s)
            if once:
                out.append(k.Stage(False, (), once))
            reduces = tuple(i for i, v in enumerate(self.values) if isinstance(v, k.Reduce) and self.stage[i] == s + 1)
            loop = tuple(k.Store(a, v) for a, v, over in stores if over and self.stage[v] == s)
            if reduces or loop:
                out.append(k.Stage(True, reduces, loop))
        return tuple(out)


def _static_one(a: AxisVar) -> bool:
    return isinstance(a.extent, int) and a.extent == 1


def _narrow(axes: list[AxisVar]) -> bool:
    """Whether the last axis always has few elements, and the one before has more."""
    if len(axes) < 2:
        return False
    last = axes[-1].extent
    return isinstance(last, int) and last <= NARROW and hint(axes[-2].extent) > last


def _is_long(a: AxisVar, b: AxisVar, longest: int) -> bool:
    """Whether lanes along b are enough, and b with a is too long for them."""
    return hint(b.extent) >= LANES and hint(a.extent) * hint(b.extent) > longest


def _coefs(x: Index, axes: list[AxisVar]) -> tuple[int | Dim, ...]:
    found = dict(x.terms)
    return tuple(found.get(a, 0) for a in axes)


def _classes(coefs: tuple[int | Dim, ...]) -> str:
    return "".join({0: "0", 1: "1", -1: "-"}.get(c, "n") if isinstance(c, int) else "n" for c in coefs)


def _collapse(
    scope: Scope | None, indices: list[Index], outer: list[AxisVar], longest: int = 0
) -> tuple[list[Index], list[AxisVar]]:
    """Merge neighbouring outer axes that every index treats as one, and drop axes of extent 1.

    longest: what the axis before a narrow one is merged up to, if that is bounded.
    """
    axes = [a for a in outer if not _static_one(a)]
    dropped = [a for a in outer if _static_one(a)]
    indices = [Index(tuple(t for t in x.terms if t[0] not in dropped), x.offset) for x in indices]
    i = len(axes) - 2
    while i >= 0:
        a, b = axes[i], axes[i + 1]
        if longest and i + 3 == len(axes) and _narrow(axes) and _is_long(a, b, longest):
            i -= 1
            continue
        if all(_walks_as_one(scope, dict(x.terms), a, b) for x in indices):
            merged = AxisVar(a.extent * b.extent)
            new = []
            for x in indices:
                inner = dict(x.terms).get(b, 0)
                rest = Index(tuple(t for t in x.terms if t[0] not in (a, b)), x.offset)
                new.append(add(rest, axis_index(merged).times(inner)))
            indices = new
            axes[i : i + 2] = [merged]
        i -= 1
    return indices, axes or [AxisVar(1)]


def _collapse_along(
    scope: Scope | None, indices: list[Index], outer: list[AxisVar], parts: list[list[AxisVar]]
) -> tuple[list[Index], list[AxisVar]] | None:
    """The same with one axis left of each part; None where an index needs more, or the parts are not in order."""
    order = [a for a in outer if not _static_one(a)]
    axes: list[AxisVar] = []
    for part in parts:
        own, order = order[: len(part)], order[len(part) :]
        if set(own) != set(part):
            return None
        if not own:
            axes.append(AxisVar(1))
            continue
        indices, left = _collapse(scope, indices, own)
        if len(left) != 1:
            return None
        axes += left
    return [Index(tuple(t for t in x.terms if t[0] in axes), x.offset) for x in indices], axes


def _walks_as_one(scope: Scope | None, terms: dict[AxisVar, int | Dim], a: AxisVar, b: AxisVar) -> bool:
    outer, inner = terms.get(a, 0), terms.get(b, 0)
    want = inner * b.extent
    return outer == want or (scope is not None and scope.known_equal(outer, want))


__all__ = ["AccessArg", "KernelCall", "ScalarArg", "kernelize"]
