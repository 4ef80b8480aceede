"""The value of an expression of a kernel."""

from __future__ import annotations

import ast
import inspect
import types
from typing import TYPE_CHECKING, Any, NoReturn

from lazyt.errors import DTypeError, IndexOutOfRange, LazytError, ShapeError
from lazyt.ir import dtypes
from lazyt.kernel_language import calls
from lazyt.kernel_language.arithmetic import identity
from lazyt.kernel_language.reads import OutOfBounds, Reads
from lazyt.kernel_language.source import MISSING, Source, source_of
from lazyt.kernel_language.values import NUMBERS, Affine, Array, Axis, Carried, ReadInLoop, Truth, Unset
from lazyt.ops.definition import OPS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyt.ir.builder import Builder
    from lazyt.ir.symbolic import Dim

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder", ast.Pow: "pow", ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or", ast.BitXor: "bitwise_xor",
    ast.LShift: "bitwise_left_shift", ast.RShift: "bitwise_right_shift", ast.USub: "negative", ast.UAdd: "positive",
    ast.Invert: "bitwise_invert", ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal",
    ast.Eq: "equal", ast.NotEq: "not_equal",
}  # fmt: skip
# A loop over this many numbers at most is written out.
UNROLLED = 64
# How deep functions that a kernel calls may call others.
DEEPEST = 16
_METHODS = (*calls.FOLDS, "astype")


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
        try:
            return self.read(x, index)
        except OutOfBounds as e:
            what = f"{ast.unparse(n)}: {e}; give the shape, a condition, or lt.kernel(bounds=...)"
            self.source.refuse(n, IndexOutOfRange, what)

    # Calls

    def _call(self, n: ast.Call) -> Any:
        if isinstance(n.func, ast.Attribute) and self._is_variable(n.func):
            return self._method(n, n.func)
        if not isinstance(n.func, ast.Name | ast.Attribute):
            self.fail(n, f"`{ast.unparse(n.func)}`", "functions are called by name")
        if isinstance(n.func, ast.Name) and n.func.id in self.source.local:
            self.fail(n, f"{n.func.id!r}", "functions are called by name, and this is a variable")
        f = self._outside(n.func)
        found = calls.meaning(f)
        if found is None and inspect.isfunction(f) and not f.__module__.startswith("lazyt"):
            return self._inlined(n, f)
        if found is None:
            self.fail(
                n, f"the function {ast.unparse(n.func)!r}",
                "a kernel calls elementwise functions of lazyt, NumPy and math, sum, prod, max, min, any, all, and "
                "functions of its own kind",
            )  # fmt: skip
        kind, name = found
        if kind in ("fold", "extreme") and len(n.args) == 1 and isinstance(n.args[0], ast.GeneratorExp):
            return self.generator(n.args[0], name)
        return getattr(self, f"_call_{kind}")(n, name, [self.number_or_array(a) for a in n.args])

    def _method(self, n: ast.Call, f: ast.Attribute) -> Any:
        x = self.number_or_array(f.value)
        if f.attr not in _METHODS or not isinstance(x, Array):
            self.fail(n, f"the method {f.attr!r}", f"arrays have {', '.join(_METHODS)}")
        if f.attr == "astype":
            dtype = self._outside(n.args[0]) if n.args and isinstance(n.args[0], ast.Name | ast.Attribute) else None
            return self._call_dtype(n, dtypes.as_dtype(dtype), [x])
        if n.args:
            self.fail(n, f"an argument of {f.attr}", "it is over all elements of the row")
        return self._fold(n, f.attr, x)

    def _expect(self, n: ast.Call, name: str, given: list[Any], count: int) -> None:
        if len(given) != count:
            self.fail(n, f"{ast.unparse(n)!r}", f"{name} takes {count} argument{'s' * (count != 1)} here")

    def _call_elementwise(self, n: ast.Call, name: str, xs: list[Any]) -> Any:
        self._expect(n, name, xs, calls.ARITY[name])
        return self.apply(name, *xs)

    def _call_fold(self, n: ast.Call, name: str, xs: list[Any]) -> Any:
        self._expect(n, name, xs, 1)
        return self._fold(n, name, xs[0])

    def _fold(self, n: ast.Call, name: str, x: Any) -> Any:
        if not isinstance(x, Array) or not x.rows:
            self.fail(n, f"{name} of a number", "it is of a row, or of an expression `... for k in range(n)`")
        return self.reduce_rows(name, x)

    def _call_extreme(self, n: ast.Call, name: str, xs: list[Any]) -> Any:
        if len(xs) == 1:
            return self._fold(n, name, xs[0])
        if not xs:
            self.fail(n, name, "it needs arguments")
        total = xs[0]
        for x in xs[1:]:
            total = self.apply("maximum" if name == "max" else "minimum", total, x)
        return total

    def _call_len(self, n: ast.Call, _: str, xs: list[Any]) -> Any:
        self._expect(n, "len", xs, 1)
        if not isinstance(xs[0], Array) or not xs[0].rows:
            self.fail(n, "len of a number", "it is of a row")
        return Affine((), xs[0].node.shape[xs[0].frame])

    def _call_range(self, n: ast.Call, _: str, xs: list[Any]) -> Any:
        self.fail(n, "`range` here", "it stands behind `in`")

    def _call_cast(self, n: ast.Call, name: str, xs: list[Any]) -> Any:
        self._expect(n, name, xs, 1)
        x = xs[0]
        if isinstance(x, NUMBERS):
            return {"int": int, "float": float, "bool": bool}[name](x)
        if name == "bool":
            return self.truth(self.compare("not_equal", x, 0) if isinstance(x, Affine) else x)
        if isinstance(x, Affine) and name == "int":
            return x
        y = self.array(x)
        if name == "int" and dtypes.kind(y.dtype) in "iu":
            return y
        if name == "float" and dtypes.kind(y.dtype) == "f":
            return y
        dtype = dtypes.int64 if name == "int" else dtypes.float64
        return Array(self.b.cast(y.node, dtype), y.frame, int if name == "int" else float)

    def _call_dtype(self, n: ast.Call, dtype: Any, xs: list[Any]) -> Any:
        self._expect(n, str(dtype), xs, 1)
        y = self.array(xs[0])
        return Array(self.of_dtype(y, dtype), y.frame)

    def _call_whole(self, n: ast.Call, name: str, xs: list[Any]) -> Any:
        """Python's `round`, `floor`, ... give an int."""
        self._expect(n, name, xs, 1)
        x = xs[0]
        if isinstance(x, Affine | bool | int):
            return x
        y = self.array(x)
        if dtypes.kind(y.dtype) in "iub":
            return y
        node = self.b.round(y.node) if name == "round" else OPS[name].lower(self.b, y.node)
        assert not isinstance(node, tuple), "rounding has one result"
        return Array(self.b.cast(node, dtypes.int64), y.frame, int)

    def _call_where(self, n: ast.Call, _: str, xs: list[Any]) -> Any:
        self._expect(n, "where", xs, 3)
        c = self.truth(xs[0] if not isinstance(xs[0], Affine) else self.compare("not_equal", xs[0], 0))
        return (xs[1] if c else xs[2]) if isinstance(c, bool) else self.select(c, xs[1], xs[2])

    def _inlined(self, n: ast.Call, f: Any) -> Any:
        """The result of a function of the user's, which is made of what kernels are made of."""
        if self.depth == DEEPEST:
            self.fail(n, f"{DEEPEST} calls within each other", "functions are written out where they are called")
        inner = source_of(f)
        given = [self.value(a) for a in n.args]
        if len(given) != len(inner.parameters):
            self.fail(n, f"{ast.unparse(n)!r}", f"{inner.name} has {len(inner.parameters)} parameters")
        kept = self.source, self.variables
        self.source, self.variables = inner, dict(zip(inner.parameters, given, strict=True))
        self.depth += 1
        try:
            out = self.block(inner.body)
        finally:
            self.source, self.variables = kept
            self.depth -= 1
        if out is None:
            self.fail(n, f"{inner.name!r}", "it returns nothing")
        return out

    def block(self, statements: list[ast.stmt]) -> Any:
        """What the statements return; see `statements.py`."""
        raise NotImplementedError

    # Ranges

    def range_of(self, n: ast.AST) -> tuple[Any, Any, int]:
        """Start, stop and step of a `range(...)`."""
        if not isinstance(n, ast.Call) or self.callee_meaning(n) != ("range", ""):
            self.fail(n, f"a loop over `{ast.unparse(n)}`", "loops are over `range(...)`")
        given = [self.number_or_array(a) for a in n.args]
        for a, x in zip(n.args, given, strict=True):
            if isinstance(x, bool) or not (isinstance(x, int) or (isinstance(x, Affine) and not x.terms)):
                self.fail(
                    a, f"a range to `{ast.unparse(a)}`", "its bounds are whole numbers or extents, the same at each "
                    "index; use a condition in the loop",
                )  # fmt: skip
        if not 1 <= len(given) <= 3:
            self.fail(n, f"`{ast.unparse(n)}`", "range takes one to three arguments")
        start, stop = (0, given[0]) if len(given) == 1 else given[:2]
        step = given[2] if len(given) == 3 else 1
        if not isinstance(step, int) or step == 0:
            self.fail(n, "this step", "steps are constants and not 0")
        return start, stop, step

    def callee_meaning(self, n: ast.Call) -> tuple[str, Any] | None:
        """What a call means; None for what is no function from outside."""
        if not isinstance(n.func, ast.Name | ast.Attribute) or self._is_variable(n.func):
            return None
        return calls.meaning(self._outside(n.func))

    def numbers_of(self, start: Any, stop: Any, step: int) -> range | None:
        """The range, if its bounds are constants."""
        return range(start, stop, step) if isinstance(start, int) and isinstance(stop, int) else None

    def open_loop(self, name: str, start: Any, stop: Any, step: int) -> Affine:
        """A new axis for a loop's variable, which runs over it."""
        p, q = (x if isinstance(x, Affine) else Affine((), x) for x in (start, stop))
        length: int | Dim = (q.offset - p.offset) if step > 0 else (p.offset - q.offset)
        length = length if abs(step) == 1 else (length + abs(step) - 1) // abs(step)
        if not self.b.at_least(length, 0):
            length = 0
        axis = Axis(name, len(self.axes), length, p.offset, step)
        self.axes.append(axis)
        return axis.position()

    # Reductions

    def _generatorexp(self, n: ast.GeneratorExp) -> Any:
        self.fail(n, "`... for ...` here", "it stands in sum, prod, max, min, any or all")

    def generator(self, n: ast.GeneratorExp, name: str) -> Any:
        """`sum(e for k in range(n) ... if c)` and its like."""
        kept = dict(self.variables)
        try:
            parts = self._written_out(n, 0, name)
            if parts is not None:
                return self.folded(n, name, parts)
            return self._over(n, 0, name)
        finally:
            self.variables = kept

    def folded(self, n: ast.AST, name: str, parts: list[Any]) -> Any:
        """The parts put together one after another."""
        if not parts:
            if name in ("max", "min", "mean"):
                self.source.refuse(n, ShapeError, f"{name} of nothing")
            return identity(name, dtypes.int64)
        join = {
            "sum": "add", "mean": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "any": "logical_or",
            "all": "logical_and",
        }  # fmt: skip
        if name in ("any", "all"):
            parts = [self.truth(p) for p in parts]
        total = parts[0]
        for p in parts[1:]:
            total = self.binary(n, ast.Add(), total, p) if join[name] == "add" else self.apply(join[name], total, p)
        return self.apply("divide", total, len(parts)) if name == "mean" else total

    def _written_out(self, n: ast.GeneratorExp, k: int, name: str) -> list[Any] | None:
        """The elements, if there are few and as many as the program says."""
        if k == len(n.generators):
            return [self.number_or_array(n.elt)]
        g = n.generators[k]
        numbers = self.numbers_of(*self.range_of(g.iter))
        if numbers is None or len(numbers) > UNROLLED:
            return None
        found: list[Any] = []
        for i in numbers:
            self.variables[g.target.id] = i  # type: ignore[attr-defined]
            c: Truth | bool = True
            opened = len(self.path)
            for test in g.ifs:
                c = self._both(c, one := self.condition_of(test))
                if isinstance(one, Truth):
                    self.path.append(one)
            inner = self._written_out(n, k + 1, name) if c is not False else []
            del self.path[opened:]
            if inner is None or len(found) + len(inner) > UNROLLED:
                return None
            found += [x if isinstance(c, bool) else self._masked(n, name, x, c) for x in inner]
        return found

    def _masked(self, n: ast.AST, name: str, x: Any, c: Truth) -> Any:
        """x where a filter lets it through, what changes nothing elsewhere."""
        if name == "mean" or name.startswith("arg"):
            self.fail(n, f"a condition in {name}", "how many elements there are would depend on data")
        y = self.array(self.truth(x)) if name in ("any", "all") else self.array(x)
        one = identity(name, y.dtype)
        return self.select(c, y, Array(self.b.constant(one, y.dtype), 0, y.weak))

    def _over(self, n: ast.GeneratorExp, k: int, name: str) -> Any:
        """A reduction over the axes of loops, the innermost first."""
        if k == len(n.generators):
            x = self.array(self.number_or_array(n.elt))
            return self.truth(x) if name in ("any", "all") else x
        g = n.generators[k]
        if name.startswith("arg"):
            self.fail(n, f"{name} of an expression with `for`", "it is of a row")
        self.variables[g.target.id] = self.open_loop(g.target.id, *self.range_of(g.iter))  # type: ignore[attr-defined]
        opened = len(self.path)
        try:
            tests = [self.condition_of(t) for t in g.ifs]
            self.path += [t for t in tests if isinstance(t, Truth)]
            x = self._over(n, k + 1, name)
            for c in tests:
                x = x if c is True else self._masked(n, name, x, self.array_truth(c))
            return self.reduce(name, self.array(x))
        finally:
            del self.path[opened:]
            self.axes.pop()

    def array_truth(self, c: Truth | bool) -> Truth:
        """A truth as an array."""
        if isinstance(c, Truth):
            return c
        return Truth(self.b.constant(c, dtypes.bool_), 0)
