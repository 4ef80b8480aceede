"""What losses share: the reduction, operands of one size, and warnings at the user's line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, ShapeError
from lazyt.functions.arguments import tensor
from lazyt.functions.reductions import mean, sum
from lazyt.ir import dtypes
from lazyt.ops.losses import REDUCTIONS
from lazyt.tracing.call_site import warn

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

# Of `kl_div`: the sum over the batch size too.
KL_REDUCTIONS = (*REDUCTIONS, "batchmean")


def reduction_of(
    name: str,
    reduction: str,
    size_average: bool | None = None,
    reduce: bool | None = None,
    allowed: tuple[str, ...] = REDUCTIONS,
) -> str:
    """A valid reduction; `size_average` and `reduce` are PyTorch's old way to say it, with its warning."""
    if size_average is not None or reduce is not None:
        for key, value in (("size_average", size_average), ("reduce", reduce)):
            if not (value is None or isinstance(value, int)):
                hint = f": write reduction={value!r}" if isinstance(value, str) else ""
                raise DTypeError(f"{name}: {key} is a bool or None, got {value!r}{hint}")
        each = reduce is not None and not reduce
        reduction = "none" if each else "mean" if size_average is None or size_average else "sum"
        warn(
            f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.", UserWarning
        )
    if reduction not in allowed:
        raise ShapeError(f"{name}: reduction is one of {', '.join(allowed)}, got {reduction!r}")
    return reduction


def ignored_index(name: str, ignore_index: int) -> int:
    """The class that does not count; a bool is none."""
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, int | np.integer):
        raise DTypeError(f"{name}: ignore_index is an integer, got {ignore_index!r}")
    return int(ignore_index)


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """The losses of all elements as one number, or themselves for 'none'."""
    return loss if reduction == "none" else mean(loss) if reduction == "mean" else sum(loss)


def weighted(name: str, loss: Tensor, weight: Any) -> tuple[Tensor, Tensor]:
    """Losses times weights of the same size, and the weights."""
    w = tensor(weight, loss)
    if w.shape != loss.shape:
        raise ShapeError(f"{name}: weights of the input's size {loss.shape} are required, got {w.shape}")
    return loss * w, w


def floating(name: str, x: Any, what: str = "input") -> Tensor:
    """`x` as a tensor of real floats; DTypeError otherwise."""
    t = tensor(x)
    if dtypes.kind(t.dtype) != "f":
        raise DTypeError(f"{name}: {what} of a real floating dtype is required, got {t.dtype}")
    return t


def integers(name: str, x: Any, beside: Tensor, what: str = "target") -> Tensor:
    """`x` as a tensor of integers; DTypeError otherwise."""
    t = tensor(x, beside)
    if dtypes.kind(t.dtype) not in "iu":
        raise DTypeError(f"{name}: {what} of an integer dtype is required, got {t.dtype}")
    return t


def need_shape(name: str, what: str, x: Tensor, shape: tuple[int, ...]) -> None:
    """Raise ShapeError unless x has the shape."""
    if x.shape != shape:
        raise ShapeError(f"{name}: {what} of shape {shape} is required, got {x.shape}")


def need_broadcast(name: str, *xs: Tensor) -> tuple[int, ...]:
    """The shape that the operands broadcast to; ShapeError with the function's name if they do not."""
    shape: list[int] = []
    for x in xs:
        given = list(x.shape)
        lead = len(given) - len(shape)
        shape, given = [1] * lead + shape, [1] * -lead + given
        if any(a != b and 1 not in (a, b) for a, b in zip(shape, given, strict=True)):
            raise ShapeError(f"{name}: shapes {' and '.join(str(x.shape) for x in xs)} do not broadcast")
        shape = [b if a == 1 else a for a, b in zip(shape, given, strict=True)]
    return tuple(shape)


def warn_of_sizes(size: tuple[int, ...], target_size: tuple[int, ...]) -> None:
    """PyTorch's warning where operands of a regression are of different sizes, which is seldom meant."""
    warn(
        f"Using a target size ({target_size}) that is different to the input size ({size}). This will likely lead to"
        " incorrect results due to broadcasting. Please ensure they have the same size.",
        UserWarning,
    )
