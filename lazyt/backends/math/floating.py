"""Float arithmetic, comparison, rounding and bits: IEEE operations as they stand, without flags.

`maximum` and `minimum` give NaN when an operand is NaN, and order -0 below +0. `sign` of a zero is
+0, as NumPy's. The bit rules take any IEEE-like format by its bits (`Bits`), so that float16 and
bfloat16 need no detour through float32.
"""

from __future__ import annotations

from lazyt.backends.math.vector import Rule, Rules, Vec, constant, copysign, fabs, sqrt, where
from lazyt.ir import dtypes
from lazyt.ir.records import dataclass


def sign(x: Vec) -> Vec:
    """-1, +0 or 1; a NaN stays NaN."""
    return where(x > 0, constant(x, 1.0), where(x < 0, constant(x, -1.0), x + 0.0))


def rsqrt(x: Vec) -> Vec:
    return 1.0 / sqrt(x)


def _intrinsic(name: str) -> Rule:
    return lambda x, *others: x.intrinsic(name, *others)


def _compare(predicate: str) -> Rule:
    return lambda x, y: x.compare(predicate, y)


ARITHMETIC: Rules = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "neg": lambda x: -x,
    "abs": fabs,
    "copysign": copysign,
    "isnan": lambda x: x.isnan(),
    "isinf": lambda x: fabs(x).eq(float("inf")),
    "isfinite": lambda x: fabs(x) < float("inf"),
    "maximum": _intrinsic("maximum"),
    "minimum": _intrinsic("minimum"),
    "sign": sign,
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
    "trunc": _intrinsic("trunc"),
    "round": _intrinsic("roundeven"),
    "eq": _compare("oeq"),
    "ne": _compare("une"),
    "lt": _compare("olt"),
    "le": _compare("ole"),
    "gt": _compare("ogt"),
    "ge": _compare("oge"),
}


@dataclass(frozen=True, slots=True)
class Bits:
    """Rules on the bits of a format whose infinity has the bits `inf`."""

    inf: int
    sign: int

    def neg(self, x: Vec) -> Vec:
        return x ^ self.sign

    def abs(self, x: Vec) -> Vec:
        return x & (self.sign - 1)

    def copysign(self, x: Vec, y: Vec) -> Vec:
        return self.abs(x) | (y & self.sign)

    def isnan(self, x: Vec) -> Vec:
        return self.abs(x) > self.inf

    def isinf(self, x: Vec) -> Vec:
        return self.abs(x).eq(self.inf)

    def isfinite(self, x: Vec) -> Vec:
        return self.abs(x) < self.inf

    def signbit(self, x: Vec) -> Vec:
        return x < 0

    def nextafter(self, x: Vec, y: Vec) -> Vec:
        """The neighbour of x toward y; y when they are equal, NaN when one is."""
        ax, ay = self.abs(x), self.abs(y)
        # Bits as integers in the floats' order: +0 and -0 are both 0.
        kx, ky = where(x < 0, 0 - ax, ax), where(y < 0, 0 - ay, ay)
        step = where(kx < ky, constant(kx, 1), -1)
        moved = kx + step
        # Past a zero the sign is the direction's.
        negative = where(kx.eq(0), step, kx) < 0
        size = where(moved < 0, 0 - moved, moved)
        near = where(negative, size | self.sign, size)
        r = where(kx.eq(ky), y, near)
        quiet = (self.inf & -self.inf) >> 1
        r = where(ay > self.inf, y | quiet, r)
        return where(ax > self.inf, x | quiet, r)


BITS = {d.name: Bits(dtypes.of(d).top, dtypes.of(d).sign) for d in dtypes.ALL if dtypes.kind(d) == "f"}
# Every format has these; float16 and bfloat16 have the rest of the methods from here too.
BIT_RULES = ("signbit", "nextafter")
NARROW_BIT_RULES = (*BIT_RULES, "neg", "abs", "copysign", "isnan", "isinf", "isfinite")
