"""Symbolic extents: plans hold sizes as polynomials in symbols, kernels take them as arguments.

    extent := int | Dim
    Dim    := sum of coefficient * product of atoms
    atom   := symbol k | offset k | floordiv(extent, extent) | max(extent, extent) | sum(extent)

A symbol is an integer bound once a trace (an axis of an input, an integer attribute); an offset is one
bound at every run (a slice start, an index): it may move a load but never decides a plan's structure. A sum is a name
for a polynomial of many terms, where others are made of it (`prefix_sums`).
Each Dim knows its *hint*, the value it has in the trace being planned. Code that relies on two extents
being equal calls `unify(a, b)`, which makes them one from then on and adds a guard; another trace
whose extents satisfy the guards runs the same plan. No other code may read a hint, except to find errors (which are
checked again under every other binding); a scope can record those reads (`looked`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lazyt.errors import LazytInternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    SumName = Callable[[int, "Dim"], str]

# A sum of more terms than these is made of sums with names, each of so many parts.
TERMS, PARTS = 32, 8
LONG = 128  # terms of an extent that gets a name

Monomial = tuple[int, ...]  # atom numbers, sorted, with repetition
Extent = "int | Dim"


class Scope:
    """The atoms, substitutions and guards of one plan in the making."""

    def __init__(self) -> None:
        self.atoms: list[tuple[object, ...]] = []
        self.hints: list[int] = []
        self.moving: list[bool] = []  # whether an atom has another value at every run
        self._numbers: dict[tuple[object, ...], int] = {}
        self._solved: dict[int, int | Dim] = {}  # atom number -> what it equals
        self._alike: dict[Dim, int | Dim] = {}  # what is no atom -> what it equals
        self._normal: dict[Dim, int | Dim] = {}
        self._settled: dict[Dim, int | Dim] = {}  # the normal forms since something was unified last
        self.guards: list[tuple[str, int | Dim, int | Dim]] = []  # ('eq' | 'ge' | 'lt', a, b)
        self._bounds: set[tuple[str, int | Dim, int]] = set()  # those that are no equality
        self.symbols: dict[int, Dim] = {}
        self.offsets: dict[int, Dim] = {}
        # The extents whose hints were read without a guard, if that is recorded.
        self.looked: list[Dim] | None = None

    def _atom(self, key: tuple[object, ...], hint: int) -> Dim:
        n = self._numbers.get(key)
        if n is None:
            n = self._numbers[key] = len(self.atoms)
            self.atoms.append(key)
            self.hints.append(hint)
            self.moving.append(key[0] == "offset" or any(isinstance(x, Dim) and uses_offset(x) for x in key[1:]))
        return Dim(self, (((n,), 1),))

    def symbol(self, k: int, hint: int) -> Dim:
        """The k-th extent of the trace."""
        s = self.symbols.get(k)
        if s is None:
            s = self.symbols[k] = self._atom(("symbol", k), hint)
        return s

    def offset(self, k: int, hint: int) -> Dim:
        """The integer scalar argument k: moves loads, never structure."""
        o = self.offsets.get(k)
        if o is None:
            o = self.offsets[k] = self._atom(("offset", k), hint)
        return o

    def atom(self, n: int) -> Dim:
        """The atom of this number."""
        return Dim(self, (((n,), 1),))

    def restore(self, key: tuple[object, ...], hint: int) -> Dim:
        """The next atom of a scope that is read again, where its number was the next too (see plan_format.py)."""
        assert key not in self._numbers, "an atom has one number"
        made = self._atom(key, hint)
        if key[0] in ("symbol", "offset"):
            of = self.symbols if key[0] == "symbol" else self.offsets
            of[key[1]] = made  # type: ignore[index]
        return made

    def variable(self, k: int) -> Dim:
        """A number that is not known yet, for which `Dim.where` puts another; it must not be looked at."""
        return self._atom(("variable", k), 1)

    def alike(self) -> Iterable[tuple[Dim, int | Dim]]:
        """What is no atom, and what it equals."""
        return self._alike.items()

    def normal(self, a: int | Dim) -> int | Dim:
        """`a` with everything that was unified replaced."""
        if isinstance(a, int) or not (self._solved or self._alike):
            return a
        known = self._settled.get(a)
        if known is not None:
            return known
        # NOTE: what was solved stays so: an earlier normal form is a start, and mostly still the answer.
        found = start = self._normal.get(a, a)
        while isinstance(found, Dim):
            if self._mentions_solved(found):
                found = self._replaced(found)
            elif found in self._alike:
                found = self._alike[found]
            else:
                break
        if found is not start:
            self._normal[a] = found
        self._settled[a] = found
        return found

    def _mentions_solved(self, a: Dim) -> bool:
        solved = self._solved
        for mono, _ in a.terms:
            for n in mono:
                if n in solved:
                    return True
        return False

    def _replaced(self, a: Dim) -> int | Dim:
        """`a` with what each of its symbols was unified with."""
        out: list[tuple[Monomial, int]] = []
        for mono, coef in a.terms:
            terms: list[tuple[Monomial, int]] = [((), coef)]
            for n in mono:
                value = self._solved.get(n)
                if value is not None:
                    # What stands for it may have been unified since.
                    self._settle(n)
                    value = self._solved[n]
                factors = (((n,), 1),) if value is None else _terms(value)
                terms = [(m + f, c * d) for m, c in terms for f, d in factors]
            out += [(tuple(sorted(m)), c) for m, c in terms]
        return _collect(self, out)

    def _settle(self, last: int) -> None:
        """Let the atom's value be a normal form (iterative: a chain of equal extents may be as long as a program)."""
        solved, todo = self._solved, [last]
        while todo:
            value = solved[todo[-1]]
            before: list[int] = []
            if isinstance(value, Dim) and value not in self._settled:
                of = {n for mono, _ in value.terms for n in mono if n in solved}
                before = [n for n in of if isinstance(v := solved[n], Dim) and v not in self._settled]
            if before:
                todo += before
            else:
                solved[todo.pop()] = self.normal(value)

    def known_equal(self, a: int | Dim, b: int | Dim) -> bool:
        """Equal for every binding that satisfies the guards so far; adds no guard."""
        return a is b or self.normal(a) == self.normal(b)

    def proves_equal(self, a: int | Dim, b: int | Dim) -> bool:
        """The same, also of a multiple of what is known: `4·s0·s1 == 4·s2·s3` where `s0·s1 == s2·s3`."""
        return self.known_equal(a, b) or self.known_equal(*_reduced(self, self.normal(a), self.normal(b)))

    def unify(self, a: int | Dim, b: int | Dim) -> int | Dim:
        """Rely on a == b (their hints are equal): guard it, and let one stand for both from now on.

        What the guard says may be more than that: of `s0·s2 == s0` it is `s2 == 1`, of `s0·s1 == 1` that both are 1.
        """
        a, b = self.normal(a), self.normal(b)
        if a == b:
            return a
        if guarded(a) != guarded(b):
            raise LazytInternalError(f"unify({a}, {b}): hints {guarded(a)} and {guarded(b)} differ")
        x, y = _reduced(self, a, b)
        ones = _all_ones(x, y)
        if len(ones) > 1:
            for d in ones:
                self.unify(d, 1)
            return self.normal(b)
        self.guards.append(("eq", x, y))
        for p, q in ((y, x), (x, y)):
            if isinstance(p, Dim) and (lone := p.lone_atom()) is not None and not _mentions(self, q, lone):
                self._solved[lone] = q
                self._settled.clear()
                self._compare_again()
                return self.normal(b)
        # Neither is one atom: the whole of one stands for the whole of the other.
        for p, q in ((x, y), (a, b)):
            # NOTE: as they are by now, so that none leads back to itself: `s0 == 2·(s0//2)` may come either way.
            p, q = self.normal(p), self.normal(q)
            if p == q:
                continue
            if isinstance(p, int) or (isinstance(q, Dim) and len(q.terms) > len(p.terms)):
                p, q = q, p
            assert isinstance(p, Dim), "two different integers have different hints"
            self._alike[p] = q
            self._settled.clear()
        return self.normal(b)

    def _compare_again(self) -> None:
        """What is alike under the new normal forms."""
        if self._alike:
            alike, self._alike = self._alike, {}
            self._normal.clear()
            for x, y in alike.items():
                self.unify(x, y)

    def at_least(self, a: int | Dim, bound: int) -> bool:
        """Whether a >= bound, guarded either way."""
        a = self.normal(a)
        if isinstance(a, int):
            return a >= bound
        yes = a.hint >= bound
        guard = ("ge" if yes else "lt", a, bound)
        if guard not in self._bounds:
            self._bounds.add(guard)
            self.guards.append(guard)
        return yes


def _all_ones(a: int | Dim, b: int | Dim) -> Sequence[Dim]:
    """What must be 1 where a == b: each factor of a product that is, as extents are not negative."""
    if isinstance(a, int):
        a, b = b, a
    return a.factors() if isinstance(a, Dim) and b == 1 else ()


def _mentions(scope: Scope, a: int | Dim, atom: int) -> bool:
    if isinstance(a, int):
        return False
    for mono, _ in a.terms:
        for n in mono:
            if n == atom or any(_mentions(scope, x, atom) for x in scope.atoms[n][1:] if isinstance(x, Dim)):
                return True
    return False


class Dim:
    """An immutable integer polynomial; arithmetic gives an int when nothing symbolic is left."""

    __slots__ = ("_hash", "hint", "scope", "terms")

    def __init__(self, scope: Scope, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.scope = scope
        self.terms = terms
        self._hash = hash(terms)
        total = 0
        hints = scope.hints
        for mono, coef in terms:
            for n in mono:
                coef *= hints[n]
            total += coef
        self.hint: int = total

    def lone_atom(self) -> int | None:
        """The atom number if this is exactly one, and no offset, which is another at every run."""
        if len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1:
            n = self.terms[0][0][0]
            if self.scope.atoms[n][0] != "offset":
                return n
        return None

    def factors(self) -> list[Dim]:
        """The atoms of which this is the product; none where it is anything else."""
        if len(self.terms) != 1 or self.terms[0][1] != 1:
            return []
        return [Dim(self.scope, (((n,), 1),)) for n in self.terms[0][0]]

    def where(self, atoms: Mapping[int, int], values: Mapping[int, int | Dim]) -> int | Dim:
        """The same with other atoms, and with the values of some."""
        found: int | Dim = 0
        rest: list[tuple[Monomial, int]] = []
        for mono, coef in self.terms:
            known = [n for n in mono if n in values]
            others = tuple(sorted([atoms.get(n, n) for n in mono if n not in values]))
            if known:
                term = _collect(self.scope, [(others, coef)])
                for n in known:
                    term = term * values[n]
                found = found + term
            else:
                rest.append((others, coef))
        return _collect(self.scope, rest) + found if rest else found

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Dim) and self.terms == other.terms)

    def __hash__(self) -> int:
        return self._hash

    def __bool__(self) -> bool:
        raise LazytInternalError("the truth of a symbolic extent: say unify, known_equal or at_least")

    __index__ = __int__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__

    def __add__(self, other: int | Dim) -> int | Dim:
        if other.__class__ is int and self.terms[0][0]:
            return Dim(self.scope, (((), other), *self.terms)) if other else self
        return _collect(self.scope, (*self.terms, *_terms(other)))

    __radd__ = __add__

    def __neg__(self) -> int | Dim:
        return Dim(self.scope, tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: int | Dim) -> int | Dim:
        return self + (-other)

    def __rsub__(self, other: int) -> int | Dim:
        return (-self) + other

    def __mul__(self, other: int | Dim) -> int | Dim:
        # NOTE: most are of one term each, and need no collecting.
        if other.__class__ is int and other:
            return self if other == 1 else Dim(self.scope, tuple([(m, c * other) for m, c in self.terms]))
        if other.__class__ is Dim and len(self.terms) == 1 == len(other.terms):
            ((m, c),), ((n, d),) = self.terms, other.terms
            return Dim(self.scope, ((tuple(sorted(m + n)), c * d),))
        return _collect(
            self.scope,
            [(tuple(sorted(m + n)), c * d) for m, c in self.terms for n, d in _terms(other)],
        )

    __rmul__ = __mul__

    def __floordiv__(self, other: int | Dim) -> int | Dim:
        exact = _divide(self, other)
        if exact is not None:
            return exact
        return self.scope._atom(("floordiv", self, other), self.hint // guarded(other))

    def __rfloordiv__(self, other: int) -> int | Dim:
        return self.scope._atom(("floordiv", other, self), other // self.hint)

    def __str__(self) -> str:
        return _source(self, lambda key: f"{key[0][0]}{key[1]}").replace("*", "·")

    def __repr__(self) -> str:
        return f"{self}={self.hint}"


def _terms(a: int | Dim) -> tuple[tuple[Monomial, int], ...]:
    return a.terms if isinstance(a, Dim) else (((), a),)


def _collect(scope: Scope, terms: Iterable[tuple[Monomial, int]]) -> int | Dim:
    out: dict[Monomial, int] = {}
    for m, c in terms:
        out[m] = out.get(m, 0) + c
    kept = tuple(sorted((m, c) for m, c in out.items() if c))
    if not kept:
        return 0
    if len(kept) == 1 and kept[0][0] == ():
        return kept[0][1]
    return Dim(scope, kept)


def _reduced(scope: Scope, a: int | Dim, b: int | Dim) -> tuple[int | Dim, int | Dim]:
    """An equality without what both sides have: `s0 + 1 == s1 + 1 --> s0 == s1`, `s0·s2 == s0 --> s2 == 1`.

    NOTE: only a factor that is not 0 here goes, and then the guard says more than the equality where it is 0.
    """
    x, y = dict(_terms(a)), dict(_terms(b))
    for m in {*x} & {*y}:
        if (x[m] > 0) == (y[m] > 0):
            c = min(x[m], y[m], key=abs)
            x[m], y[m] = x[m] - c, y[m] - c
    x, y = ({m: c for m, c in side.items() if c} for side in (x, y))
    terms = [*x.items(), *y.items()]
    common = list(terms[0][0])
    for m, _ in terms[1:]:
        common = _shared(common, m)
    common = [n for n in common if scope.hints[n]]
    coef = math.gcd(*(c for _, c in terms))
    x, y = ({_without(m, common): c // coef for m, c in side.items()} for side in (x, y))
    return _collect(scope, x.items()), _collect(scope, y.items())


def _shared(atoms: Sequence[int], others: Sequence[int]) -> list[int]:
    """The atoms that are in both, as often as in both."""
    rest, found = list(others), []
    for n in atoms:
        if n in rest:
            rest.remove(n)
            found.append(n)
    return found


def _without(m: Monomial, atoms: Sequence[int]) -> Monomial:
    rest = list(m)
    for n in atoms:
        rest.remove(n)
    return tuple(rest)


def _divide(a: Dim, b: int | Dim) -> int | Dim | None:
    """a / b when b is one term that divides every term of a."""
    terms = _terms(b)
    if len(terms) != 1 or terms[0][1] == 0:
        return None
    mono, coef = terms[0]
    out = []
    for m, c in a.terms:
        rest = list(m)
        for n in mono:
            if n not in rest:
                return None
            rest.remove(n)
        if c % coef:
            return None
        out.append((tuple(rest), c // coef))
    return _collect(a.scope, out)


def quotient(a: int | Dim, b: int | Dim) -> int | Dim | None:
    """a / b where that is exact for every binding; None otherwise."""
    if isinstance(a, int):
        return a // b if isinstance(b, int) and b and a % b == 0 else None
    return _divide(a, b)


def hint(a: int | Dim) -> int:
    """The value of `a` in the trace being planned."""
    if isinstance(a, int):
        return a
    if a.scope.looked is not None:
        a.scope.looked.append(a)
    return a.hint


def guarded(a: int | Dim) -> int:
    """The same, for a decision that adds its guards to the scope."""
    return a if isinstance(a, int) else a.hint


def maximum(a: int | Dim, b: int | Dim) -> int | Dim:
    """The larger one, symbolically."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    if a == b:
        return a
    scope = a.scope if isinstance(a, Dim) else b.scope  # type: ignore[union-attr]
    return scope._atom(("max", a, b), max(guarded(a), guarded(b)))


def product(dims: Iterable[int | Dim]) -> int | Dim:
    """The product of extents; 1 when there is none."""
    n: int | Dim = 1
    for d in dims:
        n = n * d
    return n


def prefix_sums(parts: Sequence[int | Dim]) -> list[int | Dim]:
    """Where each of the parts begins that lie end to end, and where the last one ends.

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
    starts = prefix_sums([named(total(group)) for group in groups])
    found = []
    for at, group in zip(starts, groups, strict=False):
        for d in group:
            found.append(at)
            at = at + d
    return [*found, named(starts[-1])]


def named(a: int | Dim) -> int | Dim:
    """The same as one atom, if it has many terms."""
    return a if isinstance(a, int) or len(a.terms) < PARTS else a.scope._atom(("sum", a), a.hint)


def short(a: int | Dim) -> int | Dim:
    """The same; as one atom if it is long: an extent that grows step by step has not all of its terms in each."""
    return a if isinstance(a, int) or len(a.terms) <= LONG else named(a)


def total(parts: Iterable[int | Dim]) -> int | Dim:
    """The sum of extents; 0 when there is none."""
    n: int | Dim = 0
    for d in parts:
        n = n + d
    return n


def _source(a: int | Dim, name: Callable[[tuple[Any, ...]], str], sum_name: SumName | None = None) -> str:
    if isinstance(a, int):
        return str(a)
    parts = []
    for mono, coef in a.terms:
        factors = [str(coef)] if coef != 1 or not mono else []
        for n in mono:
            key: tuple[Any, ...] = a.scope.atoms[n]
            if key[0] in ("symbol", "offset", "variable"):
                factors.append(name(key))
            elif key[0] == "sum":
                factors.append(_source(key[1], name) if sum_name is None else sum_name(n, key[1]))
            else:
                x, y = (_source(k, name, sum_name) for k in key[1:])
                factors.append(f"(({x})//({y}))" if key[0] == "floordiv" else f"max({x},{y})")
        parts.append("*".join(factors))
    return "(" + "+".join(parts) + ")" if len(parts) > 1 else parts[0]


def source(a: int | Dim, sum_name: SumName | None = None) -> str:
    """Python source of `a` in `s` (the trace's extents) and `o` (its scalar arguments).

    sum_name: the name of a sum in it, by number and value; None: what it adds up is written out.
    """
    return _source(a, lambda key: f"{'s' if key[0] == 'symbol' else 'o'}[{key[1]}]", sum_name)


def uses_offset(a: int | Dim) -> bool:
    """Whether the value changes at every run rather than once a trace."""
    if isinstance(a, int):
        return False
    moving = a.scope.moving
    return any(moving[n] for mono, _ in a.terms for n in mono)


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


def guard_source(guards: Sequence[tuple[str, int | Dim, int | Dim]]) -> str:
    """Python source of the conjunction of the guards, in `s`."""
    sign = {"eq": "==", "ge": ">=", "lt": "<"}
    return " and ".join(f"({source(a)}){sign[k]}({source(b)})" for k, a, b in guards) or "True"
