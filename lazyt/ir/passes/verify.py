"""The rules of a valid graph, checked between passes: the grammar of graph.py.

Extents are compared by their hints: a graph is checked for the trace that is being planned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.errors import LazytInternalError
from lazyt.ir import dtypes, graph as g
from lazyt.ir.library_calls import EFFECTS, FUNCTIONS
from lazyt.ir.prims import ELEMENTWISE, REDUCTIONS, SOURCES, result_dtype
from lazyt.ir.symbolic import hint, product

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.ir.graph import Graph, Node

    Rule = Callable[[Node], str | None]


def verify(graph: Graph) -> None:
    """Raise LazytInternalError at the first node that breaks a rule of the grammar."""
    seen: set[Node] = set()
    for n in graph.nodes:
        why = check_node(n)
        if any(o not in seen for o in n.operands):
            why = "operand used before it is defined"
        if why:
            raise LazytInternalError(f"invalid graph: {why}\n  {g.node_line(n)}\n{graph}")
        seen.add(n)
    for n in graph.outputs:
        if n not in seen:
            raise LazytInternalError(f"invalid graph: an output is not a node of it\n  {g.node_line(n)}")
    _check_effects(graph)


def _check_effects(graph: Graph) -> None:
    """Effects form one chain: each takes the token of the one before it, and the last one's token is an output."""
    last: Node | None = None
    for n in graph.nodes:
        if is_effect(n):
            if last is not None and _effect_of(n.operands[-1]) is not last:
                why = "an effect takes the token of the one before it"
                raise LazytInternalError(f"invalid graph: {why}\n  {g.node_line(n)}\n{graph}")
            last = n
    if last is not None and all(_effect_of(o) is not last for o in graph.outputs):
        why = "the token of the last effect is an output"
        raise LazytInternalError(f"invalid graph: {why}\n  {g.node_line(last)}\n{graph}")


def is_effect(n: Node) -> bool:
    """Whether a node is called for its effect."""
    return isinstance(n.attrs, g.Opaque) and n.attrs.fn in EFFECTS


def _effect_of(n: Node) -> Node | None:
    """The effect whose token a value is."""
    while n.op in ("stop", "track"):
        n = n.operands[0]
    return n.operands[0] if n.op == "item" and is_effect(n.operands[0]) else None


def check_node(n: Node) -> str | None:
    """Why `n` breaks its primitive's rule, or None."""
    if n.op not in _FORM:
        return f"unknown primitive {n.op}"
    attrs, least, most = _FORM[n.op]
    if type(n.attrs) is not attrs:
        return f"{n.op} has attrs of type {attrs.__name__}"
    if not least <= len(n.operands) <= most:
        return f"{n.op} takes {least} operands, got {len(n.operands)}"
    if n.dtype not in dtypes.ALL:
        return f"dtype {n.dtype} is not supported"
    if any(hint(d) < 0 for d in n.shape):
        return f"shape {g.shape_text(n.shape)} has a negative extent"
    # Only `item` may see the tuple that an opaque call gives.
    if n.op != "item" and any(o.op == "opaque" for o in n.operands):
        return "an opaque call is read through item"
    rule = _RULES.get(n.op)
    return rule(n) if rule else None


def _same(a: g.Shape, b: g.Shape) -> bool:
    return len(a) == len(b) and all(x is y or hint(x) == hint(y) for x, y in zip(a, b, strict=True))


def _elementwise(n: Node) -> str | None:
    rec = ELEMENTWISE[n.op]
    if any(not _same(o.shape, n.shape) for o in n.operands):
        return f"{n.op} operands must have the node's shape"
    last = n.operands[-1].dtype
    if n.op == "random_bits":
        want = (dtypes.uint64, dtypes.uint64, dtypes.int64)
        if tuple(o.dtype for o in n.operands) != want:
            return "random_bits takes uint64, uint64, int64"
        return None if n.dtype == dtypes.uint64 else "random_bits gives uint64"
    if dtypes.kind(last) not in rec.kinds:
        return f"{n.op} is not defined for {last}"
    if n.op == "select":
        if n.operands[0].dtype != dtypes.bool_ or n.operands[1].dtype != last:
            return "select takes (bool, x, x)"
    elif any(o.dtype != last for o in n.operands):
        return f"{n.op} operands must share one dtype"
    return None if n.dtype == result_dtype(n.op, last) else f"{n.op} gives {result_dtype(n.op, last)}"


def _scalar(n: Node) -> str | None:
    return None if n.shape == () else f"{n.op} is 0-d"


def _iota(n: Node) -> str | None:
    assert isinstance(n.attrs, g.Axis)
    if not 0 <= n.attrs.axis < n.ndim:
        return "iota axis is out of range"
    return None if n.dtype == dtypes.int64 else "iota gives int64"


def _keeps_dtype(rule: Rule) -> Rule:
    def check(n: Node) -> str | None:
        return rule(n) if n.dtype == n.operands[0].dtype else f"{n.op} keeps the dtype"

    return check


def _keeps_shape(n: Node) -> str | None:
    return None if _same(n.operands[0].shape, n.shape) else f"{n.op} keeps the shape"


def _permute(n: Node) -> str | None:
    assert isinstance(n.attrs, g.Axes)
    x, axes = n.operands[0], n.attrs.axes
    if sorted(axes) != list(range(x.ndim)):
        return "permute axes must be a permutation"
    return None if _same(tuple(x.shape[i] for i in axes), n.shape) else "permute permutes the shape"


def _reshape(n: Node) -> str | None:
    same = hint(product(n.operands[0].shape)) == hint(product(n.shape))
    return None if same else "reshape keeps the element count"


def _expand(n: Node) -> str | None:
    old = n.operands[0].shape
    fits = len(old) == n.ndim and all(hint(p) in (hint(q), 1) for p, q in zip(old, n.shape, strict=True))
    return None if fits else "expand grows axes of extent 1 only"


def _inside(n: Node, sizes: g.Shape, lengths: g.Shape) -> str | None:
    """The rule of slice and update: x[start + i * step] exists for every i."""
    a = n.attrs
    assert isinstance(a, g.Slice)
    if not len(a.starts) == len(a.steps) == len(sizes) == len(lengths):
        return f"{n.op} has one start and one step an axis"
    for start, step, size, length in zip(a.starts, a.steps, sizes, lengths, strict=True):
        first, last = hint(start), hint(start) + (hint(size) - 1) * step
        if step == 0:
            return f"{n.op} steps are not 0"
        if hint(size) > 0 and not (0 <= first < hint(length) and 0 <= last < hint(length)):
            return f"{n.op} start {start} step {step} size {size} leaves an axis of {length}"
    return None


def _slice(n: Node) -> str | None:
    return _inside(n, n.shape, n.operands[0].shape)


def _update(n: Node) -> str | None:
    x, v = n.operands
    if not _same(x.shape, n.shape) or v.dtype != n.dtype:
        return "update keeps shape and dtype"
    return _inside(n, v.shape, n.shape)


def _pad(n: Node) -> str | None:
    assert isinstance(n.attrs, g.Pad)
    x, value = n.operands
    if value.shape != () or value.dtype != n.dtype:
        return "pad takes x and a 0-d value of its dtype"
    lo = n.attrs.lo
    fits = len(lo) == x.ndim == n.ndim and all(
        hint(p) == 0 or (hint(d) >= 0 and hint(d) + hint(p) <= hint(q))
        for d, p, q in zip(lo, x.shape, n.shape, strict=True)
    )
    return None if fits else "pad only grows"


def _concat(n: Node) -> str | None:
    assert isinstance(n.attrs, g.Axis)
    axis = n.attrs.axis
    if not 0 <= axis < n.ndim or any(o.ndim != n.ndim for o in n.operands):
        return "concat operands have one rank, and the axis is in it"
    if sum(hint(o.shape[axis]) for o in n.operands) != hint(n.shape[axis]):
        return "concat extents do not add up"

    def others(shape: g.Shape) -> g.Shape:
        return (*shape[:axis], *shape[axis + 1 :])

    if any(not _same(others(o.shape), others(n.shape)) for o in n.operands):
        return "concat operands differ along its axis only"
    return None if all(o.dtype == n.dtype for o in n.operands) else "concat operands share one dtype"


def _window(n: Node) -> str | None:
    a, x = n.attrs, n.operands[0]
    assert isinstance(a, g.Window)
    if not len(a.axes) == len(a.sizes) == len(a.strides) == len(a.dilations) == len(set(a.axes)):
        return "window has one size, stride and dilation an axis"
    if any(not 0 <= axis < x.ndim for axis in a.axes) or min((*a.sizes, *a.strides, *a.dilations), default=1) < 1:
        return "window axes are in range, sizes, strides and dilations positive"
    shape = list(map(hint, x.shape))
    for axis, k, s, d in zip(a.axes, a.sizes, a.strides, a.dilations, strict=True):
        shape[axis] = (shape[axis] - ((k - 1) * d + 1)) // s + 1
    return None if _same((*shape, *a.sizes), n.shape) else f"window gives {(*shape, *a.sizes)}"


def _reduction(n: Node) -> str | None:
    assert isinstance(n.attrs, g.Axes)
    x, axes = n.operands[0], n.attrs.axes
    if list(axes) != sorted(set(axes)) or not axes or axes[0] < 0 or axes[-1] >= x.ndim:
        return "reduction axes must be sorted, unique and in range"
    if not _same(tuple(d for i, d in enumerate(x.shape) if i not in axes), n.shape):
        return "reduction axes are removed"
    if n.op in ("any", "all") and x.dtype != dtypes.bool_:
        return f"{n.op} takes bool"
    if n.op in ("argmax", "argmin"):
        return None if n.dtype == dtypes.int64 and len(axes) == 1 else f"{n.op} has one axis and gives int64"
    if n.attrs.joined and axes[-2:] != (x.ndim - 2, x.ndim - 1):
        return "what is joined is the last two axes of the operand"
    return None if n.dtype == x.dtype else f"{n.op} keeps the dtype"


def _matmul(n: Node) -> str | None:
    a, b = n.operands
    if a.ndim < 2 or a.ndim != b.ndim or not _same((*a.shape[:-1], b.shape[-1]), n.shape):
        return "matmul takes (..., m, k) @ (..., k, n)"
    if hint(a.shape[-1]) != hint(b.shape[-2]) or not _same(a.shape[:-2], b.shape[:-2]):
        return "matmul extents do not match"
    if n.dtype == dtypes.float32 and all(x.dtype in (dtypes.float32, *dtypes.HALVES) for x in n.operands):
        return None
    return None if a.dtype == b.dtype == n.dtype else "matmul keeps the dtype, or gives float32 of halves"


def _convolve(n: Node) -> str | None:
    a, (x, w) = n.attrs, n.operands
    assert isinstance(a, g.Convolution)
    each = (a.sizes, a.dilations, a.strides, a.padding)
    right = {len(v) for v in each} == {x.ndim - 2} == {w.ndim - 2} and x.ndim > 2
    if not right or min((*a.sizes, *a.dilations, *a.strides, a.groups)) < 1 or min(a.padding) < 0:
        return f"{n.op} has a size, a dilation, a stride and a padding for each axis after the first two"
    halves = x.dtype == w.dtype == dtypes.bfloat16 and n.dtype == dtypes.float32
    if not (halves or x.dtype == w.dtype == n.dtype) or dtypes.kind(n.dtype) == "c":
        return f"{n.op} keeps a real dtype, or gives float32 of bfloat16"
    # The image and what comes of it, and the filters: (O, C / groups, *sizes).
    image, y = (n.shape, x.shape) if n.op == "convolve_image" else (x.shape, w.shape)
    filters = (n.shape[-1], *n.shape[:-1]) if n.op == "convolve_filter" else w.shape
    y = n.shape if n.op == "convolve" else y
    if any(hint(d) % a.groups for d in (image[1], filters[0])):
        return f"{n.op} has channels and features in equal groups"
    fits = _same(filters, (y[1], hint(image[1]) // a.groups, *a.sizes))
    fits = fits and _same(y, (image[0], y[1], *a.counts(tuple(map(hint, image[2:])))))
    return None if fits else f"{n.op} takes (N, C, ..) with (O, C / groups, *sizes) and (N, O, *counts)"


def _indexed(n: Node, v: g.Shape, x: g.Shape, indices: tuple[Node, ...], axes: tuple[int, ...]) -> str | None:
    """The rule of gather and scatter: values of shape indices + the other axes of x."""
    if len(indices) != len(axes) or len(set(axes)) != len(axes) or any(not 0 <= a < len(x) for a in axes):
        return f"{n.op} has one index an axis"
    if any(i.dtype != dtypes.int64 or not _same(i.shape, indices[0].shape) for i in indices):
        return f"{n.op} indices are int64 of one shape"
    rest = tuple(d for i, d in enumerate(x) if i not in axes)
    return None if _same(v, (*indices[0].shape, *rest)) else f"{n.op} values are indices + the other axes"


def _gather(n: Node) -> str | None:
    assert isinstance(n.attrs, g.Axes)
    x, *indices = n.operands
    return _indexed(n, n.shape, x.shape, tuple(indices), n.attrs.axes)


def _scatter(n: Node) -> str | None:
    assert isinstance(n.attrs, g.Scatter)
    x, v, *indices = n.operands
    if not _same(x.shape, n.shape) or v.dtype != n.dtype:
        return "scatter keeps shape and dtype"
    if n.attrs.mode not in ("set", "add"):
        return f"scatter mode {n.attrs.mode!r} is neither 'set' nor 'add'"
    return _indexed(n, v.shape, x.shape, tuple(indices), n.attrs.axes)


def _position(n: Node) -> str | None:
    assert isinstance(n.attrs, g.Sizes)
    if len(n.attrs.sizes) != len(n.operands):
        return "position has one size an index"
    if any(i.dtype != dtypes.int64 or not _same(i.shape, n.shape) for i in n.operands) or n.dtype != dtypes.int64:
        return "position takes and gives int64 of one shape"
    return None


def _opaque(n: Node) -> str | None:
    assert isinstance(n.attrs, g.Opaque)
    return None if n.attrs.fn in FUNCTIONS else f"opaque function {n.attrs.fn} is not registered"


def _item(n: Node) -> str | None:
    assert isinstance(n.attrs, g.Item)
    call, k = n.operands[0], n.attrs.index
    if not isinstance(call.attrs, g.Opaque) or not 0 <= k < len(call.attrs.outputs):
        return "item reads an output of an opaque call"
    shape, dtype = call.attrs.outputs[k]
    return None if _same(shape, n.shape) and dtype == n.dtype else f"item {k} is {dtype} {g.shape_text(shape)}"


_MANY = 1 << 30
# primitive -> the type of its attrs, the least and the greatest number of operands
_FORM: dict[str, tuple[type, int, int]] = {
    **{name: (type(None), rec.arity, rec.arity) for name, rec in ELEMENTWISE.items()},
    **dict.fromkeys(REDUCTIONS, (g.Axes, 1, 1)),
    "input": (g.Input, 0, 0),
    "scalar": (g.Scalar, 0, 0),
    "constant": (g.Constant, 0, 0),
    "extent": (g.ExtentValue, 0, 0),
    "iota": (g.Axis, 0, 0),
    "cast": (type(None), 1, 1),
    "stop": (type(None), 1, 1),
    "track": (g.Identity, 1, 1),
    "known": (type(None), 2, 2),
    "normalized": (g.Axes, 3, 3),
    "permute": (g.Axes, 1, 1),
    "reshape": (type(None), 1, 1),
    "expand": (type(None), 1, 1),
    "slice": (g.Slice, 1, 1),
    "pad": (g.Pad, 2, 2),
    "concat": (g.Axis, 1, _MANY),
    "window": (g.Window, 1, 1),
    "matmul": (type(None), 2, 2),
    "convolve": (g.Convolution, 2, 2),
    "convolve_filter": (g.Convolution, 2, 2),
    "convolve_image": (g.Convolution, 2, 2),
    "gather": (g.Axes, 2, _MANY),
    "scatter": (g.Scatter, 3, _MANY),
    "position": (g.Sizes, 1, _MANY),
    "update": (g.Slice, 2, 2),
    "opaque": (g.Opaque, 0, _MANY),
    "item": (g.Item, 1, 1),
}
_RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(SOURCES - {"input"}, _scalar),
    "iota": _iota,
    "cast": _keeps_shape,
    "stop": _keeps_dtype(_keeps_shape),
    "track": _keeps_dtype(_keeps_shape),
    "known": _keeps_dtype(_keeps_shape),
    "normalized": _keeps_dtype(_keeps_shape),
    "permute": _keeps_dtype(_permute),
    "reshape": _keeps_dtype(_reshape),
    "expand": _keeps_dtype(_expand),
    "slice": _keeps_dtype(_slice),
    "pad": _keeps_dtype(_pad),
    "concat": _keeps_dtype(_concat),
    "window": _keeps_dtype(_window),
    "matmul": _matmul,
    "convolve": _convolve,
    "convolve_filter": _convolve,
    "convolve_image": _convolve,
    "gather": _keeps_dtype(_gather),
    "scatter": _keeps_dtype(_scatter),
    "position": _position,
    "update": _keeps_dtype(_update),
    "opaque": _opaque,
    "item": _item,
}
