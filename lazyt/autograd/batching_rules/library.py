"""Lanes of library calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.autograd.batching_rules.registry import library_batching, unbatched
from lazyt.autograd.rules.formula import statics_of
from lazyt.errors import NotSupportedError
from lazyt.ir import dtypes, graph as g
from lazyt.ir.library_calls import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.autograd.batching_rules.registry import Lanes
    from lazyt.ir.graph import Node


def _call(lanes: Lanes, n: Node, xs: Sequence[Node], statics: tuple[Any, ...] | None = None) -> tuple[Node, ...]:
    """The same call, of operands of all lanes: its outputs have them first."""
    a = n.attrs
    assert isinstance(a, g.Opaque)
    outputs = [((lanes.size, *shape), dtype) for shape, dtype in a.outputs]
    return lanes.b.opaque(a.fn, xs, a.statics if statics is None else statics, outputs)


def _all(lanes: Lanes, n: Node, xs: Sequence[Node]) -> list[Node]:
    return [lanes.whole(n, i, x) for i, x in enumerate(xs)]


@library_batching("sort", "argsort", "topk", "cumsum", "cumprod")
def _along_an_axis(lanes: Lanes, n: Node, xs: Sequence[Node]) -> tuple[Node, ...]:
    axis, *rest = statics_of(n)
    return _call(lanes, n, xs, (axis % n.operands[0].ndim + 1, *rest))


@library_batching(*(f"fft_{f}" for f in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")))
def _transform(lanes: Lanes, n: Node, xs: Sequence[Node]) -> tuple[Node, ...]:
    size, axis, norm = statics_of(n)
    return _call(lanes, n, xs, (size, axis % n.operands[0].ndim + 1, norm))


@library_batching(*(f"fft_{f}n" for f in ("fft", "ifft", "rfft", "irfft")))
def _transforms(lanes: Lanes, n: Node, xs: Sequence[Node]) -> tuple[Node, ...]:
    sizes, axes, norm = statics_of(n)
    rank = n.operands[0].ndim
    if axes is None:
        axes = range(rank if sizes is None else len(sizes))[::-1]
        axes = [rank - 1 - i for i in axes]
    return _call(lanes, n, xs, (sizes, tuple(a % rank + 1 for a in axes), norm))


# Over the last axes, or elementwise: any axes may come first.
_STACKED = (
    *("linalg_inv", "linalg_cholesky", "linalg_svdvals", "linalg_eigh", "linalg_eigvalsh", "linalg_det"),
    *(
        "linalg_slogdet",
        "linalg_qr",
        "linalg_svd",
        "linalg_eig",
        "linalg_eigvals",
        "after",
        "packbits",
        "unpackbits",
        "frexp",
    ),
)
_COMPLEX = tuple(f for f in FUNCTIONS if f.startswith("complex_"))


@library_batching(*_STACKED, *_COMPLEX)
def _stacked(lanes: Lanes, n: Node, xs: Sequence[Node]) -> tuple[Node, ...]:
    return _call(lanes, n, _all(lanes, n, xs))


@library_batching("linalg_solve")
def _solve(lanes: Lanes, n: Node, xs: Sequence[Node]) -> tuple[Node, ...]:
    """A vector is one column, because only an operand of one axis counts as one."""
    b, (a, v) = lanes.b, _all(lanes, n, xs)
    if n.operands[1].ndim > 1:
        return _call(lanes, n, (a, v))
    columns = b.reshape(v, (*v.shape, 1))
    found = b.opaque("linalg_solve", (a, columns), (), [(columns.shape, columns.dtype)])[0]
    return (b.reshape(found, v.shape),)


@library_batching("linalg_pinv", "linalg_matrix_rank")
def _with_tolerance(lanes: Lanes, n: Node, xs: Sequence[Node]) -> tuple[Node, ...]:
    """The matrices, and perhaps a tolerance: one number, or one a matrix."""
    x = lanes.whole(n, 0, xs[0])
    rest = []
    for i, tolerance in enumerate(xs[1:], 1):
        own = lanes.whole(n, i, tolerance) if tolerance.shape else tolerance
        shape = (lanes.size, *n.operands[0].shape[:-2])
        if own.shape and own.ndim < len(shape):  # a number of each lane's own, for all its matrices
            own = lanes.b.reshape(own, (lanes.size, *(1,) * (len(shape) - own.ndim), *own.shape[1:]))
            own = lanes.b.expand(own, shape)
        rest.append(own)
    return _call(lanes, n, (x, *rest))


@library_batching("searchsorted")
def _searchsorted(lanes: Lanes, n: Node, xs: Sequence[Node]) -> tuple[Node, ...]:
    """Sorted values of each lane's own are counted: how many come before; NaN comes last."""
    b, (x, v) = lanes.b, xs
    if not lanes.has(n, 0, x):
        return _call(lanes, n, xs)
    v = lanes.whole(n, 1, v)
    shape = (*v.shape, x.shape[1])
    values = b.expand(b.reshape(v, (*v.shape, 1)), shape)
    candidates = b.expand(b.reshape(x, (lanes.size, *(1,) * (v.ndim - 1), x.shape[1])), shape)
    before = b.elementwise("le" if statics_of(n)[0] == "right" else "lt", candidates, values)
    if dtypes.kind(x.dtype) == "f":
        last, none = b.isnan(values), b.isnan(candidates)
        before = b.or_(before, last if statics_of(n)[0] == "right" else b.and_(last, b.not_(none)))
    return (b.reduce("sum", b.cast(before, dtypes.int64), (len(shape) - 1,)),)


@library_batching("isin")
def _isin(lanes: Lanes, n: Node, xs: Sequence[Node]) -> tuple[Node, ...]:
    b, (x, values) = lanes.b, xs
    if not lanes.has(n, 1, values):
        return _call(lanes, n, xs)
    x = lanes.whole(n, 0, x)
    shape = (*x.shape, *n.operands[1].shape)
    own = b.reshape(values, (lanes.size, *(1,) * (x.ndim - 1), *n.operands[1].shape))
    same = b.eq(b.expand(b.reshape(x, (*x.shape, *(1,) * n.operands[1].ndim)), shape), b.expand(own, shape))
    return (b.reduce("any", same, range(x.ndim, len(shape))),)


@library_batching("attention", "attention_gradient")
def _attention(lanes: Lanes, n: Node, xs: Sequence[Node]) -> tuple[Node, ...]:
    *others, by = xs
    if lanes.has(n, len(others), by):
        raise NotSupportedError(
            "not supported: attention with a scale of each lane's own in vmap, because one call has one scale; "
            "multiply the queries by it"
        )
    return _call(lanes, n, (*_all(lanes, n, others), by))


@library_batching("operation", "operation_on_device")
def _operation(lanes: Lanes, n: Node, xs: Sequence[Node]) -> tuple[Node, ...]:
    """By the rule that the user registered; recording refuses a call without one."""
    call, outputs = statics_of(n)
    whole = tuple(((lanes.size, *shape), dtype) for shape, dtype in outputs)
    return _call(lanes, n, xs, (call.over(tuple(lanes.has(n, i, x) for i, x in enumerate(xs))), whole))


unbatched("it stands for values of an earlier program, which had no lanes", "residuals")
unbatched("an effect is Python's: it is called once, with the values of no lane", "effect")
unbatched("a function of NumPy's or of the user's takes the values of one lane", "call")
