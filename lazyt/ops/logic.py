"""Comparisons, logic and bits, element by element, and the choice between two arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError
from lazyt.ir import dtypes
from lazyt.ir.builder import broadcast_shapes
from lazyt.ir.graph import Node
from lazyt.ops import samples
from lazyt.ops.arithmetic import SHAPES
from lazyt.ops.definition import OpDef, Operand, define, node_of, promoted, require_kind, result_type

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder


def truth(b: Builder, x: Operand) -> Node:
    """x != 0 as bool."""
    v = node_of(b, x, result_type(x))
    return v if v.dtype == dtypes.bool_ else b.ne(v, b.constant(0, v.dtype))


_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def is_mixed(x: Any, y: Any) -> bool:
    """Whether these are signed integers beside uint64, whose common dtype, float64, does not hold them all."""
    if not (isinstance(x, Node) and isinstance(y, Node)):
        return False
    kinds = {dtypes.kind(x.dtype), dtypes.kind(y.dtype)}
    return kinds == {"i", "u"} and dtypes.uint64 in (x.dtype, y.dtype)


def _mixed(b: Builder, name: str, prim: str, x: Any, y: Any) -> Node:
    """A comparison of signed integers with uint64: what is below 0 is less, the others compare as uint64."""
    if dtypes.kind(x.dtype) == "u":
        x, y, prim = y, x, _TURNED[prim]
    shape = broadcast_shapes(b, name, x.shape, y.shape)
    signed, unsigned = b.expand_to(b.cast(x, dtypes.int64), shape), b.expand_to(y, shape)
    below = b.lt(signed, b.constant(0, dtypes.int64))
    found = b.elementwise(prim, b.cast(signed, dtypes.uint64), unsigned)
    return b.or_(below, found) if prim in ("lt", "le", "ne") else b.and_(b.not_(below), found)


def _comparison(name: str, prim: str, ref: Any, kinds: str = "biuf") -> OpDef:
    def lower(b: Builder, x: Operand, y: Operand) -> Node:
        if is_mixed(x, y):
            return _mixed(b, name, prim, x, y)
        d = result_type(x, y)
        require_kind(name, d, kinds, "a real dtype")
        return b.elementwise(prim, *promoted(b, name, x, y, dtype=d))

    errors: list[Any] = [SHAPES]
    if "c" not in kinds:
        errors.append(((np.zeros(2, "c8"), 1.0), {}, DTypeError, f"{name}: a real dtype"))
    sample = samples.binary(
        "".join(k for k in "fiubc" if k in kinds),
        low=0,
        high=3,
        scalars=(1,),
        mixed=((np.int32, np.float32), (np.int64, np.uint64), (np.uint64, np.int8)),
    )
    return define(name, lower, numpy=ref, samples=sample, errors=errors, differentiable=False)


EQUAL = _comparison("equal", "eq", np.equal, "biufc")
NOT_EQUAL = _comparison("not_equal", "ne", np.not_equal, "biufc")
LESS = _comparison("less", "lt", np.less)
LESS_EQUAL = _comparison("less_equal", "le", np.less_equal)
GREATER = _comparison("greater", "gt", np.greater)
GREATER_EQUAL = _comparison("greater_equal", "ge", np.greater_equal)


def _logical(name: str, prim: str, ref: Any) -> OpDef:
    def lower(b: Builder, x: Operand, y: Operand) -> Node:
        p, q = truth(b, x), truth(b, y)
        shape = broadcast_shapes(b, name, p.shape, q.shape)
        return b.elementwise(prim, b.expand_to(p, shape), b.expand_to(q, shape))

    sample = samples.binary("bfi", low=0, high=2, mixed=((np.int32, np.bool_),), scalars=(True, 0))
    return define(name, lower, numpy=ref, samples=sample, errors=[SHAPES], differentiable=False)


LOGICAL_AND = _logical("logical_and", "and", np.logical_and)
LOGICAL_OR = _logical("logical_or", "or", np.logical_or)
LOGICAL_XOR = _logical("logical_xor", "xor", np.logical_xor)
LOGICAL_NOT = define(
    "logical_not",
    lambda b, x: b.not_(truth(b, x)),
    numpy=np.logical_not,
    samples=samples.unary("bfic", 0, 2),
    differentiable=False,
)

_BITS = "an integer or bool dtype"


def _bitwise(name: str, prim: str, ref: Any, kinds: str = "biu", shift: bool = False) -> OpDef:
    what = "an integer dtype" if shift else _BITS

    def lower(b: Builder, x: Operand, y: Operand) -> Node:
        d = result_type(x, y)
        require_kind(name, d, kinds, what)
        return b.elementwise(prim, *promoted(b, name, x, y, dtype=d))

    errors = [SHAPES_INT, ((np.zeros(2), np.zeros(2)), {}, DTypeError, f"{name}: {what}")]
    sample = samples.binary(
        "iu" if shift else "iub", low=-9, high=9, low2=0, high2=7, mixed=((np.int32, np.int8),), scalars=(3,)
    )
    return define(name, lower, numpy=ref, samples=sample, errors=errors, differentiable=False)


SHAPES_INT = (*((tuple(x.astype(int) for x in SHAPES[0]),)), *SHAPES[1:])
BITWISE_AND = _bitwise("bitwise_and", "and", np.bitwise_and)
BITWISE_OR = _bitwise("bitwise_or", "or", np.bitwise_or)
BITWISE_XOR = _bitwise("bitwise_xor", "xor", np.bitwise_xor)
BITWISE_LEFT_SHIFT = _bitwise("bitwise_left_shift", "shl", np.left_shift, "iu", shift=True)
BITWISE_RIGHT_SHIFT = _bitwise("bitwise_right_shift", "shr", np.right_shift, "iu", shift=True)


def _bitwise_invert(b: Builder, x: Operand) -> Node:
    d = result_type(x)
    require_kind("bitwise_invert", d, "biu", _BITS)
    return b.not_(node_of(b, x, d))


BITWISE_INVERT = define(
    "bitwise_invert", _bitwise_invert, numpy=np.invert, samples=samples.unary("iub"), differentiable=False,
    errors=[((np.zeros(2),), {}, DTypeError, "bitwise_invert: an integer or bool")],
)  # fmt: skip


def _where(b: Builder, condition: Operand, x: Operand, y: Operand) -> Node:
    c = truth(b, condition)
    d = result_type(x, y)
    p, q = node_of(b, x, d), node_of(b, y, d)
    shape = broadcast_shapes(b, "where", c.shape, p.shape, q.shape)
    return b.select(*(b.expand_to(n, shape) for n in (c, p, q)))


_C = samples.array((2, 3), np.bool_)
_P = samples.array((2, 3))
WHERE = define(
    "where", _where, numpy=np.where, saves=(0,),
    samples=samples.calls(
        (_C, _P, -_P), (_C, _P, 0.5), (_C, 1, _P.astype("i4")), (_C[:, :1], _P[0], -_P.astype("f8")),
        (_C, _P.astype("c8"), _P), (_C[:0], _P[:0], _P[:1]), (_P > 0, _P.astype("f2"), 1.0),
    ),
    errors=[((_C, np.zeros((4, 3)), 0.0), {}, ValueError, "where: shapes")],
)  # fmt: skip
