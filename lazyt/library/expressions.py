"""Elementwise operations of users: an expression or a function, traced once on scalars, is one step of primitives."""

from __future__ import annotations

import ast
import inspect
import math
from typing import TYPE_CHECKING, Any, NoReturn

import lazyt as lt
from lazyt.errors import NotSupportedError
from lazyt.ir import dtypes, prims
from lazyt.ir.builder import Builder
from lazyt.ir.records import dataclass
from lazyt.library.kernels import Fused
from lazyt.library.schema import Argument, Schema, SchemaError, parse, parse_name
from lazyt.ops.definition import OpDef
from lazyt.tracing.current import restore_grad_mode, restore_mode, set_grad_mode, set_mode
from lazyt.tracing.program import INPUT, MODE, Slot
from lazyt.tracing.record import begin, slot_of
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.ir.graph import Node

CONSTANTS = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan}
_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Name, ast.Constant, ast.Load, ast.operator,
    ast.unaryop, ast.cmpop,
)  # fmt: skip
# What the primitives of an elementwise operation are, movement of scalars to the shape of others among them.
_ALLOWED = frozenset((*prims.ELEMENTWISE, "cast", "constant", "scalar", "input", "expand", "reshape", "stop"))


@dataclass(frozen=True, slots=True)
class Traced:
    """One operation of the function: on arguments (their numbers), earlier ones (from the number of arguments on), or
    Python scalars."""

    op: OpDef
    operands: tuple[tuple[str, Any], ...]
    statics: tuple[Any, ...]
    name: str


def made_of(name: str, what: str | Callable[..., Any]) -> tuple[Schema, Fused]:
    """The schema and the kernel of an elementwise operation: of `ns::name`, or a whole schema."""
    if isinstance(what, str):
        tree = _parsed(what)
        arguments, f = _names(tree), _function(tree)
    elif callable(what):
        arguments, f = list(inspect.signature(what).parameters), what
    else:
        raise TypeError(f"elementwise: an expression or a function is required, got {what!r}")
    if "(" in name:
        schema = parse(name)
        if isinstance(what, str) and (unknown := {*arguments} - {a.name for a in schema.arguments}):
            raise SchemaError(f"elementwise: {min(unknown)!r} of {what!r} is no argument of {schema}")
        for a in schema.arguments:
            if a.is_list or a.optional or a.kind not in ("Tensor", "float", "int", "Scalar"):
                raise NotSupportedError(
                    f"elementwise: not supported: argument {a.name!r} of type {a.type}, because arguments are tensors "
                    "and numbers"
                )
        if schema.results != 1 or schema.is_tuple:
            raise NotSupportedError("elementwise: not supported: several results, because there is one expression")
    else:
        namespace, short = parse_name(name)
        schema = Schema(namespace, short, tuple(Argument(a, "Tensor") for a in arguments))
    names = [a.name for a in schema.arguments]
    if not names:
        raise SchemaError(f"elementwise: {name} has no arguments")
    call = f if not isinstance(what, str) else lambda *xs: f(**dict(zip(names, xs, strict=True)))
    return schema, Fused(_operation(schema, call))


def _fail(text: str, node: Any, why: str) -> NoReturn:
    raise SchemaError(f"elementwise: {why}\n  {text}\n  {' ' * getattr(node, 'col_offset', 0)}^")


def _parsed(text: str) -> ast.Expression:
    text = text.strip()
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as e:
        raise SchemaError(f"elementwise: {e.msg}\n  {text}\n  {' ' * max((e.offset or 1) - 1, 0)}^") from None
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            _fail(
                text, node, f"not supported: {type(node).__name__}, because it is no operation; where(c, x, y) chooses"
            )
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            _fail(
                text,
                node,
                "not supported: a chain of comparisons, because its `and` is of truths; write (a < b) & (b < c)",
            )
        if isinstance(node, ast.Call):
            if node.keywords or not isinstance(node.func, ast.Name):
                _fail(text, node, "a function is called by its name, on arguments by position")
            elif not callable(getattr(lt, node.func.id, None)):
                _fail(text, node, f"lazyt has no function {node.func.id!r}")
    return tree


def _names(tree: ast.Expression) -> list[str]:
    """The names of arguments, in the order in which they stand in the text."""
    called = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    names = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called and n.id not in CONSTANTS]
    return list(dict.fromkeys(n.id for n in sorted(names, key=lambda n: n.col_offset)))


def _function(tree: ast.Expression) -> Callable[..., Any]:
    code = compile(tree, "<elementwise>", "eval")
    functions = {n.func.id: getattr(lt, n.func.id) for n in ast.walk(tree) if isinstance(n, ast.Call)}  # type: ignore[attr-defined]

    def f(**arguments: Any) -> Any:
        return eval(code, {"__builtins__": {}, **CONSTANTS, **functions}, arguments)

    return f


def _operation(schema: Schema, f: Callable[..., Any]) -> OpDef:
    steps, result = _trace(schema, f)
    n = len(schema.arguments)

    def lower(b: Builder, *operands: Any) -> Node:
        values: list[Any] = list(operands)
        for s in steps:
            given = [values[v] if kind == "value" else v for kind, v in s.operands]
            values.append(s.op.lower(b, *given, *s.statics))
        out: Node = values[result]
        return out

    op = OpDef(schema.qualified, lower, saves=(*range(n),))
    _check(schema, lower)
    return op


def _trace(schema: Schema, f: Callable[..., Any]) -> tuple[list[Traced], int]:
    """What the function records on scalars, and which of its values is the result."""
    name = schema.qualified
    arguments = [lt.zeros(()) for _ in schema.arguments]
    grad, cast = set_grad_mode(False), set_mode("autocast", None)
    try:
        library = set_mode("library", None)
        try:
            with lt.no_sync():
                out = f(*arguments)
        finally:
            restore_mode("library", library)
    finally:
        restore_mode("autocast", cast)
        restore_grad_mode(grad)
    if not isinstance(out, Handle):
        raise TypeError(f"elementwise {name}: the function gave a {type(out).__name__!r}, a tensor is required")
    tr = begin()
    numbers: dict[Slot, int] = {slot_of(tr, x): i for i, x in enumerate(arguments)}
    steps: list[Traced] = []
    last = slot_of(tr, out)
    path = [s for s in tr.pos.steps() if s.op is not MODE]
    needed = _leading_to(last, numbers)
    for s in path:
        if s not in needed:
            continue
        if s.op is INPUT:
            raise NotSupportedError(f"elementwise {name}: not supported: a tensor from outside; make it an argument")
        lower = getattr(s.op, "lower", None)
        if lower is None or s.n_ints or s.n_offsets or s.targets or len(s.slots) != 1:
            raise NotSupportedError(f"elementwise {name}: not supported: {s.op.name}, because it is not elementwise")
        operands: list[tuple[str, Any]] = []
        at = s.scalar_start
        for x in s.operands:
            if isinstance(x, Slot):
                operands.append(("value", numbers[x]))
            else:
                operands.append(("number", tr.scalars[at]))
                at += 1
        steps.append(Traced(s.op, tuple(operands), s.statics, s.op.name))
        numbers[s] = len(schema.arguments) + len(steps) - 1
    return steps, numbers[last]


def _leading_to(last: Slot, known: dict[Slot, int]) -> set[Any]:
    """The steps that a value comes of, the arguments' own apart."""
    found: set[Any] = set()
    todo: list[Any] = [last]
    while todo:
        x = todo.pop()
        if x in known or x.step in found:
            continue
        found.add(x.step)
        todo += [y for y in x.step.operands if isinstance(y, Slot)]
    return found


def _check(schema: Schema, lower: Callable[..., Any]) -> None:
    """NotSupportedError unless each element of the result is computed of those at its place alone."""
    b = Builder()
    shape = (2, 3)
    given: Sequence[Any] = [
        b.input(i, shape, dtypes.float32) if a.kind == "Tensor" else 1.0 for i, a in enumerate(schema.arguments)
    ]
    out = lower(b, *given)
    wrong = next((n.op for n in b.nodes if n.op not in _ALLOWED), None)
    if wrong is not None or (out.shape not in (shape, ())):
        raise NotSupportedError(
            f"elementwise {schema.qualified}: not supported: {wrong or f'a result of shape {out.shape}'}, because each "
            "element of the result is computed of those at its place"
        )
