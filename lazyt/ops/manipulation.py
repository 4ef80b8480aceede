"""Shape changes that keep the elements: mostly views, each with its rule for writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.ir import dtypes
from lazyt.ir.graph import Node, shape_text
from lazyt.ir.symbolic import hint, product
from lazyt.ops import samples
from lazyt.ops.axes import Axis, many_axes
from lazyt.ops.definition import OpDef, Operand, define, node_of, result_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Shape


def node(b: Builder, x: Operand) -> Node:
    return node_of(b, x, result_type(x))


def _hints(shape: Shape) -> Shape:
    return tuple(map(hint, shape))


def _view(name: str, lower: Callable[..., Node], ref: Any, sample: Any, errors: Any = ()) -> OpDef:
    """A view that keeps every element: it is written through by reshaping the value back."""

    def write(b: Builder, base: Node, value: Node, *statics: Any, **more: Any) -> Node:
        return b.reshape(value, base.shape)

    return define(name, lower, write=write, numpy=ref, samples=sample, errors=errors)


_X = samples.array((2, 3, 4))


def _reshape(b: Builder, x: Operand, ints: Shape) -> Node:
    v = node(b, x)
    if hint(product(v.shape)) != hint(product(ints)):
        raise ShapeError(f"reshape: shape {shape_text(_hints(v.shape))} cannot become {shape_text(_hints(ints))}")
    return b.reshape(v, ints)


RESHAPE = _view("reshape", _reshape, np.reshape, samples.calls(
    (_X, (6, 4)), (_X, (4, -1)), (_X, -1), (_X, (2, 1, 3, 2, 2)), (_X[:0], (5, 0)), (_X[0, 0, 0], (1, 1)),
    (_X[:1, :1, :1], ()), (_X.astype(dtypes.bfloat16), (3, 8)), (_X[:0], (-1, 4)),
), [
    ((_X, (5, 5)), {}, ShapeError, r"reshape: shape \(2, 3, 4\) cannot become \(5, 5\)"),
    ((_X, (5, -1)), {}, ShapeError, "reshape: shape"),
    ((_X, (-1, -1)), {}, ShapeError, "one extent"),
])  # fmt: skip


# As `reshape`, and no view: the values are its own.
FLATTEN = define(
    "flatten", _reshape, numpy=np.ravel, samples=samples.calls((_X,), (_X[:0],), (_X[0, 0, 0],), (_X.astype("i4"),))
)


def _expand_dims(b: Builder, x: Operand, axis: Axis) -> Node:
    v = node(b, x)
    n = len(axis) if isinstance(axis, tuple | list) else 1
    new = many_axes("expand_dims", axis, v.ndim + n)
    old = iter(v.shape)
    return b.reshape(v, tuple(1 if i in new else next(old) for i in range(v.ndim + n)))


EXPAND_DIMS = _view("expand_dims", _expand_dims, np.expand_dims, samples.calls(
    (_X, 0), (_X, {"axis": -1}), (_X, {"axis": (0, 2)}), (_X[0, 0, 0], {"axis": 0})
), [((_X,), {"axis": 5}, ShapeError, "expand_dims: axis 5 is out of bounds")])  # fmt: skip


def _squeeze(b: Builder, x: Operand, axis: Axis) -> Node:
    v = node(b, x)
    axes = many_axes("squeeze", axis, v.ndim)
    for a in axes:
        if hint(v.shape[a]) != 1:
            raise ShapeError(f"squeeze: axis {a} has extent {hint(v.shape[a])}, not 1")
        b.same(v.shape[a], 1)
    return b.reshape(v, tuple(d for i, d in enumerate(v.shape) if i not in axes))


_ONES = samples.array((1, 3, 1))
SQUEEZE = _view("squeeze", _squeeze, np.squeeze, samples.calls(
    (_ONES, {"axis": 0}), (_ONES, {"axis": (0, 2)}), (_ONES, {"axis": -1}), (_ONES,), (_X,)
), [((_X,), {"axis": 1}, ShapeError, "squeeze: axis 1 has extent 3, not 1")])  # fmt: skip


def _permute_axes(name: str, axes: Axis, ndim: int) -> tuple[int, ...]:
    order = tuple(reversed(range(ndim))) if axes is None else many_axes(name, axes, ndim)
    if len(order) != ndim:
        raise ShapeError(f"{name}: {len(order)} axes were given for an array of {ndim} dimensions")
    return order


def _permute(b: Builder, x: Operand, axes: Axis) -> Node:
    v = node(b, x)
    return b.permute(v, _permute_axes("permute_dims", axes, v.ndim))


def _permute_back(b: Builder, base: Node, value: Node, axes: Axis) -> Node:
    order = _permute_axes("permute_dims", axes, base.ndim)
    return b.permute(value, tuple(order.index(i) for i in range(len(order))))


PERMUTE_DIMS = define(
    "permute_dims", _permute, write=_permute_back, numpy=np.transpose, samples=samples.calls(
        (_X, (2, 0, 1)), (_X, (0, 1, 2)), (_X, (-1, 1, 0)), (_X[0, 0, 0], ()), (_X[:, :0], (1, 2, 0))
    ), errors=[
        ((_X, (0, 1)), {}, ShapeError, "permute_dims: 2 axes were given for an array of 3"),
        ((_X, (0, 1, 1)), {}, ShapeError, "permute_dims: .* twice"),
    ],
)  # fmt: skip


def _flip(b: Builder, x: Operand, axis: Axis) -> Node:
    v = node(b, x)
    return b.flip(v, many_axes("flip", axis, v.ndim))


FLIP = define(
    "flip",
    _flip,
    write=lambda b, base, value, axis: _flip(b, value, axis),
    numpy=np.flip,
    samples=samples.calls((_X,), (_X, {"axis": 1}), (_X, {"axis": (0, -1)}), (_X[:0],), (_X[0, 0, 0],)),
    errors=[((_X,), {"axis": 3}, ShapeError, "flip: axis 3")],
)


def _broadcast_to(b: Builder, x: Operand, ints: Shape) -> Node:
    v = node(b, x)
    old = _hints(v.shape)
    fits = len(old) <= len(ints) and all(
        d in (1, hint(n)) for d, n in zip(old, ints[len(ints) - len(old) :], strict=True)
    )
    if not fits:
        raise ShapeError(f"broadcast_to: shape {shape_text(old)} does not broadcast to {shape_text(_hints(ints))}")
    return b.expand_to(v, ints)


BROADCAST_TO = define(
    "broadcast_to",
    _broadcast_to,
    numpy=np.broadcast_to,
    samples=samples.calls(
        (_X, (5, 2, 3, 4)),
        (_X[:, :1], (2, 7, 4)),
        (_X[0, 0, 0], (2, 2)),
        (_X, (2, 3, 4)),
        (_X[:1], (0, 3, 4)),
    ),
    errors=[
        ((_X, (2, 3, 5)), {}, ShapeError, r"broadcast_to: shape \(2, 3, 4\)"),
        ((_X, (3, 4)), {}, ShapeError, "does not broadcast"),
    ],
)


def _astype(b: Builder, x: Operand, dtype: np.dtype) -> Node:
    return b.cast(node(b, x), dtype)


def _numpy_astype(x: Any, dtype: Any, copy: bool = True) -> Any:
    with np.errstate(all="ignore"):
        return x.astype(dtype, copy=copy)


ASTYPE = define("astype", _astype, numpy=_numpy_astype, samples=samples.calls(
    (_X, np.float64), (_X, np.int32), (_X, np.bool_), (_X.astype("i4"), np.float16), (_X, np.complex64),
    (_X, dtypes.bfloat16), (_X, np.float32), (_X > 0, np.int8), (_X, np.int64, {"copy": False}),
))  # fmt: skip


# Windows


def _windows(b: Builder, x: Operand, axes: tuple[int, ...], sizes: tuple[int, ...], strides: tuple[int, ...]) -> Node:
    """Windows over some axes, in new last axes; one axis after another, as an axis may be named twice."""
    v = node(b, x)
    for axis, size, stride in zip(axes, sizes, strides, strict=True):
        v = b.window(v, (axis,), (size,), (stride,), (1,))
    return v


WINDOWS = define(
    "sliding_window_view",
    _windows,
    numpy=np.lib.stride_tricks.sliding_window_view,
    samples=samples.calls((_X, 2, {"axis": 2}), (_X, (3, 2), {"axis": (1, -1)}), (_X[0, 0], 4), (_X, (1, 2, 2))),
    errors=[((_X, 4, 1), {}, ShapeError, "sliding_window_view: a window of 4 does not fit into an extent of 3")],
)
