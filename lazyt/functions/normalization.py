"""Normalisations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions.arguments import record, tensor
from lazyt.ops import normalization as ops
from lazyt.ops.axes import integer
from lazyt.tracing.batched_writes import record_update
from lazyt.tracing.current import restore_grad_mode, set_grad_mode

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = ["batch_norm", "group_norm", "layer_norm", "rms_norm"]


def _last_axes(name: str, x: Any, normalized_shape: Any) -> int:
    """How many last axes `normalized_shape` names."""
    if type(normalized_shape) is tuple and {*map(type, normalized_shape)} == {int}:
        extents = x.shape
        if normalized_shape == extents[len(extents) - len(normalized_shape) :]:
            return len(normalized_shape)
    shape = tuple(normalized_shape) if isinstance(normalized_shape, tuple | list) else (normalized_shape,)
    want = tuple(integer(name, "normalized_shape", n) for n in shape)
    if not want or tuple(x.shape[len(x.shape) - len(want) :]) != want:
        raise ShapeError(f"{name}: normalized_shape {want} is not the end of shape {tuple(x.shape)}")
    return len(want)


def layer_norm(x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(variance + eps) over the last axes, times weight, plus bias.

    Raises ShapeError unless x ends in normalized_shape. As `torch.nn.functional.layer_norm`.

    >>> import lazyt as lt
    >>> lt.nn.functional.layer_norm(lt.asarray([-1.0, 1.0]), 2, eps=0.0).tolist()
    [-1.0, 1.0]
    """
    k = _last_axes("layer_norm", x, normalized_shape)
    params = tuple(p for p in (weight, bias) if p is not None)
    statics = (k, weight is not None, bias is not None)
    return record(ops.LAYER_NORM, (x, *params, float(eps)), statics)


def rms_norm(x: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Tensor:
    """x / sqrt(mean of squares + eps) over the last axes, times weight; eps is by default that of the dtype.

    Raises ShapeError unless x ends in normalized_shape. As `torch.nn.functional.rms_norm`.

    >>> import lazyt as lt
    >>> lt.nn.functional.rms_norm(lt.asarray([-2.0, 2.0]), 2, eps=0.0).tolist()
    [-1.0, 1.0]
    """
    k = _last_axes("rms_norm", x, normalized_shape)
    params = () if weight is None else (weight,)
    small = ops.epsilon(x.dtype) if eps is None else float(eps)
    return record(ops.RMS_NORM, (x, *params, small), (k, weight is not None))


def group_norm(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(variance + eps) over each group of channels (axis 1) and the axes after, then affine.

    Raises ShapeError unless num_groups divides the channels. As `torch.nn.functional.group_norm`.

    >>> import lazyt as lt
    >>> lt.nn.functional.group_norm(lt.asarray([[-1.0, 1.0]]), 1, eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    params = tuple(p for p in (weight, bias) if p is not None)
    statics = (integer("group_norm", "num_groups", num_groups), weight is not None, bias is not None)
    return record(ops.GROUP_NORM, (x, *params, float(eps)), statics)


def batch_norm(
    x: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) of each channel (axis 1), then affine.

    With `training` the statistics are those of x, and the running ones, where given, are moved towards them in
    place by `momentum`; else the running ones are used. Raises ShapeError if shapes do not fit. As
    `torch.nn.functional.batch_norm`.

    >>> import lazyt as lt
    >>> lt.nn.functional.batch_norm(lt.asarray([[3.0]]), lt.asarray([1.0]), lt.asarray([4.0]), eps=0.0).tolist()
    [[1.0]]
    """
    tracked = running_mean is not None and running_var is not None
    if not training and not tracked:
        raise ShapeError("batch_norm: running statistics are required unless training")
    params = tuple(p for p in (weight, bias) if p is not None)
    stats = () if training else (running_mean, running_var)
    statics = (bool(training), weight is not None, bias is not None)
    y = record(ops.BATCH_NORM, (x, *stats, *params, float(eps)), statics)
    if training and tracked:
        before = set_grad_mode(False)
        try:
            _update(x, running_mean, running_var, momentum)
        finally:
            restore_grad_mode(before)
    return y


def _update(x: Any, mean: Any, var: Any, momentum: Any) -> None:
    m = float(momentum) if type(momentum) in (int, float) else momentum
    record_update(ops.BATCH_NORM_STATISTICS, (tensor(x), mean, var, m), (), [mean, var])
