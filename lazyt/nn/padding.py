"""Layers that put elements around their input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions.arguments import tensor
from lazyt.functions.spatial_padding import padded
from lazyt.nn.module import Module
from lazyt.ops.axes import integer

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _Pad(Module):
    rank: int
    mode: str
    value: float | None = None

    def __init__(self, padding: int | tuple[int, ...]) -> None:
        super().__init__()
        name, count = type(self).__name__, 2 * self.rank
        widths = tuple(padding) if isinstance(padding, tuple | list) else (padding,) * count
        self.padding = tuple(integer(name, "padding", w) for w in widths)
        if len(widths) != count:
            raise ShapeError(f"{name}: padding is one or {count} integers, got {padding!r}")

    def forward(self, input: Any) -> Tensor:
        name, t = type(self).__name__, tensor(input)
        if self.mode != "constant" and t.ndim not in (self.rank + 1, self.rank + 2):
            raise ShapeError(
                f"{name}: an input of {self.rank + 1} or {self.rank + 2} dimensions is required, got {t.shape}"
            )
        return padded(name, t, self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        return str(self.padding)


class _ConstantPad(_Pad):
    mode = "constant"

    def __init__(self, padding: int | tuple[int, ...], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_Pad):
    mode = "constant"


class _ReflectionPad(_Pad):
    mode = "reflect"


class _ReplicationPad(_Pad):
    mode = "replicate"


class _CircularPad(_Pad):
    mode = "circular"


class ConstantPad1d(_ConstantPad):
    """Puts the constant `value` around the last axis. As `torch.nn.ConstantPad1d`.

    `padding` is one integer or 2: (before, after) of the last axis. Negative ones remove
    elements.

    >>> import lazyt as lt
    >>> lt.nn.ConstantPad1d(1, 7.0)(lt.ones((1, 1, 3))).shape
    (1, 1, 5)
    """

    rank = 1


class ConstantPad2d(_ConstantPad):
    """Puts the constant `value` around the last two axes. As `torch.nn.ConstantPad2d`.

    `padding` is one integer or 4: (before, after) of the last axis, then of the one before it. Negative ones
    remove elements.

    >>> import lazyt as lt
    >>> lt.nn.ConstantPad2d(1, 7.0)(lt.ones((1, 1, 3, 3))).shape
    (1, 1, 5, 5)
    """

    rank = 2


class ConstantPad3d(_ConstantPad):
    """Puts the constant `value` around the last three axes. As `torch.nn.ConstantPad3d`.

    `padding` is one integer or 6: (before, after) of the last axis, then of the one before it. Negative ones
    remove elements.

    >>> import lazyt as lt
    >>> lt.nn.ConstantPad3d(1, 7.0)(lt.ones((1, 1, 3, 3, 3))).shape
    (1, 1, 5, 5, 5)
    """

    rank = 3


class ZeroPad1d(_ZeroPad):
    """Puts zeros around the last axis. As `torch.nn.ZeroPad1d`.

    `padding` is one integer or 2: (before, after) of the last axis. Negative ones remove
    elements.

    >>> import lazyt as lt
    >>> lt.nn.ZeroPad1d(1)(lt.ones((1, 1, 3))).shape
    (1, 1, 5)
    """

    rank = 1


class ZeroPad2d(_ZeroPad):
    """Puts zeros around the last two axes. As `torch.nn.ZeroPad2d`.

    `padding` is one integer or 4: (before, after) of the last axis, then of the one before it. Negative ones
    remove elements.

    >>> import lazyt as lt
    >>> lt.nn.ZeroPad2d(1)(lt.ones((1, 1, 3, 3))).shape
    (1, 1, 5, 5)
    """

    rank = 2


class ZeroPad3d(_ZeroPad):
    """Puts zeros around the last three axes. As `torch.nn.ZeroPad3d`.

    `padding` is one integer or 6: (before, after) of the last axis, then of the one before it. Negative ones
    remove elements.

    >>> import lazyt as lt
    >>> lt.nn.ZeroPad3d(1)(lt.ones((1, 1, 3, 3, 3))).shape
    (1, 1, 5, 5, 5)
    """

    rank = 3


class ReflectionPad1d(_ReflectionPad):
    """Puts what is mirrored at the first and last element around the last axis. As `torch.nn.ReflectionPad1d`.

    `padding` is one integer or 2: (before, after) of the last axis. Negative ones remove
    elements.

    >>> import lazyt as lt
    >>> lt.nn.ReflectionPad1d(1)(lt.ones((1, 1, 3))).shape
    (1, 1, 5)
    """

    rank = 1


class ReflectionPad2d(_ReflectionPad):
    """Puts what is mirrored at the first and last element around the last two axes. As `torch.nn.ReflectionPad2d`.

    `padding` is one integer or 4: (before, after) of the last axis, then of the one before it. Negative ones
    remove elements.

    >>> import lazyt as lt
    >>> lt.nn.ReflectionPad2d(1)(lt.ones((1, 1, 3, 3))).shape
    (1, 1, 5, 5)
    """

    rank = 2


class ReflectionPad3d(_ReflectionPad):
    """Puts what is mirrored at the first and last element around the last three axes. As `torch.nn.ReflectionPad3d`.

    `padding` is one integer or 6: (before, after) of the last axis, then of the one before it. Negative ones
    remove elements.

    >>> import lazyt as lt
    >>> lt.nn.ReflectionPad3d(1)(lt.ones((1, 1, 3, 3, 3))).shape
    (1, 1, 5, 5, 5)
    """

    rank = 3


class ReplicationPad1d(_ReplicationPad):
    """Puts copies of the first and last element around the last axis. As `torch.nn.ReplicationPad1d`.

    `padding` is one integer or 2: (before, after) of the last axis. Negative ones remove
    elements.

    >>> import lazyt as lt
    >>> lt.nn.ReplicationPad1d(1)(lt.ones((1, 1, 3))).shape
    (1, 1, 5)
    """

    rank = 1


class ReplicationPad2d(_ReplicationPad):
    """Puts copies of the first and last element around the last two axes. As `torch.nn.ReplicationPad2d`.

    `padding` is one integer or 4: (before, after) of the last axis, then of the one before it. Negative ones
    remove elements.

    >>> import lazyt as lt
    >>> lt.nn.ReplicationPad2d(1)(lt.ones((1, 1, 3, 3))).shape
    (1, 1, 5, 5)
    """

    rank = 2


class ReplicationPad3d(_ReplicationPad):
    """Puts copies of the first and last element around the last three axes. As `torch.nn.ReplicationPad3d`.

    `padding` is one integer or 6: (before, after) of the last axis, then of the one before it. Negative ones
    remove elements.

    >>> import lazyt as lt
    >>> lt.nn.ReplicationPad3d(1)(lt.ones((1, 1, 3, 3, 3))).shape
    (1, 1, 5, 5, 5)
    """

    rank = 3


class CircularPad1d(_CircularPad):
    """Puts what follows when the axis goes round around the last axis. As `torch.nn.CircularPad1d`.

    `padding` is one integer or 2: (before, after) of the last axis. Negative ones remove
    elements.

    >>> import lazyt as lt
    >>> lt.nn.CircularPad1d(1)(lt.ones((1, 1, 3))).shape
    (1, 1, 5)
    """

    rank = 1


class CircularPad2d(_CircularPad):
    """Puts what follows when the axis goes round around the last two axes. As `torch.nn.CircularPad2d`.

    `padding` is one integer or 4: (before, after) of the last axis, then of the one before it. Negative ones
    remove elements.

    >>> import lazyt as lt
    >>> lt.nn.CircularPad2d(1)(lt.ones((1, 1, 3, 3))).shape
    (1, 1, 5, 5)
    """

    rank = 2


class CircularPad3d(_CircularPad):
    """Puts what follows when the axis goes round around the last three axes. As `torch.nn.CircularPad3d`.

    `padding` is one integer or 6: (before, after) of the last axis, then of the one before it. Negative ones
    remove elements.

    >>> import lazyt as lt
    >>> lt.nn.CircularPad3d(1)(lt.ones((1, 1, 3, 3, 3))).shape
    (1, 1, 5, 5, 5)
    """

    rank = 3
