"""Which kernels would run, and why: `x.explain()`. Plans the pending program without keeping or compiling anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.config import general as settings
from lazyt.inspect.kernels import SHOWN, KernelView, kernel_views, sizes
from lazyt.ir import graph as g
from lazyt.ir.passes.call_operands import nbytes
from lazyt.runtime.chain import Pull
from lazyt.runtime.computing import differentiable
from lazyt.runtime.liveness import wanted_of
from lazyt.runtime.memory_policy import described
from lazyt.runtime.partition import Partition
from lazyt.runtime.plan import Plan, build
from lazyt.runtime.plan_cache import is_shown, peek, runs_alone, shown
from lazyt.runtime.subprograms import partition
from lazyt.tracing.printer import aligned, bytes_text, count_text, html_text, plural, time_text
from lazyt.tracing.program import Program, Slot, position
from lazyt.tracing.tensor_state import Handle, Holder
from lazyt.tracing.trace import Ext, Trace, local

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.autograd.later import Later
    from lazyt.backends.interface import Bound
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import Launch


class Explanation:
    """What a sync would run now: its launches are `kernels`, the bytes it needs `peak`, why it plans `reason`."""

    def __init__(
        self, plan: Plan, bound: Bound, *, steps: int, known: bool, reason: str, fused: bool, unfused: Plan | None,
        needed: set[int] | None, alone: bool,
    ) -> None:  # fmt: skip
        self.plan = plan
        self.bound = bound
        self.steps = steps
        self.known = known  # whether a sync would find a plan
        self.reason = reason  # why it would have to make one
        self.fused = fused
        self._unfused = unfused
        self._needed = needed
        self._alone = alone  # whether a sync runs its steps one by one instead
        self.kernels: list[KernelView] = kernel_views(plan, bound)
        size = sizes(bound)
        self.inputs: int = sum(size(nbytes(n)) for n in plan.graph.nodes if isinstance(n.attrs, g.Input))
        self.results: int = sum(bound.sizes)
        self.temporaries: int = bound.arena_size
        # What the backend says of the run as a whole: on a GPU whether its launches go as CUDA graphs, or why not.
        self._notes = plan.executable.notes(bound)

    @property
    def peak(self) -> int:
        """Bytes of inputs, results and temporaries: the most that is allocated at any time of the run."""
        return self.inputs + self.results + self.temporaries

    @property
    def launches(self) -> int:
        """How many parallel regions run one after another."""
        return self.plan.launches

    def __str__(self) -> str:
        ks = self.kernels
        flops, moved = sum(x.flops for x in ks), sum(x.read + x.written for x in ks)
        made = "known already" if self.known else f"would be made: {self.reason}"
        parts = ", ".join(f"{what} {bytes_text(getattr(self, what))}" for what in ("inputs", "results", "temporaries"))
        rows = [
            ("program", f"{plural(self.steps, 'step')} recorded, {plural(len(self.plan.wanted), 'value')} wanted"),
            ("plan", made),
            ("memory", f"{bytes_text(self.peak)} at the peak: {parts}"),
            ("work", f"{bytes_text(moved)} moved, {count_text(flops, 'flop')}"),
        ]
        rows += [("again", text) for text in _again(self.plan)]
        rows += [("offload", text) for text in _offloaded(self.plan)]
        rows += self._notes
        rows += [("on host", x.fallback) for x in ks if x.fallback]
        if self._alone:
            how = "one by one, by NumPy where that has the same bits"
            rows.insert(2, ("first", f"new and small: this once its steps run {how}"))
        elif self._unfused is not None and self._unfused.kernels > self.plan.kernels:
            many = plural(self._unfused.kernels, "kernel")
            rows.insert(2, ("first", f"new and small: this once {many} of one operation each run instead, same bits"))
        head = f"would run: {plural(self.plan.kernels, 'kernel')} in {plural(self.launches, 'launch')}"
        return "\n".join([head, *aligned(rows, "  "), *(self._kernel(x) for x in ks)])

    def _kernel(self, x: KernelView) -> str:
        other = self._needed is not None and x.number not in self._needed
        return str(x) + "\n    not for this tensor: a sync computes everything that is held" * other

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_text(str(self))


class PartsExplanation:
    """What a sync would run of a long trace: its parts one after another, those of equal structure by one plan.

    `parts` has an explanation for each kind of part, and how many there are of it; `kernels` are those of all kinds.
    """

    def __init__(self, parts: list[tuple[Explanation, int]]) -> None:
        self.parts = parts
        self.kernels: list[KernelView] = [k for e, _ in parts for k in e.kernels]

    @property
    def peak(self) -> int:
        """Bytes of inputs, results and temporaries of the part that needs most; what crosses it comes on top."""
        return max(e.peak for e, _ in self.parts)

    @property
    def launches(self) -> int:
        """How many parallel regions run one after another, in all parts."""
        return sum(e.launches * n for e, n in self.parts)

    def __str__(self) -> str:
        n = sum(n for _, n in self.parts)
        head = f"would run: {plural(n, 'part')} of a long trace, by {plural(len(self.parts), 'plan')}"
        return "\n".join([head, *(f"{plural(n, 'part')}: {e}" for e, n in self.parts)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_text(str(self))


ELSEWHERE = "it is pending in another thread"


class Nothing:
    """Why nothing would run."""

    kernels: tuple[KernelView, ...] = ()
    peak = launches = 0

    def __init__(self, why: str) -> None:
        self.why = why

    def __str__(self) -> str:
        return f"nothing would run: {self.why}"

    __repr__ = __str__


def explain(*tensors: Handle, fused: bool = True) -> Explanation | PartsExplanation | Nothing:
    """Which kernels a sync would run now, what each fuses and why its results are stored. Runs and compiles nothing.

    With tensors given, kernels that they do not need are marked. `fused=False` shows the kernels of one operation
    each that a new and small program runs the first time, unless NumPy does what they would.

    >>> import lazyt as lt
    >>> lt.sync()
    >>> y = lt.softmax(lt.exp(lt.zeros((4, 32))))
    >>> lt.explain(y).kernels
    [<kernel zeros + exp + softmax: 4 rows of 32, 3 passes over each>]
    """
    return _explain(tensors, fused and settings["fuse"], False)


def explain_whole(*tensors: Handle) -> Explanation | PartsExplanation | Nothing:
    """`explain`, as one program also where a sync would divide that only because a backward in it is long."""
    return _explain(tensors, settings["fuse"], True)


def _explain(tensors: Sequence[Handle], fused: bool, whole: bool) -> Explanation | PartsExplanation | Nothing:
    tr: Trace = local.trace
    slots = [s for t in tensors if (s := _slot(t)) is not None]
    if tensors and not slots:
        return Nothing("the value is there")
    if any(s.step.owner is not tr for s in slots):
        return Nothing(ELSEWHERE)
    pos = tr.pos
    if pos.parent is None:
        return Nothing("nothing is pending")
    wanted, _, others = wanted_of(tr)
    segment = differentiable(tr, wanted, others)
    want: list[Slot] = wanted + (segment.slots if segment is not None else [])
    if not want:
        return Nothing("nobody holds what is pending")
    scalars = tr.scalars[: pos.scalar_start + pos.n_scalars]
    parts = partition(pos, tr.ext, want) if fused and not is_shown(pos.program) else None
    if parts is None or (whole and parts.is_one):
        return _explained(pos.program, tr.ext, want, scalars, fused, slots, None if segment is None else segment.later)
    return _explained_parts(parts, scalars)


def _explained_parts(parts: Partition, scalars: list[Any]) -> PartsExplanation:
    """What would run for the parts of a long trace: each kind once, with how many there are."""
    found: list[tuple[Explanation, int]] = []
    stored: dict[tuple[Any, ...], Explanation] = {}  # of parts that a backward goes through
    for same in parts.alike():
        p = same[0]
        if isinstance(p, Pull):
            forward = stored[p.forward.kind()]
            residuals, value = forward.plan.residuals, forward.bound.value
            assert residuals is not None, "a plan of what a backward pulls back stores them"
            run = p.over(residuals, [], [tuple(map(value, n.shape)) for n in residuals.stored], scalars)
        else:
            run = p.over([], scalars)
        shown = _explained(run.program, run.ext, run.want, run.scalars, True, [], run.later)
        if run.later is not None:
            stored[p.kind()] = shown
        found.append((shown, len(same)))
    return PartsExplanation(found)


def _explained(
    program: Program, ext: Ext, want: list[Slot], scalars: list[Any], fused: bool, slots: list[Slot],
    later: Later | None = None,
) -> Explanation:  # fmt: skip
    """What would run for one program; `slots` are the values that kernels are marked for."""
    found, reason, now_fused = peek(program, ext, want, later)
    at_hand = found is not None and found.fused == fused
    plan = found if found is not None and at_hand else shown(program, ext, want, fused, later)
    if plan is None:
        plan = build(program, ext.values, want, scalars, fused, later=later)
    bound = plan.executable.bind(ext.values, scalars)
    tiered = build(program, ext.values, want, scalars, False) if fused and not now_fused else None
    needed = _needed(plan, slots) if slots else None
    return Explanation(
        plan, bound, steps=len(program.calls), known=found is not None, reason=reason, fused=fused, unfused=tiered,
        needed=needed, alone=not now_fused and runs_alone(program, ext),
    )  # fmt: skip


def _again(plan: Plan) -> list[str]:
    """The values that the backward computes again under a memory budget, and why."""
    if plan.choice is None or not plan.choice.again:
        return []
    again = plan.choice.again
    found = [(a, described(a.value)) for a in again]
    total, time = sum(s.nbytes for _, s in found), sum(a.cost for a in again) * 1e-9
    head = (
        f"{plural(len(again), 'value')} of {bytes_text(total)} computed again in the backward, about {time_text(time)}"
    )
    lines = [f"{head}: the memory budget has no room for them"]
    for a, s in found[:SHOWN]:
        why = ", as the policy says" if a.asked else ""
        lines.append(f"{s.operation} {s.dtype} {g.shape_text(s.shape)} at {s.line}: {bytes_text(s.nbytes)}{why}")
    return lines + [f"and {len(found) - SHOWN} more"] * (len(found) > SHOWN)


def _offloaded(plan: Plan) -> list[str]:
    """The values that a memory budget, or its policy, moves to the host's memory."""
    moved = () if plan.choice is None else plan.choice.moved
    found = [(a, described(a.value)) for a in moved]
    lines = []
    if found:
        total = bytes_text(sum(s.nbytes for _, s in found))
        lines.append(f"{plural(len(found), 'value')} of {total} in the host's memory until the backward reads them")
    for a, s in found[:SHOWN]:
        why = ", as the policy says" if a.asked else ""
        lines.append(f"{s.operation} {s.dtype} {g.shape_text(s.shape)} at {s.line}: {bytes_text(s.nbytes)}{why}")
    return lines + [f"and {len(found) - SHOWN} more"] * (len(found) > SHOWN)


def _slot(x: Handle) -> Slot | None:
    """The pending value of a handle, or of the base that it views; None when it is computed."""
    if not isinstance(x, Handle):
        raise TypeError(f"explain: tensors are required, not {type(x).__name__!r}")
    holder: Holder = x._storage if x._storage is not None else x
    return None if holder._buffer is not None else holder._slot


def _needed(plan: Plan, slots: list[Slot]) -> set[int] | None:
    """The numbers of the launches that these values depend on; None where all of them do."""
    names = set(map(position, slots))
    need: set[Node] = {n for name, n in zip(plan.wanted, plan.schedule.outputs) if name in names}  # noqa: B905
    found: set[int] = set()
    launches: list[Launch] = plan.schedule.launches
    for i in range(len(launches) - 1, -1, -1):
        if launches[i].writes & need:
            found.add(i + 1)
            need |= launches[i].reads
    return found if len(found) < len(launches) else None


__all__ = ["Explanation", "Nothing", "PartsExplanation", "explain"]
