"""Modules of other dtypes and on other devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.autograd.replacement import replace_values
from lazyt.errors import DTypeError
from lazyt.functions.creation import empty
from lazyt.functions.manipulation import astype
from lazyt.ir import dtypes
from lazyt.nn.parameter import Buffer, buffer_of
from lazyt.nn.uninitialized import is_uninitialized, respecified
from lazyt.runtime.device import Device
from lazyt.tracing.current import restore_grad_mode, set_grad_mode
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.runtime.tensor import Tensor


def convert(module: Any, args: tuple[Any, ...], dtype: Any, device: Any) -> None:
    """Cast floating tensors of a module, and move all of them."""
    for a in args:
        if isinstance(a, Handle):
            dtype, device = a.dtype, a.device
        elif isinstance(a, str | Device) and not _is_dtype(a):
            device = a
        elif not isinstance(a, bool):  # PyTorch's non_blocking
            dtype = a
    want = None if dtype is None else dtypes.as_dtype(dtype)
    if want is not None and dtypes.kind(want) not in "fc":
        raise DTypeError(f"to: a floating dtype is required, got {want}")
    place = None if device is None else Device.check(device)

    def moved(x: Tensor) -> Tensor:
        y = x if place is None or x.device == place else x.detach().to(device=place)
        cast = want is not None and y.dtype != want and dtypes.kind(y.dtype) in "fc"
        return astype(y.detach(), want) if cast else y

    replace(module, moved, later=(want, place))


def cast_all(module: Any, dtype: Any) -> None:
    """Cast all tensors of a module; those that require grad must stay floating."""
    want = dtypes.as_dtype(dtype)
    trained = next((name for name, p in module.named_parameters() if p.requires_grad), None)
    if dtypes.kind(want) not in "fc" and trained is not None:
        raise DTypeError(f"type: a floating dtype is required for parameter {trained!r}, got {want}")
    replace(module, lambda x: x if x.dtype == want else astype(x.detach(), want), later=(want, None))


def empty_on(module: Any, device: Any, recurse: bool) -> None:
    """Parameters and buffers of any value, on a device; a gradient too."""
    place = Device.check(device)
    replace(module, lambda x: empty(x.shape, dtype=x.dtype, device=place), recurse, (None, place))


def replace(
    module: Any, f: Callable[[Tensor], Tensor], recurse: bool = True, later: tuple[Any, Any] = (None, None)
) -> None:
    """Every parameter and its gradient take f of their values and stay the tensors that they are; buffers are new ones.

    Shared buffers stay shared. f gives what it was given where nothing changes. What has no value yet is to have the
    dtype and the device `later`. All is changed, or nothing.
    """
    made: dict[int, Tensor] = {}
    pairs: list[tuple[Tensor, Tensor]] = []
    changes: list[tuple[Any, str, Any]] = []
    items: list[tuple[Any, str, Tensor]] = []
    before = set_grad_mode(False)
    try:
        for m in list(module.modules()) if recurse else [module]:
            for x in m._parameters.values():
                if x is None or id(x) in made:
                    continue
                if is_uninitialized(x):
                    changes.append(respecified(x, *later))
                    continue
                made[id(x)] = y = f(x)
                if y is not x:
                    pairs.append((x, y))
                g = x._gradient()
                if g is not None and g.grad is not None and (h := f(g.grad)) is not g.grad:
                    # One with a graph of its own is replaced: that graph is the old value's.
                    (changes.append((g, "grad", h)) if g.grad.requires_grad else pairs.append((g.grad, h)))
            for name, x in m._buffers.items():
                if is_uninitialized(x):
                    changes.append(respecified(x, *later))
                elif x is not None:
                    if id(x) not in made:
                        made[id(x)] = _alike(x, f(x))
                    items.append((m._buffers, name, made[id(x)]))
        replace_values(pairs, changes, items)
    finally:
        restore_grad_mode(before)


def _alike(x: Tensor, y: Tensor) -> Tensor:
    """y as the buffer or plain tensor that x is."""
    if y is x:
        return y
    persistent = buffer_of(x)
    if x.requires_grad:
        return y.requires_grad_()
    return y if persistent is None else Buffer(y, persistent=persistent)


def _is_dtype(spec: Any) -> bool:
    try:
        dtypes.as_dtype(spec)
    except DTypeError:
        return False
    return True
