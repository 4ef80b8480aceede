"""Grad modes beside `no_grad` and `enable_grad`."""

from __future__ import annotations

from typing import Any, Self

from lazyt.interrupts import uninterrupted
from lazyt.runtime.context import _Context
from lazyt.tracing.current import restore_grad_mode, set_grad_mode


class set_grad_enabled(_Context):  # noqa: N801 - a name that other programs rely on
    """Record gradients or not, from now on; as a `with` block or a decorator only there. As `torch.set_grad_enabled`.

    >>> import lazyt as lt
    >>> with lt.autograd.set_grad_enabled(False):
    ...     lt.is_grad_enabled()
    False
    >>> lt.is_grad_enabled()
    True
    """

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        self._before = set_grad_mode(self.mode)

    def __enter__(self) -> Self:
        set_grad_mode(self.mode)
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        restore_grad_mode(self._before)

    def __call__(self, f: Any) -> Any:
        restore_grad_mode(self._before)  # a decorator: nothing changes here
        return super().__call__(f)

    def _again(self) -> _Context:
        return type(self)(self.mode)


class inference_mode(_Context):  # noqa: N801 - as above
    """Record without gradients, in a `with` block or as a decorator. As `torch.inference_mode`, without its errors.

    PyTorch makes tensors there that have no version counter, and refuses to save or write those outside. A value of
    lazyt's is never overwritten and counting costs nothing, so what is made here is a tensor like any other.

    >>> import lazyt as lt
    >>> w = lt.tensor([1.0], requires_grad=True)
    >>> with lt.autograd.inference_mode():
    ...     (w * 2).requires_grad
    False
    """

    def __init__(self, mode: bool = True) -> None:
        self.mode = bool(mode)

    def __enter__(self) -> Self:
        # NOTE: as in PyTorch, inference_mode(False) is grad mode.
        self._before = set_grad_mode(not self.mode)
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        restore_grad_mode(self._before)

    def _again(self) -> _Context:
        return type(self)(self.mode)


__all__ = ["inference_mode", "set_grad_enabled"]
