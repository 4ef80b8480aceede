"""`x.flat`: the elements of a tensor one after another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from lazyt.errors import IndexOutOfRange, ShapeError
from lazyt.functions.arguments import tensor
from lazyt.functions.manipulation import flatten, reshape
from lazyt.functions.reshaping import resize
from lazyt.functions.subscript import getitem, setitem

if TYPE_CHECKING:
    from lazyt.functions.arguments import ArrayLike
    from lazyt.runtime.tensor import Tensor


class Flat(NDArrayOperatorsMixin):
    """A tensor's elements in C order: to be gone through, read (a copy), computed with and written, all deferred.

    What is written may have fewer elements than it goes to: they come again and again. Raises IndexOutOfRange for a key
    that is not of one axis, ShapeError for several values of one element. As `numpy.ndarray.flat`.

    >>> import lazyt as lt
    >>> x = lt.asarray([[1, 2], [3, 4]])
    >>> x.flat[::3] = 0
    >>> x.tolist(), x.flat[1].item(), [e.item() for e in x.flat]
    ([[0, 2], [3, 0]], 2, [0, 2, 3, 0])
    """

    __slots__ = ("base", "index")

    def __init__(self, x: Tensor) -> None:
        self.base = x
        self.index = 0  # of the element that `next` gives

    def __len__(self) -> int:
        return self.base.size

    def __iter__(self) -> Iterator[Tensor]:
        return iter(flatten(self.base))

    def __next__(self) -> Tensor:
        if self.index >= len(self):
            raise StopIteration
        self.index += 1
        return self[self.index - 1]

    def __getitem__(self, key: Any) -> Tensor:
        return getitem(flatten(self.base), _checked(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        x, key = self.base, _checked(key)
        elements = flatten(x)
        if isinstance(value, Flat):
            value = flatten(value.base)
        if not isinstance(value, bool | int | float | complex):
            value = tensor(value, x)
            there = getitem(elements, key).shape
            if value.ndim and not there:
                raise ShapeError(f"flat: a single element is set to a single value, got shape {value.shape}")
            if not value.size:
                return
            value = resize(value, there) if value.ndim else value
        setitem(elements, key, value)
        setitem(x, Ellipsis, reshape(elements, x.shape))

    def copy(self) -> Tensor:
        """The elements as a vector."""
        return flatten(self.base)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("flat: a copy is needed")
        return np.asarray(flatten(self.base).numpy(), dtype=dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*map(_vector, inputs), **options)

    def __array_function__(self, f: Any, types: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return f(*map(_vector, args), **{k: _vector(v) for k, v in options.items()})


def _vector(x: Any) -> Any:
    """What is computed with: of the elements a vector, in lists too."""
    if isinstance(x, list | tuple):
        return type(x)(map(_vector, x))
    return flatten(x.base) if isinstance(x, Flat) else x


def _checked(key: Any) -> Any:
    """A key of one axis."""
    if key is None or isinstance(key, tuple):
        raise IndexOutOfRange(f"flat: an index, a slice, or an array of indices is required, got {key!r}")
    return key


def set_flat(x: Tensor, value: ArrayLike) -> None:
    """`x.flat = value`: a deferred write of the elements again and again until they fill x."""
    Flat(x)[:] = value
