"""Vectors as Python values: an expression over `Vec` appends its instructions to the body it came from.

`+ - * /` are the plain IEEE or wrapping operations, without any flag; `< <= > >=` are signed or
ordered comparisons; `>>` shifts in zeros. A Python number stands for a splat. Nothing is folded.
Instructions and predicates have LLVM's names and meaning; how they are spelled is the body's affair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from lazyt.backends.math.elements import FLOAT_BITS, Number

if TYPE_CHECKING:
    from collections.abc import Sequence


class Writer(Protocol):
    """The body of a function being written by one backend: each method appends, and gives the result's name.

    An operand is a name or a spelled constant; its type is that of the Vec `like`, or of `x`.
    """

    @property
    def native_half(self) -> bool:
        """Whether `convert` knows float16; else rules spell it out in integers."""

    @property
    def native_bfloat(self) -> bool:
        """Whether the machine has `round_bfloat`, the bits of a float32 rounded to bfloat16."""

    @property
    def native_scale(self) -> bool:
        """Whether the machine has `scale`, a float times a power of two."""

    def splat(self, element: str, value: Number, lanes: int) -> str: ...
    def binary(self, opcode: str, like: Vec, a: str, b: str) -> str: ...
    def negate(self, x: Vec) -> str: ...
    def compare(self, predicate: str, x: Vec, other: str) -> str: ...
    def convert(self, opcode: str, x: Vec, element: str) -> str: ...
    def saturate(self, x: Vec, element: str, signed: bool) -> str: ...
    def intrinsic(self, name: str, x: Vec, others: Sequence[str]) -> str: ...
    def multiply_high(self, x: Vec, other: str) -> str: ...
    def scale(self, x: Vec, exponent: str) -> str: ...
    def round_bfloat(self, x: Vec) -> str: ...
    def select(self, condition: Vec, like: Vec, a: str, b: str) -> str: ...
    def any(self, x: Vec) -> str: ...
    def table(self, symbol: str, words: Sequence[int], index: Vec) -> str: ...
    def rarely(self, condition: Vec, usual: Vecs, write: Callable[[], Vecs]) -> Vecs: ...
    def repeat(self, start: Vecs, step: Callable[..., tuple[Vecs, Vec]], times: int) -> Vecs: ...
    def each_lane(self, x: Vec, results: Sequence[str], write: Callable[[Vec], Vecs]) -> Vecs: ...
    def outlined(
        self, symbol: str, results: Sequence[str], operands: Vecs, write: Callable[..., Vecs], cold: bool
    ) -> Vecs: ...


class Vec:
    """One SSA value; `lanes` 0 is a scalar."""

    __slots__ = ("body", "element", "lanes", "name")

    def __init__(self, body: Writer, name: str, element: str, lanes: int) -> None:
        self.body = body
        self.name = name
        self.element = element
        self.lanes = lanes

    @property
    def bits(self) -> int:
        return FLOAT_BITS.get(self.element) or int(self.element[1:])

    @property
    def is_float(self) -> bool:
        return self.element in FLOAT_BITS

    def operand(self, other: Vec | Number) -> str:
        """`other` as an operand of this vector's type."""
        if isinstance(other, Vec):
            same = (other.element, other.lanes) == (self.element, self.lanes)
            assert same, f"{self.lanes} {self.element} meet {other.lanes} {other.element}"
            return other.name
        return self.body.splat(self.element, other, self.lanes)

    def renamed(self, name: str) -> Vec:
        """Another value of this type."""
        return Vec(self.body, name, self.element, self.lanes)

    def binary(self, opcode: str, other: Vec | Number) -> Vec:
        """Any LLVM instruction of two operands of this type."""
        return self.renamed(self.body.binary(opcode, self, self.name, self.operand(other)))

    def _rop(self, opcode: str, other: Number) -> Vec:
        return self.renamed(self.body.binary(opcode, self, self.operand(other), self.name))

    def __add__(self, other: Vec | Number) -> Vec:
        return self.binary("fadd" if self.is_float else "add", other)

    def __sub__(self, other: Vec | Number) -> Vec:
        return self.binary("fsub" if self.is_float else "sub", other)

    def __rsub__(self, other: Number) -> Vec:
        return self._rop("fsub" if self.is_float else "sub", other)

    def __mul__(self, other: Vec | Number) -> Vec:
        return self.binary("fmul" if self.is_float else "mul", other)

    def __truediv__(self, other: Vec | Number) -> Vec:
        return self.binary("fdiv", other)

    def __rtruediv__(self, other: Number) -> Vec:
        return self._rop("fdiv", other)

    def __neg__(self) -> Vec:
        return self.renamed(self.body.negate(self)) if self.is_float else 0 - self

    def __and__(self, other: Vec | Number) -> Vec:
        return self.binary("and", other)

    def __or__(self, other: Vec | Number) -> Vec:
        return self.binary("or", other)

    def __xor__(self, other: Vec | Number) -> Vec:
        return self.binary("xor", other)

    def __invert__(self) -> Vec:
        return self.binary("xor", -1)

    def __lshift__(self, other: Vec | Number) -> Vec:
        return self.binary("shl", other)

    def __rshift__(self, other: Vec | Number) -> Vec:
        return self.binary("lshr", other)

    def ashr(self, other: Vec | Number) -> Vec:
        """Shift right, copies of the sign coming in."""
        return self.binary("ashr", other)

    def compare(self, predicate: str, other: Vec | Number) -> Vec:
        """An i1 vector; `predicate` is LLVM's (olt, une, ult, slt, ...)."""
        return Vec(self.body, self.body.compare(predicate, self, self.operand(other)), "i1", self.lanes)

    def __lt__(self, other: Vec | Number) -> Vec:
        return self.compare("olt" if self.is_float else "slt", other)

    def __le__(self, other: Vec | Number) -> Vec:
        return self.compare("ole" if self.is_float else "sle", other)

    def __gt__(self, other: Vec | Number) -> Vec:
        return self.compare("ogt" if self.is_float else "sgt", other)

    def __ge__(self, other: Vec | Number) -> Vec:
        return self.compare("oge" if self.is_float else "sge", other)

    def eq(self, other: Vec | Number) -> Vec:
        return self.compare("oeq" if self.is_float else "eq", other)

    def ne(self, other: Vec | Number) -> Vec:
        """Not equal; true for NaN, as in IEEE."""
        return self.compare("une" if self.is_float else "ne", other)

    def isnan(self) -> Vec:
        return self.compare("uno", self)

    def convert(self, opcode: str, element: str) -> Vec:
        """One of LLVM's conversions (fpext, trunc, sitofp, bitcast, ...) to another element."""
        return Vec(self.body, self.body.convert(opcode, self, element), element, self.lanes)

    def saturate(self, element: str, signed: bool) -> Vec:
        """A float truncated to an integer element, at its ends where it is outside; NaN is 0."""
        return Vec(self.body, self.body.saturate(self, element, signed), element, self.lanes)

    def as_int(self) -> Vec:
        """The bits of a float."""
        return self.convert("bitcast", f"i{self.bits}")

    def as_float(self) -> Vec:
        """The IEEE float with these bits."""
        element = {16: "half", 32: "float", 64: "double"}[self.bits]
        return self.convert("bitcast", element)

    def intrinsic(self, name: str, *others: Vec | Number) -> Vec:
        """`llvm.name` over this vector and operands of the same type."""
        return self.renamed(self.body.intrinsic(name, self, [self.operand(o) for o in others]))

    def multiply_high(self, other: Vec) -> Vec:
        """The high 64 bits of the product of two unsigned i64."""
        return self.renamed(self.body.multiply_high(self, self.operand(other)))

    def any(self) -> str:
        """The condition that a lane of this i1 vector is true."""
        assert self.element == "i1"
        return self.body.any(self)


Vecs = tuple[Vec, ...]
# How one op is written: its operands in, its result out.
Rule = Callable[..., Vec]
Rules = dict[str, Rule]


def where(condition: Vec, chosen: Vec | Number, other: Vec | Number) -> Vec:
    """`chosen` in the lanes where `condition` holds, else `other`; at most one is a number."""
    like = chosen if isinstance(chosen, Vec) else other
    assert isinstance(like, Vec), "one of the two must be a vector"
    return like.renamed(like.body.select(condition, like, like.operand(chosen), like.operand(other)))


def fma(a: Vec, b: Vec | Number, c: Vec | Number) -> Vec:
    """a * b + c with one rounding, on every host."""
    return a.intrinsic("fma", b, c)


def fabs(x: Vec) -> Vec:
    return x.intrinsic("fabs")


def copysign(x: Vec, sign: Vec) -> Vec:
    return x.intrinsic("copysign", sign)


def sqrt(x: Vec) -> Vec:
    return x.intrinsic("sqrt")


def horner(x: Vec, coefficients: Sequence[float]) -> Vec:
    """The polynomial in `x`, coefficients from the highest power down, at least two of them."""
    p: Vec | float = coefficients[0]
    for c in coefficients[1:]:
        p = fma(x, p, c)
    assert isinstance(p, Vec)
    return p


def estrin(x: Vec, coefficients: Sequence[float]) -> Vec:
    """The same by pairs, then pairs of pairs in x**2, x**4, ...: a shorter chain, less exact.

    Faster from ten coefficients on; for where the last bits of the polynomial do not matter.
    """
    terms: list[Vec | float] = list(reversed(coefficients))
    power = x
    while len(terms) > 2:
        pairs = [terms[i : i + 2] for i in range(0, len(terms), 2)]
        terms = [fma(power, p[1], p[0]) if len(p) == 2 else p[0] for p in pairs]
        power = power * power
    low, high = terms
    return fma(power, high, low)


def constant(like: Vec, value: Number) -> Vec:
    """`value` in every lane, of the type of `like`: an operand that needs no instruction."""
    return like.renamed(like.operand(value))
