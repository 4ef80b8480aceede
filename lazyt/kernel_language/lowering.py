"""A kernel written as primitives: what recording infers shapes with, and plans are made of."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from lazyt.errors import NotSupportedError, ShapeError
from lazyt.ir import dtypes
from lazyt.ir.builder import Weak, broadcast_shapes
from lazyt.ir.graph import Node
from lazyt.ir.symbolic import hint, product
from lazyt.kernel_language.source import Source
from lazyt.kernel_language.statements import Statements
from lazyt.kernel_language.values import Array, Axis
from lazyt.ops.axes import one_axis
from lazyt.ops.definition import node_of

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.symbolic import Dim

Shape = tuple["int | Dim", ...]
# A start and an extent.
Interval = tuple["int | Dim", "int | Dim"]
# A domain of fewer elements is not divided, nor one of a kernel with more operations.
LEAST = 1 << 14
MOST_CODE = 32
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
        for name in ("shape", "device"):
            if name in self.arguments:
                source.fail(source.tree, f"an argument `{name}`", "that of a call is lazyt's own")
        self.uses = _uses(source, self.indices, self.arguments)
        # Whether parts of the domain may differ: by what is read outside, or by a condition on an index.
        self.divides = axis is None and (
            bounds != "error" or any(isinstance(n, ast.If | ast.IfExp | ast.BoolOp) for n in source.walk())
        )
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
            name = _summand(e, alone)
            if name is not None and not {name, n.value.id} & stored:
                (alone if isinstance(e, ast.Name) else near)[name].append((n.value.id, k, n))
    return {i: alone[i] or near[i] for i in indices}


def _summand(e: ast.AST, indices: Container[str]) -> str | None:
    """The only index in a sum, if it is added there as it is."""
    while isinstance(e, ast.BinOp) and isinstance(e.op, ast.Add | ast.Sub):
        left, right = (any(isinstance(x, ast.Name) and x.id in indices for x in ast.walk(s)) for s in (e.left, e.right))
        if left == right or (right and isinstance(e.op, ast.Sub)):
            return None
        e = e.left if left else e.right
    return e.id if isinstance(e, ast.Name) and e.id in indices else None


def lower(form: Form, b: Builder, *given: Any, ints: Shape | None = None) -> Node | tuple[Node, ...]:
    """The results of a kernel. Behind the operands stand the kinds of arguments, names from outside, and constants.

    Of those the first is whether the domain may be divided: into what reads inside everywhere, and what is near ends.
    """
    operands = [x for x in given if isinstance(x, Node | Weak)]
    kinds, keys, divides, *constants = given[len(operands) :]
    fixed, numbers = constants[: kinds.count(STATIC)], constants[kinds.count(STATIC) :]
    call = Call(form, b, operands, kinds, fixed, dict(zip(keys, numbers, strict=True)))
    if form.axis is not None:
        found = call.over_rows()
        return tuple(found) if call.is_tuple else found[0]
    extents = call.extents() if ints is None else ints
    whole: list[Interval] = [(0, n) for n in extents]
    found, w = call.over(whole, {})
    cuts = _near_ends(b, w, extents) if divides else {}
    if cuts:
        found = _divided(call, whole, cuts)
    elif w.reached:
        found, _ = call.over(whole, w.reached)
    return tuple(found) if call.is_tuple else found[0]


class Call:
    """A kernel on nodes: `over` evaluates it for a box of indices."""

    def __init__(
        self, form: Form, b: Builder, operands: list[Any], kinds: str, fixed: list[Any],
        numbers: dict[tuple[Source, str], Any],
    ) -> None:  # fmt: skip
        self.form, self.b, self.numbers = form, b, numbers
        self.is_tuple = False
        # The results for all indices: a part of them may have weaker dtypes and fewer axes.
        self.whole: list[Node] | None = None
        self.values: dict[str, Any] = {}
        left, rest = iter(operands), iter(fixed)
        for name, kind in zip(form.arguments, kinds, strict=True):
            if kind == TENSOR:
                self.values[name] = Array(next(left), 0)
            elif kind == NUMBER:
                x = next(left)
                wide = dtypes.complex128 if x.type is complex else dtypes.float64
                self.values[name] = Array(node_of(b, x, wide), 0, x.type, x)
            else:
                self.values[name] = next(rest)

    def extents(self) -> Shape:
        """Of the indices, by the arguments that they stand for."""
        return tuple(_extent(self.form, self.b, name, self.values) for name in self.form.indices)

    def over(
        self, box: Sequence[Interval], reach: dict[tuple[Node, int], list[int]], gathers: bool = False
    ) -> tuple[list[Node], Statements]:
        """The results for indices with these starts and extents; `reach` is how far arguments are extended."""
        w = Statements(self.b, self.form.source, self.form.bounds, self.numbers)
        w.reach, w.gathers = reach, gathers
        for k, (name, (start, extent)) in enumerate(zip(self.form.indices, box, strict=True)):
            axis = Axis(name, k, extent, start)
            w.axes.append(axis)
            w.variables[name] = axis.position()
        w.variables.update(self.values)
        return self._results(w), w

    def over_rows(self) -> list[Node]:
        """The results for rows."""
        w = Statements(self.b, self.form.source, self.form.bounds, self.numbers)
        values = dict(self.values)
        _open_rows(self.form, w, values)
        w.variables.update(values)
        return self._results(w)

    def _results(self, w: Statements) -> list[Node]:
        source = self.form.source
        out = w.block(source.body)
        if out is None or out == ():
            source.fail(source.tree, "a way without `return`", "a kernel has a value at every index")
        self.is_tuple = isinstance(out, tuple)
        values = out if isinstance(out, tuple) else (out,)
        found = [_result(self.form, w, x, self.whole[k] if self.whole else None) for k, x in enumerate(values)]
        self.whole = self.whole or found
        return found


def _near_ends(b: Builder, w: Statements, extents: Shape) -> dict[int, list[int]]:
    """The indices to divide, and how far from their ends; none for what is small, much code, or never outside.

    A part is stored apart from its readers, so a condition alone, which costs little, divides nothing.
    """
    found = {a.place: c for a, c in w.cuts.items() if any(c) and a.place < len(extents) and w.axes[a.place] is a}
    if not found or not w.leaves or w.code > MOST_CODE or not b.at_least(product(extents), LEAST):
        return {}
    return {k: c for k, c in found.items() if b.at_least(extents[k] - 4 * sum(c), 0)}


def _divided(call: Call, box: list[Interval], cuts: dict[int, list[int]]) -> list[Node]:
    """The results for a box: of its first index that is cut the ends apart, and the middle divided along the others."""
    if not cuts:
        return call.over(box, {}, gathers=True)[0]
    k = min(cuts)
    before, after = cuts[k]
    start, extent = box[k]
    others = {i: c for i, c in cuts.items() if i != k}
    parts = []
    for first, count, rest in (
        (start, before, {}), (start + before, extent - before - after, others), (start + extent - after, after, {}),
    ):  # fmt: skip
        if not (isinstance(count, int) and count == 0):
            parts.append(_divided(call, [*box[:k], (first, count), *box[k + 1 :]], rest))
    return [call.b.concat(found, k) for found in zip(*parts, strict=True)]


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


def _result(form: Form, w: Statements, x: Any, like: Node | None) -> Node:
    """A result over all indices, in a dtype of its own, or of the dtype and with the rows of another."""
    b, y = w.b, w.array(x)
    node = y.node
    if like is not None:
        node = w.of_dtype(y, like.dtype)
    elif y.weak is not None:
        node = w.of_dtype(y, dtypes.default_dtype(y.weak))
    extents = tuple(a.extent for a in w.axes)
    rows = y.rows if like is None else like.ndim - len(extents)
    node = w.lifted(y, node, rows)
    shape = (*extents, *(node.shape[len(extents) :] if like is None else like.shape[len(extents) :]))
    out = b.expand(node, shape) if node.ndim else b.expand_to(node, shape)
    if form.axis is not None and y.rows == 1:
        a = one_axis(form.source.name, form.axis, out.ndim)
        last = out.ndim - 1
        out = b.permute(out, (*range(a), last, *range(a, last)))
    return out
