"""Grad modes beside `no_grad` and `enable_grad`."""

from __future__ import annotations

from typing import Any, Self

from lazyt.interrupts import uninterrupted
from lazyt.runtime.decorators import Context
from lazyt.tracing.current import restore_grad_mode, return_to, set_grad_mode, switch_mode
from lazyt.tracing.inference import mark
from lazyt.tracing.tensor_state import Inference
from lazyt.tracing.trace import local


class set_grad_enabled(Context):  # noqa: N801 - a name that other programs rely on
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

    def _again(self) -> Context:
        return type(self)(self.mode)


class inference_mode(Context):  # noqa: N801 - as above
    """Record without gradients, in a `with` block or as a decorator. As `torch.inference_mode`.

    What is made here is an inference tensor: outside it may not be written in place, nor be read by a derivative
    (AutogradError at that line; a `clone()` made there may). Views of other tensors are no inference tensors. With
    `mode=False`, and under `enable_grad()`, values are normal. It costs what `no_grad()` costs, or a little more: it is
    a promise that the results stay out of training.

    >>> import lazyt as lt
    >>> w = lt.tensor([1.0], requires_grad=True)
    >>> with lt.autograd.inference_mode():
    ...     x = w * 2
    >>> x.requires_grad, x.is_inference(), x.clone().is_inference()
    (False, True, False)
    """

    def __new__(cls, mode: Any = True) -> Self:
        made = super().__new__(cls)
        if not callable(mode):
            return made
        made.mode = True  # a decorator without parentheses
        return made(mode)  # type: ignore[no-any-return]

    def __init__(self, mode: bool = True) -> None:
        self.mode = bool(mode)

    def __enter__(self) -> Self:
        Inference.used = True
        tr = local.trace
        # NOTE: as in PyTorch, inference_mode(False) is grad mode.
        mode = tr.mode.near["grad", not self.mode].near["inference", self.mode]
        self._number, self._start = tr.number, tr.pos.index
        self._before, self._inside = switch_mode(mode), mode
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        try:
            if self.mode:
                tr = local.trace
                mark(tr, self._start + 1 if tr.number == self._number else 0)
        finally:
            before, now = self._before, local.trace.mode
            if now is not self._inside:
                # What was set in the block, and is not the block's, stays.
                before = now.near["grad", before.grad].near["inference", before.inference]
            return_to(before)

    def _again(self) -> Context:
        return type(self)(self.mode)


def is_inference_mode_enabled() -> bool:
    """Whether values that are recorded now are inference tensors. As `torch.is_inference_mode_enabled`.

    >>> import lazyt as lt
    >>> with lt.autograd.inference_mode():
    ...     lt.autograd.is_inference_mode_enabled()
    True
    """
    mode = local.trace.mode
    return bool(mode.inference and not mode.grad)


__all__ = ["inference_mode", "is_inference_mode_enabled", "set_grad_enabled"]
