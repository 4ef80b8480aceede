"""A kernel written as primitives: what recording infers shapes with, and plans are made of."""

from __future__ import annotations

import ast
import types
from typing import TYPE_CHECKING, Any

from lazyt.errors import NotSupportedError, ShapeError
from lazyt.ir import dtypes
from lazyt.ir.builder import Weak, broadcast_shapes
from lazyt.ir.graph import Node
from lazyt.ir.symbolic import hint
from lazyt.kernel_language.source import Source, source_of
from lazyt.kernel_language.statements import Statements
from lazyt.kernel_language.values import NUMBERS, Affine, Array, Axis
from lazyt.ops.axes import one_axis
from lazyt.ops.definition import node_of

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.symbolic import Dim

Shape = tuple["int | Dim", ...]
# What an argument is recorded as.
TENSOR, NUMBER, STATIC = "tns"


class Form:
    """What is known of a kernel before it is called: indices, arguments, and where the extents of indices come from."""

    def __init__(self, source: Source, bounds: str, axis: int | None) -> None:
        given = source.tree.args
        self.source, self.bounds, self.axis = source, bounds, axis
        self.indices = [a.arg for a in given.posonlyargs]
        self.arguments = [a.arg for a in (*given.args, *given.kwonlyargs)]
        if axis is None and not self.indices:
            source.fail(
                source.tree, "a kernel without indices",
                "its first parameters, up to `/`, are the indices: `def f(i, j, /, x)`; for rows give lt.kernel(axis=)",
            )  # fmt: skip
        if axis is not None and self.indices:
            source.fail(source.tree, "indices of a kernel over rows", "with axis=, every argument is a row or a number")
        if "shape" in self.arguments:
            source.fail(source.tree, "an argument `shape`", "a call gives the indices' extents under that name")
        self.uses = _uses(source, self.indices, self.arguments)
        self.fallible = bounds == "error" and self._may_be_outside()

    def _may_be_outside(self) -> bool:
        """Whether an index may have to be checked at the sync: it is not linear, or a condition guards it."""
        if any(isinstance(n, ast.If | ast.IfExp | ast.BoolOp | ast.comprehension) for n in self.source.walk()):
            return True
        linear = (
            ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context, ast.Tuple,
            ast.Slice, ast.Attribute, ast.Subscript,
        )  # fmt: skip
        simple = {*self.indices, *self.arguments}
        return any(
            not isinstance(x, linear) or (isinstance(x, ast.Name) and x.id not in simple)
            for n in self.source.walk() if isinstance(n, ast.Subscript) for x in ast.walk(n.slice)
        )  # fmt: skip


def _uses(source: Source, indices: list[str], arguments: list[str]) -> dict[str, list[tuple[str, int, ast.AST]]]:
    """Of each index the arguments, and their axes, that give its extent: those read at it alone, else near it."""
    alone: dict[str, list[tuple[str, int, ast.AST]]] = {i: [] for i in indices}
    near: dict[str, list[tuple[str, int, ast.AST]]] = {i: [] for i in indices}
    stored = {n.id for n in source.walk() if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for n in source.walk():
        if not (isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name) and n.value.id in arguments):
            continue
        for k, e in enumerate(n.slice.elts if isinstance(n.slice, ast.Tuple) else (n.slice,)):
            found = alone
            if isinstance(e, ast.BinOp) and isinstance(e.op, ast.Add | ast.Sub) and isinstance(e.right, ast.Constant):
                e, found = e.left, near
            if isinstance(e, ast.Name) and e.id in alone and not {e.id, n.value.id} & stored:
                found[e.id].append((n.value.id, k, n))
    return {i: alone[i] or near[i] for i in indices}


def numbers_outside(source: Source) -> dict[tuple[Source, str], Any]:
    """The numbers that a function and those it calls read from outside, as they are now."""
    found: dict[tuple[Source, str], Any] = {}
    todo, seen = [source], {source}
    while todo:
        s = todo.pop()
        for name in s.outer:
            x = s.outside(name)
            if type(x) in NUMBERS:
                found[s, name] = x
            elif isinstance(x, types.FunctionType) and x.__module__.partition(".")[0] not in ("lazyt", "numpy"):
                inner = source_of(x)
                if inner not in seen:
                    seen.add(inner)
                    todo.append(inner)
    return found


def lower(form: Form, b: Builder, *given: Any, ints: Shape | None = None) -> Node | tuple[Node, ...]:
    """The results of a kernel. Behind the operands stand the kinds of arguments, names from outside, and constants."""
    operands = [x for x in given if isinstance(x, Node | Weak)]
    kinds, keys, *constants = given[len(operands) :]
    fixed, numbers = constants[: kinds.count(STATIC)], constants[kinds.count(STATIC) :]
    writer = Statements(b, form.source, form.bounds, dict(zip(keys, numbers, strict=True)))
    left, rest = iter(operands), iter(fixed)
    values: dict[str, Any] = {}
    for name, kind in zip(form.arguments, kinds, strict=True):
        if kind == TENSOR:
            values[name] = Array(next(left), 0)
        elif kind == NUMBER:
            x = next(left)
            wide = dtypes.complex128 if x.type is complex else dtypes.float64
            values[name] = Array(node_of(b, x, wide), 0, x.type, x)
        else:
            values[name] = next(rest)
    if form.axis is None:
        _open_indices(form, writer, values, ints)
    else:
        _open_rows(form, writer, values)
    writer.variables.update(values)
    out = writer.block(form.source.body)
    if out is None:
        form.source.fail(form.source.tree, "a way without `return`", "a kernel has a value at every index")
    if isinstance(out, tuple):
        if not out:
            form.source.fail(form.source.tree, "an empty result", "a kernel has a value at every index")
        return tuple(_result(form, writer, x) for x in out)
    return _result(form, writer, out)


def _open_indices(form: Form, w: Statements, values: dict[str, Any], ints: Shape | None) -> None:
    """The indices as axes: of the shape that was given, else of the arguments that they stand for alone."""
    for k, name in enumerate(form.indices):
        extent = _extent(form, w.b, name, values) if ints is None else ints[k]
        axis = Axis(name, k, extent)
        w.axes.append(axis)
        w.variables[name] = Affine(((axis, 1),), 0)


def _extent(form: Form, b: Builder, name: str, values: dict[str, Any]) -> int | Dim:
    found: int | Dim | None = None
    first = ""
    for argument, k, n in form.uses[name]:
        x = values[argument]
        if not isinstance(x, Array) or k >= x.rows:
            continue
        d = x.node.shape[k]
        if found is None:
            found, first = d, f"axis {k} of {argument} with {hint(d)}"
        elif hint(d) != hint(found):
            form.source.refuse(
                n,
                ShapeError,
                f"index {name!r} runs over {first} and axis {k} of {argument} with {hint(d)}; give shape=",
            )
        else:
            found = b.same(found, d)
    if found is None:
        raise NotSupportedError(
            f"kernel {form.source.name}: the extent of index {name!r} is not known, because no argument is read at it, "
            f"as in `x[{name}]` or `x[{name} - 1]`; give shape="
        )
    return found


def _open_rows(form: Form, w: Statements, values: dict[str, Any]) -> None:
    """The axes beside the rows as those of indices, broadcast."""
    b, name = w.b, form.source.name
    assert form.axis is not None, "a kernel over rows"
    arrays = {v: x.node for v, x in values.items() if isinstance(x, Array) and x.scalar is None and x.rows}
    if not arrays:
        raise ShapeError(f"kernel {name}: no argument has an axis {form.axis}")
    rows = {}
    for v, node in arrays.items():
        a = one_axis(f"kernel {name}: {v}", form.axis, node.ndim)
        rows[v] = b.permute(node, (*(i for i in range(node.ndim) if i != a), a))
    shape = broadcast_shapes(b, f"kernel {name}", *(r.shape[:-1] for r in rows.values()))
    w.axes = [Axis("", k, d) for k, d in enumerate(shape)]
    for v, row in rows.items():
        lead = (1,) * (len(shape) + 1 - row.ndim)
        values[v] = Array(b.reshape(row, (*lead, *row.shape)) if lead else row, len(shape))


def _result(form: Form, w: Statements, x: Any) -> Node:
    """A result over all indices, in a dtype of its own."""
    b, y = w.b, w.array(x)
    node = y.node
    if y.weak is not None:
        node = w.of_dtype(y, dtypes.default_dtype(y.weak))
    extents = tuple(a.extent for a in w.axes)
    node = w.lifted(y, node, y.rows)
    out = b.expand_to(node, extents) if not node.ndim else b.expand(node, (*extents, *node.shape[len(extents) :]))
    if form.axis is not None and y.rows == 1:
        a = one_axis(form.source.name, form.axis, out.ndim)
        last = out.ndim - 1
        out = b.permute(out, (*range(a), last, *range(a, last)))
    return out
