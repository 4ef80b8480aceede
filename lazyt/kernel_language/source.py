"""The text of a kernel: its tree, what it must be made of, and the line that an error names."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import textwrap
from typing import TYPE_CHECKING, Any, NoReturn

from lazyt.errors import LazytError, NotSupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TAKEN: tuple[type[ast.AST], ...] = (
    ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If, ast.For, ast.Pass, ast.BoolOp, ast.BinOp, ast.UnaryOp,
    ast.Compare, ast.Call, ast.IfExp, ast.Attribute, ast.Subscript, ast.Name, ast.Tuple, ast.Constant, ast.GeneratorExp,
    ast.comprehension, ast.Slice, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip
# What no name stands for.
MISSING = object()
_RETURNS = "a kernel returns the value at its index"
# Constructs that are refused by name: what they are called, and why.
_REFUSED: dict[type[ast.AST], tuple[str, str]] = {
    ast.While: ("`while`", "how often it runs would depend on data; use `for ... in range(...)` and a condition"),
    ast.Break: ("`break`", "every index runs through the whole loop; use a condition"),
    ast.Continue: ("`continue`", "every index runs through the whole loop; use a condition"),
    ast.Try: ("`try`", "nothing is raised at an index"),
    ast.Raise: ("`raise`", "nothing is raised at an index"),
    ast.Assert: ("`assert`", "nothing is raised at an index"),
    ast.With: ("`with`", "a kernel only computes"),
    ast.Global: ("`global`", f"a kernel changes nothing outside; {_RETURNS}"),
    ast.Nonlocal: ("`nonlocal`", f"a kernel changes nothing outside; {_RETURNS}"),
    ast.Delete: ("`del`", "a kernel only computes"),
    ast.Import: ("`import`", "a kernel only computes"),
    ast.ImportFrom: ("`import`", "a kernel only computes"),
    ast.FunctionDef: ("a function inside", "functions that a kernel calls are defined outside"),
    ast.Lambda: ("`lambda`", "functions that a kernel calls are defined outside"),
    ast.List: ("a list", "values are numbers, arrays and tuples of them"),
    ast.ListComp: ("a list", "values are numbers, arrays and tuples of them; leave the brackets out in a reduction"),
    ast.Dict: ("a dict", "values are numbers, arrays and tuples of them"),
    ast.Set: ("a set", "values are numbers, arrays and tuples of them"),
    ast.JoinedStr: ("a string", "values are numbers, arrays and tuples of them"),
    ast.Starred: ("`*`", "arguments are given one by one"),
    ast.keyword: ("an argument by keyword", "functions take arguments by position"),
    ast.Expr: ("a statement that is an expression", "a kernel only computes what it returns"),
    ast.NamedExpr: ("`:=`", "a variable is set by a statement"),
}
_ELSE = "statements are assignments, `if`, `for ... in range(...)` and `return`"


class Source:
    """A function's tree and where it stands. NotSupportedError for one that is no kernel."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name: str = getattr(function, "__name__", repr(function))
        self.lines: list[str] = []
        if not inspect.isfunction(function) or self.name == "<lambda>":
            raise NotSupportedError(f"kernel {self.name}: not supported: {function!r}, because a `def` is required")
        self.file = function.__code__.co_filename
        try:
            self.lines, self.first = inspect.getsourcelines(function)
        except (OSError, TypeError):
            raise NotSupportedError(
                f"kernel {self.name}: not supported: a function without source, because a kernel is read as text; "
                f"{self.file} has none: define it in a file"
            ) from None
        self.indent = len(self.lines[0]) - len(self.lines[0].lstrip())
        found = ast.parse(textwrap.dedent("".join(self.lines))).body[0]
        assert isinstance(found, ast.FunctionDef), "isfunction, and no lambda"
        self.tree = found
        self.body = self._body()
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        given = found.args
        for extra in (given.vararg, given.kwarg):
            if extra is not None:
                self.fail(extra, f"`*{extra.arg}`", "the arguments of a kernel have names")
        self.parameters = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        self.local = {*self.parameters, *(n.id for n in self.walk() if isinstance(n, ast.Name) and _is_set(n))}
        # Names that mean something from outside.
        self.outer = sorted({n.id for n in self.walk() if isinstance(n, ast.Name)} - self.local)

    def _body(self) -> list[ast.stmt]:
        """The statements behind the docstring, each of a kind that a kernel has."""
        body = self.tree.body
        first = body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            body = body[1:]
        for statement in body:
            for n in ast.walk(statement):
                self._check(n)
        return body

    def walk(self) -> Iterator[ast.AST]:
        """Every node of the statements."""
        for statement in self.body:
            yield from ast.walk(statement)

    def _check(self, n: ast.AST) -> None:
        if not isinstance(n, _TAKEN):
            what, why = _REFUSED.get(type(n), (f"`{type(n).__name__}`", _ELSE))
            self.fail(n, what, why)
        if isinstance(n, ast.Assign) and len(n.targets) > 1:
            self.fail(n, "a chain of assignments", "one variable is set at a time, or a tuple of them")
        if isinstance(n, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For | ast.comprehension):
            target = n.targets[0] if isinstance(n, ast.Assign) else n.target
            for t in target.elts if isinstance(target, ast.Tuple) else (target,):
                if not isinstance(t, ast.Name):
                    self.fail(t, "an assignment to an element", f"arguments are read only; {_RETURNS}")
        if isinstance(n, ast.For):
            if n.orelse:
                self.fail(n, "`else` of a loop", "a loop is never left early")
            inside = next((x for s in n.body for x in ast.walk(s) if isinstance(x, ast.Return)), None)
            if inside is not None:
                self.fail(inside, "`return` in a loop", "every index runs through the whole loop; use a condition")
        if isinstance(n, ast.Constant) and not isinstance(n.value, bool | int | float | complex):
            self.fail(n, f"the constant {n.value!r}", "values are numbers, arrays and tuples of them")

    def line_of(self, n: ast.AST) -> int:
        """The line in the file."""
        return self.first + getattr(n, "lineno", 1) - 1

    def place(self, n: ast.AST) -> str:
        """The file, the line and its text, with a caret under the construct."""
        line = getattr(n, "lineno", 1)
        text = self.lines[line - 1].rstrip("\n") if line <= len(self.lines) else ""
        column = self.indent + getattr(n, "col_offset", 0)
        gap = len(text) - len(text.lstrip())
        return f"  File {self.file!r}, line {self.line_of(n)}\n    {text.lstrip()}\n    {' ' * (column - gap)}^"

    def fail(self, n: ast.AST, what: str, why: str) -> NoReturn:
        """NotSupportedError at a construct."""
        raise NotSupportedError(f"kernel {self.name}: not supported: {what}, because {why}\n{self.place(n)}")

    def refuse(self, n: ast.AST, error: type[LazytError], why: str) -> NoReturn:
        """An error of another kind at a construct."""
        raise error(f"kernel {self.name}: {why}\n{self.place(n)}")

    def outside(self, name: str) -> Any:
        """What a name that is not set in the function means; MISSING if nothing."""
        cell = self._cells.get(name)
        if cell is not None:
            try:
                return cell.cell_contents
            except ValueError:  # it is set later
                return MISSING
        space: dict[str, Any] = self.function.__globals__
        if name in space:
            return space[name]
        return getattr(builtins, name, MISSING)


@functools.lru_cache(256)
def source_of(f: Callable[..., Any]) -> Source:
    """The source of a function that kernels call."""
    return Source(f)


def _is_set(n: ast.Name) -> bool:
    return isinstance(n.ctx, ast.Store)
