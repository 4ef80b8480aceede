"""Fourier transforms: library calls. Integers become floats; float32 gives complex64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, ShapeError
from lazyt.ir import dtypes
from lazyt.ir.symbolic import hint
from lazyt.ops import samples
from lazyt.ops.axes import many_axes, one_axis
from lazyt.ops.definition import OpDef, Operand, define, node_of, result_type
from lazyt.ops.elementwise import float_of

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Dim

    Size = int | Dim

NORMS = ("backward", "ortho", "forward")
# The transforms whose operand is real, and those whose result is.
FROM_REAL = frozenset({"rfft", "ihfft", "rfftn"})
TO_REAL = frozenset({"irfft", "hfft", "irfftn"})


def _operand(b: Builder, fn: str, x: Operand, norm: str) -> Node:
    """The operand in the dtype that the library takes: float32 or float64, or their complex counterparts."""
    name = f"fft.{fn}"
    if norm not in NORMS:
        raise ShapeError(f"{name}: norm is one of {', '.join(NORMS)}, got {norm!r}")
    d = float_of(result_type(x))
    if dtypes.of(d).narrow:
        raise DTypeError(f"{name}: float32, float64, complex64 or complex128 is required, got {d}; cast it first")
    if fn in FROM_REAL:
        if dtypes.kind(d) == "c":
            raise DTypeError(f"{name}: a real dtype is required, got {d}")
        return node_of(b, x, d)
    return node_of(b, x, dtypes.complex_of(d))


def _result(fn: str, v: Node) -> np.dtype:
    return dtypes.real_of(v.dtype) if fn in TO_REAL else dtypes.complex_of(v.dtype)


def _length(fn: str, size: Size, n: Size | None) -> Size:
    """The extent of the result along a transformed axis of `size`, n being what was asked for."""
    if fn in TO_REAL:
        return 2 * (size - 1) if n is None else n
    whole = size if n is None else n
    return whole // 2 + 1 if fn in FROM_REAL else whole


def _require_points(fn: str, *sizes: Size) -> None:
    for n in sizes:
        if hint(n) < 1:
            raise ShapeError(f"fft.{fn}: at least one point is required, got {hint(n)}")


def _one(fn: str, ref: Any) -> OpDef:
    def lower(b: Builder, x: Operand, axis: int, norm: str, *, ints: tuple[Size, ...] = ()) -> Node:
        v = _operand(b, fn, x, norm)
        at = one_axis(f"fft.{fn}", axis, v.ndim)
        n = ints[0] if ints else None
        out = _length(fn, v.shape[at], n)
        _require_points(fn, v.shape[at], out, *ints)
        shape = tuple(out if i == at else d for i, d in enumerate(v.shape))
        return b.opaque(f"fft_{fn}", (v,), (n, at, norm), [(shape, _result(fn, v))])[0]

    real = fn in FROM_REAL
    x = samples.array((3, 6), np.float32)
    z = x if real else samples.array((3, 6), np.complex64)
    calls = (
        (z,), (z, {"n": 8}), (z, {"n": 5}), (z, {"axis": 0}), (x.astype("f8"),), (x.astype("i8"), {"norm": "ortho"}),
        (z, {"norm": "forward", "n": 7}),
    )  # fmt: skip
    errors: list[Any] = [
        ((x,), {"axis": 2}, ShapeError, "axis 2 is out of bounds"),
        ((x,), {"norm": "none"}, ShapeError, f"fft.{fn}: norm is one of"),
        ((x,), {"n": 0}, ShapeError, f"fft.{fn}: at least one point is required, got 0"),
        ((x.astype("f2"),), {}, DTypeError, f"fft.{fn}: float32, float64, complex64 or complex128 is required"),
    ]
    if real:
        errors.append(((x.astype("c8"),), {}, DTypeError, f"fft.{fn}: a real dtype is required"))
    return define(f"fft.{fn}", lower, numpy=ref, samples=samples.calls(*calls), errors=errors)


def _many(fn: str, ref: Any) -> OpDef:
    def lower(b: Builder, x: Operand, axes: Any, norm: str, *, ints: tuple[Size, ...] = ()) -> Node:
        v = _operand(b, fn, x, norm)
        if axes is None:
            axes = tuple(range(v.ndim - len(ints), v.ndim)) if ints else None
        at = many_axes(f"fft.{fn}", axes, v.ndim)
        if ints and len(ints) != len(at):
            raise ShapeError(f"fft.{fn}: s and axes have different lengths, {len(ints)} and {len(at)}")
        if not at:
            raise ShapeError(f"fft.{fn}: at least one axis is required")
        shape = list(v.shape)
        for i, a in enumerate(at):
            n = ints[i] if ints else None
            # Only the last axis is halved.
            one = fn if a == at[-1] else "fft"
            shape[a] = _length(one, v.shape[a], n)
            _require_points(fn, v.shape[a], shape[a], *ints)
        s = tuple(ints) or None
        return b.opaque(f"fft_{fn}", (v,), (s, at, norm), [(tuple(shape), _result(fn, v))])[0]

    x = samples.array((3, 4, 6), np.float32)
    z = x if fn in FROM_REAL else samples.array((3, 4, 6), np.complex64)
    calls = (
        (z,), (z, {"axes": (0, 2)}), (z, {"s": (5, 3), "axes": (2, 1)}), (x.astype("f8"), {"norm": "ortho"}),
        (z, {"axes": (1,), "norm": "forward"}),
    )  # fmt: skip
    errors = [
        ((x,), {"axes": (0, 3)}, ShapeError, "axis 3 is out of bounds"),
        ((x,), {"s": (2,), "axes": (0, 1)}, ShapeError, f"fft.{fn}: s and axes have different lengths"),
    ]
    return define(f"fft.{fn}", lower, numpy=ref, samples=samples.calls(*calls), errors=errors)


FFT, IFFT, RFFT, IRFFT, HFFT, IHFFT = (
    _one(fn, getattr(np.fft, fn)) for fn in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
)
FFTN, IFFTN, RFFTN, IRFFTN = (_many(fn, getattr(np.fft, fn)) for fn in ("fftn", "ifftn", "rfftn", "irfftn"))
