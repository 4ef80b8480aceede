"""A sync like the last one at this place of a program: the same values held, the same extents.

Where an array has ten elements, what a sync costs is its Python. So what the general way through `syncing.py` and the
executor came to is kept at the last step, as a function written for it: each comparison and each address is spelled
out, because a loop over three things costs more than the three. Not so where gradients will be asked for, an
operation has several results, leaves are overwritten, or there are very many of either: see `updating.py`.

The memory of small results is kept too, and used again once nobody refers to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from sys import getrefcount
from time import perf_counter
from types import CodeType
from typing import TYPE_CHECKING, Any

from lazyt.backends.cpu import memory
from lazyt.errors import is_ours
from lazyt.handle import Data, Holder, Storage
from lazyt.planning import Plan
from lazyt.switches import general as settings
from lazyt.trace import NONE, Several, Slot, Trace, holding
from lazyt.walk import LEAF

if TYPE_CHECKING:
    from lazyt.trace import Ext, Site, Step

# Results and temporaries of at most so many bytes have memory that is kept, so many times over.
KEPT_BYTES = 4096
KEPT = 3
# More values than this that nobody holds are counted together: text and compiling would outgrow what they save.
SPELLED = 8
# With more values held and met than this, a sync is not written out.
MOST = 256
_FLOATS, _INTS = (float,), (int, bool)  # types of scalars that a kernel reads as they are


class Counters:
    """Totals of the process, for tests and benchmarks."""

    def __init__(self) -> None:
        self.syncs = self.plans = self.kernels = self.superset_plans = 0


counters = Counters()


def _counts() -> tuple[int, int, int, int, int]:
    """What `getrefcount` says, as `_text` asks it, of a result that nobody else holds; of a value and of its buffer
    that only what is kept refers to; of a leaf's value that nobody else refers to; of one result among several.
    """
    results, leaves = [object(), object()], [object()]
    (met,) = leaves
    value = Data(memory.wrap_external(0, 0, None), (), None)  # type: ignore[arg-type]
    kept = [(value, value.buffer)]
    del value
    for v, b in kept:
        found = getrefcount(results[0]), getrefcount(v), getrefcount(b), getrefcount(met)
    return *found, max(map(getrefcount, itemgetter(0, 1)(results)))


_UNHELD, _VALUE, _BUFFER, _MET, AMONG = _counts()


def failed(error: Exception) -> None:
    """A sync that was to be done again raised this, and goes the general way; with `strict` that covers no mistake."""
    if settings["strict"] and is_ours(error):
        raise error


class Again:
    """What a sync did, to be done again by `run(trace, cause, site)`: False, and nothing done, if it is not alike."""

    __slots__ = (
        "bound", "code", "ext", "in_place", "kernels", "lasti", "n_outputs", "n_scalars", "plan", "run", "site",
        "steps", "then",
    )  # fmt: skip

    run: Callable[[Trace, str, Site], bool]

    def __init__(self, tr: Trace, plan: Plan | None, bound: Any, n_outputs: int, in_place: int = 0) -> None:
        pos = tr.pos
        self.plan: Any = plan
        self.bound = bound
        self.ext: Ext = tr.ext
        self.kernels = 0 if plan is None else plan.kernels
        self.steps = pos.index + 1
        self.n_outputs = n_outputs
        self.n_scalars = pos.scalar_start + pos.n_scalars
        self.in_place = in_place
        # How the next walk begins, and the line that synced here.
        self.then: Any = NONE
        self.site: Site | None = None
        self.code: Any = None
        self.lasti = -1


class Written(Again):
    """What a sync did that a function was written for."""

    __slots__ = ("kept", "made", "seen", "small", "stored", "values")

    def __init__(self, tr: Trace, plan: Plan | None, bound: Any, slots: Sequence[Slot]) -> None:
        super().__init__(tr, plan, bound, len(slots))
        self.made = [(s.shape, s.dtype) for s in slots]
        self.small = bound is not None and sum(bound.sizes) + bound.arena_size <= KEPT_BYTES and memory.COUNTED
        self.stored: list[tuple[int, Step, int]] = []
        self.kept: list[tuple[Any, ...]] = []
        # The scalars met last, and what the expressions came to.
        self.seen: list[Any] | None = None
        self.values: list[int] = []

    def more(self) -> tuple[Any, ...] | None:
        """Memory for results, kept if it is small: value, buffer and address of each, the arena's buffer and address.

        None if there is none.
        """
        bound = self.bound
        try:
            buffers = [*map(memory.allocate, bound.sizes)]
            arena = memory.allocate(bound.arena_size) if bound.arena_size else None
        except MemoryError:
            return None
        parts: list[Any] = []
        for b, (shape, dtype) in zip(buffers, self.made, strict=True):
            parts += (Data(b, shape, dtype), b, b.address)
        made = (*parts, arena, 0 if arena is None else arena.address)
        if self.small and len(self.kept) < KEPT:
            self.kept.append(made)
        return made

    def rest(self, tr: Trace, bases: list[int], words: bool) -> list[int]:
        """The bases of a run with scalars that have to be converted, unless these are in `words`, and with offsets."""
        bound, scalars = self.bound, tr.scalars[: self.n_scalars]
        if bound.exe.scalars and not words:
            bases += bound.exe.words.of(scalars)
        if bound.moving:
            if scalars != self.seen:
                self.seen, self.values = scalars, bound.exe.expressions.evaluate(bound.extents, scalars)
            bases += bound.moved(bases, self.values)
        return bases

    def find(self, refs: dict[int, Any]) -> list[tuple[Any, int]] | None:
        """Who holds the values with a storage, and such as were written, that are wanted; None if they are others."""
        found: list[tuple[Any, int]] = []
        for i, step, k in self.stored:
            r = refs.get(i)
            h: Any = None if r is None else r()
            if (h is not None and h._slot is step and h._storage is None) != (k >= 0):
                return None
            if k >= 0:
                if h._meta is not None:
                    return None
                found.append((h, k))
        return found


def remember(tr: Trace, plan: Any, slots: Sequence[Slot], holders: Sequence[Holder]) -> None:
    """Keep what this sync did, if a function can be written for it; before the walk ends."""
    pos, ext, results = tr.pos, tr.ext, tr.results
    last, pos.again = pos.again, False
    if pos.mixed or pos.device != "cpu":
        return
    if any(s.k or s.requires_grad or h._meta is not None for s, h in zip(slots, holders, strict=True)):
        return
    if len(slots) + len(tr.leaves) + len(tr.refs) > MOST:
        return
    path, place = pos.steps(), {s.step.index: k for k, s in enumerate(slots)}
    # Values with a storage and such as were written: index, step, which of those wanted it is, or -1.
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
        again = Written(tr, plan if slots else None, bound, slots)
        again.stored = stored
        again.run = _written(tr, again, at)
        pos.again = again


# --- the function that does it again

MAX_CODES = 1024
_codes: dict[str, CodeType] = {}  # by their text, which says no place but by a name: most syncs have one of few


def _written(tr: Trace, again: Written, at: list[tuple[int, int]]) -> Callable[[Trace, str, Site], bool]:
    """`run` of this sync, in a global space of its own. at: the places of what is wanted, and which value each is."""
    bound, path, results = again.bound, tr.pos.steps(), tr.results
    wanted = {i for i, _ in at}
    places = {
        "held": [i for i, _ in at],
        "dead": [s.index for s in path if results[s.index] is not None and s.op is not LEAF and s.index not in wanted],
        "leaf": [s.index for s in path if s.op is LEAF and s.index not in tr.refs],
        "none": [s.index for s in path if results[s.index] is None and s.op is not LEAF] if tr.refs else [],
        "scalar": [],
        "donor": [],
    }
    native = checks = False
    launch: list[str] = []
    if bound is not None:
        # The leaves whose memory results could take, were they nobody else's.
        donors = sorted({d.leaf for d in bound.donations})
        leaves = [s.index for s in path if s.op is LEAF and s.statics[3] < 0]
        places["donor"] = [leaves[n] for n in donors]
        program = bound.launch_only()
        words = words_of(path, bound)
        places["scalar"] = words or []
        native, checks = program is not None, bool(bound.checks)
        launch = _launch(again, len(tr.leaves), native, words, donors)
    many = {kind: itemgetter(*places.pop(kind)) for kind in ("dead", "none", "scalar") if len(places[kind]) > SPELLED}
    names = {kind: [f"{kind}{n}" for n in range(len(found))] for kind, found in places.items()}
    text = _text(names, [k for _, k in at], launch, bool(tr.refs), bool(again.stored), again.n_outputs)
    space = {
        "again": again, "blank": [None] * tr.n_results(), "bound": bound, "count": getrefcount, "counters": counters,
        "Data": Data, **many, "ext": again.ext, "failed": failed, "find": again.find, "kept": again.kept,
        "kernels": again.kernels,
        "more": again.more, "n_refs": len(tr.refs), "now": perf_counter, "plan": again.plan, "rest": again.rest,
        "root": tr.roots[tr.grad], "settings": settings, "Storage": Storage,
        "status": None if bound is None else bound.status,
        "status_address": 0 if bound is None else bound.status_address,
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
    run: Any = space["run"]
    # NOTE: alone, a native call and results with no storage need no lock but the plan's: what is looked at and what is
    # put behind the handles afterwards are not apart by a call, so no other thread gets between.
    return _under_lock(run) if tr.refs or checks or not (native or bound is None) else run


def _under_lock(run: Callable[[Trace, str, Site], bool]) -> Callable[[Trace, str, Site], bool]:
    def locked(tr: Trace, cause: str, site: Site) -> bool:
        with holding:
            return run(tr, cause, site)

    return locked


def words_of(path: Sequence[Step], bound: Any) -> list[int] | None:
    """The scalars of a run among those of the walk; None if some have to be converted first."""
    types: dict[int, type] = {}
    for s in path:
        weak = [x for x in s.operands if isinstance(x, type)]
        types.update(zip(range(s.scalar_start, s.scalar_start + s.n_weak), weak, strict=True))
    if any(part or types.get(p) not in (_FLOATS if floating else _INTS) for p, part, floating in bound.exe.scalars):
        return None
    return list(bound.exe.words.positions)


def _launch(again: Written, n_leaves: int, native: bool, words: list[int] | None, donors: Sequence[int]) -> list[str]:
    """The lines that find memory and run."""
    bound, outs = again.bound, range(again.n_outputs)
    made = "".join(f"value{n}, buffer{n}, address{n}, " for n in outs) + "arena, arena_address"
    unused = [f"count(value{n}) == {_VALUE} and count(buffer{n}) == {_BUFFER}" for n in outs]
    bases = [f"met{n}.address" for n in range(bound.n_leaves)]
    bases += [f"address{n}" for n in outs] + ["arena_address", "status_address"]
    if words is not None and len(words) > SPELLED:
        bases += ["*scalar(tr.scalars)"]
    else:
        bases += [f"tr.scalars[scalar{n}]" for n in range(len(words or ()))]
    listed = f"[{', '.join(bases)}]"
    if bound.moving or (words is None and bound.exe.scalars):
        listed = f"rest(tr, {listed}, {words is not None})"
    lines = [f"({''.join(f'met{n}, ' for n in range(n_leaves))}) = tr.leaves"] if n_leaves else []
    for i, n in enumerate(donors):
        # Held by the list and here, or by a tensor as well that only the results of this walk hold.
        dead = f"count(met{n}) == {_MET + 1} and count(results[donor{i}]) <= {_UNHELD}"
        lines += [f"if count(met{n}) <= {_MET} or ({dead}):", "    return False"]
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
    if native and bound.lets_go():
        # Another thread may run the plan just now.
        lines += ["    with lock:", f"        launch({listed})"]
    elif native:
        lines += [f"    launch({listed})"]
    else:
        lines += [f"    bases, outs = {listed}, [{', '.join(f'buffer{n}' for n in outs)}]"]
        lines += ["    bound.launch(bases, outs, arena, tr.leaves)"]
    # What fails the general way meets again, and says which line it is of.
    lines += ["except Exception as e:", "    failed(e)", "    return False"]
    if bound.checks:
        lines += ["if status[0]:", "    status[:] = 0", "    return False"]
    for n in outs if not native else ():
        # NOTE: a result may stand in memory that NumPy returned, not in that which was taken for it.
        lines += [f"if outs[{n}] is not buffer{n}:"]
        lines += [f"    value{n} = Data(outs[{n}], value{n}.shape, value{n}.dtype)"]
    return lines


def _text(
    names: dict[str, list[str]], values: list[int], launch: list[str], refs: bool, stored: bool, n_outputs: int
) -> str:  # fmt: skip
    """The function. names: of the places of results, by what is there; values: which one each of those held gets."""
    held, leaf = names["held"], names["leaf"]
    different = ["tr.ext is not ext", 'settings["interpret"]', 'not settings["repeat"]']
    more_refs = "len(tr.refs) != n_refs" if refs else "tr.refs"
    different += [more_refs]
    if "none" in names:
        different += [f"results[{p}] is not None" for p in names["none"]]
    else:
        different += [f"{{*map(id, none(results))}} != {{{id(None)}}}"]
    different += [f"count(results[{p}]) <= {_UNHELD}" for p in held]
    if "dead" in names:
        different += [f"count(results[{p}]) > {_UNHELD}" for p in names["dead"]]
    else:
        different += [f"max(map(count, dead(results))) > {AMONG}"]
    lines = ["started, results = now(), tr.results", f"if {' or '.join(different)}:", "    return False"]
    if stored:
        lines += ["stored = find(tr.refs)", "if stored is None:", "    return False"]
    lines += launch
    # NOTE: from here to the last handle, no call but for what has a storage: see `_written`.
    lines += [f"h_{p} = results[{p}]" for p in (*held, *leaf)]
    lines += [f"if {' or '.join([more_refs, *(f'h_{p} is None' for p in held)])}:", "    return False"]
    lines += [f"h_{p}._data = value{k}" for p, k in zip(held, values, strict=True)]
    lines += [f"h_{p}._slot = None" for p in held]
    # NOTE: what has no value, and is no view, was written by another thread, as in `syncing._commit`.
    mine = "if h{p} is not None and (h{p}._data is not None or h{p}._storage is not None):"
    lines += [line for p in leaf for line in (mine.format(p=f"_{p}"), f"    h_{p}._slot = None")]
    if stored:
        lines += [f"values = ({''.join(f'value{n}, ' for n in range(n_outputs))})"]
        lines += ["for h, k in stored:", "    h._data = values[k]"]
    if refs:
        lines += ["for r in tr.refs.values():", "    h = r()", f"    {mine.format(p='')}", "        h._slot = None"]
        lines += ["        if type(h) is Storage:", "            h.invalidate(None)"]
    lines += ["counters.syncs += 1"]
    if launch:
        lines += ["counters.kernels += kernels", "plan.runs += 1"]
    lines += [
        "tr.report = again, cause, site, started - tr.started, now() - started",
        "tr.begin(root, blank)",
        "root.next, tr.ended = again.then, again",
        "return True",
    ]
    return "def run(tr, cause, site):\n    " + "\n    ".join(lines) + "\n"
