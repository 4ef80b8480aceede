"""The value of a call: an operation of lazyt's, a fold over a row, a cast, or the body of a function of the user's."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from lazyt.ir import dtypes
from lazyt.kernel_language import calls
from lazyt.kernel_language.expressions import Expressions
from lazyt.kernel_language.source import source_of
from lazyt.kernel_language.values import NUMBERS, Affine, Array
from lazyt.ops.definition import OPS

# How deep functions that a kernel calls may call others.
DEEPEST = 16
_METHODS = (*calls.FOLDS, "astype")


class Calls(Expressions):
    """Evaluates calls."""

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

    def callee_meaning(self, n: ast.Call) -> tuple[str, Any] | None:
        """What a call means; None for what is no function from outside."""
        if not isinstance(n.func, ast.Name | ast.Attribute) or self._is_variable(n.func):
            return None
        return calls.meaning(self._outside(n.func))

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
            return Array(self.b.cast(y.node, dtypes.int64), y.frame, int)
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

    def generator(self, n: ast.GeneratorExp, name: str) -> Any:
        """What a fold of `... for k in range(n)` is; see `loops.py`."""
        raise NotImplementedError

    def block(self, statements: list[ast.stmt]) -> Any:
        """What the statements return; see `statements.py`."""
        raise NotImplementedError
