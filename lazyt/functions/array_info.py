"""What NumPy's programs ask of an array, and a few ways to make one, under NumPy's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.config import HOST
from lazyt.errors import ShapeError
from lazyt.functions.arguments import adopted, record, record_one, tensor, tensors
from lazyt.functions.conversion import asarray
from lazyt.functions.creation import arange
from lazyt.functions.elementwise import conj
from lazyt.functions.manipulation import expand_dims, ravel, reshape, squeeze
from lazyt.functions.numpy_calls import refuse_gradient
from lazyt.functions.products import matmul, vecdot
from lazyt.functions.searching import hosts
from lazyt.ir import dtypes
from lazyt.ops.axes import integer, one_axis
from lazyt.ops.creation import COPY
from lazyt.tracing.autocast import autocasts, outside
from lazyt.tracing.record import current_device
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from lazyt.functions.arguments import ArrayLike
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "array",
    "bartlett",
    "blackman",
    "copy",
    "diag_indices",
    "geomspace",
    "hamming",
    "hanning",
    "iscomplexobj",
    "isrealobj",
    "isscalar",
    "issubdtype",
    "kaiser",
    "matvec",
    "ndim",
    "promote_types",
    "setxor1d",
    "shape",
    "size",
    "vdot",
    "vecmat",
]


def array(object: Any, dtype: Any = None, *, copy: bool | None = True, ndmin: int = 0) -> Tensor:
    """A new tensor of `object`, with at least `ndmin` dimensions; with `copy=None` a tensor is itself.

    Dtypes as for `asarray`. Raises DTypeError for what is no array. As `numpy.array`.

    >>> import lazyt as lt
    >>> lt.array([1, 2], ndmin=2).shape
    (1, 2)
    """
    t = asarray(object, dtype=dtype)
    if t is object and copy:
        t = record(COPY, (t,))
    return reshape(t, (*(1,) * (ndmin - t.ndim), *t.shape)) if t.ndim < ndmin else t


def copy(a: ArrayLike) -> Tensor:
    """The same value as a tensor of its own; deferred. As `numpy.copy`.

    >>> import lazyt as lt
    >>> x = lt.asarray([1, 2])
    >>> y = lt.copy(x)
    >>> y += 1
    >>> x.tolist()
    [1, 2]
    """
    return record_one(COPY, tensor(a))


def shape(a: ArrayLike) -> tuple[int, ...]:
    """The extents; never computes. As `numpy.shape`.

    >>> import lazyt as lt
    >>> lt.shape([[1, 2]])
    (1, 2)
    """
    return tensor(a).shape


def ndim(a: ArrayLike) -> int:
    """The number of axes; never computes. As `numpy.ndim`.

    >>> import lazyt as lt
    >>> lt.ndim([[1, 2]])
    2
    """
    return tensor(a).ndim


def size(a: ArrayLike, axis: int | tuple[int, ...] | None = None) -> int:
    """The number of elements, or along one axis or several; never computes. As `numpy.size`.

    >>> import lazyt as lt
    >>> lt.size(lt.ones((2, 3)), 1)
    3
    """
    t = tensor(a)
    n = 1
    for i in range(t.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,):
        n *= t.shape[one_axis("size", i, t.ndim)]
    return n


def iscomplexobj(x: Any) -> bool:
    """Whether the dtype is complex; never computes. As `numpy.iscomplexobj`.

    >>> import lazyt as lt
    >>> lt.iscomplexobj(lt.ones(2, dtype=lt.complex64))
    True
    """
    return dtypes.kind(tensor(x).dtype) == "c"


def isrealobj(x: Any) -> bool:
    """Whether the dtype is not complex; never computes. As `numpy.isrealobj`.

    >>> import lazyt as lt
    >>> lt.isrealobj(lt.ones(2))
    True
    """
    return not iscomplexobj(x)


def isscalar(element: Any) -> bool:
    """Whether this is a number of Python's or NumPy's (or text): no tensor is. As `numpy.isscalar`.

    >>> import lazyt as lt
    >>> lt.isscalar(1.5), lt.isscalar(lt.asarray(1.5))
    (True, False)
    """
    return not isinstance(element, Handle) and bool(np.isscalar(element))


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether a dtype lies under another in NumPy's hierarchy; bfloat16 under `numpy.floating`. As `numpy.issubdtype`.

    >>> import lazyt as lt, numpy as np
    >>> lt.issubdtype(lt.bfloat16, np.floating)
    True
    """
    one, other = (isinstance(a, np.dtype) and dtypes.is_known(a) and dtypes.of(a).foreign for a in (arg1, arg2))
    return bool(arg1 == arg2 if other else np.issubdtype(np.floating if one else arg1, arg2))


def promote_types(type1: Any, type2: Any) -> np.dtype:
    """The dtype that two dtypes promote to. As `numpy.promote_types`.

    >>> import lazyt as lt
    >>> lt.promote_types("int8", "float32")
    dtype('float32')
    """
    return dtypes.promote(dtypes.as_dtype(type1), dtypes.as_dtype(type2))


@autocasts("vdot")
def vdot(a: ArrayLike, b: ArrayLike) -> Tensor:
    """The dot product of the flattened arrays, with the conjugate of the first. As `numpy.vdot`.

    Raises ShapeError for different numbers of elements.

    >>> import lazyt as lt
    >>> lt.vdot(lt.asarray([[1, 2]]), [[3], [4]]).item()
    11
    """
    # NOTE: in an autocast region `vecdot` is cast on the CPU, and this is not.
    found: Tensor = outside(vecdot, *map(ravel, tensors((a, b))))
    return found


def matvec(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """Matrices (..., m, n) times vectors (..., n): (..., m). Raises ShapeError. As `numpy.matvec`.

    >>> import lazyt as lt
    >>> lt.matvec(lt.asarray([[1, 2], [3, 4]]), [1, 1]).tolist()
    [3, 7]
    """
    a, v = tensors((x1, x2))
    if len(v.shape) == 1:
        return matmul(a, v)
    return squeeze(matmul(a, expand_dims(v, axis=-1)), axis=-1)


def vecmat(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """The conjugates of vectors (..., m) times matrices (..., m, n): (..., n). Raises ShapeError. As `numpy.vecmat`.

    >>> import lazyt as lt
    >>> lt.vecmat(lt.asarray([1, 1]), [[1, 2], [3, 4]]).tolist()
    [4, 6]
    """
    v, a = tensors((x1, x2))
    v = conj(v) if dtypes.kind(v.dtype) == "c" else v
    if len(v.shape) == 1:
        return matmul(v, a)
    return squeeze(matmul(expand_dims(v, axis=-2), a), axis=-2)


def setxor1d(ar1: ArrayLike, ar2: ArrayLike) -> Tensor:
    """What is in one of two arrays alone, in order. A sync: the length is data. As `numpy.setxor1d`.

    >>> import lazyt as lt
    >>> lt.setxor1d([1, 2], [2, 3]).tolist()
    [1, 3]
    """
    refuse_gradient("setxor1d", (ar1, ar2), "which elements there are depends on their values")
    return adopted(np.setxor1d(*hosts("setxor1d", ar1, ar2)), ar1, ar2)


def diag_indices(n: int, ndim: int = 2) -> tuple[Tensor, ...]:
    """The positions of the main diagonal of an array with `ndim` extents n. As `numpy.diag_indices`.

    >>> import lazyt as lt
    >>> [i.tolist() for i in lt.diag_indices(2)]
    [[0, 1], [0, 1]]
    """
    i = arange(integer("diag_indices", "n", n))
    return (i,) * ndim


def geomspace(start: complex, stop: complex, num: int = 50, endpoint: bool = True, dtype: Any = None) -> Tensor:
    """`num` numbers from start to stop, each the same multiple of the one before; float32 by default.

    Raises ShapeError for a bound that is 0. As `numpy.geomspace`.

    >>> import lazyt as lt
    >>> lt.geomspace(1, 8, 4).tolist()
    [1.0, 2.0, 4.0, 8.0]
    """
    if not start or not stop:
        raise ShapeError("geomspace: a bound is 0, which no multiple leads to or from")
    a = np.geomspace(start, stop, num, endpoint)
    default = dtypes.complex64 if dtypes.host_kind(a.dtype) == "c" else dtypes.float32
    return _made(a.astype(dtypes.as_dtype(dtype) if dtype is not None else default, copy=False))


def _window(f: Any, *args: Any) -> Tensor:
    return _made(f(*args))


def _made(a: Any) -> Tensor:
    """A tensor of an array that was made for it: over its memory, but where another device is asked for."""
    return adopted(a) if current_device() == HOST and a.flags.c_contiguous else tensor(a)


def bartlett(M: int) -> Tensor:  # noqa: N803 - NumPy's name
    """A triangular window of M values, float64. As `numpy.bartlett`.

    >>> import lazyt as lt
    >>> lt.bartlett(3).tolist()
    [0.0, 1.0, 0.0]
    """
    return _window(np.bartlett, M)


def blackman(M: int) -> Tensor:  # noqa: N803
    """Blackman's window of M values, float64. As `numpy.blackman`.

    >>> import lazyt as lt
    >>> lt.round(lt.blackman(3)[1], 6).item()
    1.0
    """
    return _window(np.blackman, M)


def hamming(M: int) -> Tensor:  # noqa: N803
    """Hamming's window of M values, float64. As `numpy.hamming`.

    >>> import lazyt as lt
    >>> lt.hamming(3)[1].item()
    1.0
    """
    return _window(np.hamming, M)


def hanning(M: int) -> Tensor:  # noqa: N803
    """Hann's window of M values, float64. As `numpy.hanning`.

    >>> import lazyt as lt
    >>> lt.hanning(3).tolist()
    [0.0, 1.0, 0.0]
    """
    return _window(np.hanning, M)


def kaiser(M: int, beta: float) -> Tensor:  # noqa: N803
    """Kaiser's window of M values and shape beta, float64. As `numpy.kaiser`.

    >>> import lazyt as lt
    >>> lt.kaiser(3, 0.0).tolist()
    [1.0, 1.0, 1.0]
    """
    return _window(np.kaiser, M, beta)
