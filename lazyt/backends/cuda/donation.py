"""Results that take the memory of inputs: which may, and whether what overwrites those was enqueued.

    launches, calls of libraries and the host   |   the last graph of a plan
    nothing is overwritten yet                  |   one call enqueues all that overwrites: all of it or nothing

So an input is overwritten behind all that can fail on the host, and an interrupt comes before it or after. There is a
graph from the second run on; in the first, results are fresh. A sync that waits for checks of indices overwrites
nothing while their outcome is open: what it leaves pending is computed of the inputs again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.backends.common.donating import MAX_VARIANTS, chosen, placed, references, worthwhile
from lazyt.backends.cuda.deferred_checks import unsettled
from lazyt.backends.cuda.device import DeviceBuffer, block_of
from lazyt.config import cpu as switches
from lazyt.ir.passes.donate import donations

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from lazyt.backends.common.donating import References
    from lazyt.backends.cuda.binding import Binding
    from lazyt.ir.passes.schedule import Donation, Schedule

    Places = Sequence[int]


def of_schedule(sched: Schedule) -> list[Donation]:
    """All possible donations of a schedule."""
    if sched.donations is None:
        sched.donations = donations(sched) if switches["donate"] else []
    return sched.donations


class Donor:
    """The choice, for each run of a bound plan, of the inputs that it overwrites, and the bindings that do."""

    def __init__(self, bound: Binding, safe: int, variant: Callable[[frozenset[int], Sequence[Any]], Binding]) -> None:
        """safe: the first region from which all is in the last graph. variant: makes a binding that omits copies."""
        self.bound, self._make = bound, variant
        self.ran = False
        # The last reference counts, and the choice for them.
        self.chosen: tuple[References | None, Binding, Places] = None, bound, ()
        self.variants: dict[frozenset[int], Binding] = {}
        found = [d for d in bound.exe.donations if d.region >= safe] if bound.ends_in_graph else []
        self.donations = worthwhile(found, lambda n: bound.value(bound.exe.nbytes[n]))

    def refuse(self) -> None:
        """Overwrite nothing any more: there is no graph."""
        self.donations, self.variants = [], {}
        self.chosen = None, self.bound, ()

    def choose(self, inputs: Sequence[Any], scalars: Sequence[Any], waits: bool) -> tuple[Binding, Places]:
        """As `Enqueuing.donating`."""
        bound = self.bound
        if not self.ran or not switches["graphs"] or (waits and (bound.checks or unsettled(inputs, bound.read))):
            self.chosen = None, bound, ()
            return bound, ()
        found = references(inputs)
        last, variant, places = self.chosen
        if found != last:
            variant, places = bound, []
            donated = chosen(self.donations, found, DeviceBuffer)
            if donated:
                left_out, places = placed(donated, bound.exe.outputs)
                variant = self._variant(left_out, scalars)
            if not variant.ends_in_graph:  # nothing is left to enqueue
                variant, places = bound, []
            self.chosen = found, variant, places
        return variant, places

    def _variant(self, left_out: frozenset[int], scalars: Sequence[Any]) -> Binding:
        """The binding that omits these copies."""
        found = self.variants.get(left_out)
        if found is None:
            if len(self.variants) >= MAX_VARIANTS:
                self.variants.clear()
            found = self.variants[left_out] = self._make(left_out, scalars)
        return found

    def spared(self, inputs: Sequence[Any]) -> int:
        """Bytes of results that the next run puts into inputs, in whole blocks."""
        if not self.ran:
            return 0
        bound = self.bound
        size = dict(zip(bound.exe.outputs, bound.sizes, strict=True))
        return sum(block_of(size[d.output]) for d in chosen(self.donations, references(inputs), DeviceBuffer))


class Taken:
    """The sizes of the memory that a run takes: of its results but those in the place of inputs, then the others."""

    def __init__(self, sizes: Sequence[int], others: Sequence[int]) -> None:
        self._sizes, self._others = sizes, others
        self._places: Places = ()
        self._found = self._of(())

    def of(self, places: Places) -> tuple[list[int], Collection[int]]:
        """In order, and each once."""
        if places is not self._places:
            self._found, self._places = self._of(places), places
        return self._found

    def _of(self, places: Places) -> tuple[list[int], Collection[int]]:
        fresh = [n for k, n in enumerate(self._sizes) if not places or places[k] < 0]
        found = [*fresh, *(n for n in self._others if n)]
        return found, {*found}
