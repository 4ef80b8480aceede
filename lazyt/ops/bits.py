"""Bits packed into bytes and taken out of them, and floats in their two parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lazyt.errors import DTypeError, NotSupportedError
from lazyt.ir import dtypes
from lazyt.ir.symbolic import product
from lazyt.ops import samples
from lazyt.ops.axes import one_axis
from lazyt.ops.definition import Operand, define, node_of, require_kind, result_type

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node, Shape

ORDERS = ("big", "little")


def _line(b: Builder, name: str, x: Node, axis: int | None, bitorder: str) -> tuple[Node, tuple[int, ...]]:
    """`x` with an axis last (flat, without one), and how its axes are put back."""
    if bitorder not in ORDERS:
        raise NotSupportedError(f"{name}: not supported: bitorder {bitorder!r}, because it is 'big' or 'little'")
    if axis is None:
        return b.reshape(x, (product(x.shape),)), (0,)
    a = one_axis(name, axis, x.ndim)
    order = (*range(a), *range(a + 1, x.ndim), a)
    return b.permute(x, order), tuple(np.argsort(order).tolist())


def packbits(b: Builder, x: Operand, axis: int | None, bitorder: str, whole: bool, ints: Shape) -> Node:
    """Statics: the axis, the order, whether the extent is `whole` bytes; ints: how many bytes there are."""
    d = result_type(x)
    require_kind("packbits", d, "biu", "an integer or bool dtype")
    v = node_of(b, x, d)
    if d != dtypes.bool_:
        v = b.ne(v, b.expand_to(b.constant(0, d), v.shape))
    v, back = _line(b, "packbits", v, axis, bitorder)
    *lead, _ = v.shape
    (n,) = ints
    if not whole:
        v = b.pad(v, (0,) * v.ndim, (*lead, 8 * n), b.constant(False, dtypes.bool_))
    v = b.reshape(v, (*lead, n, 8))
    (packed,) = b.opaque("packbits", (v,), (bitorder,), [(v.shape[:-1], dtypes.uint8)])
    return b.permute(packed, back)


def unpackbits(b: Builder, x: Operand, axis: int | None, bitorder: str) -> Node:
    d = result_type(x)
    if d != dtypes.uint8:
        raise DTypeError(f"unpackbits: uint8 is required, got {d}")
    v, back = _line(b, "unpackbits", node_of(b, x, d), axis, bitorder)
    (bits,) = b.opaque("unpackbits", (v,), (bitorder,), [((*v.shape, 8), dtypes.uint8)])
    return b.permute(b.reshape(bits, (*v.shape[:-1], 8 * v.shape[-1])), back)


_X = samples.array((3, 11), np.bool_)
_BYTES = samples.array((3, 5), np.uint8, 0, 256)
PACKBITS = define("packbits", packbits, numpy=np.packbits, differentiable=False, samples=samples.calls(
    (_X,), (_X, 0), (_X, 1, "little"), (_X[:, :8], -1), (_X[0, 0],), (_X[:0],), (_X[:, :0], 1), (_BYTES,),
    (samples.array((2, 16), np.int64), 1), (_X[None], 1),
))  # fmt: skip
UNPACKBITS = define("unpackbits", unpackbits, numpy=np.unpackbits, differentiable=False, samples=samples.calls(
    (_BYTES,), (_BYTES, 0), (_BYTES, 1, None, "little"), (_BYTES[:0], -1), (_BYTES[0],), (_BYTES[None], 1),
))  # fmt: skip


def frexp(b: Builder, x: Operand, dtype: np.dtype, result: np.dtype) -> tuple[Node, Node]:
    """Statics: the dtype that NumPy has a loop for, and the mantissas'."""
    work = dtypes.float32 if dtype == dtypes.float16 else dtype
    v = node_of(b, x, work)
    m, e = b.opaque("frexp", (v,), (), [(v.shape, work), (v.shape, dtypes.int32)])
    return b.cast(m, result), e


_FLOATS = np.array([[0.0, -0.0, np.inf, -np.inf, np.nan], [1.0, -0.75, 3e4, 1e-7, -4.0]])
FREXP = define("frexp", frexp, numpy=np.frexp, differentiable=False, samples=samples.calls(
    *((_FLOATS.astype(d),) for d in (np.float32, np.float64, np.float16)), (_FLOATS[:0],), (_FLOATS[1, 0],),
    (_FLOATS[1].astype(np.int32),), (_FLOATS[1].astype(np.int8),), (_X,),
))  # fmt: skip
