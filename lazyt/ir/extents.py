"""Functions of extents: the smaller and the larger one, sums of parts that lie end to end, multiples of a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.errors import LazytInternalError
from lazyt.ir.symbolic import PARTS, TERMS, Dim, guarded, named, terms_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def maximum(a: int | Dim, b: int | Dim) -> int | Dim:
    """The larger one, symbolically."""
    return _extreme("max", max, a, b)


def minimum(a: int | Dim, b: int | Dim) -> int | Dim:
    """The smaller one, symbolically."""
    return _extreme("min", min, a, b)


def _extreme(kind: str, of: Callable[[int, int], int], a: int | Dim, b: int | Dim) -> int | Dim:
    apart = a - b
    if isinstance(apart, int):
        return a if of(apart, 0) == apart else b
    scope = apart.scope
    for x, y in ((a, b), (b, a)):
        # The smaller of x and one that is the smaller of x and another.
        n = x.lone_atom() if isinstance(x, Dim) else None
        if n is not None and scope.atoms[n][0] == kind and y in scope.operands(n):
            return x
    x, y = sorted((a, b), key=terms_of)
    return scope._atom((kind, x, y), of(guarded(a), guarded(b)))


def made_of(kind: object, a: int | Dim, *b: int | Dim) -> int | Dim:
    """The extent that an atom of this kind, made of these extents, is equal to."""
    match kind:
        case "sum":
            return named(a)
        case "factor":
            return a
        case "floordiv":
            return a // b[0]
        case "max":
            return maximum(a, b[0])
        case "min":
            return minimum(a, b[0])
    raise LazytInternalError(f"no atom is made by {kind}")


def prefix_sums(parts: Sequence[int | Dim]) -> list[int | Dim]:
    """The offsets of parts that lie end to end, and the end of the last one.

    Of n different parts these would be n sums of up to n terms. So eight of them get a name, and eight of those:
    `s0 + ... + s8 --> sum(s0 + ... + s7) + s8`. Each sum has about 8 terms a level then.
    """
    found: list[int | Dim] = [0]
    for d in parts:
        last = found[-1] + d
        if isinstance(last, Dim) and len(last.terms) > TERMS:
            return _sums_of_names(parts)
        found.append(last)
    return found


def _sums_of_names(parts: Sequence[int | Dim]) -> list[int | Dim]:
    groups = [parts[i : i + PARTS] for i in range(0, len(parts), PARTS)]
    starts = prefix_sums([named(sum(group[1:], group[0])) for group in groups])
    found = []
    for at, group in zip(starts, groups, strict=False):
        for d in group:
            found.append(at)
            at = at + d
    return [*found, named(starts[-1])]


def is_multiple(a: int | Dim, n: int, extents: Sequence[int]) -> bool:
    """Whether every term is a multiple of n at these extents, whatever offsets are in it."""
    if isinstance(a, int):
        return a % n == 0
    for mono, coef in a.terms:
        known = coef
        for atom in mono:
            kind, which = a.scope.atoms[atom][:2]
            known *= extents[which] if kind == "symbol" else 1  # type: ignore[call-overload]
        if known % n:
            return False
    return True
