"""What is done to parameters outside the autograd graph."""

from __future__ import annotations

from typing import Any

from lazyt.tracing.current import restore_grad_mode, set_grad_mode
from lazyt.tracing.inplace import assign


def write(x: Any, value: Any) -> None:
    """x[...] = value; x stays the leaf that it is."""
    before = set_grad_mode(False)
    try:
        assign(x, value)
    finally:
        restore_grad_mode(before)


def clear_gradient(p: Any, set_to_none: bool) -> None:
    """p.grad = None, or zeros in the place of what was there."""
    if p.grad is None:
        return
    if set_to_none:
        p.grad = None
    else:
        write(p.grad, 0)
