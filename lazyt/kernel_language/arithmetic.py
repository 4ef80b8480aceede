"""Operations on the values of a kernel: numbers are computed at once, positions stay affine, arrays become nodes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, ScalarRangeError
from lazyt.ir import dtypes
from lazyt.kernel_language.magnitudes import Magnitudes
from lazyt.kernel_language.values import NUMBERS, Affine, Array, Axis, Truth
from lazyt.ops import catalog
from lazyt.ops.definition import OPS, node_of, result_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Dim

assert catalog, "it fills OPS"


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


_ORDER = (bool, int, float, complex)
Interval = tuple["int | Dim", "int | Dim"]
# What is decided within this many places of an end of an index is near it.
NEAR = 64
WIDE = {bool: dtypes.bool_, int: dtypes.int64, float: dtypes.float64, complex: dtypes.complex128}
_PYTHON: dict[str, Callable[..., Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "pow": operator.pow, "negative": operator.neg,
}  # fmt: skip
# Operations that NumPy computes in 64 bits; of Python's integers they are exact.
_INTEGERS: dict[str, Callable[..., int]] = {
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "bitwise_invert": operator.invert, "bitwise_left_shift": operator.lshift, "bitwise_right_shift": operator.rshift,
    "abs": abs, "square": lambda x: x * x, "cube": lambda x: x**3, "maximum": max, "minimum": min,
}  # fmt: skip
SHIFTS = names("bitwise_left_shift bitwise_right_shift")
LONGEST_SHIFT = 4096
_TYPES: dict[str, type | None] = {"b": None, "i": int, "f": float, "c": complex}
# Operations that integers stay integers in; all others take Python's integers as floats.
_WHOLE = names(
    "abs add subtract multiply floor_divide remainder pow negative positive sign square maximum minimum fmax fmin fmod "
    "bitwise_and bitwise_or bitwise_xor bitwise_invert bitwise_left_shift bitwise_right_shift equal not_equal less "
    "less_equal greater greater_equal logical_and logical_or logical_xor logical_not clip cube relu"
)
# Which of two factors depend on an index: the first, the second, both.
_WHOSE = ((True, False), (False, True), (True, True))
# What stands for operands under a condition where it does not hold: the value and the derivative are finite there, so
# that neither spoils a gradient. One number an operand; None: it may stay.
_SAFE: dict[str, tuple[float | None, ...]] = {
    "divide": (None, 1), "floor_divide": (None, 1), "remainder": (None, 1), "fmod": (None, 1), "reciprocal": (1,),
    "sqrt": (1,), "rsqrt": (1,), "pow": (1, 1), "log": (1,), "log2": (1,), "log10": (1,), "log1p": (1,),
    "exp": (0,), "exp2": (0,), "expm1": (0,), "sinh": (0,), "cosh": (0,), "tan": (0,), "asin": (0,), "acos": (0,),
    "atanh": (0,), "acosh": (2,), "hypot": (1, 1), "atan2": (1, 1), "square": (0,), "cube": (0,),
}  # fmt: skip


class Arithmetic:
    """Writes operations on values into a builder; `axes` are the indices and the loops that are open."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.whole = Magnitudes(b)
        self.axes: list[Axis] = []
        self.path: list[Truth] = []  # the conditions under which a statement runs
        self.code = 0  # operations so far
        # Of an index, how far from its ends what is read outside and what conditions say of it is decided.
        self.cuts: dict[Axis, list[int]] = {}

    # Representation

    def array(self, x: Any) -> Array:
        """A value as an array."""
        if isinstance(x, Array):
            return x
        if isinstance(x, Affine):
            return self._positions(x)
        dtype = WIDE[type(x)]
        size = self.whole.checked(abs(int(x))) if isinstance(x, int) else None
        return Array(self.b.constant(x, dtype), 0, _TYPES[dtypes.kind(dtype)], magnitude=size)

    def _positions(self, x: Affine) -> Array:
        b, depth = self.b, len(self.axes)
        size = self.whole.of_position(x)
        total: Node = b.extent(x.offset) if not isinstance(x.offset, int) else b.constant(x.offset, dtypes.int64)
        if not x.terms:
            return Array(total, 0, int, magnitude=size)
        for axis, c in x.terms:
            i = b.iota(tuple(axis.extent if a.place == axis.place else 1 for a in self.axes), axis.place)
            if c != 1:
                i = b.mul(i, b.constant(c, dtypes.int64))
            total = self._added(total, i)
        return Array(total, depth, int, magnitude=size)

    def _added(self, x: Node, y: Node) -> Node:
        if not x.ndim and x.op == "constant" and getattr(x.attrs, "value", None) == 0:
            return y
        return OPS["add"].lower(self.b, x, y)  # type: ignore[return-value]

    def lifted(self, x: Array, node: Node, rows: int) -> Node:
        """Its node with an axis for every open index and loop, and so many rows; a scalar stays one."""
        if not node.ndim:
            return node
        depth = len(self.axes)
        shape = (*node.shape[: x.frame], *(1,) * (depth - x.frame + rows - x.rows), *node.shape[x.frame :])
        return node if len(shape) == node.ndim else self.b.reshape(node, shape)

    def nodes(self, xs: Sequence[Any], floats: bool = False) -> tuple[list[Any], type | None]:
        """Operands of an operation: aligned nodes, and numbers beside them; the Python type if all follow others.

        `floats`: whole numbers of Python's are floats.
        """
        values = [self.array(x) if isinstance(x, Affine) else x for x in xs]
        arrays = [x for x in values if isinstance(x, Array)]
        rows = max((x.rows for x in arrays), default=0)
        strong = [x.dtype for x in arrays if x.weak is None]
        if not strong:
            types = [x.weak if isinstance(x, Array) else type(x) for x in values]
            common = max((t for t in types if t is not None), key=_ORDER.index)
            if floats and common in (bool, int):
                common = float
            found = [self.lifted(y := self.array(x), self.of_dtype(y, WIDE[common]), rows) for x in values]
            return found, common
        d = result_type(*strong)
        out: list[Any] = []
        for x in values:
            if not isinstance(x, Array):
                out.append(_fitting(x, d))
            elif x.weak is None:
                out.append(self.lifted(x, x.node, rows))
            else:
                out.append(self.lifted(x, self.of_dtype(x, dtypes.promote_weak(d, x.weak)), rows))
        return out, None

    def of_dtype(self, x: Array, dtype: np.dtype[Any]) -> Node:
        """Its node in a dtype."""
        return self.b.cast(x.node, dtype) if x.scalar is None else node_of(self.b, x.scalar, dtype)

    # Operations

    def apply(self, name: str, *xs: Any) -> Any:
        """An elementwise operation of lazyt's on values."""
        if all(isinstance(x, NUMBERS) for x in xs):
            return self._number(name, xs)
        if self.path and name in _SAFE:
            xs = tuple(self._safe(x, s) for x, s in zip(xs, _SAFE[name], strict=True))
        self.code += 1
        xs = tuple(self.array(x) if isinstance(x, Affine) else x for x in xs)
        given, weak = self.nodes(xs, floats=name not in _WHOLE)
        node = OPS[name].lower(self.b, *given)
        assert not isinstance(node, tuple), "an elementwise operation has one result"
        if weak is not None:
            weak = _TYPES.get(dtypes.kind(node.dtype))
        size = self.whole.of_result(name, xs) if weak is int else None
        return Array(node, len(self.axes) if node.ndim else 0, weak, magnitude=size)

    def _number(self, name: str, xs: Sequence[Any]) -> Any:
        if name in _INTEGERS and all(type(x) is int for x in xs):
            if name in SHIFTS and not 0 <= xs[1] <= LONGEST_SHIFT:
                raise ScalarRangeError(f"{name}: {xs[1]} places are out of range: 0..{LONGEST_SHIFT}")
            return _INTEGERS[name](*xs)
        if name in _PYTHON:
            try:
                return _PYTHON[name](*xs)
            except ZeroDivisionError:  # as of arrays: an infinity or NaN
                pass
        f: Callable[..., Any] | None = OPS[name].numpy
        wide = [float(x) if name not in _WHOLE and isinstance(x, int) else x for x in xs]
        if f is None:
            return self.array(xs[0]) if len(xs) == 1 else self.apply(name, self.array(xs[0]), *xs[1:])
        with np.errstate(all="ignore"):
            return np.asarray(f(*wide)).item()

    def _safe(self, x: Any, instead: float | None) -> Any:
        """A value where the conditions hold, a harmless number elsewhere."""
        if instead is None or isinstance(x, NUMBERS):
            return x
        kind = dtypes.kind(self.array(x).dtype)
        return x if kind == "b" else self.select(self.condition(), x, int(instead) if kind in "iu" else float(instead))

    def condition(self) -> Truth:
        """All conditions under which the statement runs."""
        whole = self.path[0]
        for c in self.path[1:]:
            whole = self.both(whole, c)
        return whole

    def select(self, c: Truth, x: Any, y: Any) -> Any:
        """x where c holds, y elsewhere."""
        if x is y or (type(x) is type(y) and isinstance(x, NUMBERS) and repr(x) == repr(y)):
            return x
        x, y = (self.array(v) if isinstance(v, Affine) else v for v in (x, y))
        given, weak = self.nodes([x, y])
        rows = max((n.ndim - len(self.axes) for n in given if not isinstance(n, NUMBERS) and n.ndim), default=0)
        node = OPS["where"].lower(self.b, self.lifted(c, c.node, max(rows, c.rows)), *given)
        assert not isinstance(node, tuple), "`where` has one result"
        size = self.whole.of_result("maximum", (x, y)) if weak is int else None
        return Array(node, len(self.axes) if node.ndim else 0, None if weak is bool else weak, magnitude=size)

    # Truths

    def truth(self, x: Any) -> Truth | bool:
        """Whether a value is not 0."""
        if isinstance(x, Truth | bool):
            return x
        if isinstance(x, NUMBERS):
            return bool(x)
        if isinstance(x, Array) and x.dtype == dtypes.bool_:
            return Truth(x.node, x.frame)
        return self.compare("not_equal", x, 0)

    def compare(self, name: str, x: Any, y: Any) -> Truth | bool:
        """A comparison; of positions it is known what follows from it."""
        if all(isinstance(v, NUMBERS) for v in (x, y)):
            return bool(self._number(name, (x, y)))
        if all(isinstance(v, Affine | int) for v in (x, y)):
            return self._positions_compared(name, x, y)
        found = self.apply(name, x, y)
        return Truth(found.node, found.frame)

    def _positions_compared(self, name: str, x: Any, y: Any) -> Truth | bool:
        d = (x if isinstance(x, Affine) else Affine((), x)).plus(y.times(-1) if isinstance(y, Affine) else -y)
        n = d.times(-1)
        facts: dict[str, tuple[tuple[Affine, ...], tuple[Affine, ...]]] = {
            "less": ((n.plus(-1),), (d,)), "less_equal": ((n,), (d.plus(-1),)),
            "greater": ((d.plus(-1),), (n,)), "greater_equal": ((d,), (n.plus(-1),)),
            "equal": ((d, n), ()), "not_equal": ((), (d, n)),
        }  # fmt: skip
        true, false = facts[name]
        known = self._decided(name, d)
        if known is not None:
            return known
        for f in (*true, *false):
            self.cut(f)
        found = self.apply(name, self.array(x), self.array(y))
        return Truth(found.node, found.frame, true, false)

    def _decided(self, name: str, d: Affine) -> bool | None:
        """The comparison of d with 0, if it is the same at all indices: a plan holds only where it is."""
        b = self.b
        low, high = self.range_of_values(d, {})
        if name in ("less", "greater_equal"):
            found = True if b.at_least(low, 0) else False if not b.at_least(high, 0) else None
        elif name in ("greater", "less_equal"):
            found = True if b.at_least(low, 1) else False if not b.at_least(high, 1) else None
        elif not b.at_least(high, 0) or b.at_least(low, 1):
            found = False
        else:
            found = True if b.at_least(low, 0) and not b.at_least(high, 1) else None
        return found if found is None or name in ("greater", "greater_equal", "equal") else not found

    def range_of_values(self, p: Affine, ranges: dict[Axis, Interval]) -> Interval:
        """The least and the largest value of a position; of some indices the ranges are known."""
        low = high = p.offset
        for axis, c in p.terms:
            first, last = ranges.get(axis, (0, axis.extent - 1))
            low, high = low + (first if c > 0 else last) * c, high + (last if c > 0 else first) * c
        return low, high

    def cut(self, fact: Affine) -> None:
        """Note where along an index it changes whether a position is at least 0, if that is near an end."""
        if len(fact.terms) != 1 or abs(fact.terms[0][1]) != 1:
            return
        axis, c = fact.terms[0]
        at = -fact.offset if c == 1 else fact.offset + 1
        left = axis.extent - at
        found = self.cuts.setdefault(axis, [0, 0])
        if isinstance(at, int) and at <= NEAR:
            found[0] = max(found[0], at)
        elif isinstance(left, int) and left <= NEAR:
            found[1] = max(found[1], left)

    def both(self, x: Truth, y: Truth) -> Truth:
        """Whether both hold."""
        found = self.apply("logical_and", x, y)
        return Truth(found.node, found.frame, (*x.true, *y.true))

    def either(self, x: Truth, y: Truth) -> Truth:
        """Whether one holds."""
        found = self.apply("logical_or", x, y)
        return Truth(found.node, found.frame, (), (*x.false, *y.false))

    def opposite(self, x: Truth) -> Truth:
        """Whether it does not hold."""
        found = self.apply("logical_not", x)
        return Truth(found.node, found.frame, x.false, x.true)

    # Reductions

    def reduce(self, name: str, x: Array) -> Array:
        """Over the innermost loop, whose axis goes. The value may have rows."""
        axis = len(self.axes) - 1
        node = self.lifted(x, x.node, x.rows)
        if not node.ndim:
            node = self.b.expand_to(node, tuple(1 for _ in self.axes))
        shape = tuple(self.axes[axis].extent if i == axis else d for i, d in enumerate(node.shape))
        if name == "sum" and not x.rows and (product := self._product(node)) is not None:
            return Array(product, axis, x.weak)
        found = self._reduced(name, self.b.expand(node, shape), axis, axis, x.weak)
        if name == "sum" and x.magnitude is not None:
            found.magnitude = self.whole.of_result("multiply", (x, Affine((), self.axes[axis].extent)))
        return found

    def _product(self, n: Node) -> Node | None:
        """The sum of n over its last axis as a matrix product; None unless n is one of two factors that it is of."""
        if n.op != "mul" or n.dtype not in (dtypes.float32, dtypes.float64):
            return None
        x, y = (m.operands[0] if m.op == "expand" else m for m in n.operands)
        if x.ndim != n.ndim or y.ndim != n.ndim:
            return None
        has = [[not (isinstance(d, int) and d == 1) for d in m.shape] for m in (x, y)]
        last = n.ndim - 1
        of_x, of_y, of_both = ([i for i in range(last) if (has[0][i], has[1][i]) == w] for w in _WHOSE)
        if not (has[0][last] and has[1][last] and len(of_x) == len(of_y) == 1):
            return None
        b = self.b
        one = [i for i in range(last) if i not in (*of_x, *of_y, *of_both)]
        p, q = (
            b.reshape(b.permute(m, (*one, *of_both, *own, *other, *end)), tuple(m.shape[i] for i in (*of_both, *keep)))
            for m, own, other, end, keep in (
                (x, of_x, of_y, (last,), (*of_x, last)),
                (y, of_x, (last,), of_y, (last, *of_y)),
            )
        )
        z = b.matmul(p, q)
        order = (*of_both, *of_x, *of_y)
        z = b.permute(z, [order.index(i) for i in sorted(order)])
        at = iter(z.shape)
        return b.reshape(z, tuple(1 if i in one else next(at) for i in range(last)))

    def reduce_rows(self, name: str, x: Array) -> Array:
        """Over all axes that the value has at an index."""
        return self._reduced(name, x.node, tuple(range(x.frame, x.node.ndim)), x.frame, x.weak)

    def _reduced(self, name: str, node: Node, axes: Any, frame: int, weak: type | None) -> Array:
        if name in ("argmax", "argmin") and isinstance(axes, tuple):
            if len(axes) > 1:
                raise DTypeError(f"{name}: a value of one axis is required, got one of {len(axes)}")
            axes = axes[0]
        statics = (axes, None, False) if name in ("sum", "prod", "mean") else (axes, False)
        out = OPS[name].lower(self.b, node, *statics)
        assert not isinstance(out, tuple), "a reduction has one result"
        return Array(out, frame if out.ndim else 0, None if weak is None else _TYPES.get(dtypes.kind(out.dtype)))


def identity(name: str, dtype: np.dtype[Any]) -> Any:
    """What a reduction leaves as it is."""
    if name in ("sum", "any"):
        return False if name == "any" else 0
    if name in ("prod", "all"):
        return True if name == "all" else 1
    kind = dtypes.kind(dtype)
    low = -float("inf") if kind == "f" else False if kind == "b" else int(np.iinfo(dtype).min)
    high = float("inf") if kind == "f" else True if kind == "b" else int(np.iinfo(dtype).max)
    return low if name == "max" else high


def _fitting(x: Any, dtype: np.dtype[Any]) -> Any:
    """A Python number; ScalarRangeError for one that the integers it meets cannot hold."""
    if type(x) is int and dtypes.kind(dtype) in "iu":
        held = np.iinfo(dtype)
        if not held.min <= x <= held.max:
            raise ScalarRangeError(f"Python integer {x} is out of range: {dtype} holds {held.min}..{held.max}")
    return x
