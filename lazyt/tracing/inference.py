"""Inference mode: which values were made in it, and what they may not be used for.

A value is an inference tensor if its step was recorded in that mode: a matter of the program, so nothing is checked in
a step that is known. A sync takes a tensor's step away, so its holder is marked before, and at the end of the mode.
Views, and what is written in place, are inference tensors if their base is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import AutogradError
from lazyt.tracing.program import INPUT
from lazyt.tracing.tensor_state import Inference

if TYPE_CHECKING:
    from lazyt.tracing.program import Slot
    from lazyt.tracing.tensor_state import Holder
    from lazyt.tracing.trace import Step, Trace

# The third static of an input step that stands for an inference tensor.
INFERENCE = 3


def made_in_inference(slot: Slot) -> bool:
    """Whether a value of a trace is an inference tensor."""
    while True:
        s = slot.step
        if s.op is INPUT:
            return bool(s.statics[2] == INFERENCE)
        if s.targets:
            slot = s.targets[slot.k]
        elif getattr(s.op, "write", None) is not None:
            slot = s.operands[0]
        else:
            return bool(s.mode.inference and not s.mode.grad)


def is_inference(x: Any) -> bool:
    """Whether a handle is an inference tensor."""
    if not Inference.used:
        return False
    holder: Holder = x if x._storage is None else x._storage
    if Inference.known(holder):
        return True
    slot = holder._slot
    return slot is not None and made_in_inference(slot)


def mark(tr: Trace, start: int = 0) -> None:
    """Mark the holders of inference tensors among the values of a trace's steps, from one step on."""
    # NOTE: not those that nobody holds: they serve the next trace's steps, whatever these are (see replay.py).
    for i, holder in tr.alive(start):
        slot = holder._slot
        if i >= start and slot is not None and holder._storage is None and made_in_inference(slot):
            Inference.mark(holder)


def refuse_saving(name: str, what: str) -> AutogradError:
    return AutogradError(
        f"{name}: Inference tensors cannot be saved for backward (here {what}). Please do not use Tensors created in "
        "inference mode in computation tracked by autograd. To work around this, you can make a clone to get a normal "
        "tensor and use it in autograd, or use `lt.no_grad()` instead of `lt.inference_mode()`"
    )


def check_saved(x: Slot, s: Step, i: int) -> None:
    """Raise AutogradError if operand i of a step, which its derivative reads, is an inference tensor."""
    if made_in_inference(x):
        raise refuse_saving(s.op.name, f"operand {i}")


def check_write(tr: Trace, name: str, x: Any) -> None:
    """Raise AutogradError for a write to an inference tensor outside of the mode."""
    if not tr.mode.inference and is_inference(x):
        raise AutogradError(
            f"{name}: Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to "
            "get a normal tensor before doing inplace update"
        )
