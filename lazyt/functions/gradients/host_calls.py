"""`pure_callback`: a function of NumPy's as one deferred step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.functions.numpy_calls import record_numpy
from lazyt.tracing.refusals import check_function

if TYPE_CHECKING:
    from collections.abc import Callable


def pure_callback(function: Callable[..., Any], result_shape_dtypes: Any, *args: Any, **kwargs: Any) -> Any:
    """Record `function(*args, **kwargs)`, a function of NumPy arrays, as one step: it runs when its result is needed.

    `result_shape_dtypes` says what it gives: a pair (shape, dtype), or anything with a `shape` and a `dtype` (as a
    tensor), or a list of such for a function that gives a tuple. The function must do nothing but compute its result:
    it runs once or more often, or not at all where nobody needs the result. Give the same object each time: another
    function is another program. No gradient passes (AutogradError): call it inside of an `autograd.Function`, whose
    backward may call another one. Raises at the sync, naming this line, what the function raises, or if shapes differ.

    As `jax.pure_callback`.

    >>> import lazyt as lt, numpy as np
    >>> x = lt.asarray([3.0, 4.0])
    >>> y = lt.pure_callback(np.hypot.reduce, ((), lt.float32), x)
    >>> y.is_pending, y.item()
    (True, 5.0)
    """
    check_function("pure_callback", function)
    several = isinstance(result_shape_dtypes, list)
    outputs = [_described(r) for r in (result_shape_dtypes if several else [result_shape_dtypes])]
    name = getattr(function, "__name__", type(function).__name__)
    made = record_numpy(f"pure_callback({name})", function, args, kwargs, outputs)
    return (made,) if several and len(outputs) == 1 else made


def _described(r: Any) -> tuple[tuple[int, ...], Any]:
    if hasattr(r, "shape") and hasattr(r, "dtype"):
        return tuple(r.shape), r.dtype
    if isinstance(r, tuple) and len(r) == 2 and isinstance(r[0], tuple | list):
        return tuple(r[0]), r[1]
    raise TypeError(f"pure_callback: a result is a pair (shape, dtype), or has a shape and a dtype; got {r!r}")


__all__ = ["pure_callback"]
