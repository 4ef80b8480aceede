"""Layers with a batch norm behind them as one layer, and layers without initial values."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from lazyt.errors import LazytError
from lazyt.functions.creation import empty, ones_like, zeros_like
from lazyt.functions.elementwise import rsqrt
from lazyt.functions.manipulation import expand_dims, reshape
from lazyt.functions.random import default_generator
from lazyt.nn.conversion import replace
from lazyt.nn.module import Module
from lazyt.nn.parameter import Parameter
from lazyt.tracing.current import restore_grad_mode, set_grad_mode

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.runtime.tensor import Tensor


def _scaled(bias: Any, mean: Any, var: Any, eps: float, bn_weight: Any, bn_bias: Any) -> tuple[Any, Any]:
    """The factor of each output, and the bias behind it."""
    b = zeros_like(mean) if bias is None else bias
    scale = (ones_like(mean) if bn_weight is None else bn_weight) * rsqrt(var + eps)
    return scale, (b - mean) * scale + (zeros_like(mean) if bn_bias is None else bn_bias)


def fuse_conv_bn_weights(
    conv_w: Any,
    conv_b: Any,
    bn_rm: Any,
    bn_rv: Any,
    bn_eps: float,
    bn_w: Any,
    bn_b: Any,
    transpose: bool = False,
) -> tuple[Tensor, Tensor]:
    """Weight and bias of a convolution (`transpose`: a transposed one) that does what the batch norm behind it did.

    As `torch.nn.utils.fuse_conv_bn_weights`.

    >>> import lazyt as lt
    >>> w, one = lt.ones((1, 1, 1, 1)), lt.ones(1)
    >>> weight, bias = lt.nn.utils.fuse_conv_bn_weights(w, None, one, one, 0.0, one * 2, one)
    >>> weight.item(), bias.item()
    (2.0, -1.0)
    """
    before = set_grad_mode(False)
    try:
        scale, bias = _scaled(conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
        shape = [1] * len(conv_w.shape)
        shape[1 if transpose else 0] = -1
        weight = (conv_w * reshape(scale, tuple(shape))).astype(conv_w.dtype)
        bias = bias.astype(conv_w.dtype)
    finally:
        restore_grad_mode(before)
    return Parameter(weight, conv_w.requires_grad), Parameter(bias, conv_w.requires_grad)


def fuse_linear_bn_weights(
    linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any
) -> tuple[Tensor, Tensor]:
    """Weight and bias of a linear layer that does what the batch norm behind it did.

    As `torch.nn.utils.fuse_linear_bn_weights`.

    >>> import lazyt as lt
    >>> one = lt.ones(1)
    >>> weight, bias = lt.nn.utils.fuse_linear_bn_weights(lt.ones((1, 1)), None, one, one, 0.0, one * 2, one)
    >>> weight.item(), bias.item()
    (2.0, -1.0)
    """
    before = set_grad_mode(False)
    try:
        scale, bias = _scaled(linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
        weight = (linear_w * expand_dims(scale, -1)).astype(linear_w.dtype)
        bias = bias.astype(linear_w.dtype)
    finally:
        restore_grad_mode(before)
    return Parameter(weight, linear_w.requires_grad), Parameter(bias, linear_w.requires_grad)


def _fused(name: str, layer: Module, bn: Any, fuse: Callable[..., tuple[Any, Any]], **options: Any) -> Any:
    if layer.training or bn.training:
        raise LazytError(f"{name}: both modules in eval mode are required; call .eval() first")
    if bn.running_mean is None or bn.running_var is None:
        raise LazytError(f"{name}: a batch norm with running statistics is required, got {bn!r}")
    made = copy.copy(layer)
    for table in ("_parameters", "_buffers", "_modules"):
        made.__dict__[table] = dict(layer.__dict__[table])
    made._parameters["weight"], made._parameters["bias"] = fuse(
        layer.weight, layer.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, **options
    )
    return made


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that does what `conv` and the batch norm behind it do in eval mode, with parameters of its own.

    Raises LazytError unless both are in eval mode and `bn` has running statistics. As
    `torch.nn.utils.fuse_conv_bn_eval`.

    >>> import lazyt as lt
    >>> conv, bn = lt.nn.Conv2d(1, 2, 3).eval(), lt.nn.BatchNorm2d(2).eval()
    >>> lt.nn.utils.fuse_conv_bn_eval(conv, bn)(lt.ones((1, 1, 3, 3))).shape
    (1, 2, 1, 1)
    """
    return _fused("fuse_conv_bn_eval", conv, bn, fuse_conv_bn_weights, transpose=transpose)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer that does what `linear` and the batch norm behind it do in eval mode.

    Raises LazytError unless both are in eval mode, `bn` has running statistics, and it normalises as many features
    as `linear` gives. As `torch.nn.utils.fuse_linear_bn_eval`.

    >>> import lazyt as lt
    >>> linear, bn = lt.nn.Linear(3, 2).eval(), lt.nn.BatchNorm1d(2).eval()
    >>> lt.nn.utils.fuse_linear_bn_eval(linear, bn)(lt.ones((1, 3))).shape
    (1, 2)
    """
    if bn.num_features not in (linear.out_features, 1):
        raise LazytError(
            f"fuse_linear_bn_eval: a batch norm of {linear.out_features} features is required, got {bn.num_features}"
        )
    return _fused("fuse_linear_bn_eval", linear, bn, fuse_linear_bn_weights)


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """A module whose parameters and buffers have no initial values: nothing is drawn, no random numbers are used up.

    As `torch.nn.utils.skip_init`.

    >>> import lazyt as lt
    >>> lt.nn.utils.skip_init(lt.nn.Linear, 3, 2).weight.shape
    (2, 3)
    """
    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise LazytError(f"skip_init: a class of modules is required, got {module_cls!r}")
    generator = default_generator()
    state = generator.get_state()
    try:
        made = module_cls(*args, **kwargs)
    finally:
        generator.set_state(state)
    # What was recorded for the values is dead now, and never runs.
    replace(made, lambda x: empty(x.shape, dtype=x.dtype, device=x.device))
    return made
