"""Tensor gets NumPy's protocols, which are loaded when NumPy first asks for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.runtime.tensor import Tensor
from lazyt.tracing.tracebacks import filter_traceback, filters_itself

if TYPE_CHECKING:
    from lazyt.functions.protocols import functions, ufuncs
else:
    functions = on_demand.module("lazyt.functions.protocols.functions")
    ufuncs = on_demand.module("lazyt.functions.protocols.ufuncs")


@filters_itself
def _array_ufunc(self: Tensor, *args: Any, **options: Any) -> Any:
    """`__array_ufunc__` at its first call: it takes its place, so later calls do not come here."""
    try:
        Tensor.__array_ufunc__ = ufuncs.array_ufunc  # type: ignore[attr-defined]
        return ufuncs.array_ufunc(self, *args, **options)
    except Exception as error:
        filter_traceback(error)
        raise


@filters_itself
def _array_function(self: Tensor, *args: Any, **options: Any) -> Any:
    """`__array_function__` at its first call, in the same way."""
    try:
        Tensor.__array_function__ = functions.array_function  # type: ignore[attr-defined]
        return functions.array_function(self, *args, **options)
    except Exception as error:
        filter_traceback(error)
        raise


def attach_protocols() -> None:
    """Give Tensor `__array_ufunc__` and `__array_function__`."""
    Tensor.__array_ufunc__ = _array_ufunc  # type: ignore[attr-defined]
    Tensor.__array_function__ = _array_function  # type: ignore[attr-defined]
