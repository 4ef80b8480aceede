"""lazyt's functions by NumPy's names: `numpy.<name>`, `numpy.linalg.<name>` and `numpy.fft.<name>`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.functions import (
    arithmetic,
    asking,
    choosing,
    comparing,
    creation,
    data_types,
    elementwise,
    fft,
    histograms,
    indexing,
    joining,
    linalg,
    linear,
    logic,
    manipulation,
    nan_reductions,
    ordering,
    padding,
    polynomials,
    quantiles,
    reductions,
    searching,
    sets,
    shaping,
    signals,
    sorting,
    special,
    statistics,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_ROOMS: tuple[Any, ...] = (
    arithmetic, asking, choosing, comparing, creation, data_types, elementwise, histograms, indexing, joining, linear,
    logic, manipulation, nan_reductions, ordering, padding, polynomials, quantiles, reductions, searching, sets,
    shaping, signals, sorting, special, statistics,
)  # fmt: skip

PUBLIC: dict[str, Callable[..., Any]] = {n: f for m in _ROOMS for n in m.__all__ if callable(f := getattr(m, n))}
LINALG: dict[str, Callable[..., Any]] = {n: getattr(linalg, n) for n in linalg.__all__}
FFT: dict[str, Callable[..., Any]] = {n: getattr(fft, n) for n in fft.__all__}
