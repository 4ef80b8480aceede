"""The functions that are methods of Tensor too, by name; `operators.attach_methods` attaches them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, IndexOutOfRange, NotSupportedError, ShapeError
from lazyt.functions import (
    arithmetic,
    dlpack,
    elementwise,
    indexing,
    joining,
    manipulation,
    ordering,
    products,
    reductions,
    searching,
    select,
    sorting,
    statistics,
    subscript,
)
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from lazyt.functions.arguments import ArrayLike
    from lazyt.runtime.tensor import Tensor

__all__ = ["METHODS"]


def _several(args: tuple[Any, ...]) -> Any:
    """`f(2, 3)` and `f((2, 3))` mean the same."""
    return args[0] if len(args) == 1 and not isinstance(args[0], int) else args


def reshape(self: Tensor, *shape: Any, order: str = "C", copy: bool | None = None) -> Tensor:
    """`lazyt.reshape`, with the extents one by one or in a tuple. As `numpy.ndarray.reshape`."""
    if order == "C":
        return manipulation.reshape(self, _several(shape), copy=copy)
    options: dict[str, Any] = {} if copy is None else {"copy": copy}
    found: Any = np.reshape(self, _several(shape), order, **options)  # type: ignore[call-overload]
    return found  # type: ignore[no-any-return]


def view(self: Tensor, *shape: Any, dtype: Any = None) -> Tensor:
    """`lazyt.reshape(..., copy=False)`, under PyTorch's name; of no shape, x again. NoView where a copy is needed.

    NotSupportedError for a dtype, as in NumPy.
    """
    if len(shape) == 1 and isinstance(shape[0], np.dtype | type | str):
        dtype = shape[0]
    if dtype is not None:
        raise NotSupportedError(
            f"view: not supported: the bytes of {self.dtype} read as {dtype!r}, because a pending value has none; "
            "x.numpy().view(dtype) has them, x.astype(dtype) converts"
        )
    return manipulation.reshape(self, _several(shape) if shape else self.shape, copy=False if self.size else None)


def permute(self: Tensor, *axes: Any) -> Tensor:
    """`lazyt.permute_dims`, with the axes one by one or in a tuple."""
    return manipulation.permute_dims(self, _several(axes))


def transpose(self: Tensor, *axes: Any) -> Tensor:
    """`lazyt.transpose`: reversed, or the axes one by one or in a tuple, as in NumPy."""
    given = _several(axes)
    if len(axes) == 2 != self.ndim:
        raise ShapeError(
            f"transpose: 2 axes were given for an array of {self.ndim} dimensions; x.swapaxes({axes[0]}, {axes[1]}) "
            "swaps two"
        )
    return manipulation.transpose(self, None if given is None or not axes else given)


def expand(self: Tensor, *shape: Any) -> Tensor:
    """`lazyt.broadcast_to`, with the extents one by one or in a tuple; -1 keeps an extent, as in PyTorch."""
    extents = tuple(_several(shape))
    lead = len(extents) - self.ndim
    if lead < 0 or -1 in extents[:lead]:
        raise ShapeError(f"expand: shape {self.shape} does not broadcast to {extents}")
    return manipulation.broadcast_to(self, tuple(self.shape[i - lead] if n == -1 else n for i, n in enumerate(extents)))


def unsqueeze(self: Tensor, axis: int) -> Tensor:
    """`lazyt.expand_dims`, under PyTorch's name."""
    return manipulation.expand_dims(self, axis)


def flip(self: Tensor, *axis: Any) -> Tensor:
    """`lazyt.flip`, with the axes one by one or in a tuple; none means all."""
    return manipulation.flip(self, axis=_several(axis) if axis else None)


def tile(self: Tensor, *repetitions: Any) -> Tensor:
    """`lazyt.tile`, with the repetitions one by one or in a tuple."""
    return joining.tile(self, _several(repetitions))


def repeat(self: Tensor, repeats: ArrayLike, axis: int | None = None) -> Tensor:
    """`lazyt.repeat`: each element several times, as in NumPy (not the tiling of PyTorch)."""
    return joining.repeat(self, repeats, axis=axis)


def take(self: Tensor, indices: ArrayLike, axis: int | None = None, out: Any = None, mode: str = "raise") -> Tensor:
    """`lazyt.take`. As `numpy.ndarray.take`."""
    if out is None and mode == "raise":
        return indexing.take(self, indices, axis=axis)
    found: Any = np.take(self, indices, axis, out, mode)  # type: ignore[call-overload]
    return found  # type: ignore[no-any-return]


_ORDERS = ("C", "F", "A", "K")
_CASTING = ("no", "equiv", "safe", "same_kind", "unsafe")


def astype(
    self: Tensor, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
) -> Tensor:  # fmt: skip
    """`lazyt.astype`. DTypeError where NumPy's rule `casting` does not allow it. As `numpy.ndarray.astype`."""
    d = dtypes.as_dtype(dtype)
    if order not in _ORDERS:
        raise ShapeError(f"astype: order is one of C, F, A and K, got {order!r}")
    if casting not in _CASTING:
        raise DTypeError(f"astype: casting is one of {', '.join(_CASTING)}, got {casting!r}")
    if casting != "unsafe" and not np.can_cast(self.dtype, d, casting):  # type: ignore[arg-type]
        raise DTypeError(f"astype: {self.dtype} cannot be cast to {d} by the rule {casting!r}")
    return manipulation.astype(self, d, copy=copy)


def fill(self: Tensor, value: Any) -> None:
    """`x[...] = value`, of one element. As `numpy.ndarray.fill`."""
    if np.ndim(value):
        raise ShapeError(f"fill: one value is required, got shape {np.shape(value)}")
    subscript.setitem(self, Ellipsis, value)


def compress(self: Tensor, condition: Any, axis: int | None = None, out: Any = None) -> Tensor:
    """`lazyt.compress`. As `numpy.ndarray.compress`."""
    if out is None:
        return select.compress(condition, self, axis=axis)
    found: Any = np.compress(condition, self, axis, out)
    return found  # type: ignore[no-any-return]


def copy(self: Tensor, order: str = "C") -> Tensor:
    """`x.clone()`. As `numpy.ndarray.copy`."""
    if order not in _ORDERS:
        raise ShapeError(f"copy: order is one of C, F, A and K, got {order!r}")
    return self.clone()


def item(self: Tensor, *index: Any) -> Any:
    """The one element, or that at an index (also one into the elements in a row), as a Python scalar: a sync.

    Raises ShapeError unless there is exactly one, IndexOutOfRange. As `numpy.ndarray.item`.
    """
    if not index:
        if self.size != 1:
            raise ShapeError(f"item: needs exactly one element, the tensor has shape {self.shape}")
        return self._element("item()")
    a = self._array("item()")
    try:
        return a.item(*index)
    except (IndexError, ValueError) as error:
        raise IndexOutOfRange(f"item: {error} (shape {self.shape})") from None


def tobytes(self: Tensor, order: str = "C") -> bytes:
    """The value's bytes, by default in C order: a sync. As `numpy.ndarray.tobytes`."""
    return self.numpy().tobytes(order)  # type: ignore[arg-type]


def _cast_to(dtype: Any) -> Callable[[Tensor], Tensor]:
    def method(self: Tensor) -> Tensor:
        return manipulation.astype(self, dtype, copy=False)

    method.__doc__ = f"This tensor as {dtype}: itself if it is already."
    return method


def _round(self: Tensor, ndigits: int | None = None) -> Any:
    """`round(x, 2)` is recorded; `round(x)` is an int, as of any number, and is read."""
    return round(self.item()) if ndigits is None else elementwise.round(self, ndigits)


def _trunc(self: Tensor) -> int:
    return int(self.item())


def _named(module: Any, names: str) -> dict[str, Callable[..., Any]]:
    return {n: getattr(module, n) for n in names.split()}


METHODS: dict[str, Callable[..., Any]] = {
    **_named(
        elementwise,
        "abs ceil conj conjugate cos exp floor isfinite isinf isnan log log1p log2 relu round rsqrt sigmoid sign sin "
        "sqrt square tan tanh trunc erf reciprocal",
    ),
    **_named(arithmetic, "clip isclose maximum minimum pow"),
    **_named(
        reductions,
        "all amax amin any argmax argmin count_nonzero logsumexp max mean min prod ptp std sum var",
    ),
    **_named(statistics, "cumprod cumsum softmax log_softmax"),
    **_named(manipulation, "flatten ravel squeeze swapaxes split unstack moveaxis broadcast_to expand_dims"),
    **_named(joining, "diff roll"),
    **_named(indexing, "index_add put_along_axis scatter_add take_along_axis"),
    **_named(ordering, "argpartition"),
    **_named(searching, "searchsorted"),
    **_named(sorting, "argsort"),
    **_named(select, "choose"),
    **_named(products, "diagonal dot matmul trace"),
    "__array_namespace__": dlpack.array_namespace,
    "__buffer__": dlpack.buffer,
    "__dlpack__": dlpack.dlpack,
    "__dlpack_device__": dlpack.dlpack_device,
    "__getitem__": subscript.getitem,
    "__setitem__": subscript.setitem,
    "__round__": _round,
    "__trunc__": _trunc,
    "astype": astype,
    "clamp": arithmetic.clip,
    "expand": expand,
    "flip": flip,
    "permute": permute,
    "repeat": repeat,
    "reshape": reshape,
    "take": take,
    "tile": tile,
    "transpose": transpose,
    "unsqueeze": unsqueeze,
    "view": view,
    "compress": compress,
    "copy": copy,
    "fill": fill,
    "item": item,
    "tobytes": tobytes,
    "float": _cast_to(dtypes.float32),
    "double": _cast_to(dtypes.float64),
    "half": _cast_to(dtypes.float16),
    "bfloat16": _cast_to(dtypes.bfloat16),
    "int": _cast_to(dtypes.int32),
    "long": _cast_to(dtypes.int64),
    "bool": _cast_to(dtypes.bool_),
}
