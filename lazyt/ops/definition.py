"""The record of an operation, and the promotion and broadcasting of its operands.

An operation is one step of a recorded program, whatever its size in primitives: `lower` writes its primitives,
both to infer its result when it is first recorded (over ints) and to plan it (over symbols).

    lower(b, *operands, *statics, ints=..., offsets=...) -> Node | tuple[Node, ...]

operands   Node, Weak (a Python scalar whose value is an argument) or, inside other lowerings, a plain Python number
statics    hashable structure, part of the program's key: axes, flags, dtypes, window sizes
ints       extents that only size things (a reshape's shape, an arange's length): symbols in a plan; passed if recorded
offsets    integers that only move things (slice starts): may change at every run without a new plan; passed if recorded
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from lazyt.errors import DTypeError, ShapeError
from lazyt.ir import dtypes
from lazyt.ir.builder import Builder, Weak, broadcast_shapes
from lazyt.ir.graph import Node, Shape, shape_text
from lazyt.ir.records import dataclass
from lazyt.ir.symbolic import guarded

Operand = Node | Weak | bool | int | float | complex
Lower = Callable[..., "Node | tuple[Node, ...]"]


@dataclass(frozen=True, slots=True, eq=False)
class OpDef:
    """One public operation. Identity is equality: a key compares records by `is`."""

    name: str
    lower: Lower
    # How to write through a view: write(b, base, value, *statics, ints=, offsets=) -> the base with the viewed
    # part replaced. None: the result is not a view.
    write: Lower | None = None
    # Values reverse mode keeps, for version checks as in PyTorch: operand positions, and -1 for the result.
    # A pair (i, j): operand i, if operand j requires grad.
    saves: tuple[int | tuple[int, int], ...] = ()
    # Whether several views come out (split, unstack): in-place writes to one are refused under grad, as in PyTorch.
    fallible: bool = False  # may raise at the sync (an index read from data)
    # The NumPy function that says what it means, and calls to try it with: (args, kwargs) of NumPy arrays.
    numpy: Callable[..., Any] | None = None
    samples: Callable[[], Sequence[tuple[tuple[Any, ...], dict[str, Any]]]] | None = None
    # Calls that must raise, with the message's pattern: (args, kwargs, exception, match).
    errors: Sequence[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = field(default=())
    differentiable: bool = True
    # Why there is no gradient, if that depends on the call: refuses(attributes, shape of the first operand, positions
    # of the results that cotangents come to) -> "not supported: ...", or "" where there is one.
    refuses: Callable[[tuple[Any, ...], tuple[int, ...], Collection[int]], str] | None = None


OPS: dict[str, OpDef] = {}

# What a product of its first two operands keeps: each for the gradient of the other.
PRODUCT = ((0, 1), (1, 0))


# Operations that only move elements, bits and all: they are written on stored dtypes as on any other.
MOVES = frozenset((
    "astype", "broadcast_to", "concat", "diag", "diagonal", "expand_dims", "flatten", "flip", "getitem", "index",
    "index_put", "mask_put", "matrix_transpose", "pad", "permute_dims", "put_along_axis", "random.chosen",
    "random.permutation", "random.permuted", "repeat", "reshape", "roll", "sliding_window_view", "split", "squeeze",
    "stack", "take_along_axis", "tile", "tril", "triu", "unfold", "unstack", "where",
))  # fmt: skip
# Families that refuse stored dtypes, by the start of an operation's name.
_REFUSED = {
    "nextafter": "its next number is none of float32's",
    "random.": "its numbers would be too few to be those of the distribution",
    "optim.": "the steps of an optimizer are mostly less than its last place",
    "recurrent.": "a state would be rounded in each step",
}


def _several(out: Node | tuple[Node, ...]) -> tuple[Node, ...]:
    return out if isinstance(out, tuple) else (out,)


def over_stored(name: str, lower: Lower) -> Lower:
    """`lower`, which computes floats of 8 bits in float32 and rounds its results to them.

    They are rounded unless another float is among the operands, or asked for by a static argument.
    """
    why = next((why for start, why in _REFUSED.items() if name.startswith(start)), None)

    @functools.wraps(lower)
    def lowered(b: Builder, *given: Any, **more: Any) -> Any:
        nodes = [x.dtype for x in given if isinstance(x, Node)]
        asked = [x for x in given if isinstance(x, np.dtype)]
        stored = dict.fromkeys(d for d in (*asked, *nodes) if dtypes.of(d).stored)
        if not stored:
            return lower(b, *given, **more)
        if name in MOVES:
            return lower(b, *given, **more)
        if why is not None:
            raise DTypeError(f"not supported: {name} of {next(iter(stored))}, because {why}; cast it to float32 first")
        own = functools.reduce(dtypes.promote, nodes) if nodes else dtypes.float32
        floats = [d for d in asked if dtypes.kind(d) in "fc"]
        target = next((d for d in floats if d in stored), floats[0] if floats else own)
        # Beside a half they are halves, as a result of both is.
        wide = own if own in dtypes.HALVES else dtypes.float32
        xs = list(given)
        for i, x in enumerate(given):
            if isinstance(x, Node) and x.dtype in stored:
                xs[i] = b.cast(x, wide)
            elif isinstance(x, np.dtype) and x in stored:
                xs[i] = wide
        out = lower(b, *xs, **more)
        if target not in stored:
            return out
        results = [b.cast(n, target) if n.dtype in (wide, dtypes.float64) else n for n in _several(out)]
        return tuple(results) if isinstance(out, tuple) else results[0]

    return lowered


def define(name: str, lower: Lower, **more: Any) -> OpDef:
    """Register an operation under its public name; names are unique. An import that failed may come again."""
    twice = name in OPS and OPS[name].lower.__module__ != lower.__module__
    assert not twice, f"operation {name} is defined twice"
    op = OPS[name] = OpDef(name, over_stored(name, lower), **more)
    return op


def weak_type(x: Operand) -> type | None:
    """bool, int, float or complex for a Python scalar operand; None for a Node."""
    if isinstance(x, Node):
        return None
    return x.type if isinstance(x, Weak) else type(x)


def node_of(b: Builder, x: Operand, dtype: np.dtype) -> Node:
    """`x` as a node of `dtype`: a cast, the scalar argument, or a constant."""
    if isinstance(x, Node):
        return b.cast(x, dtype)
    if isinstance(x, Weak):
        return b.scalar(x.position, dtype)
    return b.constant(x, dtype)


def written(b: Builder, name: str, x: Operand, dtype: np.dtype) -> Node:
    """`x` as a node of the dtype of what it is written into; DTypeError where its imaginary part would be lost."""
    dtypes.check_imaginary(name, result_type(x), dtype)
    return node_of(b, x, dtype)


def result_type(*xs: Operand | np.dtype) -> np.dtype:
    """The promoted dtype of arrays (nodes, dtypes) and Python scalars, which are weak (NEP 50)."""
    strong = [x if isinstance(x, np.dtype) else x.dtype for x in xs if isinstance(x, Node | np.dtype)]
    weak = [t for x in xs if not isinstance(x, np.dtype) and (t := weak_type(x)) is not None]
    if not strong:
        order = (bool, int, float, complex)
        return dtypes.default_dtype(max(weak, key=order.index))
    out = strong[0]
    for d in strong[1:]:
        out = dtypes.promote(out, d)
    for t in weak:
        out = dtypes.promote_weak(out, t)
    return out


def promoted(b: Builder, name: str, *xs: Operand, dtype: np.dtype | None = None) -> tuple[Node, ...]:
    """The operands as nodes of one dtype (promoted unless given) and one broadcast shape."""
    d = dtype or result_type(*xs)
    nodes = [node_of(b, x, d) for x in xs]
    shape = broadcast_shapes(b, name, *(n.shape for n in nodes))
    return tuple(b.expand_to(n, shape) for n in nodes)


def fitted(b: Builder, name: str, what: str, x: Node, shape: Shape) -> Node:
    """x broadcast to a shape; ShapeError `name: what of shape ...` where that would be a greater one."""
    wanted = [guarded(d) for d in shape[len(shape) - x.ndim :]] if x.ndim <= len(shape) else None
    if wanted is None or any(guarded(d) not in (1, n) for d, n in zip(x.shape, wanted, strict=True)):
        old, new = (shape_text(tuple(guarded(d) for d in s)) for s in (x.shape, shape))
        raise ShapeError(f"{name}: {what} of shape {old} does not broadcast to {new}")
    return b.expand_to(x, shape)


def require_kind(name: str, dtype: np.dtype, kinds: str, what: str) -> None:
    """DTypeError `name: what is required, got dtype` unless the dtype's kind is one of `kinds`."""
    if dtypes.kind(dtype) not in kinds:
        raise DTypeError(f"{name}: {what} is required, got {dtype}")
