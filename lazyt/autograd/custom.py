"""Functions with a derivative of their own: a step whose results' cotangents a Python function takes over.

The function runs when a backward is recorded. What it records is part of the same program.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Sequence
from functools import cache
from typing import Any

from lazyt.autograd.reachability import reach_of
from lazyt.autograd.track import CUSTOM
from lazyt.autograd.vjp_step import special_step
from lazyt.ops.definition import OpDef
from lazyt.tracing.commit import undisturbed
from lazyt.tracing.inplace import IN_FUNCTION
from lazyt.tracing.program import Slot
from lazyt.tracing.record import begin, record_view, slot_of
from lazyt.tracing.steps import new_tensor
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import Several, Step, Trace

ref = weakref.ref
# What reads and sets the state of this thread's random numbers (set by `lazyt.functions.random`).
random_state: tuple[Callable[[], Any], Callable[[Any], None]] = (lambda: None, lambda state: None)


class Kept:
    """Tensors that a custom function keeps for its derivative, and their versions."""

    def __init__(self, tensors: Sequence[Handle]) -> None:
        self.tensors: list[Handle] | None = list(tensors)
        self.versions = [x._version for x in tensors]
        self._lent: list[tuple[int, Any, Any, Any]] = []
        # A tensor that the function wrote is the result that leads here: its value alone is kept.
        self._written: dict[int, weakref.ref[Handle]] = {}

    def watch(self, i: int, x: Handle) -> None:
        """Tensor i is the value of x, which the function wrote: later writes to x count."""
        self._written[i], self.versions[i] = ref(x), x._version

    def overwritten(self) -> int | None:
        """Which of them was written in place since."""
        for i, x in enumerate(self.tensors or ()):
            held = self._written.get(i)
            now = x if held is None else held()
            if now is not None and now._version != self.versions[i]:
                return i
        return None

    def clear(self) -> None:
        """Let go of them for good."""
        self.tensors = None
        self._lent = []

    def lend(self) -> None:
        """Hold none that is pending."""
        if self.tensors is None or self._lent:
            return
        lent = [(i, ref(x), x._slot, x._meta) for i, x in enumerate(self.tensors) if _is_plain(x)]
        self._lent = lent
        for i, *_ in lent:
            self.tensors[i] = None  # type: ignore[call-overload]

    def take_back(self, tr: Trace) -> list[Handle]:
        """Hold them again; those are returned that are pending."""
        found = []
        for i, held, slot, meta in self._lent:
            h = held()
            if h is None:
                h = new_tensor(slot)
                # NOTE: the one whose writes were counted is gone, and what tracked it goes on by its record.
                h._writes, h._meta = self.versions[i], meta
                tr.refs[slot.step.index] = ref(h)
            assert self.tensors is not None
            self.tensors[i] = h
            found.append(h)
        self._lent = []
        return found


class Rule:
    """What becomes of the cotangents of a custom step's results, and the tensors kept for that; one object a call."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept

    def pull(self, tr: Trace, step: Step, cts: Sequence[Handle | None], create: bool) -> list[tuple[Slot, Handle]]:
        """The values that cotangents go on to, with those; `cts` has None for results that nothing depends on.

        create: whether the gradients can be differentiated again. `step` is where the call stands on this trace.
        """
        raise NotImplementedError

    def push(self, step: Step, tangents: Sequence[Handle]) -> Sequence[Handle] | None:
        """The tangents of the step's results, of those of its inputs; None where the rule is for reverse mode alone."""
        return None

    def check(self) -> None:
        """Raise NotSupportedError where no cotangent can go through."""

    def free(self) -> None:
        """A backward without retain_graph went through: let go of what was kept for it."""
        self.kept.clear()

    @property
    def freed(self) -> bool:
        """Whether nothing is kept any more."""
        return self.kept.tensors is None


def inputs_of(step: Step) -> Sequence[Any]:
    """The values that a custom step's cotangents go on to."""
    return step.operands[step.statics[0] :]


def sources_of(step: Step) -> Sequence[Any]:
    """The values that a custom step's results depend on; none where a checkpoint does not know them, behind a sync.

    A checkpoint has no inputs. Its second pass finds out what cotangents go on to, and its results have a graph here.
    """
    return inputs_of(step) or [x for x in step.operands if x.requires_grad]


def custom_step(tr: Trace, results: Sequence[Slot], inputs: Sequence[Slot], rule: Rule) -> Step:
    """Record the step; the results have gradients from here on."""
    s = special_step(tr, CUSTOM, (*results, *inputs), (len(results),), (), lambda: results)
    for slot in s.slots:
        slot.requires_grad = True
    tr.more = True
    tr.customs[s] = rule
    return s


def custom(results: Sequence[Handle], inputs: Sequence[Slot], rule: Rule) -> list[Handle]:
    """`results` as values whose cotangents `rule` turns into those of `inputs`."""
    return _custom(begin(), results, inputs, rule)


@undisturbed
def _custom(tr: Trace, results: Sequence[Handle], inputs: Sequence[Slot], rule: Rule) -> list[Handle]:
    slots = [slot_of(tr, x) for x in results]
    s = custom_step(tr, slots, inputs, rule)
    handles = [new_tensor(slot) for slot in s.slots]
    tr.refs[s.index] = ref(handles[0]) if len(handles) == 1 else Several(map(ref, handles))
    return handles


def _is_plain(x: Handle) -> bool:
    slot = x._slot
    return slot is not None and x._buffer is None and x._storage is None and len(slot.step.slots) == 1


@cache
def _function_view(name: str, k: int) -> OpDef:
    op = OpDef(f"Output {k} of {name}", lambda b, x: x, write=lambda b, base, value: value)
    IN_FUNCTION.add(op)
    return op


def as_function_view(x: Handle, name: str, k: int) -> Handle:
    """A result that was a view inside of a function: a view of its own value, which may not be written."""
    found: Handle = record_view(_function_view(name, k), x)
    return found


def drop_unused(tr: Trace, held: Callable[[], Sequence[Slot]]) -> None:
    """Forget the calls, hooks and retained gradients that no held value leads to: what they hold is not computed then.

    A function that closes over a parameter holds its gradient. `held` gives the values that are held now.
    """
    rules = dict(tr.customs)
    passed: set[Slot] = set()
    for rule in rules.values():
        rule.kept.lend()
    try:
        roots = [s for s in held() if s.requires_grad]
        while roots:
            through = reach_of(roots).through
            passed |= through
            roots = []
            for s in [s for s in rules if not through.isdisjoint(s.slots)]:
                pending = rules.pop(s).kept.take_back(tr)
                roots += [slot for x in pending if (slot := x._slot) is not None and slot.requires_grad]
    except BaseException:
        for rule in rules.values():
            rule.kept.take_back(tr)
        raise
    for s in rules:
        del tr.customs[s]
    for x in [x for x in tr.slot_hooks if not _is_passed(x, passed)]:
        del tr.slot_hooks[x]
    for record in [record for record, x in tr.retained.items() if not _is_passed(x, passed)]:
        del tr.retained[record]


def _is_passed(x: Slot, passed: Container[Slot]) -> bool:
    """Whether a backward may pass a value, or what it is a view of."""
    at: Any = x
    while at not in passed:
        if getattr(at.step.op, "write", None) is None:
            return False
        at = at.step.operands[0]
    return True
