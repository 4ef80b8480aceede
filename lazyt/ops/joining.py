"""Concatenation, repetition, rolling and padding of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.ir.graph import Node, Shape, shape_text
from lazyt.ir.symbolic import hint
from lazyt.ops import samples
from lazyt.ops.axes import one_axis
from lazyt.ops.definition import Operand, define, node_of, result_type, written
from lazyt.ops.manipulation import node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.symbolic import Dim

# So many axes are rolled in one pass: of 2 to the power of them parts.
ROLLED = 3


def _hints(shape: Shape) -> Shape:
    return tuple(map(hint, shape))


def _same_dtype(b: Builder, name: str, xs: Sequence[Operand]) -> list[Node]:
    if not xs:
        raise ShapeError(f"{name}: at least one array is required")
    d = result_type(*xs)
    return [node_of(b, x, d) for x in xs]


def _concat(b: Builder, *rest: Any) -> Node:
    *xs, axis = rest
    nodes = _same_dtype(b, "concat", xs)
    first = nodes[0]
    at = one_axis("concat", axis, first.ndim)
    for v in nodes[1:]:
        if v.ndim != first.ndim or any(
            hint(p) != hint(q) for i, (p, q) in enumerate(zip(first.shape, v.shape, strict=True)) if i != at
        ):
            texts = f"{shape_text(_hints(first.shape))} and {shape_text(_hints(v.shape))}"
            raise ShapeError(f"concat: shapes {texts} differ beyond axis {at}")
    return b.concat(nodes, at)


_X = samples.array((2, 3))
CONCAT = define(
    "concat",
    _concat,
    numpy=np.concatenate,
    samples=samples.calls(
        ([_X, _X + 1],),
        ([_X, _X[:, :1]], {"axis": 1}),
        ([_X, _X.astype("f8"), _X[:0]], {"axis": 0}),
        ([_X],),
        ([_X, _X[:, :0]], {"axis": -1}),
        ([_X, _X[0, :1]], {"axis": None}),
        ([_X.astype("i4"), _X > 0],),
    ),
    errors=[
        (([_X, _X[:, :2]],), {}, ShapeError, r"concat: shapes \(2, 3\) and \(2, 2\) differ beyond axis 0"),
        (([],), {}, ShapeError, "concat: at least one array"),
        (([_X, _X[0]],), {}, ShapeError, "differ beyond axis"),
    ],
)


def _stack(b: Builder, *rest: Any) -> Node:
    *xs, axis = rest
    nodes = _same_dtype(b, "stack", xs)
    first = nodes[0]
    at = one_axis("stack", axis, first.ndim + 1)
    for v in nodes[1:]:
        if _hints(v.shape) != _hints(first.shape):
            texts = f"{shape_text(_hints(first.shape))} and {shape_text(_hints(v.shape))}"
            raise ShapeError(f"stack: all shapes must be equal, got {texts}")
    # NOTE: one shape for all. Where a part begins would be the sum of the sizes before it else: a square of terms.
    shape = first.shape
    for v in nodes[1:]:
        shape = b.same_shape(shape, v.shape)
    return b.concat([b.reshape(v, (*shape[:at], 1, *shape[at:])) for v in nodes], at)


STACK = define(
    "stack", _stack, numpy=np.stack, samples=samples.calls(
        ([_X, _X + 1],), ([_X, _X.astype("f8")], {"axis": -1}), ([_X, _X, _X], {"axis": 1}), ([_X[0, 0]],),
    ), errors=[
        (([_X, _X[0]],), {}, ShapeError, r"stack: all shapes must be equal, got \(2, 3\) and \(3,\)"),
        (([],), {}, ShapeError, "stack: at least one array"),
        (([_X],), {"axis": 4}, ShapeError, "stack: axis 4"),
    ],
)  # fmt: skip


def _tile(b: Builder, x: Operand, ints: Shape) -> Node:
    """One repetition an axis of x (the caller made the ranks equal)."""
    v = node(b, x)
    pairs: list[int | Dim] = [e for d in v.shape for e in (1, d)]
    grown: list[int | Dim] = [e for r, d in zip(ints, v.shape, strict=True) for e in (r, d)]
    wide = b.expand(b.reshape(v, tuple(pairs)), tuple(grown))
    return b.reshape(wide, tuple(r * d for r, d in zip(ints, v.shape, strict=True)))


TILE = define("tile", _tile, numpy=np.tile, samples=samples.calls(
    (_X, 2), (_X, (3, 2)), (_X, (2, 1, 1)), (_X[0, 0], (2, 2)), (_X, (1, 1)), (_X[:0], (2, 2)), (_X, ()),
    (_X[:1], (3, 1)), (_X, 0),
))  # fmt: skip


def _repeat(b: Builder, x: Operand, axis: int, ints: Shape) -> Node:
    v = node(b, x)
    at = one_axis("repeat", axis, v.ndim)
    (r,) = ints
    before, n, after = v.shape[:at], v.shape[at], v.shape[at + 1 :]
    wide = b.expand(b.reshape(v, (*before, n, 1, *after)), (*before, n, r, *after))
    return b.reshape(wide, (*before, n * r, *after))


REPEAT = define(
    "repeat",
    _repeat,
    numpy=np.repeat,
    samples=samples.calls(
        (_X, 3),
        (_X, 2, {"axis": 0}),
        (_X, 2, {"axis": -1}),
        (_X, 0, {"axis": 1}),
        (_X[:0], 2, {"axis": 1}),
    ),
    errors=[
        ((_X, 2), {"axis": 2}, ShapeError, "repeat: axis 2"),
        ((_X, -1), {"axis": 0}, ShapeError, "repeat: .*negative"),
    ],
)


def _part(b: Builder, v: Node, axis: int, start: int | Dim, size: int | Dim, step: int = 1) -> Node:
    """x[start : start + size * step : step] along one axis."""
    starts = tuple(start if i == axis else 0 for i in range(v.ndim))
    sizes = tuple(size if i == axis else d for i, d in enumerate(v.shape))
    return b.slice(v, starts, sizes, tuple(step if i == axis else 1 for i in range(v.ndim)))


def _roll(b: Builder, x: Operand, axes: tuple[int, ...], ints: Shape) -> Node:
    """By `ints` (each in [0, extent)) along `axes`."""
    v = node(b, x)
    left = list(zip(axes, ints, strict=True))
    while left:
        now: dict[int, int | Dim] = {}
        later = []
        for axis, k in left:
            if axis in now or len(now) == ROLLED:
                later.append((axis, k))
            else:
                now[axis] = k
        v = _rolled(b, v, list(now.items()))
        left = later
    return v


def _rolled(b: Builder, v: Node, at: Sequence[tuple[int, int | Dim]]) -> Node:
    """By so many along each of these axes, every element moved once."""
    if not at:
        return v
    (axis, k), *others = at
    n = v.shape[axis]
    parts = (_part(b, v, axis, n - k, k), _part(b, v, axis, 0, n - k))
    return b.concat([_rolled(b, part, others) for part in parts], axis)


ROLL = define(
    "roll",
    _roll,
    numpy=np.roll,
    samples=samples.calls(
        (_X, 1),
        (_X, 1, {"axis": 1}),
        (_X, (-1, 2), {"axis": (0, 1)}),
        (_X, 0, {"axis": 0}),
        (_X[:0], 3, {"axis": 0}),
        (_X, (1, 1), {"axis": (0, 0)}),
        (_X, -4),
        (_X, 2, {"axis": (0, 1)}),
    ),
    errors=[((_X, 1), {"axis": 2}, ShapeError, "roll: axis 2")],
)

# Padding


def _sides(b: Builder, v: Node, axis: int, lo: int | Dim, hi: int | Dim, mode: str) -> list[Node]:
    """What stands before, within and after one axis."""
    n = v.shape[axis]
    match mode:
        case "edge":

            def spread(start: int | Dim, size: int | Dim) -> Node:
                one = _part(b, v, axis, start, 1)
                return b.expand(one, tuple(size if i == axis else d for i, d in enumerate(one.shape)))

            return [spread(0, lo), v, spread(n - 1, hi)]
        case "reflect":
            return [_part(b, v, axis, lo, lo, -1), v, _part(b, v, axis, n - 2, hi, -1)]
        case "symmetric":
            return [_part(b, v, axis, lo - 1, lo, -1), v, _part(b, v, axis, n - 1, hi, -1)]
        case _:
            return [_part(b, v, axis, n - lo, lo), v, _part(b, v, axis, 0, hi)]


def _pad(b: Builder, x: Operand, value: Operand, mode: str, axes: tuple[int, ...], ints: Shape) -> Node:
    """`ints` holds a pair (before, after) for each of `axes`."""
    v = node(b, x)
    pairs = dict(zip(axes, zip(ints[::2], ints[1::2], strict=True), strict=True))
    if mode == "constant":
        lo = tuple(pairs[i][0] if i in pairs else 0 for i in range(v.ndim))
        shape = tuple(d + pairs[i][0] + pairs[i][1] if i in pairs else d for i, d in enumerate(v.shape))
        fill = written(b, "pad", value, v.dtype)
        if fill.shape:
            raise ShapeError(f"pad: a 0-d constant is required, got shape {shape_text(_hints(fill.shape))}")
        return b.pad(v, lo, shape, fill) if pairs else v
    for axis, (before, after) in pairs.items():
        if hint(v.shape[axis]) == 0:
            raise ShapeError(f"pad: mode {mode!r} cannot extend the shape {shape_text(_hints(v.shape))}")
        v = b.concat(_sides(b, v, axis, before, after, mode), axis)
    return v


def _numpy_pad(x: Any, pad_width: Any, mode: str = "constant", **more: Any) -> Any:
    return np.pad(x, pad_width, mode, **more)  # type: ignore[call-overload]


PAD = define(
    "pad",
    _pad,
    numpy=_numpy_pad,
    samples=samples.calls(
        (_X, 1),
        (_X, (2, 1)),
        (_X, ((0, 1), (2, 0)), {"constant_values": 7}),
        (_X, ((0, 0), (1, 2)), "edge"),
        (_X, ((1, 1), (2, 1)), "reflect"),
        (_X, ((1, 2), (0, 3)), "symmetric"),
        (_X, ((0, 1), (3, 2)), "wrap"),
        (_X[:0], 1),
        (_X[0, 0], 0),
        (_X, 0),
        (_X, ((0, 0), (5, 4)), "reflect"),
        (_X.astype("i4"), 1, "edge"),
        (_X, {0: 1, -1: (0, 2)}, {}),
    ),
    errors=[
        ((_X, ((-1, 0), (0, 0))), {}, ShapeError, "pad: .*negative"),
        ((_X, ((1, 0), (0, 0), (0, 0))), {}, ShapeError, "pad: pad_width"),
        ((_X, 1, "nonsense"), {}, ValueError, "pad: mode"),
    ],
)
