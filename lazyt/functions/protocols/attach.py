"""Tensor gets NumPy's protocols, which are loaded when NumPy first asks for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.runtime.tensor import Tensor
from lazyt.tracing.tracebacks import filter_traceback, filters_itself

if TYPE_CHECKING:
    import numpy as np

    from lazyt.functions.protocols import functions, ufuncs
else:
    functions = on_demand.module("lazyt.functions.protocols.functions")
    ufuncs = on_demand.module("lazyt.functions.protocols.ufuncs")


# Each stands in for the function of that name until its first call, and then lets that function take its place.


@filters_itself
def array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """NEP 13: calls, reduce, accumulate, outer, reduceat and at are recorded; NotImplemented for foreign operands.

    `out=` a tensor is a deferred write, `out=` an array computes. Raises DTypeError where the ufunc has no loop for
    these dtypes, ShapeError where shapes do not broadcast.
    """
    try:
        Tensor.__array_ufunc__ = ufuncs.array_ufunc  # type: ignore[attr-defined]
        return ufuncs.array_ufunc(self, ufunc, method, *inputs, **kwargs)
    except Exception as error:
        filter_traceback(error)
        raise


@filters_itself
def array_function(self: Tensor, f: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """NEP 18: `f(*args, **kwargs)` recorded where lazyt can, else computed by NumPy; NotImplemented for other classes.

    `out=` a tensor is a deferred write, `out=` an array computes. Raises as lazyt's function does, NotSupportedError
    for what has no meaning on tensors.
    """
    try:
        Tensor.__array_function__ = functions.array_function  # type: ignore[attr-defined]
        return functions.array_function(self, f, types, args, kwargs)
    except Exception as error:
        filter_traceback(error)
        raise


def attach_protocols() -> None:
    """Give Tensor `__array_ufunc__` and `__array_function__`."""
    Tensor.__array_ufunc__ = array_ufunc  # type: ignore[attr-defined]
    Tensor.__array_function__ = array_function  # type: ignore[attr-defined]
