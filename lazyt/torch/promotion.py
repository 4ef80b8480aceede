"""Dtypes of operands of which some have no axes, as PyTorch promotes them: those are like numbers of their class.

A tensor without axes gives its dtype to a result only if it is of a higher kind than all that have axes. Operators read
so in files that have `lazyt.torch` among their names, its functions and methods in all.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import lazyt as lt
from lazyt.runtime.tensor import Tensor
from lazyt.torch.values import rank_of
from lazyt.tracing.trace import by_class, local
from lazyt.tracing.tracebacks import BOUNDARY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    import numpy as np

# Functions whose operands are promoted.
_NAMES = (
    "add sub subtract rsub mul multiply div divide true_divide floor_divide remainder fmod pow eq ne not_equal lt "
    "less le less_equal gt greater ge greater_equal maximum minimum fmax fmin atan2 arctan2 hypot copysign "
    "nextafter logaddexp logaddexp2 xlogy ldexp gcd lcm bitwise_and bitwise_or bitwise_xor bitwise_left_shift "
    "bitwise_right_shift where clamp clamp_min clamp_max clip lerp addcmul addcdiv result_type add_ sub_ mul_ "
    "div_"
)
PROMOTED = frozenset(_NAMES.split())


def _cast(operands: Sequence[Any]) -> list[Any]:
    """The operands, tensors without axes in the dtype of those that have some, unless they are of a higher kind."""
    sized = [x.dtype for x in operands if isinstance(x, Tensor) and x.ndim]
    if not sized or len(sized) == len(operands):
        return list(operands)
    dtype: np.dtype = sized[0] if len({*sized}) == 1 else lt.result_type(*sized)
    return [
        lt.astype(x, dtype)
        if isinstance(x, Tensor) and not x.ndim and x.dtype != dtype and rank_of(x.dtype) <= rank_of(dtype)
        else x
        for x in operands
    ]


def promoting(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function of some operands, which are promoted before."""

    @functools.wraps(f)
    def call(*args: Any, **options: Any) -> Any:
        found = _cast((*args, *options.values()))
        return f(*found[: len(args)], **dict(zip(options, found[len(args) :], strict=True)))

    return call


def attach(is_of_torch: Callable[[FrameType], bool]) -> None:
    """Let operators of files that are written for PyTorch promote as it does."""

    def operands(x: Tensor, y: Tensor, frame: Any) -> tuple[Tensor, Tensor]:
        if x.dtype == y.dtype or (not x.ndim) == (not y.ndim):
            return x, y
        while frame.f_code.co_filename == BOUNDARY:
            frame = frame.f_back
        if not is_of_torch(frame):
            return x, y
        found = _cast((x, y))
        return found[0], found[1]

    if not by_class:
        local.trace.look_at_scalars()
    by_class[:] = [operands]


def detach() -> None:
    """Let all operators promote as NumPy's."""
    if by_class:  # NOTE: steps go on being looked at, as another `attach` may come.
        by_class[:] = [lambda x, y, frame: (x, y)]
