"""Operands of calls: the buffer that each lies in, its strides, and whether it repeats a single element."""

from __future__ import annotations

import math

from lazyt.ir.graph import Node, Opaque
from lazyt.ir.library_calls import MOVES, TO_HOST
from lazyt.ir.passes.casts import rounds
from lazyt.ir.passes.index_maps import Index, Place, flat, through, whole
from lazyt.ir.symbolic import Dim, Scope, hint, product

# What has a buffer of its own, whoever reads it.
STORED = ("input", "item")


def buffer_of(n: Node) -> Node:
    """The node whose buffer holds n once n is stored: a reshape shares the buffer of its operand."""
    while n.op == "reshape":
        n = n.operands[0]
    return n


def is_delayed_copy(n: Node) -> bool:
    """Whether n copies its operands once the first one is there: what `checkpoint` computes again begins so."""
    return isinstance(n.attrs, Opaque) and n.attrs.fn == "after"


def is_move(n: Node) -> bool:
    """Whether a call copies a value to the host's memory or back: see offload.py."""
    return isinstance(n.attrs, Opaque) and n.attrs.fn in MOVES


def is_on_host(n: Node) -> bool:
    """Whether a value lies in the host's memory."""
    return n.op == "item" and isinstance(n.operands[0].attrs, Opaque) and n.operands[0].attrs.fn == TO_HOST


def scattered(n: Node) -> tuple[Node, ...]:
    """What a scatter reads from memory: its array unless that is one constant, its values (one element, if all are
    the same), its positions.
    """
    x, v, *at = n.operands
    return (*(() if fill(x) is not None else (x,)), single(v), *at)


def single(x: Node) -> Node:
    """The value of one element that x repeats; x itself where its elements may differ."""
    n = x
    while n.op in ("expand", "reshape", "permute"):
        n = n.operands[0]
    return n if all(isinstance(d, int) and d == 1 for d in n.shape) else x


def fill(x: Node) -> Node | None:
    """The constant that x repeats, if it is one."""
    n = single(x)
    return n if n.op == "constant" else None


def strided_base(scope: Scope | None, x: Node, rounds: bool = True) -> Node:
    """The node that a product reads through strides in place of x: below the movement that keeps x affine.

    x itself when its last two axes would not have a unit stride between them.
    """
    found = strided(scope, x, rounds)
    return x if found is None else found[0]


def strided(scope: Scope | None, x: Node, rounds: bool = False) -> tuple[Node, tuple[int | Dim, ...], int | Dim] | None:
    """(stored node, strides of x's axes, offset), in elements; None when a library could not read it so.

    rounds: the reader rounds a half from the float32 that it was cast from, where that is stored anyhow: an input, or a
    result of a call.
    """
    axes, place = whole(x.shape)
    n = x
    address: Index | None = None
    while n.op in ("permute", "reshape", "expand", "slice") or (rounds and _of_stored(n)):
        if n.op == "cast":
            n = n.operands[0]
            continue
        p = through(scope, n, place)
        if isinstance(p, Place):
            place, n = p, n.operands[0]
        elif n.op == "reshape":
            address = flat(place, n.shape)
            n = buffer_of(n)
            n = n.operands[0] if rounds and _of_stored(n) and n.operands[0].op in STORED else n
            break
        else:
            return None
    if n.op == "pad" or n.op == "window":
        return None
    if address is None:
        address = flat(place, n.shape)
    coefs = dict(address.terms)
    strides = tuple(coefs.get(a, 0) for a in axes)
    one = [isinstance(s, int) and s == 1 for s in strides[-2:]]
    unit = any(one) and all(hint(s) >= 1 for s in strides[-2:])
    trivial = n is buffer_of(x)
    return (n, strides, address.offset) if unit or trivial else None


def _of_stored(n: Node) -> bool:
    """Whether n is a float32 input or result of a call, or movement of one, as a half."""
    if not rounds(n):
        return False
    x = n.operands[0]
    while x.op in ("permute", "reshape", "expand", "slice"):
        x = x.operands[0]
    return x.op in STORED


def attention_operands(scope: Scope | None, n: Node) -> list[tuple[Node, tuple[int | Dim, ...], int | Dim]]:
    """The array operands of attention; q, k, v and ct are read through strides where their rows are contiguous."""
    last = len(n.operands) - 2
    matrices = {0, 1, 2, last} if n.attrs.fn == "attention_gradient" else {0, 1, 2}  # type: ignore[union-attr]
    out = []
    for i, x in enumerate(n.operands[:-1]):
        found = strided(scope, x) if i in matrices else None
        step = found[1][-1] if found is not None else 0
        out.append(found if found is not None and isinstance(step, int) and step == 1 else dense(x))
    return out


def dense(x: Node) -> tuple[Node, tuple[int | Dim, ...], int | Dim]:
    """The same for an x that is stored itself, as fusion does where `strided` returns None."""
    axes, place = whole(x.shape)
    address = flat(place, x.shape)
    coefs = dict(address.terms)
    return buffer_of(x), tuple(coefs.get(a, 0) for a in axes), address.offset


def nbytes(n: Node) -> int | Dim:
    """Bytes of n's buffer."""
    return product(n.shape) * n.dtype.itemsize


def bytes_hint(n: Node) -> int:
    """The same, in the trace being planned."""
    return math.prod(map(hint, n.shape)) * n.dtype.itemsize
