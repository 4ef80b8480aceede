"""Logical strides: whether a view is contiguous, and whether a reshape of it shares its memory, by NumPy's rule.

What is not a view is C-contiguous; a view has the strides that NumPy's would have. They exist only here: where a value
really lies is the plan's business.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.ir import graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.dtypes import complex64
from lazyt.ir.passes.index_maps import strides_of

if TYPE_CHECKING:
    from lazyt.tracing.tensor_state import Handle

Ints = tuple[int, ...]
Chain = tuple[Any, ...]


def reshapes_in_place(x: Handle, shape: Ints) -> bool:
    """Whether `reshape(x, shape)` is a view of x."""
    seen = _seen(x)
    return seen is None or _viewable(*seen, shape)


def is_contiguous(x: Handle) -> bool:
    """Whether x is no view, or one whose elements lie one after another."""
    seen = _seen(x)
    return seen is None or _contiguous(*seen)


def _seen(x: Handle) -> tuple[Ints, Chain] | None:
    """The shape of what x is a view of, and how it is seen there; None of what is no view."""
    v, st = x._view, x._storage
    if v is None or st is None:
        return None
    chain: list[Any] = []
    while v is not None:
        chain.append((v.op, v.statics, v.ints, None if v.offsets is None else len(v.offsets)))
        v = v.parent
    value = st._slot or st._buffer
    assert value is not None, "a storage with no value"
    return value.shape, tuple(reversed(chain))


def _written(base: Ints, chain: Chain) -> g.Node:
    """A chain of views as nodes."""
    b = Builder()
    x = b.input(0, _full(base), complex64)  # so that it has parts
    for op, statics, ints, offsets in chain:
        more = {} if ints is None else {"ints": _full(ints)}
        # Where a slice starts does not change its strides.
        x = op.lower(b, x, *statics, **(more if offsets is None else {**more, "offsets": (0,) * offsets}))
    return x


@lru_cache(maxsize=4096)
def _contiguous(base: Ints, chain: Chain) -> bool:
    try:
        x = _written(base, chain)
    except ShapeError:
        return True  # as below
    if x.dtype != complex64:
        return False  # one part of complex numbers
    steps = zip(x.shape, _strides(x), strides_of(x.shape), strict=True)
    return all(n == 1 or p == q for n, p, q in steps)


@lru_cache(maxsize=4096)
def _viewable(base: Ints, chain: Chain, shape: Ints) -> bool:
    try:
        x = _written(base, chain)
    except ShapeError:
        return True  # only what is empty fits and does not fit at once
    if math.prod(x.shape) != math.prod(_full(shape)):
        return True  # recording it says what is wrong, if anything is
    return reshaped(x.shape, _strides(x), _full(shape)) is not None  # type: ignore[arg-type]


def _full(shape: Ints) -> Ints:
    """A stand-in for no elements: an empty batch must go the way of the others, or it would need a plan of its own."""
    return tuple(d or 7919 for d in shape)


def _strides(x: g.Node) -> Ints:
    """The strides, in elements, of a value made by views of a contiguous one."""
    path = [x]
    while path[-1].operands:
        path.append(path[-1].operands[0])
    strides: Ints = strides_of(path[-1].shape)  # type: ignore[assignment]
    for n in reversed(path[:-1]):
        old, attrs = n.operands[0].shape, n.attrs
        match n.op:
            case "permute":
                assert isinstance(attrs, g.Axes)
                strides = tuple(strides[a] for a in attrs.axes)
            case "slice":
                assert isinstance(attrs, g.Slice)
                strides = tuple(s * k for s, k in zip(strides, attrs.steps, strict=True))
            case "expand":
                strides = tuple(s if p == q else 0 for s, p, q in zip(strides, old, n.shape, strict=True))
            case "reshape":
                found = reshaped(old, strides, n.shape)  # type: ignore[arg-type]
                assert found is not None, "a reshape that copies is no view"
                strides = found
            case "gather":  # a diagonal: one step along each of two axes at once
                assert isinstance(attrs, g.Axes)
                rest = (s for a, s in enumerate(strides) if a not in attrs.axes)
                strides = (sum(strides[a] for a in attrs.axes), *rest)
            case "real" | "imag":
                pass  # every other number: all strides are twice as long
            case _:
                assert n.op == "stop", f"{n.op} makes no view"
    return strides


def reshaped(old: Ints, strides: Ints, new: Ints) -> Ints | None:
    """The strides after a reshape that moves nothing, or None (NumPy's `_attempt_nocopy_reshape`)."""
    dims = [(d, s) for d, s in zip(old, strides, strict=True) if d != 1]
    out: list[int] = []
    i = j = 0
    while i < len(dims) and j < len(new):
        p, q = dims[i][0], new[j]
        i0, j0, i, j = i, j, i + 1, j + 1
        while p != q:
            if p < q:
                p, i = p * dims[i][0], i + 1
            else:
                q, j = q * new[j], j + 1
        if any(dims[k][1] != dims[k + 1][0] * dims[k + 1][1] for k in range(i0, i - 1)):
            return None
        step = dims[i - 1][1]
        part: list[int] = []
        for d in reversed(new[j0:j]):
            part.append(step)
            step *= d
        out.extend(reversed(part))
    return (*out, *(1,) * (len(new) - j))
