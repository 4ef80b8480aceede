"""Modules of other dtypes and on other devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import DTypeError
from lazyt.functions.manipulation import astype
from lazyt.ir import dtypes
from lazyt.nn.parameter import Buffer, Parameter, buffer_of, is_parameter
from lazyt.runtime.device import Device
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
    if dtype is not None:
        want = dtypes.as_dtype(dtype)
        if dtypes.kind(want) not in "fc":
            raise DTypeError(f"to: a floating dtype is required, got {want}")
    if device is not None:
        name = Device.check(device)
        replace(module, lambda x: x if x.device == name else x.detach().to(device=name))
    if dtype is not None:
        replace(module, lambda x: astype(x.detach(), want) if dtypes.kind(x.dtype) in "fc" else x)


def cast_all(module: Any, dtype: Any) -> None:
    """Cast all tensors of a module; those that require grad must stay floating."""
    want = dtypes.as_dtype(dtype)
    trained = next((name for name, p in module.named_parameters() if p.requires_grad), None)
    if dtypes.kind(want) not in "fc" and trained is not None:
        raise DTypeError(f"type: a floating dtype is required for parameter {trained!r}, got {want}")
    replace(module, lambda x: astype(x.detach(), want))


def replace(module: Any, f: Callable[[Tensor], Tensor]) -> None:
    """Every parameter and buffer x by a new leaf f(x); shared ones stay shared."""
    made: dict[int, Tensor] = {}
    for m in list(module.modules()):
        for table in (m._parameters, m._buffers):
            for name, x in table.items():
                if x is None:
                    continue
                y = made.get(id(x))
                if y is None:
                    y = made[id(x)] = _alike(x, f(x))
                table[name] = y


def _alike(x: Tensor, y: Tensor) -> Tensor:
    """y as the parameter, buffer or plain tensor that x is."""
    if y is x:
        return y
    if x.requires_grad:
        return y.requires_grad_()
    if is_parameter(x):
        return Parameter(y, requires_grad=False)
    persistent = buffer_of(x)
    return y if persistent is None else Buffer(y, persistent=persistent)


def _is_dtype(spec: Any) -> bool:
    try:
        dtypes.as_dtype(spec)
    except DTypeError:
        return False
    return True
