"""Updates that read a parameter as a matrix: sums over its axes, or products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ops.optim import Rule, Scalars, moved, optimizer
from lazyt.ops.reductions import count, reduce

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    Flags = dict[str, int]

__all__ = ["ADAFACTOR", "MUON"]


def _root_mean_square(b: Builder, x: Node) -> Node:
    axes = range(x.ndim)
    return b.sqrt(b.div(reduce(b, "sum", b.mul(x, x), axes), b.extent(count(x, axes), x.dtype)))


def _mean(b: Builder, x: Node, axis: int) -> Node:
    return b.div(reduce(b, "sum", x, (axis,), keepdims=True), b.extent(x.shape[axis], x.dtype))


def _adafactor(b: Builder, s: Scalars, flags: Flags, p: Node, g: Node, *state: Node) -> tuple[Node, ...]:
    d = p.dtype
    rate, eps = s.get("rate", d), s.get("eps1", d)
    # Before the decay, as PyTorch.
    alpha = b.mul(b.maximum(s.get("eps2", d), _root_mean_square(b, p)), s.get("rho", d))
    if flags["decays"]:
        p = b.mul(p, s.get("weight_decay", d))
    square = b.mul(g, g)
    new: tuple[Node, ...]
    if flags["factored"]:
        row = moved(b, state[0], _mean(b, square, p.ndim - 1), rate)
        column = moved(b, state[1], _mean(b, square, p.ndim - 2), rate)
        outer = b.mul(b.expand(row, p.shape), b.expand(column, p.shape))
        whole = b.maximum(_mean(b, row, p.ndim - 2), eps)
        estimate, new = b.div(outer, b.expand(whole, p.shape)), (row, column)
    else:
        estimate = moved(b, state[0], square, rate)
        new = (estimate,)
    update = b.mul(b.rsqrt(b.maximum(estimate, b.mul(eps, eps))), g)
    clipped = b.maximum(b.constant(1, d), b.div(_root_mean_square(b, update), s.get("d", d)))
    return (b.sub(p, b.mul(update, b.div(alpha, clipped))), *new)


ADAFACTOR = optimizer(
    "optim.adafactor",
    Rule(
        scalars=("weight_decay", "rate", "rho", "eps1", "eps2", "d"),
        flags=("maximize", "decays", "decoupled", "factored"),
        slots=lambda flags: ("row_var", "col_var") if flags["factored"] else ("variance",),
        update=_adafactor,
        by_element=False,
    ),
)


def _muon(b: Builder, s: Scalars, flags: Flags, p: Node, g: Node, buffer: Node) -> tuple[Node, ...]:
    d = p.dtype
    rate = s.get("momentum", d)
    buffer = moved(b, buffer, g, s.get("rate", d))
    x = moved(b, g, buffer, rate) if flags["nesterov"] else buffer
    if flags["tall"]:
        x = b.permute(x, (1, 0))
    norm = b.sqrt(reduce(b, "sum", b.mul(x, x), (0, 1)))
    x = b.div(x, b.maximum(norm, s.get("eps", d)))
    first, third, fifth = (s.get(name, d) for name in ("a", "b", "c"))
    for _ in range(flags["iterations"]):
        gram = b.matmul(x, b.permute(x, (1, 0)))
        more = b.add(b.mul(gram, third), b.mul(b.matmul(gram, gram), fifth))
        x = b.add(b.mul(x, first), b.matmul(more, x))
    if flags["tall"]:
        x = b.permute(x, (1, 0))
    return b.sub(b.mul(p, s.get("weight_decay", d)), b.mul(x, s.get("step_size", d))), buffer


MUON = optimizer(
    "optim.muon",
    Rule(
        scalars=("weight_decay", "momentum", "rate", "eps", "a", "b", "c", "step_size"),
        flags=("nesterov", "tall", "iterations"),
        slots=lambda flags: ("momentum_buffer",),
        update=_muon,
        by_element=False,
    ),
)
