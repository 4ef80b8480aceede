"""Affine index maps: the element that is read of a value, as a function of a kernel's axes.

    index := coef * axis + ... + offset        one for each dimension of the value
    guard := lo <= index < hi                  points where the value is needed at all (under a pad)

`through` carries the index of a movement operation's result to the index of its operand. All movement is affine
but for a reshape that mixes axes; splitting an axis of the kernel makes most of those affine too (`Split` says which).
"""

from __future__ import annotations

from dataclasses import field
from itertools import count
from typing import TYPE_CHECKING

from lazyt.ir import graph as g
from lazyt.ir.records import dataclass
from lazyt.ir.symbolic import Dim, Scope, hint, product, quotient

if TYPE_CHECKING:
    from lazyt.ir.graph import Node

_ids = count()


class AxisVar:
    """One axis of a kernel's domain."""

    __slots__ = ("extent", "id")

    def __init__(self, extent: int | Dim) -> None:
        self.extent = extent
        self.id = next(_ids)

    def __repr__(self) -> str:
        return f"i{self.id}<{self.extent}>"


@dataclass(frozen=True, slots=True)
class Index:
    """sum(coef * axis) + offset; terms sorted by axis id, no zero coefficients."""

    terms: tuple[tuple[AxisVar, int | Dim], ...]
    offset: int | Dim = 0
    _hash: int = field(init=False, compare=False, repr=False)

    def __hash__(self) -> int:
        # NOTE: places are looked up more often than anything else when kernels are made.
        try:
            return self._hash
        except AttributeError:
            found = hash((self.terms, self.offset))
            object.__setattr__(self, "_hash", found)
            return found

    def plus(self, offset: int | Dim) -> Index:
        return self if isinstance(offset, int) and offset == 0 else Index(self.terms, self.offset + offset)

    def times(self, k: int | Dim) -> Index:
        if isinstance(k, int) and 0 <= k <= 1:
            return self if k else ZERO
        return Index(tuple((a, c * k) for a, c in self.terms), self.offset * k)

    def pure(self) -> AxisVar | None:
        """The axis if this is exactly one axis."""
        if len(self.terms) == 1 and _is(self.terms[0][1], 1) and _is(self.offset, 0):
            return self.terms[0][0]
        return None


ZERO = Index(())


def _is(a: int | Dim, n: int) -> bool:
    return isinstance(a, int) and a == n


def axis_index(a: AxisVar) -> Index:
    return Index(((a, 1),))


def add(*indices: Index) -> Index:
    terms: dict[AxisVar, int | Dim] = {}
    offset: int | Dim = 0
    for x in indices:
        offset = offset + x.offset
        for a, c in x.terms:
            terms[a] = terms[a] + c if a in terms else c
    found = [(a, c) for a, c in terms.items() if not _is(c, 0)]
    kept = tuple(sorted(found, key=lambda t: t[0].id) if len(found) > 1 else found)
    return Index(kept, offset)


@dataclass(frozen=True, slots=True)
class Guard:
    index: Index
    lo: int | Dim
    hi: int | Dim


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value is wanted: an index for each of its dimensions, under guards."""

    indices: tuple[Index, ...]
    guards: tuple[Guard, ...] = ()
    _hash: int = field(init=False, compare=False, repr=False)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            found = hash((self.indices, self.guards))
            object.__setattr__(self, "_hash", found)
            return found


@dataclass(frozen=True, slots=True)
class Split:
    """A reshape is affine if this axis is split into these extents (outermost first)."""

    axis: AxisVar
    extents: tuple[int | Dim, ...]


def substitute(place: Place, axis: AxisVar, by: Index) -> Place:
    """`place` with an axis replaced by an index over other axes."""

    def one(x: Index) -> Index:
        for a, c in x.terms:
            if a is axis:
                rest = Index(tuple(t for t in x.terms if t[0] is not axis), x.offset)
                return add(rest, by.times(c))
        return x

    return Place(tuple(one(x) for x in place.indices), tuple(Guard(one(q.index), q.lo, q.hi) for q in place.guards))


def strides_of(shape: g.Shape) -> tuple[int | Dim, ...]:
    """Row-major strides in elements."""
    out: list[int | Dim] = []
    n: int | Dim = 1
    for d in reversed(shape):
        out.append(n)
        n = n * d
    return tuple(reversed(out))


def flat(place: Place, shape: g.Shape) -> Index:
    """The row-major element number of a place."""
    return add(*(x.times(s) for x, s in zip(place.indices, strides_of(shape), strict=True)))


def through(scope: Scope | None, n: Node, place: Place) -> Place | Split | None:
    """The place of n's first operand that n's value at `place` is; None when no affine map says it.

    permute, expand, slice, window, pad and (where it does not mix axes) reshape. A pad adds guards.
    """
    x = n.operands[0]
    idx = place.indices
    attrs = n.attrs
    match n.op:
        case "permute":
            assert isinstance(attrs, g.Axes)
            out = [ZERO] * x.ndim
            for i, a in enumerate(attrs.axes):
                out[a] = idx[i]
            return Place(tuple(out), place.guards)
        case "expand":
            # NOTE: an axis grows where it is always 1: of two that are 1 here, one may be larger elsewhere.
            grown = tuple(
                ZERO if equal(scope, p, 1) or (hint(p) == 1 and hint(q) != 1) else i
                for i, p, q in zip(idx, x.shape, n.shape, strict=True)
            )
            return Place(grown, place.guards)
        case "slice":
            assert isinstance(attrs, g.Slice)
            return Place(
                tuple(i.times(s).plus(o) for i, s, o in zip(idx, attrs.steps, attrs.starts, strict=True)), place.guards
            )
        case "window":
            assert isinstance(attrs, g.Window)
            base = list(idx[: x.ndim])
            for k, a in enumerate(attrs.axes):
                base[a] = add(base[a].times(attrs.strides[k]), idx[x.ndim + k].times(attrs.dilations[k]))
            return Place(tuple(base), place.guards)
        case "pad":
            assert isinstance(attrs, g.Pad)
            moved, guards = [], list(place.guards)
            for e, lo, p, q in zip(idx, attrs.lo, x.shape, n.shape, strict=True):
                j = e.plus(-lo)
                moved.append(j)
                if not (_is(lo, 0) and (p == q or (scope is not None and scope.known_equal(p, q)))):
                    guards.append(Guard(j, 0, p))
            return Place(tuple(moved), tuple(guards))
        case "reshape":
            return _through_reshape(scope, x.shape, n.shape, place)
        case _:
            return None


def equal(scope: Scope | None, a: int | Dim, b: int | Dim) -> bool:
    """Whether two extents are equal wherever the guards so far hold; adds no guard."""
    return a is b or a == b or (scope is not None and scope.known_equal(a, b))


def _through_reshape(scope: Scope | None, old: g.Shape, new: g.Shape, place: Place) -> Place | Split | None:
    out: list[Index] = []
    i = j = 0
    while i < len(old) or j < len(new):
        if i < len(old) and j < len(new) and equal(scope, old[i], new[j]):
            out.append(place.indices[j])
            i, j = i + 1, j + 1
            continue
        if i < len(old) and _is(old[i], 1):
            out.append(ZERO)
            i += 1
            continue
        if j < len(new) and _is(new[j], 1):
            j += 1
            continue
        i0, j0 = i, j
        p: int | Dim = 1
        q: int | Dim = 1
        while True:
            if i == i0 or (hint(p) < hint(q) and i < len(old)):
                if i == len(old):
                    return None
                p, i = p * old[i], i + 1
            elif j == j0 or (hint(q) < hint(p) and j < len(new)):
                if j == len(new):
                    return None
                q, j = q * new[j], j + 1
            elif equal(scope, p, q):
                break
            elif i < len(old):
                p, i = p * old[i], i + 1
            elif j < len(new):
                q, j = q * new[j], j + 1
            else:
                return None
        e = add(*(x.times(s) for x, s in zip(place.indices[j0:j], strides_of(new[j0:j]), strict=True)))
        if i - i0 == 1:
            out.append(e)
            continue
        parts = _delinearize(scope, e, old[i0:i])
        if parts is None or isinstance(parts, Split):
            return parts
        out.extend(parts)
    return Place(tuple(out), place.guards)


def _delinearize(scope: Scope | None, e: Index, shape: g.Shape) -> list[Index] | Split | None:
    """Digits of `e` in the mixed radix of `shape`: each term must belong to one digit, or run over several."""
    if not _is(e.offset, 0):
        return None
    strides = strides_of(shape)
    parts: list[list[tuple[AxisVar, int | Dim]]] = [[] for _ in shape]
    for a, c in e.terms:
        found = _digit_of(scope, c, strides)
        if found is None:
            return None
        k, factor = found
        if _is(factor, 1):
            # The axis runs over this digit or a part of it, or over it and the more significant ones before it.
            first, span = k, shape[k]
            while first > 0 and hint(span) < hint(a.extent) and not equal(scope, a.extent, span):
                first -= 1
                span = span * shape[first]
            if first != k:
                return Split(a, shape[first : k + 1]) if equal(scope, a.extent, span) else None
        parts[k].append((a, factor))
    digits = [_digit(scope, part, n) for part, n in zip(parts, shape, strict=True)]
    return None if None in digits else digits  # type: ignore[return-value]


def digits(scope: Scope | None, e: Index, shape: g.Shape) -> list[Index] | None:
    """The index of each dimension of a value that is read at element number `e`; None if no affine map says it."""
    found = _delinearize(scope, e, shape)
    return found if isinstance(found, list) else None


def _digit_of(scope: Scope | None, c: int | Dim, strides: g.Shape) -> tuple[int, int | Dim] | None:
    """Which digit a coefficient moves, and by how many."""
    for k, s in enumerate(strides):
        if equal(scope, c, s):
            return k, 1
    if scope is not None:
        c, strides = scope.normal(c), tuple(map(scope.normal, strides))
    for k, s in enumerate(strides):
        factor = quotient(c, s)
        if factor is not None and hint(factor) > 0:
            return k, factor
    return None


def _digit(scope: Scope | None, part: list[tuple[AxisVar, int | Dim]], extent: int | Dim) -> Index | None:
    """The digit that these axes make up, if they run over all of it and no further."""
    rest = list(part)
    run: int | Dim = 1
    while rest:
        i = next((i for i, (_, f) in enumerate(rest) if equal(scope, f, run)), None)
        if i is None:
            return None
        run = run * rest.pop(i)[0].extent
    if part and not equal(scope, run, extent):
        return None
    return add(*(axis_index(a).times(f) for a, f in part))


def whole(shape: g.Shape) -> tuple[tuple[AxisVar, ...], Place]:
    """A domain with one axis a dimension, and the identity place over it."""
    axes = tuple(AxisVar(d) for d in shape)
    return axes, Place(tuple(axis_index(a) for a in axes))


def count_of(shape: g.Shape) -> int | Dim:
    return product(shape)


def axes_of_digits(x: Index) -> list[AxisVar] | None:
    """The axes of an index that is a mixed-radix number of them, most significant first; None otherwise."""
    if not (isinstance(x.offset, int) and x.offset == 0):
        return None
    if not x.terms:
        return []
    terms = sorted(x.terms, key=lambda t: -hint(t[1]))
    stride: int | Dim = 1
    for a, c in reversed(terms):
        if not (c == stride or (isinstance(c, Dim) and c.scope.known_equal(c, stride))):
            return None
        stride = stride * a.extent
    return [a for a, _ in terms]
