"""Tensors to and from other libraries: DLPack, and the namespace that a tensor belongs to.

What DLPack hands out is a copy unless `copy=False`: consumers exist that ignore the read-only flag, and what lazyt has
computed never changes. With `copy=False` it is the memory itself, flagged read-only where the protocol can say so.
On a GPU it is the memory itself unless `copy=True`: who takes it must not write it.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.registry import backends, by_dlpack
from lazyt.config import HOST
from lazyt.errors import DeviceError, DTypeError
from lazyt.functions.inspection import VERSIONS
from lazyt.ir import dtypes
from lazyt.runtime import memory
from lazyt.runtime.sync import materialise

if TYPE_CHECKING:
    from types import ModuleType

    from lazyt.runtime.tensor import Tensor

CPU_DEVICE = (1, 0)  # kDLCPU, and its only index
CUDA = 2  # kDLCUDA: of what has nothing but `__cuda_array_interface__`
UNSIGNED, BFLOAT = 1, 4  # kDLUInt, kDLBfloat


class ExportError(DeviceError, BufferError):
    """What DLPack cannot hand over as it was asked for."""


def array_namespace(self: Tensor, /, *, api_version: str | None = None) -> ModuleType:
    """The module `lazyt`, whose functions take this tensor. Raises ValueError for a version it does not have.

    >>> import lazyt as lt
    >>> lt.ones(2).__array_namespace__(api_version="2025.12") is lt
    True
    """
    if api_version is not None and api_version not in VERSIONS:
        raise ValueError(f"__array_namespace__: lazyt has the versions {', '.join(VERSIONS)}, not {api_version!r}")
    return sys.modules["lazyt"]


def dlpack_device(self: Tensor, /) -> tuple[int, int]:
    """The device's type and index in DLPack's numbering: (1, 0), the CPU, or (2, n) for 'cuda:n'.

    A device that DLPack has no number for hands out copies on the CPU.
    """
    backend = backends[self.device]
    return (backend.dlpack_type, backend.index(self.device)) if backend.dlpack_type else CPU_DEVICE


def dlpack(
    self: Tensor,
    /,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A DLPack capsule of the value; syncs if pending. On a GPU its memory, for `stream`, which waits for the value.

    On the CPU a copy, writable by whoever takes it, unless `copy=False`: then lazyt's own memory, which must not be
    written (flagged so if `max_version` is at least (1, 0); before, the protocol has no flag). Raises BufferError for
    another `dl_device`, and for bfloat16 of a GPU; DeviceError for a stream on the CPU, which has none.
    """
    kind, elsewhere = dlpack_device(self)[0], self.device != HOST
    if kind != CPU_DEVICE[0] and (dl_device is None or int(dl_device[0]) == kind):
        return _from_gpu(self, stream, max_version, dl_device, copy)
    if stream is not None and kind == CPU_DEVICE[0]:
        raise DeviceError(f"__dlpack__: the CPU has no streams, got stream={stream!r}")
    if elsewhere and copy is False:
        raise ExportError(f"__dlpack__: copy=False, and the memory is on {str(self.device)!r}")
    if dl_device is not None and (int(dl_device[0]), int(dl_device[1])) != CPU_DEVICE:
        raise ExportError(f"__dlpack__: not supported: device {dl_device}, because the memory is the CPU's")
    a = self._array("__dlpack__")
    half = self.dtype == dtypes.bfloat16
    if dtypes.of(self.dtype).foreign and not half:
        raise ExportError(
            f"__dlpack__: not supported: {self.dtype}, because NumPy makes the capsule and has no such type"
        )
    if half:
        a = a.view(np.uint16)
    if copy is not False:
        capsule = a.__dlpack__(max_version=max_version, copy=True)
    else:
        if max_version is None or tuple(max_version) < (1, 0):
            a = np.asarray(_Unflagged(a))
        capsule = a.__dlpack__(max_version=max_version)
    if half:
        _dtype_code(capsule).value = BFLOAT
    return capsule


def _dtype_code(capsule: Any) -> ctypes.c_uint8:
    """The kind of the elements that a capsule describes. NOTE: NumPy reads and writes no bfloat16, but its 16 bits."""
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    versioned = bool(api.PyCapsule_IsValid(capsule, b"dltensor_versioned"))
    at = api.PyCapsule_GetPointer(capsule, b"dltensor_versioned" if versioned else b"dltensor")
    # A DLTensor: its data's address, device (two int32), rank (int32), then the dtype; with a version, after 32 bytes.
    return ctypes.c_uint8.from_address(at + (32 if versioned else 0) + 20)


class _Bits:
    """What another library hands out; its bfloat16 as the 16 bits of each element."""

    def __init__(self, x: Any) -> None:
        self.x = x
        self.half = False

    def __dlpack_device__(self) -> Any:
        return self.x.__dlpack_device__()

    def __dlpack__(self, **kwargs: Any) -> Any:
        capsule = self.x.__dlpack__(**kwargs)
        code = _dtype_code(capsule)
        self.half = code.value == BFLOAT
        if self.half:
            code.value = UNSIGNED
        return capsule


def buffer(self: Tensor, flags: int, /) -> memoryview:
    """The memory as Python's buffer (PEP 688, from 3.12 on), read-only; syncs if pending.

    Raises BufferError for a writable one, because values never change in place; for a GPU's, and for bfloat16.

    >>> import lazyt as lt
    >>> lt.asarray([1, 2]).__buffer__(0).tolist()
    [1, 2]
    """
    if flags & 1:
        raise ExportError("__buffer__: not supported: writable memory, because what lazyt computed never changes")
    if self.device != HOST:
        raise ExportError(
            f"__buffer__: not supported: device {str(self.device)!r}, because buffers are the CPU's memory"
        )
    if dtypes.of(self.dtype).foreign:
        raise ExportError(f"__buffer__: not supported: {self.dtype}, because Python's buffers have no such format")
    return memoryview(self._array("__buffer__"))  # type: ignore[arg-type]


def _from_gpu(self: Tensor, stream: Any, max_version: Any, dl_device: Any, copy: bool | None) -> Any:
    if dtypes.of(self.dtype).foreign:
        raise ExportError(
            f"__dlpack__: not supported: {self.dtype}, because CuPy makes the capsule and has no such type"
        )
    array = memory.shared_array(materialise(self, "__dlpack__"))
    own = dlpack_device(self)
    if dl_device is not None and (int(dl_device[0]), int(dl_device[1])) != own:
        raise ExportError(f"__dlpack__: not supported: device {dl_device}, because the memory is on {own}")
    return array.__dlpack__(stream=stream, max_version=max_version, copy=copy)


def cuda_array_interface(self: Tensor) -> dict[str, Any]:
    """A value on a GPU as CUDA's libraries describe memory, which must not be written; syncs if pending.

    AttributeError for one on the CPU, as if absent, and for bfloat16. The memory stays as long as this tensor does.
    """
    if self.device == HOST or dtypes.of(self.dtype).foreign:
        raise AttributeError(f"__cuda_array_interface__: the value is on the CPU, or a {self.dtype}")
    data = materialise(self, "__cuda_array_interface__")
    # NOTE: a write in place gives the tensor another buffer; who reads this one knows only the tensor.
    weakref.finalize(self, _let_go, data.buffer)
    return memory.described(data)


def _let_go(buffer: object) -> None:
    """Nothing: to be held until now was all."""


def kind_of(x: Any) -> int:
    """The DLPack type of the device, not the host, whose memory an object that is no tensor hands out for a backend to
    take; 0 for any other object.
    """
    kind = CUDA if hasattr(x, "__cuda_array_interface__") else 0
    if hasattr(x, "__dlpack_device__"):
        kind = int(x.__dlpack_device__()[0])
    return kind if kind not in (0, CPU_DEVICE[0]) and by_dlpack(kind) is not None else 0


class _Unflagged:
    """The memory of a read-only array as NumPy's array interface without that flag."""

    __slots__ = ("__array_interface__", "array")

    def __init__(self, a: np.ndarray[Any, Any]) -> None:
        self.array = a
        interface = dict(a.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


def is_elsewhere(x: Any) -> bool:
    """Whether what speaks DLPack has its memory on another device than the CPU."""
    return tuple(map(int, x.__dlpack_device__())) != CPU_DEVICE


def imported(x: Any, device: Any, copy: bool | None) -> np.ndarray[Any, Any]:
    """A NumPy array over what `x` hands out by DLPack. Raises DeviceError for memory elsewhere than on the CPU."""
    if not hasattr(x, "__dlpack__"):
        raise DTypeError(f"from_dlpack: an object with __dlpack__ is required, not {type(x).__name__!r}")
    elsewhere = is_elsewhere(x)
    if elsewhere and device is None:
        raise DeviceError(
            f"from_dlpack: not supported: memory of DLPack device {x.__dlpack_device__()}, because lazyt runs on the "
            "CPU and on CUDA's GPUs; device='cpu' asks its owner for a copy there"
        )
    try:
        bits = _Bits(x)
        a = np.from_dlpack(bits, copy=copy, device=HOST if elsewhere else None)
    except RuntimeError as e:
        raise DTypeError(f"from_dlpack: {e}") from None
    if bits.half:
        a = a.view(dtypes.bfloat16)
    if copy is False and not a.flags.c_contiguous:
        raise ExportError(f"from_dlpack: strides {a.strides} need a copy, because lazyt's memory is C-contiguous")
    return a
