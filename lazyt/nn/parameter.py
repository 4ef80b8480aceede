"""Tensors that a Module takes for its own when they are assigned to an attribute."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

from lazyt.functions.arguments import tensor
from lazyt.nn.uninitialized import UninitializedBuffer, UninitializedParameter, is_uninitialized
from lazyt.tracing.call_guards import CountedDict
from lazyt.tracing.inference import is_inference
from lazyt.tracing.inplace import is_leaf, requires_grad
from lazyt.tracing.steps import tensor_over
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.tracebacks import BOUNDARY

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from lazyt.runtime.tensor import Tensor

# Tensors whose flags do not tell what they are, by id: parameters that need no gradient, and buffers (persistent?).
_frozen: dict[int, weakref.ref[Any]] = {}
_buffers: dict[int, tuple[weakref.ref[Any], bool]] = {}
# Tensors that `Parameter` made or a module has among its parameters, by id.
_made: dict[int, weakref.ref[Any]] = {}
# Whether only those are parameters for the file of a frame, and no other leaves, as in PyTorch: `lazyt.torch` sets it.
strict: list[Callable[[FrameType], bool]] = []


def _note(known: dict[int, weakref.ref[Any]], x: Any) -> None:
    key = id(x)
    known[key] = weakref.ref(x, lambda _: known.pop(key, None))


def is_made(x: Any) -> bool:
    """Whether `Parameter` made a tensor, or a module has it among its parameters."""
    found = _made.get(id(x))
    return found is not None and found() is x


def mark(x: Any) -> None:
    """Take a tensor for one that `Parameter` made."""
    if isinstance(x, Handle) and not is_made(x):
        _note(_made, x)


class Parameters(CountedDict):
    """The parameters of a module by name."""

    __slots__ = ()

    def __setitem__(self, name: str, x: Any) -> None:
        mark(x)
        super().__setitem__(name, x)


def is_parameter(x: Any) -> bool:
    """Whether an assigned value is a parameter: a leaf that requires grad, or one frozen by `Parameter`."""
    if not isinstance(x, Handle):
        return False
    if is_uninitialized(x):
        return isinstance(x, UninitializedParameter)
    if requires_grad(x):
        return is_leaf(x)
    found = _frozen.get(id(x))
    return found is not None and found() is x


def is_parameter_here(x: Any) -> bool:
    """Whether the file of the caller's caller takes a value for a parameter."""
    if strict and isinstance(x, Handle):
        frame: Any = sys._getframe(2)
        while frame.f_code.co_filename == BOUNDARY:
            frame = frame.f_back
        if strict[0](frame):
            return is_made(x) or isinstance(x, UninitializedParameter)
    return is_parameter(x)


def buffer_of(x: Any) -> bool | None:
    """Whether a tensor that `Buffer` made is persistent; None for any other value."""
    if isinstance(x, UninitializedBuffer):
        return x._view.persistent  # type: ignore[no-any-return, union-attr]
    found = _buffers.get(id(x))
    return found[1] if found is not None and found[0]() is x else None


def _own(data: Any) -> Tensor:
    """A tensor that is a value of its own: what it was made of may go on being used."""
    x = tensor(data)
    if x is not data or is_inference(x):  # which may have no gradient
        return x
    # NOTE: a computed value is never written again, so two tensors may have it.
    own: Tensor = x.detach().clone() if x._buffer is None or x.requires_grad else tensor_over(x._buffer)
    return own


class _Instances(type):
    def __instancecheck__(cls, x: object) -> bool:
        return is_parameter_here(x) if cls.__name__ == "Parameter" else buffer_of(x) is not None


class Parameter(metaclass=_Instances):
    """A leaf tensor that a Module takes for a parameter when it is assigned to an attribute.

    One that requires no grad is a parameter too, which is not trained. `isinstance(x, Parameter)` asks whether a tensor
    is one. As `torch.nn.Parameter`.

    >>> import lazyt as lt
    >>> lt.nn.Parameter([1.0, 2.0]).requires_grad
    True
    """

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Tensor:  # type: ignore[misc]
        x = _own(() if data is None else data)
        mark(x)
        if requires_grad:
            return x.requires_grad_()
        if not is_parameter(x):
            _note(_frozen, x)
        return x


class Buffer(metaclass=_Instances):
    """A tensor that a Module takes for a buffer when it is assigned to an attribute. As `torch.nn.Buffer`.

    >>> import lazyt as lt
    >>> m = lt.nn.Module()
    >>> m.mean = lt.nn.Buffer(lt.zeros(2))
    >>> [name for name, _ in m.named_buffers()]
    ['mean']
    """

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Tensor:  # type: ignore[misc]
        x = _own(() if data is None else data)
        key = id(x)
        _buffers[key] = (weakref.ref(x, lambda _: _buffers.pop(key, None)), persistent)
        return x
