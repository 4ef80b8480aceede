"""The value of an expression of a kernel."""

from __future__ import annotations

import ast
import types
from typing import TYPE_CHECKING, Any, NoReturn

from lazyt.errors import DTypeError, IndexOutOfRange, LazytError, ShapeError
from lazyt.ir import dtypes
from lazyt.kernel_language.reads import OutOfBounds, Reads
from lazyt.kernel_language.source import MISSING, Source
from lazyt.kernel_language.values import NUMBERS, Affine, Array, Carried, ReadInLoop, Truth, Unset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyt.ir.builder import Builder

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder", ast.Pow: "pow", ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or", ast.BitXor: "bitwise_xor",
    ast.LShift: "bitwise_left_shift", ast.RShift: "bitwise_right_shift", ast.USub: "negative", ast.UAdd: "positive",
    ast.Invert: "bitwise_invert", ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal",
    ast.Eq: "equal", ast.NotEq: "not_equal",
}  # fmt: skip


class Expressions(Reads):
    """Evaluates expressions of one function; `numbers` are those from outside, as they were at the call."""

    def __init__(self, b: Builder, source: Source, bounds: str, numbers: Mapping[tuple[Source, str], Any]) -> None:
        super().__init__(b, bounds)
        self.source = source
        self.numbers = numbers
        self.variables: dict[str, Any] = {}
        self.depth = 0

    def value(self, n: ast.AST) -> Any:
        """The value of an expression; errors of operations name its line."""
        try:
            return getattr(self, f"_{type(n).__name__.lower()}")(n)
        except LazytError as e:
            if "\n  File " in str(e):
                raise
            raise type(e)(f"kernel {self.source.name}: {e}\n{self.source.place(n)}") from None

    def fail(self, n: ast.AST, what: str, why: str) -> NoReturn:
        """NotSupportedError at a construct."""
        self.source.fail(n, what, why)

    def number_or_array(self, n: ast.AST) -> Any:
        """The value of an expression that is not a tuple."""
        x = self.value(n)
        if isinstance(x, tuple):
            self.fail(n, "arithmetic on a tuple", "values are numbers and arrays; take its parts by `a, b = ...`")
        return x

    # Names and constants

    def _constant(self, n: ast.Constant) -> Any:
        return n.value

    def _name(self, n: ast.Name) -> Any:
        if n.id not in self.source.local:
            found = self._outside(n)
            if type(found) in NUMBERS:
                return self.numbers.get((self.source, n.id), found)
            what = "a module" if isinstance(found, types.ModuleType) else f"{n.id!r}, a {type(found).__name__}"
            self.fail(n, what, "values from outside are numbers; make it an argument")
        x = self.variables.get(n.id, Unset("it is set later"))
        if isinstance(x, Unset):
            self.fail(n, f"{n.id!r} here", x.why)
        if isinstance(x, Carried):
            raise ReadInLoop(n.id, n)
        return x

    def _outside(self, n: ast.Name | ast.Attribute) -> Any:
        """The object that a name, or an attribute of a module, stands for."""
        if isinstance(n, ast.Name):
            found = self.source.outside(n.id)
            if found is MISSING:
                self.fail(n, f"{n.id!r}", "nothing has that name")
            return found
        of = self._outside(n.value) if isinstance(n.value, ast.Name | ast.Attribute) else None
        if not isinstance(of, types.ModuleType | type):
            self.fail(n, f"the attribute {n.attr!r}", "what has attributes are modules and arrays")
        found = getattr(of, n.attr, MISSING)
        if found is MISSING:
            self.fail(n, f"{n.attr!r}", f"{of.__name__} has no such name")
        return found

    def _is_variable(self, n: ast.AST) -> bool:
        """Whether an expression begins with a variable, an argument or a computed value."""
        while isinstance(n, ast.Attribute):
            n = n.value
        return not isinstance(n, ast.Name) or n.id in self.source.local

    def _attribute(self, n: ast.Attribute) -> Any:
        if not self._is_variable(n):
            found = self._outside(n)
            if type(found) not in NUMBERS:
                self.fail(n, f"{ast.unparse(n)!r}, a {type(found).__name__}", "values from outside are numbers")
            return found
        x = self.value(n.value)
        if not isinstance(x, Array) or n.attr not in ("shape", "ndim", "real", "imag"):
            self.fail(n, f"the attribute {n.attr!r}", "arrays have shape, ndim, real and imag")
        if n.attr == "shape":
            return tuple(Affine((), d) for d in x.node.shape[x.frame :])
        return x.rows if n.attr == "ndim" else self.apply(n.attr, x)

    def _tuple(self, n: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self.value(e) for e in n.elts)

    # Operators

    def _binop(self, n: ast.BinOp) -> Any:
        return self.binary(n, n.op, self.number_or_array(n.left), self.number_or_array(n.right))

    def binary(self, n: ast.AST, op: ast.operator, x: Any, y: Any) -> Any:
        """The result of an operator; sums and multiples of positions stay positions."""
        if type(op) not in _OPERATORS:
            self.fail(n, "`@`", "a kernel computes one element; write sum(a[i, k] * b[k, j] for k in range(n))")
        whole = isinstance(x, Affine | int) and isinstance(y, Affine | int) and not isinstance(x, bool)
        if whole and not (isinstance(x, int) and isinstance(y, int)):
            p, q = (v if isinstance(v, Affine) else Affine((), v) for v in (x, y))
            if isinstance(op, ast.Add):
                return p.plus(q)
            if isinstance(op, ast.Sub):
                return p.plus(q.times(-1))
            if isinstance(op, ast.Mult) and isinstance(x, int):
                return q.times(x)
            if isinstance(op, ast.Mult) and isinstance(y, int):
                return p.times(y)
            if isinstance(op, ast.FloorDiv) and isinstance(y, int) and y > 0 and not p.terms:
                return Affine((), p.offset // y)
        return self.apply(_OPERATORS[type(op)], x, y)

    def _unaryop(self, n: ast.UnaryOp) -> Any:
        if isinstance(n.op, ast.Not):
            c = self.truth(self._truth_value(n.operand))
            return not c if isinstance(c, bool) else self.opposite(c)
        x = self.number_or_array(n.operand)
        if isinstance(x, Affine) and isinstance(n.op, ast.USub):
            return x.times(-1)
        return self.apply(_OPERATORS[type(n.op)], x)

    def _compare(self, n: ast.Compare) -> Any:
        found: Truth | bool = True
        left = self.number_or_array(n.left)
        for op, node in zip(n.ops, n.comparators, strict=True):
            if type(op) not in _OPERATORS:
                self.fail(n, f"`{ast.unparse(n)}`", "comparisons are of numbers: <, <=, ==, !=, >, >=")
            right = self.number_or_array(node)
            c = self.compare(_OPERATORS[type(op)], left, right)
            found = self._both(found, c)
            left = right
        return found

    def _both(self, x: Truth | bool, y: Truth | bool) -> Truth | bool:
        if isinstance(x, bool):
            return y if x else False
        if isinstance(y, bool):
            return x if y else False
        return self.both(x, y)

    def _truth_value(self, n: ast.AST) -> Any:
        x = self.number_or_array(n)
        if isinstance(x, Affine):
            return self.compare("not_equal", x, 0)
        return x

    def condition_of(self, n: ast.AST) -> Truth | bool:
        """The value of a condition, one for each index."""
        c = self.truth(self._truth_value(n))
        if isinstance(c, Truth) and c.rows:
            self.fail(n, "a condition of several truths", "a row has one for each element; use where(c, x, y)")
        return c

    def _boolop(self, n: ast.BoolOp) -> Any:
        is_and = isinstance(n.op, ast.And)
        found: Truth | bool = is_and
        opened = 0
        try:
            for node in n.values:
                x = self._truth_value(node)
                if not isinstance(x, bool | Truth) and not (isinstance(x, Array) and x.dtype == dtypes.bool_):
                    self.fail(node, f"`{'and' if is_and else 'or'}` of numbers", "it is of truths; compare with 0")
                c = self.truth(x)
                if isinstance(found, bool):
                    found = c if found == is_and else found
                elif isinstance(c, bool):
                    found = found if c == is_and else c
                else:
                    found = self.both(found, c) if is_and else self.either(found, c)
                if isinstance(found, bool) and found != is_and:
                    return found
                if isinstance(c, Truth):  # what follows is read only where this decides nothing
                    self.path.append(c if is_and else self.opposite(c))
                    opened += 1
        finally:
            del self.path[len(self.path) - opened :]
        return found

    def _ifexp(self, n: ast.IfExp) -> Any:
        c = self.condition_of(n.test)
        if isinstance(c, bool):
            return self.value(n.body if c else n.orelse)
        x = self.under(c, n.body)
        return self.chosen(n, c, x, self.under(self.opposite(c), n.orelse))

    def under(self, c: Truth, n: ast.AST) -> Any:
        """The value of an expression where a condition holds."""
        self.path.append(c)
        try:
            return self.value(n)
        finally:
            self.path.pop()

    def chosen(self, n: ast.AST, c: Truth, x: Any, y: Any) -> Any:
        """x where c holds, y elsewhere: values or tuples of as many."""
        if isinstance(x, tuple) or isinstance(y, tuple):
            if not (isinstance(x, tuple) and isinstance(y, tuple) and len(x) == len(y)):
                self.fail(n, "a choice between tuples", "both sides need the same number of values")
            return tuple(self.chosen(n, c, p, q) for p, q in zip(x, y, strict=True))
        if isinstance(x, Unset) or isinstance(y, Unset):
            return x if isinstance(x, Unset) else y
        return self.select(c, x, y)

    # Reading

    def _subscript(self, n: ast.Subscript) -> Any:
        x = self.value(n.value)
        elements = n.slice.elts if isinstance(n.slice, ast.Tuple) else [n.slice]
        if isinstance(x, tuple):
            k = self.value(elements[0])
            if len(elements) != 1 or type(k) is not int or not -len(x) <= k < len(x):
                self.fail(n, f"`{ast.unparse(n)}`", f"a tuple of {len(x)} is read at a constant")
            return x[k]
        if not isinstance(x, Array):
            self.fail(n, f"`{ast.unparse(n)}`", f"{ast.unparse(n.value)} is a number")
        if len(elements) > x.rows:
            self.source.refuse(
                n, ShapeError, f"{ast.unparse(n)}: {len(elements)} indices for an array of {x.rows} dimensions"
            )
        index: list[Any] = []
        for e in elements:
            if isinstance(e, ast.Slice):
                if e.lower or e.upper or e.step:
                    self.fail(e, "a part of an axis", "a whole axis is read, by `:`, or an element")
                index.append(None)
                continue
            i = self.number_or_array(e)
            if isinstance(i, bool | float | complex):
                self.source.refuse(e, DTypeError, f"an index is a whole number, got {i!r}")
            index.append(i)
        if not elements or all(i is None for i in index):
            return x
        self.reading = f"{ast.unparse(n)} at {self.source.file}:{self.source.line_of(n)}"
        try:
            return self.read(x, index)
        except OutOfBounds as e:
            what = f"{ast.unparse(n)}: {e}; give the shape, a condition, or lt.kernel(bounds=...)"
            self.source.refuse(n, IndexOutOfRange, what)
