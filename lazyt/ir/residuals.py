"""A backward that another program runs: from the residuals that a forward program stored for it.

A program that is to be differentiated behind a sync has gradients among its outputs, for cotangents that are inputs:

    outputs: values.., gradients of cotangents    -->    outputs: values.., residuals..
                                                         Residuals: residuals.., cotangents -> gradients

Residuals are what the backward reads of the forward pass. What costs nothing to make again of smaller values (movement,
sources) and what only the backward computes belongs to the latter. Extents and scalars are arguments of it, so that it
can be written into any later program (`pulled_back`).
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import field
from typing import TYPE_CHECKING, Any

from lazyt.ir import graph as g
from lazyt.ir.extents import made_of
from lazyt.ir.prims import MOVEMENT, SOURCES
from lazyt.ir.records import dataclass
from lazyt.ir.symbolic import Dim, atoms_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    import numpy as np

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Graph, Node
    from lazyt.ir.symbolic import Scope

# Movement that makes no array smaller: what it is made of is stored in place of its result.
WIDENING = frozenset(MOVEMENT) - {"slice", "concat"}
_numbers = itertools.count()


@dataclass(eq=False, repr=False)
class Residuals:
    """The second of the two programs: its nodes in order, of which `stored` and cotangents are given to it.

    Two are equal only if they are the same object: they are part of the keys of the programs that they are written in.
    """

    values: list[tuple[g.Shape, np.dtype]]  # of the forward program, those that are differentiated
    gradients: list[Node]
    stored: list[Node]
    nodes: list[Node]
    # What its arguments are in the forward program.
    scalars: list[int]
    symbols: list[int]
    offsets: list[int]
    # What stands for it in other processes: the file that has it, with the plan of the forward program.
    key: str | None = None
    number: int = field(default_factory=_numbers.__next__)

    def __repr__(self) -> str:
        return f"Residuals({self.number})"


def residuals_of(
    graph: Graph, outputs: Sequence[Node], n_values: int, gradients: Sequence[Node], free: Container[Node]
) -> Residuals:  # fmt: skip
    """What a graph with these gradients stores for them, and what computes them of that.

    outputs: of the forward program, the last ones are the values that are differentiated; free: what is made of its
    inputs by next to nothing.
    """
    forward = {*g.reachable([*outputs, *graph.kept])}
    forward |= {n for n in graph.nodes if n.op == "item" and n.operands[0] in forward}

    def is_stored(n: Node) -> bool:
        # NOTE: inputs too: the forward program's may be overwritten when it ends, unless they are its results.
        if isinstance(n.attrs, g.Input):
            return n.attrs.index >= 0
        return n in forward and n not in free and not _is_made_again(n)

    needed = g.reachable(gradients, lambda n: not is_stored(n))
    stored = [n for n in needed if is_stored(n)]
    own = {*stored}
    nodes = [n for n in needed if n not in own]
    scalars = sorted({n.attrs.position for n in nodes if isinstance(n.attrs, g.Scalar)})
    dims = [d for n in needed for d in _dims(n)]
    keys: list[Any] = [dims[0].scope.atoms[n] for n in atoms_of(dims) if not dims[0].scope.operands(n)] if dims else []
    symbols, offsets = ([k for kind, k in keys if kind == wanted] for wanted in ("symbol", "offset"))
    values = [(n.shape, n.dtype) for n in outputs[len(outputs) - n_values :]]
    return Residuals(values, list(gradients), stored, nodes, scalars, symbols, offsets)


def _is_made_again(n: Node) -> bool:
    """Whether a value is no more than what it is made of: that is stored in its place."""
    widens = n.op == "cast" and n.dtype.itemsize >= n.operands[0].dtype.itemsize
    return widens or n.op in WIDENING or n.op in SOURCES or n.op == "iota"


def _dims(n: Node) -> Iterator[Dim]:
    """The extents of a node that are symbolic."""
    todo: list[Any] = [n.shape, n.attrs]
    while todo:
        x = todo.pop()
        if isinstance(x, Dim):
            yield x
        elif isinstance(x, tuple):
            todo += x
        elif dataclasses.is_dataclass(x):
            todo += [getattr(x, name) for name in x.__dataclass_fields__]


@dataclass(frozen=True, slots=True)
class Bound:
    """The arguments of `Residuals` in another program, in the order of its `symbols`, `offsets` and `scalars`."""

    residuals: Residuals
    symbols: tuple[int | Dim, ...]
    offsets: tuple[int | Dim, ...]
    scalars: tuple[int, ...]  # positions

    def shapes(self) -> list[tuple[g.Shape, np.dtype]]:
        """Of the values of the forward program."""
        moved = _Moved(self)
        return [(moved(shape), dtype) for shape, dtype in self.residuals.values]

    def moved(self, shape: g.Shape) -> g.Shape:
        """A shape of the forward program in this one."""
        found: g.Shape = _Moved(self)(shape)
        return found


class _Moved:
    """Replaces extents; each is worked out once."""

    def __init__(self, bound: Bound) -> None:
        r = bound.residuals
        self.leaves: dict[tuple[object, ...], int | Dim] = {
            **{("symbol", k): d for k, d in zip(r.symbols, bound.symbols, strict=True)},
            **{("offset", k): d for k, d in zip(r.offsets, bound.offsets, strict=True)},
        }
        self.atoms: dict[int, int | Dim] = {}
        self.known: dict[Dim, int | Dim] = {}

    def __call__(self, x: Any) -> Any:
        if isinstance(x, Dim):
            return self._dim(x)
        if isinstance(x, tuple):
            return tuple([self(y) for y in x])
        if dataclasses.is_dataclass(x) and not isinstance(x, type):
            parts = {name: getattr(x, name) for name in x.__dataclass_fields__}
            new = {name: self(v) for name, v in parts.items() if isinstance(v, Dim | tuple)}
            # NOTE: what looks the same may be of the other scope.
            return dataclasses.replace(x, **new) if new else x
        return x

    def _dim(self, d: Dim) -> int | Dim:
        found = self.known.get(d)
        if found is None:
            for n in atoms_of((d,), self.atoms):
                self.atoms[n] = self._atom(d.scope, n)
            found = self.known[d] = self._polynomial(d)
        return found

    def _polynomial(self, d: int | Dim) -> int | Dim:
        if isinstance(d, int):
            return d
        found: int | Dim = 0
        for mono, coef in d.terms:
            term: int | Dim = coef
            for n in mono:
                term = term * self.atoms[n]
            found = found + term
        return found

    def _atom(self, scope: Scope, n: int) -> int | Dim:
        of = scope.operands(n)
        return made_of(scope.atoms[n][0], *map(self._polynomial, of)) if of else self.leaves[scope.atoms[n]]


def pulled_back(
    b: Builder, bound: Bound, stored: Sequence[Node], cotangents: Sequence[Node | None]
) -> list[Node | None]:  # fmt: skip
    """Write the backward: the gradients, None for those that no given cotangent leads to.

    A backward is linear in cotangents, so what is computed of absent ones alone is absent.
    """
    r, moved = bound.residuals, _Moved(bound)
    new: dict[Node, Node | None] = {}
    for n, x in zip(r.stored, stored, strict=True):
        b.same_shape(x.shape, moved(n.shape))
        new[n] = x
    positions: Mapping[int, int] = dict(zip(r.scalars, bound.scalars, strict=True))
    step = b.site.step if isinstance(b.site, g.Origin) else -1
    varies: set[Node] = set()
    for n in r.nodes:
        if n.op == "input":
            varies.add(n)
            new[n] = cotangents[-1 - n.attrs.index]  # type: ignore[union-attr]
            continue
        b.site = _origin(n, step)
        if n.op == "scalar":
            new[n] = b.scalar(positions[n.attrs.position], n.dtype)  # type: ignore[union-attr]
            continue
        operands = [new[o] for o in n.operands]
        carried = [x for x, o in zip(operands, n.operands, strict=True) if o in varies]
        if carried:
            varies.add(n)
            if all(x is None for x in carried):
                new[n] = None
                continue
            if n.op == "add" and None in operands:
                new[n] = next(x for x in operands if x is not None)
                continue
        given = [
            _zeros(b, moved(o.shape), o.dtype) if x is None else x for x, o in zip(operands, n.operands, strict=True)
        ]
        new[n] = b.make(n.op, tuple(given), moved(n.attrs), moved(n.shape), n.dtype)
    return [new[n] if n in varies else None for n in r.gradients]


def _origin(n: Node, step: int) -> Any:
    """The origin of a node in another program, where it belongs to this step; not under a compression of that."""
    site = n.site
    if not isinstance(site, g.Origin):
        return site
    return g.Origin(site.name, site.site, site.backward, step, local=site.local, rounded=site.rounded)


def _zeros(b: Builder, shape: g.Shape, dtype: np.dtype) -> Node:
    return b.expand_to(b.constant(0, dtype), shape)
