"""What a kernel becomes, as text: its primitives, kernel IR, and the code of a backend. Nothing here runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.backends import registry
from lazyt.config import HOST
from lazyt.ir.builder import Builder, Weak
from lazyt.ir.graph import Graph, reachable
from lazyt.ir.symbolic import Scope
from lazyt.runtime.plan import options_for
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.graph import Node
    from lazyt.ir.passes import kernelize, pipeline
    from lazyt.ir.passes.schedule import Launch
    from lazyt.ops.definition import OpDef
else:
    kernelize = on_demand.module("lazyt.ir.passes.kernelize")
    pipeline = on_demand.module("lazyt.ir.passes.pipeline")


def _lowered(
    op: OpDef, operands: Sequence[Any], statics: tuple[Any, ...], ints: tuple[int, ...] | None
) -> tuple[list[Node], Scope]:
    """The results over symbols for extents."""
    scope = Scope()
    b = Builder(scope)
    sizes: list[int] = []

    def symbol(n: int) -> Any:
        sizes.append(n)
        return scope.symbol(len(sizes) - 1, n)

    given: list[Any] = []
    arrays = scalars = 0
    for x in operands:
        if isinstance(x, Handle):
            given.append(b.input(arrays, tuple(symbol(n) for n in x.shape), x.dtype))
            arrays += 1
        else:
            given.append(Weak(scalars, type(x)))
            scalars += 1
    more = {} if ints is None else {"ints": tuple(map(symbol, ints))}
    out = op.lower(b, *given, *statics, **more)
    return list(out) if isinstance(out, tuple) else [out], scope


def _launches(
    op: OpDef, operands: Sequence[Any], statics: tuple[Any, ...], ints: tuple[int, ...] | None, kind: str
) -> tuple[Launch, ...]:
    outputs, scope = _lowered(op, operands, statics, ints)
    return pipeline.compile_graph(outputs, scope, options_for(kind, True)).launches


def _of_library(number: int, launch: Launch, comment: str) -> str:
    return f"{comment} [{number}] {type(launch).__name__}: a library's code\n"


def graph_text(op: OpDef, operands: Sequence[Any], statics: tuple[Any, ...], ints: tuple[int, ...] | None) -> str:
    """The graph IR of a call."""
    outputs, _ = _lowered(op, operands, statics, ints)
    return str(Graph(reachable(outputs), outputs))


def ir_text(op: OpDef, operands: Sequence[Any], statics: tuple[Any, ...], ints: tuple[int, ...] | None) -> str:
    """The kernel IR of a call."""
    launches = enumerate(_launches(op, operands, statics, ints, HOST), 1)
    return "\n".join(
        x.kernel.text if isinstance(x, kernelize.KernelCall) else _of_library(i, x, ";") for i, x in launches
    )


def code_text(
    op: OpDef, operands: Sequence[Any], statics: tuple[Any, ...], ints: tuple[int, ...] | None, device: str,
    assembly: bool,
) -> str:  # fmt: skip
    """The code of a call for a kind of device."""
    kind = device.partition(":")[0]
    backend = registry.get(kind)
    comment = ";" if kind == HOST else "//"
    return "\n".join(
        backend.kernel_text(x.kernel, assembly) if isinstance(x, kernelize.KernelCall) else _of_library(i, x, comment)
        for i, x in enumerate(_launches(op, operands, statics, ints, kind), 1)
    )
