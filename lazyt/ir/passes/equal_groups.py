"""Makes the kernel of equal groups once: the iterations of a loop, the layers of a model, the updates of an optimizer.

    h1 = tanh(a @ w + x[1]); h2 = tanh(b @ w + x[2])    -->    one kernel; two calls of other buffers and offsets

Groups are equal if their nodes are the same operations in the same order, and differ only in which buffers and scalars
they read, in the names of their extents, in numbers that are arguments, and in where a slice or a part of a buffer
begins. A kernel says nothing about these: without this pass such groups get equal kernels too (see renumber.py), at a
hundred times the cost.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyt.errors import LazytInternalError
from lazyt.ir import graph as g
from lazyt.ir.passes.call_operands import buffer_of
from lazyt.ir.passes.fusion_result import AccessArg, KernelCall, ScalarArg
from lazyt.ir.passes.index_maps import Place, axis_index
from lazyt.ir.passes.kernelize import kernelize
from lazyt.ir.passes.stage_reuse import reuse_in_stages
from lazyt.ir.prims import MOVEMENT, SOURCES
from lazyt.ir.symbolic import Dim, atoms_in

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from lazyt.ir.graph import Node
    from lazyt.ir.passes.fusion_result import Group, Root
    from lazyt.ir.passes.index_maps import AxisVar, Index
    from lazyt.ir.symbolic import Scope

    Extent = int | Dim


class Kernels:
    """The kernels of one plan's groups, each made once for all groups that are equal."""

    def __init__(self, scope: Scope | None, reuse: bool, groups: Iterable[Group] | None = None) -> None:
        """reuse: whether stages read back what earlier ones knew; groups: all that kernels are asked of."""
        self.scope = scope
        # NOTE: it costs a quarter of a kernel to find an equal group, so only those are compared that may have one.
        self._counts = None if groups is None else Counter(map(_kind, groups))
        self.reuse = reuse
        self.equalities = _equalities(scope)
        self._known: dict[Hashable, _Model | None] = {}

    def of(self, group: Group, stored: set[Node], products: Mapping[Node, int] | None = None) -> KernelCall:
        """The kernel of a group; for `products` see `kernelize`."""
        if self._counts is not None and self._counts[_kind(group)] == 1:
            return self._exact(group, stored, products)
        form = _Form(group, self.scope, self.equalities)
        key = form.key(stored, products or {})
        if key not in self._known:
            self._known[key] = self._model(form, stored, products)
        model = self._known[key]
        found = None if model is None else model.call(form)
        return self._exact(group, stored, products) if found is None else found

    def _exact(
        self, group: Group, stored: set[Node], products: Mapping[Node, int] | None, begins: Any = None
    ) -> KernelCall:
        call = kernelize(group, self.scope, stored, group.title, products, begins)
        return reuse_in_stages(call) if self.reuse else call

    def _model(self, form: _Form, stored: set[Node], products: Mapping[Node, int] | None) -> _Model | None:
        """The kernel of all groups of a form, wherever their slices begin; None where it depends on that."""
        try:
            call = self._exact(form.group, stored, products, form.variables())
        except LazytInternalError:
            return None
        model = _Model(call, form)
        return model if model.is_whole() else None


def _kind(group: Group) -> Hashable:
    """What is the same for equal groups, and costs nothing to find."""
    sizes = len(group.outer), len(group.rows), len(group.reductions), group.size
    return group.vector, sizes, tuple([r.node.op for r in group.roots])


class _Equality(NamedTuple):
    """What is known of an extent that is no atom."""

    atoms: frozenset[int]
    a: Dim
    b: int | Dim


def _equalities(scope: Scope | None) -> dict[int, list[_Equality]]:
    """By the atoms of the first side."""
    found: dict[int, list[_Equality]] = {}
    for a, b in () if scope is None else scope.alike():
        e = _Equality(frozenset(atoms_in(a)), a, b)
        for n in e.atoms:
            found.setdefault(n, []).append(e)
    return found


class _Form:
    """A group with its nodes, buffers, scalars and extents numbered: the numbers are its form, what they are is not."""

    def __init__(self, group: Group, scope: Scope | None, equalities: Mapping[int, Sequence[_Equality]]) -> None:
        self.group = group
        self.scope = scope
        self.equalities = equalities
        self.nodes: list[Node] = []
        self.number: dict[Node, int] = {}
        self.buffers: dict[Node, int] = {}
        self.scalars: dict[int, int] = {}  # position -> number
        self.atoms: dict[int, int] = {}  # atom of an extent -> number
        self.values: dict[Extent, int] = {}  # where slices and parts begin, and arguments -> number
        self.begins: list[tuple[Node | Root, Sequence[Extent]]] = []
        self.arguments: set[Node | Root] = set()
        self._axes: dict[AxisVar, int] = {}
        self._extents: dict[Dim, Hashable] = {}
        self._shapes: dict[g.Shape, Hashable] = {}

    def key(self, stored: set[Node], products: Mapping[Node, int]) -> Hashable:
        """What is the same for equal groups."""
        group = self.group
        self._axes = {a: i for i, a in enumerate([*group.outer, *group.rows])}
        roots = sorted(group.roots, key=lambda r: (r.node.serial, r.target.serial))
        reductions = sorted(group.reductions.items(), key=lambda item: item[0].serial)
        own = {r.node for r in roots if r.target is r.node}
        read = self._read([r.node for r in roots] + [n.operands[0] for n, _ in reductions], own, stored)
        nodes = tuple([self._node(n, known, n in own) for n, known in read.items()])
        # NOTE: operations are made in recorded order, and what only reads or moves when it is needed: see renumber.py.
        made = [n for n, known in read.items() if not known and n.op not in MOVEMENT and n.op not in SOURCES]
        recorded = tuple([self.number[n] for n in sorted(made, key=lambda n: n.serial)])
        stores = tuple([self._root(r) for r in roots])
        reduced = tuple([
            (n.op, n.dtype, n in own, self.number.get(n), self.number[n.operands[0]], self._place(p))
            for n, p in reductions
        ])  # fmt: skip
        pair = None if group.pair is None else self._place(Place((axis_index(group.pair),)))
        factors = tuple([
            (self.buffers[b], b.op in ("convolve", "convolve_image"), self._shape(b.shape), b.dtype)
            for b in sorted([b for b in self.buffers if b in products], key=products.__getitem__)
        ])  # fmt: skip
        axes = tuple([self._extent(a.extent) for a in self._axes])
        order = tuple(sorted(range(len(axes)), key=[a.id for a in self._axes].__getitem__))
        shared = tuple([self.number.get(b) for b in self.buffers])
        rest = (group.vector, len(group.outer), len(group.rows), axes, order, pair, factors, shared)
        return nodes, recorded, stores, reduced, rest, self._known_of_atoms()

    def _read(self, roots: list[Node], own: set[Node], stored: set[Node]) -> dict[Node, bool]:
        """Every node that roots need, after its operands: whether it is read from a buffer that another unit wrote."""
        reductions = self.group.reductions
        read: dict[Node, bool] = {}
        number = self.number
        todo = roots[::-1]
        while todo:
            n = todo[-1]
            if n in number:
                todo.pop()
                continue
            known = read.get(n)
            if known is None:
                # NOTE: those that are begun are known, too: operands come before what is made of them.
                if n in own or n in reductions:
                    known = False
                else:
                    b = buffer_of(n)
                    known = b.op == "input" or (b in stored and b not in own and b not in reductions)
                read[n] = known
            missing = [] if known or n in reductions else [x for x in n.operands if x not in number]
            if missing:
                todo += reversed(missing)
            else:
                number[todo.pop()] = len(self.nodes)
                self.nodes.append(n)
        return {n: read[n] for n in self.nodes}

    def _node(self, n: Node, read: bool, own: bool) -> Hashable:
        shape = self._shape(n.shape)
        if read:
            return n.op == "iota", self._buffer(buffer_of(n)), shape, n.dtype
        if n in self.group.reductions:
            return n.op, own, shape, n.dtype
        attrs: Any = n.attrs
        match attrs:
            case g.Scalar():
                attrs = self.scalars.setdefault(attrs.position, len(self.scalars))
            case g.Slice():
                attrs = self._begin(n, attrs.starts), attrs.steps
            case g.Pad():
                attrs = self._shape(attrs.lo)
            case g.ExtentValue(argument=True) if self.scope is not None:
                attrs = "at", self.values.setdefault(attrs.extent, len(self.values))
                self.begins.append((n, (n.attrs.extent,)))  # type: ignore[union-attr]
                self.arguments.add(n)
            case g.ExtentValue():
                attrs = self._extent(attrs.extent), attrs.argument
            case g.Sizes():
                attrs = self._shape(attrs.sizes)
        number = self.number
        return n.op, attrs, tuple([number[x] for x in n.operands]), shape, n.dtype, own

    def _root(self, r: Root) -> Hashable:
        at: Hashable = None
        if r.at is not None:
            moved = self.group.normal(r.at)
            terms = tuple([self._terms(x) for x in moved.indices])
            at = terms, self._begin(r, [x.offset for x in moved.indices]), self._guards(moved)
        target = self._buffer(r.target), self._shape(r.target.shape), r.target.dtype
        return self.number[r.node], target, self._place(r.place), at

    def _begin(self, what: Node | Root, starts: Sequence[Extent]) -> Hashable:
        """Where a slice or a part begins: numbers, but for 0, by which kernels differ."""
        found: list[Hashable] = []
        varies = False
        for x in starts:
            if not (isinstance(x, int) and x == 0) and self.scope is not None:
                found.append(("at", self.values.setdefault(x, len(self.values))))
                varies = True
            else:
                found.append(self._extent(x))
        if varies:
            self.begins.append((what, starts))
        return tuple(found)

    def variables(self) -> dict[Node | Root, tuple[Extent, ...]]:
        """Symbols in place of where the slices and parts begin, and of arguments."""
        scope = self.scope
        if scope is None:
            return {}
        symbols = {x: scope.variable(i) for x, i in self.values.items()}

        def varied(what: Node | Root, x: Extent) -> Extent:
            # NOTE: an argument may be 0, where a slice begins at 0 in all equal groups.
            fixed = isinstance(x, int) and x == 0 and what not in self.arguments
            return x if fixed else symbols.get(x, x)

        return {what: tuple([varied(what, x) for x in starts]) for what, starts in self.begins}

    def _buffer(self, n: Node) -> int:
        return self.buffers.setdefault(n, len(self.buffers))

    def _shape(self, shape: g.Shape) -> Hashable:
        found = self._shapes.get(shape)
        if found is None:
            found = self._shapes[shape] = tuple([self._extent(d) for d in shape])
        return found

    def _extent(self, a: Extent) -> Hashable:
        if isinstance(a, int):
            return a
        found = self._extents.get(a)
        if found is None:
            numbers = self.atoms
            terms = [(tuple(sorted([numbers.setdefault(n, len(numbers)) for n in mono])), c) for mono, c in a.terms]
            found = self._extents[a] = tuple(sorted(terms))
        return found

    def _known_of_atoms(self) -> Hashable:
        """Sizes of the extents' atoms, numbered by first use, and the facts that the plan relies on.

        NOTE: what an atom is made of counts where that is in extents too. Extents nest as deep as a program is long.
        """
        scope, atoms = self.scope, self.atoms
        if scope is None:
            return ()
        found: list[Hashable] = []
        used: set[int] = set()
        done = 0
        while done < len(atoms):
            for n in list(atoms)[done:]:
                done += 1
                normal = self._extent(scope.normal(scope.atom(n)))
                found.append((scope.atoms[n][0], scope.moving[n], scope.hints[n], normal))
            for n in list(atoms):
                for e in self.equalities.get(n, ()):
                    if id(e) not in used and e.atoms <= atoms.keys():
                        used.add(id(e))
                        found.append(("equal", self._extent(e.a), self._extent(e.b)))
        for n in list(atoms):
            of = scope.operands(n)
            if of and atoms_in(*of) <= atoms.keys():
                found.append(("made", atoms[n], *map(self._extent, of)))
        return tuple(found)

    def _place(self, p: Place) -> Hashable:
        p = self.group.normal(p)
        return tuple([(self._terms(x), self._extent(x.offset)) for x in p.indices]), self._guards(p)

    def _guards(self, p: Place) -> Hashable:
        return tuple([
            (self._terms(q.index), self._extent(q.index.offset), self._extent(q.lo), self._extent(q.hi))
            for q in p.guards
        ])  # fmt: skip

    def _terms(self, x: Index) -> Hashable:
        axes = self._axes
        return tuple([(axes.setdefault(a, len(axes)), self._extent(c)) for a, c in x.terms])


class _Model:
    """A kernel call by the numbers of its form."""

    def __init__(self, call: KernelCall, form: _Form) -> None:
        self.made = call
        self.atoms = list(form.atoms)
        scope = form.scope
        found = [] if scope is None else [scope.variable(i) for i in form.values.values()]
        self.variables = [n for x in found for mono, _ in x.terms for n in mono]
        self.varying = self._varying(call)
        self.buffers = [form.buffers[a.buffer] for a in call.accesses]
        self.scalars = [form.scalars.get(s.position, -1) for s in call.scalars]
        self.checks = [form.number[n] for n in call.checks]
        self.nodes = [form.number.get(n, -1) for n in call.nodes]
        self.product = None if call.product is None else form.buffers[call.product]
        self.places = _places(call)

    def _varying(self, call: KernelCall) -> set[Extent]:
        """The extents that are others where slices begin elsewhere."""
        some = [a.offset for a in call.accesses] + [o for _, o in call.affines] + [s.extent for s in call.scalars]
        variables = set(self.variables)
        return {a for a in some if isinstance(a, Dim) and not variables.isdisjoint([n for m, _ in a.terms for n in m])}

    def is_whole(self) -> bool:
        """Whether all atoms of its extents have another in an equal group."""
        call = self.made
        some = [*call.extents, *[x for a in call.accesses for x in (a.offset, *a.strides)]]
        some += [x for c, o in call.affines for x in (*c, o)] + [s.extent for s in call.scalars if s.extent is not None]
        return atoms_in(*some) <= {*self.atoms, *self.variables}

    def call(self, form: _Form) -> KernelCall | None:
        """That of an equal group. None where places fall together there, or are known: its kernel is another."""
        made = self.made
        atoms = {a: b for a, b in zip(self.atoms, form.atoms, strict=True) if a != b}
        values = dict(zip(self.variables, form.values, strict=True))
        known: dict[Dim, Extent] = {}

        def here(a: Extent) -> Extent:
            if isinstance(a, int):
                return a
            found = known.get(a)
            if found is None:
                found = known[a] = a.where(atoms, values) if atoms or a in self.varying else a
            return found

        def all_here(some: tuple[Extent, ...]) -> tuple[Extent, ...]:
            return tuple([here(a) for a in some])

        buffers, positions, nodes = list(form.buffers), list(form.scalars), form.nodes
        accesses = [
            AccessArg(buffers[i], here(old.offset), all_here(old.strides), old.itemsize)
            for i, old in zip(self.buffers, made.accesses, strict=True)
        ]
        scalars = [
            ScalarArg(
                old.position if i < 0 else positions[i], old.part, old.floating,
                None if old.extent is None else here(old.extent),
            )
            for i, old in zip(self.scalars, made.scalars, strict=True)
        ]  # fmt: skip
        found = KernelCall(
            made.kernel, all_here(made.extents), accesses, [(all_here(c), here(o)) for c, o in made.affines], scalars,
            form.group, [nodes[i] for i in self.checks],
            nodes=tuple(sorted([nodes[i] for i in self.nodes], key=lambda n: n.serial)),
            product=None if self.product is None else buffers[self.product], strategies=made.strategies,
        )  # fmt: skip
        return found if not values or _places(found) == self.places else None


def _places(call: KernelCall) -> tuple[int, ...]:
    """How many different places and extents the arguments of a kernel are: equal ones are one argument."""
    both = zip(call.accesses, call.kernel.accesses, strict=True)
    extents = {s.extent for s in call.scalars if isinstance(s.extent, Dim) or s.part == "argument"}
    return len({(a.buffer, x.writes, a.strides, a.offset) for a, x in both}), len(set(call.affines)), len(extents)
