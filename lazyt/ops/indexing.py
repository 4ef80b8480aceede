"""Reading and writing by index.

`getitem` is basic indexing, a view: its `spec` says what stands at each place of the key, 'all' (a whole
axis), 'int' (one index: the axis goes), ('slice', step) or 'new'; where they start are offsets, how long they
are ints. The rest takes integer arrays, which may count from the end and are checked when they are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, ShapeError
from lazyt.ir import dtypes
from lazyt.ir.builder import broadcast_shapes
from lazyt.ir.graph import Node, Shape, shape_text
from lazyt.ir.symbolic import hint
from lazyt.ops import samples
from lazyt.ops.axes import one_axis
from lazyt.ops.definition import OpDef, Operand, define, node_of, result_type, written
from lazyt.ops.logic import truth
from lazyt.ops.manipulation import node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.symbolic import Dim

Spec = tuple[Any, ...]
SAVED_INDICES = tuple(range(1, 17))


def _window(x: Node, spec: Spec, ints: Shape, offsets: Shape) -> tuple[Shape, Shape, tuple[int, ...], Shape]:
    """The starts, sizes and steps along x's axes, and the shape of the result."""
    starts: list[int | Dim] = []
    sizes: list[int | Dim] = []
    steps: list[int] = []
    shape: list[int | Dim] = []
    start: int | Dim
    size: int | Dim
    length, offset = iter(ints), iter(offsets)
    for item in spec:
        if item == "new":
            shape.append(1)
            continue
        if item == "all":
            start, size, step = 0, x.shape[len(starts)], 1
        elif item == "int":
            start, size, step = next(offset), 1, 1
        else:
            start, size, step = next(offset), next(length), item[1]
        starts.append(start)
        sizes.append(size)
        steps.append(step)
        if item != "int":
            shape.append(size)
    return tuple(starts), tuple(sizes), tuple(steps), tuple(shape)


def _getitem(b: Builder, x: Operand, spec: Spec, ints: Shape, offsets: Shape) -> Node:
    v = node(b, x)
    starts, sizes, steps, shape = _window(v, spec, ints, offsets)
    return b.reshape(b.slice(v, starts, sizes, steps), shape)


def _setitem(b: Builder, base: Node, value: Node, spec: Spec, ints: Shape, offsets: Shape) -> Node:
    starts, sizes, steps, _ = _window(base, spec, ints, offsets)
    return b.update(base, b.reshape(value, sizes), starts, steps)


GETITEM = define("getitem", _getitem, write=_setitem)
# The same view, under the name of the function that makes several of them.
SPLIT = define("split", _getitem, write=_setitem)
UNSTACK = define("unstack", _getitem, write=_setitem)


def _index_node(b: Builder, name: str, i: Operand, extent: int | Dim) -> Node:
    """An index array as int64, its negative entries counted from the end."""
    d = result_type(i)
    if dtypes.kind(d) not in "iu":
        raise DTypeError(f"{name}: indices must be integers, got {d}")
    v = node_of(b, i, dtypes.int64)
    if dtypes.kind(d) == "u":
        return v
    return b.select(b.lt(v, b.constant(0, dtypes.int64)), b.add(v, b.extent(extent)), v)


def _index_nodes(b: Builder, name: str, x: Node, indices: Sequence[Operand], axes: Sequence[int]) -> list[Node]:
    found = [_index_node(b, name, i, x.shape[a]) for i, a in zip(indices, axes, strict=True)]
    shape = broadcast_shapes(b, name, *(i.shape for i in found))
    return [b.expand_to(i, shape) for i in found]


def _index(b: Builder, x: Operand, *rest: Any) -> Node:
    """x at index arrays along `axes`; their broadcast axes come to stand at `at` among x's other axes."""
    *indices, axes, at = rest
    v = node(b, x)
    found = _index_nodes(b, "index", v, indices, axes)
    y = b.gather(v, found, axes)
    k = found[0].ndim
    others = list(range(k, y.ndim))
    return b.permute(y, (*others[:at], *range(k), *others[at:]))


def _put(name: str, mode: str) -> OpDef:
    """x with `value` put (or added) where `index` reads."""

    def lower(b: Builder, x: Operand, value: Operand, *rest: Any) -> Node:
        *indices, axes, at = rest
        v = node(b, x)
        found = _index_nodes(b, name, v, indices, axes)
        inner = found[0].shape
        others = [d for i, d in enumerate(v.shape) if i not in axes]
        target = (*others[:at], *inner, *others[at:])
        u = spread(b, name, written(b, name, value, v.dtype), target)
        u = b.permute(u, (*range(at, at + len(inner)), *range(at), *range(at + len(inner), len(target))))
        return b.scatter(v, u, found, axes, mode)

    return define(name, lower, saves=SAVED_INDICES[1:], fallible=True)


def spread(b: Builder, name: str, value: Node, shape: Shape) -> Node:
    """Broadcast a written value to the place it goes; as in NumPy, leading axes of 1 may be too many."""
    while value.ndim > len(shape) and hint(value.shape[0]) == 1:
        b.same(value.shape[0], 1)
        value = b.reshape(value, value.shape[1:])
    wanted = [hint(d) for d in shape[len(shape) - value.ndim :]] if value.ndim <= len(shape) else None
    if wanted is None or any(hint(d) not in (1, n) for d, n in zip(value.shape, wanted, strict=True)):
        old, new = (shape_text(tuple(map(hint, s))) for s in (value.shape, shape))
        raise ShapeError(f"{name}: the value's shape {old} does not broadcast to {new}")
    return b.expand_to(value, shape)


INDEX = define("index", _index, saves=SAVED_INDICES, fallible=True)
INDEX_PUT = _put("index_put", "set")
ADD_AT = _put("add_at", "add")


def _add_to_slice(b: Builder, x: Operand, value: Operand, spec: Spec, ints: Shape, offsets: Shape) -> Node:
    """x with `value` added to what `getitem` reads."""
    v = node(b, x)
    seen = _getitem(b, v, spec, ints, offsets)
    total = b.add(seen, spread(b, "add_at", written(b, "add_at", value, v.dtype), seen.shape))
    return _setitem(b, v, total, spec, ints, offsets)


ADD_TO_SLICE = define("add_to_slice", _add_to_slice)


def _mask_put(b: Builder, x: Operand, mask: Operand, value: Operand) -> Node:
    """x with `value` where the mask (over x's leading axes) is true; the value broadcasts against the rest
    of x.
    """
    v, m = node(b, x), truth(b, mask)
    for i, d in enumerate(m.shape):
        if hint(d) != hint(v.shape[i]):
            texts = f"{shape_text(tuple(map(hint, m.shape)))} and {shape_text(tuple(map(hint, v.shape)))}"
            raise ShapeError(f"mask_put: the shapes of mask and array do not match: {texts}")
    wide = b.expand(b.reshape(m, (*m.shape, *(1 for _ in v.shape[m.ndim :]))), v.shape)
    u = spread(b, "mask_put", written(b, "mask_put", value, v.dtype), v.shape)
    return b.select(wide, u, v)


MASK_PUT = define("mask_put", _mask_put, saves=(1,))


# Along an axis


def _along(b: Builder, name: str, i: Operand, x: Node, axis: int) -> list[Node]:
    """One index array an axis of x: the given one along `axis`, positions along the others."""
    at = _index_node(b, name, i, x.shape[axis])
    return [at if a == axis else b.iota(at.shape, a) for a in range(x.ndim)]


def _spread_others(b: Builder, name: str, v: Node, axis: int, like: Node) -> Node:
    """v broadcast against `like` along every axis but one."""
    if v.ndim != like.ndim:
        raise ShapeError(f"{name}: indices of {like.ndim} dimensions for an array of {v.ndim}")
    pick = [tuple(d for a, d in enumerate(n.shape) if a != axis) for n in (v, like)]
    others = iter(broadcast_shapes(b, name, *pick))
    return b.expand(v, tuple(v.shape[a] if a == axis else next(others) for a in range(v.ndim)))


def _take_along_axis(b: Builder, x: Operand, indices: Operand, axis: int) -> Node:
    v, i = node(b, x), node(b, indices)
    a = one_axis("take_along_axis", axis, v.ndim)
    v = _spread_others(b, "take_along_axis", v, a, i)
    i = _spread_others(b, "take_along_axis", i, a, v)
    return b.gather(v, _along(b, "take_along_axis", i, v, a), tuple(range(v.ndim)))


_X = samples.array((3, 4))
_I = np.array([[0, -1, 2, 1]])
_FLOAT: Any = ((_X, np.zeros((3, 1))), {}, DTypeError, "indices must be integers")
TAKE_ALONG_AXIS = define(
    "take_along_axis",
    _take_along_axis,
    numpy=np.take_along_axis,
    saves=(1,),
    fallible=True,
    samples=samples.calls(
        (_X, _I, {"axis": 0}),
        (_X, np.array([[1], [-1], [0]]), {"axis": 1}),
        (_X, np.abs(_I).astype("u1"), {"axis": -1}),
        (_X[:1], np.zeros((3, 2), int), {"axis": 1}),
        (_X, np.zeros((3, 0), int), {"axis": 1}),
    ),
    errors=[_FLOAT, ((_X, np.array([0])), {}, ShapeError, "indices of 1 dimensions")],
)


def _put_along(name: str, mode: str, **more: Any) -> OpDef:
    def lower(b: Builder, x: Operand, indices: Operand, values: Operand, axis: int) -> Node:
        v, i = node(b, x), node(b, indices)
        a = one_axis(name, axis, v.ndim)
        i = _spread_others(b, name, i, a, v)
        u = spread(b, name, written(b, name, values, v.dtype), i.shape)
        return b.scatter(v, u, _along(b, name, i, v, a), tuple(range(v.ndim)), mode)

    return define(name, lower, saves=(1,), fallible=True, **more)


def _numpy_put(x: Any, indices: Any, values: Any, axis: int = -1) -> Any:
    y = x.copy()
    np.put_along_axis(y, indices, values, axis)
    return y


def _numpy_scatter_add(x: Any, indices: Any, values: Any, axis: int = -1) -> Any:
    y = x.copy()
    at = list(np.indices(indices.shape))
    at[axis] = indices
    np.add.at(y, tuple(at), values)
    return y


_J = np.array([[0, -1], [1, 1], [3, 2]])
PUT_ALONG_AXIS = _put_along(
    "put_along_axis",
    "set",
    numpy=_numpy_put,
    errors=[((_X, np.zeros((3, 1)), 1.0), {}, *_FLOAT[2:])],
    samples=samples.calls(
        (_X, _I, 9.0, {"axis": 0}),
        (_X, np.array([[1], [-1], [0]]), _X[:, :1], {"axis": 1}),
        (_X.astype("i4"), _I % 3, 5),
    ),
)


def _scatter_add(b: Builder, x: Operand, indices: Operand, values: Operand, axis: int) -> Node:
    """The index array may be smaller than x along the other axes, as in PyTorch."""
    v, i = node(b, x), node(b, indices)
    a = one_axis("scatter_add", axis, v.ndim)
    if i.ndim != v.ndim or any(
        hint(p) > hint(q) for k, (p, q) in enumerate(zip(i.shape, v.shape, strict=True)) if k != a
    ):
        texts = f"{shape_text(tuple(map(hint, i.shape)))} and {shape_text(tuple(map(hint, v.shape)))}"
        raise ShapeError(f"scatter_add: the indices must not be larger than the array beyond axis {a}: {texts}")
    u = spread(b, "scatter_add", written(b, "scatter_add", values, v.dtype), i.shape)
    return b.scatter(v, u, _along(b, "scatter_add", i, v, a), tuple(range(v.ndim)), "add")


SCATTER_ADD = define(
    "scatter_add",
    _scatter_add,
    numpy=_numpy_scatter_add,
    saves=(1,),
    fallible=True,
    samples=samples.calls(
        (_X, _J, _X[:, :2], {"axis": 1}),
        (_X, np.zeros((2, 4), int), 1.0, {"axis": 0}),
        (_X[:2], _J[:1], 2.0),
    ),
    errors=[
        ((_X, np.zeros((3, 1)), 1.0), {}, *_FLOAT[2:]),
        ((_X, _I[:, :1].T.repeat(5, 0), 1.0), {}, ShapeError, "larger"),
    ],
)
