"""What the Array API asks of a namespace: its version, devices, dtypes and capabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import DTypeError
from lazyt.functions.data_types import isdtype
from lazyt.ir import dtypes
from lazyt.runtime.device import CPU, Device

if TYPE_CHECKING:
    import numpy as np

__all__ = ["__array_api_version__", "__array_namespace_info__"]

__array_api_version__ = "2025.12"
# Later versions only add to earlier ones but for `devices()`, which was a list before 2025.12.
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")

# The standard's dtypes: the halves are lazyt's own.
_STANDARD = {d.name: d for d in dtypes.ALL if not dtypes.of(d).narrow}


class NamespaceInfo:
    """What `lazyt.__array_namespace_info__()` gives: the inspection functions of the Array API."""

    __slots__ = ()

    def capabilities(self) -> dict[str, Any]:
        """Boolean indexing and data-dependent shapes are there (they sync); at most 64 dimensions, as in NumPy.

        >>> import lazyt as lt
        >>> lt.__array_namespace_info__().capabilities()["data-dependent shapes"]
        True
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """Where arrays are made unless a device is given.

        >>> import lazyt as lt
        >>> lt.__array_namespace_info__().default_device()
        Device('cpu')
        """
        return CPU

    def devices(self) -> tuple[Device, ...]:
        """The devices that are there.

        >>> import lazyt as lt
        >>> lt.__array_namespace_info__().devices()
        (Device('cpu'),)
        """
        return (CPU,)

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """The dtypes of results unless one is given. Raises DeviceError for a device that is not there.

        >>> import lazyt as lt
        >>> lt.__array_namespace_info__().default_dtypes()["real floating"]
        dtype('float32')
        """
        Device.check(device)
        return {
            "real floating": dtypes.float32,
            "complex floating": dtypes.complex64,
            "integral": dtypes.int64,
            "indexing": dtypes.int64,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype]:
        """The standard's dtypes by name, of one kind (see `isdtype`) or one of several.

        Raises DTypeError for an unknown kind, DeviceError for a device that is not there.

        >>> import lazyt as lt
        >>> list(lt.__array_namespace_info__().dtypes(kind="complex floating"))
        ['complex64', 'complex128']
        """
        Device.check(device)
        if kind is None:
            return dict(_STANDARD)
        if not all(isinstance(k, str) for k in (kind if isinstance(kind, tuple) else (kind,))):
            raise DTypeError(f"dtypes: a kind is a string or a tuple of them, got {kind!r}")
        return {name: d for name, d in _STANDARD.items() if isdtype(d, kind)}


_INFO = NamespaceInfo()


def __array_namespace_info__() -> NamespaceInfo:  # noqa: N807 - the standard's name
    """The inspection functions of the Array API: capabilities, devices, dtypes and their defaults.

    >>> import lazyt as lt
    >>> lt.__array_namespace_info__().default_dtypes()["integral"]
    dtype('int64')
    """
    return _INFO
