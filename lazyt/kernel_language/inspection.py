"""What a kernel becomes, as text: its primitives, kernel IR, and the code of a backend. Nothing here runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.backends.registry import backends
from lazyt.config import HOST
from lazyt.ir.builder import Builder, Weak
from lazyt.ir.graph import Graph, reachable
from lazyt.ir.symbolic import Scope
from lazyt.runtime.first_run import options_for
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.passes import kernelize, pipeline
    from lazyt.ops.definition import OpDef
else:
    kernelize = on_demand.module("lazyt.ir.passes.kernelize")
    pipeline = on_demand.module("lazyt.ir.passes.pipeline")

_DEVICES = {"cuda": "cuda"}


def texts(op: OpDef, operands: Sequence[Any], statics: tuple[Any, ...], ints: tuple[int, ...] | None, kind: str) -> str:
    """The text of a call of the kernel: 'graph', 'ir', 'llvm', 'asm' or 'cuda'."""
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
    outputs = list(out) if isinstance(out, tuple) else [out]
    if kind == "graph":
        return str(Graph(reachable(outputs), outputs))
    backend = backends[_DEVICES.get(kind, HOST)]
    program = pipeline.compile_graph(outputs, scope, options_for(backend.name, True))
    found = []
    for i, launch in enumerate(program.launches):
        if not isinstance(launch, kernelize.KernelCall):
            found.append(f"{'//' if kind == 'cuda' else ';'} [{i + 1}] {type(launch).__name__}: a library's code")
        elif kind == "ir":
            found.append(launch.kernel.text)
        else:
            found.append(backend.kernel_text(launch.kernel, kind == "asm"))
    return "\n".join(found)
