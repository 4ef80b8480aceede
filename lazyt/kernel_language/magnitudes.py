"""Bounds on whole numbers that follow from indices: what may leave 64 bits is refused, since it would wrap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import ScalarRangeError
from lazyt.ir.symbolic import hint
from lazyt.kernel_language.values import Affine, Array

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.symbolic import Dim

LARGEST = 2**63 - 1
# Bounds below this hold for extents of any size that fits in memory with room to spare, so they need no guard.
UNGUARDED = 2**40


def _bits(x: int, y: int) -> int:
    return (1 << max(x.bit_length(), y.bit_length())) - 1 if x or y else 0


# Bounds of results, given those of operands. Of signed numbers a bitwise operation may reach the next power of two.
_RULES: dict[str, Callable[..., int]] = {
    "add": lambda x, y: x + y, "subtract": lambda x, y: x + y, "multiply": lambda x, y: x * y,
    "floor_divide": lambda x, y: x, "remainder": lambda x, y: y, "fmod": lambda x, y: min(x, y),
    "pow": lambda x, y: x ** min(y, 64) if x > 1 else 1,
    "abs": lambda x: x, "negative": lambda x: x, "positive": lambda x: x, "sign": lambda x: 1, "relu": lambda x: x,
    "square": lambda x: x * x, "cube": lambda x: x**3,
    "maximum": max, "minimum": max, "fmax": max, "fmin": max, "clip": max,
    "bitwise_and": lambda x, y: _bits(x, y) + 1, "bitwise_or": lambda x, y: _bits(x, y) + 1,
    "bitwise_xor": lambda x, y: _bits(x, y) + 1, "bitwise_invert": lambda x: x + 1,
    "bitwise_left_shift": lambda x, y: x << min(y, 64), "bitwise_right_shift": lambda x, y: x,
}  # fmt: skip


class Magnitudes:
    """Bounds for one kernel. An extent counts as the next power of two; a plan that relies on that is guarded by it."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.extents: dict[Dim, int] = {}

    def of_extent(self, n: int | Dim) -> int:
        """A bound on the absolute value of an extent."""
        if isinstance(n, int):
            return abs(n)
        return self.extents.setdefault(n, 1 << abs(hint(n)).bit_length())

    def of_position(self, x: Affine) -> int:
        """A bound on an affine number and on its parts; ScalarRangeError beyond 64 bits."""
        return self.checked(self.of_extent(x.offset) + sum(abs(c) * self.of_extent(a.extent) for a, c in x.terms))

    def of_result(self, name: str, xs: Sequence[Any]) -> int | None:
        """A bound on the result of an operation; None if an operand follows from data."""
        sizes = [self._of(x) for x in xs]
        if name not in _RULES or any(s is None for s in sizes):
            return None
        return self.checked(_RULES[name](*sizes))

    def _of(self, x: Any) -> int | None:
        if isinstance(x, Affine):
            return self.of_position(x)
        return abs(int(x)) if isinstance(x, int) else x.magnitude if isinstance(x, Array) else None

    def checked(self, size: int) -> int:
        """The bound, if 64 bits hold it."""
        if size > LARGEST:
            raise ScalarRangeError(
                "integer arithmetic that may leave 64 bits is not supported, because it would wrap: a whole number "
                f"here may be as large as {size:.3g}"
                if size < 10**300
                else "integer arithmetic leaves 64 bits"
            )
        if size >= UNGUARDED:
            for n, most in self.extents.items():
                self.b.at_least(most - n, 0)
        return size
