"""Recording a call of NumPy as one opaque step, its result's shape and dtype known beforehand."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import AutogradError, DTypeError, ShapeError
from lazyt.functions.arguments import tensor
from lazyt.ir import dtypes
from lazyt.ops.numpy_calls import Call, Nest, Place, flattened, kinds_of, operation
from lazyt.tracing import inplace, record as recording
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def make_list(*items: Any) -> list[Any]:
    return list(items)


def make_tuple(*items: Any) -> tuple[Any, ...]:
    return items


def _templated(a: Any, operands: list[Any]) -> Any:
    """An argument with a `Place` for each array in it; what is left can be hashed."""
    array: Any = a
    if isinstance(a, Handle | np.ndarray | np.generic):
        operands.append(array)
        return Place(len(operands) - 1)
    if isinstance(a, list):
        return Nest(make_list, tuple(_templated(x, operands) for x in a))
    if isinstance(a, tuple):
        return Nest(make_tuple, tuple(_templated(x, operands) for x in a))
    if isinstance(a, slice):
        return Nest(slice, (a.start, a.stop, a.step))
    return a


def record_numpy(
    name: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    outputs: Sequence[tuple[tuple[int, ...], Any]],
) -> Any:
    """Record `function(*args, **kwargs)` as one step named `name`; `outputs` are its results' shapes and dtypes.

    Raises AutogradError if a gradient would have to pass through it.
    """
    operands: list[Any] = []
    places = tuple(_templated(a, operands) for a in args)
    options = tuple((k, _templated(v, operands)) for k, v in sorted(kwargs.items()))
    there: Any = next((x for x in operands if isinstance(x, Handle)), None)
    operands = [tensor(x, there) for x in operands]
    call = Call(name, function, places, options, kinds_of((places, tuple(v for _, v in options))))
    casts = tuple(dtypes.of(t.dtype).numpy if dtypes.of(t.dtype).foreign else None for t in operands)
    return record_call(call, operands, casts, [(tuple(s), dtypes.as_dtype(d)) for s, d in outputs])


def record_call(
    call: Call, operands: Sequence[Any], casts: tuple[Any, ...], outputs: Sequence[tuple[tuple[int, ...], np.dtype]]
) -> Any:
    """Record a call whose operands (tensors, weak Python scalars) are cast to `casts` where those are not None."""
    if any(dtypes.kind(d) in "fc" for _, d in outputs):
        refuse_gradient(call.name, operands)
    static, ints = flattened(outputs)
    return recording.record(operation(call.name), tuple(operands), (call, casts, static), ints)


def refuse_gradient(name: str, operands: Sequence[Any], why: str = "it runs in NumPy and has no derivative") -> None:
    """AutogradError if one of these operands asks for a gradient."""
    if recording.is_grad_enabled() and any(isinstance(t, Handle) and inplace.requires_grad(t) for t in operands):
        raise AutogradError(
            f"{name}: not supported: a gradient through it, because {why}; detach() its argument or record it under "
            "no_grad()"
        )


def record_ufunc(ufunc: np.ufunc, operands: Sequence[Any]) -> Any:
    """Record an elementwise ufunc that lazyt has no operation for; Python scalars are weak as in NumPy.

    Raises DTypeError where the ufunc has no loop for these dtypes, or one over dtypes that lazyt has not.
    """
    given: list[Any] = []
    kinds: list[Any] = []
    shapes: set[tuple[int, ...]] = set()
    there: Any = next((x for x in operands if isinstance(x, Handle)), None)
    for x in operands:
        if type(x) in (int, float, complex):
            given.append(x)
            kinds.append(type(x))
        else:
            t = tensor(x, there)
            given.append(t)
            kinds.append(t.dtype)
            shapes.add(t.shape)
    call, casts, made = _as_step(ufunc, tuple(kinds))
    shape = shapes.pop() if len(shapes) == 1 else common_shape(call.name, *shapes)
    return record_call(call, given, casts, [(shape, d) for d in made])


def common_shape(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that several broadcast to; ShapeError where they do not."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(f"{name}: shapes {' and '.join(map(str, shapes))} do not broadcast") from None


@lru_cache(maxsize=1024)
def _as_step(
    ufunc: np.ufunc, kinds: tuple[Any, ...]
) -> tuple[Call, tuple[np.dtype, ...], tuple[np.dtype, ...]]:  # fmt: skip
    """The call of a ufunc on operands of these dtypes (types, of Python scalars), what they are cast to, and the dtypes
    of its results.
    """
    casts = tuple(dtypes.of(d).numpy if isinstance(d, np.dtype) else d for d in kinds)
    name = ufunc_name(ufunc)
    if ufunc is np.spacing and casts != kinds:
        raise DTypeError(
            f"not supported: {name} of {kinds[0]}, because NumPy has it of {casts[0]}; cast it to that first"
        )
    found = resolved(ufunc, (*casts, *(None,) * ufunc.nout), name)
    # Operands of one dtype that NumPy does not have give that.
    own = kinds[0] if len(set(kinds)) == 1 and casts[0] is not kinds[0] else None
    made = tuple(own if own is not None and d == casts[0] else d for d in found[ufunc.nin :])
    return Call(name, ufunc, tuple(map(Place, range(len(kinds)))), ()), found[: ufunc.nin], made


def ufunc_name(ufunc: np.ufunc) -> str:
    """`numpy.<name>` for NumPy's own, `ufunc <name>` for another library's."""
    return f"numpy.{ufunc.__name__}" if getattr(np, ufunc.__name__, None) is ufunc else f"ufunc {ufunc.__name__}"


def resolved(ufunc: np.ufunc, given: tuple[Any, ...], name: str, **options: Any) -> tuple[np.dtype, ...]:
    """The dtypes of the loop that a ufunc takes for these; DTypeError where there is none, or not in lazyt's dtypes."""
    try:
        found = ufunc.resolve_dtypes(given, **options)
    except TypeError as e:
        raise DTypeError(f"{name}: {e}") from None
    if not all(d in dtypes.ALL for d in found):
        raise DTypeError(f"{name}: not supported: its loop over {', '.join(map(str, found))}, which lazyt has not")
    return found
