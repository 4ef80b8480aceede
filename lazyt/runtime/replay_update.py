"""A sync like the last one at this place, where no function is written for it (see `replay.py`): by loops.

That is a training step's: inputs are overwritten with what replaces them, one step has many results, values
that will be differentiated keep what that needs. The same is asked as in `sync.py`, but it is compared with what it
came to the last time instead of found anew. Whatever is different, or fails, goes the general way, from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from sys import getrefcount
from time import perf_counter
from typing import TYPE_CHECKING, Any

from lazyt.autograd.engine import consumed_on
from lazyt.autograd.saved_segment import Segment, graphs_of, make_segment
from lazyt.backends.common.commit_flag import Receipt
from lazyt.backends.registry import backends
from lazyt.config import general as settings
from lazyt.runtime import replay
from lazyt.runtime.liveness import commit, is_wanted, stand
from lazyt.runtime.plan import Plan
from lazyt.runtime.replay import AMONG, ENQUEUE, Again, counters
from lazyt.tracing.inference import made_in_inference
from lazyt.tracing.inputs import form_of
from lazyt.tracing.program import INPUT, Slot, position
from lazyt.tracing.tensor_state import Data, Holder, Inference
from lazyt.tracing.trace import Several, holding, local

if TYPE_CHECKING:
    from lazyt.backends.interface import Replayable
    from lazyt.tracing.call_site import Site
    from lazyt.tracing.trace import Trace

_slot_held, _storage_held = attrgetter("_slot"), attrgetter("_storage")
# So many syncs in a row that are not like the one that is kept, before another one is kept in its place.
MISSES = 2


def _at(places: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """The items at these places."""
    if len(places) > 1:
        return itemgetter(*places)
    return (lambda items: (items[places[0]],)) if places else lambda items: ()


class Update(Again):
    """What such a sync did. Holders are met in the order: of the results, then those that are held weakly."""

    __slots__ = (
        "blank", "columns", "donors", "fresh", "graphs", "held", "idle", "inputs", "missed", "n_own", "none", "order",
        "ordered", "others", "places", "refs", "root", "sizes", "slots", "unheld", "variant", "want", "wanted",
        "words",
    )  # fmt: skip

    def __init__(
        self, tr: Trace, plan: Plan, bound: Any, want: Sequence[Slot], holders: Sequence[Holder],
        others: Sequence[Holder], idle: Sequence[int], in_place: int, views: Sequence[Slot],
    ) -> None:  # fmt: skip
        super().__init__(tr, plan, bound, len(holders), in_place)
        path = tr.pos.steps()
        results = tr.results[: len(path)]
        place = {position(s): k for k, s in enumerate(want[: len(holders)])}
        known = {*map(id, holders), *map(id, others)}
        # Of the results: those that are held, what is wanted first; those that only the trace holds; where none is.
        held = dict.fromkeys(i for i, h in enumerate(results) if id(h) in known)
        own = dict.fromkeys(i for i in held if (i, 0) in place and results[i] is holders[place[i, 0]])
        self.held, self.n_own = _at([*own, *(i for i in held if i not in own)]), len(own)
        self.unheld = _at([*idle, *(i for i, h in enumerate(results) if h is not None and i not in held)])
        self.idle = idle
        self.none = [i for i, h in enumerate(results) if h is None and i not in idle]
        # Of what is held weakly, by its number: what is wanted; the inputs; the others, with the step whose value they
        # may not hold.
        self.refs = list(tr.refs)
        weakly = [(i, k, r()) for i, several in tr.refs.items() for k, r in enumerate(_each(several))]
        wanted = dict.fromkeys(
            n for n, (i, k, h) in enumerate(weakly) if (i, k) in place and h is holders[place[i, k]]
        )  # fmt: skip
        self.wanted = list(wanted)
        rest = [(n, path[i]) for n, (i, *_) in enumerate(weakly) if n not in wanted]
        self.inputs = [n for n, step in rest if step.op is INPUT]
        self.others = [(n, step) for n, step in rest if step.op is not INPUT]
        self.order = [*(place[i, 0] for i in own), *(place[weakly[n][:2]] for n in self.wanted)]
        self.ordered = _at(self.order)
        self.want = list(want)
        self.slots = [want[k] for k in self.order]
        # Those with a graph behind them.
        self.graphs = [*graphs_of(want[: len(holders)], ()), *views]
        self.variant: Replayable
        self.places: Sequence[int]
        _, self.variant, self.places = bound.chosen if bound.donations else (None, bound, ())
        self.donors = _at([max(at, 0) for at in self.places])
        self.sizes = [(k, n) for k, n in enumerate(self.variant.sizes) if not self.places or self.places[k] < 0]
        words = replay.words_of(path, self.variant)
        self.words = None if words is None else _at(words)
        self.fresh = _fresh(tr, plan, want, self.places)
        self.columns = [*zip(*(made[1:] for made in self.fresh or ()), strict=True)]
        self.blank = [None] * tr.n_results()
        self.missed = 0
        self.run = self.repeat

    def repeat(self, tr: Trace, cause: str, site: Site) -> bool:
        """`Again.run`."""
        if settings["interpret"] or not settings["repeat"]:
            return False
        with holding:
            # NOTE: as in `sync`, whoever records meanwhile has a trace of its own.
            aside, own = tr.aside(), local.trace
            tr.computing, local.trace = True, aside
            try:
                # NOTE: a handler of signals may have recorded since the trace was looked at.
                if tr.ext is not self.ext or tr.pos.again is not self:
                    return False
                done: bool = self._repeat(tr, cause, site)
                return done
            finally:
                tr.computing = False
                local.trace = own

    def _repeat(self, tr: Trace, cause: str, site: Site) -> bool:
        started = perf_counter()
        found = self._find(tr)
        if found is None:
            return False
        graphs = graphs_of(self.want[: self.n_outputs], found[1])
        if graphs != self.graphs:
            return False
        segment = make_segment(tr, graphs, consumed_on(tr)) if graphs else None
        inputs, results, run = tr.inputs, tr.results, self.variant
        for i in self.idle:
            results[i] = None
        receipt = Receipt(cause not in ENQUEUE)
        if self.bound.donations:
            variant, places = self.bound.donating(inputs, tr.scalars, receipt.waits)
            if variant is not run or places != self.places:
                return False
        begun = perf_counter()
        ran = False
        try:
            if not self._run(tr, receipt, cause):
                return False
            ran = True
            self._commit(tr, found, receipt.buffers, segment)
        except BaseException as e:
            if ran or receipt.written:
                # As in `sync`: inputs are overwritten, so the results stand, and it goes on afterwards.
                stand(tr, lambda: self._commit(tr, found, receipt.buffers, segment))
            elif isinstance(e, Exception):
                replay.failed(e)
                # What fails the general way meets again, and says which line it is of.
                return False
            # NOTE: a traceback keeps this frame, which must not keep tensors alive.
            del found, segment
            raise
        ended = perf_counter()
        counters.syncs += 1
        counters.kernels += self.kernels
        self.plan.runs += 1
        self.missed = 0
        tr.report = self, cause, site, started - tr.started, ended - begun
        root = self.root
        tr.begin(root, self.blank, tr.pos)
        root.next, tr.ended = self.then, self
        return True

    def _run(self, tr: Trace, receipt: Receipt, cause: str) -> bool:
        """Take memory, or inputs to overwrite, for the results, and run: whether all indices were right."""
        run, inputs, buffers = self.variant, tr.inputs, receipt.buffers
        if self.plan.asynchronous:
            outs = replay.enqueue(run, tr.scalars[: self.n_scalars], inputs, tr.pos, cause, self.places, receipt)
            receipt.buffers = outs or []
            return outs is not None
        run.flag[0] = 0
        receipt.flag = run.flag
        allocate = run.allocate
        bases = [d.address for d in inputs]
        at = run.n_inputs
        if at < len(bases):
            del bases[at:]
        if self.places:
            # NOTE: what goes to fresh memory has any input here until it has.
            buffers += self.donors(inputs)
            bases += self.donors(bases)
        else:
            buffers += self.blank[: len(run.sizes)]
            bases += buffers
        for k, nbytes in self.sizes:
            buffer = buffers[k] = allocate(nbytes)
            bases[at + k] = buffer.address
        arena = run.lend(run.arena_size) if run.arena_size else None
        bases += 0 if arena is None else arena.address, run.status_address
        if self.words is not None:
            bases += self.words(tr.scalars)
        scalars = tr.scalars[: self.n_scalars] if self.words is None or run.moving else ()
        if self.words is None:
            bases += run.exe.words.of(scalars)
        if run.moving:
            bases += run.moved(bases, run.exe.expressions.evaluate(run.extents, scalars))
        run.launch(bases, buffers, arena, inputs)
        if run.checks and run.status[0]:
            run.status[:] = 0
            return False
        return True

    def _find(self, tr: Trace) -> tuple[list[Any], list[Any]] | None:
        """Who holds the values, in the order of `slots`, and who else is known; None if they are others."""
        refs, results = tr.refs, tr.results
        if [*refs] != self.refs:
            return None
        held = self.held(results)
        if (
            min(map(getrefcount, held), default=AMONG + 1) <= AMONG
            or max(map(getrefcount, self.unheld(results)), default=0) > AMONG
        ):
            return None
        for i in self.none:
            if results[i] is not None:
                return None
        weakly: list[Any] = []
        for r in refs.values():
            weakly += r if type(r) is Several else (r,)
        holders, others = [*held[: self.n_own]], [*held[self.n_own :]]
        holders += [weakly[n]() for n in self.wanted]
        try:
            if [*map(_slot_held, holders)] != self.slots or any(map(_storage_held, holders)):
                return None
        except AttributeError:  # one of them is gone
            return None
        others += [h for n in self.inputs if (h := weakly[n]()) is not None]
        for n, step in self.others:
            h = weakly[n]()
            if h is not None:
                if is_wanted(h, step):
                    return None
                others.append(h)
        return holders, others

    def _commit(
        self, tr: Trace, found: tuple[list[Any], list[Any]], buffers: Sequence[Any], segment: Segment | None
    ) -> None:  # fmt: skip
        """Commit what the run has put into inputs and buffers."""
        if self.fresh is None:
            values = self.plan.values(buffers, self.ext.values, tr.inputs, self.want)
        else:
            values = [*buffers]
            if len(self.fresh) == len(values):
                values = [*map(Data, values, *self.columns)]
            else:
                for k, shape, dtype, form in self.fresh:
                    values[k] = Data(values[k], shape, dtype, form)
        residuals = self.plan.residuals if isinstance(self.plan, Plan) else None
        commit(tr, self.slots, *found, [*self.ordered(values), *values[self.n_outputs :]], segment, residuals)


def _each(reference: Any) -> Sequence[Any]:
    return reference if type(reference) is Several else (reference,)


def _fresh(
    tr: Trace, plan: Plan, want: Sequence[Slot], places: Sequence[int]
) -> list[tuple[int, tuple[int, ...], Any, object]] | None:  # fmt: skip
    """The values that a run puts into fresh memory, with their forms, if the others are inputs overwritten as they are.

    None where it is not as simple: values that are one another, or inputs.
    """
    if plan.residuals is not None or plan.order_of(tr.ext.values, want) != [*range(len(want))]:
        return None
    if any(at >= 0 and tr.inputs[at].shape != want[k].shape for k, at in enumerate(places)):
        return None
    device = tr.pos.device
    return [
        (k, s.shape, s.dtype, None if Inference.used and made_in_inference(s) else form_of(s.dtype, s.shape, device))
        for k, s in enumerate(want)
        if not places or places[k] < 0
    ]


def remember(
    tr: Trace, plan: Any, slots: Sequence[Slot], holders: Sequence[Holder], others: Sequence[Holder],
    segment: Segment | None, idle: Sequence[int], in_place: int,
) -> None:  # fmt: skip
    """Keep what this sync did, if it can be done again; before the trace ends. idle: results that were let go."""
    pos, ext = tr.pos, tr.ext
    last = pos.again
    if last is False:
        return
    if type(last) is Update and last.ext is ext and last.missed < MISSES:
        last.missed += 1
        return
    if not in_place and segment is None:
        replay.remember(tr, plan, slots, holders)
        if pos.again is not False:
            return
    pos.again = False
    if pos.mixed or not backends[pos.device].capabilities(pos.device).replay or not slots or not isinstance(plan, Plan):
        return
    bound = plan.executable.bound.get(ext.values)
    if bound is None:
        return
    if last is not None and not bound.has_replay:
        # Sizes that are new each time would be kept in vain.
        bound.has_replay, pos.again = True, last
        return
    want = slots if segment is None else [*slots, *segment.slots]
    if not plan.order_of(ext.values, want):
        return
    views = () if segment is None else segment.views
    again = Update(tr, plan, bound, want, holders, others, idle, in_place, views)
    if len(again.slots) == len(slots):
        again.follow(pos, last)
