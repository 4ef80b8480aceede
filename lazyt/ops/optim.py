"""Optimizer steps: one operation over all parameters, all hyperparameters being scalar operands.

Operands are tensors, parameter by parameter, then the scalars of each bucket of parameters that share them;
the static says, for each bucket, how many parameters it has and which variant of the rule. Results are the
new values of what the rule changes, parameter by parameter.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyt.errors import NotSupportedError
from lazyt.ir import dtypes
from lazyt.ops.definition import OpDef, Operand, define, node_of
from lazyt.ops.reductions import reduce

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node


class Scalars:
    """The hyperparameters of a bucket, as 0-d nodes of the dtype that is asked for."""

    def __init__(self, b: Builder, names: Sequence[str], values: Sequence[Operand]) -> None:
        self.b = b
        self.values = dict(zip(names, values, strict=True))

    def get(self, name: str, dtype: np.dtype) -> Node:
        return node_of(self.b, self.values[name], dtype)


class Rule(NamedTuple):
    """An update: `slots(flags)` names its state, `scalars` its hyperparameters, `flags` its variants.

    `update` gets the gradient as it is to be used: negated to maximize, with weight decay unless that is decoupled.
    `by_element`: each element is updated by itself, so a complex parameter is one of twice as many real elements.
    """

    scalars: tuple[str, ...]
    flags: tuple[str, ...]
    slots: Callable[[dict[str, int]], tuple[str, ...]]
    update: Callable[..., tuple[Node, ...]]
    by_element: bool = True


RULES: dict[OpDef, Rule] = {}
# The same step, skipped where its last operand, a 0-d tensor, is not 0: then everything is as it was.
SKIPPABLE: dict[OpDef, OpDef] = {}


def optimizer(name: str, rule: Rule) -> OpDef:
    """Define the operation of an optimizer's step."""

    def lower(b: Builder, *operands: Any) -> tuple[Node, ...]:
        return updates(b, None, *operands)

    def lower_skippable(b: Builder, *operands: Any) -> tuple[Node, ...]:
        *xs, found, buckets = operands
        return updates(b, b.ne(found, b.constant(0, found.dtype)), *xs, buckets)

    def updates(b: Builder, skipped: Node | None, *operands: Any) -> tuple[Node, ...]:
        *xs, buckets = operands
        widths = [2 + len(rule.slots(_flags(rule, bucket))) for bucket in buckets]
        at = sum(n[0] * w for n, w in zip(buckets, widths, strict=True))
        tensors, scalars = iter(xs[:at]), iter(xs[at:])
        out: list[Node] = []
        for bucket, width in zip(buckets, widths, strict=True):
            given = Scalars(b, rule.scalars, [next(scalars) for _ in rule.scalars])
            flags = _flags(rule, bucket)
            for _ in range(bucket[0]):
                own: list[Node] = [next(tensors) for _ in range(width)]
                new = _updated(b, rule, given, flags, own)
                if skipped is not None:
                    old = (own[0], *own[2:])
                    new = [b.select(b.expand_to(skipped, x.shape), x, y) for x, y in zip(old, new, strict=True)]
                out += new
        return tuple(out)

    op = define(name, lower, differentiable=False)
    SKIPPABLE[op] = OpDef(f"{name}_or_not", lower_skippable, differentiable=False)
    RULES[op] = rule
    return op


def _flags(rule: Rule, bucket: tuple[Any, ...]) -> dict[str, int]:
    return dict(zip(rule.flags, bucket[1:], strict=True))


def _updated(b: Builder, rule: Rule, given: Scalars, flags: dict[str, int], own: list[Node]) -> list[Node]:
    """The new values of a parameter and its state; the halves compute in float32 and round once."""
    if dtypes.kind(own[0].dtype) == "c" and rule.by_element:
        re, im = (_updated(b, rule, given, flags, [part(x) for x in own]) for part in (b.real, b.imag))
        return [b.complex(x, y) for x, y in zip(re, im, strict=True)]
    work = dtypes.computed_in(own[0].dtype)
    p, g, *state = (b.cast(x, work) for x in own)
    if flags.get("maximize", False):
        g = b.neg(g)
    if flags.get("decays", False) and not flags.get("decoupled", False):
        g = b.add(g, b.mul(p, given.get("weight_decay", work)))
    new = rule.update(b, given, flags, p, g, *state)
    return [b.cast(y, x.dtype) for x, y in zip((own[0], *own[2:]), new, strict=True)]


def moved(b: Builder, x: Node, y: Node, rate: Node) -> Node:
    """x + (y - x) * rate"""
    return b.add(x, b.mul(b.sub(y, x), rate))


def _sgd(b: Builder, s: Scalars, flags: dict[str, int], p: Node, g: Node, *state: Node) -> tuple[Node, ...]:
    d = p.dtype
    if flags["has_momentum"]:
        momentum = s.get("momentum", d)
        buffer = b.add(b.mul(state[0], momentum), b.mul(g, s.get("undamped", d)))
        g = b.add(g, b.mul(buffer, momentum)) if flags["nesterov"] else buffer
        state = (buffer,)
    return (b.sub(p, b.mul(g, s.get("lr", d))), *state)


SGD = optimizer(
    "optim.sgd",
    Rule(
        scalars=("lr", "weight_decay", "momentum", "undamped"),
        flags=("maximize", "decays", "has_momentum", "nesterov"),
        slots=lambda flags: ("momentum_buffer",) if flags["has_momentum"] else (),
        update=_sgd,
    ),
)


def _adam(b: Builder, s: Scalars, flags: dict[str, int], p: Node, g: Node, *state: Node) -> tuple[Node, ...]:
    d = p.dtype
    if flags["decays"] and flags["decoupled"]:
        # The scalar is 1 - lr * weight_decay here.
        p = b.mul(p, s.get("weight_decay", d))
    first = moved(b, state[0], g, s.get("rate1", d))
    second = b.add(b.mul(state[1], s.get("beta2", d)), b.mul(b.mul(g, g), s.get("rate2", d)))
    most = b.maximum(state[2], second) if flags["amsgrad"] else second
    size = b.add(b.div(b.sqrt(most), s.get("root", d)), s.get("eps", d))
    p = b.sub(p, b.mul(b.div(first, size), s.get("step_size", d)))
    return (p, first, second, most) if flags["amsgrad"] else (p, first, second)


ADAM = optimizer(
    "optim.adam",
    Rule(
        scalars=("weight_decay", "rate1", "beta2", "rate2", "step_size", "root", "eps"),
        flags=("maximize", "decays", "decoupled", "amsgrad"),
        slots=lambda flags: ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if flags["amsgrad"] else ())),
        update=_adam,
    ),
)


def _rmsprop(b: Builder, s: Scalars, flags: dict[str, int], p: Node, g: Node, *state: Node) -> tuple[Node, ...]:
    d = p.dtype
    rate = s.get("rate", d)
    second = b.add(b.mul(state[0], s.get("alpha", d)), b.mul(b.mul(g, g), rate))
    new = [second]
    spread = second
    if flags["centered"]:
        mean = moved(b, state[-1], g, rate)
        spread = b.sub(second, b.mul(mean, mean))
    step = b.div(g, b.add(b.sqrt(spread), s.get("eps", d)))
    if flags["has_momentum"]:
        step = b.add(b.mul(state[1], s.get("momentum", d)), step)
        new.append(step)
    if flags["centered"]:
        new.append(mean)
    return (b.sub(p, b.mul(step, s.get("lr", d))), *new)


def _rmsprop_slots(flags: dict[str, int]) -> tuple[str, ...]:
    more = (("momentum_buffer",) if flags["has_momentum"] else ()) + (("grad_avg",) if flags["centered"] else ())
    return ("square_avg", *more)


RMSPROP = optimizer(
    "optim.rmsprop",
    Rule(
        scalars=("lr", "weight_decay", "alpha", "rate", "eps", "momentum"),
        flags=("maximize", "decays", "has_momentum", "centered"),
        slots=_rmsprop_slots,
        update=_rmsprop,
    ),
)


def _adagrad(b: Builder, s: Scalars, flags: dict[str, int], p: Node, g: Node, total: Node) -> tuple[Node, ...]:
    d = p.dtype
    total = b.add(total, b.mul(g, g))
    step = b.div(g, b.add(b.sqrt(total), s.get("eps", d)))
    return b.sub(p, b.mul(step, s.get("lr", d))), total


ADAGRAD = optimizer(
    "optim.adagrad",
    Rule(
        scalars=("lr", "weight_decay", "eps"),
        flags=("maximize", "decays"),
        slots=lambda flags: ("sum",),
        update=_adagrad,
    ),
)


# Gradients of all parameters at once


def norm(b: Builder, *operands: Any) -> Node:
    """The p-norm of the p-norms of operands, in the working dtype of the first.

    NOTE: for all p but 0 this is the p-norm of all elements; for 0 it is how many operands have one that is not 0.
    """
    *grads, p = operands
    work = dtypes.computed_in(grads[0].dtype)
    extreme = {math.inf: "max", -math.inf: "min"}.get(p)
    parts = []
    for g in grads:
        size = b.abs(b.cast(g, work))
        work = size.dtype
        if extreme is not None:
            parts.append(reduce(b, extreme, size, range(g.ndim)))
        elif p == 0:
            count = reduce(b, "sum", _is_not_zero(b, size), range(g.ndim))
            parts.append(_is_not_zero(b, count))
        else:
            power = b.mul(size, size) if p == 2 else size if p == 1 else b.pow(size, b.constant(p, work))
            parts.append(reduce(b, "sum", power, range(g.ndim)))
    total = parts[0]
    for x in parts[1:]:
        total = b.maximum(total, x) if extreme == "max" else b.minimum(total, x) if extreme else b.add(total, x)
    if p in (0, 1) or extreme is not None:
        return total
    out: Node = b.sqrt(total) if p == 2 else b.pow(total, b.constant(1 / p, work))
    return out


def _is_not_zero(b: Builder, x: Node) -> Node:
    """1 where x is not 0, else 0."""
    return b.cast(b.ne(x, b.expand_to(b.constant(0, x.dtype), x.shape)), x.dtype)


def clip(b: Builder, *operands: Any) -> tuple[Node, ...]:
    """Operands: gradients, then their norm and its limit (by 'norm'), or the limit of an element (by 'value')."""
    *xs, how = operands
    grads, limits = (xs[:-2], xs[-2:]) if how == "norm" else (xs[:-1], xs[-1:])
    out = []
    for g in grads:
        work = dtypes.computed_in(g.dtype)
        v = b.cast(g, work)
        work = dtypes.real_of(work)
        if how == "norm":
            size, most = (node_of(b, x, work) for x in limits)
            # PyTorch's 1e-6; a norm below the limit leaves the gradients as they are.
            factor = b.minimum(b.div(most, b.add(size, b.constant(1e-6, work))), b.constant(1, work))
            y = b.mul(v, b.cast(factor, v.dtype))
        elif dtypes.kind(g.dtype) == "c":
            raise NotSupportedError(
                f"not supported: clipping a gradient of {g.dtype} by value, because complex numbers have no order: "
                "clip it by its norm"
            )
        else:
            most = b.expand_to(node_of(b, limits[0], work), v.shape)
            y = b.maximum(b.minimum(v, most), b.neg(most))
        out.append(b.cast(y, g.dtype))
    return tuple(out)


NORM = define("clip_grad_norm", norm, differentiable=False)
CLIP = define("clip_grad", clip, differentiable=False)


def average(b: Builder, *operands: Any) -> tuple[Node, ...]:
    """Operands: averages, what they move towards, and by which rate; integers are cut off, as in PyTorch."""
    *xs, rate = operands
    half = len(xs) // 2
    out = []
    for old, new in zip(xs[:half], xs[half:], strict=True):
        work = dtypes.float32 if dtypes.kind(old.dtype) in "biu" else dtypes.computed_in(old.dtype)
        a, y = (b.cast(x, work) for x in (old, new))
        out.append(b.cast(moved(b, a, y, node_of(b, rate, work)), old.dtype))
    return tuple(out)


AVERAGE = define("average_parameters", average, differentiable=False)
