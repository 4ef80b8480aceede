"""The calls of effects (ops/effects.py) at a sync: each once, in order, whatever one of them raises.

A call that raises ends no run: what it raised is kept, the calls behind it and the rest of the program go on, and the
sync raises it when its values are behind their holders. A program may be run several times before it is computed (a
replay that does not fit, other data that fails, an interrupt), so calls are counted by device: a run passes over those
that an earlier run of the same trace has made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lazyt.autograd.saved_segment import input_numbers
from lazyt.errors import recorded_at
from lazyt.ir.library_calls import calling
from lazyt.runtime.memory import as_array
from lazyt.tracing.program import INPUT, Slot
from lazyt.tracing.trace import Step, Trace, local

if TYPE_CHECKING:
    from lazyt.ops.numpy_calls import Call
    from lazyt.tracing.tensor_state import Data


class Program(Protocol):
    """A trace as it was computed."""

    pos: Step
    scalars: list[Any]
    inputs: list[Any]


class EffectCalls:
    """The calls of one trace that were made, and what they raised."""

    def __init__(self, tr: Trace) -> None:
        self.trace, self.number = tr, tr.number
        # By device: how many were made, of the chain that begins with this step and ends with that one now.
        self.made: dict[str, int] = {}
        self.first: dict[str, Step] = {}
        self.last: dict[str, Step] = {}
        # By device and place in its order.
        self.failed: list[tuple[str, int, Exception]] = []
        self.device, self.next = "", 0
        self.lost = False

    def begin(self, device: str) -> None:
        """A run of the program of this device begins."""
        self.device, self.next = device, 0
        token = self.trace.effects.get(device)
        slot = None if token is None else token._slot
        if slot is None or slot.step.owner is not self.trace or slot.step is self.last.get(device):
            return
        self.last[device] = slot.step
        first = chain(slot.step)[0]
        if first is not self.first.get(device):
            # NOTE: a trace that goes on after its sync, because a handler has recorded, has another chain.
            self.first[device], self.made[device] = first, 0

    def call(self, call: Call, copies: Callable[[], list[Any]]) -> None:
        """The next call of the run, if no run before has made it. `copies` gives its arguments."""
        place = self.next
        self.next = place + 1
        if place >= self.made.get(self.device, 0):
            self.made[self.device] = self.next
            self.make(place, call, copies)

    def make(self, place: int, call: Call, copies: Callable[[], list[Any]]) -> None:
        """Make a call; what it does with lazyt is computed apart."""
        tr, own = self.trace, local.trace
        computing = tr.computing
        aside = tr.aside() if own is tr else own
        tr.computing, local.trace = True, aside
        try:
            call(copies())
        except Exception as e:  # noqa: BLE001 - the sync raises it
            # NOTE: without this frame, which would keep itself.
            below = e.__traceback__ and e.__traceback__.tb_next
            self.failed.append((self.device, place, e.with_traceback(below)))
        finally:
            tr.computing, local.trace = computing, own

    def error(self) -> Exception | None:
        """What the first call that failed raised, naming its line, with a note of the others."""
        if not self.failed:
            return None
        steps = {d: chain(last) for d, last in self.last.items()}
        found = [(steps.get(d, [])[place : place + 1], e) for d, place, e in self.failed]
        self.failed = []
        (at, first), others = found[0], found[1:]
        for s in at:
            recorded_at(first, s.site)
            first.add_note(f"{s.op.name}, recorded at {s.site}; found at the sync")
        if others:
            at, e = others[0]
            where = "".join(f", recorded at {s.site}" for s in at)
            first.add_note(
                f"{len(others)} later call{'s' * (len(others) > 1)} raised too, the first of them {e!r}{where}"
            )
        return first


def before(s: Step) -> Step | None:
    """The effect whose token this one takes, if it is the first of no chain."""
    last = s.operands[-1] if len(s.operands) > len(s.statics[1]) else None
    return last.step if isinstance(last, Slot) else None


def chain(last: Step) -> list[Step]:
    """The effects up to this one, in order."""
    found: list[Step] = []
    at: Step | None = last
    while at is not None:
        found.append(at)
        at = before(at)
    return found[::-1]


def are_called(tr: Trace) -> bool:
    """Whether a sync of this trace, under way on this thread, calls its effects already."""
    found = calling.effects
    return isinstance(found, EffectCalls) and found.trace is tr


def with_effects(tr: Trace, compute: Callable[[], None]) -> None:
    """Compute a trace that has effects, and raise what they raise, after everything that can be computed is."""
    outer = calling.effects
    calls: EffectCalls = tr.called if tr.called is not None and tr.called.number == tr.number else EffectCalls(tr)
    tr.called = calling.effects = calls
    calls.begin(tr.pos.device)
    try:
        compute()
    except BaseException as e:
        # NOTE: where the trace did not end, the sync that ends it says what the effects raised.
        if tr.number != calls.number and (error := calls.error()) is not None:
            e.add_note(f"an effect raised too: {error!r}, {'; '.join(getattr(error, '__notes__', ()))}")
        raise
    finally:
        calling.effects = outer
        _forget(tr)
    if tr.number == calls.number and tr.pos.parent is not None:
        return  # it was not this trace's turn
    tr.called = None
    if (found := calls.error()) is not None:
        del calls
        raise found


def _forget(tr: Trace) -> None:
    """Tokens that are computed are no longer held."""
    held = tr.effects
    for device in [*held]:
        # NOTE: no call in here: a handler of signals may record another effect.
        if held[device]._buffer is not None:
            del held[device]


def run_of(tr: Trace, device: str) -> None:
    """A run of this trace begins, for one device."""
    found = calling.effects
    if isinstance(found, EffectCalls) and found.trace is tr:
        found.begin(device)


def left_over(tr: Trace, spoilt: Collection[Step], refused: Collection[Any]) -> list[tuple[int, Step]]:
    """The effects that no run reaches, because they are behind one whose data failed, and what they read did not.

    With their places in the order of their device. refused: lines that a device cannot run.
    """
    calls = calling.effects
    found: list[tuple[int, Step]] = []
    for last in calls.last.values() if isinstance(calls, EffectCalls) and calls.trace is tr else ():
        if last not in spoilt:
            continue
        for place, s in enumerate(chain(last)):
            reads = any(isinstance(x, Slot) and x.step in spoilt for x in arguments(s))
            if place < calls.made.get(s.device, 0):
                continue
            if reads or s.site in refused:
                calls.lost = True
            else:
                found.append((place, s))
    return found


def lost(tr: Trace) -> bool:
    """Whether an effect of this trace is never called, because what it reads could not be computed."""
    calls = calling.effects
    return isinstance(calls, EffectCalls) and calls.trace is tr and calls.lost


def arguments(s: Step) -> Sequence[Any]:
    """The operands of an effect but for its token: slots, and types of Python scalars."""
    return s.operands[: len(s.statics[1])]


def read_by(calls: Sequence[tuple[int, Step]], want: Sequence[Slot]) -> list[Slot]:
    """The values of the trace that these effects read, beside those that are wanted."""
    known = {*want}
    read = (x for _, s in calls for x in arguments(s) if isinstance(x, Slot) and x.step.op is not INPUT)
    return [x for x in dict.fromkeys(read) if x not in known]


def make_left(calls: Sequence[tuple[int, Step]], values: Mapping[Slot, Data], program: Program) -> None:
    """Make calls of a program over values that were computed."""
    of = calling.effects
    numbers = input_numbers(program.pos.steps())

    def argument(x: Any, cast: Any, scalars: Iterator[Any]) -> Any:
        if not isinstance(x, Slot):
            return cast.type(next(scalars))
        array = as_array(program.inputs[numbers[x.step]] if x.step.op is INPUT else values[x])
        return np.array(array, cast)[()]

    for place, s in calls:
        of.device = s.device
        call, casts = s.statics
        scalars = iter(program.scalars[s.scalar_start :])
        copies = partial(_each, partial(argument, scalars=scalars), arguments(s), casts)
        of.made[s.device] = place + 1
        of.make(place, call, copies)


def _each(f: Callable[[Any, Any], Any], operands: Sequence[Any], casts: Sequence[Any]) -> list[Any]:
    return [f(x, cast) for x, cast in zip(operands, casts, strict=True)]
