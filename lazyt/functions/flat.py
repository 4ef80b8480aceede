"""`x.flat`: the elements of a tensor one after another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.functions.manipulation import flatten, reshape
from lazyt.functions.shaping import resize
from lazyt.functions.subscript import getitem, setitem

if TYPE_CHECKING:
    from lazyt.functions.arguments import ArrayLike
    from lazyt.tensor import Tensor


class Flat:
    """A tensor's elements in C order: to be gone through, read (a copy) and written, all deferred but for NumPy's use.

    What is written may have fewer elements than it goes to: they come again and again. As `numpy.ndarray.flat`.

    >>> import lazyt as lt
    >>> x = lt.asarray([[1, 2], [3, 4]])
    >>> x.flat[::3] = 0
    >>> x.tolist(), x.flat[1].item(), [e.item() for e in x.flat]
    ([[0, 2], [3, 0]], 2, [0, 2, 3, 0])
    """

    __slots__ = ("base",)

    def __init__(self, x: Tensor) -> None:
        self.base = x

    def __len__(self) -> int:
        return self.base.size

    def __iter__(self) -> Iterator[Tensor]:
        return iter(flatten(self.base))

    def __getitem__(self, key: Any) -> Tensor:
        return getitem(flatten(self.base), key)

    def __setitem__(self, key: Any, value: ArrayLike) -> None:
        x = self.base
        elements = flatten(x)
        if np.ndim(value):
            if not np.size(value):
                return
            value = resize(value, getitem(elements, key).shape)
        setitem(elements, key, value)
        setitem(x, Ellipsis, reshape(elements, x.shape))

    def copy(self) -> Tensor:
        """The elements as a vector."""
        return flatten(self.base)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(flatten(self.base).numpy(), dtype=dtype)


def set_flat(x: Tensor, value: ArrayLike) -> None:
    """`x.flat = value`: a deferred write of the elements again and again until they fill x."""
    Flat(x)[:] = value
