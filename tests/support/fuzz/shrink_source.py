"""Reduces a failing program of whole statements: fewer statements, no blocks around them, simpler expressions.

As `shrink.py` for programs of one statement a line; here the program is a module, and what is edited is its tree.
"""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Callable, Iterator, Sequence

Text = str
Fails = Callable[[ast.Module], bool]
Edit = Callable[[ast.Module], Iterator[ast.Module]]


def shrink_source(text: Text, fails: Callable[[Text], bool], seconds: float = 60.0) -> Text:
    """As small a program as is found in `seconds` that still fails; `text` itself if it does not fail again.

    >>> shrink_source("a = 1\\nfor k in range(9):\\n    if a: b = a + k\\n    c = 2", lambda x: "b = " in x)
    'b = a'
    """
    end = time.monotonic() + seconds
    if not fails(text):
        return text
    best = ast.parse(text)

    def still(tree: ast.Module) -> bool:
        if time.monotonic() >= end:
            return False
        try:
            return fails(ast.unparse(ast.fix_missing_locations(tree)))
        except SyntaxError:
            return False

    while time.monotonic() < end:
        before = ast.dump(best)
        best = _fewer_statements(_taken(best, _fewer_turns, still), still)
        for edits in (_blocks_opened, _simpler):
            best = _taken(best, edits, still)
        if ast.dump(best) == before:
            break
    return ast.unparse(best)


def shrink_lines(lines: Sequence[str], fails: Callable[[list[str]], bool], seconds: float) -> list[str]:
    """The same for a program as lines."""
    return shrink_source("\n".join(lines), lambda text: fails(text.split("\n")), seconds).split("\n")


def _taken(tree: ast.Module, edits: Edit, still: Fails) -> ast.Module:
    """Take edits for as long as one of them still fails; after one was taken, go on where it stood."""
    at = 0
    while True:
        for n, candidate in enumerate(edits(tree)):
            if n >= at and still(candidate):
                tree, at = candidate, n
                break
        else:
            return tree


def _fewer_statements(tree: ast.Module, still: Fails) -> ast.Module:
    """Leave statements of every block out, many at a time, then one by one, the last ones first."""
    k = 0
    while k < len(_blocks(tree)):
        size = len(_blocks(tree)[k])
        while size and k < len(_blocks(tree)):  # a program that fails without a statement has no blocks left
            i = len(_blocks(tree)[k])
            while i > 0:
                fresh = copy.deepcopy(tree)
                block = _blocks(fresh)[k]
                left = block[max(i - size, 0) : i]
                block[max(i - size, 0) : i] = [] if len(left) < len(block) or k == 0 else [ast.Pass()]
                if not (len(left) == 1 and isinstance(left[0], ast.Pass)) and still(fresh):
                    tree = fresh
                i -= size
            size //= 2
        k += 1
    return tree


def _blocks(tree: ast.Module) -> list[list[ast.stmt]]:
    return [b for node in ast.walk(tree) for b in _bodies(node)]


def _edited(
    tree: ast.Module, edit: Callable[[ast.AST], int], change: Callable[[ast.AST, int], None]
) -> Iterator[ast.Module]:
    """Every tree in which one node is changed in one of the ways that there are for it."""
    for k, node in enumerate(ast.walk(tree)):
        for way in range(edit(node)):
            fresh = copy.deepcopy(tree)
            change(next(x for i, x in enumerate(ast.walk(fresh)) if i == k), way)
            yield fresh


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if isinstance(body, list) and body:
            yield body


def _blocks_opened(tree: ast.Module) -> Iterator[ast.Module]:
    """`if a: b` --> `b`."""

    def inner(s: ast.stmt) -> list[ast.stmt]:
        return s.body if isinstance(s, ast.If | ast.With | ast.Try | ast.For) else []

    def ways(node: ast.AST) -> int:
        return sum(bool(inner(s)) for b in _bodies(node) for s in b)

    def change(node: ast.AST, way: int) -> None:
        for body in _bodies(node):
            for i, s in enumerate(body):
                if inner(s):
                    if not way:
                        body[i : i + 1] = inner(s)
                        return
                    way -= 1

    return _edited(tree, ways, change)


def _fewer_turns(tree: ast.Module) -> Iterator[ast.Module]:
    def value(node: ast.AST) -> int:
        """How many turns there are now."""
        fits = isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and len(node.iter.args) == 1
        n = node.iter.args[0] if fits else None  # type: ignore[attr-defined]
        return n.value if isinstance(n, ast.Constant) and isinstance(n.value, int) else 0

    def fewer(node: ast.AST) -> list[int]:
        """Numbers to try: each one up to 12, and growing ones up to one less."""
        n = value(node)
        return sorted(
            {*range(1, min(n, 13)), *(m for i in range(12) if 12 < (m := 3 * 2**i // 2) < n), *[n - 1] * (n > 1)}
        )

    def change(node: ast.AST, way: int) -> None:
        node.iter.args[0] = ast.Constant(fewer(node)[way])  # type: ignore[attr-defined]

    return _edited(tree, lambda node: len(fewer(node)), change)


def _parts(node: ast.AST) -> list[ast.expr]:
    """What may stand in place of an expression."""
    if isinstance(node, ast.Call):
        out = [*node.args, *(k.value for k in node.keywords)]
        if isinstance(node.func, ast.Attribute):
            out.append(node.func.value)
        return [x for x in out if not isinstance(x, ast.Constant)]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.value, ast.Name):
        return [node.value]
    return []


_PLACES = ("value", "left", "right", "operand", "body", "orelse", "test", "func", "context_expr")


def _simpler(tree: ast.Module) -> Iterator[ast.Module]:
    """`f(a, b)` --> `a`, `a + b` --> `a`, `[a, b]` --> `[a]`."""

    def ways(node: ast.AST) -> int:
        return len(_replacements(node))

    def change(node: ast.AST, way: int) -> None:
        _replacements(node)[way]()

    return _edited(tree, ways, change)


def _replacements(node: ast.AST) -> list[Callable[[], None]]:
    out: list[Callable[[], None]] = []
    for name in _PLACES:
        child = getattr(node, name, None)
        if isinstance(child, ast.expr) and not (name == "func" or isinstance(node, ast.Attribute)):
            out += [lambda n=name, p=p: setattr(node, n, p) for p in _parts(child)]  # type: ignore[misc]
    for name in ("args", "elts", "keywords"):
        items = getattr(node, name, None)
        if isinstance(items, list):
            for i, x in enumerate(items):
                if isinstance(x, ast.expr):
                    out += [lambda a=items, i=i, p=p: a.__setitem__(i, p) for p in _parts(x)]  # type: ignore[misc]
                if len(items) > 1 or name == "keywords":
                    out.append(lambda a=items, i=i: a.__delitem__(i))  # type: ignore[misc]
    return out
