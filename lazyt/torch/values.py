"""Checks of dtypes and numbers, as PyTorch makes them before it writes or adds values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import lazyt as lt
from lazyt.errors import ArgumentError, DTypeError, ScalarRangeError, ShapeError
from lazyt.ir import dtypes

if TYPE_CHECKING:
    import numpy as np

    from lazyt.runtime.tensor import Tensor

# Kinds of dtypes, each of which holds those before it.
_RANKS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def rank_of(dtype: np.dtype) -> int:
    """0 of bools, 1 of integers, 2 of floats, 3 of complex numbers."""
    return _RANKS[dtypes.kind(dtype)]


def need_kind(name: str, found: np.dtype, into: np.dtype) -> None:
    """Raise DTypeError where a result of one dtype would lose its kind in a tensor of another, that is written."""
    if rank_of(found) > rank_of(into):
        raise DTypeError(
            f"{name}: a result of dtype {found} cannot be written into a tensor of dtype {into}: "
            f"use the function that makes a new tensor, or x.to(torch.{found}) before"
        )


def need_same(name: str, what: str, x: Any, other: Any) -> None:
    """Raise DTypeError unless two tensors are of one kind: bools, integers, floats or complex numbers.

    NOTE: PyTorch asks for one dtype. Here floats that meet integers may be wider, so sizes are not compared.
    """
    if rank_of(x.dtype) != rank_of(other.dtype):
        raise DTypeError(f"{name}: {what} has dtype {other.dtype} beside an input of {x.dtype}: cast one of them")


def need_at_least(name: str, low: float, **given: Any) -> None:
    """Raise ArgumentError for a number below `low`; tensors are not looked at."""
    for what, value in given.items():
        if isinstance(value, int | float) and not value >= low:
            raise ArgumentError(f"{name}: {what} is at least {low:g}, got {value}")


def as_value(name: str, value: Any, dtype: np.dtype) -> Any:
    """A number, or a tensor of one, as a dtype has it: floats in integers are cut off.

    Raises ScalarRangeError for a number that the dtype cannot hold, DTypeError for a complex one beside real numbers,
    ShapeError for a tensor that has axes.
    """
    if isinstance(value, lt.Tensor):
        if value.ndim:
            raise ShapeError(f"{name}: a number or a tensor without axes is required, got shape {value.shape}")
        if rank_of(value.dtype) == 3 and rank_of(dtype) < 3:
            raise DTypeError(f"{name}: a value of dtype {value.dtype} cannot be converted to {dtype}")
        return lt.astype(value, dtype, copy=False)
    number = value.item() if hasattr(value, "item") else value
    rank = rank_of(dtype)
    if isinstance(number, complex) and rank < 3:
        if number.imag:
            raise DTypeError(f"{name}: the value {value} cannot be converted to {dtype}")
        number = number.real
    if rank == 0:
        return bool(number)
    if rank > 1:
        most = float(lt.finfo(dtype).max)
        if rank == 2 and math.isfinite(number) and abs(number) > most:
            raise ScalarRangeError(f"{name}: the value {value} is out of range: {dtype} holds -{most:g}..{most:g}")
        return number
    low, high = int(lt.iinfo(dtype).min), int(lt.iinfo(dtype).max)
    # NOTE: what is below 0 wraps around in unsigned dtypes, as in PyTorch.
    if not math.isfinite(number) or not (low or -high) <= int(number) <= high:
        raise ScalarRangeError(f"{name}: the value {value} is out of range: {dtype} holds {low}..{high}")
    return int(number) % (high + 1) if not low else int(number)


def times(name: str, alpha: Any, x: Any, dtype: np.dtype) -> Any:
    """alpha * x, as a part of a sum of a dtype: `torch.add(..., alpha=...)`.

    Raises DTypeError for an alpha of a higher kind than the sum, and for a bool beside anything but bools.
    """
    if type(alpha) is int and alpha == 1:
        return x
    rank = rank_of(dtype)
    if isinstance(alpha, bool) and rank:
        raise DTypeError(f"{name}: a bool alpha is for sums of bools, got {alpha} for {dtype}")
    if isinstance(alpha, complex) and rank < 3:
        raise DTypeError(f"{name}: a real alpha is required for a sum of {dtype}, got {alpha}")
    if isinstance(alpha, float) and rank < 2:
        raise DTypeError(f"{name}: an integer alpha is required for a sum of {dtype}, got {alpha}")
    if rank == 0:
        return lt.logical_and(x, bool(alpha))
    return alpha * x


def scaled(factor: Any, x: Any) -> Any:
    """factor * x in the dtype of x: the factor of integers is cut off, as PyTorch does it."""
    if type(factor) in (int, float) and factor == 1:
        return x
    return (int(factor) if isinstance(factor, float) and rank_of(x.dtype) < 2 else factor) * x


def draws(name: str, x: Tensor) -> np.dtype:
    """The dtype of samples of a continuous distribution that are written to x; DTypeError unless it is floating."""
    if rank_of(x.dtype) != 2:
        raise DTypeError(f"{name}: a tensor of a floating dtype is required, got {x.dtype}")
    return x.dtype
