"""A sync like the last one at this place of a program: the same values held, the same extents.

Where an array has ten elements, what a sync costs is its Python. So what the general way through `sync.py` and the
executor came to is kept at the last step, as a function written for it: each comparison and each address is spelled
out, because a loop over three things costs more than the three. Not so where gradients will be asked for, an
operation has several results, inputs are overwritten, or there are very many of either: see `replay_update.py`.

The memory of small results is kept too, and used again once nobody refers to it.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from sys import getrefcount
from time import perf_counter
from types import CodeType
from typing import TYPE_CHECKING, Any, Literal
from weakref import getweakrefcount

from lazyt.backends.common.commit_flag import Receipt
from lazyt.backends.registry import backends
from lazyt.config import general as settings
from lazyt.errors import is_ours
from lazyt.runtime.liveness import GIVEN, LEAVE, WANTED, is_wanted, lines
from lazyt.runtime.plan import Plan
from lazyt.tracing.program import INPUT, Slot
from lazyt.tracing.tensor_state import Data, Holder, Storage
from lazyt.tracing.trace import FIRST_BOUND, NEW_TRACE, NONE, Several, Trace, holding, trace_numbers

if TYPE_CHECKING:
    from lazyt.tracing.call_site import Site
    from lazyt.tracing.trace import Ext, Step

# Results and temporaries of at most so many bytes have memory that is kept, so many times over.
KEPT_BYTES = 4096
KEPT = 3
# Replays that a step has, each for other extents.
EXTENTS = 128
# Whether a reference count tells that nobody else holds a value: not so in interpreters without a global lock.
COUNTED = getattr(sys, "_is_gil_enabled", lambda: True)()
# More values than this that nobody holds are counted together: text and compiling would outgrow what they save.
SPELLED = 8
# Of results that nobody holds, which are looked at twice, so many more are spelled out.
SPELLED_DEAD = 32
# With more values held and met than this, a sync is not written out.
MOST = 256
# Syncs that nobody reads the results of yet: what is known when a device has run (a wrong index) is for who waits.
ENQUEUE = frozenset(("sync()", "eager", "bound"))
# Temporaries of at most so many bytes of a run that no other thread comes between lie where those of all such runs do.
SHARED_BYTES = 1 << 17
_FLOATS, _INTS = (float,), (int, bool)  # types of scalars that a kernel reads as they are
AS_IT_IS = "{}"


class Counters:
    """Totals of the process, for tests and benchmarks."""

    def __init__(self) -> None:
        self.syncs = self.plans = self.kernels = self.superset_plans = 0


counters = Counters()


class _NoMemory:
    """A buffer to be counted."""

    address, device, nbytes = 0, "", 0


def _counts() -> tuple[int, int, int, int, int]:
    """What `getrefcount` says, as `_text` asks it, of a result that nobody else holds; of a value and of its buffer
    that only what is kept refers to; of an input's value that nobody else refers to; of one result among several.
    """
    results, inputs = [object(), object()], [object()]
    (met,) = inputs
    value = Data(_NoMemory(), (), None)  # type: ignore[arg-type]
    kept = [(value, value.buffer)]
    del value
    for v, b in kept:
        found = getrefcount(results[0]), getrefcount(v), getrefcount(b), getrefcount(met)
    return *found, max(map(getrefcount, itemgetter(0, 1)(results)))


_UNHELD, _VALUE, _BUFFER, _MET, AMONG = _counts()


_shared: dict[tuple[Any, int], Any] = {}  # memory for temporaries, by what allocates it and its size


def shared_arena(bound: Any) -> Any:
    """Memory for the temporaries of runs that keep the interpreter's lock, which are over when it is used again.

    None where a run lets go of the lock, its temporaries are too large, or there is no memory.
    """
    size = 1 << max(bound.arena_size - 1, 1 << 12).bit_length()
    if not bound.arena_size or size > SHARED_BYTES or not COUNTED or bound.launch_only() is None or bound.lets_go():
        return None
    found = _shared.get((bound.allocate, size))
    if found is None:
        try:
            found = _shared[bound.allocate, size] = bound.allocate(size)
        except MemoryError:
            return None
    return found


def sites_of(pos: Step) -> list[Any]:
    """The user's line of each step."""
    return [s.site for s in pos.steps()]


def failed(error: Exception) -> None:
    """A sync that was to be done again raised this, and goes the general way; with `strict` that covers no mistake."""
    if settings["strict"] and is_ours(error):
        raise error


class Again:
    """What a sync did, to be done again by `run(trace, cause, site)`: False, and nothing done, if it is not alike."""

    __slots__ = (
        "__weakref__", "bound", "by_extents", "code", "ext", "in_place", "kernels", "lasti", "n_outputs", "n_scalars",
        "plan", "root", "run", "site", "steps", "then",
    )  # fmt: skip

    run: Callable[[Trace, str, Site], bool]

    def __init__(self, tr: Trace, plan: Plan | None, bound: Any, n_outputs: int, in_place: int = 0) -> None:
        pos = tr.pos
        self.plan: Any = plan
        if plan is not None and plan.replays is not None:
            plan.replays.add(self)
        self.bound = bound
        self.ext: Ext = tr.ext
        self.by_extents: dict[Ext, Again] = {}  # those of this step, by their extents
        self.kernels = 0 if plan is None else plan.kernels
        self.steps = pos.index + 1
        self.n_outputs = n_outputs
        self.n_scalars = pos.scalar_start + pos.n_scalars
        self.in_place = in_place
        # Where the next trace begins and its first step, and the line that synced here.
        self.root: Step = tr.root(tr.mode)
        self.then: Any = NONE
        self.site: Site | None = None
        self.code: Any = None
        self.lasti = -1

    def follow(self, pos: Step, last: Again | Literal[False] | None) -> None:
        """Be what is done again at this step; `last`, which was until now, stays for its own extents."""
        if last and len(last.by_extents) < EXTENTS:
            self.by_extents = last.by_extents
        self.by_extents[self.ext] = self
        pos.again = self


class Written(Again):
    """What a sync did that a function was written for."""

    __slots__ = ("arena", "kept", "made", "seen", "shifts", "small", "stored")

    def __init__(self, tr: Trace, plan: Plan | None, bound: Any, slots: Sequence[Slot]) -> None:
        super().__init__(tr, plan, bound, len(slots))
        self.made = [(s.shape, s.dtype) for s in slots]
        # The memory of temporaries, where runs have it in common.
        takes = bound is not None and plan is not None and not plan.asynchronous
        self.arena: Any = shared_arena(bound) if takes else None
        own = bound.arena_size if takes and self.arena is None else 0
        self.small = takes and sum(bound.sizes) + own <= KEPT_BYTES and COUNTED
        self.stored: list[tuple[int, Step, int]] = []
        self.kept: list[tuple[Any, ...]] = []
        # The scalars met last, and what they add to the bases that move (see `Bound.moved`).
        self.seen: list[Any] | None = None
        self.shifts: list[int] = []

    def more(self) -> tuple[Any, ...] | None:
        """Memory for results, kept if it is small: value, buffer and address of each, the arena's buffer and address.

        None if there is none.
        """
        bound = self.bound
        try:
            buffers = [*map(bound.allocate, bound.sizes)]
            lends = bound.arena_size and self.arena is None
            arena = bound.lend(bound.arena_size) if lends else self.arena
        except MemoryError:
            return None
        parts: list[Any] = []
        for b, (shape, dtype) in zip(buffers, self.made, strict=True):
            parts += (Data(b, shape, dtype), b, b.address)
        made = (*parts, arena, 0 if arena is None else arena.address)
        if self.small and len(self.kept) < KEPT:
            self.kept.append(made)
        return made

    def move(self, tr: Trace) -> None:
        """Work out `shifts` for the scalars of this trace."""
        bound, scalars = self.bound, tr.scalars[: self.n_scalars]
        values = bound.exe.expressions.evaluate(bound.extents, scalars)
        shifts = [byte + values[n] * (1 if base < 0 else itemsize) for base, byte, n, itemsize in bound.moving]
        self.seen, self.shifts = scalars, shifts

    def find(self, refs: dict[int, Any]) -> list[tuple[Any, int]] | None:
        """Who holds the values with a storage, and such as were written, that are wanted; None if they are others.

        For more of them than `_spelled` writes out.
        """
        found: list[tuple[Any, int]] = []
        for i, step, k in self.stored:
            r = refs.get(i)
            h: Any = None if r is None else r()
            if (h is not None and is_wanted(h, step)) != (k >= 0):
                return None
            if k >= 0:
                if h._meta is not None:
                    return None
                found.append((h, k))
        return found


def remember(tr: Trace, plan: Any, slots: Sequence[Slot], holders: Sequence[Holder]) -> None:
    """Keep what this sync did, if a function can be written for it; before the trace ends."""
    pos, ext, results = tr.pos, tr.ext, tr.results
    last, pos.again = pos.again, False
    if pos.mixed or not backends[pos.device].capabilities(pos.device).replay:
        return
    if any(s.k or s.requires_grad or h._meta is not None for s, h in zip(slots, holders, strict=True)):
        return
    if len(slots) + len(tr.inputs) + len(tr.refs) > MOST:
        return
    path, place = pos.steps(), {s.step.index: k for k, s in enumerate(slots)}
    # Values with a storage and such as were written: index, step, which of those wanted it is, or -1.
    stored: list[tuple[int, Step, int]] = []
    for i, r in tr.refs.items():
        if type(r) is Several or i >= len(path):
            return
        if path[i].op is not INPUT:
            stored.append((i, path[i], place.get(i, -1) if results[i] is None else -1))
    bound = None
    if slots:
        if not isinstance(plan, Plan):
            return
        bound = plan.executable.bound.get(ext.values)
        if last is not None and bound is not None and not bound.has_replay:
            # Sizes that are new each time would be kept in vain.
            bound.has_replay, pos.again = True, last
            return
        if bound is None or [*range(len(slots))] != plan.order_of(ext.values, slots):
            return
    at = [(i, k) for i, k in place.items() if results[i] is holders[k]]
    if len(at) + sum(k >= 0 for *_, k in stored) == len(slots):
        if bound is not None and not plan.asynchronous:
            bound.complete()
        again = Written(tr, plan if slots else None, bound, slots)
        again.stored = stored
        again.run = _written(tr, again, at)
        again.follow(pos, last)


# --- the function that does it again

MAX_CODES = 1024
_codes: dict[str, CodeType] = {}  # by their text, which says no place but by a name: most syncs have one of few


def _written(tr: Trace, again: Written, at: list[tuple[int, int]]) -> Callable[[Trace, str, Site], bool]:
    """`run` of this sync, in a global space of its own. at: the places of what is wanted, and which value each is."""
    bound, path, results = again.bound, tr.pos.steps(), tr.results
    wanted = {i for i, _ in at}
    places = {
        "held": [i for i, _ in at],
        "dead": [s.index for s in path if results[s.index] is not None and s.op is not INPUT and s.index not in wanted],
        "input": [s.index for s in path if s.op is INPUT and s.index not in tr.refs],
        "none": [s.index for s in path if results[s.index] is None and s.op is not INPUT],
        "scalar": [],
        "donor": [],
    }
    native = False
    launch: list[str] = []
    program = status = None
    if bound is not None:
        # The inputs whose memory results could take, were they nobody else's.
        donors = sorted({d.donor for d in bound.donations})
        inputs = [s.index for s in path if s.op is INPUT and s.statics[3] < 0]
        places["donor"] = [inputs[n] for n in donors]
        if again.plan.asynchronous:
            launch = _enqueue(again, donors)
        else:
            program = bound.launch_only()
            places["scalar"], how = scalars_of(path, bound)
            native = program is not None
            # NOTE: of its own, because another thread may run the plan before this one has looked.
            status = array("q", (0, 0)) if native else bound.status
            launch = _launch(again, native, how, donors)
    n_dead = len(places["dead"])
    most = {"dead": SPELLED_DEAD, "none": SPELLED, "scalar": SPELLED}
    many = {kind: itemgetter(*places.pop(kind)) for kind, n in most.items() if len(places[kind]) > n}
    names = {kind: [f"{kind}{n}" for n in range(len(found))] for kind, found in places.items()}
    refs = _spelled(again, tr.refs, path) if 0 < len(tr.refs) <= SPELLED else _listed(again) if tr.refs else NO_REFS
    # NOTE: alone, a native call and results with no storage need no lock but the plan's: what is looked at and what is
    # put behind the handles afterwards are not apart by a call, so no other thread gets between.
    locked = bool(tr.refs) or not (native or bound is None)
    forgets = any(s.mode.inference for s in path)
    text = _text(
        names, [k for _, k in at], launch, refs, again.n_outputs, n_dead, locked, len(tr.inputs), forgets,
        bool(tr.metas),
    )  # fmt: skip
    space = {
        "FIRST_BOUND": FIRST_BOUND, "again": again, "blank": [None] * tr.n_results(), "bound": bound,
        "count": getrefcount, "counters": counters,
        "Data": Data, **many, "ENQUEUE": ENQUEUE, "enqueue": enqueue,
        "ext": again.ext, "failed": failed, "find": again.find,
        "holding": holding,
        "kept": again.kept, "kernels": again.kernels, "keys": [*tr.refs],
        "more": again.more, "move": again.move, "n_refs": len(tr.refs), "now": perf_counter, "plan": again.plan,
        "references": getweakrefcount, "root": again.root, "settings": settings, "Storage": Storage,
        "trace_numbers": trace_numbers,
        **{f"step{n}": path[i] for n, i in enumerate(tr.refs)},
        **{f"at_{name}": path[i] for name, i in zip(names["input"], places["input"], strict=True)},
        "span": slice(0, tr.n_results()), "used": slice(0, again.n_scalars),
        "status": status,
        "status_address": 0 if status is None else status.buffer_info()[0] if native else bound.status_address,
        **{f"shape{n}": shape for n, (shape, _) in enumerate(again.made)},
        **{f"dtype{n}": dtype for n, (_, dtype) in enumerate(again.made)},
        "words": None if bound is None else bound.exe.words.of,
        "launch": program if native else None, "lock": None if bound is None else bound.lock,
    }  # fmt: skip
    for kind, found in places.items():
        space.update(zip(names[kind], found, strict=True))
    code = _codes.get(text)
    if code is None:
        if len(_codes) >= MAX_CODES:
            _codes.clear()
        code = _codes[text] = compile(text, "<lazyt again>", "exec")
    exec(code, space)
    run: Callable[[Trace, str, Site], bool] = space["run"]
    return run


def scalars_of(path: Sequence[Step], bound: Any) -> tuple[list[int], list[str]]:
    """The scalars of a run: their places among those of the trace, and how a kernel reads each."""
    types: dict[int, type] = {}
    for s in path:
        weak = [x for x in s.operands if isinstance(x, type)]
        types.update(zip(range(s.scalar_start, s.scalar_start + s.n_weak), weak, strict=True))
    how: list[str] = []
    for p, part, floating in bound.exe.scalars:
        kind = types.get(p, int)  # what is not weak is an offset
        if part:
            how.append(f"float({{}}.{part})")
        elif kind in (_FLOATS if floating else _INTS):
            how.append(AS_IT_IS)
        else:
            how.append("float({})" if floating else "int({})")
    return list(bound.exe.words.positions), how


def words_of(path: Sequence[Step], bound: Any) -> list[int] | None:
    """The scalars of a run among those of the trace; None if some have to be converted first."""
    places, how = scalars_of(path, bound)
    return None if {*how} - {AS_IT_IS} else places


def enqueue(
    bound: Any, scalars: Sequence[Any], inputs: Sequence[Any], pos: Step, cause: str, places: Sequence[int] = (),
    receipt: Receipt | None = None,
) -> list[Any] | None:  # fmt: skip
    """The buffers of a run that may not be over yet (see `Enqueuing`)."""
    receipt = receipt or Receipt(cause not in ENQUEUE)
    found: list[Any] | None = bound.enqueue(scalars, inputs, partial(sites_of, pos), places, receipt)
    return found


def _enqueue(again: Written, donors: Sequence[int]) -> list[str]:
    """As `_launch`, for a device that is asynchronous."""
    lines: list[str] = []
    for i, n in enumerate(donors):
        # NOTE: who waits for checks overwrites nothing.
        lines += _if_unheld(i, n, "cause in ENQUEUE" if again.bound.checks else "")
    lines += ["try:", "    outs = enqueue(bound, tr.scalars[used], met, here, cause)"]
    lines += ["except Exception as e:", "    failed(e)", "    return False"]
    return [*lines, *(f"value{n} = Data(outs[{n}], shape{n}, dtype{n})" for n in range(again.n_outputs))]


def _launch(again: Written, native: bool, how: list[str], donors: Sequence[int]) -> list[str]:
    """The lines that find memory and run. how: how each scalar is read."""
    bound, outs = again.bound, range(again.n_outputs)
    made = "".join(f"value{n}, buffer{n}, address{n}, " for n in outs) + "arena, arena_address"
    unused = [f"count(value{n}) == {_VALUE} and count(buffer{n}) == {_BUFFER}" for n in outs]
    bases = [f"met{n}.address" for n in range(bound.n_inputs)]
    bases += [f"address{n}" for n in outs] + ["arena_address", "status_address"]
    moved = [f"shift{n}" if m[0] < 0 else f"{bases[m[0]]} + shift{n}" for n, m in enumerate(bound.moving)]
    if len(how) <= SPELLED:
        bases += [h.format(f"tr.scalars[scalar{n}]") for n, h in enumerate(how)]
    else:
        bases += ["*scalar(tr.scalars)" if {*how} == {AS_IT_IS} else "*words(tr.scalars[used])"]
    listed = f"[{', '.join((*bases, *moved))}]"
    lines: list[str] = []
    for i, n in enumerate(donors):
        lines += _if_unheld(i, n)
    lines += [
        f"for {made} in kept:",
        f"    if {' and '.join(unused)}:",
        "        break",
        "else:",
        "    made = more()",
        "    if made is None:",
        "        return False",
        f"    {made} = made",
        "try:",
    ]
    if moved:
        lines += ["    if tr.scalars[used] != again.seen:", "        move(tr)"]
        lines += [f"    ({''.join(f'shift{n}, ' for n in range(len(moved)))}) = again.shifts"]
    if native and bound.lets_go():
        # Another thread may run the plan just now.
        lines += ["    with lock:", f"        launch({listed})"]
    elif native:
        lines += [f"    launch({listed})"]
    else:
        lines += [f"    bases, outs = {listed}, [{', '.join(f'buffer{n}' for n in outs)}]"]
        lines += ["    bound.launch(bases, outs, arena, met)"]
    # What fails the general way meets again, and says which line it is of.
    lines += ["except Exception as e:", "    failed(e)", "    return False"]
    if bound.checks:
        lines += ["if status[0]:", "    status[0] = status[1] = 0", "    return False"]
    for n in outs if not native else ():
        # NOTE: a result may stand in memory that NumPy returned, not in that which was taken for it.
        lines += [f"if outs[{n}] is not buffer{n}:"]
        lines += [f"    value{n} = Data(outs[{n}], value{n}.shape, value{n}.dtype)"]
    return lines


def _if_unheld(i: int, n: int, also: str = "") -> list[str]:
    """The lines that leave to the general way a run that may overwrite an input, the i-th of such."""
    # Held by the list and here, or by a tensor as well that only the results of this trace hold.
    dead = f"count(met{n}) == {_MET + 1} and count(results[donor{i}]) <= {_UNHELD}"
    unheld = f"count(met{n}) <= {_MET} or ({dead})"
    return [f"if {also} and ({unheld}):" if also else f"if {unheld}:", "    return False"]


# What has a storage, or is held weakly, by parts of the text: what is different, found before the run, given a value,
# taken out of the trace.
References = tuple[list[str], list[str], list[str], list[str]]
NO_REFS: References = (["tr.refs"], [], [], [])


def _spelled(again: Written, refs: dict[int, Any], path: Sequence[Step]) -> References:
    """For a few: each by its name."""
    kinds = {i: k for i, _, k in again.stored}
    numbers = range(len(refs))
    found = [f"({''.join(f'r{n}, ' for n in numbers)}) = refs.values()", *(f"s{n} = r{n}()" for n in numbers)]
    different: list[str] = []
    given: list[str] = []
    left: list[str] = []
    for n, i in enumerate(refs):
        k = kinds.get(i, -1)
        wanted = WANTED.format(h=f"s{n}", step=f"step{n}")
        if k >= 0:
            different += [f"s{n} is None or not {wanted} or s{n}._meta is not None"]
            given += [f"s{n}._buffer = value{k}"]
        elif path[i].op is not INPUT:
            different += [f"(s{n} is not None and {wanted})"]
        left += lines(LEAVE, h=f"s{n}")
    if different:
        found += [f"if {' or '.join(different)}:", "    return False"]
    return ["[*tr.refs] != keys"], found, given, left


def _listed(again: Written) -> References:
    """For many: by loops."""
    found: list[str] = []
    given: list[str] = []
    if again.stored:
        found = ["stored = find(refs)", "if stored is None:", "    return False"]
        given = [f"values = ({''.join(f'value{n}, ' for n in range(again.n_outputs))})"]
        given += ["for h, k in stored:", "    h._buffer = values[k]"]
    left = ["for r in [*tr.refs.values()]:", "    h = r()", *(f"    {line}" for line in lines(LEAVE, h="h"))]
    return ["len(tr.refs) != n_refs"], found, given, left


def _text(
    names: dict[str, list[str]], values: list[int], launch: list[str], refs: References, n_outputs: int, n_dead: int,
    locked: bool, n_inputs: int, forgets: bool, leaves: bool,
) -> str:  # fmt: skip
    """The function. names: of the places of results, by what is there; values: which one each of those held gets.

    forgets: whether handles that nobody holds are not left for the next trace. leaves: whether some inputs are such.
    """
    held, inputs = names["held"], names["input"]
    more_refs, found, given, left = refs
    # NOTE: no call before `refs` is there: what a signal handler records later is found out at the end.
    text = ["here, met, results = tr.pos, tr.inputs, tr.results"]
    other = ["here.again is not again", "tr.ext is not ext", 'settings["interpret"]', 'not settings["repeat"]']
    text += [f"if {' or '.join(other)}:", "    return False"]
    text += [f"({''.join(f'met{n}, ' for n in range(n_inputs))}) = met"] if launch and n_inputs else []
    text += ["refs = {**tr.refs}"] if found else []
    text += [f"if {' or '.join(more_refs)}:", "    return False", "started = now()"]
    different: list[str] = []
    if "none" in names:
        different += [f"results[{p}] is not None" for p in names["none"]]
    else:
        different += [f"{{*map(id, none(results))}} != {{{id(None)}}}"]
    different += [f"count(results[{p}]) <= {_UNHELD}" for p in held]
    if "dead" in names:
        alive = " or ".join(f"count(results[{p}]) > {_UNHELD}" for p in names["dead"])
        referred = " or ".join(f"results[{p}].__weakref__ is not None" for p in names["dead"])
    else:
        # None has less than this, so the sum says it of each.
        alive = f"sum(map(count, dead(results))) > {AMONG * n_dead}"
        referred = "any(map(references, dead(results)))"
    different += [alive] if alive else []
    text += [f"if {' or '.join(different)}:", "    return False"] if different else []
    if referred:
        # NOTE: a handler of signals may have synced since they were counted: then there are none.
        text += ["try:", f"    known = {referred}", "except AttributeError:", "    return False"]
    text += found + launch
    if launch and alive:
        # Who has a weak reference may have made a reference of it while this ran.
        text += [f"if known and ({alive}):", "    return False"]
    text += ["spent, number, fresh = now() - started, next(trace_numbers), []"]
    # A handler of signals may have recorded while it ran, or synced.
    text += ["if tr.pos is not here or tr.inputs is not met:", "    return False"]
    # NOTE: from here to the last handle, no call but for what has a storage: see `_written`.
    text += [f"h_{p} = results[{p}]" for p in (*held, *inputs)]
    text += [f"if {' or '.join([*more_refs, *(f'h_{p} is None' for p in held)])}:", "    return False"]
    for p, k in zip(held, values, strict=True):
        text += lines(GIVEN, h=f"h_{p}", value=f"value{k}")
    for p in inputs:
        # NOTE: else another thread has written it, or met it.
        text += [f"if h_{p} is not None and h_{p}._slot is at_{p}:", f"    h_{p}._slot = None"]
    text += given + left
    text += ["counters.syncs += 1"]
    if launch:
        text += ["counters.kernels += kernels", "plan.runs += 1"]
    text += ["tr.report = again, cause, site, started - tr.started, spent"]
    # NOTE: `Trace.begin`, where none of what is rare is there.
    if left:  # what was recorded meanwhile is pending, so the trace goes on
        text += ["if tr.pos is not here:", "    return True"]
    # Records of leaves are as usual as parameters are.
    text += ["if tr.more:" if leaves else "if tr.metas or tr.more:", "    tr.begin(root, blank, here)", "else:"]
    text += [f"    results[{p}] = None" for p in (*held, *inputs)]
    # NOTE: what nobody holds is left for the next trace's handles, unless somebody has a weak reference to it.
    text += ["    if known:", "        results[span] = blank"] if referred else []
    # NOTE: who held an inference tensor may be marked, and serves no other step.
    text += ["    results[span] = blank"] if forgets else []
    text += ["    tr.last_refs, tr.refs = tr.refs, {}"] if left else []
    # NOTE: held until the end, as what dies with them may be somebody's who is told, and who records.
    text += ["    metas, tr.metas = tr.metas, {}"] if leaves else []
    text += [f"    {NEW_TRACE}", "    tr.pos = root"]
    text += ["root.next, tr.ended = again.then, again", "return True"]
    if locked:
        text = ["with holding:", *(f"    {line}" for line in text)]
    return "def run(tr, cause, site):\n    " + "\n    ".join(text) + "\n"
