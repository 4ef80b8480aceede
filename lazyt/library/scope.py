"""Kernels that take the place of others within a `with` block: a mode, so programs inside and outside are others."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakValueDictionary

from lazyt.autograd.functional import vjp
from lazyt.config import HOST
from lazyt.errors import NotSupportedError
from lazyt.forking import process_lock
from lazyt.functions.arguments import tensor
from lazyt.functions.derivatives import jvp
from lazyt.interrupts import uninterrupted
from lazyt.ir.records import dataclass
from lazyt.library.derivatives import Derivative, asks_for_gradients, differentiated
from lazyt.library.kernels import ArrayKernel, Composed, Where, record_kernel
from lazyt.library.schema import Argument
from lazyt.ops.kernel_calls import SEQUENTIAL
from lazyt.tracing.current import restore_mode, set_mode
from lazyt.tracing.record import begin, operand_slots, record
from lazyt.tracing.shape_inference import inferred
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lazyt.ops.definition import OpDef

FIELD = "library"
FIXED = Argument("static", "int")  # what stands for a static argument of lazyt's own operations
# Of lazyt's own operations in `Overrides`: their names. Of users' ones `ns::name`; '' is the fallback of a backend.
Key = tuple[str, "str | None"]


@dataclass(frozen=True, slots=True)
class Registered:
    """Something that was registered, and the line that did it, by which it is not compared."""

    kernel: Any
    site: str = field(compare=False)


class Overrides:
    """Kernels by operation and backend, None for any; immutable, and one object for the same kernels."""

    kernels: dict[Key, Registered]

    def __new__(cls, kernels: dict[Key, Registered]) -> Self:
        key = frozenset(kernels.items())
        found = _overrides.get(key)
        if found is None:
            found = object.__new__(cls)
            found.kernels = dict(kernels)
            found.names = frozenset(name for name, _ in kernels)
            found.own = frozenset(name for name in found.names if "::" not in name)
            with _lock:
                found = _overrides.setdefault(key, found)
        assert isinstance(found, cls), "the only class"
        return found

    names: frozenset[str]
    own: frozenset[str]  # of them, lazyt's own operations

    def __repr__(self) -> str:
        named = [f"{name} on {backend or 'any device'}" for name, backend in self.kernels]
        return f"kernels of {', '.join(named) or 'nothing'}"

    def find(self, name: str, backend: str) -> Registered | None:
        """The kernel of an operation on a kind of device."""
        if name not in self.names:
            return None
        return self.kernels.get((name, backend)) or self.kernels.get((name, None))

    def with_kernel(self, key: Key, kernel: Registered) -> Overrides:
        """These and one more."""
        return Overrides({**self.kernels, key: kernel})

    def without(self, name: str) -> Overrides:
        """These but those of one operation."""
        return Overrides({k: v for k, v in self.kernels.items() if k[0] != name})

    # What recording asks for

    def takes(self, op: OpDef, operands: Sequence[Any]) -> bool:
        """Whether a kernel takes the place of an operation of lazyt's."""
        return op.name in self.own and self.find(op.name, device_kind(operands)) is not None

    def record(self, op: OpDef, operands: Sequence[Any], statics: tuple[Any, ...], ints: Any, offsets: Any) -> Any:
        """What is recorded in place of an operation of lazyt's; None if nothing is."""
        if op.name not in self.own:
            return None
        kind = device_kind(operands)
        found = self.find(op.name, kind)
        if found is None:
            return None
        if ints is not None or offsets is not None:
            raise NotSupportedError(
                f"not supported: a kernel (registered at {found.site}) for {op.name}, because it has sizes that may "
                "differ from call to call"
            )
        kernel = found.kernel
        if isinstance(kernel, Composed):
            return self._outside(op.name, kernel.function, *operands, *statics)
        return self._record_kernel(op, kernel, kind, operands, statics)

    def _outside(self, name: str, f: Callable[..., Any], *args: Any) -> Any:
        """f(*args) where this operation is lazyt's own: its kernel may call it."""
        before = set_mode(FIELD, self.without(name))
        try:
            return f(*args)
        finally:
            restore_mode(FIELD, before)

    def _record_kernel(
        self, op: OpDef, kernel: ArrayKernel, kind: str, operands: Sequence[Any], statics: tuple[Any, ...]
    ) -> Any:
        beside: Any = next((x for x in operands if isinstance(x, Handle)), None)
        # NOTE: no other object stands for data of the host in the operation and its derivative.
        values = [x if type(x) in (bool, int, float, complex) else tensor(x, beside) for x in operands]
        slots, _ = operand_slots(begin(), values)
        recorded, _ = inferred(op, slots, statics, None, None)
        where = Where(kind, kind == HOST, SEQUENTIAL)
        name = f"{op.name} (by a registered kernel)"

        def compute() -> Any:
            pairs = [(None, x) for x in values]
            return record_kernel(name, kernel, [*pairs, *((FIXED, s) for s in statics)], where, recorded)

        if not op.differentiable or not asks_for_gradients(values):
            return compute()

        def own(*xs: Any) -> Any:
            return self._outside(op.name, record, op, xs, statics)

        return differentiated(op.name, values, compute, _derivative(own))


def _derivative(own: Callable[..., Any]) -> Derivative:
    """The derivative of lazyt's own operation, at the inputs."""

    def of_tensors(args: Sequence[Any]) -> tuple[list[int], Callable[..., Any]]:
        at = [i for i, x in enumerate(args) if isinstance(x, Handle)]

        def f(*xs: Any) -> Any:
            given = list(args)
            for i, x in zip(at, xs, strict=True):
                given[i] = x
            return own(*given)

        return at, f

    def pull(args: Sequence[Any], output: Any, cotangent: Any) -> Any:
        at, f = of_tensors(args)
        found: list[Any] = [None] * len(args)
        _, back = vjp(f, *(args[i] for i in at))
        for i, ct in zip(at, back(cotangent), strict=True):
            found[i] = ct
        return tuple(found)

    def push(args: Sequence[Any], output: Any, tangents: Sequence[Any]) -> Any:
        at, f = of_tensors(args)
        moving = [i for i in at if tangents[i] is not None]

        def g(*xs: Any) -> Any:
            given = [args[i] for i in at]
            for i, x in zip(moving, xs, strict=True):
                given[at.index(i)] = x
            return f(*given)

        return jvp(g, tuple(args[i] for i in moving), tuple(tangents[i] for i in moving))[1]

    return Derivative(pull, push, None, False)


def device_kind(operands: Sequence[Any]) -> str:
    """The kind of device that a call on these is on."""
    for x in operands:
        if isinstance(x, Handle):
            slot = x._slot
            device = x.device if slot is None else slot.step.device
            return str(device).partition(":")[0]
        if isinstance(x, list):
            found = device_kind(x)
            if found:
                return found
    return local.trace.mode.device.partition(":")[0]


_overrides: WeakValueDictionary[frozenset[tuple[Key, Registered]], Overrides] = WeakValueDictionary()
_lock = process_lock()


class scoped:  # noqa: N801 - a function, to who calls it
    """A block whose registrations end with it: `with lt.library.scoped():`.

    Kernels that are registered inside, for operations of users or lazyt's own (`impl("exp", "cpu")`, `impl(lt.matmul,
    "cpu")`), take the place of others in what this thread records inside. Definitions, rules and fallbacks end too.
    Programs inside and outside are different programs: no plan of one is used by the other. Blocks nest.

    A kernel for an operation of lazyt's gets its operands, and then its static arguments (axes, dtypes) as they are
    recorded; gradients, forward derivatives and vmap are those of the operation. Only the operation that is called is
    replaced: `softmax` is one of its own, whatever is registered for `exp`. `lt.pending()` names the operations.

    >>> import lazyt as lt, numpy as np
    >>> x = lt.asarray([0.0, 1.0])
    >>> with lt.library.scoped():
    ...     _ = lt.library.impl(lt.exp, "cpu")(lambda x: 2 * x)
    ...     y = lt.exp(x)
    >>> y.tolist(), lt.exp(x * 0).tolist()
    ([0.0, 2.0], [1.0, 1.0])
    """

    def __init__(self) -> None:
        self._before: list[tuple[Any, list[Callable[[], None]]]] = []

    def __enter__(self) -> Self:
        now = local.trace.mode.library
        undo: list[Callable[[], None]] = []
        self._before = [*self._before, (set_mode(FIELD, now if now is not None else Overrides({})), undo)]
        _open.undo = (*_open.undo, undo)
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        before, undo = self._before.pop()
        restore_mode(FIELD, before)
        _open.undo = _open.undo[:-1]
        while undo:
            undo.pop()()


class _Open(threading.local):
    """What the open scopes of a thread will undo, the innermost last."""

    undo: tuple[list[Callable[[], None]], ...] = ()


_open = _Open()


def on_exit(undo: Callable[[], None]) -> None:
    """Undo something when the innermost scope of this thread ends; nothing outside of scopes."""
    if _open.undo:
        _open.undo[-1].append(undo)


@contextmanager
def outside_scopes() -> Iterator[None]:
    """A block that is in no scope, whatever this thread is in."""
    undo, _open.undo = _open.undo, ()
    before = set_mode(FIELD, None) if undo else None
    try:
        yield
    finally:
        if undo:
            restore_mode(FIELD, before)
        _open.undo = undo


def in_scope() -> bool:
    """Whether this thread is in a scope."""
    return bool(_open.undo)
