"""Writes to parameters outside the autograd graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lazyt.tracing.assignments import PUT
from lazyt.tracing.batched_writes import record_writes
from lazyt.tracing.commit import Change
from lazyt.tracing.current import restore_grad_mode, set_grad_mode
from lazyt.tracing.inplace import assign


def write(x: Any, value: Any) -> None:
    """x[...] = value; x stays the leaf that it is."""
    before = set_grad_mode(False)
    try:
        assign(x, value)
    finally:
        restore_grad_mode(before)


def write_all(values: Sequence[tuple[Any, Any]], changes: Sequence[Change] = ()) -> None:
    """`write` for several, and `changes` of attributes with them: all of them, or none."""
    before = set_grad_mode(False)
    try:
        record_writes([(PUT, x, value) for x, value in values], changes)
    finally:
        restore_grad_mode(before)


def clear_gradient(p: Any, set_to_none: bool) -> None:
    """p.grad = None, or zeros in the place of what was there."""
    meta = p._gradient()
    if meta is None or meta.grad is None:
        return
    if set_to_none:
        meta.grad = None
    else:
        write(meta.grad, 0)
