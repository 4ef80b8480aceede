"""The mode of the calling thread: changed, and restored whatever comes between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.interrupts import uninterrupted
from lazyt.tracing.program import MODE
from lazyt.tracing.steps import enter_mode, mode_step, other_root, settle
from lazyt.tracing.trace import NONE, Trace, local

if TYPE_CHECKING:
    from lazyt.tracing.mode import Mode

GRAD = "grad"


def switch_mode(mode: Mode) -> Mode:
    """Switch this thread's mode; returns what it was, which `return_to` takes."""
    tr = local.trace
    while True:
        before = tr.mode
        if mode is before or _go(tr, before, mode):
            return before


@uninterrupted
def return_to(before: Mode) -> None:
    """The mode is as it was, before anything that may be interrupted; then the trace goes there.

    For what ends: a `finally`, `__exit__`.
    """
    tr = local.trace
    # NOTE: no call in here but of what is entered without a look at signals.
    if tr.mode is not before:
        _go_back(tr, before)


def set_mode(name: str, value: Any) -> Any:
    """Change a field of this thread's mode; returns what it was, which `restore_mode` takes."""
    tr = local.trace
    while True:
        before = tr.mode
        mode, old = before.near[name, value], before.values[name]
        if mode is before or _go(tr, before, mode):
            return old


def _go(tr: Trace, before: Mode, mode: Mode) -> bool:
    """Switch from one mode to another; False, and nothing done, where a handler of signals came between."""
    s = tr.pos.next
    # Mostly the change that was made here the last time.
    if s.op is not MODE or s.mode is not mode:
        s = other_root(tr, mode) if tr.pos.parent is None else mode_step(tr, mode)
    # NOTE: no call from here on but of what is entered without a look at signals: who is interrupted has not switched,
    # who gets what was before has.
    if tr.mode is before and (s.parent is tr.pos or (s.parent is None is tr.pos.parent)):
        tr.mode = mode
        enter_mode(tr, s)
        return True
    return False


@uninterrupted
def restore_mode(name: str, before: Any) -> None:
    """`return_to` for one field of the mode."""
    tr = local.trace
    now, mode = tr.mode, None
    try:
        # NOTE: no call, but where what is changed in turn is not restored in turn: then the mode may be new.
        mode = now.near[name, before]
    finally:
        if mode is None:
            mode = now.near[name, before]
        if mode is not now:
            _go_back(tr, mode)


@uninterrupted
def _go_back(tr: Trace, mode: Mode) -> None:
    pos = tr.pos
    s = pos.next
    if s.op is MODE and s.mode is mode:  # as above
        tr.mode = mode
        enter_mode(tr, s)
        return
    # NOTE: no call in here. Nothing that is predicted, or was done here, holds in another mode.
    tr.mode, pos.next, pos.again = mode, NONE, None
    settle(tr)


def set_grad_mode(enabled: bool) -> bool:
    """Switch recording of gradients for this thread; returns what it was, which `restore_grad_mode` takes."""
    tr = local.trace
    pos = tr.pos
    s = pos.next
    # Mostly the change that was made here the last time: `set_mode`, in short.
    # NOTE: no call in here. What dies in `results` comes last: somebody may be told, and record.
    if s.op is MODE and s.info is GRAD and s.mode.grad is enabled and pos.mode is tr.mode:
        tr.mode, s.ext, tr.pos = s.mode, tr.ext, s
        tr.results[s.index] = None
        return not enabled
    if pos in tr.turned and pos.mode is tr.mode:
        s = tr.turned[pos]
        if s.mode.grad is enabled:
            tr.mode, tr.ended, s.next, tr.pos = s.mode, None, s.first, s
            return not enabled
    enabled = bool(enabled)
    turned = pos.mode.near[GRAD, enabled]
    old: bool = set_mode(GRAD, enabled)
    # NOTE: no call from here on, as who is interrupted has not switched.
    s = tr.pos
    if pos.parent is None is s.parent and s.mode is turned is not pos.mode:
        tr.turned[pos] = s
    return old


@uninterrupted
def restore_grad_mode(before: bool) -> None:
    """`restore_mode` for the grad mode."""
    tr = local.trace
    pos = tr.pos
    s = pos.next
    if s.op is MODE and s.info is GRAD and s.mode.grad is before and pos.mode is tr.mode:  # as above
        tr.mode, s.ext, tr.pos = s.mode, tr.ext, s
        tr.results[s.index] = None
        return
    if pos in tr.turned and pos.mode is tr.mode:
        s = tr.turned[pos]
        if s.mode.grad is before:
            pos.next, pos.again = NONE, None
            tr.mode, tr.ended, s.next, tr.pos = s.mode, None, s.first, s
            return
    restore_mode(GRAD, before)
    s = tr.pos
    if pos.parent is None is s.parent and s.mode is pos.mode.near[GRAD, before] is not pos.mode:
        tr.turned[pos] = s


def set_device(name: str) -> str:
    """Switch the device that this thread's operations without operands record on; returns what it was."""
    before: str = set_mode("device", name)
    return before


@uninterrupted
def restore_device(before: str) -> None:
    """`restore_mode` for the device."""
    restore_mode("device", before)
