"""How a recorded step is written: `%3 = sum %1 axis=1 : float32 (3,)`."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from lazyt.ir.graph import shape_text
from lazyt.tracing.program import ASSIGN, INPUT, MODE, Slot
from lazyt.tracing.trace import Step

# Results of one step (an optimizer's update of many tensors) that are written out.
SHOWN = 4


def value_name(slot: Slot) -> str:
    """`%3`, or `%3.1` for a further result of the same step."""
    several = len(slot.step.slots) > 1
    return f"%{slot.step.index}.{slot.k}" if several else f"%{slot.step.index}"


def results_text(s: Step) -> str:
    """The names of a step's results."""
    if len(s.slots) > SHOWN:
        return f"%{s.index}.0 .. %{s.index}.{len(s.slots) - 1}"
    return ", ".join(map(value_name, s.slots))


def types_text(s: Step) -> str:
    """`float32 (3, 4)` of each result."""
    shown = [f"{x.dtype} {shape_text(x.shape)}" for x in s.slots[:SHOWN]]
    if len(set(shown)) == 1 and len(s.slots) > 1:
        return f"{shown[0]} each"
    return ", ".join(shown) + (", ..." if len(s.slots) > SHOWN else "")


def input_text(s: Step) -> str:
    """`input`, and what a program depends on besides its type."""
    grad, at = s.statics[2:4]
    words = ["input"] + ["requires_grad"] * (grad != 0) + [f"(the buffer of input {at} again)"] * (at >= 0)
    return " ".join(words)


def call_text(s: Step, scalars: Sequence[Any] | None = None, extents: Sequence[int] | None = None) -> str:
    """`sum %1 axis=1`. Scalars and sizes have the values given, or without them their types."""
    if s.op is INPUT:
        dtype, ndim = s.statics[:2]
        return f"{input_text(s)} {dtype} of {'1 axis' if ndim == 1 else f'{ndim} axes'}"
    if s.op is MODE:
        return _changes(s)
    if s.op is ASSIGN:
        old = f" in place of {value_name(s.targets[0])}" if s.targets else ""
        return f"assign {value_name(s.operands[0])}{old}"
    more = _info(s) if s.op.name == "backward" else _statics(s, scalars, extents)
    return " ".join([s.op.name, *filter(None, (_operands(s, scalars), more))])


def _changes(s: Step) -> str:
    """The fields of the mode that a step changes: `grad mode off`, `device cuda`."""
    (mode,) = s.statics
    assert s.parent is not None, "a trace begins in a mode"
    found = [(name, v) for name, v in mode.values.items() if v != s.parent.mode.values.get(name)]
    return ", ".join(f"grad mode {'on' if v else 'off'}" if name == "grad" else f"{name} {v}" for name, v in found)


def _operands(s: Step, scalars: Sequence[Any] | None) -> str:
    words, at = [], s.scalar_start
    for x in s.operands:
        if isinstance(x, Slot):
            words.append(value_name(x))
        else:
            words.append(x.__name__ if scalars is None else repr(scalars[at]))
            at += 1
    if len(words) > 4 * SHOWN:
        words[3 * SHOWN :] = ["...", words[-1]]
    return ", ".join(words)


def _info(s: Step) -> str:
    """What a backward pulls its cotangents back to."""
    names = [value_name(group[0]) for group in s.info or () if group]
    return "to " + ", ".join(names[:SHOWN] + ["..."] * (len(names) > SHOWN)) if names else ""


@lru_cache(maxsize=1024)
def _names(op: Any) -> tuple[str, ...] | None:
    """The names of what follows the builder in an operation's lowering; None where it takes any number."""
    lower = getattr(op, "lower", None)
    if lower is None:
        return None
    parameters = list(inspect.signature(lower).parameters.values())[1:]
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return None
    return tuple(p.name for p in parameters)


def _statics(s: Step, scalars: Sequence[Any] | None, extents: Sequence[int] | None) -> str:
    ints = None if extents is None else tuple(extents[s.ext_start : s.ext_start + s.n_ints])
    at = s.scalar_start + s.n_weak
    offsets = None if scalars is None else tuple(scalars[at : at + s.n_offsets])
    names = _names(s.op)
    words = []
    for i, v in enumerate(s.statics):
        name = names[len(s.operands) + i] if names is not None and len(s.operands) + i < len(names) else ""
        if name == "spec":
            return _key(v, ints, offsets)
        if v is not None and v is not False:
            words.append(f"{name}={_value(v)}" if name else _value(v))
    has = s.info or ()
    if "ints" in has:
        words.append("sizes" if ints is None else shape_text(ints))
    if "offsets" in has:
        words.append("offsets" if offsets is None else f"at {shape_text(offsets)}")
    return " ".join(words)


def _value(v: Any) -> str:
    return v.name if isinstance(v, np.dtype) else repr(v)


def _key(spec: Sequence[Any], ints: tuple[int, ...] | None, offsets: tuple[int, ...] | None) -> str:
    """`[1:4, 2]`: what stood between the brackets, counted from the start."""
    length, offset = iter(ints or ()), iter(offsets or ())
    words = []
    for item in spec:
        if item == "all":
            words.append(":")
        elif item == "new":
            words.append("None")
        elif item == "int":
            words.append("int" if offsets is None else str(next(offset)))
        elif ints is None or offsets is None:
            words.append(":" if item[1] == 1 else f"::{item[1]}")
        else:
            start, n, step = next(offset), next(length), item[1]
            stop = start + n * step
            words.append(f"{start}:{stop if stop >= 0 else ''}{'' if step == 1 else f':{step}'}")
    return f"[{', '.join(words)}]"
