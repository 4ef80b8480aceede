"""Looking into a program from within: functions of the host that run at the sync, in program order."""

from __future__ import annotations

import builtins
from string import Formatter
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.functions.arguments import tensor
from lazyt.functions.numpy_calls import make_list, make_tuple
from lazyt.ir import dtypes
from lazyt.ops.effects import operation
from lazyt.ops.numpy_calls import Call, Nest, Place, kinds_of
from lazyt.tracing import record as recording
from lazyt.tracing.refusals import check_function
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["callback", "print"]

# A Python scalar is an argument of the program, so another number is no other program.
_WIDE = {bool: dtypes.bool_, int: dtypes.int64, float: dtypes.float64, complex: dtypes.complex128}


def print(fmt: str, /, *args: Any, **kwargs: Any) -> None:
    """Print values when they are computed: `fmt.format(*args, **kwargs)`, recorded now and printed by the sync.

    Arguments are tensors, NumPy arrays, Python scalars, lists and tuples of them; others stay as they are. Tensors of
    no dimension are formatted as scalars. See `callback` for when it runs. Raises ValueError, KeyError or IndexError at
    once for a format that does not fit the arguments.

    Equivalent of `jax.debug.print`.

    >>> import lazyt as lt
    >>> x = lt.arange(3.0)
    >>> lt.debug.print("the sum of {} is {total:.1f}", x, total=x.sum())
    >>> lt.sync()
    the sum of [0. 1. 2.] is 3.0
    """
    if not isinstance(fmt, str):
        raise TypeError(f"debug.print: a format string is required, not {type(fmt).__name__!r}")
    _Check().vformat(fmt, args, kwargs)
    _record("debug.print", _formatted, (fmt, *args), kwargs)


def callback(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
    """Call `function(*args, **kwargs)` with computed values when they are computed: recorded now, called by the sync.

    Tensors arrive as NumPy arrays of their own memory (bfloat16 as float32), those of no dimension as NumPy scalars.

    Each recorded call runs once, though nobody reads what it computes, at the next sync of the thread that recorded it;
    those of a device run in the order in which they were recorded. The result is ignored, and no gradient passes. What
    it raises, that sync raises, whatever asked for it, with this line; the calls behind it run, and everything that is
    pending is computed, before it does. A function is part of the program, so give the same object each time: a new
    lambda is a new program. What it does with lazyt is computed apart.

    Equivalent of `jax.debug.callback`.

    >>> import lazyt as lt
    >>> seen = []
    >>> lt.debug.callback(seen.append, lt.arange(3) * 2)
    >>> lt.sync()
    >>> seen
    [array([0, 2, 4])]
    """
    check_function("debug.callback", function)
    _record("debug.callback", function, args, kwargs)


class _Check(Formatter):
    """Finds the arguments that a format names, and formats nothing."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        first = field_name.split(".", 1)[0].split("[", 1)[0]
        self.get_value(int(first) if first.isdigit() else first, args, kwargs)
        return "", first

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if isinstance(key, int) and key >= len(args):
            raise IndexError(f"debug.print: the format takes argument {key}, and there are {len(args)}")
        if isinstance(key, str) and key not in kwargs:
            raise KeyError(f"debug.print: the format takes {key!r}, which is not among the arguments")
        return ""

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        return ""


def _formatted(fmt: str, *args: Any, **kwargs: Any) -> None:
    builtins.print(fmt.format(*args, **kwargs))


def _templated(a: Any, operands: list[Any]) -> Any:
    """An argument with a `Place` for each array and each number in it."""
    array: Any = a
    if isinstance(a, Handle | np.ndarray | np.generic):
        operands.append(tensor(array))
        return Place(len(operands) - 1)
    if type(a) in _WIDE:
        operands.append(a)
        return Place(len(operands) - 1)
    if isinstance(a, list):
        return Nest(make_list, tuple(_templated(x, operands) for x in a))
    if type(a) is tuple:
        return Nest(make_tuple, tuple(_templated(x, operands) for x in a))
    return a


def _record(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    operands: list[Any] = []
    places = tuple(_templated(a, operands) for a in args)
    options = tuple((k, _templated(v, operands)) for k, v in sorted(kwargs.items()))
    call = Call(name, function, places, options, kinds_of((places, tuple(v for _, v in options))))
    casts = tuple(map(_cast, operands))
    tr = recording.begin()
    device = str(next((x.device for x in operands if isinstance(x, Handle)), tr.mode.device))
    last = tr.effects.get(device)
    if last is not None and last._buffer is None and last._slot is not None and last._slot.step.owner is tr:
        operands.append(last)
    # NOTE: the trace holds the token until it is computed, so that it is wanted.
    tr.effects[device] = recording.record(operation(name), operands, (call, casts))


def _cast(x: Any) -> np.dtype | None:
    if isinstance(x, Handle):
        return dtypes.of(x.dtype).numpy if dtypes.of(x.dtype).foreign else None
    return _WIDE[type(x)]
