"""lazyt's functions by NumPy's names: `numpy.<name>`, `numpy.linalg.<name>` and `numpy.fft.<name>`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.functions import (
    arithmetic,
    array_info,
    comparison,
    creation,
    data_types,
    elementwise,
    fft,
    histograms,
    indexing,
    joining,
    linalg,
    logic,
    manipulation,
    nan_reductions,
    ordering,
    padding,
    polynomials,
    products,
    quantiles,
    reductions,
    reshaping,
    searching,
    select,
    sets,
    signals,
    sorting,
    special,
    statistics,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_ROOMS: tuple[Any, ...] = (
    arithmetic, array_info, select, comparison, creation, data_types, elementwise, histograms, indexing, joining,
    products, logic, manipulation, nan_reductions, ordering, padding, polynomials, quantiles, reductions, searching,
    sets, reshaping, signals, sorting, special, statistics,
)  # fmt: skip

PUBLIC: dict[str, Callable[..., Any]] = {n: f for m in _ROOMS for n in m.__all__ if callable(f := getattr(m, n))}
LINALG: dict[str, Callable[..., Any]] = {n: getattr(linalg, n) for n in linalg.__all__}
FFT: dict[str, Callable[..., Any]] = {n: getattr(fft, n) for n in fft.__all__}
