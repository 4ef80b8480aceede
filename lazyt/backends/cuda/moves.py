"""Copies of values to pinned memory of the host and back, on a stream of their own beside the kernels.

    kernels   x = ...  |            y = ... in x's memory      |           dx = ... of x again
    copies             x -> host -----^ waits                  host -> x -----^ waits

A copy begins when what was enqueued before it is done. Kernels wait for one where they first touch its memory on the
device: where they read what came back, and where they write over what went. Copies run in their order, so the memory on
the host, which a bound plan has for all its runs, is never read before it is written, nor written while it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.backends.common.arena import by_time
from lazyt.ir import graph as g
from lazyt.ir.library_calls import TO_HOST
from lazyt.ir.passes.call_operands import buffer_of, is_move
from lazyt.ir.passes.schedule import LibraryCall, MatmulCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lazyt.backends.cuda.binding import Binding, Run
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import Launch

    Span = tuple[int, int]  # of bytes in the arena


class HostMemory:
    """Where the values of a bound plan lie in the host's memory; taken at the first run."""

    def __init__(self, bound: Binding) -> None:
        lives = bound.exe.schedule.on_host
        self.driver = bound.where.driver
        sizes = [bound.aligned(max(bound.value(bound.exe.nbytes[n]), 1)) for n in lives]
        blocks = [(size, *span) for size, span in zip(sizes, lives.values(), strict=True)]
        found, self.size = by_time(blocks)
        self.offsets: dict[Node, int] = dict(zip(lives, found, strict=True))
        self.count, self.nbytes = len(lives), sum(sizes)
        self.owner: object = None
        self._address = 0

    def address_of(self, n: Node) -> int:
        """Where a value is."""
        if self.owner is None:
            self._address, self.owner = self.driver.pinned(self.size)
        return self._address + self.offsets[n]


class Move:
    """A copy of one value."""

    def __init__(self, bound: Binding, call: LibraryCall, host: HostMemory) -> None:
        assert isinstance(call.node.attrs, g.Opaque)
        self.bound, self.host = bound, host
        self.leaves = call.node.attrs.fn == TO_HOST
        result = call.results[0]
        assert result is not None, "it is read"
        source = buffer_of(call.operands[0])
        self.here, self.there = (source, result) if self.leaves else (result, source)
        self.nbytes = bound.value(bound.exe.nbytes[self.here])
        self.event: Any = None  # of the last run: done when it is

    def run(self, run: Run) -> None:
        """Enqueue it behind what was enqueued so far."""
        if not self.nbytes:
            return
        where, driver = self.bound.where, self.bound.where.driver
        aside = where.aside(run.stream)
        base, byte = self.bound._base(self.here)
        address, host = run.bases[base] + byte, self.host.address_of(self.there)
        if self.leaves:
            driver.to_host(aside, host, address, self.nbytes)
        else:
            driver.to_device(aside, address, host, self.nbytes)
        self.event = driver.record(aside)


class Await:
    """What comes behind it waits for a copy, hence for all before that."""

    def __init__(self, bound: Binding, move: Move) -> None:
        self.bound, self.move = bound, move

    def run(self, run: Run) -> None:
        """Enqueue it."""
        if self.move.event is not None:
            self.bound.where.driver.after(run.stream, self.move.event)


class Moves:
    """The copies of a bound plan in their order, and where its launches wait for them."""

    def __init__(self, bound: Binding) -> None:
        self.bound = bound
        self.host = HostMemory(bound)
        self.last: Move | None = None
        self._pending: list[tuple[Span, Move]] = []

    def before(self, region: Sequence[Launch]) -> list[Await]:
        """What the launches of a region wait for; they come next."""
        for i in range(len(self._pending) - 1, -1, -1):
            (low, high), move = self._pending[i]
            touched = (span for c in region for span in self._spans(c, writes=move.leaves))
            if any(first < high and low < end for first, end in touched):
                del self._pending[: i + 1]
                return [Await(self.bound, move)]
        return []

    def of(self, call: LibraryCall) -> Move:
        """A copy that begins here."""
        move = self.last = Move(self.bound, call, self.host)
        self._pending.append((self._span(move.here), move))
        return move

    def retire(self) -> None:
        """Keep the memory on the host until the copies of a run are done, also if the plan goes before."""
        if self.last is not None and self.last.event is not None:
            self.bound.where.retire(self.last.event, self.host.owner)

    def described(self) -> str:
        """For `explain()`."""
        what = f"{self.host.count} value{'s' * (self.host.count > 1)} of {self.host.nbytes:,} bytes"
        return f"{what} to the host's memory, and back ahead of need"

    def _span(self, n: Node) -> Span:
        at = self.bound.offsets[n]
        return at, at + max(self.bound.value(self.bound.exe.nbytes[n]), 1)

    def _spans(self, c: Launch, writes: bool) -> Iterable[Span]:
        """The bytes of the arena that a launch touches; only those that it writes."""
        if isinstance(c, LibraryCall) and is_move(c.node):
            # Copies come one after another; what a copy to the device writes over must have been copied before.
            return
        offsets = self.bound.offsets
        for n in c.writes if writes else c.writes | c.reads:
            if n in offsets:
                yield self._span(n)
        if isinstance(c, MatmulCall):
            for name, size in self.bound.products[c].extra.items():
                yield offsets[c, name], offsets[c, name] + size


__all__ = ["HostMemory", "Moves"]
