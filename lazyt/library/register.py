"""The functions that define operations, and register kernels and rules for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from lazyt.config import HOST
from lazyt.errors import NotSupportedError
from lazyt.ir import dtypes
from lazyt.ir.records import dataclass
from lazyt.library.expressions import made_of
from lazyt.library.kernels import ArrayKernel, Composed
from lazyt.library.operation import Operation, define_once, find
from lazyt.library.registration import (
    FALLBACKS,
    RegistrationError,
    backend_of,
    check_language,
    counts,
    enter,
    here,
    own_name,
)
from lazyt.library.schema import from_function, parse
from lazyt.library.scope import FIELD, Registered, in_scope
from lazyt.ops.definition import OPS
from lazyt.ops.kernel_calls import BROADCAST, SEQUENTIAL
from lazyt.tracing.current import set_mode
from lazyt.tracing.trace import local
from lazyt.tracing.tracebacks import api_boundary

F = TypeVar("F", bound=Callable[..., Any])

COMPOSED, ARRAYS = "composed", "arrays"


def define(schema: str) -> Operation:
    """Define an operation by its schema: `ns::name(Tensor x, float alpha=1.0, int[] dims, *, bool flag) -> Tensor`.

    Types are Tensor, int, float, bool, str, Scalar (any number) and dtype, lists of them (`int[]`, `int[2]`), and `?`
    where None may be given; results are `Tensor` or `(Tensor, Tensor)`. Returns the operation, which is called like a
    function, also as `lt.library.ops.ns.name`. It computes nothing before a kernel is registered (`impl`).
    Raises SchemaError, which shows the place, or RegistrationError if the name is taken, with both lines.
    As `torch.library.define`.

    >>> import lazyt as lt, numpy as np
    >>> hypot = lt.library.define("docs::hypot(Tensor x, Tensor y) -> Tensor")
    >>> @hypot.impl("cpu")
    ... def _(x, y):
    ...     return np.hypot(x, y)
    >>> @hypot.register_fake
    ... def _(x, y):
    ...     return x
    >>> z = lt.library.ops.docs.hypot(lt.asarray([3.0]), lt.asarray([4.0]))
    >>> z.is_pending, z.tolist()
    (True, [5.0])
    """
    op = Operation(parse(schema), here())
    define_once(op)
    return op


def custom_op(name: str, backend: str | None = HOST) -> Callable[[Callable[..., Any]], Operation]:
    """A decorator that defines an operation of a function's annotations, and makes the function its kernel.

    Parameters are annotated `lt.Tensor`, `int`, `float`, `bool`, `str`, `list[int]`, `lt.Tensor | None`, ..., the
    result `lt.Tensor` or `tuple[lt.Tensor, lt.Tensor]`. With a backend the function takes arrays, as in `impl`; with
    `backend=None` tensors. As `torch.library.custom_op`.

    >>> import lazyt as lt, numpy as np
    >>> @lt.library.custom_op("docs::scaled")
    ... def scaled(x: lt.Tensor, factor: float = 2.0) -> lt.Tensor:
    ...     return (x * factor).astype(x.dtype)
    >>> _ = scaled.register_fake(lambda x, factor: x)
    >>> scaled(lt.asarray([1.0, 2.0]), factor=3.0).tolist()
    [3.0, 6.0]
    """

    @api_boundary
    def decorate(f: Callable[..., Any]) -> Operation:
        op = Operation(from_function(name, f), here())
        op.__doc__ = f.__doc__ or op.__doc__
        define_once(op)
        impl(op, backend)(f)
        return op

    return decorate


def elementwise(name: str, what: Any = None) -> Any:
    """Define an operation on each element by an expression or a function; it fuses with its neighbours as lazyt's do.

    An expression has the names of arguments, numbers, operators, `pi`, `e`, `inf`, and lazyt's functions by name. A
    function is called once, on scalars, and what it records is the operation; as a decorator where it is not given.
    `name` may be a whole schema (`ns::name(Tensor x, float a=2.0) -> Tensor`), otherwise all arguments are tensors.
    Gradients, forward derivatives, vmap and every backend come by themselves. Raises SchemaError, or NotSupportedError
    for what is not elementwise.

    >>> import lazyt as lt
    >>> decay = lt.library.elementwise("docs::decay", "x * exp(-y)")
    >>> decay(lt.asarray([2.0, 4.0]), 0 * lt.ones(2)).tolist()
    [2.0, 4.0]
    """
    if what is None:
        return lambda f: elementwise(name, f)
    schema, kernel = made_of(name, what)
    op = Operation(schema, here())
    define_once(op)
    enter(op.kernels, None, Registered(kernel, op.site), f"elementwise: {op.name}")
    return op


def _operation(op: Any, what: str) -> Operation:
    if isinstance(op, Operation):
        return op
    if isinstance(op, str) and "::" in op and not own_name(op):
        return find(op)
    if own_name(op):
        raise NotSupportedError(
            f"{what}: not supported: {own_name(op)!r}, because lazyt's own operations keep their rules; their kernels "
            "can be replaced, by impl() in a scope"
        )
    raise TypeError(f"{what}: an operation or its name 'ns::name' is required, got {op!r}")


def impl(op: Any, backend: str | None = None, kernel: Any = None, *, kind: str | None = None) -> Any:
    """Register a kernel of an operation for a backend ('cpu', 'cuda', ...), or for all (None); mostly a decorator.

    With a backend the kernel is a function of arrays, NumPy's on the CPU and CuPy's on a GPU: a deferred step, which
    runs when its result is needed, in the order of the program. Its inputs cannot be written, and its results must have
    the shapes and dtypes that `register_fake` says (checked). Without a backend it is a function of tensors, which is
    called at once and records its operations, so they fuse; `kind="composed"` says so with a backend too. Compiled code
    is `lt.library.c_function`, `lt.library.llvm_ir` or `lt.library.cuda_source`.

    `op` is an operation, or its name. In `with lt.library.scoped()` the kernel takes the place of others, and `op` may
    be one of lazyt's own: its name, or its function (`lt.exp`). Raises RegistrationError for a second kernel, with both
    lines. As `torch.library.impl`.
    """
    if kernel is None:
        return lambda f: impl(op, backend, f, kind=kind)
    if backend is not None:
        backend_of(backend, "impl")
    if kind not in (None, COMPOSED, ARRAYS):
        raise ValueError(f"impl: kind is {COMPOSED!r}, {ARRAYS!r} or None, got {kind!r}")
    if not callable(kernel) and not hasattr(kernel, "run"):
        raise TypeError(f"impl: a kernel is a function, or compiled code of lazyt.library, got {kernel!r}")
    own = own_name(op) if not isinstance(op, Operation) else ""
    schema = None if own else _operation(op, "impl").schema
    if language := getattr(kernel, "language", ""):
        check_language(backend, language)
    if hasattr(kernel, "run"):
        made = kernel.bound(schema) if hasattr(kernel, "bound") else kernel
    elif kind == COMPOSED or (kind is None and backend is None):
        made = Composed(kernel, schema)
    elif backend is None:
        raise ValueError("impl: a kernel of arrays is for one backend; name it")
    else:
        made = ArrayKernel(kernel, schema)
    registered = Registered(made, here())
    if own:
        _impl_own(own, backend, registered)
    else:
        name = _operation(op, "impl")
        if in_scope():
            _override((name.name, backend), registered)
        else:
            enter(name.kernels, backend, registered, f"impl: a kernel of {name.name} for {backend or 'all backends'!r}")
    return kernel


def _impl_own(name: str, backend: str | None, registered: Registered) -> None:
    if not in_scope():
        raise RegistrationError(
            f"impl: {name!r} is one of lazyt's own operations, whose kernels are replaced in "
            "`with lazyt.library.scoped():` alone"
        )
    if OPS[name].write is not None:
        raise NotSupportedError(f"impl: not supported: a kernel for {name!r}, because its result is a view")
    if not isinstance(registered.kernel, ArrayKernel | Composed):
        raise NotSupportedError(
            f"impl: not supported: compiled code for {name!r}, because lazyt's own operations have no schema; "
            "define an operation for it, and call that in a composed kernel"
        )
    _override((name, backend), registered)


def _override(key: Any, registered: Registered) -> None:
    set_mode(FIELD, local.trace.mode.library.with_kernel(key, registered))


def fallback(backend: str, op: Any = None) -> None:
    """Let operations without a kernel for a backend run by their kernel for the CPU: one operation, or all (None).

    Their operands are copied to the host and back. Each such call is counted (`fallback_counts()`), and `lt.explain()`
    names it. A kernel for the backend goes before a fallback.

    >>> import lazyt as lt
    >>> with lt.library.scoped():
    ...     lt.library.fallback("cuda")
    """
    if backend_of(backend, "fallback") == HOST:
        raise RegistrationError("fallback: the CPU falls back to nothing")
    registered = Registered(True, here())
    if op is None:
        enter(FALLBACKS, backend, registered, f"fallback: that of {backend!r}")
    else:
        found = _operation(op, "fallback")
        enter(found.rules, ("fallback", backend), registered, f"fallback: that of {found.name} for {backend!r}")


def fallback_counts() -> dict[tuple[str, str], int]:
    """How often operations were recorded to fall back to the CPU: by (name, kind of device).

    >>> import lazyt as lt
    >>> lt.library.fallback_counts().get(("shop::price", "npu"), 0)
    0
    """
    return dict(counts)


def _rule(op: Any, key: Any, what: str, rule: Any, value: Any) -> Any:
    if not callable(rule):
        raise TypeError(f"{what}: a function is required, got {rule!r}")
    found = _operation(op, what)
    enter(found.rules, key, Registered(value, here()), f"{what}: that of {found.name}")
    return rule


def register_fake(op: Any, rule: Any = None) -> Any:
    """Register the function that says the shape and dtype of each result, of `Fake`s in place of tensors; a decorator.

    It takes the arguments of the operation, with a `Fake` (`shape`, `dtype`, `new_empty(shape, dtype=None)`) for each
    tensor, and gives a `Fake`, or a pair (shape, dtype), for each result. Errors that it raises come at the user's
    line. Operations that are composed or elementwise need none. As `torch.library.register_fake`.
    """
    if rule is None:
        return lambda f: register_fake(op, f)
    return _rule(op, "fake", "register_fake", rule, rule)


@dataclass(frozen=True, slots=True)
class _Reading:
    """A derivative and what it reads."""

    vjp: Any = None
    jvp: Any = None
    reads: frozenset[int] | None = None
    reads_output: bool = True


def _reads(op: Operation, saves: Sequence[str] | None, what: str) -> dict[str, Any]:
    if saves is None:
        return {}
    names = [a.name for a in op.schema.arguments]
    for name in saves:
        if name != "output" and name not in names:
            raise ValueError(f"{what}: saves has {name!r}, which is no argument of {op.schema} and not 'output'")
    tensors = frozenset(i for i, name in enumerate(names) if name in saves)
    return {"reads": tensors, "reads_output": "output" in saves}


def register_vjp(op: Any, rule: Any = None, *, saves: Sequence[str] | None = None) -> Any:
    """Register the reverse derivative `rule(args, output, cotangent)`; a decorator.

    It gives one cotangent an argument of the operation, None where there is none. `args` is a tuple of all arguments;
    `output` and `cotangent` are a tensor each, or tuples for several results. The rule records operations of tensors,
    so it can be differentiated again. `saves` names the arguments (and 'output') that the rule reads; the others are
    None in it, and are not kept until the backward. Without a rule a gradient is refused where the call is recorded.

    >>> import lazyt as lt, numpy as np
    >>> cube = lt.library.define("docs::cube(Tensor x) -> Tensor")
    >>> _ = cube.impl("cpu")(lambda x: x**3), cube.register_fake(lambda x: x)
    >>> @lt.library.register_vjp("docs::cube", saves=("x",))
    ... def _(args, output, ct):
    ...     return ct * 3 * args[0] ** 2
    >>> lt.grad(cube)(lt.asarray(2.0)).item()
    12.0
    """
    if rule is None:
        return lambda f: register_vjp(op, f, saves=saves)
    found = _operation(op, "register_vjp")
    return _rule(found, "vjp", "register_vjp", rule, _Reading(vjp=rule, **_reads(found, saves, "register_vjp")))


def register_jvp(op: Any, rule: Any = None, *, saves: Sequence[str] | None = None) -> Any:
    """Register the forward derivative `rule(args, output, tangents)`; a decorator.

    `tangents` has one entry an argument, None where it does not vary; the rule gives the tangent of the result, or a
    tuple for several. It must be linear in the tangents: where no `register_vjp` is there, its transpose is the
    reverse derivative, which can be differentiated again. `saves` as in `register_vjp`.

    >>> import lazyt as lt, numpy as np
    >>> square = lt.library.define("docs::square(Tensor x) -> Tensor")
    >>> _ = square.impl("cpu")(np.square), square.register_fake(lambda x: x)
    >>> _ = lt.library.register_jvp("docs::square", lambda args, output, ts: 2 * args[0] * ts[0])
    >>> lt.jvp(square, (lt.asarray(3.0),), (lt.asarray(1.0),))[1].item(), lt.grad(square)(lt.asarray(3.0)).item()
    (6.0, 6.0)
    """
    if rule is None:
        return lambda f: register_jvp(op, f, saves=saves)
    found = _operation(op, "register_jvp")
    return _rule(found, "jvp", "register_jvp", rule, _Reading(jvp=rule, **_reads(found, saves, "register_jvp")))


def register_batching(op: Any, rule: Any = None) -> Any:
    """Register what `vmap` does with kernels of arrays: 'sequential', 'broadcast_all', or a function; a decorator.

    'sequential' calls the kernel once a lane. 'broadcast_all' calls it once, with an axis of lanes before all others in
    each tensor: right for kernels that treat the last axes, or each element. A function is a kernel for all lanes,
    `rule(axis_size, in_axes, *args)`: arrays whose entry in `in_axes` is 0 have the lanes first, those with None are
    shared; its results have them first. Composed and elementwise operations need none.

    >>> import lazyt as lt, numpy as np
    >>> largest = lt.library.define("docs::largest(Tensor x) -> Tensor")
    >>> _ = largest.impl("cpu")(np.max), largest.register_fake(lambda x: x.new_empty(()))
    >>> _ = lt.library.register_batching("docs::largest", lambda size, axes, x: x.reshape(size, -1).max(axis=1))
    >>> lt.vmap(largest)(lt.asarray([[1.0, 2.0], [4.0, 3.0]])).tolist()
    [2.0, 4.0]
    """
    if rule is None:
        return lambda f: register_batching(op, f)
    found = _operation(op, "register_batching")
    if isinstance(rule, str) and rule not in (SEQUENTIAL, BROADCAST):
        raise ValueError(f"register_batching: {SEQUENTIAL!r}, {BROADCAST!r} or a function is required, got {rule!r}")
    if not isinstance(rule, str):
        return _rule(found, "batching", "register_batching", rule, rule)
    enter(found.rules, "batching", Registered(rule, here()), f"register_batching: that of {found.name}")
    return rule


def register_autocast(op: Any, device_type: str, cast_inputs: Any) -> None:
    """Cast floating operands (but float64) to a dtype where the operation is called in an autocast region.

    The kernel runs outside of the region then. As `torch.library.register_autocast`.

    >>> import lazyt as lt, numpy as np
    >>> double = lt.library.define("docs::double(Tensor x) -> Tensor")
    >>> _ = double.impl("cpu")(lambda x: x + x), double.register_fake(lambda x: x)
    >>> lt.library.register_autocast("docs::double", "cpu", lt.float16)
    >>> with lt.autocast("cpu"):
    ...     double(lt.ones(2)).dtype
    dtype('float16')
    """
    found = _operation(op, "register_autocast")
    backend_of(device_type, "register_autocast")
    dtype = dtypes.as_dtype(cast_inputs)
    if dtypes.kind(dtype) != "f":
        raise ValueError(f"register_autocast: a floating dtype is required, got {dtype}")
    what = f"register_autocast: that of {found.name} for {device_type!r}"
    enter(found.rules, ("autocast", device_type), Registered(dtype, here()), what)


for _f in (impl, fallback, register_fake, register_vjp, register_jvp, register_batching, register_autocast):
    if _f is not fallback:
        setattr(Operation, _f.__name__, _f)
