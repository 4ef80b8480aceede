"""From a trace to its graph: every step writes its primitives, over symbolic extents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from lazyt.errors import found_at, is_lasting
from lazyt.ir import graph as g
from lazyt.ir.builder import Builder, Weak
from lazyt.ir.graph import Node
from lazyt.ir.symbolic import Scope
from lazyt.ops.compression import DRAWS
from lazyt.ops.residuals import EARLIER
from lazyt.tracing.program import ASSIGN, INPUT, MODE, Slot
from lazyt.tracing.trace import Step


class _Nodes(dict[Slot, Node]):
    """The node of each value. To read that of a step that could not be written raises the step's error."""

    def __init__(self) -> None:
        self.failed: dict[Step, Exception] = {}

    def __missing__(self, x: Slot) -> Node:
        error = self.failed.get(x.step)
        if error is None:
            raise KeyError(x)
        raise error


class Lowered:
    """The graph of a trace, and which node stands for which slot."""

    def __init__(self, extents: Sequence[int], scalars: Sequence[Any]) -> None:
        self.extents = extents
        self.scalars = scalars
        self.scope = Scope()
        self.builder = Builder(self.scope, share=False)
        self.nodes = _Nodes()
        self.inputs: list[Node] = []
        self.starts: list[int] = []  # how many nodes there were before each step

    def symbols(self, start: int, count: int) -> g.Shape:
        return tuple(self.scope.symbol(start + i, self.extents[start + i]) for i in range(count))

    def track(self, x: Node, s: Step, k: int) -> Node:
        """Value k of a step as one that gradients are asked for, apart from others that share its data."""
        return self.builder.make("track", (x,), g.Identity(s.index, k), x.shape, x.dtype)


def lower(steps: Sequence[Step], extents: Sequence[int], scalars: Sequence[Any], asked: Iterable[Slot] = ()) -> Lowered:
    """Write the primitives of `steps`; `extents` are those of the trace, `scalars` only give offsets their hints.

    asked: values whose cotangents will be asked for, besides those that the steps themselves ask for.

    What a step raises is raised where a node that depends on it is asked for (see `_Nodes`).
    """
    low = Lowered(extents, scalars)
    apart = {*asked, *(x for s in steps if (named := getattr(s.op, "asked", None)) is not None for x in named(s))}
    draws = draws_of(steps)
    told: dict[tuple[int, str], tuple[Node, g.Shape]] = {}  # by draw and device
    for s in steps:
        draw = draws.get(s)
        if draw is not None and (draw.seed, s.device) in told:
            node, averages = told[draw.seed, s.device]
            draw = replace(draw, told=node, averages=averages)
        low.builder.site = g.Origin(s.op.name, s.site, step=s.index, draw=draw, rounded=s.mode.rounded)
        low.starts.append(len(low.builder.nodes))
        if s.op is INPUT:
            _lower_input(low, s)
        elif s.op is not MODE:
            _lower_step(low, s)
            if s.op in DRAWS and len(s.operands) > 2:
                told[s.scalar_start, s.device] = low.nodes[s.operands[2]], low.symbols(s.ext_start, s.n_ints)
        if apart:
            _set_apart(low, s, apart)
    return low


def _lower_step(low: Lowered, s: Step) -> None:
    """Write an operation; what it raises is kept for those that read it, as long as it raises the same again."""
    expand = _lower_assign if s.op is ASSIGN else getattr(s.op, "expand", _lower_op)
    site = low.builder.site
    try:
        nodes = expand(low, s)
    except Exception as e:
        at, low.builder.site = low.builder.site, site
        if not is_lasting(e, lambda: expand(low, s)):
            raise
        pulls = at is not site and isinstance(at, g.Origin)
        of = f"derivative of {at.name}, recorded at {at.site}; {s.op.name}" if pulls else s.op.name
        found_at(e, of, s.site, s.index)
        low.nodes.failed[s] = e
        return
    low.nodes.update(zip(s.slots, nodes, strict=True))


def _set_apart(low: Lowered, s: Step, asked: set[Slot]) -> None:
    """Track the values of a step whose cotangents are asked for: as one of its own each has no more and no less.

    Its node may be that of another value too (a copy, `+x`), and the builder reads through a reshape of a reshape.
    """
    before = low.starts[-1]
    for x in s.slots:
        n = low.nodes.get(x)
        if x not in asked or n is None or (n.serial >= before and (n.op == "track" or s.op is ASSIGN)):
            continue
        tracked = low.nodes[x] = low.track(n, s, x.k)
        if n.serial < before:
            continue
        made = x
        while n.op == "known":  # a stored copy of what an earlier step computes
            made = made.step.operands[0]
            n = low.nodes[made].operands[0] if low.nodes[made].op == "track" else low.nodes[made]
        if made.k == 0 and -1 in made.step.op.saves:
            # The derivative reads the result that the operation saves, so that has a part of its cotangent.
            low.builder.copies[n] = tracked


def draws_of(steps: Sequence[Step]) -> dict[Step, g.Draw]:
    """The compression of each step that was recorded under one, and what it draws from: the scalars of a draw.

    It is the one before the step; the first one where a sync came between that and the step.
    """
    where = [s for s in steps if s.op in DRAWS]
    found: dict[Step, g.Draw] = {}
    at = -1
    for s in steps if where else ():
        settings = s.mode.compress
        if s.op in DRAWS:
            at += 1
        # NOTE: a new version of a leaf is a parameter, not something that is saved.
        elif settings is not None and s.op is not ASSIGN and s.op is not EARLIER and not s.targets:
            draw = where[max(at, 0)]
            found[s] = g.Draw(settings, draw.scalar_start, draw.scalar_start + 1, step=draw.index)
    return found


def _lower_input(low: Lowered, s: Step) -> None:
    dtype, ndim, grad, at = s.statics[:4]
    if at < 0:
        n = low.builder.input(len(low.inputs), low.symbols(s.ext_start, ndim), dtype)
        low.inputs.append(n)
    else:
        n = low.inputs[at]
    low.nodes[s] = low.track(n, s, 0) if grad else n


def _lower_assign(low: Lowered, s: Step) -> tuple[Node]:
    b = low.builder
    n = low.nodes[s.operands[0]]
    if len(s.operands) > 1:
        # Written under no_grad: the new value, and the old one's gradient.
        old = low.nodes[s.operands[1]]
        n = b.known(old, b.stop(n))
    elif s.statics[0]:
        n = low.track(b.stop(n), s, 0)
    return (n,)


def primitives_of(low: Lowered, s: Step, scalar_start: int, ext_start: int) -> tuple[Node, ...]:
    """What the operation of a step is written as, on the nodes of its operands.

    `scalar_start` and `ext_start`: where its scalars (weak ones, then offsets) and its integers stand.
    """
    operands: list[Any] = []
    at = scalar_start
    for x in s.operands:
        if isinstance(x, Slot):
            operands.append(low.nodes[x])
        else:
            operands.append(Weak(at, x))
            at += 1
    more: dict[str, Any] = {}
    if "ints" in s.info:
        more["ints"] = low.symbols(ext_start, s.n_ints)
    if "offsets" in s.info:
        more["offsets"] = tuple(low.scope.offset(at + i, low.scalars[at + i]) for i in range(s.n_offsets))
    out = s.op.lower(low.builder, *operands, *s.statics, **more)
    return out if isinstance(out, tuple) else (out,)


def _lower_op(low: Lowered, s: Step) -> tuple[Node, ...]:
    b = low.builder
    nodes = primitives_of(low, s, s.scalar_start, s.ext_start)
    if s.targets:
        return tuple(
            n if slot.leaf is None else low.track(b.stop(n), s, slot.k) for slot, n in zip(s.slots, nodes, strict=True)
        )
    if any(isinstance(x, Slot) and x.requires_grad for x in s.operands):
        nodes = tuple(
            n if slot.requires_grad or n.op in ("constant", "scalar", "input") else b.stop(n)
            for slot, n in zip(s.slots, nodes, strict=True)
        )
    return nodes
