"""Tensor gets NumPy's protocols."""

from __future__ import annotations

from lazyt.functions.protocols.functions import array_function
from lazyt.functions.protocols.ufuncs import array_ufunc
from lazyt.runtime.tensor import Tensor


def attach_protocols() -> None:
    """Give Tensor `__array_ufunc__` and `__array_function__`."""
    Tensor.__array_ufunc__ = array_ufunc  # type: ignore[attr-defined]
    Tensor.__array_function__ = array_function  # type: ignore[attr-defined]
