"""What a backward passes through, and PyTorch's two refusals: a freed graph, a saved value that was overwritten."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any

from lazyt.autograd.track import AGAIN, CUSTOM, TRACK, is_synced
from lazyt.errors import AutogradError, NotSupportedError
from lazyt.ops.residuals import EARLIER
from lazyt.tracing.assignments import PUT, is_write
from lazyt.tracing.program import ASSIGN, Slot
from lazyt.tracing.trace import Step


class Reach:
    """The steps between some outputs and the leaves that require grad; the leaves with their versions.

    The search ends at `stops` and at results of custom functions; with None it goes through both. inside: what a step
    reads besides its operands.
    """

    def __init__(
        self, outputs: Sequence[Slot], stops: Container[Slot] | None = (),
        inside: Callable[[Step], Iterable[Slot]] | None = None,
    ) -> None:  # fmt: skip
        self.steps: list[Step] = []
        self.leaves: dict[Slot, list[Slot]] = {}
        self.synced: list[Slot] = []
        # Where this search ended: at `stops`, and at results of custom functions.
        self.barriers: list[Slot] = []
        self.through: set[Slot] = set()
        seen: set[Slot] = set()
        steps: set[Step] = set()
        todo = [o for o in outputs if o.requires_grad]
        while todo:
            slot = todo.pop()
            if slot in seen:
                continue
            seen.add(slot)
            s = slot.step
            if stops is not None and (s.op is CUSTOM or (slot in stops and slot not in outputs)):
                self.barriers.append(slot)
                continue
            if slot.leaf is not None:
                if is_synced(s):
                    self.synced.append(slot)
                    continue
                self.leaves.setdefault(slot.leaf, []).append(slot)
                if s.op is not TRACK:
                    continue
            if s not in steps:
                steps.add(s)
                self.steps.append(s)
            operands = s.operands if s.op is not CUSTOM else s.operands[s.statics[0] :]
            if s.op is EARLIER:
                # One step stands for values that do not all depend on the same.
                operands = tuple(operands[i] for i in s.statics[1][slot.k])
            todo.extend(x for x in operands if isinstance(x, Slot) and x.requires_grad)
            if inside is not None:
                todo.extend(inside(s))
        self.through = seen
        self.synced.sort(key=lambda x: x.step.index)
        for versions in self.leaves.values():
            versions.sort(key=lambda x: x.step.index)
        self.leaves = dict(sorted(self.leaves.items(), key=lambda kv: kv[0].step.index))

    def leading_to(self, wanted: Container[Slot]) -> list[Step]:
        """The steps between the outputs and these values."""
        found: set[Step] = set()
        for s in sorted(self.steps, key=lambda s: s.index):
            if any(x in wanted or x.step in found for x in s.operands if isinstance(x, Slot) and x.requires_grad):
                found.add(s)
        return [s for s in self.steps if s in found]


def reach_of(outputs: Sequence[Slot]) -> Reach:
    """What a backward from some values passes through; from one value it is found once a program."""
    if len(outputs) != 1:
        return Reach(outputs, None)
    (slot,) = outputs
    if slot.reach is None:
        slot.reach = Reach(outputs, None)
    found: Reach = slot.reach
    return found


def saved_slots(steps: Iterable[Step]) -> list[tuple[Slot, Step, int]]:
    """The values that the derivatives of these steps keep: (value, step, operand position or -1 for the result)."""
    out = []
    for s in steps:
        for entry in s.op.saves:
            i, by = entry if isinstance(entry, tuple) else (entry, entry)
            other = s.operands[by] if 0 <= by < len(s.operands) else None
            if i != by and not (isinstance(other, Slot) and other.requires_grad):
                continue
            x: Any = s.slots[0] if i < 0 else s.operands[i] if i < len(s.operands) else None
            if isinstance(x, Slot):
                out.append((x, s, i))
    return out


def refuse_second_time(s: Step) -> AutogradError:
    return AutogradError(
        "backward: Trying to backward through the graph a second time (or directly access saved tensors after they "
        f"have already been freed). Saved intermediate values of the graph (here those of {s.op.name}, recorded at "
        f"{s.site}) are freed when you call .backward(). Specify retain_graph=True if you need to backward through "
        "the graph a second time"
    )


def refuse_again(s: Step) -> NotSupportedError:
    return NotSupportedError(
        f"not supported: differentiating through {s.op.name} (recorded at {s.site}) after a sync, because its own "
        "graph was freed; call backward before the sync"
    )


def lane_bound(steps: Iterable[Step]) -> set[Step]:
    """Those of these steps, in order, whose values differ between the lanes of a vmap: they have none of their own."""
    lanes: dict[Step, frozenset[Step]] = {}
    for s in steps:
        found = frozenset(y for x in s.operands if isinstance(x, Slot) for y in lanes.get(x.step, ()))
        role = getattr(s.op, "role", None)
        if role is not None:
            found = role(s, found)
        if found:
            lanes[s] = found
    return set(lanes)


def refuse_overwritten(saved: Slot, s: Step, i: int, where: object) -> AutogradError:
    what = "the output" if i < 0 else f"operand {i}"
    return AutogradError(
        "backward: one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"{saved.dtype} {list(saved.shape)}, which is {what} of {s.op.name} (recorded at {s.site}), was written "
        f"{where}; expected the value it had then. Hint: write out of place, or copy it before the write"
    )


class Writes:
    """What a trace wrote in place: `over` has each value that a later step replaced, and that step.

    A view of a replaced value is replaced too: `bases` has what each value is a view of.
    """

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self.over: dict[Slot, Step] = {}
        self.bases: dict[Slot, Slot] = {}
        self._views: dict[Slot, list[Slot]] = {}
        self.extend(steps)

    def extend(self, steps: Iterable[Step]) -> None:
        """The trace went on by these steps."""
        views = self._views
        for s in steps:
            if s.op is AGAIN or getattr(s.op, "write", None) is not None:
                base = self.bases[s] = self.bases.get(s.operands[0], s.operands[0])
                views.setdefault(base, []).append(s)
            for old in s.targets:
                self.over[old] = s
                self.over.update((v, s) for v in views.pop(old, ()))
            if s.op is ASSIGN:
                # Written through a view: the view has the value that was put into the base.
                n = s.operands[0]
                while is_write(n.step.op):
                    n = n.step.operands[1]
                    self.bases[n] = s
                    views.setdefault(s, []).append(n)

    def lost(self, steps: Iterable[Step]) -> Iterator[tuple[Slot, Step, int]]:
        """Which values that these steps keep were replaced: (value, step, operand position), as `saved_slots`.

        What an operation in place replaces with its own result it still has, as in PyTorch.
        """
        for saved, s, i in saved_slots(steps):
            by = self.over.get(saved)
            if by is not None and not (i == 0 and _is_in_place(s, by)):
                yield saved, s, i


def _is_in_place(s: Step, assign: Step) -> bool:
    """Whether `assign` puts the result of s into what s read."""
    n: Any = assign.operands[0]
    while isinstance(n, Slot) and n.step is not s and (is_write(n.step.op) or n.step.op is PUT):
        n = n.step.operands[1]
    return isinstance(n, Slot) and n.step is s


class History:
    """What a trace has freed and overwritten up to one of its steps; it goes on with the trace."""

    def __init__(self) -> None:
        self.step: Step | None = None
        self.consumed: set[Step] = set()
        self.writes = Writes()

    def reach(self, pos: Step) -> None:
        """Go on to `pos`. On another trace than before, from its beginning."""
        steps: list[Step] = []
        at: Step | None = pos
        while at is not self.step and at is not None and at.parent is not None:
            steps.append(at)
            at = at.parent
        if at is not self.step:
            self.consumed, self.writes = set(), Writes()
        steps.reverse()
        for s in steps:
            if s.leaves:  # of a backward, which frees them
                self.consumed |= s.leaves
        self.writes.extend(steps)
        self.step = pos

    def check(self, steps: Sequence[Step]) -> None:
        """Raise AutogradError if the trace has freed or overwritten what a backward through these steps keeps."""
        for _, s, _ in saved_slots(steps):
            if s in self.consumed:
                raise refuse_second_time(s)
        for saved, s, i in self.writes.lost(steps):
            raise refuse_overwritten(saved, s, i, f"at {self.writes.over[saved].site}")
