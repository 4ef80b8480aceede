"""Tensors of data that something else holds: numbers, lists, NumPy's arrays, other libraries' memory."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from lazyt.config import HOST
from lazyt.errors import DeviceError, DTypeError, ShapeError
from lazyt.functions import dlpack
from lazyt.functions.flat import Flat
from lazyt.functions.host import (
    ALONE,
    ARRAYS,
    holds_tensor,
    host_array,
    is_constant,
    list_dtype,
    refuse_foreign,
    tensors_in,
)
from lazyt.functions.joining import stack
from lazyt.ir import dtypes
from lazyt.runtime import memory
from lazyt.runtime.device import check as check_device
from lazyt.runtime.tensor import Tensor, tensor_of
from lazyt.tracing import record as recording
from lazyt.tracing.steps import hooks
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.tracebacks import filter_traceback, filters_itself

__all__ = ["asarray", "from_dlpack", "from_numpy", "tensor"]


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor of what anything that speaks DLPack holds now: a copy on the CPU, its memory on a GPU.

    `copy=False` shares the memory on the CPU too, `copy=True` copies it on a GPU. lazyt never writes shared memory, and
    reads it at the sync: writing it before then changes what was recorded. `device="cpu"` asks the owner of memory
    elsewhere to copy it here. Raises DeviceError, DTypeError; BufferError when `copy=False` cannot be.

    >>> import lazyt as lt, numpy as np
    >>> lt.from_dlpack(np.arange(3)).tolist()
    [0, 1, 2]
    """
    if isinstance(x, Tensor):
        return asarray(x, device=device, copy=copy)
    if device != HOST and hasattr(x, "__dlpack__") and (kind := dlpack.kind_of(x)):
        try:
            out = _adopted(x, kind, bool(copy))
        except DeviceError as error:
            raise DeviceError(
                f"from_dlpack: memory of DLPack device {x.__dlpack_device__()} cannot be used: {error}; "
                "device='cpu' asks its owner for a copy there"
            ) from error
        return out if device is None else asarray(out, device=device, copy=copy)
    if device not in (None, HOST):
        return asarray(dlpack.imported(x, None, copy), device=device)
    a = dlpack.imported(x, device, copy)
    return _shared(a) if copy is not None or dlpack.is_elsewhere(x) else tensor_of(memory.from_array(a))


def _adopted(x: Any, kind: int, copy: bool) -> Tensor:
    """Another library's memory on a device of this DLPack type, or a copy of it made now."""
    data = memory.adopted(x, kind, copy)
    dtypes.as_dtype(data.dtype)
    return tensor_of(data)


def asarray(
    obj: Any, /, dtype: Any = None, order: Any = None, *, device: Any = None, copy: bool | None = None, like: Any = None
) -> Tensor:
    """A tensor of `obj`: a tensor, a Python scalar, nested sequences, or anything NumPy reads. Copies NumPy memory.

    Python floats give float32, ints int64, bools bool. `order` and `like` change nothing. Raises DTypeError for objects
    that are not arrays. As `numpy.asarray`.

    >>> import lazyt as lt
    >>> lt.asarray([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    if type(obj) is np.ndarray and dtype is None and device is None and copy is not False:
        return tensor_of(memory.from_array(host_array(obj, None), recording.current_device()))
    name = recording.current_device() if device is None else check_device(device)
    want = None if dtype is None else dtypes.as_dtype(dtype)
    obj = obj.copy() if type(obj) is Flat else obj
    if isinstance(obj, Tensor):
        moved = device is not None and obj.device != name
        if copy is False and (moved or (want is not None and obj.dtype != want)):
            raise ValueError(f"asarray: a change of {'device' if moved else 'dtype'} needs a copy")
        return obj.to(dtype=want, device=device, copy=bool(copy))
    if not isinstance(obj, np.ndarray | list | tuple) and (kind := dlpack.kind_of(obj)):
        # A copy, as of all that comes from elsewhere: `from_dlpack` shares.
        return asarray(_adopted(obj, kind, copy is not False), dtype=want, device=device)
    if isinstance(obj, list | tuple) and (beside := tuple(tensors_in(obj))):
        out = stack([_part(o, device, (*beside, want)) for o in obj])
        return out if want is None else out.to(dtype=want)
    if copy is False and name != HOST:
        raise ValueError(f"asarray: copy=False, and what comes to {str(name)!r} is a copy")
    if copy is False:
        if not isinstance(obj, np.ndarray) or want not in (None, obj.dtype) or not obj.flags.c_contiguous:
            raise ValueError("asarray: copy=False, and only C-contiguous NumPy memory of the same dtype needs no copy")
        return _shared(obj)
    return tensor_of(memory.from_array(host_array(obj, want), name))


def _part(o: Any, device: Any, beside: Sequence[Any]) -> Tensor:
    """Python's numbers, alone or in lists, beside tensors: as wide as what they give with them."""
    if isinstance(o, list | tuple) and holds_tensor(o):
        return stack([_part(x, device, beside) for x in o])
    t = asarray(o, device=device)
    wide = list_dtype(t.dtype, beside)
    return t if wide == t.dtype or isinstance(o, Handle) else asarray(o, dtype=wide, device=device)


def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A new leaf holding a copy of `data` (see `asarray`), asking for gradients if `requires_grad`.

    >>> import lazyt as lt
    >>> w = lt.tensor([1.0, 2.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> w.grad.tolist()
    [2.0, 4.0]
    """
    if isinstance(data, Tensor):
        device = data.device if device is None else device
        data = data._array("tensor()")
    out = asarray(data, dtype=dtype, device=device, copy=None)
    return out.requires_grad_() if requires_grad else out


@filters_itself
def from_numpy(a: np.ndarray[Any, Any]) -> Tensor:
    """A tensor of what a NumPy array holds now; without a copy where nobody can write its memory.

    That is where it is read-only, with all that it is a view of (`a.setflags(write=False)`, `mmap_mode="r"`), or where
    nobody else refers to it. `asarray(a, copy=False)` shares any: a write before the sync changes what was recorded.

    >>> import lazyt as lt, numpy as np
    >>> x, a[:] = lt.from_numpy(a := np.arange(3)) * 2, 7
    >>> x.tolist()
    [0, 2, 4]
    """
    try:
        if not isinstance(a, np.ndarray):
            raise DTypeError(f"from_numpy: a numpy.ndarray is required, not {type(a).__name__}")
        if any(s < 0 for s in a.strides):
            raise ShapeError("from_numpy: negative strides are not supported; copy the array first")
        alone = getrefcount(a) == ALONE and type(a) is np.ndarray and a.base is None
        return _shared(a) if alone or is_constant(a) else tensor_of(memory.from_array(host_array(a, None)))
    except Exception as error:
        filter_traceback(error)
        raise


def _shared(a: np.ndarray[Any, Any]) -> Tensor:
    """A tensor over NumPy's memory, which whoever asked for it does not write."""
    return tensor_of(memory.wrap_array(host_array(a, None)))


def _as_operand(x: Any, device: Any = None, beside: Sequence[Any] = ()) -> Tensor:
    if isinstance(x, list | tuple):
        return _part(x, device, (*tensors_in(x), *beside))
    if isinstance(x, ARRAYS) or hasattr(x, "__array__"):
        refuse_foreign(x)
        return asarray(x, device=device)
    if (number := dtypes.plain_number(x)) is not None:
        return _part(number, device, beside)
    raise DTypeError(f"not an array or a Python scalar: {type(x).__name__!r} object {x!r:.60}")


hooks.as_tensor, hooks.over_array = _as_operand, _shared
