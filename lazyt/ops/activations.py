"""Activation functions that are more than one elementary function; the halves compute in float32 and round once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, ShapeError
from lazyt.ir import dtypes
from lazyt.ir.graph import shape_text
from lazyt.ir.symbolic import hint
from lazyt.ops import samples
from lazyt.ops.axes import one_axis
from lazyt.ops.definition import OpDef, Operand, define, node_of, require_kind, result_type
from lazyt.ops.elementwise import SIGMOID, constant, float_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    Body = Callable[..., Node]


def activation(name: str, body: Body, ref: Callable[..., Any], *params: float, **more: Any) -> OpDef:
    """body(b, x, *params) -> the result; the parameters are scalar operands, `params` their samples."""

    def lower(b: Builder, x: Operand, *scalars: Operand) -> Node:
        d = float_of(result_type(x))
        require_kind(name, d, "f", "a real dtype")
        work = dtypes.computed_in(d)
        return b.cast(body(b, node_of(b, x, work), *(node_of(b, s, work) for s in scalars)), d)

    def calls() -> list[samples.Sample]:
        found = samples.unary("f", also=(dtypes.bfloat16,))()
        return [((x, *params), {}) for (x,), _ in found] if params else list(found)

    def reference(x: Any, *given: Any, **kwargs: Any) -> Any:
        dtype = np.asarray(x).dtype
        return np.asarray(ref(np.asarray(x, np.float64), *given, **kwargs)).astype(dtype)

    errors: list[Any] = [((np.zeros(2, "c8"), *params), {}, DTypeError, f"{name}: a real dtype")]
    return define(name, lower, numpy=reference, samples=calls, errors=errors, saves=(0,), **more)


def sigmoid(b: Builder, x: Node) -> Node:
    y = SIGMOID.lower(b, x)
    assert not isinstance(y, tuple), "sigmoid has one result"
    return y


def softplus(b: Builder, x: Node) -> Node:
    """log(1 + exp(x)) without overflow, in the value and in the derivative."""
    return b.logaddexp(x, constant(b, 0, x))


def _positive(b: Builder, x: Node) -> Node:
    return b.gt(x, constant(b, 0, x))


def _erfc(x: Any) -> Any:
    return np.vectorize(math.erfc, otypes=[np.float64])(x)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _gelu(b: Builder, x: Node) -> Node:
    # erfc rather than 1 + erf: no cancellation for negative x.
    half, root = constant(b, 0.5, x), constant(b, -math.sqrt(0.5), x)
    return b.mul(b.mul(x, half), b.erfc(b.mul(x, root)))


def _gelu_tanh(b: Builder, x: Node) -> Node:
    cube = b.mul(b.mul(x, x), x)
    inside = b.mul(b.add(x, b.mul(cube, constant(b, 0.044715, x))), constant(b, math.sqrt(2 / math.pi), x))
    return b.mul(b.mul(x, constant(b, 0.5, x)), b.add(b.tanh(inside), constant(b, 1, x)))


GELU = activation("gelu", _gelu, lambda x: 0.5 * x * _erfc(-x * math.sqrt(0.5)))
GELU_TANH = activation(
    "gelu_tanh", _gelu_tanh, lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
)
SILU = activation("silu", lambda b, x: b.mul(x, sigmoid(b, x)), lambda x: x * _sigmoid(x))
MISH = activation("mish", lambda b, x: b.mul(x, b.tanh(softplus(b, x))), lambda x: x * np.tanh(np.logaddexp(0, x)))
LOGSIGMOID = activation("logsigmoid", lambda b, x: b.neg(softplus(b, b.neg(x))), lambda x: -np.logaddexp(0, -x))


def _softplus(b: Builder, x: Node, beta: Node, threshold: Node) -> Node:
    scaled = b.mul(x, beta)
    return b.select(b.gt(scaled, threshold), x, b.div(softplus(b, scaled), beta))


def _numpy_softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    return np.where(beta * x > threshold, x, np.logaddexp(0, beta * x) / beta)


SOFTPLUS = activation("softplus", _softplus, _numpy_softplus, 2.0)


def _exp_below(b: Builder, x: Node) -> Node:
    """expm1(x) where x <= 0, and 0 elsewhere: never exp of a positive number."""
    zero = constant(b, 0, x)
    return b.expm1(b.select(_positive(b, x), zero, x))


def _elu(b: Builder, x: Node, alpha: Node) -> Node:
    return b.select(_positive(b, x), x, b.mul(_exp_below(b, x), alpha))


ELU = activation("elu", _elu, lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))), 0.5)

# Klambauer et al.: Self-normalizing neural networks (2017).
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def _selu(b: Builder, x: Node) -> Node:
    below = b.mul(_exp_below(b, x), constant(b, _SELU_ALPHA * _SELU_SCALE, x))
    return b.select(_positive(b, x), b.mul(x, constant(b, _SELU_SCALE, x)), below)


SELU = activation("selu", _selu, lambda x: _SELU_SCALE * np.where(x > 0, x, _SELU_ALPHA * np.expm1(np.minimum(x, 0))))


def _leaky_relu(b: Builder, x: Node, slope: Node) -> Node:
    return b.select(_positive(b, x), x, b.mul(x, slope))


LEAKY_RELU = activation("leaky_relu", _leaky_relu, lambda x, slope=0.01: np.where(x > 0, x, slope * x), 0.2)


def clamped(b: Builder, x: Node, low: Node, high: Node) -> Node:
    """x in [low, high]; NaN passes, and the derivative is 0 at both ends."""
    return b.select(b.le(x, low), low, b.select(b.ge(x, high), high, x))


HARDTANH = activation("hardtanh", clamped, lambda x, low=-1.0, high=1.0: np.clip(x, low, high), -0.5, 2.0)


def _relu6(b: Builder, x: Node) -> Node:
    return clamped(b, x, constant(b, 0, x), constant(b, 6, x))


def _hardsigmoid(b: Builder, x: Node) -> Node:
    return b.div(_relu6(b, b.add(x, constant(b, 3, x))), constant(b, 6, x))


RELU6 = activation("relu6", _relu6, lambda x: np.clip(x, 0, 6))
HARDSIGMOID = activation("hardsigmoid", _hardsigmoid, lambda x: np.clip(x + 3, 0, 6) / 6)
HARDSWISH = activation("hardswish", lambda b, x: b.mul(x, _hardsigmoid(b, x)), lambda x: x * np.clip(x + 3, 0, 6) / 6)
SOFTSIGN = activation(
    "softsign", lambda b, x: b.div(x, b.add(b.abs(x), constant(b, 1, x))), lambda x: x / (1 + np.abs(x))
)


def prelu(b: Builder, x: Node, weight: Node) -> Node:
    d = result_type(x, weight)
    require_kind("prelu", d, "f", "a real dtype")
    work = dtypes.computed_in(d)
    v, w = b.cast(x, work), b.cast(weight, work)
    if w.ndim > 1 or (w.ndim == 1 and hint(w.shape[0]) != 1 and (v.ndim < 2 or hint(w.shape[0]) != hint(v.shape[1]))):
        shapes = " and ".join(shape_text(tuple(map(hint, n.shape))) for n in (v, w))
        raise ShapeError(f"prelu: one weight for all or one a channel (axis 1) is required, got shapes {shapes}")
    if w.ndim == 1:
        w = b.reshape(w, (1, *w.shape, *(1,) * (v.ndim - 2)) if v.ndim > 1 else w.shape if v.ndim else ())
    return b.cast(b.select(_positive(b, v), v, b.mul(v, b.expand_to(w, v.shape))), d)


def _prelu_numpy(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    w = (
        weight.reshape(-1, *(1,) * (x.ndim - 2))
        if weight.ndim and x.ndim > 1
        else weight
        if x.ndim
        else weight.reshape(())
    )
    return np.where(x > 0, x, x * w)


PRELU = define(
    "prelu",
    prelu,
    saves=(0, 1),
    numpy=_prelu_numpy,
    samples=samples.calls(
        *(
            (samples.array(s), samples.array(w))
            for s, w in (((2, 3), (3,)), ((2, 3, 4), (3,)), ((4,), (1,)), ((2, 3), ()), ((), (1,)))
        )
    ),
    errors=[
        ((samples.array((2, 3)), samples.array((2,))), {}, ShapeError, "prelu: one weight for all or one a channel")
    ],
)


def glu(b: Builder, x: Node, axis: int) -> Node:
    at = one_axis("glu", axis, x.ndim)
    if hint(x.shape[at]) % 2:
        raise ShapeError(f"glu: an even extent is required along axis {axis}, got {hint(x.shape[at])}")
    d = x.dtype
    require_kind("glu", d, "f", "a real dtype")
    v = b.cast(x, dtypes.computed_in(d))
    half = x.shape[at] // 2
    b.same(x.shape[at], half * 2)
    sizes = tuple(half if i == at else n for i, n in enumerate(x.shape))

    def part(start: Any) -> Node:
        return b.slice(v, tuple(start if i == at else 0 for i in range(x.ndim)), sizes, (1,) * x.ndim)

    return b.cast(b.mul(part(0), sigmoid(b, part(half))), d)


def _glu_numpy(x: np.ndarray, axis: int = -1) -> np.ndarray:
    p, q = np.split(x, 2, axis)
    return np.asarray(p * _sigmoid(q)).astype(x.dtype)


GLU = define(
    "glu",
    glu,
    saves=(0,),
    numpy=_glu_numpy,
    samples=samples.calls((samples.array((2, 4)),), (samples.array((2, 4)), {"axis": 0})),
    errors=[((samples.array((3,)),), {}, ShapeError, "glu: an even extent is required")],
)
