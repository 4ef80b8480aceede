"""Kernels: what computes an operation on a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions.arguments import tensor
from lazyt.functions.numpy_calls import make_list
from lazyt.ir import dtypes
from lazyt.ir.records import dataclass
from lazyt.library.guards import Guarded, is_checking
from lazyt.ops.kernel_calls import ON_DEVICE, ON_HOST, KernelCall, Number, operation
from lazyt.ops.numpy_calls import Nest, Place, kinds_of
from lazyt.tracing.record import record
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from lazyt.library.schema import Argument, Schema
    from lazyt.ops.definition import OpDef

    Recorded = Sequence[tuple[tuple[int, ...], np.dtype[Any]]]

NUMBERS = {float: dtypes.float64, int: dtypes.int64, bool: dtypes.bool_, complex: dtypes.complex128}


class _OfFunction:
    """A kernel that is a Python function: the same function for the same operation is the same kernel."""

    def __init__(self, function: Callable[..., Any], schema: Schema | None = None) -> None:
        self.function = function
        self.schema = schema
        self.names = [] if schema is None else [a.name for a in schema.arguments if a.keyword]

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and (other.function, other.schema) == (self.function, self.schema)

    def __hash__(self) -> int:
        return hash((type(self), self.function))

    def _call(self, values: Sequence[Any]) -> Any:
        n = len(values) - len(self.names)
        return self.function(*values[:n], **dict(zip(self.names, values[n:], strict=True)))


class ArrayKernel(_OfFunction):
    """A function of arrays, of NumPy's on the host and CuPy's on a GPU: a step that runs when it is needed."""

    def run(self, xp: Any, arguments: Sequence[Any], recorded: Recorded) -> Any:
        """The results, as the function gives them."""
        return self._call(arguments)


class Composed(_OfFunction):
    """A function of tensors, which records its operations in place of the call."""

    def record(self, values: Sequence[Any]) -> Any:
        """What the function gives, which has to be as many tensors as are declared."""
        out = self._call(values)
        schema = self.schema
        if schema is None:
            return out
        outs = tuple(out) if isinstance(out, tuple | list) else (out,)
        if len(outs) != schema.results:
            raise ShapeError(f"{schema.qualified}: its kernel gave {len(outs)} results, {schema.results} are declared")
        for x in outs:
            if not isinstance(x, Handle):
                raise TypeError(f"{schema.qualified}: its kernel gave a {type(x).__name__!r}, a tensor is required")
        return outs if schema.is_tuple else outs[0]


class Fused:
    """An operation of primitives: one step, which fuses with its neighbours."""

    def __init__(self, op: OpDef) -> None:
        self.op = op

    def record(self, values: Sequence[Any]) -> Any:
        """The result of the operation."""
        return record(self.op, tuple(values))


@dataclass(frozen=True, slots=True)
class Where:
    """How the call of a kernel is recorded: of what backend it is, on which it runs, and its rule for lanes."""

    backend: str
    on_host: bool
    batching: Any = None
    fallback: str = ""


class _Operands:
    """The operands of a call, and its arguments with places for them."""

    def __init__(self, beside: Any) -> None:
        self.found: list[Any] = []
        self.casts: list[Any] = []
        self.beside = beside

    def place(self, value: Any, is_number: bool = False) -> Any:
        """What stands for an argument: a place for a tensor or a number that may change, or the argument itself."""
        if isinstance(value, Handle) or hasattr(value, "__array_interface__"):
            self.found.append(tensor(value, self.beside))
            self.casts.append(None)
            return Place(len(self.found) - 1)
        if isinstance(value, list):
            return Nest(make_list, tuple(self.place(x) for x in value))
        if is_number and type(value) in NUMBERS:
            self.found.append(value)
            self.casts.append(NUMBERS[type(value)])
            return Number(len(self.found) - 1)
        return value


def record_kernel(
    name: str, kernel: Any, arguments: Sequence[tuple[Argument | None, Any]], where: Where, recorded: Recorded,
    is_tuple: bool = False,
) -> Any:  # fmt: skip
    """Record one call of a kernel of arrays; `arguments` are values with what they are in the schema.

    A float or Scalar is an operand, so another number is no other program.
    """
    beside = next((v for _, v in arguments if isinstance(v, Handle)), None)
    operands = _Operands(beside)
    places = tuple(
        operands.place(v, a is None or (a.kind in ("float", "Scalar") and not a.is_list)) for a, v in arguments
    )
    batching = where.batching
    if is_checking():
        named = tuple(f"argument {i}" if a is None else a.name for i, (a, _) in enumerate(arguments))
        kernel = Guarded(name, where.backend, kernel, named)
        batching = kernel.rule(batching)
    call = KernelCall(name, kernel, where.backend, places, kinds_of(places), batching, where.fallback)
    outputs = tuple((len(shape), dtype) for shape, dtype in recorded)
    ints = tuple(n for shape, _ in recorded for n in shape)
    statics = (call, tuple(operands.casts), outputs, ON_HOST if where.on_host else ON_DEVICE)
    out = record(operation(name), tuple(operands.found), statics, ints)
    return (out,) if is_tuple and len(recorded) == 1 else out
