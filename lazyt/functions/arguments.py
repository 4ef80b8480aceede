"""What public functions share: typed ways to record, and arguments made regular."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from lazyt.config import HOST
from lazyt.errors import DTypeError, ShapeError
from lazyt.ir import dtypes
from lazyt.ir.graph import shape_text
from lazyt.runtime import memory
from lazyt.runtime.sync import materialise
from lazyt.tracing import fast_paths, inplace, record as recording
from lazyt.tracing.steps import hooks
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

    record: Callable[..., Tensor]
    record_one: Callable[..., Tensor]
    record_two: Callable[..., Tensor]
    record_comparison: Callable[..., Tensor]
    record_view: Callable[..., Tensor]
    record_many: Callable[..., tuple[Tensor, ...]]

    # What stands for an array: a tensor, a Python scalar (weak), a NumPy array or nested lists.
    ArrayLike: TypeAlias = (
        Tensor | np.ndarray[Any, Any] | np.generic | bool | int | float | complex | list[Any] | tuple[Any, ...]
    )
    AxisLike: TypeAlias = int | tuple[int, ...] | list[int] | None
    ShapeLike: TypeAlias = int | Iterable[int]

record, record_view, record_many = recording.record, recording.record_view, recording.record
record_one, record_two, record_comparison = fast_paths.record_one, fast_paths.record_two, fast_paths.record_comparison

# A result of NumPy's with fewer bytes is copied: its memory is not worth an object of its own.
_ADOPTED = 1 << 16


def tensor(x: ArrayLike, beside: Tensor | None = None, result: np.dtype | None = None) -> Tensor:
    """`x` as a tensor: itself, or a new one holding a copy.

    Data of the host goes to the device of `beside`. Python's numbers, alone or in lists, are as wide as what they give
    with `beside` and `result`, a dtype that the function computes in.
    """
    if isinstance(x, Handle):
        return x
    return cast("Tensor", hooks.as_tensor(x, None if beside is None else beside.device, (beside, result)))


def tensors(xs: Sequence[ArrayLike], result: np.dtype | None = None) -> list[Tensor]:
    """Several operands of one function as tensors: Python's numbers as wide as what they give with the others.

    Data of the host goes to the device of the tensors among them.
    `result`: the dtype that the function computes in, if it has one of its own.
    """
    if {*map(type, xs)} == {hooks.tensor}:
        return [*xs]  # type: ignore[list-item]
    place = next((x.device for x in xs if isinstance(x, Handle)), None)
    beside = (*xs, result)
    return cast("list[Tensor]", [x if isinstance(x, Handle) else hooks.as_tensor(x, place, beside) for x in xs])


def adopted(a: Any, *operands: Any) -> Tensor:
    """A tensor of a result of NumPy's that nobody else holds: over its memory, not a copy of it.

    On the device of `operands`, where it was computed from such of another than the host's.
    """
    elsewhere = [x for x in operands if isinstance(x, Handle) and x.device != HOST]
    if elsewhere:
        return tensor(np.asarray(a), cast("Tensor", elsewhere[0]))
    if isinstance(a, np.ndarray) and a.nbytes >= _ADOPTED:
        return cast("Tensor", hooks.over_array(a))
    return tensor(np.asarray(a))


def found_on_device(x: Any, cause: str, fn: str, *statics: Any) -> list[Tensor] | None:
    """What `fn` finds in a tensor that is not in the host's memory, on its device; a sync.

    None for what is there, and where the device leaves it to the host.
    """
    t = tensor(x)
    if t.device == HOST:
        return None
    found = memory.found(fn, [materialise(t, cause)], statics)
    return None if found is None else [cast("Tensor", hooks.over_data(d)) for d in found]


def at_hand(t: Tensor) -> bool:
    """Whether NumPy can as well compute with a tensor now: its value is here, and no gradient passes through."""
    return not t.is_pending and t.device == HOST and not (recording.is_grad_enabled() and inplace.requires_grad(t))


def axes(axis: Any) -> Any:
    """An axis argument that can be part of a program's key; an array of no dimensions is read."""
    if isinstance(axis, list):
        return tuple(axis)
    if isinstance(axis, Handle) and (axis.ndim or dtypes.kind(axis.dtype) not in "iu"):
        raise DTypeError(
            f"axis must be an integer or a tuple of them, got a tensor of shape {shape_text(axis.shape)} and dtype "
            f"{axis.dtype}"
        )
    return operator.index(axis) if isinstance(axis, np.ndarray | Handle) and not axis.ndim else axis


def broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether an array of a shape is broadcast to `target`, and to no greater one."""
    lead = len(target) - len(shape)
    return lead >= 0 and all(n in (1, m) for n, m in zip(shape, target[lead:], strict=True))


def shape_of(name: str, shape: ShapeLike) -> tuple[int, ...]:
    """A shape argument as a tuple of non-negative ints; ShapeError otherwise."""
    try:
        extents = (operator.index(shape),)  # type: ignore[arg-type]
    except TypeError:
        try:
            extents = tuple(map(operator.index, shape))  # type: ignore[arg-type, assignment]
        except TypeError:
            raise DTypeError(f"{name}: a shape is an integer or a sequence of integers, got {shape!r}") from None
    if any(n < 0 for n in extents):
        raise ShapeError(f"{name}: negative extents in shape {extents}")
    return extents


def dtype_or_none(dtype: Any) -> np.dtype | None:
    """A dtype argument as a dtype, None as None."""
    return None if dtype is None else dtypes.as_dtype(dtype)
