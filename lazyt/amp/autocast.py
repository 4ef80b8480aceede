"""`autocast`: a region in which operations compute in the precision that suits them."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any, Self

from lazyt.backends import registry
from lazyt.errors import AutocastError
from lazyt.functions.manipulation import astype
from lazyt.interrupts import uninterrupted
from lazyt.ir import dtypes
from lazyt.runtime.decorators import Context
from lazyt.tracing.autocast import FIELD, default_dtype, region
from lazyt.tracing.current import restore_mode, set_mode
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import local

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

__all__ = [
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "get_autocast_dtype",
    "is_autocast_available",
    "is_autocast_enabled",
]


def _kind_of(name: str, device_type: Any) -> str:
    if not isinstance(device_type, str):
        raise TypeError(f"{name}: device_type is a text, such as 'cpu', got {device_type!r}")
    if not registry.is_device_name(device_type):
        known = " or ".join(map(repr, registry.names()))
        raise AutocastError(f"{name}: device_type is {known}, got {device_type!r}")
    return device_type.partition(":")[0]


def _supported(kind: str) -> list[np.dtype]:
    """The dtypes that a region may have."""
    return [dtypes.as_dtype(d) for d in registry.get(kind).autocast_dtypes]


class autocast(Context):  # noqa: N801 - a name that other programs rely on
    """Record in mixed precision, in a `with` block or as a decorator.

    Products and convolutions of float32 operands compute in `dtype` (by default bfloat16 on the CPU and float16 on a
    GPU), losses and the like in float32; everything else in the dtypes of its operands. The lists are PyTorch's, one
    for each device, and in `docs/how-to/mixed-precision.md`. float64, in-place operations and `out=` are not touched.
    Gradients have the dtype of the parameters, so `backward()` stands outside of the block. Blocks nest, with
    `enabled=False` too, and are of the thread that enters them.

    `dtype` is bfloat16 or float16: another one disables the block, with a warning, and so does a GPU that is not there.
    `cache_enabled` is accepted: a weight that several operations cast is cast once, because the program shares it,
    and a weight that is written in between is cast again. Raises AutocastError for a device without lists.
    As `torch.autocast`.

    >>> import lazyt as lt
    >>> x = lt.ones((2, 2))
    >>> with lt.amp.autocast("cpu"):
    ...     y = x @ x
    >>> y.dtype, (x @ x).dtype
    (dtype(bfloat16), dtype('float32'))
    """

    def __init__(
        self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        kind = _kind_of("autocast", device_type)
        self.device, self.dtype = kind, get_autocast_dtype(kind) if dtype is None else dtypes.as_dtype(dtype)
        self.enabled = bool(enabled)
        self.cache_enabled = True if cache_enabled is None else bool(cache_enabled)
        supported = _supported(kind)
        if self.enabled and self.dtype not in supported:
            listed = ", ".join(sorted(d.name for d in supported))
            warnings.warn(
                f"In {kind.upper()} autocast, but the target dtype is not supported. Disabling autocast.\n"
                f"{kind.upper()} Autocast only supports dtypes of {listed} currently, not {self.dtype}.",
                stacklevel=2,
            )
            self.enabled = False
        if self.enabled and not registry.is_available(kind):
            warnings.warn(
                f"User provided device_type of {kind!r}, but {kind.upper()} is not available. Disabling", stacklevel=2
            )
            self.enabled = False
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        now = local.trace.mode.autocast
        lower = {} if now is None else dict(now.lower)
        lower.pop(self.device, None)
        if self.enabled:
            lower[self.device] = self.dtype
        self._before = [*self._before, set_mode(FIELD, region(lower))]
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        restore_mode(FIELD, self._before.pop())

    def _again(self) -> Context:
        return type(self)(self.device, self.dtype, self.enabled, self.cache_enabled)


def is_autocast_available(device_type: str) -> bool:
    """Whether there are lists for this kind of device. As `torch.amp.is_autocast_available`.

    >>> import lazyt as lt
    >>> lt.amp.is_autocast_available("cpu"), lt.amp.is_autocast_available("tpu")
    (True, False)
    """
    if not isinstance(device_type, str):
        raise TypeError(f"is_autocast_available: device_type is a text, such as 'cpu', got {device_type!r}")
    return registry.is_device_name(device_type)


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether this thread is in an autocast region, of one kind of device or (None) of any.

    As `torch.is_autocast_enabled`, which means GPUs where none is given.

    >>> import lazyt as lt
    >>> with lt.autocast("cpu"):
    ...     lt.is_autocast_enabled("cpu"), lt.is_autocast_enabled("cuda")
    (True, False)
    """
    now = local.trace.mode.autocast
    kind = None if device_type is None else _kind_of("is_autocast_enabled", device_type)
    return now is not None and (kind is None or kind in now.lower)


def get_autocast_dtype(device_type: str) -> np.dtype:
    """The lower dtype of this thread's region, or that of one that gives none. As `torch.get_autocast_dtype`.

    >>> import lazyt as lt
    >>> lt.get_autocast_dtype("cuda")
    dtype('float16')
    """
    kind, now = _kind_of("get_autocast_dtype", device_type), local.trace.mode.autocast
    if now is not None and kind in now.lower:
        found: np.dtype = now.lower[kind]
        return found
    return default_dtype(kind)


def _cast_all(x: Any, kind: str, dtype: np.dtype) -> Any:
    """The real floats among nested values as `dtype`, but no float64 and what is on other devices."""
    if isinstance(x, Handle):
        t: Any = x
        eligible = dtypes.kind(t.dtype) == "f" and t.dtype != dtypes.float64
        return astype(t, dtype, copy=False) if eligible and t.device.partition(":")[0] == kind else t
    if isinstance(x, dict):
        return {k: _cast_all(v, kind, dtype) for k, v in x.items()}
    if isinstance(x, list | tuple) and not hasattr(x, "_fields"):
        return type(x)(_cast_all(v, kind, dtype) for v in x)
    return x


def custom_fwd(fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: Any = None) -> Any:
    """Decorate the `forward` of an `autograd.Function` to say what it does in an autocast region.

    Without `cast_inputs` it runs in the region of its caller. With a dtype its floating arguments are cast to that in
    a region, and it runs outside of the region. As `torch.amp.custom_fwd`.

    >>> import lazyt as lt
    >>> class Square(lt.autograd.Function):
    ...     @staticmethod
    ...     @lt.amp.custom_fwd(device_type="cpu", cast_inputs=lt.float32)
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...     @staticmethod
    ...     @lt.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, g):
    ...         return 2 * g * ctx.saved_tensors[0]
    >>> with lt.autocast("cpu"):
    ...     Square.apply(lt.ones(2, dtype=lt.bfloat16)).dtype
    dtype('float32')
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    kind = _kind_of("custom_fwd", device_type)

    @functools.wraps(fwd)
    def decorated(ctx: Any, *args: Any, **options: Any) -> Any:
        now = local.trace.mode.autocast
        if cast_inputs is None:
            ctx._autocast = now
            return fwd(ctx, *args, **options)
        ctx._autocast = None
        if now is None or kind not in now.lower:
            return fwd(ctx, *args, **options)
        d = dtypes.as_dtype(cast_inputs)
        with autocast(kind, enabled=False):
            return fwd(ctx, *_cast_all(args, kind, d), **_cast_all(options, kind, d))

    return decorated


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Any:
    """Decorate the `backward` of an `autograd.Function`: it runs in the region that `custom_fwd` ran in.

    As `torch.amp.custom_bwd`; see `custom_fwd` for an example.
    """
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    _kind_of("custom_bwd", device_type)

    @functools.wraps(bwd)
    def decorated(*args: Any, **options: Any) -> Any:
        before = set_mode(FIELD, args[0]._autocast)
        try:
            return bwd(*args, **options)
        finally:
            restore_mode(FIELD, before)

    return decorated
