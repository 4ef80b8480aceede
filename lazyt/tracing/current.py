"""The grad mode and the device of a thread: switched, and as they were again, whatever comes between."""

from __future__ import annotations

from lazyt.interrupts import uninterrupted
from lazyt.tracing.steps import MODE, enter_mode, mode_step, other_root, settle
from lazyt.tracing.trace import NONE, local


def set_device(name: str) -> str:
    """Switch the device that this thread's operations without operands record on; returns what it was."""
    tr = local.trace
    before = tr.device
    while before != name:
        s = other_root(tr, tr.grad, name) if tr.pos.parent is None else mode_step(tr, name)
        # NOTE: no call from here on but of what is entered without a look at signals: who is interrupted has not
        # switched, who gets `before` has.
        if s.parent is tr.pos or (s.parent is None is tr.pos.parent):
            tr.device = name
            enter_mode(tr, s)
            break
    return before


def set_grad_mode(enabled: bool) -> bool:
    """Switch recording of gradients for this thread; returns what it was, which `restore_grad_mode` takes."""
    tr = local.trace
    before = tr.grad
    s = tr.pos.next
    # Mostly the change that was made here the last time.
    # NOTE: no call in here. What dies in `results` comes last: somebody may be told, and record.
    if s.op is MODE and s.mode is enabled is not before and s.current == tr.device:
        tr.grad, s.ext, tr.pos = enabled, tr.ext, s
        tr.results[s.index] = None
        return before
    while before != enabled:
        s = other_root(tr, enabled, tr.device) if tr.pos.parent is None else mode_step(tr, enabled)
        # NOTE: as above.
        if s.parent is tr.pos or (s.parent is None is tr.pos.parent):
            tr.grad = enabled
            enter_mode(tr, s)
            break
    return before


@uninterrupted
def restore_grad_mode(before: bool) -> None:
    """The grad mode is as it was, before anything that may be interrupted; then the walk goes there.

    For what ends: a `finally`, `__exit__`.
    """
    tr = local.trace
    if tr.grad is not before:
        pos = tr.pos
        s = pos.next
        if s.op is MODE and s.mode is before and s.current == tr.device:  # as above
            tr.grad, s.ext, tr.pos = before, tr.ext, s
            tr.results[s.index] = None
            return
        # NOTE: no call in here. Nothing that is predicted, or was done here, holds under another mode.
        tr.grad, pos.next, pos.again = before, NONE, None
        settle(tr)


@uninterrupted
def restore_device(before: str) -> None:
    """`restore_grad_mode` for the device."""
    tr = local.trace
    if tr.device is not before:
        pos = tr.pos
        tr.device, pos.next, pos.again = before, NONE, None
        settle(tr)
