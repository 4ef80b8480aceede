"""Sequences of samples: derivatives and integrals, interpolation, convolution, covariance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, NotSupportedError, ShapeError
from lazyt.functions import reductions
from lazyt.functions.arguments import record, tensor, tensors
from lazyt.functions.arithmetic import add, clip, divide, maximum, multiply, remainder, subtract
from lazyt.functions.creation import zeros
from lazyt.functions.elementwise import abs, conj, imag, isfinite, isnan, real, sqrt
from lazyt.functions.indexing import take
from lazyt.functions.joining import concat, diff
from lazyt.functions.logic import equal, logical_and, where
from lazyt.functions.manipulation import astype, flip, ravel, reshape
from lazyt.functions.products import diagonal, matmul, matrix_transpose
from lazyt.functions.quantiles import average
from lazyt.functions.searching import searchsorted
from lazyt.functions.sorting import argsort
from lazyt.functions.statistics import cumsum
from lazyt.functions.subscript import getitem
from lazyt.ir import dtypes
from lazyt.ops import signals as ops
from lazyt.ops.axes import integer, many_axes, one_axis

if TYPE_CHECKING:
    from lazyt.functions.arguments import ArrayLike, AxisLike
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "convolve",
    "corrcoef",
    "correlate",
    "cov",
    "ediff1d",
    "gradient",
    "interp",
    "trapezoid",
    "unwrap",
]


def _along(axis: int, start: int | None, stop: int | None) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, slice(start, stop))


def _floating(x: Any) -> Tensor:
    """The array in a dtype that differences and quotients stay in: integers become float64."""
    t = tensor(x)
    return t if dtypes.kind(t.dtype) in "fc" else astype(t, dtypes.float64)


def ediff1d(ary: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None) -> Tensor:
    """The differences of consecutive elements of the flattened array, between what is put before and after them.

    Raises DTypeError for ends of a dtype that the array's cannot hold. As `numpy.ediff1d`.

    >>> import lazyt as lt
    >>> lt.ediff1d(lt.asarray([1, 4, 9]), to_begin=0).tolist()
    [0, 3, 5]
    """
    t = ravel(tensors([x for x in (ary, to_end, to_begin) if x is not None])[0])
    parts = [] if t.size else [t]
    for end, there in ((to_begin, True), (None, False), (to_end, True)):
        if not there:
            parts += [diff(t)] if t.size else []
        elif end is not None:
            e = ravel(tensor(end, t))
            if not np.can_cast(e.dtype, t.dtype, "same_kind"):
                raise DTypeError(f"ediff1d: an end of dtype {e.dtype} cannot stand beside differences of {t.dtype}")
            parts.append(astype(e, t.dtype, copy=False))
    return concat(parts)


def gradient(f: ArrayLike, *varargs: ArrayLike, axis: AxisLike = None, edge_order: int = 1) -> Any:
    """The derivative of samples by central differences, one-sided at the ends (first or second order).

    `varargs` are spacings, or coordinates, one for all axes or one an axis. A tensor for one axis, else a tuple.
    Raises ShapeError for too few samples or spacings that do not match. As `numpy.gradient`.

    >>> import lazyt as lt
    >>> lt.gradient(lt.asarray([1.0, 4.0, 9.0])).tolist()
    [3.0, 4.0, 5.0]
    """
    t, *coordinates = tensors((f, *(h for h in varargs if not isinstance(h, int | float))))
    if any(dtypes.kind(c.dtype) in "biu" for c in coordinates):
        t = tensor(f, t, dtypes.float64)  # which integers as coordinates become
    t = _floating(t)
    at = many_axes("gradient", axis, t.ndim)
    if len(varargs) not in (0, 1, len(at)):
        raise ShapeError(f"gradient: {len(varargs)} spacings for {len(at)} axes")
    if edge_order not in (1, 2):
        raise ShapeError(f"gradient: edge_order is 1 or 2, got {edge_order}")
    steps: list[Any] = [1.0] * len(at) if not varargs else list(varargs) * (len(at) if len(varargs) == 1 else 1)
    out = tuple(_derivative(t, a, h, edge_order) for a, h in zip(at, steps, strict=True))
    return out[0] if len(out) == 1 else out


def _derivative(t: Tensor, axis: int, spacing: Any, order: int) -> Tensor:
    n = t.shape[axis]
    if n < order + 1:
        raise ShapeError(f"gradient: at least {order + 1} elements are required along axis {axis}, there are {n}")

    def part(start: int | None, stop: int | None) -> Tensor:
        return getitem(t, _along(axis, start, stop))

    h: Any = spacing
    if not isinstance(spacing, int | float):
        h = tensor(spacing, t)
        if h.ndim > 1 or (h.ndim == 1 and h.shape[0] != n):
            raise ShapeError(f"gradient: coordinates of shape {h.shape} for {n} samples")
        if h.ndim == 1:
            h = diff(_floating(h))
    if not isinstance(h, int | float) and h.ndim:

        def step(start: int | None, stop: int | None) -> Tensor:
            s = getitem(h, slice(start, stop))
            return reshape(s, (*s.shape, *(1,) * (t.ndim - 1 - axis)))

        left, right = step(0, -1), step(1, None)
        inner = (
            part(0, -2) * (-right / (left * (left + right)))
            + part(1, -1) * ((right - left) / (left * right))
            + part(2, None) * (left / (right * (left + right)))
        )
        first, last = step(0, 1), step(-1, None)
        if order == 1:
            ends = (part(1, 2) - part(0, 1)) / first, (part(-1, None) - part(-2, -1)) / last
        else:
            second, fore = step(1, 2), step(-2, -1)
            ends = (
                part(0, 1) * (-(2.0 * first + second) / (first * (first + second)))
                + part(1, 2) * ((first + second) / (first * second))
                + part(2, 3) * (-first / (second * (first + second))),
                part(-3, -2) * (last / (fore * (fore + last)))
                + part(-2, -1) * (-(last + fore) / (fore * last))
                + part(-1, None) * ((2.0 * last + fore) / (last * (fore + last))),
            )
    else:
        inner = (part(2, None) - part(0, -2)) / (2.0 * h)
        if order == 1:
            ends = (part(1, 2) - part(0, 1)) / h, (part(-1, None) - part(-2, -1)) / h
        else:
            ends = (
                part(0, 1) * (-1.5 / h) + part(1, 2) * (2.0 / h) + part(2, 3) * (-0.5 / h),
                part(-3, -2) * (0.5 / h) + part(-2, -1) * (-2.0 / h) + part(-1, None) * (1.5 / h),
            )
    return concat([ends[0], inner, ends[1]] if n > 2 else list(ends), axis=axis)


def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1) -> Tensor:
    """The integral of samples along an axis by the trapezoidal rule, at coordinates x or at distance dx.

    Raises ShapeError where x does not match. As `numpy.trapezoid`.

    >>> import lazyt as lt
    >>> lt.trapezoid(lt.asarray([1.0, 2.0, 3.0])).item()
    4.0
    """
    d: Any = dx
    t, *given = tensors([v for v in (y, x, dx) if v is not None and not (v is dx and isinstance(v, int | float))])
    a = one_axis("trapezoid", axis, t.ndim)
    if x is not None:
        coordinates = given[0]
        d = diff(coordinates, axis=-1 if coordinates.ndim == 1 else axis)
        if coordinates.ndim == 1:
            d = reshape(d, (*d.shape, *(1,) * (t.ndim - 1 - a)))
    pair = add(getitem(t, _along(a, 1, None)), getitem(t, _along(a, None, -1)))
    return reductions.sum(divide(multiply(pair, d), 2.0), axis=a)


def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
    period: float | None = None,
) -> Tensor:
    """The piecewise linear function through the points (xp, fp), xp increasing, at x; float64 or complex128.

    Beyond the points it is fp's first and last value, or `left` and `right`; with `period`, xp is sorted and x taken
    modulo it. Raises ShapeError unless xp and fp are vectors of one length. As `numpy.interp`.

    >>> import lazyt as lt
    >>> lt.interp(lt.asarray([1.5, 9.0]), [1, 2], [10, 20]).tolist()
    [15.0, 20.0]
    """
    at, points, values = tensors((x, xp, fp), dtypes.float64)
    at, points = astype(at, dtypes.float64), astype(points, dtypes.float64)
    values = astype(values, dtypes.complex128 if dtypes.kind(values.dtype) == "c" else dtypes.float64)
    if points.ndim != 1 or points.shape != values.shape or not points.size:
        raise ShapeError(f"interp: xp and fp are vectors of one length, got shapes {points.shape} and {values.shape}")
    if period is not None:
        if not period:
            raise ShapeError("interp: period must not be 0")
        p = float(np.abs(period))
        at, points = remainder(at, p), remainder(points, p)
        order = argsort(points)
        points, values = take(points, order), take(values, order)
        points = concat([getitem(points, slice(-1, None)) - p, points, getitem(points, slice(0, 1)) + p])
        values = concat([getitem(values, slice(-1, None)), values, getitem(values, slice(0, 1))])
        left = right = None
    first, last = getitem(values, 0), getitem(values, -1)
    below, above = (first if left is None else left), (last if right is None else right)
    n = points.size
    if n == 1:
        inside = where(isnan(at), at, first)
    else:
        # NaN sorts last: its place is the last interval, where it stays NaN.
        i = clip(searchsorted(points, at, side="right") - 1, 0, n - 2)
        x0, y0, x1, y1 = take(points, i), take(values, i), take(points, i + 1), take(values, i + 1)
        if dtypes.kind(values.dtype) == "c":
            inside = record(ops.COMPLEX, tuple(_line(at, x0, f(y0), x1, f(y1)) for f in (real, imag)))
        else:
            inside = _line(at, x0, y0, x1, y1)
    out = where(at < getitem(points, 0), below, inside)
    return where(at > getitem(points, -1), above, out)


def _line(at: Tensor, x0: Tensor, y0: Tensor, x1: Tensor, y1: Tensor) -> Tensor:
    """The line through two points; beside an infinite one as NumPy, from whichever point gives a number."""
    slope = (y1 - y0) / (x1 - x0)
    left, right = slope * (at - x0) + y0, slope * (at - x1) + y1
    other = where(logical_and(isnan(right), equal(y0, y1)), y0, right)
    other = where(equal(at, x0), y0, where(isnan(left), other, left))
    # NOTE: at a finite point the line itself, which has a derivative.
    found = where(isnan(at), at, where(isfinite(left), left, other))
    return where(equal(at, x1), y1, found)


def unwrap(p: ArrayLike, discont: float | None = None, axis: int = -1, *, period: float = 2 * np.pi) -> Tensor:
    """Angles along an axis with the jumps of more than half a period taken out. As `numpy.unwrap`.

    >>> import lazyt as lt
    >>> lt.unwrap(lt.asarray([0.0, 1.0, 6.0]), period=6).tolist()
    [0.0, 1.0, 0.0]
    """
    t = tensor(p)
    a = one_axis("unwrap", axis, t.ndim)
    steps = diff(t, axis=a)
    whole = dtypes.kind(t.dtype) in "iu" and isinstance(period, int)
    if not whole:
        t, steps = _floating(t), _floating(steps)
    half: Any = period // 2 if whole else period / 2
    limit = half if discont is None else max(discont, half)
    ambiguous = not whole or period % 2 == 0
    low = -half
    wrapped = remainder(steps - low, period) + low
    if ambiguous:
        wrapped = where(logical_and(equal(wrapped, low), steps > 0), half, wrapped)
    correction = where(abs(steps) < limit, 0, wrapped - steps)
    rest = add(getitem(t, _along(a, 1, None)), cumsum(correction, axis=a))
    return concat([getitem(t, _along(a, None, 1)), rest], axis=a)


def _vectors(name: str, a: Any, v: Any, mode: str) -> tuple[Tensor, Tensor]:
    x, y = tensors((a, v))
    if x.ndim > 1 or y.ndim > 1 or not x.size or not y.size:
        raise ShapeError(f"{name}: vectors that are not empty are required, got shapes {x.shape} and {y.shape}")
    if mode not in ("full", "same", "valid"):
        raise NotSupportedError(
            f"{name}: not supported: mode {mode!r}, because it is one of 'full', 'same' and 'valid'"
        )
    d = dtypes.promote(x.dtype, y.dtype)
    return ravel(astype(x, d, copy=False)), ravel(astype(y, d, copy=False))


def _slide(x: Tensor, y: Tensor, mode: str) -> Tensor:
    """sum_k x[i + k] y[k] for the i of the mode; y is the shorter of the two."""
    m = y.size
    before, after = {"full": (m - 1, m - 1), "same": (m // 2, m - 1 - m // 2), "valid": (0, 0)}[mode]
    return record(ops.SLIDING_DOT, (x, y), (m, before, after))


def convolve(a: ArrayLike, v: ArrayLike, mode: str = "full") -> Tensor:
    """The convolution of two vectors: 'full' (n + m - 1 values), 'same' (the middle max(n, m)) or 'valid'.

    Raises ShapeError for another rank or an empty one. As `numpy.convolve`.

    >>> import lazyt as lt
    >>> lt.convolve(lt.asarray([1, 2, 3]), [1, 1]).tolist()
    [1, 3, 5, 3]
    """
    x, y = _vectors("convolve", a, v, mode)
    if y.size > x.size:
        x, y = y, x
    return _slide(x, flip(y), mode)


def correlate(a: ArrayLike, v: ArrayLike, mode: str = "valid") -> Tensor:
    """sum_n a[n + k] conj(v[n]) for shifts k: 'valid', 'same' or 'full'. As `numpy.correlate`.

    Raises ShapeError for another rank or an empty one.

    >>> import lazyt as lt
    >>> lt.correlate(lt.asarray([1, 2, 3]), [0, 1]).tolist()
    [2, 3]
    """
    x, y = _vectors("correlate", a, v, mode)
    y = conj(y) if dtypes.kind(y.dtype) == "c" else y
    # With the longer vector second, it is the other way round, reversed.
    return _slide(x, y, mode) if y.size <= x.size else flip(_slide(y, x, mode))


def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
    *,
    dtype: Any = None,
) -> Tensor:
    """The covariance matrix of variables in rows (columns, without `rowvar`); 0-d for one variable.

    Raises ShapeError for more than two dimensions. As `numpy.cov`.

    >>> import lazyt as lt
    >>> lt.cov(lt.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    d = dtypes.float64 if dtype is None else dtypes.as_dtype(dtype)
    t, *others = tensors((m,) if y is None else (m, y), d)
    other = others[0] if others else None
    if t.ndim > 2 or (other is not None and other.ndim > 2):
        raise ShapeError("cov: at most 2 dimensions are possible")
    if ddof is not None and ddof != integer("cov", "ddof", ddof):
        raise DTypeError("cov: ddof must be an integer")
    for each in (t, other):
        d = d if each is None or dtype is not None else dtypes.promote(d, each.dtype)
    x = _rows(t, d, rowvar)
    if not x.shape[0]:
        return zeros((0, 0), dtype=d, device=t.device)
    if other is not None:
        x = concat([x, _rows(other, d, rowvar)], axis=0)
    free = (0 if bias else 1) if ddof is None else ddof
    w: Any = None
    for given in (fweights, aweights):
        if given is not None:
            one = astype(tensor(given, t, dtypes.float64), d if dtypes.kind(d) == "f" else dtypes.real_of(d))
            if one.shape != x.shape[1:]:
                raise ShapeError(f"cov: weights of shape {one.shape} for {x.shape[1]} observations")
            w = one if w is None else w * one
    mean, total = average(x, axis=1, weights=w, returned=True)
    total = getitem(total, 0)
    if w is None:
        norm: Any = max(x.shape[1] - free, 0)
    elif not free:
        norm = total
    elif aweights is None:
        norm = total - free
    else:
        norm = total - free * reductions.sum(w * astype(tensor(aweights, t, dtypes.float64), w.dtype)) / total
    apart = subtract(x, reshape(mean, (-1, 1)))
    weighted = apart if w is None else apart * w
    turned = matrix_transpose(weighted)
    out = matmul(apart, conj(turned) if dtypes.kind(d) == "c" else turned)
    out = divide(out, float(norm)) if isinstance(norm, int) else divide(out, maximum(norm, 0))
    return reshape(out, ()) if out.shape == (1, 1) else out


def _rows(t: Tensor, d: np.dtype, rowvar: bool) -> Tensor:
    t = astype(t, d, copy=False)
    t = reshape(t, (1, -1)) if t.ndim < 2 else t
    return matrix_transpose(t) if not rowvar and t.shape[0] != 1 else t


def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, *, dtype: Any = None) -> Tensor:
    """The correlation coefficients of variables in rows (columns, without `rowvar`). As `numpy.corrcoef`.

    Raises ShapeError for more than two dimensions.

    >>> import lazyt as lt
    >>> lt.corrcoef(lt.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    c = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return divide(c, c)
    deviation = sqrt(real(diagonal(c)) if dtypes.kind(c.dtype) == "c" else diagonal(c))
    c = divide(divide(c, reshape(deviation, (-1, 1))), deviation)
    if dtypes.kind(c.dtype) == "c":
        return clip(real(c), -1, 1) + clip(imag(c), -1, 1) * 1j
    return clip(c, -1, 1)
