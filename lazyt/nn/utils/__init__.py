"""Clipping of gradients, parameters as one vector, and what changes how layers have their parameters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.errors import AutogradError, ShapeError
from lazyt.functions.arguments import record
from lazyt.functions.creation import zeros
from lazyt.functions.joining import concat
from lazyt.functions.manipulation import reshape
from lazyt.nn.utils import parametrizations, parametrize, rnn, stateless
from lazyt.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
    skip_init,
)
from lazyt.nn.utils.reparametrized import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm
from lazyt.ops.optim import CLIP, NORM
from lazyt.optim.parameters import write_all
from lazyt.tracing.batched_writes import record_update
from lazyt.tracing.current import restore_grad_mode, set_grad_mode
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyt.runtime.tensor import Tensor

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "stateless",
    "vector_to_parameters",
    "weight_norm",
]


def _gradients(parameters: Any) -> list[Any]:
    return [p.grad for p in ((parameters,) if isinstance(parameters, Handle) else parameters) if p.grad is not None]


def get_total_norm(
    tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The norm of all elements of several tensors as one vector, as one recorded step; 0 of none.

    `error_if_nonfinite` reads it, which is a sync, and raises AutogradError if it is NaN or infinite. `foreach` has no
    effect: it is always one step. As `torch.nn.utils.get_total_norm`.

    >>> import lazyt as lt
    >>> lt.nn.utils.get_total_norm([lt.asarray([3.0]), lt.asarray([4.0])]).item()
    5.0
    """
    xs = (tensors,) if isinstance(tensors, Handle) else tuple(tensors)
    if not xs:
        return zeros(())
    before = set_grad_mode(False)
    try:
        norm = record(NORM, xs, (float(norm_type),))
    finally:
        restore_grad_mode(before)
    if error_if_nonfinite and not math.isfinite(norm.item()):
        raise AutogradError(
            f"get_total_norm: The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it "
            "cannot be clipped; pass error_if_nonfinite=False to scale by it anyway"
        )
    return norm


def clip_grads_with_norm_(parameters: Any, max_norm: float, total_norm: Any, foreach: bool | None = None) -> None:
    """Scale the gradients in place by max_norm / (total_norm + 1e-6), if that is below 1.

    `foreach` has no effect. As `torch.nn.utils.clip_grads_with_norm_`.

    >>> import lazyt as lt
    >>> w = lt.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w / 2).sum().backward()
    >>> lt.nn.utils.clip_grads_with_norm_([w], 1.0, lt.asarray(5.0))
    >>> w.grad.round(3).tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    grads = _gradients(parameters)
    if grads:
        before = set_grad_mode(False)
        try:
            record_update(CLIP, (*grads, total_norm, float(max_norm)), ("norm",), grads)
        finally:
            restore_grad_mode(before)


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients in place so that the norm of all of them is at most max_norm; returns what it was.

    Two recorded steps; nothing is computed unless `error_if_nonfinite` asks for the norm. 0 without gradients. As
    `torch.nn.utils.clip_grad_norm_`.

    >>> import lazyt as lt
    >>> w = lt.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w / 2).sum().backward()
    >>> lt.nn.utils.clip_grad_norm_([w], 1.0).item()
    5.0
    """
    given = (parameters,) if isinstance(parameters, Handle) else tuple(parameters)
    norm = get_total_norm(_gradients(given), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(given, max_norm, norm)
    return norm


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
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
    parts = [reshape(p, (-1,)) for p in parameters]
    if not parts:
        raise ShapeError("parameters_to_vector: at least one parameter is required, got none")
    return concat(parts)


def vector_to_parameters(vec: Any, parameters: Iterable[Any]) -> None:
    """Write the parts of a vector into the parameters in place: `parameters_to_vector` undone.

    >>> import lazyt as lt
    >>> w = lt.zeros((1, 2))
    >>> lt.nn.utils.vector_to_parameters(lt.asarray([1.0, 2.0]), [w])
    >>> w.tolist()
    [[1.0, 2.0]]
    """
    parameters = list(parameters)
    sizes = [math.prod(p.shape) for p in parameters]
    if tuple(vec.shape) != (sum(sizes),):
        raise ShapeError(f"vector_to_parameters: a vector of {sum(sizes)} elements is required, got {vec.shape}")
    at = 0
    parts = []
    for p, n in zip(parameters, sizes, strict=True):
        parts.append((p, reshape(vec[at : at + n], p.shape)))
        at += n
    write_all(parts)


def __dir__() -> list[str]:
    return sorted(__all__)
