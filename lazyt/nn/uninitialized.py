"""Parameters and buffers whose shape is not known yet: they have a dtype and a device, and become plain tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never

from lazyt.autograd.replacement import replace_values
from lazyt.errors import NotSupportedError
from lazyt.functions.creation import empty
from lazyt.ir import dtypes
from lazyt.runtime.device import Device
from lazyt.runtime.tensor import Tensor
from lazyt.tracing.record import current_device
from lazyt.tracing.tensor_state import Gradient

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["UninitializedBuffer", "UninitializedParameter"]


class Kept:
    """What an uninitialized tensor has in place of a value."""

    __slots__ = ("device", "dtype", "persistent")

    def __init__(self, dtype: Any, device: Any, persistent: bool = True) -> None:
        self.persistent = persistent
        self.dtype = dtypes.as_dtype(dtypes.float32 if dtype is None else dtype)
        self.device = Device.check(current_device() if device is None else device)


class _Uninitialized(Tensor):
    """A tensor without a shape: `_view` has what is kept, and who asks for a value is told what to do."""

    __slots__ = ()

    @property
    def _slot(self) -> Never:  # type: ignore[override]
        raise self._refused("its value")

    @property
    def _buffer(self) -> Never:  # type: ignore[override]
        raise self._refused("its value")

    def _refused(self, what: str) -> NotSupportedError:
        return NotSupportedError(
            f"{type(self).__name__}: not supported: {what}, because its shape is not known before the first call of "
            "its module: call that once with an input, or `materialize` it"
        )

    @property
    def shape(self) -> Never:
        raise self._refused("its shape")

    @property
    def dtype(self) -> Any:
        return self._view.dtype  # type: ignore[union-attr]

    @property
    def device(self) -> Any:
        return Device(self._view.device)  # type: ignore[union-attr]

    @property
    def requires_grad(self) -> bool:
        return self._meta is not None and self._meta.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, value: bool = True) -> Tensor:
        self._meta = Gradient(value)
        return self

    @property
    def is_leaf(self) -> bool:
        return True

    def detach(self) -> Tensor:
        return self

    def share_memory_(self) -> Never:
        raise self._refused("sharing its memory")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    __str__ = __repr__

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copied: Tensor = _made(type(self), self.requires_grad, self._view)
        memo[id(self)] = copied
        return copied

    def __reduce__(self) -> Any:
        kept: Any = self._view
        more = (kept.persistent,) * isinstance(self, UninitializedBuffer)
        return type(self), (self.requires_grad, str(kept.device), str(kept.dtype), *more)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()

    def materialize(self, shape: Sequence[int], device: Any = None, dtype: Any = None) -> None:
        """Become a plain tensor of this shape, to be filled; on this device and of this dtype, if they are given."""
        value = empty(tuple(shape), dtype=dtype or self.dtype, device=device or self.device)
        plain: Any = self
        plain.__class__ = Tensor
        plain._slot = plain._buffer = plain._view = None
        replace_values([(plain, value)])


def respecified(x: Any, dtype: Any, device: Any) -> tuple[Any, str, Kept]:
    """The change after which x will have another dtype or device, if they are given."""
    kept = x._view
    return x, "_view", Kept(dtype or kept.dtype, device or kept.device, kept.persistent)


def _made(cls: Any, requires_grad: bool, kept: Any) -> Any:
    x = object.__new__(cls)
    x._storage, x._view, x._writes = None, kept, 0
    x._meta = Gradient(requires_grad)
    return x


class UninitializedParameter(_Uninitialized):
    """A parameter whose shape its module learns at the first call. As `torch.nn.UninitializedParameter`.

    Only its dtype, device and flags can be asked and changed; anything else raises NotSupportedError.

    >>> import lazyt as lt
    >>> w = lt.nn.UninitializedParameter()
    >>> w.materialize((2, 3))
    >>> w.shape, w.requires_grad
    ((2, 3), True)
    """

    __slots__ = ()

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return _made(cls, requires_grad, Kept(dtype, device))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass  # made by `__new__`


class UninitializedBuffer(_Uninitialized):
    """A buffer whose shape its module learns at the first call. As `torch.nn.UninitializedBuffer`.

    >>> import lazyt as lt
    >>> mean = lt.nn.UninitializedBuffer(dtype="float64")
    >>> mean, mean.dtype
    (<UninitializedBuffer>, dtype('float64'))
    """

    __slots__ = ()

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> Any:
        return _made(cls, requires_grad, Kept(dtype, device, persistent))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass


def is_uninitialized(x: Any) -> bool:
    """Whether a tensor has no shape yet."""
    return isinstance(x, _Uninitialized)
