"""`lazyt.kernel`: a Python function of indices, or of rows, as an operation."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from lazyt.config import HOST
from lazyt.errors import DTypeError, LazytError, ShapeError
from lazyt.functions.arguments import shape_of, tensor
from lazyt.kernel_language import lowering
from lazyt.kernel_language.inspection import code_text, graph_text, ir_text
from lazyt.kernel_language.lowering import NUMBER, STATIC, TENSOR, Form
from lazyt.kernel_language.outside import Outside
from lazyt.kernel_language.reads import BOUNDS
from lazyt.kernel_language.reference import evaluate
from lazyt.kernel_language.source import Source
from lazyt.ops.definition import OpDef
from lazyt.tracing import tracebacks
from lazyt.tracing.record import is_grad_enabled, record
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.functions.arguments import ShapeLike

__all__ = ["kernel"]


class Kernel:
    """What `lazyt.kernel` makes of a function: call it with the arguments behind the indices.

    >>> import lazyt as lt
    >>> @lt.kernel
    ... def scaled(i, j, /, x, factors):
    ...     return x[i, j] * factors[j]
    >>> scaled(lt.ones((2, 3)), lt.arange(3)).tolist()
    [[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]
    """

    def __init__(self, function: Callable[..., Any], bounds: str, axis: int | None) -> None:
        self._form = form = Form(Source(function), bounds, axis)
        functools.update_wrapper(self, function)
        lower = functools.partial(lowering.lower, form)
        self._op = OpDef(form.source.name, lower, saves=tuple(range(len(form.arguments))), fallible=form.fallible)
        given = list(inspect.signature(function).parameters.values())[len(form.indices) :]
        self._signature = inspect.Signature(given)
        self._outside = Outside(form.source)
        # Types of arguments that are operands as they are -> what each is recorded as.
        self._plain: dict[tuple[type, ...], str] = {}

    def __repr__(self) -> str:
        return f"<lazyt.kernel {self._form.source.name}{self._signature}>"

    def __call__(self, *args: Any, shape: ShapeLike | None = None, **kwargs: Any) -> Any:
        """Record the kernel; nothing runs. One tensor, or a tuple of those that the function returns."""
        if shape is None and not kwargs:
            kinds = self._plain.get(tuple(map(type, args)))
            if kinds is not None:
                return record(self._op, args, self._statics(kinds, args, ()))
        operands, statics, ints = self._recorded(args, kwargs, shape)
        return record(self._op, operands, statics, ints)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        if not kwargs and len(args) == len(self._form.arguments):
            return list(args)
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as e:
            raise TypeError(f"kernel {self._form.source.name}{self._signature}: {e}") from None
        bound.apply_defaults()
        return list(bound.arguments.values())

    def _recorded(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], shape: ShapeLike | None
    ) -> tuple[list[Any], tuple[Any, ...], tuple[int, ...] | None]:
        """What is recorded: operands, constants, and the shape if it is given."""
        form = self._form
        name = form.source.name
        kinds, operands, fixed = "", [], []
        values = self._bound(args, kwargs)
        beside: Any = next((x for x in values if isinstance(x, Handle)), None)
        for argument, x in zip(form.arguments, values, strict=True):
            if type(x) in (float, complex):
                kinds += NUMBER
                operands.append(x)
            elif isinstance(x, bool | int | np.bool_ | np.integer) and not isinstance(x, Handle):
                kinds += STATIC
                fixed.append(x.item() if isinstance(x, np.generic) else x)
            elif x is None or isinstance(x, str):
                raise DTypeError(f"kernel {name}: argument {argument!r} is an array or a number, got {x!r}")
            else:
                kinds += TENSOR
                try:
                    operands.append(tensor(x, beside))
                except LazytError as e:
                    raise type(e)(f"kernel {name}: argument {argument!r}: {e}") from None
        if TENSOR in kinds and all(isinstance(x, Handle | float | complex) for x in args) and len(args) == len(kinds):
            self._plain[tuple(map(type, args))] = kinds
        if TENSOR not in kinds and shape is None:
            raise ShapeError(f"kernel {name}: no argument is an array, so no extent is known; give shape=")
        ints = None
        if shape is not None:
            if form.axis is not None:
                raise ShapeError(f"kernel {name}: shape={shape} of a kernel over rows, which has that of its arguments")
            ints = shape_of(f"kernel {name}", shape)
            if len(ints) != len(form.indices):
                raise ShapeError(
                    f"kernel {name}: shape={ints} has {len(ints)} extents, and the indices are "
                    f"{', '.join(form.indices)}"
                )
        return operands, self._statics(kinds, operands, fixed), ints

    def _statics(self, kinds: str, operands: Sequence[Any], fixed: Sequence[Any]) -> tuple[Any, ...]:
        names, numbers = self._outside.read()
        divides = self._form.divides and not (
            is_grad_enabled() and any(isinstance(x, Handle) and x.requires_grad for x in operands)
        )
        return (kinds, names, divides, *fixed, *numbers)

    def python(self, *args: Any, shape: ShapeLike | None = None, **kwargs: Any) -> Any:
        """What the function itself gives, called by Python once for each index: NumPy arrays. To test against.

        >>> import lazyt as lt
        >>> @lt.kernel
        ... def twice(i, /, x):
        ...     return 2 * x[i]
        >>> twice.python([1.0, 2.0])
        array([2., 4.])
        """
        return evaluate(self._form, self._bound(args, kwargs), shape)

    def graph(self, *args: Any, shape: ShapeLike | None = None, **kwargs: Any) -> str:
        """The primitives that a call with these arguments is recorded as: the graph IR. Runs nothing.

        >>> import lazyt as lt
        >>> @lt.kernel
        ... def twice(i, /, x):
        ...     return 2 * x[i]
        >>> print(twice.graph(lt.ones(3)))
        %0 = input 0 : float32 (s0,)
        %1 = constant 2.0 : float32 ()
        %2 = reshape %1 : float32 (1,)
        %3 = expand %2 : float32 (s0,)
        %4 = mul %3, %0 : float32 (s0,)
        return %4
        """
        return graph_text(self._op, *self._recorded(args, kwargs, shape))

    def ir(self, *args: Any, shape: ShapeLike | None = None, **kwargs: Any) -> str:
        """The kernel IR of a call with these arguments, alone. Runs and compiles nothing.

        >>> import lazyt as lt
        >>> @lt.kernel
        ... def twice(i, /, x):
        ...     return 2 * x[i]
        >>> "mul" in twice.ir(lt.ones(3))
        True
        """
        return ir_text(self._op, *self._recorded(args, kwargs, shape))

    def source(self, *args: Any, shape: ShapeLike | None = None, device: str = HOST, **kwargs: Any) -> str:
        """The code of a call with these arguments, alone: LLVM IR for the CPU, CUDA C for `device="cuda"`.

        No device is needed, and nothing runs or is compiled. NotSupportedError for a backend that shows no code.

        >>> import lazyt as lt
        >>> @lt.kernel
        ... def twice(i, /, x):
        ...     return 2 * x[i]
        >>> "fmul" in twice.source(lt.ones(3)), "__global__" in twice.source(lt.ones(3), device="cuda")
        (True, True)
        """
        return code_text(self._op, *self._recorded(args, kwargs, shape), device, assembly=False)

    def assembly(self, *args: Any, shape: ShapeLike | None = None, device: str = HOST, **kwargs: Any) -> str:
        """The assembly of a call with these arguments, alone, for this host. Runs nothing.

        >>> import lazyt as lt
        >>> @lt.kernel
        ... def twice(i, /, x):
        ...     return 2 * x[i]
        >>> "ret" in twice.assembly(lt.ones(3))
        True
        """
        return code_text(self._op, *self._recorded(args, kwargs, shape), device, assembly=True)


@overload
def kernel(function: Callable[..., Any], /) -> Kernel: ...


@overload
def kernel(*, bounds: str = "error", axis: int | None = None) -> Callable[[Callable[..., Any]], Kernel]: ...


def kernel(
    function: Callable[..., Any] | None = None, /, *, bounds: str = "error", axis: int | None = None
) -> Kernel | Callable[[Callable[..., Any]], Kernel]:
    """An operation from a Python function that says the value at one index, or for one row.

    The parameters before `/` are the indices; the function is read, never called. Conditions, `for ... in range(...)`,
    reductions such as `sum(a[i, k] for k in range(a.shape[1]))`, local variables, elementwise functions of lazyt, NumPy
    and `math`, and functions of the user's are what it may be made of; it returns a value or a tuple of values. An
    index runs over the axis of the arguments that it is read at alone, or over the extent that `shape=` gives at a
    call. `bounds` says what is read outside: 'error', 'zero', 'clamp' or 'wrap'. With `axis`, arguments are rows along
    it. What is made has methods that take the arguments of a call: `python`, `graph`, `ir`, `source` and `assembly`.
    Raises NotSupportedError at the line of what a kernel cannot do. As `numba.guvectorize` and `numba.stencil`.

    >>> import lazyt as lt
    >>> @lt.kernel(bounds="zero")
    ... def blur(i, /, x):
    ...     return (x[i - 1] + x[i] + x[i + 1]) / 3
    >>> blur(lt.asarray([3.0, 0.0, 6.0])).tolist()
    [1.0, 3.0, 2.0]
    >>> @lt.kernel(axis=-1)
    ... def centred(x):
    ...     return x - sum(x) / len(x)
    >>> centred(lt.asarray([[1.0, 3.0], [0.0, 4.0]])).tolist()
    [[-1.0, 1.0], [-2.0, 2.0]]
    """
    if bounds not in BOUNDS:
        raise ShapeError(f"kernel: bounds={bounds!r} is not one of {', '.join(BOUNDS)}")
    if axis is not None and (isinstance(axis, bool) or not isinstance(axis, int)):
        raise DTypeError(f"kernel: axis is an integer, got {axis!r}")
    if function is None:
        return lambda f: Kernel(f, bounds, axis)
    return Kernel(function, bounds, axis)


tracebacks.guard_functions(globals(), ["kernel"])
tracebacks.guard_classes(globals(), ["Kernel"])
