"""Reverse mode: a transformation of the graph that appends the nodes of its gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.autograd.rules import NONDIFFERENTIABLE, OPAQUE_VJP, VJP
from lazyt.autograd.rules.formula import carries, zeros
from lazyt.errors import is_lasting
from lazyt.ir import graph as g

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    # node -> output -> cotangent: an opaque call has one an output, every other node has its own at 0.
    Found = dict[Node, dict[int, Node]]


def backward(
    b: Builder,
    outputs: Sequence[Node],
    cotangents: Sequence[Node],
    wanted: Sequence[Sequence[Node]],
    blocked: Collection[Node] = (),
    pull: Callable[[Builder, Node, Found, dict[Node, bool]], None] | None = None,
) -> tuple[list[Node], tuple[bool, ...]]:
    """Append to `b` the cotangents of `wanted`, given those of `outputs`.

    wanted[i] is a group of nodes (the versions of one leaf): the sum of their cotangents is gradient i, with
    the shape and dtype of the first; it is zeros when no output depends on any of them, and then the second
    result says False at i. A node's contributions are added in its dtype, those of `outputs` first and then
    by decreasing serial number of the consumer: the order is the graph's own. `stop`, integers and the
    nodes in `blocked` pass nothing on. pull: what passes the cotangent of a node on, in place of `_pull`.
    """
    groups = [list(dict.fromkeys(group)) for group in wanted]
    path, through = _path(b, outputs, {n for group in groups for n in group}, blocked)
    found: Found = {}
    for y, ct in zip(outputs, cotangents, strict=True):
        if y in through:
            _contribute(b, found, y, 0, ct)
    site = b.site
    carried = set(cotangents)
    for n in reversed(path):
        if n in found and through[n]:
            b.site = g.pulled(n.site)
            start = len(b.nodes)
            (pull or _pull)(b, n, found, through)
            _mark_local(b.nodes[start:], g.pulled(n.site, local=True), carried)
    b.site = site
    gradients = [_total(b, group, found) for group in groups]
    return gradients, tuple(any(n in found for n in group) for group in groups)


def needed(b: Builder, outputs: Sequence[Node], wanted: Sequence[Sequence[Node]]) -> set[Node]:
    """The nodes of `b` (sources too) that the gradients of `outputs` by `wanted` would read.

    They are found by building the gradients, for unknown cotangents, in a fork of `b` and looking at its
    border: no second table says what a rule reads, so none can be wrong. The guards that the rules leave in
    the scope stay, as they will once the gradients are built. What a rule reads that raises is not known:
    it raises again when the gradients are asked for, and if it does not, that is computed again.
    """
    fork = b.fork()
    unknown = [fork.input(-1 - i, y.shape, y.dtype) for i, y in enumerate(outputs)]
    gradients, _ = backward(fork, outputs, unknown, wanted, pull=_pull_if_able)
    old = len(b.nodes)
    made = [n for n in g.reachable(gradients) if n.serial >= old]
    return {o for n in made for o in n.operands if o.serial < old} | {n for n in gradients if n.serial < old}


def _path(
    b: Builder, outputs: Sequence[Node], wanted: set[Node], blocked: Collection[Node]
) -> tuple[list[Node], dict[Node, bool]]:  # fmt: skip
    """The nodes that vary with a wanted one, in order; and whether they pass cotangents to their operands.

    What passes nothing on, or cannot vary with a wanted node, is not looked behind: there lie, for one, all earlier
    iterations of a loop.
    """
    tracked = b.tracked
    for n in b.nodes[len(tracked) :]:
        tracked.append(n.op == "track" or (n.op != "stop" and any(tracked[o.serial] for o in n.operands)))
    first = min((n.serial for n in wanted), default=len(b.nodes))
    anywhere = not all(tracked[n.serial] for n in wanted)
    may: dict[Node, bool] = {}

    def enters(n: Node) -> bool:
        fn = n.attrs.fn if isinstance(n.attrs, g.Opaque) else n.op
        found = may[n] = (
            n.serial > first
            and (anywhere or tracked[n.serial])
            and _varies(n)
            and fn not in NONDIFFERENTIABLE
            and n not in blocked
        )
        return found

    path, through = [], {}
    for n in g.reachable(outputs, enters):
        passes = may[n] and any(o in through for o in n.operands)
        if passes or (n in wanted and _varies(n)):
            path.append(n)
            through[n] = passes
    return path, through


def _varies(n: Node) -> bool:
    """Whether n has a derivative at all."""
    return carries(n) or n.op == "opaque"


def _contribute(b: Builder, found: Found, n: Node, output: int, ct: Node) -> None:
    """Add to the cotangent of n; of a complex contribution to a real value, the real part."""
    if n.op != "opaque":
        ct = b.cast(ct, n.dtype)
    sofar = found.setdefault(n, {})
    sofar[output] = b.add(sofar[output], ct) if output in sofar else ct


def _pull(b: Builder, n: Node, found: Found, through: dict[Node, bool]) -> None:
    """Pass the cotangent of n on to its operands."""
    cts: tuple[Node | None, ...]
    match n.attrs:
        case g.Item(index=k):
            _contribute(b, found, n.operands[0], k, found[n][0])
            return
        case g.Opaque(fn=fn, outputs=outputs):
            cts = OPAQUE_VJP[fn](b, n, tuple(found[n].get(i) for i in range(len(outputs))))
        case _:
            start = len(b.nodes)
            cts = VJP[n.op](b, n, found[n][0])
            if n in b.copies:
                cts = _read_copy(b, n, b.nodes[start:], cts)
    for o, ct in zip(n.operands, cts, strict=True):
        if ct is not None and o in through:
            _contribute(b, found, o, 0, ct)


def _pull_if_able(b: Builder, n: Node, found: Found, through: dict[Node, bool]) -> None:
    """`_pull` of a node whose rule may raise: then the cotangent ends there."""
    try:
        _pull(b, n, found, through)
    except Exception as e:
        if not is_lasting(e, lambda: _pull(b, n, found, through)):
            raise


def _read_copy(b: Builder, n: Node, made: Sequence[Node], cts: tuple[Node | None, ...]) -> tuple[Node | None, ...]:
    """What a rule has `made`, reading the stored copy of n in place of n: that need not be computed again then."""
    new = {n: b.copies[n]}
    for m in made:
        if any(o in new for o in m.operands):
            b.site = m.site
            new[m] = b.make(m.op, tuple(new.get(o, o) for o in m.operands), m.attrs, m.shape, m.dtype)
    return tuple(ct if ct is None else new.get(ct, ct) for ct in cts)


def _mark_local(made: Sequence[Node], origin: Any, carried: set[Node]) -> None:
    """Tell what a rule computed of cotangents (it joins `carried`) from what it computed without."""
    for n in made:
        if any(o in carried for o in n.operands):
            carried.add(n)
        else:
            n.site = origin


def _total(b: Builder, group: list[Node], found: Found) -> Node:
    first = group[0]
    parts = [b.cast(found[n][0], first.dtype) for n in group if n in found]
    if not parts:
        return zeros(b, first.shape, first.dtype)
    total = parts[0]
    for p in parts[1:]:
        total = b.add(total, p)
    return total
