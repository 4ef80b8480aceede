"""Fourier transforms (`lazyt.fft`): all of the Array API's extension. Names and results as in `numpy.fft`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import DTypeError, ShapeError
from lazyt.functions.arguments import dtype_or_none, record, tensor
from lazyt.functions.arithmetic import divide
from lazyt.functions.creation import arange
from lazyt.functions.joining import concat, roll
from lazyt.ir import dtypes
from lazyt.ops import fft as ops
from lazyt.ops.axes import integer, many_axes

if TYPE_CHECKING:
    from lazyt.ops.definition import OpDef
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]


def _one(op: OpDef, x: Any, n: int | None, axis: int, norm: str | None) -> Tensor:
    ints = None if n is None else (integer(op.name, "n", n),)
    return record(op, (x,), (axis, norm or "backward"), ints)


def _many(op: OpDef, x: Any, s: Any, axes: Any, norm: str | None) -> Tensor:
    ints = None if s is None else tuple(integer(op.name, "s", n) for n in s)
    return record(op, (x,), (None if axes is None else tuple(axes), norm or "backward"), ints)


def fft(x: Any, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The discrete Fourier transform along an axis, cut or padded with 0 to n points; complex.

    `norm` says which way divides by n ('backward': the inverse; 'forward': this; 'ortho': both by its root). Raises
    ShapeError, DTypeError. As `numpy.fft.fft`.

    >>> import lazyt as lt
    >>> lt.fft.fft(lt.asarray([1.0, 0.0])).tolist()
    [(1+0j), (1+0j)]
    """
    return _one(ops.FFT, x, n, axis, norm)


def ifft(x: Any, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `fft`. Raises ShapeError, DTypeError. As `numpy.fft.ifft`.

    >>> import lazyt as lt
    >>> lt.fft.ifft(lt.asarray([1.0, 1.0])).tolist()
    [(1+0j), 0j]
    """
    return _one(ops.IFFT, x, n, axis, norm)


def rfft(x: Any, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The first n // 2 + 1 points of the `fft` of real data. Raises ShapeError, DTypeError. As `numpy.fft.rfft`.

    >>> import lazyt as lt
    >>> lt.fft.rfft(lt.asarray([1.0, 0.0, 0.0, 0.0])).shape
    (3,)
    """
    return _one(ops.RFFT, x, n, axis, norm)


def irfft(x: Any, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `rfft`: n real points, by default 2 * (points - 1). Raises ShapeError, DTypeError.

    As `numpy.fft.irfft`.

    >>> import lazyt as lt
    >>> lt.fft.irfft(lt.asarray([1.0, 1.0, 1.0])).tolist()
    [1.0, 0.0, 0.0, 0.0]
    """
    return _one(ops.IRFFT, x, n, axis, norm)


def hfft(x: Any, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The `fft` of a signal that is Hermitian, of which x is the first half: n real points.

    Raises ShapeError, DTypeError. As `numpy.fft.hfft`.

    >>> import lazyt as lt
    >>> lt.fft.hfft(lt.asarray([1.0, 0.0, 0.0])).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    return _one(ops.HFFT, x, n, axis, norm)


def ihfft(x: Any, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `hfft`. Raises ShapeError, DTypeError. As `numpy.fft.ihfft`.

    >>> import lazyt as lt
    >>> lt.fft.ihfft(lt.asarray([1.0, 1.0, 1.0, 1.0])).shape
    (3,)
    """
    return _one(ops.IHFFT, x, n, axis, norm)


def fftn(x: Any, /, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """`fft` over several axes (by default all), cut or padded to s. Raises ShapeError, DTypeError.

    As `numpy.fft.fftn`.

    >>> import lazyt as lt
    >>> lt.fft.fftn(lt.ones((2, 3))).shape
    (2, 3)
    """
    return _many(ops.FFTN, x, s, axes, norm)


def ifftn(x: Any, /, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """The inverse of `fftn`. Raises ShapeError, DTypeError. As `numpy.fft.ifftn`.

    >>> import lazyt as lt
    >>> lt.fft.ifftn(lt.ones((2, 3))).shape
    (2, 3)
    """
    return _many(ops.IFFTN, x, s, axes, norm)


def rfftn(x: Any, /, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """`rfft` over the last of several axes, then `fft` over the others. Raises ShapeError, DTypeError.

    As `numpy.fft.rfftn`.

    >>> import lazyt as lt
    >>> lt.fft.rfftn(lt.ones((2, 4))).shape
    (2, 3)
    """
    return _many(ops.RFFTN, x, s, axes, norm)


def irfftn(x: Any, /, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """The inverse of `rfftn`. Raises ShapeError, DTypeError. As `numpy.fft.irfftn`.

    >>> import lazyt as lt
    >>> lt.fft.irfftn(lt.ones((2, 3))).shape
    (2, 4)
    """
    return _many(ops.IRFFTN, x, s, axes, norm)


def fft2(x: Any, /, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """`fftn` over the last two axes, cut or padded to s. Raises ShapeError, DTypeError. As `numpy.fft.fft2`.

    >>> import lazyt as lt
    >>> lt.fft.fft2(lt.ones((5, 2, 3))).shape
    (5, 2, 3)
    """
    return fftn(x, s, axes, norm)


def ifft2(x: Any, /, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """`ifftn` over the last two axes. Raises ShapeError, DTypeError. As `numpy.fft.ifft2`.

    >>> import lazyt as lt
    >>> lt.fft.ifft2(lt.ones((5, 2, 3))).shape
    (5, 2, 3)
    """
    return ifftn(x, s, axes, norm)


def rfft2(x: Any, /, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """`rfftn` over the last two axes. Raises ShapeError, DTypeError. As `numpy.fft.rfft2`.

    >>> import lazyt as lt
    >>> lt.fft.rfft2(lt.ones((5, 2, 3))).shape
    (5, 2, 2)
    """
    return rfftn(x, s, axes, norm)


def irfft2(x: Any, /, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """`irfftn` over the last two axes. Raises ShapeError, DTypeError. As `numpy.fft.irfft2`.

    >>> import lazyt as lt
    >>> lt.fft.irfft2(lt.ones((5, 2, 3))).shape
    (5, 2, 4)
    """
    return irfftn(x, s, axes, norm)


def _frequency_dtype(name: str, n: int, dtype: Any) -> Any:
    d = dtype_or_none(dtype) or dtypes.float32
    if dtypes.kind(d) != "f":
        raise DTypeError(f"fft.{name}: a real floating dtype is required, got {d}")
    if integer(f"fft.{name}", "n", n) < 1:
        raise ShapeError(f"fft.{name}: at least one point is required, got {n}")
    return d


def fftfreq(n: int, /, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of `fft` for n points at a distance d: 0, 1, ..., -2, -1 over n * d.

    Raises ShapeError, DTypeError. As `numpy.fft.fftfreq`.

    >>> import lazyt as lt
    >>> lt.fft.fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    t = _frequency_dtype("fftfreq", n, dtype)
    rising = arange(0, (n + 1) // 2, dtype=t, device=device)
    return divide(concat([rising, arange(-(n // 2), 0, dtype=t, device=device)]), float(n * d))


def rfftfreq(n: int, /, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of `rfft` for n points at a distance d: 0, 1, ..., n // 2 over n * d.

    Raises ShapeError, DTypeError. As `numpy.fft.rfftfreq`.

    >>> import lazyt as lt
    >>> lt.fft.rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    t = _frequency_dtype("rfftfreq", n, dtype)
    return divide(arange(0, n // 2 + 1, dtype=t, device=device), float(n * d))


def _shifted(name: str, x: Any, axes: Any, back: bool) -> Tensor:
    x = tensor(x)
    at = many_axes(name, axes, len(x.shape))
    shifts = tuple(-(x.shape[a] // 2) if back else x.shape[a] // 2 for a in at)
    return roll(x, shifts, axis=at)


def fftshift(x: Any, /, axes: Any = None) -> Tensor:
    """x with frequency 0 moved to the middle of the axes (by default all). Raises ShapeError.

    As `numpy.fft.fftshift`.

    >>> import lazyt as lt
    >>> lt.fft.fftshift(lt.asarray([0, 1, -2, -1])).tolist()
    [-2, -1, 0, 1]
    """
    return _shifted("fft.fftshift", x, axes, False)


def ifftshift(x: Any, /, axes: Any = None) -> Tensor:
    """`fftshift` undone. Raises ShapeError. As `numpy.fft.ifftshift`.

    >>> import lazyt as lt
    >>> lt.fft.ifftshift(lt.asarray([-2, -1, 0, 1])).tolist()
    [0, 1, -2, -1]
    """
    return _shifted("fft.ifftshift", x, axes, True)
