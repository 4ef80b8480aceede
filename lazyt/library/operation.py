"""An operation of a user's: what is registered for it, and what a call records."""

from __future__ import annotations

from difflib import get_close_matches
from math import prod
from typing import TYPE_CHECKING, Any

from lazyt.config import HOST
from lazyt.errors import NotSupportedError, ShapeError
from lazyt.functions.arguments import tensor
from lazyt.ir import dtypes
from lazyt.library.derivatives import Derivative, asks_for_gradients, differentiated
from lazyt.library.kernels import Composed, Fused, Where, record_kernel
from lazyt.library.registration import FALLBACKS, RegistrationError, counts, has_put, put
from lazyt.library.scope import Registered, device_kind, on_exit
from lazyt.tracing.autocast import cast_all, outside
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import local

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from lazyt.library.schema import Schema

MOST_SHAPES = 1024


class Fake:
    """What `register_fake` gets for a tensor: its `shape`, `dtype`, `device`, `ndim` and `size`, and no value.

    >>> import lazyt as lt
    >>> lt.library.Fake((2, 3), lt.float32).new_empty((3,))
    Fake(shape=(3,), dtype=float32, device='cpu')
    """

    __slots__ = ("device", "dtype", "shape")

    def __init__(self, shape: Sequence[int], dtype: Any, device: str = HOST) -> None:
        self.shape = tuple(int(n) for n in shape)
        self.dtype = dtypes.as_dtype(dtype)
        self.device = device

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    def new_empty(self, shape: Sequence[int], dtype: Any = None) -> Fake:
        """One of another shape, and of this dtype unless one is given."""
        return Fake(shape, self.dtype if dtype is None else dtype, self.device)

    def __repr__(self) -> str:
        return f"Fake(shape={self.shape}, dtype={self.dtype}, device={self.device!r})"


class Operation:
    """An operation that `define` made: call it, or register kernels and rules for it.

    Its methods `impl`, `register_fake`, `register_vjp`, ... are the functions of these names in `lazyt.library`.
    """

    def __init__(self, schema: Schema, site: str) -> None:
        self.schema = schema
        self.site = site
        # By kind of device, None for all of them.
        self.kernels: dict[str | None, Registered] = {}
        # 'fake', 'vjp', 'jvp', 'batching', (autocast, kind), (fallback, kind)
        self.rules: dict[Any, Registered] = {}
        self._shapes: dict[Any, Any] = {}
        self.__name__ = schema.name
        self.__qualname__ = schema.qualified
        self.__doc__ = str(schema)

    @property
    def name(self) -> str:
        """`ns::name`."""
        return self.schema.qualified

    def __repr__(self) -> str:
        return f"<lazyt.library operation {self.schema}>"

    def rule(self, key: Any) -> Any:
        """What is registered under this; None if nothing is."""
        found = self.rules.get(key)
        return None if found is None else found.kernel

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values = self._as_tensors(self.schema.bind(args, kwargs))
        kind = device_kind(values)
        region = local.trace.mode.autocast
        if region is not None and kind in region.lower:
            dtype = self.rule(("autocast", kind))
            if dtype is not None:
                cast = cast_all(values, kind, dtype)
                return outside(self._record, values if cast is None else cast, kind)
        return self._record(values, kind)

    def _as_tensors(self, values: list[Any]) -> list[Any]:
        beside: Any = next((v for v in values if isinstance(v, Handle)), None)
        for i, a in enumerate(self.schema.arguments):
            v = values[i]
            if a.kind == "Tensor" and v is not None:
                values[i] = [tensor(x, beside) for x in v] if a.is_list else tensor(v, beside)
        return values

    def _record(self, values: Sequence[Any], kind: str) -> Any:
        found, where = self._kernel(kind)
        derivative = self._derivative()
        if derivative is None:
            if not isinstance(found, Composed | Fused) and asks_for_gradients(values) and self._floats(values, kind):
                raise NotSupportedError(
                    f"not supported: a gradient through {self.name}, because no derivative is registered for it; "
                    f"register one by lazyt.library.register_vjp({self.name!r}), or record it under no_grad()"
                )
            return self._compute(found, where, values, kind)
        if not asks_for_gradients(values):
            return self._compute(found, where, values, kind)
        return differentiated(self.name, values, lambda: self._compute(found, where, values, kind), derivative)

    def _compute(self, kernel: Any, where: Where, values: Sequence[Any], kind: str) -> Any:
        if isinstance(kernel, Composed | Fused):
            return kernel.record(values)
        recorded = self.shapes(values, kind)
        arguments = list(zip(self.schema.arguments, values, strict=True))
        check = getattr(kernel, "check", None)
        if check is not None:
            check(self.schema, values, recorded)
        return record_kernel(self.name, kernel, arguments, where, recorded, self.schema.is_tuple)

    def _floats(self, values: Sequence[Any], kind: str) -> bool:
        return any(dtypes.kind(d) in "fc" for _, d in self.shapes(values, kind))

    def _derivative(self) -> Derivative | None:
        pull, push = self.rule("vjp"), self.rule("jvp")
        if pull is None and push is None:
            return None
        reads = None if pull is None else pull.reads
        if pull is None or push is None:
            only = pull or push
            return Derivative(pull and pull.vjp, push and push.jvp, only.reads, only.reads_output)
        if reads is not None:
            reads = None if push.reads is None else reads | push.reads
        return Derivative(pull.vjp, push.jvp, reads, pull.reads_output or push.reads_output)

    # Kernels

    def _kernel(self, kind: str) -> tuple[Any, Where]:
        """The kernel on a kind of device: a scope's, its own, that for any, and then that for the CPU as a fallback."""
        overrides = local.trace.mode.library
        batching = self.rule("batching")
        if overrides is not None:
            found = overrides.find(self.name, kind)
            if found is not None:
                return found.kernel, Where(kind, kind == HOST, batching)
        found = self.kernels.get(kind) or self.kernels.get(None)
        if found is not None:
            return found.kernel, Where(kind, kind == HOST, batching)
        on_host = (overrides and overrides.find(self.name, HOST)) or self.kernels.get(HOST)
        own = self.rules.get(("fallback", kind))
        allowed = own or FALLBACKS.get(kind)
        if on_host is None or allowed is None:
            raise self._missing(kind)
        counts[self.name, kind] += 1
        why = f"no kernel of {self.name} for {kind!r}; a fallback registered at {allowed.site}"
        return on_host.kernel, Where(HOST, True, batching, why)

    def _missing(self, kind: str) -> NotSupportedError:
        known = ", ".join(f"{backend!r} (at {r.site})" for backend, r in self.kernels.items()) or "none"
        remedy = f"register one by lazyt.library.impl({self.name!r}, {kind!r})"
        if kind != HOST:
            remedy += f", allow the CPU's by lazyt.library.fallback({kind!r}), or move the operands by .to('cpu')"
        return NotSupportedError(
            f"not supported: {self.name} on {kind!r}, because it has no kernel there; registered: {known}; {remedy}"
        )

    # Shapes

    def shapes(self, values: Sequence[Any], kind: str) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
        """(shape, dtype) of each result, by the function that is registered; the same call is not asked again."""
        rule = self.rule("fake")
        if rule is None:
            raise NotSupportedError(
                f"not supported: recording {self.name}, because nothing says the shape and dtype of its result; "
                f"register a function by lazyt.library.register_fake({self.name!r})"
            )
        key = (rule, kind, *(_form(v) for v in values))
        found = self._shapes.get(key)
        if found is None:
            if len(self._shapes) >= MOST_SHAPES:
                self._shapes.clear()
            found = self._shapes[key] = self._asked(rule, values)
        return found  # type: ignore[no-any-return]

    def _asked(self, rule: Any, values: Sequence[Any]) -> Any:
        given = [_fake(v) for v in values]
        arguments = self.schema.arguments
        n = sum(not a.keyword for a in arguments)
        got = rule(*given[:n], **{a.name: v for a, v in zip(arguments[n:], given[n:], strict=True)})
        outs = tuple(got) if self.schema.is_tuple and isinstance(got, tuple | list) else (got,)
        if len(outs) != self.schema.results:
            raise ShapeError(
                f"{self.name}: its register_fake gave {len(outs)} results, {self.schema.results} are declared"
            )
        return tuple(_described(self.name, x) for x in outs)


def _form(v: Any) -> Any:
    if isinstance(v, Handle):
        t: Any = v
        return "Tensor", t.shape, t.dtype
    if isinstance(v, list):
        return tuple(map(_form, v))
    return type(v), repr(v) if isinstance(v, float | complex) else v


def _fake(v: Any) -> Any:
    if isinstance(v, Handle):
        t: Any = v
        return Fake(t.shape, t.dtype, str(t.device))
    return [_fake(x) for x in v] if isinstance(v, list) else v


def _described(name: str, x: Any) -> tuple[tuple[int, ...], Any]:
    if isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], tuple | list):
        x = Fake(x[0], x[1])
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        raise TypeError(
            f"{name}: its register_fake gave {x!r}; a result is a pair (shape, dtype), or has a shape and a dtype"
        )
    shape = tuple(x.shape)
    if any(not hasattr(n, "__index__") or n < 0 for n in shape):
        raise ShapeError(f"{name}: its register_fake gave the shape {shape}")
    return tuple(int(n) for n in shape), dtypes.as_dtype(x.dtype)


OPERATIONS: dict[str, Operation] = {}


def define_once(op: Operation) -> None:
    """Add an operation until the scope ends; RegistrationError if another line defined one of its name."""
    name = op.schema.qualified
    old = OPERATIONS.get(name)
    if old is not None and old.site != op.site and not has_put(OPERATIONS, name):
        raise RegistrationError(f"define: {name} is defined already, at {old.site}; it was defined again at {op.site}")
    put(OPERATIONS, name, op)

    def undo() -> None:
        if old is None:
            OPERATIONS.pop(name, None)  # its plugin may have been removed
        else:
            OPERATIONS[name] = old

    on_exit(undo)


def find(name: str) -> Operation:
    """The operation `ns::name`; RegistrationError if there is none."""
    found = OPERATIONS.get(name)
    if found is None:
        close = get_close_matches(name, OPERATIONS, 3)
        more = f"; did you mean {' or '.join(close)}?" if close else "; define it by lazyt.library.define(schema)"
        raise RegistrationError(f"{name}: no such operation{more}")
    return found
