"""What a sync would have in memory, before it runs: `lazyt.memory.plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lazyt.backends.registry import backends
from lazyt.errors import NoResult, NotSupportedError
from lazyt.inspect.explain import ELSEWHERE, Explanation, Nothing, explain_whole
from lazyt.inspect.kernels import sizes
from lazyt.ir import graph as g
from lazyt.ir.passes.call_operands import is_on_host, nbytes
from lazyt.ir.passes.saved_values import Sides, saved_values
from lazyt.runtime.computing import differentiable
from lazyt.runtime.liveness import wanted_of
from lazyt.runtime.plan_cache import show
from lazyt.tracing.printer import aligned, bytes_text, html_text, plural, site_text, time_text
from lazyt.tracing.program import position
from lazyt.tracing.trace import Trace, local

if TYPE_CHECKING:
    from lazyt.ir.graph import Graph, Node
    from lazyt.tracing.tensor_state import Handle

# Lines of a table, and bars of a picture, that are written out.
SHOWN, BARS, WIDTH = 24, 32, 48
KEPT, RECOMPUTED, COMPRESSED, OFFLOADED = "kept", "recomputed", "compressed", "offloaded"
LATER = "a later backward"
CHECKPOINT = "checkpoint calls its function again"
NO_CHOICE = "this sync comes before its backward, so a budget computes nothing of it again"


class SavedLine(NamedTuple):
    """A value that the backward pass reads: what it is, who made it, who needs it, and what becomes of it."""

    operation: str  # the public operation that made it
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    line: str  # the user's line
    readers: tuple[str, ...]  # the operations whose gradients read it
    decision: str  # 'kept', 'recomputed', 'compressed' (kept in few bits) or 'offloaded' (to the host's memory)
    why: str
    made: int = 0  # the launch that makes it, from 1; 0 if a budget recomputes it
    dies: int = 0  # the last launch that reads it; 0 if a budget recomputes it, or if it outlives the run


class MemoryPlan:
    """What a sync would have in memory. Bytes are those of `lazyt.memory.allocated()`: whole blocks.

    `peak` is what `lazyt.memory.peak()` will be if nothing else is allocated meanwhile: `held`, what is allocated now
    (inputs among it), plus `results` that do not take the memory of an input, plus `temporaries`, which are one block,
    plus `packed`, weights that the run packs and that stay so.
    `saved` has a line for each value that the backward reads, `launches` the live bytes at each launch.
    """

    def __init__(self, found: Explanation, tr: Trace, later: set[tuple[int, int]]) -> None:
        plan, bound = found.plan, found.bound
        allocator = backends[plan.device].allocator
        self.held: int = allocator.statistics(plan.device).allocated
        fresh = sum(map(allocator.block, bound.sizes)) - bound.spared(tr.inputs)
        self.inputs: int = found.inputs
        self.results: int = max(fresh, 0)
        self.packed: int = bound.to_stay(tr.inputs)
        # NOTE: a run takes the binding that there is, which may have been laid out for other threads.
        temporaries = plan.executable.bound.get(tr.ext.values, bound).temporaries()
        self.temporaries: int = allocator.arena_block(temporaries) if temporaries else 0
        self.launches: list[int] = _live(found, self.held + self.results)
        self.saved: list[SavedLine] = [*_kept(found, later), *_recomputed(found)]
        self.reason = found.reason

    @property
    def peak(self) -> int:
        """The most bytes that will be allocated."""
        return self.held + self.results + self.temporaries + self.packed

    @property
    def kept(self) -> int:
        """Bytes of the values that are kept for the backward on the device."""
        return sum(s.nbytes for s in self.saved if s.decision not in (RECOMPUTED, OFFLOADED))

    @property
    def offloaded(self) -> int:
        """Bytes of the values that lie in the host's memory until the backward reads them."""
        return sum(s.nbytes for s in self.saved if s.decision == OFFLOADED)

    @property
    def recomputed(self) -> int:
        """Bytes of the values that the backward computes again."""
        return sum(s.nbytes for s in self.saved if s.decision == RECOMPUTED)

    def __str__(self) -> str:
        names = ("held", "results", "temporaries", *["packed"] * (self.packed > 0))
        parts = [f"{name} {bytes_text(getattr(self, name))}" for name in names]
        lines = [f"peak {bytes_text(self.peak)}: {', '.join(parts)}"]
        if self.saved:
            count = {what: sum(s.decision == what for s in self.saved) for what in (COMPRESSED, RECOMPUTED, OFFLOADED)}
            text = f"the backward reads {plural(len(self.saved), 'value')}: {bytes_text(self.kept)} kept"
            if count[COMPRESSED]:
                few = sum(s.nbytes for s in self.saved if s.decision == COMPRESSED)
                text += f" ({count[COMPRESSED]} of them compressed, in {bytes_text(few)})"
            if count[RECOMPUTED]:
                text += f", {count[RECOMPUTED]} of {bytes_text(self.recomputed)} recomputed"
            if count[OFFLOADED]:
                text += f", {count[OFFLOADED]} of {bytes_text(self.offloaded)} in the host's memory"
            lines.append(text)
        largest = sorted(self.saved, key=lambda s: -s.nbytes)
        lines += aligned([_row(s) for s in largest[:SHOWN]], "  ")
        if len(largest) > SHOWN:
            rest = largest[SHOWN:]
            lines.append(f"  and {len(rest)} more, {bytes_text(sum(s.nbytes for s in rest))}")
        return "\n".join([*lines, *self.picture()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_text(str(self))

    def picture(self) -> list[str]:
        """Bars of what is live at each launch; several launches have one bar if they are many: the most of theirs."""
        if not self.launches:
            return []
        each = -(-len(self.launches) // BARS)
        groups = [self.launches[i : i + each] for i in range(0, len(self.launches), each)]
        most = max(max(self.launches), 1)
        rows = []
        for i, group in enumerate(groups):
            first, last = i * each + 1, i * each + len(group)
            name = f"{first}" if first == last else f"{first}-{last}"
            rows.append((name, bytes_text(max(group)), "#" * max(round(WIDTH * max(group) / most), 1)))
        return ["live at each launch:", *aligned(rows, "  ")]


def _row(s: SavedLine) -> tuple[str, ...]:
    shape = g.shape_text(s.shape)
    there = s.decision != RECOMPUTED or s.made
    span = f"launch {s.made} to {s.dies or 'the end'}" if there else s.why
    span += f"; {s.why}" if there and s.why else ""
    readers = ", ".join(dict.fromkeys(s.readers))
    return bytes_text(s.nbytes), f"{s.operation} {s.dtype} {shape}", s.line, f"for {readers}", f"{s.decision}: {span}"


def _live(found: Explanation, always: int) -> list[int]:
    """The bytes that are live at each launch: what there is all the time, and the temporaries of that time."""
    size = sizes(found.bound)
    schedule = found.plan.schedule
    change = [0] * (len(schedule.regions) + 1)
    over = schedule.in_place or {}
    for n, (first, last) in schedule.lives.items():
        if n in found.bound.nowhere:
            continue
        first += n in over  # until then its memory counts for another one
        change[first] += size(nbytes(n))
        change[last + 1] -= size(nbytes(n))
    out: list[int] = []
    level = always
    for c in change[:-1]:
        level += c
        out.append(level)
    return out


def _line(
    n: Node, readers: tuple[str, ...], decision: str, why: str, found: Explanation, span: tuple[int, int] = (0, 0)
) -> SavedLine:  # fmt: skip
    size = sizes(found.bound)
    named = n.site if isinstance(n.site, g.Origin) else None
    return SavedLine(
        n.op if named is None else named.name, tuple(map(size, n.shape)), str(n.dtype), size(nbytes(n)),
        "?" if named is None else site_text(named.site), readers, decision, why, *span,
    )  # fmt: skip


def _readers(nodes: tuple[Node, ...]) -> tuple[str, ...]:
    """The operations whose gradients read a value, each with its line."""
    return tuple(dict.fromkeys(f"{r.site.name} at {site_text(r.site.site)}" for r in nodes if _named(r)))


def _behind(moves: tuple[Node, ...], graph: Graph) -> tuple[Node, ...]:
    """What reads the values that copies from the host's memory make."""
    return tuple(n for n in graph.nodes if any(x.op == "item" and x.operands[0] in moves for x in n.operands))


def _named(n: Node) -> bool:
    return isinstance(n.site, g.Origin)


def _kept(found: Explanation, later: set[tuple[int, int]]) -> list[SavedLine]:
    """What is kept for the backward of this program, and for one that comes after the sync."""
    plan = found.plan
    schedule = plan.schedule
    made: dict[Node, int] = {}
    last: dict[Node, int] = {}
    for i, region in enumerate(schedule.regions):
        for c in region:
            for n in c.writes:
                made.setdefault(n, i + 1)
            for n in c.reads:
                last[n] = i + 1
    wanted = len(plan.wanted)
    outputs, stored = dict(zip(plan.wanted, schedule.outputs[:wanted], strict=True)), schedule.outputs[wanted:]
    held = {*schedule.outputs}
    sides = Sides(plan.graph)
    again = sides.second_passes()
    out = []
    for s in saved_values(plan.graph, plan.division.stored, sides):
        n = s.node
        if n in found.bound.nowhere:  # what reads it is part of the product that makes it
            continue
        decision = RECOMPUTED if n in again else COMPRESSED if n in plan.graph.kept else KEPT
        decision = OFFLOADED if is_on_host(n) else decision
        span = made.get(n, 0), 0 if n in held else last.get(n, 0)
        readers = _behind(s.readers, plan.graph) if decision == OFFLOADED else s.readers
        out.append(_line(n, _readers(readers), decision, CHECKPOINT if n in again else "", found, span))
    kept = dict.fromkeys(n for name, n in outputs.items() if name in later and n.op != "input")
    out += [_line(n, (LATER,), KEPT, NO_CHOICE, found, (made.get(n, 0), 0)) for n in kept]
    of_later = dict.fromkeys(n for n in stored if n.op != "input" and n not in kept)
    return out + [
        _line(n, (LATER,), COMPRESSED if n in plan.graph.kept else KEPT, "", found, (made.get(n, 0), 0))
        for n in of_later
    ]


def _recomputed(found: Explanation) -> list[SavedLine]:
    choice = found.plan.choice
    if choice is None:
        return []
    out = []
    for a in choice.again:
        why = "the policy says so" if a.asked else "to stay within the budget"
        why += f"; about {time_text(a.cost * 1e-9)}"
        out.append(_line(a.value.node, _readers(a.value.readers), RECOMPUTED, why, found))
    return out


def plan(*values: Handle) -> MemoryPlan:
    """What a sync would have in memory now: its peak, and every value that the backward keeps. Runs nothing.

    values: pending tensors, such as the loss of a step that is recorded; without any, all that is pending. Whatever is
    given, a sync computes everything that is held, so that is what is planned; NoResult where nothing is pending. A
    sync that follows runs the plan that is shown, and does not make it again, also where it would have divided a long
    backward.

    `print` shows the peak, a line for each value that the backward reads (bytes, operation, dtype and shape, the user's
    line, the gradients that read it, the launches of its life, or that it is recomputed and why), and a picture of the
    memory over the launches. Raises NotSupportedError for the trace of a long loop, which runs in parts, and
    OutOfMemory under a `budget` that is too small.

    >>> import lazyt as lt
    >>> x = lt.ones((8, 4))
    >>> w = lt.ones((4, 4)).requires_grad_()
    >>> lt.sync()
    >>> loss = lt.exp(x @ w).sum()
    >>> loss.backward()
    >>> found = lt.memory.plan(loss)
    >>> [(s.operation, s.nbytes, s.decision) for s in found.saved]
    [('exp', 128, 'kept')]
    >>> found.peak >= found.kept
    True
    """
    tr: Trace = local.trace
    found: Any = explain_whole(*values)
    if isinstance(found, Nothing) and found.why == ELSEWHERE:
        raise NoResult(
            "memory.plan: a value that is pending in another thread is planned there: call it in that thread"
        )
    if isinstance(found, Nothing):
        raise NoResult(f"memory.plan: nothing would run: {found.why}")
    if not isinstance(found, Explanation):
        raise NotSupportedError(
            "not supported: memory.plan of a trace that runs in parts, because each part has a plan of its own; sync "
            "more often, or see lt.explain()"
        )
    show(tr.pos.program, found.plan)
    wanted, _, others = wanted_of(tr)
    segment = differentiable(tr, wanted, others)
    later = set() if segment is None else set(map(position, segment.slots))
    return MemoryPlan(found, tr, later)


__all__ = ["MemoryPlan", "SavedLine", "plan"]
