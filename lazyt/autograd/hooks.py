"""Hooks: Python functions that are called with a gradient when a backward is recorded."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from lazyt.autograd.saved_segment import Segment
from lazyt.autograd.track import is_synced
from lazyt.autograd.vjp_step import again_step
from lazyt.errors import AutogradError, LazytWarning, ThreadError
from lazyt.tracing.inplace import is_leaf, requires_grad
from lazyt.tracing.program import Slot
from lazyt.tracing.record import begin, meta_of, slot_of
from lazyt.tracing.steps import hooks as recording
from lazyt.tracing.tensor_state import ELSEWHERE, Gradient, Handle
from lazyt.tracing.trace import Trace

ref = weakref.ref


class HookHandle:
    """Takes a hook off again: by `remove()`, or at the end of a `with` block."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks, self._hook = hooks, hook

    def remove(self) -> None:
        """No longer call the hook."""
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def record_of(h: Handle) -> Any:
    """The gradient record of a tensor: of its storage, where it has one."""
    return h._storage._meta if h._storage is not None else h._meta


def register_hook(x: Handle, hook: Callable[[Any], Any]) -> HookHandle:
    """Call `hook` with the gradient of x when it is recorded; what it returns, if anything, replaces it."""
    tr = begin()
    if not requires_grad(x):
        raise AutogradError("register_hook: cannot register a hook on a tensor that doesn't require gradient")
    if is_leaf(x):
        hooks = record_of(x).hooks
    else:
        slot = slot_of(tr, x)
        hooks = _synced_hooks(meta_of(x)) if is_synced(slot.step) else tr.slot_hooks.setdefault(slot, [])
        tr.more = True
    # NOTE: what is taken off again is this one, not an equal one that was registered before.
    entry = partial(hook)
    hooks.append(entry)
    return HookHandle(hooks, entry)


def _synced_hooks(meta: Gradient | None) -> list[Any]:
    """The hooks of an intermediate value that is computed: its trace keeps them."""
    if meta is not None and meta.crossing is not None:
        return meta.hooks
    # NOTE: a value that is pending in another thread has no record: only what stands for it here has one.
    if meta is None or meta.segment is ELSEWHERE:
        raise ThreadError(
            "register_hook: another thread has recorded this value and not computed it, and its graph is that "
            "thread's: register the hook there, or call sync() there first"
        )
    segment, slot = meta.segment, meta.slot
    if segment is None:  # its graph was freed: no backward comes by
        return []
    assert slot is not None
    hooks: list[Any] = segment.hooks.setdefault(slot, [])
    tr = begin()
    here = tr.replayed.get(segment, {}).get(slot)
    if here is not None:  # made again on this trace before
        tr.slot_hooks[here] = hooks
    return hooks


def register_post_accumulate_grad_hook(x: Handle, hook: Callable[[Any], None]) -> HookHandle:
    """Call `hook` with the leaf x each time its `.grad` has received a gradient."""
    if not requires_grad(x) or not is_leaf(x):
        raise AutogradError(
            "register_post_accumulate_grad_hook: post accumulate grad hooks cannot be registered on non-leaf tensors"
            if requires_grad(x)
            else "register_post_accumulate_grad_hook: cannot register a hook on a tensor that doesn't require gradient"
        )
    meta = record_of(x)
    if meta.after is None:
        meta.after = []
    entry = ref(x), partial(hook)
    meta.after.append(entry)
    return HookHandle(meta.after, entry)


def retain_grad(x: Handle) -> None:
    """Keep the gradient of a non-leaf in its `.grad`."""
    tr = begin()
    if not requires_grad(x):
        raise AutogradError("retain_grad: can't retain_grad on a tensor that has requires_grad=False")
    if is_leaf(x):
        return
    slot = slot_of(tr, x)
    # NOTE: where views share a storage, the base's record is that of the storage; a view has one of its own.
    holder = x if x._storage is None or x._view is not None else x._storage
    if holder._meta is None:
        holder._meta = Gradient(True, is_leaf=False)
    meta = holder._meta
    meta.retains = True
    if is_synced(slot.step) and isinstance(meta.segment, Segment) and meta.slot is not None:
        # NOTE: by the value there, for what leads to the loss may start before it.
        meta.segment.retained[meta.slot] = ref(meta)
    else:
        tr.retained[meta], tr.more = slot, True


def retains_grad(x: Handle) -> bool:
    """Whether a non-leaf keeps its gradient."""
    meta = meta_of(x)
    return meta is not None and meta.retains


def _view_again(tr: Trace, h: Handle, slot: Slot, writes: int) -> Slot:
    """A view that was derived anew, of a tensor with a record of its own: the view of an earlier trace, or a new one.

    writes: how often its storage was written.
    """
    meta = h._meta
    assert meta is not None
    if meta.segment is not None and meta.version == writes:
        return again_step(tr, slot, meta)
    h._meta, meta.retains = meta.successor(), False
    if h._meta is not None:
        tr.retained[h._meta], tr.more = slot, True
    return slot


recording.view_again = _view_again


def warn_of_no_gradient(x: Handle) -> None:
    """`.grad` of a non-leaf is read, and it is not kept."""
    if is_leaf(x):
        return
    if retains_grad(x):
        return
    warnings.warn(
        "grad: The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't "
        "be populated during backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, use "
        "retain_grad() on the non-leaf Tensor.",
        LazytWarning,
        stacklevel=3,
    )
