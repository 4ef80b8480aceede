"""What is refused while it is recorded: devices that differ, dtypes that do not hold a value, what is no function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DeviceError, DTypeError, ScalarRangeError
from lazyt.ir import dtypes
from lazyt.tracing.trace import Slot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ops.definition import OpDef


def check_function(name: str, f: object) -> None:
    """TypeError unless f can be called."""
    if not callable(f):
        raise TypeError(f"{name}: a function is required, not {type(f).__name__!r}")


def check_devices(name: str, slots: Sequence[Any]) -> None:
    """DeviceError unless all operands are on one device."""
    devices = dict.fromkeys(x.step.device for x in slots if isinstance(x, Slot))
    if len(devices) > 1:
        raise DeviceError(f"{name}: operands on {' and '.join(map(repr, devices))}; move them with .to(device)")


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
