"""NumPy itself, called on the values of tensors: for what lazyt has not, or whose result's shape is data. A sync."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import AutogradError, DTypeError, NotSupportedError, ShapeError
from lazyt.functions.arguments import broadcasts_to, tensor
from lazyt.functions.manipulation import astype
from lazyt.ir import dtypes
from lazyt.runtime.tensor import Tensor
from lazyt.tracing.inplace import assign, requires_grad
from lazyt.tracing.record import is_grad_enabled
from lazyt.tracing.refusals import check_writable_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Literal

    Casting = Literal["no", "equiv", "safe", "same_kind", "unsafe"]


def name_of(f: Any) -> str:
    """`numpy.linalg.inv` and its like."""
    return f"{getattr(f, '__module__', None) or 'numpy'}.{f.__name__}"


def numpys_types(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with the dtypes that `float` and `complex` are in NumPy (lazyt's are half as wide)."""
    if any(a is float or a is complex for a in args):
        args = tuple(_WIDE[a] if a is float or a is complex else a for a in args)
    dtype = kwargs.get("dtype")
    if dtype is float or dtype is complex:
        kwargs = {**kwargs, "dtype": _WIDE[dtype]}
    return args, kwargs


_WIDE: dict[Any, Any] = {float: dtypes.float64, complex: dtypes.complex128}


def values(a: Any, cause: str) -> Any:
    """`a` with arrays for the tensors in it: a sync, with this cause, if one is pending."""
    if isinstance(a, Tensor):
        return a._array(cause)
    if isinstance(a, list | tuple):
        found = [values(x, cause) for x in a]
        return found if isinstance(a, list) else tuple(found)
    if isinstance(a, dict):
        return {k: values(v, cause) for k, v in a.items()}
    return a


def wrapped(a: Any, beside: Tensor | None = None) -> Any:
    """A result of NumPy's with tensors for the arrays in it, where lazyt has their dtype; on the device of `beside`."""
    if isinstance(a, np.ndarray | np.generic):
        return tensor(a, beside) if a.dtype in dtypes.ALL else a
    if isinstance(a, tuple) and hasattr(a, "_fields"):
        return type(a)(*(wrapped(x, beside) for x in a))
    if isinstance(a, list | tuple):
        return type(a)(wrapped(x, beside) for x in a)
    return a


def through_numpy(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], cause: str) -> Any:
    """`f(*args, **kwargs)` by NumPy, on values."""
    got = f(*(values(a, cause) for a in args), **{k: values(v, cause) for k, v in kwargs.items()})
    found = wrapped(got, next(_tensors((args, kwargs)), None))
    asked = is_grad_enabled() and any(map(requires_grad, _tensors((args, kwargs))))
    if asked and any(dtypes.kind(t.dtype) in "fc" for t in _tensors(found)):
        raise AutogradError(
            f"{cause}: not supported: a gradient through it, because NumPy computes it; detach() its argument"
        )
    return found


def _tensors(a: Any) -> Iterator[Tensor]:
    if isinstance(a, Tensor):
        yield a
    elif isinstance(a, list | tuple):
        for x in a:
            yield from _tensors(x)
    elif isinstance(a, dict):
        yield from _tensors(tuple(a.values()))


# NumPy's rules of what may be cast, the strictest first.
CASTINGS: tuple[Casting, ...] = ("no", "equiv", "safe", "same_kind", "unsafe")


def check_cast(name: str, what: str, from_: np.dtype, to: np.dtype, casting: str) -> None:
    """DTypeError unless a rule of NumPy's allows values of one dtype to become another."""
    if from_ == to or casting == "unsafe":
        return
    if casting == "same_kind":
        check_writable_dtype(name, from_, to)
    elif casting != "safe" or dtypes.promote(from_, to) != to:
        raise DTypeError(f"{name}: {what} cannot be cast from {from_} to {to} by the rule {casting!r}")


def write_out(
    name: str, out: Any, result: Any, where: Any = True, casting: Casting = "same_kind", exact: bool = False
) -> Any:
    """Put a result into `out=`, which takes its dtype's kind: a deferred write for a tensor.

    A ufunc's result is broadcast to `out`; with `exact` the shapes are equal. Reductions and scans are cast to any
    dtype in NumPy: `casting` is "unsafe". NumPy's own array is written at once, which computes the result.
    """
    found = result.shape if isinstance(result, Tensor) else np.shape(result)
    if isinstance(out, Tensor | np.ndarray) and not (found == out.shape if exact else broadcasts_to(found, out.shape)):
        raise ShapeError(f"{name}: out has shape {out.shape}, the result {found}")
    if isinstance(out, Tensor):
        value = tensor(result, out)
        check_cast(name, "the result", value.dtype, out.dtype, casting)
        if casting == "unsafe":
            value = astype(value, out.dtype, copy=False)
        assign(out, value, name)
        return out
    if not isinstance(out, np.ndarray):
        raise NotSupportedError(f"{name}: not supported: out= of type {type(out).__name__!r}, because it is no array")
    np.copyto(out, values(result, f"{name}(out=ndarray)"), casting=casting, where=values(where, f"{name}(where=)"))
    return out
