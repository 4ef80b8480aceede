"""Clipping of gradients, and parameters as one vector; sequences of several lengths are in `rnn`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.functions.arguments import record
from lazyt.functions.joining import concat
from lazyt.functions.manipulation import reshape
from lazyt.nn.utils import rnn
from lazyt.ops.optim import CLIP, NORM
from lazyt.optim.parameters import write_all
from lazyt.tracing.batched_writes import record_update
from lazyt.tracing.current import restore_grad_mode, set_grad_mode
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyt.runtime.tensor import Tensor

__all__ = ["clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "rnn", "vector_to_parameters"]


def _gradients(parameters: Any) -> list[Any]:
    return [p.grad for p in ((parameters,) if isinstance(parameters, Handle) else parameters) if p.grad is not None]


def clip_grad_norm_(parameters: Any, max_norm: float, norm_type: float = 2.0) -> Tensor | None:
    """Scale the gradients in place so that the norm of all of them is at most max_norm; returns what it was.

    Two recorded steps; nothing is computed. None without gradients. As `torch.nn.utils.clip_grad_norm_`.

    >>> import lazyt as lt
    >>> w = lt.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w / 2).sum().backward()
    >>> lt.nn.utils.clip_grad_norm_([w], 1.0).item()
    5.0
    """
    grads = _gradients(parameters)
    if not grads:
        return None
    before = set_grad_mode(False)
    try:
        norm = record(NORM, (*grads,), (float(norm_type),))
        record_update(CLIP, (*grads, norm, float(max_norm)), ("norm",), grads)
    finally:
        restore_grad_mode(before)
    return norm


def clip_grad_value_(parameters: Any, clip_value: float) -> None:
    """Clip the gradients' elements to [-clip_value, clip_value] in place. As `torch.nn.utils.clip_grad_value_`.

    >>> import lazyt as lt
    >>> w = lt.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w / 2).sum().backward()
    >>> lt.nn.utils.clip_grad_value_([w], 3.5)
    >>> w.grad.tolist()
    [3.0, 3.5]
    """
    grads = _gradients(parameters)
    if grads:
        before = set_grad_mode(False)
        try:
            record_update(CLIP, (*grads, float(clip_value)), ("value",), grads)
        finally:
            restore_grad_mode(before)


def parameters_to_vector(parameters: Iterable[Any]) -> Tensor:
    """All parameters end to end, as one vector.

    >>> import lazyt as lt
    >>> lt.nn.utils.parameters_to_vector([lt.ones((2, 2)), lt.zeros(1)]).tolist()
    [1.0, 1.0, 1.0, 1.0, 0.0]
    """
    return concat([reshape(p, (-1,)) for p in parameters])


def vector_to_parameters(vector: Any, parameters: Iterable[Any]) -> None:
    """Write the parts of a vector into the parameters in place: `parameters_to_vector` undone.

    >>> import lazyt as lt
    >>> w = lt.zeros((1, 2))
    >>> lt.nn.utils.vector_to_parameters(lt.asarray([1.0, 2.0]), [w])
    >>> w.tolist()
    [[1.0, 2.0]]
    """
    at = 0
    parts = []
    for p in parameters:
        n = math.prod(p.shape)
        parts.append((p, reshape(vector[at : at + n], p.shape)))
        at += n
    write_all(parts)


def __dir__() -> list[str]:
    return sorted(__all__)
