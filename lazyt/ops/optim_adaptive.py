"""Updates element by element beyond the four in `lazyt/ops/optim.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ops.optim import Rule, Scalars, moved, optimizer

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    Flags = dict[str, int]

__all__ = ["ADADELTA", "ADAMAX", "ASGD", "LION", "NADAM", "RADAM", "RPROP"]


def _decayed(b: Builder, s: Scalars, flags: Flags, p: Node) -> Node:
    """p times the scalar `weight_decay`, which is 1 - lr * weight_decay where decay is decoupled."""
    if flags["decays"] and flags["decoupled"]:
        return b.mul(p, s.get("weight_decay", p.dtype))
    return p


def _square_mean(b: Builder, s: Scalars, old: Node, g: Node) -> Node:
    d = g.dtype
    return b.add(b.mul(old, s.get("beta2", d)), b.mul(b.mul(g, g), s.get("rate2", d)))


def _adadelta(b: Builder, s: Scalars, _: Flags, p: Node, g: Node, square: Node, total: Node) -> tuple[Node, ...]:
    d = p.dtype
    rho, rate, eps = s.get("rho", d), s.get("rate", d), s.get("eps", d)
    square = b.add(b.mul(square, rho), b.mul(b.mul(g, g), rate))
    delta = b.mul(b.div(b.sqrt(b.add(total, eps)), b.sqrt(b.add(square, eps))), g)
    total = b.add(b.mul(total, rho), b.mul(b.mul(delta, delta), rate))
    return b.sub(p, b.mul(delta, s.get("lr", d))), square, total


ADADELTA = optimizer(
    "optim.adadelta",
    Rule(
        scalars=("lr", "weight_decay", "rho", "rate", "eps"),
        flags=("maximize", "decays"),
        slots=lambda flags: ("square_avg", "acc_delta"),
        update=_adadelta,
    ),
)


def _adamax(b: Builder, s: Scalars, _: Flags, p: Node, g: Node, first: Node, most: Node) -> tuple[Node, ...]:
    d = p.dtype
    first = moved(b, first, g, s.get("rate1", d))
    most = b.maximum(b.mul(most, s.get("beta2", d)), b.add(b.abs(g), s.get("eps", d)))
    return b.sub(p, b.mul(b.div(first, most), s.get("step_size", d))), first, most


ADAMAX = optimizer(
    "optim.adamax",
    Rule(
        scalars=("weight_decay", "rate1", "beta2", "step_size", "eps"),
        flags=("maximize", "decays"),
        slots=lambda flags: ("exp_avg", "exp_inf"),
        update=_adamax,
    ),
)


def _nadam(b: Builder, s: Scalars, flags: Flags, p: Node, g: Node, first: Node, second: Node) -> tuple[Node, ...]:
    d = p.dtype
    p = _decayed(b, s, flags, p)
    first, second = moved(b, first, g, s.get("rate1", d)), _square_mean(b, s, second, g)
    size = b.add(b.sqrt(b.div(second, s.get("correction", d))), s.get("eps", d))
    p = b.sub(p, b.mul(b.div(g, size), s.get("by_gradient", d)))
    return b.sub(p, b.mul(b.div(first, size), s.get("by_mean", d))), first, second


NADAM = optimizer(
    "optim.nadam",
    Rule(
        scalars=("weight_decay", "rate1", "beta2", "rate2", "correction", "by_gradient", "by_mean", "eps"),
        flags=("maximize", "decays", "decoupled"),
        slots=lambda flags: ("exp_avg", "exp_avg_sq"),
        update=_nadam,
    ),
)


def _radam(b: Builder, s: Scalars, flags: Flags, p: Node, g: Node, first: Node, second: Node) -> tuple[Node, ...]:
    d = p.dtype
    p = _decayed(b, s, flags, p)
    first, second = moved(b, first, g, s.get("rate1", d)), _square_mean(b, s, second, g)
    # The scalar is 0 while the variance is not tractable: a select, so that the first adaptive step is no new plan.
    rectified = b.expand_to(s.get("rectified", d), p.shape)
    one = b.expand_to(b.constant(1, d), p.shape)
    adaptive = b.div(rectified, b.add(b.sqrt(second), s.get("eps", d)))
    factor = b.select(b.gt(rectified, b.constant(0, d)), adaptive, one)
    return b.sub(p, b.mul(b.mul(first, s.get("step_size", d)), factor)), first, second


RADAM = optimizer(
    "optim.radam",
    Rule(
        scalars=("weight_decay", "rate1", "beta2", "rate2", "step_size", "rectified", "eps"),
        flags=("maximize", "decays", "decoupled"),
        slots=lambda flags: ("exp_avg", "exp_avg_sq"),
        update=_radam,
    ),
)


def _asgd(b: Builder, s: Scalars, _: Flags, p: Node, g: Node, mean: Node) -> tuple[Node, ...]:
    d = p.dtype
    p = b.sub(b.mul(p, s.get("shrink", d)), b.mul(g, s.get("eta", d)))
    rate = b.expand_to(s.get("mu", d), p.shape)
    return p, b.select(b.eq(rate, b.constant(1, d)), p, moved(b, mean, p, rate))


ASGD = optimizer(
    "optim.asgd",
    Rule(
        scalars=("weight_decay", "shrink", "eta", "mu"),
        flags=("maximize", "decays"),
        slots=lambda flags: ("ax",),
        update=_asgd,
    ),
)


def _rprop(b: Builder, s: Scalars, _: Flags, p: Node, g: Node, before: Node, size: Node) -> tuple[Node, ...]:
    d = p.dtype
    product, zero = b.mul(g, before), b.expand_to(b.constant(0, d), p.shape)
    turned = b.lt(product, zero)
    one = b.expand_to(b.constant(1, d), p.shape)
    slower, faster = (b.expand_to(s.get(name, d), p.shape) for name in ("slower", "faster"))
    factor = b.select(b.gt(product, zero), faster, b.select(turned, slower, one))
    size = b.minimum(b.maximum(b.mul(size, factor), s.get("least", d)), s.get("most", d))
    g = b.select(turned, zero, g)
    # As PyTorch: a NaN has no sign, and its parameter stays.
    way = b.select(b.isnan(g), zero, b.sign(g))
    return b.sub(p, b.mul(way, size)), g, size


RPROP = optimizer(
    "optim.rprop",
    Rule(
        scalars=("slower", "faster", "least", "most"),
        flags=("maximize",),
        slots=lambda flags: ("prev", "step_size"),
        update=_rprop,
    ),
)


def _lion(b: Builder, s: Scalars, flags: Flags, p: Node, g: Node, mean: Node) -> tuple[Node, ...]:
    d = p.dtype
    p = _decayed(b, s, flags, p)
    away = b.sub(g, mean)
    mean = b.add(mean, b.mul(away, s.get("rate2", d)))
    # The direction by way of the new mean, whose kernel it then shares: mean + away * rate1 of the old one.
    way = b.sign(b.add(mean, b.mul(away, s.get("ahead", d))))
    return b.sub(p, b.mul(way, s.get("lr", d))), mean


LION = optimizer(
    "optim.lion",
    Rule(
        scalars=("lr", "weight_decay", "ahead", "rate2"),
        flags=("maximize", "decays", "decoupled"),
        slots=lambda flags: ("exp_avg",),
        update=_lion,
    ),
)
