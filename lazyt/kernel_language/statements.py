"""The statements of a kernel: every branch is computed for all indices, and a condition chooses between the results."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from lazyt.ir import dtypes
from lazyt.kernel_language.arithmetic import identity
from lazyt.kernel_language.loops import UNROLLED, Loops
from lazyt.kernel_language.values import Array, Carried, ReadInLoop, Truth, Unset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyt.ir.builder import Builder
    from lazyt.kernel_language.source import Source

# A loop that is no reduction is written out up to this many times.
LONGEST = 1024
_FOLDS: dict[type[ast.AST], str] = {ast.Add: "sum", ast.Sub: "sum", ast.Mult: "prod"}
_EXTREMES: dict[tuple[str, Any] | None, str] = {
    ("extreme", "max"): "max", ("extreme", "min"): "min", ("elementwise", "maximum"): "max",
    ("elementwise", "minimum"): "min",
}  # fmt: skip
_JOIN = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}


class Statements(Loops):
    """Runs statements; `block` gives what they return."""

    def __init__(self, b: Builder, source: Source, bounds: str, numbers: Mapping[tuple[Source, str], Any]) -> None:
        super().__init__(b, source, bounds, numbers)
        self._collecting = 0  # how many conditions were open when the innermost loop that collects began

    def block(self, statements: Sequence[ast.stmt]) -> Any:
        """What the statements return; None if they end without."""
        for k, s in enumerate(statements):
            if isinstance(s, ast.Return):
                if s.value is None:
                    self.fail(s, "`return` without a value", "a kernel returns the value at its index")
                return self.value(s.value)
            if isinstance(s, ast.If) and any(isinstance(x, ast.Return) for x in ast.walk(s)):
                rest = statements[k + 1 :]
                c = self.condition_of(s.test)
                if isinstance(c, bool):
                    return self.block([*(s.body if c else s.orelse), *rest])
                before = dict(self.variables)
                x = self._branch(c, [*s.body, *rest])
                self.variables = before
                y = self._branch(self.opposite(c), [*s.orelse, *rest])
                if x is None or y is None:
                    self.fail(s, "a way without `return`", "a kernel has a value at every index")
                return self.chosen(s, c, x, y)
            getattr(self, f"_{type(s).__name__.lower()}")(s)
        return None

    def _branch(self, c: Truth, statements: Sequence[ast.stmt]) -> Any:
        self.path.append(c)
        try:
            return self.block(statements)
        finally:
            self.path.pop()

    def _pass(self, s: ast.Pass) -> None:
        """Nothing."""

    def _assign(self, s: ast.Assign) -> None:
        target = s.targets[0]
        if isinstance(target, ast.Name):
            if not self._collected(s, target.id, s.value):
                self._set(target.id, self.value(s.value))
            return
        assert isinstance(target, ast.Tuple), "it was checked"
        found = self.value(s.value)
        if not isinstance(found, tuple) or len(found) != len(target.elts):
            self.fail(s, "this assignment", f"{len(target.elts)} values are required")
        for t, x in zip(target.elts, found, strict=True):
            assert isinstance(t, ast.Name), "it was checked"
            self._set(t.id, x)

    def _annassign(self, s: ast.AnnAssign) -> None:
        if s.value is not None and isinstance(s.target, ast.Name):
            self._set(s.target.id, self.value(s.value))

    def _augassign(self, s: ast.AugAssign) -> None:
        assert isinstance(s.target, ast.Name), "it was checked"
        name = s.target.id
        carried = self.variables.get(name)
        if isinstance(carried, Carried):
            fold = _FOLDS.get(type(s.op))
            if fold is None:
                raise ReadInLoop(name, s)
            x = self.number_or_array(s.value)
            self._collect(s, carried, fold, self.apply("negative", x) if isinstance(s.op, ast.Sub) else x)
            return
        left = ast.copy_location(ast.Name(name, ast.Load()), s.target)
        self._set(name, self.value(ast.copy_location(ast.BinOp(left, s.op, s.value), s)))

    def _set(self, name: str, x: Any) -> None:
        if isinstance(self.variables.get(name), Carried):
            raise ReadInLoop(name, self.source.tree)
        self.variables[name] = x

    def _if(self, s: ast.If) -> None:
        c = self.condition_of(s.test)
        if isinstance(c, bool):
            self.block(s.body if c else s.orelse)
            return
        before = dict(self.variables)
        self._branch(c, s.body)
        then = self.variables
        self.variables = dict(before)
        self._branch(self.opposite(c), s.orelse)
        other = self.variables
        missing = Unset("it is set under a condition only")
        self.variables = {
            name: self.chosen(s, c, then.get(name, missing), other.get(name, missing)) for name in {**then, **other}
        }

    # Loops

    def _for(self, s: ast.For) -> None:
        if not isinstance(s.target, ast.Name):
            self.fail(s, "a loop with several variables", "`range` has one")
        bounds = self.range_of(s.iter)
        numbers = self.numbers_of(*bounds)
        if numbers is not None and not numbers[UNROLLED:]:
            return self._write_out(s, s.target.id, numbers)
        kept = dict(self.variables)
        depth, opened = len(self.axes), len(self.path)
        try:
            self._reduce(s, s.target.id, bounds)
        except ReadInLoop as e:
            del self.axes[depth:], self.path[opened:]
            self.variables = kept
            if any(isinstance(x, Carried) for x in kept.values()):
                raise
            if numbers is None or numbers[LONGEST:]:
                length = "is not a constant" if numbers is None else f"is longer than {LONGEST}"
                self.fail(
                    e.node if e.node is not self.source.tree else s, f"{e.name!r} in this loop",
                    f"it depends on the round before, and the loop {length}; a loop of any length may only collect, "
                    "by +=, *=, max(x, ...) or min(x, ...)",
                )  # fmt: skip
            self._write_out(s, s.target.id, numbers)

    def _write_out(self, s: ast.For, name: str, numbers: range) -> None:
        for i in numbers:
            self.variables[name] = i
            self.block(s.body)

    def _reduce(self, s: ast.For, name: str, bounds: tuple[Any, Any, int]) -> None:
        """The loop as reductions of what it collects; ReadInLoop if it is none."""
        before = dict(self.variables)
        outer = len(self.path)
        changed = {
            n.id for x in s.body for n in ast.walk(x) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        for v in changed & {*before}:
            if not isinstance(before[v], Unset):
                self.variables[v] = Carried(v, before[v])
        self.variables[name] = self.open_loop(name, *bounds)
        kept, self._collecting = self._collecting, outer
        try:
            self.block(s.body)
        finally:
            self._collecting = kept
        found = {v: c for v in changed if isinstance(c := self.variables.get(v), Carried) and c.before is before.get(v)}
        reduced = {v: [(fold, x, self.reduce(fold, x), n) for fold, x, n in c.parts] for v, c in found.items()}
        self.axes.pop()
        self.variables = dict(before)
        for v in changed | {name}:
            if v not in found:
                self.variables[v] = Unset("it is set in a loop, for each round")
        for v, parts in reduced.items():
            for fold, x, total, node in parts:
                if fold in ("sum", "prod"):
                    total = self._as_added(self.variables[v], x, total)
                if isinstance(self.variables[v], Carried):
                    self._collect(node, self.variables[v], fold, total)
                elif fold == "sum":
                    self.variables[v] = self.binary(node, ast.Add(), self.variables[v], total)
                else:
                    self.variables[v] = self.apply(_JOIN[fold], self.variables[v], total)

    def _as_added(self, before: Any, x: Array, total: Array) -> Array:
        """A sum or product of x in the dtype that Python's `+=` and `*=` give, round by round: narrow integers wrap."""
        kind = dtypes.kind(x.dtype)
        if kind not in "biu":
            return total
        dtype = x.dtype if kind in "iu" else total.dtype
        if kind == "b" and (type(before) is bool or (isinstance(before, Array) and before.weak is None)):
            dtype = dtypes.bool_ if type(before) is bool else before.dtype
        if dtypes.kind(dtype) not in "biu":
            return total
        return Array(self.b.cast(total.node, dtype), total.frame, total.weak)

    def _collected(self, s: ast.AST, name: str, n: ast.AST) -> bool:
        """Whether this is `x = x + e`, `x = max(x, e)` or the like of a variable that a loop collects."""
        carried = self.variables.get(name)
        if not isinstance(carried, Carried):
            return False
        if isinstance(n, ast.BinOp) and type(n.op) in _FOLDS:
            if _is(n.left, name):
                rest = n.right
            elif _is(n.right, name) and not isinstance(n.op, ast.Sub):
                rest = n.left
            else:
                return False
            x = self.number_or_array(rest)
            x = self.apply("negative", x) if isinstance(n.op, ast.Sub) else x
            self._collect(s, carried, _FOLDS[type(n.op)], x)
            return True
        if isinstance(n, ast.Call) and len(n.args) == 2 and any(_is(a, name) for a in n.args):
            fold = _EXTREMES.get(self.callee_meaning(n))
            if fold is not None:
                self._collect(s, carried, fold, self.number_or_array(n.args[_is(n.args[0], name)]))
                return True
        return False

    def _collect(self, n: ast.AST, carried: Carried, fold: str, x: Any) -> None:
        """Add to what a loop collects; under a condition of the loop, where it holds."""
        if carried.parts and carried.parts[0][0] != fold:
            raise ReadInLoop(carried.name, n)
        value = self.array(x)
        for c in self.path[self._collecting :]:
            one = identity(fold, value.dtype)
            value = self.array(self.select(c, value, Array(self.b.constant(one, value.dtype), 0, value.weak)))
        carried.parts.append((fold, value, n))


def _is(n: ast.AST, name: str) -> bool:
    return isinstance(n, ast.Name) and n.id == name
