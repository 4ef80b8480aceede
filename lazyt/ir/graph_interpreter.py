"""The meaning of the graph IR: a slow NumPy interpreter, one function a primitive, the reference in all tests.

Every node rounds to its dtype; float sums, products and contractions are accumulated in float64.
elementwise.py says what the elementwise primitives do, also where C leaves it undefined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import REFUSALS, IndexOutOfRange, LazytInternalError
from lazyt.ir import dtypes, graph as g
from lazyt.ir.extent_source import Values
from lazyt.ir.library_calls import FUNCTIONS
from lazyt.ir.numpy_semantics import ELEMENTWISE, cast, precise, wide
from lazyt.ir.reduction_order import folded, greatest, joined, rows_of
from lazyt.ir.symbolic import Dim, hint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.ir.graph import Graph, Node

    Array = np.ndarray[Any, Any]
    Number = int | float | complex
    # The trace's extents `s` and scalar arguments `o`; extents are polynomials in both.
    Binding = tuple[Sequence[int], Sequence[Number]]


class Environment:
    """The arguments of an interpreted graph: its inputs, its scalars, and the values of its extents."""

    def __init__(self, inputs: Sequence[Array], scalars: Sequence[Number], binding: Binding | None) -> None:
        self.inputs = inputs
        self.scalars = scalars
        self._values = None if binding is None else Values(*binding)

    def size(self, a: int | Dim) -> int:
        """The value of an extent under the binding; its hint when there is none."""
        return hint(a) if self._values is None else self._values.of(a)

    def shape(self, shape: g.Shape) -> tuple[int, ...]:
        return tuple(self.size(d) for d in shape)

    def static(self, a: Any) -> Any:
        """A static argument with the extents in it evaluated."""
        if isinstance(a, tuple):
            return tuple(self.static(x) for x in a)
        return self.size(a) if isinstance(a, Dim) else a


def interpret(
    graph: Graph | Sequence[Node],
    outputs: Sequence[Node],
    inputs: Sequence[Array],
    scalars: Sequence[Number] = (),
    binding: Binding | None = None,
) -> list[Array]:
    """The values of `outputs`, as fresh C-contiguous arrays.

    `graph` lists the nodes in order; only those that the outputs need are computed. Symbolic
    extents take their hints unless `binding` gives the trace's extents and scalar arguments.
    """
    env = Environment(inputs, scalars, binding)
    nodes = graph.nodes if isinstance(graph, g.Graph) else graph
    wanted = set(g.reachable(outputs))
    values: dict[Node, Any] = {}
    with np.errstate(all="ignore"):
        for n in nodes:
            if n in wanted:
                y = PRIMITIVES[n.op](n, [values[o] for o in n.operands], env)
                values[n] = y if n.op == "opaque" else _checked(n, y, env)
    return [np.array(values[n], order="C") for n in outputs]


def _checked(n: Node, value: Any, env: Environment) -> Array:
    y: Array = np.asarray(value)
    if y.dtype != n.dtype or y.shape != env.shape(n.shape):
        want = f"{n.dtype} {env.shape(n.shape)}"
        raise LazytInternalError(f"the value of a node is {y.dtype} {y.shape}, not {want}\n  {g.node_line(n)}")
    return y


def _elementwise(n: Node, xs: list[Array], env: Environment) -> Array:
    return np.asarray(ELEMENTWISE[n.op](*xs)).astype(n.dtype)


# Sources


def _input(n: Node, xs: list[Array], env: Environment) -> Array:
    assert isinstance(n.attrs, g.Input)
    return env.inputs[n.attrs.index]


def _scalar(n: Node, xs: list[Array], env: Environment) -> Array:
    assert isinstance(n.attrs, g.Scalar)
    v = env.scalars[n.attrs.position]
    # NOTE: an integer becomes a float through a double, as kernels receive it.
    return cast(np.asarray(float(v) if dtypes.kind(n.dtype) in "fc" and isinstance(v, int) else v), n.dtype)


def _constant(n: Node, xs: list[Array], env: Environment) -> Array:
    assert isinstance(n.attrs, g.Constant)
    return cast(np.asarray(n.attrs.value), n.dtype)


def _extent(n: Node, xs: list[Array], env: Environment) -> Array:
    assert isinstance(n.attrs, g.ExtentValue)
    return cast(np.asarray(env.size(n.attrs.extent)), n.dtype)


def _iota(n: Node, xs: list[Array], env: Environment) -> Array:
    assert isinstance(n.attrs, g.Axis)
    return np.asarray(np.indices(env.shape(n.shape), dtype=np.int64)[n.attrs.axis])


# Movement


def _permute(n: Node, xs: list[Array], env: Environment) -> Array:
    assert isinstance(n.attrs, g.Axes)
    return xs[0].transpose(n.attrs.axes)


def _places(n: Node, sizes: tuple[int, ...], lengths: tuple[int, ...], env: Environment) -> tuple[Array, ...]:
    """The index of every element of a slice of `sizes` out of axes of `lengths`, for fancy indexing."""
    assert isinstance(n.attrs, g.Slice)
    out: list[Array] = []
    for start, step, size, length in zip(n.attrs.starts, n.attrs.steps, sizes, lengths, strict=True):
        at = env.size(start) + np.arange(size) * step
        if size and (at.min() < 0 or at.max() >= length):
            raise IndexOutOfRange(f"{n.op} [{at.min()}, {at.max()}] leaves an axis of {length}\n  {g.node_line(n)}")
        out.append(at)
    return np.ix_(*out)


def _slice(n: Node, xs: list[Array], env: Environment) -> Array:
    return xs[0][_places(n, env.shape(n.shape), xs[0].shape, env)]


def _update(n: Node, xs: list[Array], env: Environment) -> Array:
    out = xs[0].copy()
    out[_places(n, xs[1].shape, out.shape, env)] = xs[1]
    return out


def _pad(n: Node, xs: list[Array], env: Environment) -> Array:
    assert isinstance(n.attrs, g.Pad)
    out = np.full(env.shape(n.shape), xs[1], n.dtype)
    out[tuple(slice(lo, lo + d) for lo, d in zip(env.shape(n.attrs.lo), xs[0].shape, strict=True))] = xs[0]
    return out


def _concat(n: Node, xs: list[Array], env: Environment) -> Array:
    assert isinstance(n.attrs, g.Axis)
    return np.concatenate(xs, n.attrs.axis)


def _window(n: Node, xs: list[Array], env: Environment) -> Array:
    assert isinstance(n.attrs, g.Window)
    a, y, counts = n.attrs, xs[0], env.shape(n.shape)
    for axis, size, stride, dilation in zip(a.axes, a.sizes, a.strides, a.dilations, strict=True):
        at = np.arange(counts[axis])[:, None] * stride + np.arange(size) * dilation
        y = np.moveaxis(np.take(y, at, axis), axis + 1, -1)
    return y


# Reductions, contraction, indexing


def _reduce(n: Node, xs: list[Array], env: Environment) -> Array:
    assert isinstance(n.attrs, g.Axes)
    x, axes = joined(xs[0], n.attrs.axes) if n.attrs.joined else (xs[0], n.attrs.axes)
    match n.op:
        case "sum" | "prod":
            y = precise(x)
            return np.asarray(getattr(np, n.op)(y, axis=axes, dtype=y.dtype)).astype(n.dtype)
        case "max" | "min":
            if x.size and dtypes.kind(x.dtype) == "f":
                return folded(n.op, rows_of(x, axes)).astype(n.dtype)
            start = greatest(n.dtype, -1 if n.op == "max" else 1)
            return np.asarray(getattr(np, n.op)(wide(x), axis=axes, initial=start)).astype(n.dtype)
        case "any" | "all":
            return np.asarray(getattr(np, n.op)(x, axis=axes))
        case _:
            return np.asarray(getattr(np, n.op)(wide(x), axis=axes[0]), dtype=np.int64)


def _matmul(n: Node, xs: list[Array], env: Environment) -> Array:
    return np.matmul(*map(precise, xs)).astype(n.dtype)


def _windows(a: g.Convolution, x: Array) -> Array:
    """(N, C, *counts, *sizes): x at every place of the window."""
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in a.padding)))
    apart: tuple[Any, ...] = (slice(None), slice(None), *(slice(None, None, s) for s in a.strides))
    apart += tuple(slice(None, None, e) for e in a.dilations)
    windows: Any = np.lib.stride_tricks.sliding_window_view(x, [r + 1 for r in a.reach], tuple(range(2, x.ndim)))
    out: Array = windows[apart]
    return out


def _grouped(a: g.Convolution, one: Callable[..., Array], x: Array, y: Array, axes: tuple[int, int], to: int) -> Array:
    """`one` of each group's parts of x and y along `axes`, put together along axis `to`."""
    parts = (np.split(v, a.groups, axis) for v, axis in zip((x, y), axes, strict=True))
    return np.concatenate([one(p, q) for p, q in zip(*parts, strict=True)], to)


def _convolve(n: Node, xs: list[Array], env: Environment) -> Array:
    a, (x, w) = n.attrs, map(precise, xs)
    assert isinstance(a, g.Convolution)
    r = len(a.sizes)

    def one(windows: Array, w: Array) -> Array:
        y = np.tensordot(windows, w, ((1, *range(2 + r, 2 + 2 * r)), tuple(range(1, 2 + r))))
        return np.moveaxis(y, -1, 1)

    return _grouped(a, one, _windows(a, x), w, (1, 0), 1).astype(n.dtype)


def _convolve_filter(n: Node, xs: list[Array], env: Environment) -> Array:
    a, (x, y) = n.attrs, map(precise, xs)
    assert isinstance(a, g.Convolution)
    places = tuple(range(2, x.ndim))

    def one(windows: Array, y: Array) -> Array:
        return np.tensordot(windows, y, ((0, *places), (0, *places)))

    return _grouped(a, one, _windows(a, x), y, (1, 1), -1).astype(n.dtype)


def _convolve_image(n: Node, xs: list[Array], env: Environment) -> Array:
    a, (y, w) = n.attrs, map(precise, xs)
    assert isinstance(a, g.Convolution)
    extents = [env.size(d) for d in n.shape[2:]]

    def one(y: Array, w: Array) -> Array:
        out = np.zeros((len(y), w.shape[1], *(d + 2 * p for d, p in zip(extents, a.padding, strict=True))), y.dtype)
        for at in np.ndindex(*a.sizes):
            starts = (i * e for i, e in zip(at, a.dilations, strict=True))
            ends = (slice(i, i + c * s, s) for i, c, s in zip(starts, y.shape[2:], a.strides, strict=True))
            part = np.tensordot(y, w[(slice(None), slice(None), *at)], ((1,), (0,)))
            out[(slice(None), slice(None), *ends)] += np.moveaxis(part, -1, 1)
        inside = (slice(p, p + d) for p, d in zip(a.padding, extents, strict=True))
        return out[(slice(None), slice(None), *inside)]

    return _grouped(a, one, y, w, (1, 0), 1).astype(n.dtype)


def _in_range(n: Node, x: Array, indices: list[Array], axes: tuple[int, ...]) -> tuple[Array, ...]:
    for axis, i in zip(axes, indices, strict=True):
        bad = i[(i < 0) | (i >= x.shape[axis])]
        if bad.size:
            where = f"index {bad.flat[0]} is out of range for axis {axis} of {x.shape[axis]}"
            raise IndexOutOfRange(f"{where}\n  {g.node_line(n)}")
    return tuple(indices)


def _gather(n: Node, xs: list[Array], env: Environment) -> Array:
    assert isinstance(n.attrs, g.Axes)
    x, axes = xs[0], n.attrs.axes
    at = _in_range(n, x, xs[1:], axes)
    return np.asarray(np.moveaxis(x, axes, range(len(axes)))[at])


def _position(n: Node, xs: list[Array], env: Environment) -> Array:
    assert isinstance(n.attrs, g.Sizes)
    total = np.zeros(env.shape(n.shape), np.int64)
    for i, size in zip(xs, env.shape(n.attrs.sizes), strict=True):
        bad = i[(i < 0) | (i >= size)]
        if bad.size:
            name = getattr(n.site, "name", "")
            if name in REFUSALS:
                refused, why = REFUSALS[name]
                raise refused(f"{name}: {why} (recorded at {n.site}; found at the sync)")
            raise IndexOutOfRange(f"index {bad.flat[0]} is out of range for an axis of {size}\n  {g.node_line(n)}")
        total = total * size + i
    return total


def _scatter(n: Node, xs: list[Array], env: Environment) -> Array:
    """'add' adds in index order in the working dtype, and rounds once at the end."""
    assert isinstance(n.attrs, g.Scatter)
    x, v, axes = xs[0], xs[1], n.attrs.axes
    at = _in_range(n, x, xs[2:], axes)
    if n.attrs.mode == "set":
        out = x.copy()
        np.moveaxis(out, axes, range(len(axes)))[at] = v
        return out
    out = wide(x).copy()
    np.add.at(np.moveaxis(out, axes, range(len(axes))), at, wide(v))
    return out.astype(n.dtype)


def _opaque(n: Node, xs: list[Array], env: Environment) -> Any:
    assert isinstance(n.attrs, g.Opaque)
    out = FUNCTIONS[n.attrs.fn](*xs, *map(env.static, n.attrs.statics))
    return out if isinstance(out, tuple) else (out,)


def _item(n: Node, xs: list[Any], env: Environment) -> Array:
    assert isinstance(n.attrs, g.Item)
    x = np.asarray(xs[0][n.attrs.index])
    # NOTE: functions compute halves as float32.
    return x.astype(n.dtype) if n.dtype in dtypes.HALVES and x.dtype == dtypes.float32 else x


PRIMITIVES: dict[str, Callable[[Node, list[Any], Environment], Any]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(("sum", "prod", "max", "min", "any", "all", "argmax", "argmin"), _reduce),
    "input": _input,
    "scalar": _scalar,
    "constant": _constant,
    "extent": _extent,
    "iota": _iota,
    "cast": lambda n, xs, env: cast(xs[0], n.dtype),
    "stop": lambda n, xs, env: xs[0],
    "track": lambda n, xs, env: xs[0],
    "known": lambda n, xs, env: xs[1],
    "normalized": lambda n, xs, env: xs[0],
    "permute": _permute,
    "reshape": lambda n, xs, env: xs[0].reshape(env.shape(n.shape)),
    "expand": lambda n, xs, env: np.broadcast_to(xs[0], env.shape(n.shape)),
    "slice": _slice,
    "update": _update,
    "pad": _pad,
    "concat": _concat,
    "window": _window,
    "matmul": _matmul,
    "convolve": _convolve,
    "convolve_filter": _convolve_filter,
    "convolve_image": _convolve_image,
    "gather": _gather,
    "scatter": _scatter,
    "position": _position,
    "opaque": _opaque,
    "item": _item,
}
