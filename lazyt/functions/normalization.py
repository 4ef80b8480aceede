"""Normalisations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import ArgumentError, ShapeError
from lazyt.functions.arguments import record, tensor
from lazyt.functions.arithmetic import add, divide, multiply, pow
from lazyt.functions.padding import pad
from lazyt.functions.reductions import mean
from lazyt.functions.reshaping import sliding_window_view
from lazyt.ops import instance_normalization as instance, normalization as ops
from lazyt.ops.axes import integer
from lazyt.tracing.autocast import autocasts
from lazyt.tracing.batched_writes import record_update
from lazyt.tracing.current import restore_grad_mode, set_grad_mode

if TYPE_CHECKING:
    from lazyt.ops.definition import OpDef
    from lazyt.runtime.tensor import Tensor

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm"]


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
    x = tensor(x)
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
    x = tensor(x)
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
    if training and not eps > 0:
        raise ArgumentError(f"batch_norm: an eps above 0 is required in training, got {eps}")
    params = tuple(p for p in (weight, bias) if p is not None)
    stats = () if training else (running_mean, running_var)
    statics = (bool(training), weight is not None, bias is not None)
    y = record(ops.BATCH_NORM, (x, *stats, *params, float(eps)), statics)
    if training and tracked:
        _update(ops.BATCH_NORM_STATISTICS, x, running_mean, running_var, momentum)
    return y


def _update(op: OpDef, x: Any, mean: Any, var: Any, momentum: Any) -> None:
    """Move the running statistics, in place and beside the gradients; a batch of nothing has none to move to."""
    if 0 in x.shape:
        return
    m = float(momentum) if type(momentum) in (int, float) else momentum
    before = set_grad_mode(False)
    try:
        record_update(op, (tensor(x), mean, var, m), (), [mean, var])
    finally:
        restore_grad_mode(before)


def instance_norm(
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) of each channel of each sample of (N, C, ...), then affine.

    With `use_input_stats` the statistics are those of x, and the running ones, where given, are moved in place by
    `momentum` towards the mean of the samples'; else the running ones are used. Raises ShapeError if shapes do not fit.
    As `torch.nn.functional.instance_norm`.

    >>> import lazyt as lt
    >>> lt.nn.functional.instance_norm(lt.asarray([[[-1.0, 1.0]]]), eps=0.0).tolist()
    [[[-1.0, 1.0]]]
    """
    tracked = running_mean is not None and running_var is not None
    if not use_input_stats:
        if not tracked:
            raise ShapeError("instance_norm: running statistics are required unless use_input_stats")
        return batch_norm(x, running_mean, running_var, weight, bias, False, 0.0, eps)
    params = tuple(p for p in (weight, bias) if p is not None)
    y = record(instance.INSTANCE_NORM, (x, *params, float(eps)), (weight is not None, bias is not None))
    if tracked:
        _update(instance.INSTANCE_NORM_STATISTICS, x, running_mean, running_var, momentum)
    return y


@autocasts("local_response_norm")
def local_response_norm(x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha * the mean of x ** 2 over `size` neighbouring channels) ** beta, channels being axis 1.

    Beyond the channels are zeros. Raises ShapeError for less than three dimensions or a size below 1. As
    `torch.nn.functional.local_response_norm`.

    >>> import lazyt as lt
    >>> lt.nn.functional.local_response_norm(lt.asarray([[[2.0], [4.0]]]), 1, 1.0, 1.0, 0.0).tolist()
    [[[0.5], [0.25]]]
    """
    t, n = tensor(x), integer("local_response_norm", "size", size)
    if t.ndim < 3 or n < 1:
        raise ShapeError(
            f"local_response_norm: an input (N, C, ...) and a size of at least 1 are required, got shape {t.shape} "
            f"and {size}"
        )
    wide = pad(multiply(t, t), {1: (n // 2, (n - 1) // 2)})
    means = mean(sliding_window_view(wide, n, axis=1), axis=-1)
    return divide(t, pow(add(multiply(means, alpha), k), beta))
