"""Symbolic extents: plans hold sizes as polynomials in symbols, kernels take them as arguments.

    extent := int | Dim
    Dim    := sum of coefficient * product of atoms
    atom   := symbol k | offset k | floordiv(extent, extent) | max(extent, extent) | min(extent, extent)
            | sum(extent) | factor(extent)

A symbol is an integer bound once a trace (an axis of an input, an integer attribute); an offset is one
bound at every run (a slice start, an index): it may move a load but never decides a plan's structure. A sum is a name
for a polynomial of many terms, where others are made of it (`prefix_sums`); a factor is one of a product that would
have many terms (`_multiplied`). A product is written out wherever its terms are few, so that equal products are one.

Extents nest: each pool of a chain divides the extent before it. An atom is made once, with a number above those of the
atoms it is made of. So an expression is a graph, not a tree: functions visit each atom once, in order (`atoms_of`).
Each Dim knows its *hint*, the value it has in the trace being planned. Code that relies on two extents
being equal calls `unify(a, b)`, which makes them one from then on and adds a guard; another trace
whose extents satisfy the guards runs the same plan. No other code may read a hint, except to find errors (which are
checked again under every other binding); a scope can record those reads (`looked`).
"""

from __future__ import annotations

import math
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING

from lazyt.errors import LazytInternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence
    from typing import Any

# A sum of more terms than these is made of sums with names, each of so many parts.
TERMS, PARTS = 32, 8
DEGREE = 16  # the same for the atoms of a product
LONG = 128  # terms of a product that is written as one of named factors
DEPTH, TEXT = 4, 200  # levels of atoms that are printed, and characters of one

_LEAVES = frozenset({"symbol", "offset", "variable"})

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
        self._alike_with: dict[int, dict[Dim, None]] = {}  # an atom -> the keys of those that have it on either side
        self._normal: dict[Dim, int | Dim] = {}
        self._settled: dict[Dim, int | Dim] = {}  # the normal forms since something was unified last
        self.guards: list[tuple[str, int | Dim, int | Dim]] = []  # ('eq' | 'ge' | 'lt', a, b)
        self._guarded: set[tuple[str, int | Dim, int | Dim]] = set()  # the same
        self.symbols: dict[int, Dim] = {}
        self.offsets: dict[int, Dim] = {}
        # Products of several polynomials, each with its other part: a number and atoms.
        self._factors: dict[Dim, tuple[int | Dim, tuple[Dim, ...]]] = {}
        self._has_products = False  # whether there is any
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

    def operands(self, n: int) -> tuple[int | Dim, ...]:
        """The extents that an atom is made of."""
        kind, *rest = self.atoms[n]
        return () if kind in _LEAVES else tuple(rest)  # type: ignore[arg-type]

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
        # NOTE: what was solved stays so: an earlier normal form is a start.
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
        values: dict[int, int | Dim] = {}
        for mono, _ in a.terms:
            for n in mono:
                if n in self._solved and n not in values:
                    # What stands for it may have been unified since.
                    self._settle(n)
                    values[n] = self._solved[n]
        return a.where({}, values)

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
        self._guard("eq", x, y)
        for p, q in ((y, x), (x, y)):
            if isinstance(p, Dim) and (lone := p.lone_atom()) is not None and not _mentions(self, q, lone):
                self._solved[lone] = q
                self._settled.clear()
                self._compare_again(lone)
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
            for n in atoms_in(p, q):
                self._alike_with.setdefault(n, {})[p] = None
            self._settled.clear()
        return self.normal(b)

    def _compare_again(self, solved: int) -> None:
        """Unify again what is alike and has this atom: both sides have other normal forms now."""
        changed = [(p, self._alike.pop(p)) for p in self._alike_with.pop(solved, ()) if p in self._alike]
        for p, q in changed:
            self._normal.pop(p, None)
            self.unify(p, q)

    def _guard(self, kind: str, a: int | Dim, b: int | Dim) -> None:
        guard = (kind, a, b)
        if guard not in self._guarded:
            self._guarded.add(guard)
            self.guards.append(guard)

    def at_least(self, a: int | Dim, bound: int) -> bool:
        """Whether a >= bound, guarded either way."""
        a = self.normal(a)
        if isinstance(a, int):
            return a >= bound
        yes = a.hint >= bound
        self._guard("ge" if yes else "lt", a, bound)
        return yes


def atoms_in(*some: int | Dim) -> set[int]:
    """The atoms of polynomials, without those that they are made of."""
    return {n for a in some if isinstance(a, Dim) for mono, _ in a.terms for n in mono}


def _all_ones(a: int | Dim, b: int | Dim) -> Sequence[Dim]:
    """What must be 1 where a == b: each factor of a product that is, as extents are not negative."""
    if isinstance(a, int):
        a, b = b, a
    return a.factors() if isinstance(a, Dim) and b == 1 else ()


def _mentions(scope: Scope, a: int | Dim, atom: int) -> bool:
    """Whether `a` is made of this atom."""
    seen: set[int] = set()
    todo = [a]
    while todo:
        x = todo.pop()
        if isinstance(x, Dim):
            for mono, _ in x.terms:
                for n in mono:
                    if n == atom:
                        return True
                    # NOTE: what an atom is made of has smaller numbers.
                    if n > atom and n not in seen:
                        seen.add(n)
                        todo += scope.operands(n)
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
        """The atom number if this is exactly one, and no offset, which is another at every run, or name of a factor."""
        if len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1:
            n = self.terms[0][0][0]
            if self.scope.atoms[n][0] not in ("offset", "factor"):
                return n
        return None

    def factors(self) -> list[Dim]:
        """The atoms of which this is the product; none where it is anything else."""
        if len(self.terms) != 1 or self.terms[0][1] != 1:
            return []
        return [Dim(self.scope, (((n,), 1),)) for n in self.terms[0][0]]

    def where(self, atoms: Mapping[int, int], values: Mapping[int, int | Dim]) -> int | Dim:
        """The same with other atoms, and with the values of some."""
        out: list[tuple[Monomial, int]] = []
        for mono, coef in self.terms:
            others = tuple(sorted([atoms.get(n, n) for n in mono if n not in values]))
            term: int | Dim = _collect(self.scope, [(others, coef)])
            for n in mono:
                if n in values:
                    term = term * values[n]
            out += terms_of(term)
        return _collect(self.scope, out)

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
        return _collect(self.scope, (*self.terms, *terms_of(other)))

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
        return _multiplied(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: int | Dim) -> int | Dim:
        exact = _divide(self, other)
        if exact is not None:
            return exact
        return self.scope._atom(("floordiv", self, other), self.hint // guarded(other))

    def __rfloordiv__(self, other: int) -> int | Dim:
        return self.scope._atom(("floordiv", other, self), other // self.hint)

    def __str__(self) -> str:
        return text(self, lambda key: f"{key[0][0]}{key[1]}", lambda n: f"e{n}").replace("*", "·")

    def __repr__(self) -> str:
        return f"{self}={self.hint}"


def terms_of(a: int | Dim) -> tuple[tuple[Monomial, int], ...]:
    """The polynomial: atoms and coefficient of each term."""
    return a.terms if isinstance(a, Dim) else (((), a),)


def _multiplied(a: Dim, b: int | Dim) -> int | Dim:
    """The product, written out; of named factors where it would have many terms: `(s0 + 1)·(s1 + 1)·...`.

    The factors of a product that is written out are remembered, so that the order of multiplication is no matter.
    """
    scope = a.scope
    if isinstance(b, int) or ((len(a.terms) == 1 or len(b.terms) == 1) and not scope._has_products):
        return _expanded(a, b)
    (p, f), (q, h) = _factored(a), _factored(b)
    factors = (*f, *h)
    if len(factors) < 2:
        return _expanded(a, b)
    scope._has_products = True
    if math.prod([len(x.terms) for x in factors]) > LONG:
        names = product([scope._atom(("factor", x), x.hint) for x in factors])
        return p * q * names
    found = _expanded(a, b)
    if isinstance(found, Dim):
        scope._factors[found] = p * q, factors
    return found


def _written_out(a: int | Dim) -> int | Dim:
    """The same; without names of factors if few are left of them."""
    if isinstance(a, int) or not a.scope._has_products or len(a.terms) > 1:
        return a
    rest, factors = _factored(a)
    return product([rest, *factors])


def _expanded(a: Dim, b: int | Dim) -> int | Dim:
    return _collect(a.scope, [(tuple(sorted(m + n)), c * d) for m, c in a.terms for n, d in terms_of(b)])


def _factored(a: Dim) -> tuple[int | Dim, tuple[Dim, ...]]:
    """A number times atoms, and the polynomials, of which `a` is the product."""
    scope = a.scope
    found = scope._factors.get(a)
    if found is not None:
        return found
    if len(a.terms) == 1:
        ((mono, coef),) = a.terms
        names = [n for n in mono if scope.atoms[n][0] == "factor"]
        rest = _collect(scope, [(_without(mono, names), coef)])
        return rest, tuple([scope.atoms[n][1] for n in names])  # type: ignore[misc]
    common, coef = list(a.terms[0][0]), math.gcd(*[c for _, c in a.terms])
    for m, _ in a.terms[1:]:
        common = _shared(common, m)
    primitive = _collect(scope, [(_without(m, common), c // coef) for m, c in a.terms])
    rest = _collect(scope, [(tuple(common), coef)])
    assert isinstance(primitive, Dim), "a polynomial of several terms has several without their common factor"
    return rest, (primitive,)


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
    x, y = dict(terms_of(a)), dict(terms_of(b))
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
    return _written_out(_collect(scope, x.items())), _written_out(_collect(scope, y.items()))


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
    terms = terms_of(b)
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
    return _written_out(_collect(a.scope, out))


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


def product(dims: Iterable[int | Dim]) -> int | Dim:
    """The product of extents; 1 when there is none."""
    return reduce(mul, dims, 1)


def named(a: int | Dim) -> int | Dim:
    """The same as one atom, if it has many terms."""
    return a if isinstance(a, int) or len(a.terms) < PARTS else a.scope._atom(("sum", a), a.hint)


def short(a: int | Dim) -> int | Dim:
    """The same; as one atom if it is long: an extent that grows step by step has not all of its terms in each."""
    if isinstance(a, int) or (len(a.terms) <= TERMS and all(len(mono) <= DEGREE for mono, _ in a.terms)):
        return a
    return a.scope._atom(("sum", a), a.hint)


def atoms_of(some: Iterable[int | Dim], known: Container[int] = ()) -> list[int]:
    """The atoms of which extents are made, each after those that it is made of itself.

    known: atoms that are left out, with what they are made of.
    """
    found: set[int] = set()
    todo = list(some)
    while todo:
        a = todo.pop()
        if isinstance(a, Dim):
            for mono, _ in a.terms:
                for n in mono:
                    if n not in found and n not in known:
                        found.add(n)
                        todo += a.scope.operands(n)
    return sorted(found)


def compound(a: Dim, known: Container[int] = ()) -> list[int]:
    """The atoms of an extent that are made of others."""
    return [n for n in atoms_of((a,), known) if a.scope.operands(n)]


def written(a: int | Dim, name: Callable[[int], str]) -> str:
    """The polynomial as Python source, with a name for each atom."""
    if isinstance(a, int):
        return str(a)
    parts = [
        "*".join([*([str(coef)] if coef != 1 or not mono else ()), *map(name, mono)]) for mono, coef in a.terms
    ]  # fmt: skip
    # NOTE: the depth of Python's syntax tree is that of the frames its compiler takes; a sum nests, a tuple does not.
    if len(parts) > PARTS:
        return f"sum(({','.join(parts)}))"
    return "(" + "+".join(parts) + ")" if len(parts) > 1 else parts[0]


def definition(scope: Scope, n: int, name: Callable[[int], str]) -> str:
    """Python source of an atom that is made of others, with a name for each of them."""
    kind = scope.atoms[n][0]
    of = [written(x, name) for x in scope.operands(n)]
    if kind in ("sum", "factor"):
        return of[0]
    return f"(({of[0]})//({of[1]}))" if kind == "floordiv" else f"{kind}({','.join(of)})"


def text(a: int | Dim, leaf: Callable[[tuple[Any, ...]], str], elided: Callable[[int], str]) -> str:
    """An extent for people, with a text for each symbol; `elided`: that of an atom that lies deep in it, or is long."""
    if isinstance(a, int):
        return str(a)
    scope, near = a.scope, atoms_in(a)
    for _ in range(DEPTH):
        near |= atoms_in(*[x for n in near for x in scope.operands(n)])
    texts: dict[int, str] = {}

    def name(n: int) -> str:
        return texts[n] if n in texts else elided(n) if scope.operands(n) else leaf(scope.atoms[n])

    for n in sorted(near):
        if scope.operands(n):
            t = definition(scope, n, name)
            texts[n] = t if len(t) <= TEXT else elided(n)
    return written(a, name)


def uses_offset(a: int | Dim) -> bool:
    """Whether the value changes at every run rather than once a trace."""
    return not isinstance(a, int) and any(a.scope.moving[n] for mono, _ in a.terms for n in mono)
