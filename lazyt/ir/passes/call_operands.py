"""Operands of calls: the buffer that each lies in, its strides, and whether it repeats a single element."""

from __future__ import annotations

import math

from lazyt.ir.graph import Convolution, Node, Opaque
from lazyt.ir.library_calls import MOVES, TO_HOST
from lazyt.ir.passes.casts import rounds
from lazyt.ir.passes.index_maps import Index, Place, flat, through, whole
from lazyt.ir.prims import CONVOLUTIONS
from lazyt.ir.symbolic import Dim, Scope, hint, product
from lazyt.ir.target import Target

# What has a buffer of its own, whoever reads it.
STORED = ("input", "item")
# ... and what is in memory when a call reads it: a part of it is read where it lies.
IN_MEMORY = frozenset({*STORED, "matmul", "scatter", "concat", "update", *CONVOLUTIONS})
# Features of filters that are read through strides, at least: vectors of a convolution that reads them so lie along
# these.
FEATURES = 16

# A stored node, the strides of the axes, and the offset, in elements.
View = tuple[Node, tuple[int | Dim, ...], int | Dim]


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


def operands_of_call(scope: Scope | None, n: Node, target: Target) -> list[View]:
    """The operands of a product or a convolution as it reads them: where they lie, or stored themselves."""
    rounds = not target.alike_products
    if n.op == "matmul":
        return [strided(scope, x, rounds) or dense(x) for x in n.operands]
    a, (x, w) = n.attrs, n.operands
    assert isinstance(a, Convolution)
    found: list[View | None] = [None, None]
    halves = x.dtype != n.dtype  # which it copies, with zeros around an image, from wherever they lie
    if target.convolution_views and n.op == "convolve" and a.groups == 1:
        image = None if any(a.padding) and not halves else _part_of_image(scope, x)
        found = [image, _filters(scope, w, a, halves and rounds)]
    if halves and rounds:
        found = [_rounded(y) if own is None else own for y, own in zip(n.operands, found, strict=True)]
    return [dense(y) if own is None else own for y, own in zip(n.operands, found, strict=True)]


def _rounded(x: Node) -> View | None:
    """A stored float32 that a half is cast from, to be rounded where it is read."""
    return dense(x.operands[0]) if rounds(x) and buffer_of(x.operands[0]).op in STORED else None


def _part_of_image(scope: Scope | None, x: Node) -> View | None:
    """A slice of a stored image, whose rows lie as they do there."""
    found = _affine(scope, x)
    if found is None or found[0] is buffer_of(x):
        return None
    n, strides, _ = found
    lies = min(map(hint, strides)) > 0
    return found if lies and _is_one(strides[-1]) and (n.op == "pad" or n.op in IN_MEMORY) else None


def _filters(scope: Scope | None, w: Node, a: Convolution, rounds: bool) -> View | None:
    """Filters whose windows lie as runs, forwards or all backwards, in any order of features and channels."""
    found = _affine(scope, w, rounds)
    if found is None or found[0] is buffer_of(w) or hint(w.shape[0]) < FEATURES:
        return None
    n, strides, _ = found
    if n.op not in IN_MEMORY or min(map(hint, strides[:2])) < 1:
        return None
    own = [(k, s) for k, s in zip(a.sizes, strides[2:], strict=True) if k > 1]
    step = 1 if not own or hint(own[-1][1]) > 0 else -1
    for k, s in reversed(own):
        if not (s == step or (scope is not None and scope.known_equal(s, step))):
            return None
        step *= k
    return found


def strided(scope: Scope | None, x: Node, rounds: bool = False) -> View | None:
    """(stored node, strides of x's axes, offset), in elements; None when a library could not read it so.

    That is where its last two axes would not have a unit stride between them. rounds: whether the library rounds a
    stored float32 to the half that x is.
    """
    found = _affine(scope, x, rounds)
    if found is None or found[0].op == "pad":
        return None
    n, strides, _ = found
    unit = any(map(_is_one, strides[-2:])) and all(hint(s) >= 1 for s in strides[-2:])
    return found if unit or n is buffer_of(x) else None


def _is_one(stride: int | Dim) -> bool:
    return isinstance(stride, int) and stride == 1


def _affine(scope: Scope | None, x: Node, rounds: bool = False) -> View | None:
    """The stored node below the movement that keeps x affine, the strides of x's axes in it, and the offset."""
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
    if n.op == "window":
        return None
    if address is None:
        address = flat(place, n.shape)
    coefs = dict(address.terms)
    return n, tuple(coefs.get(a, 0) for a in axes), address.offset


def _of_stored(n: Node) -> bool:
    """Whether n is a float32 input or result of a call, or movement of one, as a half."""
    if not rounds(n):
        return False
    x = n.operands[0]
    while x.op in ("permute", "reshape", "expand", "slice"):
        x = x.operands[0]
    return x.op in STORED


def attention_operands(scope: Scope | None, n: Node) -> list[View]:
    """The array operands of attention; q, k, v and ct are read through strides where their rows are contiguous."""
    last = len(n.operands) - 2
    matrices = {0, 1, 2, last} if n.attrs.fn == "attention_gradient" else {0, 1, 2}  # type: ignore[union-attr]
    out = []
    for i, x in enumerate(n.operands[:-1]):
        found = strided(scope, x) if i in matrices else None
        step = found[1][-1] if found is not None else 0
        out.append(found if found is not None and isinstance(step, int) and step == 1 else dense(x))
    return out


def dense(x: Node) -> View:
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
