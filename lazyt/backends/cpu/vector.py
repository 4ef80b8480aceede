"""Vectors as Python values: an expression over `Vec` appends its LLVM IR to the body it came from.

`+ - * /` are the plain IEEE or wrapping operations, without any flag; `< <= > >=` are signed or
ordered comparisons; `>>` shifts in zeros. A Python number stands for a splat. Nothing is folded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lazyt.backends.cpu.text import Number, vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.cpu.text import Body

FLOAT_BITS = {"half": 16, "float": 32, "double": 64}
_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}


class Vec:
    """One SSA value; `lanes` 0 is a scalar."""

    __slots__ = ("body", "element", "lanes", "name", "type")

    def __init__(self, body: Body, name: str, element: str, lanes: int) -> None:
        self.body = body
        self.name = name
        self.element = element
        self.lanes = lanes
        self.type = vector(element, lanes)

    @property
    def bits(self) -> int:
        return FLOAT_BITS.get(self.element) or int(self.element[1:])

    @property
    def is_float(self) -> bool:
        return self.element in FLOAT_BITS

    def operand(self, other: Vec | Number) -> str:
        """`other` as an operand of this vector's type."""
        if isinstance(other, Vec):
            assert other.type == self.type, f"{self.type} meets {other.type}"
            return other.name
        return self.body.splat(self.element, other, self.lanes)

    def renamed(self, name: str) -> Vec:
        """Another value of this type."""
        return Vec(self.body, name, self.element, self.lanes)

    def _new(self, rhs: str, element: str | None = None) -> Vec:
        return Vec(self.body, self.body.let(rhs), element or self.element, self.lanes)

    def binary(self, opcode: str, other: Vec | Number) -> Vec:
        """Any LLVM instruction of two operands of this type."""
        return self._new(f"{opcode} {self.type} {self.name}, {self.operand(other)}")

    def _rop(self, opcode: str, other: Number) -> Vec:
        return self._new(f"{opcode} {self.type} {self.operand(other)}, {self.name}")

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
        return self._new(f"fneg {self.type} {self.name}") if self.is_float else 0 - self

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
        opcode = "fcmp" if self.is_float else "icmp"
        text = f"{opcode} {predicate} {self.type} {self.name}, {self.operand(other)}"
        return self._new(text, "i1")

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
        return self._new(f"{opcode} {self.type} {self.name} to {vector(element, self.lanes)}", element)

    def as_int(self) -> Vec:
        """The bits of a float."""
        return self.convert("bitcast", f"i{self.bits}")

    def as_float(self) -> Vec:
        """The IEEE float with these bits."""
        element = {16: "half", 32: "float", 64: "double"}[self.bits]
        return self.convert("bitcast", element)

    def intrinsic(self, name: str, *others: Vec | Number) -> Vec:
        """`llvm.name` over this vector and operands of the same type."""
        return Vec(self.body, self._call(name, self.type, others), self.element, self.lanes)

    def any(self) -> str:
        """The i1 that is true when a lane of this i1 vector is."""
        assert self.element == "i1"
        if not self.lanes:
            return self.name
        return self.body.call("i1", f"llvm.vector.reduce.or.v{self.lanes}i1", (self.type, self.name))

    def _call(self, name: str, result: str, others: Sequence[Vec | Number]) -> str:
        count = f"v{self.lanes}" if self.lanes else ""
        symbol = f"llvm.{name}.{count}{_SUFFIX.get(self.element, self.element)}"
        operands = [(self.type, self.name), *((self.type, self.operand(o)) for o in others)]
        return self.body.call(result, symbol, *operands)


# How one op is written: its operands in, its result out.
Rule = Callable[..., Vec]
Rules = dict[str, Rule]


def where(condition: Vec, chosen: Vec | Number, other: Vec | Number) -> Vec:
    """`chosen` in the lanes where `condition` holds, else `other`; at most one is a number."""
    like = chosen if isinstance(chosen, Vec) else other
    assert isinstance(like, Vec), "one of the two must be a vector"
    a, b = like.operand(chosen), like.operand(other)
    body = like.body
    text = f"select {condition.type} {condition.name}, {like.type} {a}, {like.type} {b}"
    return Vec(body, body.let(text), like.element, like.lanes)


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
    return Vec(like.body, like.operand(value), like.element, like.lanes)
