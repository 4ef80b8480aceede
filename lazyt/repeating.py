"""A sync like the last one at this place of a program: the same values held, the same extents.

Where an array has ten elements, what a sync costs is its Python. So what the general way through `syncing.py` and the
executor came to is kept at the last step, and done again in a few lines: in a fifth of the time. Not so where
gradients will be asked for, several devices or results of one operation are involved, or leaves are overwritten.

The memory of small results is kept too, and used again once nobody refers to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, itemgetter
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from lazyt.backends.cpu import memory
from lazyt.handle import Data, Holder, Storage
from lazyt.planning import Plan
from lazyt.switches import general as settings
from lazyt.trace import NONE, Several, Slot, Trace
from lazyt.walk import LEAF

if TYPE_CHECKING:
    from lazyt.trace import Ext, Site, Step

# Results and temporaries of at most so many bytes have memory that is kept, so many times over.
KEPT_BYTES = 4096
KEPT = 3

_address = attrgetter("address")


class Kept:
    """Results in memory that is kept: their values, the addresses of a run, and what to count references of."""

    __slots__ = ("arena", "tail", "values", "watched")

    def __init__(self, values: Sequence[Data], arena: Any, status: int) -> None:
        self.values = tuple(values)
        self.arena = arena
        # As the bases of a run go: results, the arena, the status word.
        self.tail = (*map(_address, values), 0 if arena is None else arena.address, status)
        self.watched = (*values, *(d.buffer for d in values))


def _unused() -> int:
    """What `getrefcount` says of a value, and of its buffer, that only a `Kept` refers to, counted as in `repeat`."""
    found = Kept([Data(memory.wrap_external(0, 0, None), (), None)], None, 0)  # type: ignore[arg-type]
    counts = [*map(getrefcount, found.watched)]
    assert counts[0] == counts[1], "a value and its buffer are referred to alike"
    return counts[0]


class Again:
    """What a sync did, to be done again."""

    __slots__ = (
        "at", "blank", "bound", "checks", "code", "counts", "donors", "evaluated", "ext", "held", "kept", "kernels",
        "lasti", "launch", "made", "moves", "n_outputs", "n_refs", "n_scalars", "pick", "plan", "root", "seen",
        "shared", "site", "sizes", "small", "steps", "stored", "then", "unused", "words",
    )  # fmt: skip

    def __init__(
        self, tr: Trace, plan: Plan | None, bound: Any, slots: Sequence[Slot], at: list[tuple[int, int]],
        stored: list[tuple[int, Step, int]],
    ) -> None:  # fmt: skip
        pos, results = tr.pos, tr.results
        self.plan: Any = plan
        self.bound = bound
        self.ext: Ext = tr.ext
        self.kernels = 0 if plan is None else plan.kernels
        self.steps = pos.index + 1
        self.n_outputs = len(slots)
        # Who is held: where results are, and, once it has been so, how often each is referred to.
        self.held = tr.held_places()
        path = pos.steps()
        where = [s.index for s in path if results[s.index] is not None]
        self.pick = itemgetter(*where, where[0]) if where else _nothing
        self.counts: list[int] | None = None
        # ... and values with a storage and such as were written: index, step, which of those wanted it is, or -1.
        self.stored = stored
        self.shared = [s.index for s in path if results[s.index] is None]
        self.n_refs = len(tr.refs)
        self.at = at
        # What runs, and where to.
        self.small = False
        if bound is not None:
            self.sizes: list[int] = bound.sizes
            self.made = [(s.shape, s.dtype) for s in slots]
            self.small = sum(bound.sizes) + bound.arena_size <= KEPT_BYTES and memory.COUNTED
            self.kept: list[Kept] = []
            self.unused = [_UNUSED] * (2 * len(slots))
            self.launch = bound.launch_only()
            self.n_scalars = pos.scalar_start + pos.n_scalars
            self.words = _words(path, bound)
            self.checks = bool(bound.checks)
            # The leaves whose memory results could take, were they nobody else's.
            donors = sorted({d.leaf for d in bound.donations})
            self.donors = _several(donors) if donors else None
            # Whether what goes to the native call is more than addresses, and scalars as they are.
            some = len(tr.leaves) > bound.n_leaves or (self.words is None and bound.positions)
            self.moves = bool(bound.moving or some)
            self.seen: list[Any] | None = None
            self.evaluated: list[int] = []
        # How the next walk begins.
        self.blank = [None] * tr.n_results()
        self.root: Step = tr.roots[tr.grad]
        self.then: Any = NONE
        # The line that synced here.
        self.site: Site | None = None
        self.code: Any = None
        self.lasti = -1


def _nothing(results: Any) -> tuple[Any, ...]:
    return ()


_UNUSED = _unused()
_FLOATS, _INTS = (float,), (int, bool)  # types of scalars that a kernel reads as they are


def _words(path: Sequence[Step], bound: Any) -> Any:
    """What takes a run's scalars as they are out of those of the walk; None if some have to be converted first."""
    types: dict[int, type] = {}
    for s in path:
        weak = [x for x in s.operands if isinstance(x, type)]
        types.update(zip(range(s.scalar_start, s.scalar_start + s.n_weak), weak, strict=True))
    taken = bound.exe.scalars
    if not taken or any(part or types.get(p) not in (_FLOATS if floating else _INTS) for p, part, floating in taken):
        return None
    return _several(bound.positions)


def _several(places: Sequence[int]) -> Any:
    """What takes a sequence of the items at these places, of which there is at least one."""
    first, *more = places
    return itemgetter(first, *more) if more else itemgetter(slice(first, first + 1))


def remember(tr: Trace, plan: Any, slots: Sequence[Slot], holders: Sequence[Holder], segment: Any) -> None:
    """Keep what this sync did, if it can be done again in short; before the walk ends."""
    pos, ext, results = tr.pos, tr.ext, tr.results
    last = pos.again
    if last is False:
        return
    pos.again = False
    if pos.mixed or segment is not None or pos.device != "cpu":
        return
    if any(s.k or s.requires_grad or h._meta is not None for s, h in zip(slots, holders, strict=True)):
        return
    path, place = pos.steps(), {s.step.index: k for k, s in enumerate(slots)}
    stored: list[tuple[int, Step, int]] = []
    for i, r in tr.refs.items():
        if type(r) is Several or i >= len(path):
            return
        if path[i].op is not LEAF:
            stored.append((i, path[i], place.get(i, -1) if results[i] is None else -1))
    bound = None
    if slots:
        if type(plan) is not Plan:
            return
        bound = plan.executable.bound.get(ext.values)
        if last is not None and bound is not None and not bound.met:
            # Sizes that are new each time would be kept in vain.
            bound.met, pos.again = True, last
            return
        if bound is None or [*range(len(slots))] != plan.order_of(ext.values, slots):
            return
    at = [(i, k) for i, k in place.items() if results[i] is holders[k]]
    if len(at) + sum(k >= 0 for *_, k in stored) == len(slots):
        pos.again = Again(tr, plan if slots else None, bound, slots, at, stored)


def repeat(tr: Trace, again: Again) -> bool:
    """Do again what the last sync here did; nothing is done, and it is False, unless all is as it was then."""
    results, refs = tr.results, tr.refs
    if (
        again.ext is not tr.ext
        or len(refs) != again.n_refs
        or settings["interpret"]
        or not settings["repeat"]
        or (again.counts != [*map(getrefcount, again.pick(results))] and not _held_alike(tr, again))
    ):
        return False
    stored = _stored(refs, again.stored) if again.stored else ()
    if stored is None:
        return False
    if again.bound is not None:
        if again.donors is not None and memory.any_alone(again.donors(tr.leaves)):
            return False
        values = _run(tr, again)
        if values is None:
            return False
        for i, k in again.at:
            h = results[i]
            h._data = values[k]
            h._slot = None
        for h, k in stored:
            h._data = values[k]
    for r in refs.values():
        h = r()
        if h is not None:
            h._slot = None
            if type(h) is Storage:
                h.invalidate(None)
    return True


def _stored(refs: dict[int, Any], expected: Sequence[tuple[int, Step, int]]) -> list[tuple[Any, int]] | None:
    """Who holds the values with a storage, and such as were written, that are wanted; None if they are others."""
    found: list[tuple[Any, int]] = []
    for i, step, k in expected:
        r = refs.get(i)
        h: Any = None if r is None else r()
        if (h is not None and h._slot is step and h._storage is None) != (k >= 0):
            return None
        if k >= 0:
            if h._meta is not None:
                return None
            found.append((h, k))
    return found


def _held_alike(tr: Trace, again: Again) -> bool:
    """Whether the same results are held as then, however often."""
    results = tr.results
    if tr.held_places() != again.held or any(results[i] is not None for i in again.shared):
        return False
    again.counts = [*map(getrefcount, again.pick(results))]
    return True


def _run(tr: Trace, again: Again) -> Sequence[Data] | None:
    """The values that are wanted; None for what the general way has to say (no memory, an index that is not there)."""
    bound = again.bound
    for made in again.kept:
        if [*map(getrefcount, made.watched)] == again.unused:
            break
    else:
        try:
            made = _made(again)
        except MemoryError:
            return None
    bases = [*map(_address, tr.leaves), *made.tail]
    if again.moves:
        _more_bases(tr, again, bases)
    elif again.words is not None:
        bases += again.words(tr.scalars)
    values: Sequence[Data] = made.values
    try:
        if again.launch is not None:
            again.launch(bases)
        else:
            outs = [d.buffer for d in values]
            bound.launch(bases, outs, made.arena, tr.leaves)
            # NOTE: a result may stand in memory that NumPy returned, not in that which was taken for it.
            values = [d if d.buffer is b else Data(b, d.shape, d.dtype) for d, b in zip(values, outs, strict=True)]
    except Exception:  # noqa: BLE001 - the general way meets it again, and says which line it is of
        return None
    if again.checks and bound.status[0]:
        bound.status[:] = 0
        return None
    again.plan.runs += 1
    return values


def _more_bases(tr: Trace, again: Again, bases: list[int]) -> None:
    """Finish the bases of a run with offsets, with leaves that only dead values read, or with scalars to convert."""
    bound, scalars = again.bound, tr.scalars[: again.n_scalars]
    del bases[bound.n_leaves : len(tr.leaves)]
    if bound.positions:
        bases += bound.scalar_words(scalars) if again.words is None else again.words(scalars)
    if bound.moving:
        if scalars != again.seen:
            again.seen, again.evaluated = scalars, bound.exe.expressions.evaluate(bound.extents, scalars)
        bases += bound.moved(bases, again.evaluated)


def _made(again: Again) -> Kept:
    """Memory for results, kept if it is small."""
    bound = again.bound
    buffers = [*map(memory.allocate, again.sizes)]
    arena = memory.allocate(bound.arena_size) if bound.arena_size else None
    values = [Data(b, shape, dtype) for b, (shape, dtype) in zip(buffers, again.made, strict=True)]
    made = Kept(values, arena, bound.status_address)
    if again.small and len(again.kept) < KEPT:
        again.kept.append(made)
    return made
