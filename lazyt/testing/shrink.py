"""Reduces a failing program: fewer statements, values in place of what computed them, smaller arrays.

Each attempt is a whole program that is run again; a change is kept if it still fails in the same way (delta debugging).
"""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from lazyt.testing.array_programs import WORD
from lazyt.testing.mixed_programs import literal
from lazyt.testing.numpy_names import reference
from lazyt.testing.statements import Array, space_of

Lines = list[str]
Fails = Callable[[Lines], bool]
# Arrays of more elements are not written out.
WRITTEN = 48


def shrink(lines: Sequence[str], fails: Fails, seconds: float = 60.0) -> Lines:
    """As small a program as is found in `seconds` that still fails; `lines` itself if it does not fail again."""
    end = time.monotonic() + seconds
    best = list(lines)
    if not fails(best):
        return best

    def still(candidate: Lines) -> bool:
        return time.monotonic() < end and fails(candidate)

    while time.monotonic() < end:
        before = list(best)
        best = _fewer(best, still)
        for attempts in (_values_for_expressions, _operands_for_calls, _smaller_arrays):
            best = _improve(best, attempts, still)
        if best == before:
            break
    return _renamed(best)


def _fewer(lines: Lines, fails: Fails) -> Lines:
    """Leave statements out, many at a time, then one by one, the last ones first."""
    size = max(len(lines) // 2, 1)
    while True:
        i = len(lines)
        while i > 0:
            rest = lines[: max(i - size, 0)] + lines[i:]
            if rest and fails(rest):
                lines = rest
            i -= size
        if size == 1:
            return lines
        size = max(size // 2, 1)


def _improve(lines: Lines, attempts: Callable[[Lines], Iterator[Lines]], fails: Fails) -> Lines:
    """Take attempts for as long as one of them still fails."""
    again = True
    while again:
        again = False
        for candidate in attempts(lines):
            if candidate != lines and fails(candidate):
                lines, again = candidate, True
                break
    return lines


def _values_for_expressions(lines: Lines) -> Iterator[Lines]:
    """`v3 = xp.exp(v2)` --> `v3 = xp.asarray(np.array([...]))`: what v3 needed is not needed any more."""
    values = numpy_values(lines)
    for i in range(len(lines) - 2, -1, -1):
        name, equals, body = lines[i].partition(" = ")
        v = values[i]
        if equals and v is not None and v.size <= WRITTEN and not body.startswith("xp.asarray(np."):
            yield [*lines[:i], f"{name} = xp.asarray({literal(v)})", *lines[i + 1 :]]


def numpy_values(lines: Lines) -> list[Array | None]:
    """What each statement defines, in NumPy; None for writes, and after what NumPy refuses."""
    space, out = space_of(reference), []
    with np.errstate(all="ignore"):
        for line in lines:
            value: Array | None = None
            try:
                exec(line, space)
                if " = " in line and line.split(" ")[0].isidentifier():
                    value = np.array(space[line.split(" ")[0]])
            except (ValueError, TypeError, IndexError, AttributeError, NameError, ArithmeticError):
                value = None
            out.append(value)
    return out


def _edited(lines: Lines, edit: Callable[[ast.AST], Iterator[ast.AST]]) -> Iterator[Lines]:
    """Every program in which one expression of one statement is another."""
    for i in range(len(lines) - 1, -1, -1):
        tree = ast.parse(lines[i])
        for k, node in enumerate(ast.walk(tree)):
            for other in edit(node):
                fresh = copy.deepcopy(tree)
                target = list(ast.walk(fresh))[k]
                _Replace(target, other).visit(fresh)
                yield [*lines[:i], ast.unparse(ast.fix_missing_locations(fresh)), *lines[i + 1 :]]


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old = old
        self.new = new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else super().visit(node)


def _is_call(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in names


def _operands_for_calls(lines: Lines) -> Iterator[Lines]:
    """`xp.f(a, b)` --> `a`, `a + b` --> `a`."""

    def edit(node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, ast.Call) and not _is_call(node, "leaf", "np.array", "np.zeros", "xp.asarray", "new"):
            yield from (a for a in node.args if not isinstance(a, ast.Constant))
        elif isinstance(node, ast.BinOp):
            yield from (node.left, node.right)

    return _edited(lines, edit)


def _smaller_arrays(lines: Lines) -> Iterator[Lines]:
    """Fewer elements, rounder numbers, smaller extents."""

    def edit(node: ast.AST) -> Iterator[ast.AST]:
        if _is_call(node, "np.array") and isinstance(node, ast.Call) and len(node.args) == 2:
            a = eval(ast.unparse(node), {"np": np})
            for b in _smaller(a):
                yield ast.parse(literal(b.astype(a.dtype)), mode="eval").body
        elif _is_call(node, "leaf") and isinstance(node, ast.Call):
            shape = eval(ast.unparse(node.args[0]))
            for i, d in enumerate(shape):
                for n in (1, 2, 3, 5, 17, 33):
                    if n < d:
                        text = (
                            f"leaf({(*shape[:i], n, *shape[i + 1 :])!r}, {', '.join(map(ast.unparse, node.args[1:]))})"
                        )
                        yield ast.parse(text, mode="eval").body

    return _edited(lines, edit)


def _smaller(a: Array) -> Iterator[Array]:
    for axis, d in enumerate(a.shape):
        for n in sorted({1, d // 2, d - 1}):
            if 0 < n < d:
                yield np.take(a, range(n), axis)
                yield np.take(a, range(d - n, d), axis)
    if a.dtype.kind == "f" and a.size:
        for b in (np.zeros_like(a), np.ones_like(a), np.round(a)):
            if b.tobytes() != a.tobytes() and np.isfinite(a).all():
                yield b
    flat = a.ravel()
    simple = np.zeros_like(flat)
    if 1 < a.size <= 16:
        for i in range(a.size):
            if flat[i : i + 1].tobytes() != simple[i : i + 1].tobytes():
                b = a.copy()
                b.reshape(-1)[i] = 0
                yield b


def _renamed(lines: Lines) -> Lines:
    """a, b, c, ... for the names that are left."""
    names = list(dict.fromkeys(w for line in lines for w in WORD.findall(line)))
    if len(names) > 26:
        return lines
    to = dict(zip(names, "abcdefghijklmnopqrstuvwxyz", strict=False))
    return [WORD.sub(lambda m: to[m[0]], line) for line in lines]
