"""Hooks on saved tensors: what is kept for a backward is packed, and unpacked when the backward needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self

from lazyt.config import HOST
from lazyt.interrupts import uninterrupted
from lazyt.runtime.decorators import Context
from lazyt.tracing.refusals import check_function


class _Local(threading.local):
    def __init__(self) -> None:
        self.hooks: tuple[tuple[Callable[[Any], Any], Callable[[Any], Any]], ...] = ()


_local = _Local()


def packers() -> tuple[Callable[[Any], Any], Callable[[Any], Any]] | None:
    """The innermost pair of hooks of this thread."""
    hooks = _local.hooks
    return hooks[-1] if hooks else None


class saved_tensors_hooks(Context):  # noqa: N801 - a name that other programs rely on
    """In the `with` block, keep `pack(x)` in place of each saved tensor x; `unpack` makes a tensor of it again.

    As `torch.autograd.graph.saved_tensors_hooks`, for what a `Function` saves by `save_for_backward`: packed when it is
    recorded, unpacked when a backward is. Both record like any function of tensors. No version check is made of a
    packed tensor, and pack must not write its argument (AutogradError).

    Operations of lazyt's own save nothing when they are recorded: what a backward reads is decided by the plan, and
    often never in memory, so there is nothing to pack. To keep less across a long program, see
    `lazyt.utils.checkpoint`.

    >>> import lazyt as lt
    >>> class Square(lt.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         return 2 * grad * ctx.saved_tensors[0]
    >>> x = lt.tensor([0.1], requires_grad=True)
    >>> with lt.autograd.saved_tensors_hooks(lambda t: t.astype(lt.float16), lambda t: t.astype(lt.float32)):
    ...     y = Square.apply(x).sum()
    >>> y.backward()
    >>> bool(x.grad[0] == 2 * lt.asarray(0.1).astype(lt.float16).astype(lt.float32))
    True
    """

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        for hook in (pack_hook, unpack_hook):
            check_function("saved_tensors_hooks", hook)
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> Self:
        self._before = _local.hooks
        _local.hooks = (*self._before, (self.pack_hook, self.unpack_hook))
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        _local.hooks = self._before

    def _again(self) -> Context:
        return type(self)(self.pack_hook, self.unpack_hook)


class save_on_cpu(saved_tensors_hooks):  # noqa: N801 - as above
    """In the `with` block, keep saved tensors in the CPU's memory, and move them back when a backward needs them.

    As `torch.autograd.graph.save_on_cpu`, for what `saved_tensors_hooks` covers. Moving to another device is a sync;
    on the CPU nothing is moved. `pin_memory` is accepted, and copies go through pinned memory anyway.

    >>> import lazyt as lt
    >>> with lt.autograd.save_on_cpu():
    ...     pass
    """

    def __init__(self, pin_memory: bool = False) -> None:
        super().__init__(_to_host, _from_host)
        self.pin_memory = pin_memory

    def _again(self) -> Context:
        return type(self)(self.pin_memory)


def _to_host(x: Any) -> Any:
    return x.device, x.detach().to(HOST)


def _from_host(packed: Any) -> Any:
    device, x = packed
    return x.to(device)


__all__ = ["save_on_cpu", "saved_tensors_hooks"]
