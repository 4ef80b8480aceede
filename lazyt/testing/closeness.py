"""The distance of two arrays: distances in units in the last place, tolerances, and the worst element.

A tolerance depends on the dtype and, where it is known, on how the value was computed: each primitive may round as
many times as `ROUNDINGS` says, and what adds numbers may cancel, so its error is measured by the largest number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from lazyt.ir import dtypes
from lazyt.ir.prims import ELEMENTWISE
from lazyt.ir.symbolic import hint

if TYPE_CHECKING:
    from lazyt.ir.graph import Node

    Array = np.ndarray[Any, Any]

# Relative tolerance when nothing is known about how a value came about.
UNKNOWN = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 3e-5, "float64": 1e-11}
# Units in the last place, of the two results together, for one primitive that computes; movement rounds nothing.
ELEMENTARY = 6.0
ARITHMETIC = 1.0
LIBRARY = 512.0
_EXACT = frozenset({
    "neg", "abs", "sign", "not", "floor", "ceil", "trunc", "round", "copysign", "nextafter", "eq", "ne", "lt", "le",
    "gt", "ge", "and", "or", "xor", "shl", "shr", "maximum", "minimum", "isnan", "isinf", "isfinite", "signbit", "real",
    "imag", "conj", "complex", "select", "random_bits",
})  # fmt: skip
_CANCELS = frozenset({"add", "sub", "sum", "matmul", "opaque", "scatter", "rem", "fmod"})
# The most that a chain of operations may loosen a tolerance by.
MOST = 4096.0
_MISMATCH = np.iinfo(np.uint64).max


@dataclass(frozen=True)
class Tolerance:
    """|actual - expected| <= atol + rtol * |expected|, or at most `ulp` units in the last place."""

    rtol: float
    atol: float
    ulp: float | None = None
    why: str = "given"

    def __str__(self) -> str:
        given = f"{self.ulp:g} ULP" if self.ulp is not None else f"rtol {self.rtol:.3g}, atol {self.atol:.3g}"
        return f"{given} ({self.why})"


@dataclass(frozen=True)
class Work:
    """What a value is made of: how many primitives compute, their roundings together, whether they may cancel."""

    computing: int = 0
    roundings: float = 0.0
    cancels: bool = False
    inexact: bool = False  # a contraction or a library call had a part: bits may depend on the plan

    def __add__(self, other: Work) -> Work:
        return Work(
            self.computing + other.computing,
            self.roundings + other.roundings,
            self.cancels or other.cancels,
            self.inexact or other.inexact,
        )


def work_of(nodes: Iterable[Node]) -> Work:
    """The work of the primitives that a value is made of."""
    computing, roundings, cancels, inexact = 0, 0.0, False, False
    for n in nodes:
        cost = _roundings(n)
        if cost:
            computing += 1
            roundings += cost
        cancels = cancels or n.op in _CANCELS
        inexact = inexact or n.op in ("matmul", "opaque")
    return Work(computing, roundings, cancels, inexact)


def _roundings(n: Node) -> float:
    record = ELEMENTWISE.get(n.op)
    if dtypes.kind(n.dtype) not in "fc" or n.op in _EXACT:
        return 0.0
    if record is not None:
        return ELEMENTARY if record.costly else ARITHMETIC
    if n.op == "cast":
        return ARITHMETIC
    if n.op in ("sum", "prod"):
        # NumPy adds float32 pairwise in float32.
        inside = math.prod(hint(d) for d in n.operands[0].shape) // max(1, math.prod(hint(d) for d in n.shape))
        return ARITHMETIC * (2 + math.log2(max(inside, 1)) * 2) + (inside if n.op == "prod" else 0)
    if n.op == "matmul":
        return ARITHMETIC * (2 + 2 * math.sqrt(hint(n.operands[0].shape[-1])))
    return LIBRARY if n.op in ("opaque", "scatter") else 0.0


def eps(dtype: np.dtype[Any]) -> float:
    """The distance from 1 to the next number of a floating or complex dtype.

    >>> eps(np.dtype("float32")) == 2.0 ** -23
    True
    """
    info: Any = ml_dtypes.finfo
    return float(info(dtypes.real_of(dtype)).eps)


def tolerance(dtype: np.dtype[Any], expected: Array, work: Work | None = None) -> Tolerance:
    """How far a value of `dtype` may be from NumPy's: by its dtype, and by the work that made it, if known."""
    if dtypes.kind(dtype) not in "fc":
        return Tolerance(0.0, 0.0, why=f"{dtype} is exact")
    e = eps(dtype)
    if work is None:
        rtol = UNKNOWN[str(dtypes.real_of(dtype))]
        return Tolerance(rtol, rtol * _scale(expected), why=f"{dtype}, operation unknown")
    rtol = e * min(max(4.0, 2 * work.roundings), MOST)
    what = f"{work.computing} rounding primitive{'s' * (work.computing != 1)}"
    return Tolerance(rtol, rtol * _scale(expected) if work.cancels else 0.0, why=f"{dtype}, {what}")


def _scale(a: Array) -> float:
    """The largest finite magnitude."""
    x = np.abs(_parts(a)).ravel()
    x = x[np.isfinite(x)]
    return float(x.max()) if x.size else 0.0


def _parts(a: Array) -> Array:
    """Wide enough to subtract in, complex numbers as a last axis of two."""
    if dtypes.kind(a.dtype) == "c":
        a = np.stack([a.real, a.imag], axis=-1)
    if dtypes.kind(a.dtype) == "f":
        return a.astype(np.longdouble if a.dtype == np.float64 else np.float64)
    return a.astype(np.longdouble)


def ulp_distance(a: Any, b: Any) -> np.ndarray[Any, Any]:
    """How many floating-point numbers lie between the elements of two arrays of one dtype, as uint64.

    0 for equal ones and for two NaNs, the largest uint64 where one alone is NaN; of complex numbers the worse part;
    of integers the difference. Raises TypeError where the dtypes differ.

    >>> ulp_distance(np.float32(1.0), np.nextafter(np.float32(1), np.float32(2))).tolist()
    1
    >>> ulp_distance(np.array([0.0, np.nan]), np.array([-0.0, np.nan])).tolist()
    [0, 0]
    """
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype:
        raise TypeError(f"ulp_distance: dtypes {a.dtype} and {b.dtype} differ")
    kind = dtypes.kind(a.dtype)
    if kind == "c":
        found: Array = np.maximum(ulp_distance(a.real, b.real), ulp_distance(a.imag, b.imag))
        return found
    if kind != "f":
        x, y = a.astype(object), b.astype(object)
        return np.asarray(np.abs(x * 1 - y * 1)).astype(np.uint64)
    a, b = np.broadcast_arrays(a, b)
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    sign = unsigned.type(1 << (8 * a.dtype.itemsize - 1))
    p, q = (np.ascontiguousarray(v).view(unsigned).reshape(v.shape) for v in (a, b))
    big, small = (p & ~sign).astype(np.uint64), (q & ~sign).astype(np.uint64)
    same = (p & sign) == (q & sign)
    with np.errstate(over="ignore"):
        out: Array = np.where(same, np.where(big > small, big - small, small - big), big + small)
    nan_a, nan_b = np.isnan(a), np.isnan(b)
    return np.asarray(np.where(nan_a & nan_b, np.uint64(0), np.where(nan_a | nan_b, _MISMATCH, out)))


@dataclass(frozen=True)
class Comparison:
    """Where two arrays differ by more than is allowed."""

    differing: int
    total: int
    index: tuple[int, ...]  # of the worst element
    actual: Any  # its values
    expected: Any
    error: float
    ulps: int | None
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    allowed: Tolerance

    def __str__(self) -> str:
        size = f"{self.dtype} {self.shape}"
        at = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        apart = (
            "" if self.ulps is None else ", one of them is NaN" if self.ulps == _MISMATCH else f", {self.ulps:,} ULP"
        )
        return (
            f"{self.differing:,} of {self.total:,} element{'s' * (self.total != 1)} differ ({size})\n"
            f"  worst{' at ' + at if at else ''}: actual {self.actual}, expected {self.expected}; "
            f"difference {self.error:.6g}{apart}\n"
            f"  allowed: {self.allowed}"
        )


def compare(actual: Array, expected: Array, allowed: Tolerance, equal_nan: bool = True) -> Comparison | None:
    """The worst difference of two arrays of one shape and dtype, or None where all elements are close."""
    if not actual.size:
        return None
    kind = dtypes.kind(actual.dtype)
    ulps = ulp_distance(actual, expected) if kind in "fc" or allowed.ulp is not None else None
    x, y = _parts(actual), _parts(expected)
    with np.errstate(all="ignore"):
        error = np.abs(x - y)
        # NOTE: 64-bit integers are compared as they are, because not every machine has a float that holds them.
        equal = (actual == expected) if kind in "biu" else (x == y) | (np.isnan(x) & np.isnan(y) & equal_nan)
        if allowed.ulp is not None:
            assert ulps is not None
            budget = np.full(error.shape, np.nan, error.dtype)
            near = ulps.astype(np.longdouble) <= allowed.ulp
            near = np.broadcast_to(near[..., None] if kind == "c" else near, error.shape)
        else:
            size = np.abs(expected).astype(y.dtype) if kind == "f" else np.abs(y)
            if kind == "c":
                # NOTE: a part that is infinite or NaN says nothing of how large the other is.
                finite = np.where(np.isfinite(y), y, 0)
                size = np.broadcast_to(np.sqrt((finite * finite).sum(axis=-1, keepdims=True)), y.shape)
            budget = allowed.atol + allowed.rtol * size
            near = error <= budget
        # Infinities and NaNs are close to themselves alone.
        far = ~(equal | (near & np.isfinite(error))) if allowed.ulp is None else ~(equal | near)
        rank = np.where(far, np.where(np.isfinite(error), error / np.where(budget > 0, budget, 1), np.inf), -1)
    if kind == "c":
        far, rank = far.any(axis=-1), rank.max(axis=-1)
        error = np.sqrt((error * error).sum(axis=-1))
    if not far.any():
        return None
    at = np.unravel_index(int(np.argmax(rank)), actual.shape)
    return Comparison(
        int(far.sum()), actual.size, tuple(int(i) for i in at), actual[at], expected[at], float(error[at]),
        None if ulps is None else int(ulps[at]), actual.dtype, actual.shape, allowed,
    )  # fmt: skip


def same_bits(a: Array, b: Array) -> bool:
    """Whether two arrays are the same bit for bit, all NaNs being one."""
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    return canonical(a).tobytes() == canonical(b).tobytes()


def canonical(a: Array) -> Array:
    """The array with one NaN for all."""
    kind = dtypes.kind(a.dtype)
    if kind == "c":
        return canonical(np.stack([a.real, a.imag]))
    return np.where(np.isnan(a), np.array(np.nan, a.dtype), a) if kind == "f" else a
