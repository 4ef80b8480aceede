"""Deviations from NumPy: cases where lazyt follows the Array API standard, C or the exact value, with reasons.

`check_against_numpy` and the random programs read it, docs/testing.md shows it; nothing else may differ by more than
rounding. Dtypes differ in one case: see `in_dtype`. Where only a default differs, `numpy_names` gives NumPy lazyt's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from lazyt.errors import IndexOutOfRange
from lazyt.ir import dtypes

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Departure:
    """Functions whose results may differ from NumPy's at some elements."""

    names: tuple[str, ...]
    where: str
    reason: str
    # (lazyt's result, NumPy's result, the operands that have their shape or broadcast to it) -> the elements
    elements: Callable[[Array, Array, Sequence[Array]], Array]


def _some(test: Callable[[Array], Array]) -> Callable[[Array, Array, Sequence[Array]], Array]:
    """The elements of which an operand passes a test."""

    def elements(got: Array, want: Array, operands: Sequence[Array]) -> Array:
        found = np.zeros(got.shape, bool)
        for a in operands:
            try:
                found = found | np.broadcast_to(test(a), got.shape)
            except ValueError:  # an operand of another shape is no operand of the elements
                continue
        return found

    return elements


def _float(a: Array) -> Array:
    # NOTE: NumPy's kind of bfloat16 is that of raw bytes.
    return a if dtypes.kind(a.dtype) in "fc" else np.zeros(a.shape)


def _infinite(a: Array) -> Array:
    found: Array = np.isinf(_float(a))
    return found


def _outside(a: Array, d: np.dtype[Any]) -> Array:
    """Where numbers, cut off, are no integers of a dtype."""
    if dtypes.kind(a.dtype) not in "fc" or d.kind not in "iu":
        return np.zeros(a.shape, bool)
    x, bounds = np.trunc(np.real(a).astype(np.float64)), np.iinfo(d)
    # NOTE: float64 has not the largest 64-bit integers, but the power of 2 behind them.
    inside: Array = (x >= bounds.min) & (x < float(bounds.max) + (d.itemsize < 8))
    return ~inside


def _not_finite(a: Array) -> Array:
    return np.asarray(~np.isfinite(_float(a)))


def _quotient_of_infinity(got: Array, want: Array) -> Array:
    """What a literal operand's infinity gives: inf // 1, and -1 // inf (-0; no other quotient rounds down to -1)."""
    x, y = _float(got), _float(want)
    return np.asarray((np.isinf(x) & np.isnan(y)) | ((x == 0) & np.signbit(x) & (y == -1)))


def _may_overflow(got: Array, want: Array, operands: Sequence[Array]) -> Array:
    """What is not finite, where a sum of products of the operands could leave the range of its dtype."""
    if dtypes.kind(got.dtype) not in "fc":
        return np.zeros(got.shape, bool)
    size = 1.0
    for a in map(_float, operands):
        parts = np.abs(np.stack([a.real, a.imag]).astype(np.float64))
        size *= max(float(np.max(parts, where=np.isfinite(parts), initial=1.0)), 1.0) * max(a.size, 1)
    found: Array = (~np.isfinite(got) | ~np.isfinite(want)) & bool(size > float(ml_dtypes.finfo(got.dtype).max))  # type: ignore[no-untyped-call]
    return found


def _absorbed(got: Array, want: Array, operands: Sequence[Array]) -> Array:
    """Everything, where an operand has numbers so different that adding the large ones loses the small ones."""
    if dtypes.kind(got.dtype) not in "fc":
        return np.zeros(got.shape, bool)
    eps = float(ml_dtypes.finfo(got.dtype).eps)  # type: ignore[no-untyped-call]
    for a in map(_float, operands):
        sizes = np.abs(a).astype(np.float64)
        sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
        if sizes.size and sizes.min() < eps * sizes.max():
            return np.ones(got.shape, bool)
    return np.zeros(got.shape, bool)


DEPARTURES: tuple[Departure, ...] = (
    Departure(
        ("floor_divide", "divmod", "//"),
        "at infinities",
        "the standard has infinities of a finite number's sign where NumPy has NaN, and the reverse",
        lambda got, want, operands: _some(_infinite)(got, want, operands) | _quotient_of_infinity(got, want),
    ),
    Departure(
        ("reciprocal", "divide", "true_divide", "/"),
        "complex numbers, where both are infinite or NaN",
        "division by a complex zero gives infinities, as in C (Annex G), where NumPy's has NaN in both parts",
        lambda got, want, operands: ~np.isfinite(got) & ~np.isfinite(want) & (got.dtype.kind == "c"),
    ),
    Departure(
        ("sign",),
        "complex numbers with an infinite part",
        "the standard divides by the absolute value, which gives NaN, where NumPy has a number of that direction",
        lambda got, want, operands: _some(_infinite)(got, want, operands) & (got.dtype.kind == "c"),
    ),
    Departure(
        ("expm1", "tanh"),
        "complex numbers with a part that is not finite",
        "the standard says what they are (inf + 0j gives inf + 0j and 1 + 0j), where NumPy has NaN in a part",
        lambda got, want, operands: _some(_not_finite)(got, want, operands) & (got.dtype.kind == "c"),
    ),
    Departure(
        ("prod", "cumulative_prod", "cumprod", "nanprod", "nancumprod"),
        "where one of the two is infinite or NaN",
        "factors are grouped otherwise than one after another, so another part of the product overflows, or meets a 0",
        lambda got, want, operands: ~np.isfinite(got) | ~np.isfinite(want),
    ),
    Departure(
        (
            "matmul",
            "@",
            "dot",
            "vdot",
            "inner",
            "tensordot",
            "einsum",
            "nn.functional.linear",
            "vecdot",
            "matvec",
            "vecmat",
        ),
        "where one of the two is infinite or NaN and large operands can overflow",
        "products are added up in another order, and by fused multiply-adds, so another part of the sum overflows",
        _may_overflow,
    ),
    Departure(
        ("cumsum", "cumulative_sum", "nancumsum", "sum", "nansum", "mean", "nanmean"),
        "where one of the two is infinite or NaN and large elements can overflow",
        "elements are grouped otherwise than one after another, so another part of the sum overflows",
        _may_overflow,
    ),
    Departure(
        ("batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"),
        "where one of the two is infinite or NaN and a large weight or element can overflow",
        "what is added up stays in the dtype to compute in (float32), where NumPy's formula is of float64",
        _may_overflow,
    ),
    Departure(
        ("nll_loss", "cross_entropy"),
        "where weights are so different that their sum loses the small ones",
        "the sum that is divided by is added up in another order, in which large weights cancel to 0 or not",
        _absorbed,
    ),
    Departure(
        ("nan_to_num",),
        "bfloat16, at infinities",
        "the largest bfloat16; NumPy puts float32's there, which is infinite as a bfloat16",
        lambda got, want, operands: np.isfinite(_float(got)) & np.isinf(_float(want)) & (got.dtype == dtypes.bfloat16),
    ),
    Departure(
        ("nextafter",),
        "bfloat16 beside a Python number, towards it from an infinity",
        "the largest number of bfloat16, where NumPy takes the step in float64 and has the infinity again",
        lambda got, want, operands: np.isinf(_float(want)) & (got.dtype == dtypes.bfloat16),
    ),
    Departure(
        ("astype",),
        "floats that the integer dtype does not hold",
        "C leaves that undefined, and NumPy gives what the machine does; here it saturates, and NaN is 0",
        lambda got, want, operands: _some(lambda a: _outside(a, got.dtype))(got, want, operands),
    ),
)


def meant(names: Sequence[str], got: Array, want: Array, operands: Sequence[Array]) -> Array | None:
    """The elements at which the functions named may differ from NumPy; None where there are none."""
    found: Array | None = None
    for d in DEPARTURES:
        if any(n in d.names for n in names):
            here = d.elements(got, want, operands)
            found = here if found is None else found | here
    return found if found is not None and found.any() else None


def refusal_meant(error: Exception) -> bool:
    """Whether lazyt means to raise this: an index into an axis without elements, which `numpy.take` lets be where the
    result has none."""
    return isinstance(error, IndexOutOfRange) and "with size 0" in str(error)


def in_dtype(got: Array, want: Array, operands: Sequence[Array], line: str) -> Array:
    """NumPy's result as float32 where it has float16: of integers of 8 bits, whose float here is the default.

    Where a float16 is as near to lazyt's value as it can be, or too small for it, that is lazyt's. Else NumPy's itself.
    """
    half = np.dtype(np.float16)
    if (got.dtype, want.dtype) != (np.float32, half) or half in [a.dtype for a in operands] or "float16" in line:
        return want
    found = want.astype(np.float32)
    if got.shape != want.shape:
        return found
    with np.errstate(invalid="ignore"):
        near = np.abs(got - found) <= np.spacing(np.abs(want)).astype(np.float32)
    beyond = np.isinf(found) & (np.abs(got) > np.finfo(half).max) & (np.signbit(got) == np.signbit(found))
    return np.where(near | beyond, got, found)
