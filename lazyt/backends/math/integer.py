"""Integer and boolean primitives: wrapping, and defined for every operand.

x // 0 and x % 0 are 0, INT_MIN // -1 is INT_MIN, a shift by the width or more (or by a negative
count) shifts everything out. No operand traps and none is poison.
"""

from __future__ import annotations

from lazyt.backends.math.control import outlined, repeat
from lazyt.backends.math.vector import Rule, Rules, Vec, constant, where


def _divide_wide(x: Vec, y: Vec) -> Vec:
    """x/y of 64-bit unsigned integers, y not 0, by double quotients taken a little too small.

    The first leaves less than y + 2**15, the second, of what is left, less than 2*y.
    """
    inverse = (1.0 / y.convert("uitofp", "double")) * (1 - 2.0**-50)
    q = (x.convert("uitofp", "double") * inverse).convert("fptoui", "i64")
    r = x - q * y
    more = (r.convert("uitofp", "double") * inverse).convert("fptoui", "i64")
    left = (r - more * y).compare("uge", y).convert("zext", "i64")
    return q + more + left


def _divide(x: Vec, y: Vec, signed: bool) -> Vec:
    """The truncated quotient of x by y, y neither 0 nor (signed) -1.

    Up to 32 bits by floats of twice as many: |x| + 1/2 over |y| is 1/(2*|y|) or more from any integer, and the product
    with the reciprocal (which is made once for a y that is the same for all x) is off by less.
    """
    if x.bits == 64:
        if not signed:
            return _divide_wide(x, y)
        q = _divide_wide(where(x < 0, 0 - x, x), where(y < 0, 0 - y, y))
        return where((x ^ y) < 0, 0 - q, q)
    element = "float" if x.bits <= 16 else "double"
    up, down = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    half = where(x < 0, -0.5, constant(x.convert(up, element), 0.5)) if signed else 0.5
    return ((x.convert(up, element) + half) * (1.0 / y.convert(up, element))).convert(down, x.element)


def _quotient(x: Vec, y: Vec, signed: bool) -> tuple[Vec, Vec]:
    """Truncated quotient and remainder, both 0 where y is 0."""
    zero = y.eq(0)
    if not signed:
        q = where(zero, constant(x, 0), _divide(x, where(zero, constant(y, 1), y), signed))
        return q, where(zero, constant(x, 0), x - q * y)
    safe = where((y + 1).compare("ult", 2), constant(y, 1), y)
    q = where(y.eq(-1), 0 - x, _divide(x, safe, signed))
    q = where(zero, constant(x, 0), q)
    return q, where(zero, constant(x, 0), x - q * y)


def _floor_quotient(x: Vec, y: Vec) -> tuple[Vec, Vec]:
    q, r = _quotient(x, y, signed=True)
    lower = r.ne(0) & ((r ^ y) < 0)
    return where(lower, q - 1, q), where(lower, r + y, r)


def _pow_unsigned(x: Vec, y: Vec) -> tuple[Vec, ...]:
    """x**y modulo the width, y unsigned, by squaring."""

    def step(r: Vec, base: Vec, e: Vec) -> tuple[tuple[Vec, ...], Vec]:
        r = where((e & 1).ne(0), r * base, r)
        e = e >> 1
        return (r, base * base, e), e.ne(0)

    return repeat((constant(x, 1), x, y), step)[:1]


def _pow(x: Vec, y: Vec) -> Vec:
    return outlined(f"lazyt.pow_unsigned.{x.element}", (x.element,), (x, y), _pow_unsigned)[0]


def _pow_signed(x: Vec, y: Vec) -> Vec:
    """A negative exponent gives 0, but for the bases 1 and -1."""
    negative = y < 0
    unit = (x + 1).compare("ult", 3) & x.ne(0)
    power = _pow(x, where(negative, y & 1, y))
    return where(negative & ~unit, constant(x, 0), power)


def _shift_right(x: Vec, count: Vec) -> Vec:
    return x.ashr(count.intrinsic("umin", x.bits - 1))


def _shift_out(x: Vec, count: Vec, shifted: Vec) -> Vec:
    return where(count.compare("ult", x.bits), shifted, 0)


def _intrinsic(name: str) -> Rule:
    return lambda x, *others: x.intrinsic(name, *others)


def _compare(predicate: str) -> Rule:
    return lambda x, y: x.compare(predicate, y)


_BOTH: Rules = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "neg": lambda x: 0 - x,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "not": lambda x: ~x,
    "eq": _compare("eq"),
    "ne": _compare("ne"),
    "shl": lambda x, y: _shift_out(x, y, x << y),
    "popcount": _intrinsic("ctpop"),
}

SIGNED: Rules = {
    **_BOTH,
    "floordiv": lambda x, y: _floor_quotient(x, y)[0],
    "rem": lambda x, y: _floor_quotient(x, y)[1],
    "fmod": lambda x, y: _quotient(x, y, signed=True)[1],
    "abs": lambda x: where(x < 0, 0 - x, x),
    "sign": lambda x: x.intrinsic("smin", 1).intrinsic("smax", -1),
    "maximum": _intrinsic("smax"),
    "minimum": _intrinsic("smin"),
    "lt": _compare("slt"),
    "le": _compare("sle"),
    "gt": _compare("sgt"),
    "ge": _compare("sge"),
    "shr": _shift_right,
    "pow": _pow_signed,
}

UNSIGNED: Rules = {
    **_BOTH,
    "floordiv": lambda x, y: _quotient(x, y, signed=False)[0],
    "rem": lambda x, y: _quotient(x, y, signed=False)[1],
    "fmod": lambda x, y: _quotient(x, y, signed=False)[1],
    "abs": lambda x: x,
    "sign": lambda x: x.intrinsic("umin", 1),
    "maximum": _intrinsic("umax"),
    "minimum": _intrinsic("umin"),
    "lt": _compare("ult"),
    "le": _compare("ule"),
    "gt": _compare("ugt"),
    "ge": _compare("uge"),
    "shr": lambda x, y: _shift_out(x, y, x >> y),
    "pow": _pow,
}

BOOL: Rules = {
    "add": lambda x, y: x | y,
    "mul": lambda x, y: x & y,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "not": lambda x: x ^ True,
    "maximum": lambda x, y: x | y,
    "minimum": lambda x, y: x & y,
    "eq": _compare("eq"),
    "ne": _compare("ne"),
    "lt": _compare("ult"),
    "le": _compare("ule"),
    "gt": _compare("ugt"),
    "ge": _compare("uge"),
}
