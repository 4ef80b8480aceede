"""What is refused while it is recorded: devices that differ, dtypes that do not hold a value, what is no function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.config import HOST
from lazyt.errors import DeviceError, DTypeError, ScalarRangeError
from lazyt.ir import dtypes
from lazyt.tracing.program import Slot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ops.definition import OpDef


def check_function(name: str, f: object) -> None:
    """TypeError unless f can be called."""
    if not callable(f):
        raise TypeError(f"{name}: a function is required, not {type(f).__name__!r}")


def check_devices(name: str, slots: Sequence[Any], device: str = HOST, made: Sequence[np.dtype] = ()) -> None:
    """DeviceError unless all operands are on one device, DTypeError unless that computes their dtypes and the results'.

    device: of an operation without operands. made: the dtypes of the results.
    """
    values = [x for x in slots if isinstance(x, Slot)]
    devices = dict.fromkeys(x.step.device for x in values)
    if len(devices) > 1:
        raise DeviceError(f"{name}: operands on {' and '.join(map(repr, devices))}; move them with .to(device)")
    where = next(iter(devices), device)
    for d in (*(x.dtype for x in values), *made) if where != HOST else ():
        if dtypes.of(d).stored:
            raise DTypeError(
                f"not supported: {name} of {d} on {str(where)!r}, because only the CPU computes it; cast it there"
            )


def check_writable_dtype(name: str, value: np.dtype, target: np.dtype) -> None:
    """In-place results must be castable to the target's kind, as in NumPy's same-kind rule."""
    if not np.can_cast(
        dtypes.of(value).numpy,
        dtypes.of(target).numpy,
        "same_kind",
    ):
        raise DTypeError(f"{name}: a result of dtype {value} cannot be written into a tensor of dtype {target}")


def range_error(op: OpDef, value: int, low: int, high: int) -> ScalarRangeError:
    """The error of a Python number that the dtype of the array beside it does not hold."""
    # NOTE: Python refuses to write integers of thousands of digits.
    text = str(value) if not isinstance(value, int) or value.bit_length() <= 256 else f"of {value.bit_length()} bits"
    held = (
        f"the array's dtype holds {low}..{high}"
        if high < dtypes.LARGEST
        else f"a float64 holds up to {float(high):.2e}"
    )
    return ScalarRangeError(
        f"{op.name}: Python {'integer' if isinstance(value, int) else 'number'} {text} is out of range: {held}"
    )
