"""A schedule and what is asked of it later, as bytes: the format in which plans are kept on disk.

    file    := marshal of (atoms, guards, table, roots)
    table   := entry*                 each before what refers to it
    entry   := (kind, field*)         kind: the place of a class in `_RECORDS`, or one of the kinds below
    field   := None | bool | int | float | complex | str | (number of an entry,)

Nothing but the classes listed here is made when it is read, and no code runs: whatever else a plan refers to (a user's
function, an array) makes it one that is not kept (`Unstorable`). Lines are not part of it: the origin of a node names
the step, and whoever reads the plan has the steps of a program of his own.
"""

from __future__ import annotations

import dataclasses
import marshal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lazyt.ir import dtypes, graph as g, kernel as k
from lazyt.ir.extent_source import HOLDS, evaluated
from lazyt.ir.graph import Graph, Node
from lazyt.ir.passes import schedule as s
from lazyt.ir.passes.fusion_result import Fused, Group, Root
from lazyt.ir.passes.index_maps import Place
from lazyt.ir.passes.kernelize import AccessArg, KernelCall, ScalarArg
from lazyt.ir.residuals import Residuals
from lazyt.ir.symbolic import Dim, Scope, atoms_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Guards = list[tuple[str, "int | Dim", "int | Dim"]]

_PLAIN = frozenset((type(None), bool, int, float, complex, str))
_RECORDS: tuple[type, ...] = (
    g.Input, g.Scalar, g.Constant, g.ExtentValue, g.Axis, g.Axes, g.Slice, g.Pad, g.Window, g.Convolution, g.Scatter,
    g.Sizes, g.Opaque, g.Item, g.Identity, k.Access, k.Affine, k.Load, k.Gather, k.Index, k.Scalar, k.Const, k.Op,
    k.Cast, k.Reduce, k.Check, k.Store, k.Stage, ScalarArg, AccessArg, KernelCall, s.MatmulCall, s.LibraryCall,
    s.AttentionCall, s.ScatterCall, s.Schedule, Graph, s.Donation, Residuals,
)  # fmt: skip
# Of residuals: what each process has of its own.
_OWN = ("key", "number")
_KIND_OF = {cls: i for i, cls in enumerate(_RECORDS)}
_FIELDS = {cls: tuple(f.name for f in dataclasses.fields(cls) if f.name not in _OWN) for cls in _RECORDS}
# Those of which equal ones are one.
_VALUES = frozenset(cls for cls in _RECORDS if "__eq__" in vars(cls) and cls.__hash__ is not None)
_TUPLE, _LIST, _SET, _FROZENSET, _DICT, _DTYPE, _NODE, _ORIGIN, _KERNEL, _GROUP, _DIM, _ATOM = range(
    len(_RECORDS), len(_RECORDS) + 12
)
_CONTAINERS: dict[type, int] = {tuple: _TUPLE, list: _LIST, set: _SET, frozenset: _FROZENSET}


class Unstorable(Exception):
    """Raised for a plan that refers to what has no place in the format."""


class Stored(NamedTuple):
    """What is kept of a plan."""

    schedule: s.Schedule
    division: Fused
    fused: bool
    guards: Guards
    residuals: Residuals | None = None


class _Writer:
    """The table of entries in the making; what is one object is one entry."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.table: list[tuple[Any, ...]] = []
        self._numbers: dict[int, int] = {}  # by id
        self._equal: dict[bytes, int] = {}  # entries of values, by what is in them
        self._held: list[Any] = []  # so that no id is another object's
        for key, hint in zip(scope.atoms, scope.hints, strict=True):
            self._add(_ATOM, hint, *map(self.field, key))

    def field(self, x: Any) -> Any:
        """A field that stands for x."""
        cls = x.__class__
        if cls in _PLAIN:
            return x
        found = self._numbers.get(id(x))
        if found is None:
            if cls is Node:
                self._nodes(x)
            else:
                self._number(x, self._entry(x, cls))
            found = self._numbers[id(x)]
        return (found,)

    def _fields(self, some: Iterable[Any]) -> list[Any]:
        """As `field`, of many: plans have some ten thousand."""
        numbers, found = self._numbers, []
        for x in some:
            if x.__class__ in _PLAIN:
                found.append(x)
            else:
                n = numbers.get(id(x))
                found.append(self.field(x) if n is None else (n,))
        return found

    def _entry(self, x: Any, cls: type) -> int:
        """The number of a new entry for x, or of that of an equal value."""
        if cls in _KIND_OF:
            fields = self._fields([getattr(x, name) for name in _FIELDS[cls]])
            return (self._value if cls in _VALUES else self._add)(_KIND_OF[cls], *fields)
        if cls is Dim:
            if x.scope is not self.scope:
                raise Unstorable("an extent of another program")
            return self._value(_DIM, x.terms)
        if cls is tuple:
            return self._value(_TUPLE, *self._fields(x))
        if cls in _CONTAINERS:
            if cls is not list and any(n.__class__ is not Node for n in x):
                raise Unstorable("a set of what has no order")
            items = x if cls is list else sorted(x, key=lambda n: n.serial)
            return self._add(_CONTAINERS[cls], *self._fields(items))
        if cls is dict:
            return self._add(_DICT, *(self.field(y) for pair in x.items() for y in pair))
        if cls is k.Kernel:
            fields = [self.field(getattr(x, f.name)) for f in dataclasses.fields(k.Kernel)]
            return self._add(_KERNEL, x.key, *fields)
        if cls is Group:
            return self._add(_GROUP, x.number, x.why, *(self.field(n) for r in x.roots for n in (r.node, r.target)))
        if cls is g.Origin:
            if x.draw is not None:
                raise Unstorable("a value that is kept in few bits")
            return self._value(_ORIGIN, x.name, x.backward, x.step, x.again, x.local, x.construct)
        if isinstance(x, np.dtype) and dtypes.is_known(x):
            return self._value(_DTYPE, x.name)
        raise Unstorable(f"{cls.__name__} has no place in the format")

    def _nodes(self, last: Node) -> None:
        """A node, behind those that it is made from: all that are not there yet (iterative: graphs may be deep)."""
        numbers = self._numbers
        next_one = all(id(x) in numbers for x in last.operands)  # as in the order of a graph
        for n in [last] if next_one else g.reachable([last], lambda n: id(n) not in numbers):
            if id(n) not in numbers:
                # NOTE: operands stand in the entry itself, as hardly two nodes have the same: a quarter fewer entries.
                fields = self._fields((n.attrs, n.shape, n.dtype, n.site, *n.operands))
                self._number(n, self._add(_NODE, n.op, n.serial, *fields))

    def _number(self, x: Any, number: int) -> None:
        self._numbers[id(x)] = number
        self._held.append(x)

    def _add(self, *entry: Any) -> int:
        self.table.append(entry)
        return len(self.table) - 1

    def _value(self, *entry: Any) -> int:
        """The entry of a value: equal ones are one. NOTE: marshal keeps 0.0 and -0.0, and 1 and True, apart."""
        key = marshal.dumps(entry, 2)
        found = self._equal.get(key)
        if found is None:
            found = self._equal[key] = self._add(*entry)
        return found


def dumps(plan: Stored, scope: Scope) -> bytes:
    """The plan as bytes; Unstorable for one that refers to anything but plain records."""
    writer = _Writer(scope)
    roots = [
        writer.field(x)
        for x in (
            plan.schedule.graph.nodes, plan.schedule, plan.division.stored, plan.division.why, plan.fused, plan.guards,
            plan.residuals,
        )
    ]  # fmt: skip
    return marshal.dumps((*_plain_guards(plan.guards), writer.table, roots))


def loads(data: bytes, sites: Sequence[Any], extents: Sequence[int]) -> Stored | None:
    """A plan of these bytes, for steps at these lines; None where its guards do not hold at these extents.


    NOTE: the bytes must be those of `dumps`: whoever reads them from a file has compared a checksum.
    """
    atoms, guards, table, roots = marshal.loads(data)
    if not _hold(atoms, guards, extents):
        return None
    made = _read(table, sites)
    _, schedule, stored, why, fused, guards, residuals = (made[x[0]] if x.__class__ is tuple else x for x in roots)
    return Stored(schedule, Fused([], stored, why), fused, guards, residuals)


def _read(table: list[tuple[Any, ...]], sites: Sequence[Any]) -> list[Any]:
    scope = Scope()
    made: list[Any] = []
    add = made.append
    for entry in table:
        kind = entry[0]
        if kind == _DIM:
            add(Dim(scope, entry[1]))
            continue
        fields = [made[x[0]] if x.__class__ is tuple else x for x in entry[1:]]
        if kind < len(_RECORDS):
            add(_RECORDS[kind](*fields))
        elif kind == _NODE:
            op, serial, attrs, shape, dtype, site, *operands = fields
            add(Node(op, tuple(operands), attrs, shape, dtype, serial, site))
        elif kind == _ORIGIN:
            name, backward, step, again, local, construct = fields
            site = sites[step] if 0 <= step < len(sites) else None
            add(g.Origin(name, site, backward, step, again, local, None, construct))
        elif kind == _ATOM:
            add(scope.restore(tuple(fields[1:]), fields[0]))
        else:
            add(_MAKE[kind](fields))
    return made


def _kernel(fields: list[Any]) -> k.Kernel:
    kernel = k.Kernel(*fields[1:])
    kernel.__dict__["key"] = fields[0]  # what is cached there: to find it takes the text of all
    return kernel


def _group(fields: list[Any]) -> Group:
    number, why, *nodes = fields
    roots = [Root(n, Place(()), target) for n, target in zip(nodes[::2], nodes[1::2], strict=True)]
    return Group(number, [], roots=roots, why=why)


_MAKE: dict[int, Callable[[list[Any]], Any]] = {
    _TUPLE: tuple,
    _LIST: list,
    _SET: set,
    _FROZENSET: frozenset,
    _DICT: lambda fields: dict(zip(fields[::2], fields[1::2], strict=True)),
    _DTYPE: lambda fields: dtypes.named(fields[0]),
    _KERNEL: _kernel,
    _GROUP: _group,
}

# --- guards, which are asked before anything is made ---------------------------------------------------------------


def _plain_guards(guards: Guards) -> tuple[list[Any], list[Any]]:
    """The atoms that guards are made of, as (kind, operand*), each after its own; and guards as (kind, a, b).

    An extent is an int, or terms of (coefficient, positions of atoms).
    """
    dims = [x for _, a, b in guards for x in (a, b) if isinstance(x, Dim)]
    numbers = atoms_of(dims)
    place = {n: i for i, n in enumerate(numbers)}

    def plain(a: Any) -> Any:
        if not isinstance(a, Dim):
            return a
        return tuple([(c, tuple([place[n] for n in mono])) for mono, c in a.terms])

    atoms = [tuple(map(plain, dims[0].scope.atoms[n])) for n in numbers]
    return atoms, [(kind, plain(a), plain(b)) for kind, a, b in guards]


def _hold(atoms: list[Any], guards: list[Any], extents: Sequence[int]) -> bool:
    values: list[int] = []

    def value(a: Any) -> int:
        if a.__class__ is int:
            return a
        total = 0
        for coefficient, places in a:
            for i in places:
                coefficient *= values[i]
            total += coefficient
        return total

    # NOTE: what an atom divides by may be 0 where an earlier guard does not hold.
    for kind, a, b in guards:
        last = max([i for x in (a, b) if x.__class__ is not int for _, places in x for i in places], default=-1)
        for atom, x, *y in atoms[len(values) : last + 1]:
            values.append(extents[x] if atom == "symbol" else evaluated(atom, value(x), *map(value, y)))
        if not HOLDS[kind](value(a), value(b)):
            return False
    return True
