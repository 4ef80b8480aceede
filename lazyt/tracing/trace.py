"""The recorded program of one thread: a path in the trie of programs already seen.

A *step* is one call (program.py) recorded in one context. A *slot* is one value of a step, and what a tensor handle
holds while it is pending; slots are compared by identity, which rejects stale and foreign operands for free.
Extents and integer attributes of the steps are not in any key: they form a chain of `Ext` nodes, and a step
remembers the shapes inferred under each. Scalars are written by position into a list, never appended, so an
interrupted operation is overwritten rather than shifted.

NOTE: a trace changes state in one last assignment (`trace.pos = step`); everything written before it stands at
positions that the next attempt writes again.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import weakref
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from lazyt.forking import SYNC, OrderedLock
from lazyt.interrupts import uninterrupted
from lazyt.tracing.commit import carry_out, prepared
from lazyt.tracing.mode import DEFAULT, FIRST, Mode
from lazyt.tracing.program import Call, Key, Program, Slot, key_of, number_of, position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lazyt.tracing.call_site import Site

_FIRST_RESULTS = 4096
# After so many steps, and at each doubling, it is asked whether a trace goes round a loop (see `record.begin`).
FIRST_BOUND = 4096
# What no operand is, and no form of an input.
_UNORDERED = object()
NO_FORM = object()
# How many different extents a place in a program remembers.
MAX_EXTENTS = 1024


class Ext:
    """A node in the chain of extents met: equal traces over equal extents reach the same object."""

    __slots__ = ("_values", "children", "last", "last_key", "more", "parent")

    def __init__(self, parent: Ext | None = None, more: tuple[int, ...] = ()) -> None:
        self.parent = parent
        self.more = more  # what was met here
        self.children: dict[tuple[int, ...], Ext] = {}
        self.last_key: tuple[int, ...] | None = None
        self.last: Any = None
        self._values: tuple[int, ...] | None = None

    @property
    def values(self) -> tuple[int, ...]:
        """All that were met up to here, found when a sync asks: a chain of which each node had its own would take the
        square of its length."""
        if self._values is None:
            parts: list[tuple[int, ...]] = []
            node: Ext | None = self
            while node is not None:
                parts.append(node.more)
                node = node.parent
            self._values = tuple(itertools.chain.from_iterable(reversed(parts)))
        return self._values

    def child(self, more: tuple[int, ...]) -> Ext:
        """The node after also meeting `more` (always a node of its own, even for no extents)."""
        if self.last_key == more:
            return self.last  # type: ignore[no-any-return]
        c = self.children.get(more)
        if c is None:
            if len(self.children) >= MAX_EXTENTS:
                self.children.clear()
            c = self.children[more] = Ext(self, more)
        self.last_key, self.last = more, c
        return c


class NoCall:
    """What a step remembers of the call that took it (see call_cache.py), before there was one."""

    f = None
    left = 1
    binds = False
    before = after = object()  # extents that no trace has


NO_CALL = NoCall()


# How operands of which one has no axes are promoted in some files: `lazyt.torch` sets it.
by_class: list[Callable[..., tuple[Any, Any]]] = []


def _meets_scalar(x: Any, y: Any) -> bool:
    """Whether one of two slots has no axes, the other has some, and their dtypes differ."""
    return isinstance(x, Slot) and isinstance(y, Slot) and x.dtype != y.dtype and (not x.shape) != (not y.shape)


class Step(Call):
    """One call on one path of the trie, and what is remembered of how it goes on from there."""

    __slots__ = (
        "_number", "_program", "a", "again", "b", "bare", "before", "by_ext", "call", "checks", "children", "consumed",
        "counted", "cut", "ext", "first", "form", "high", "kept", "key", "known", "known_calls", "leaf_form", "leaves",
        "like", "low", "mixed", "next", "owner", "parent", "pulled", "rules", "simple", "view",
    )  # fmt: skip

    def __init__(
        self, parent: Step | None, op: Any, operands: tuple[Any, ...], statics: tuple[Any, ...], key: Key
    ) -> None:
        super().__init__(parent, op, operands, statics, DEFAULT if parent is None else parent.mode)
        self.parent = parent
        self.owner: Any = None if parent is None else parent.owner  # the trace whose trie this is
        # The fast path compares the first two directly, and a scalar with its bounds, which a complex one has not.
        first = [_UNORDERED if x is complex else x for x in operands[:2]]
        self.a = first[0] if first else None
        self.b = first[1] if len(first) > 1 else None
        if by_class:
            self.look_at_scalar()
        self.key = key
        self.children: dict[Key, Step] = {}
        self.next: Step = NONE
        self.ext: Ext | None = None
        self.by_ext: dict[Ext, tuple[tuple[int, ...], ...]] = {}
        self.rules: tuple[
            Any, ...
        ] = ()  # of the shapes of its values, from those of its operands (see shape_inference.py)
        # The range of the one weak integer operand that the fast path passes; any value for other operands.
        self.low: float = -math.inf
        self.high: float = math.inf
        self.checks: tuple[tuple[int, int, int], ...] = ()  # (scalar position, low, high) of every weak integer
        self.cut = False  # the bound on traces fell here: whoever comes next syncs first
        self.simple = False  # its key is the operation and the operands alone
        self.bare = False  # no extents or offsets of its own go in, and one value comes out
        self.mixed = False  # whether values on several devices lead here
        self._number = 0
        self._program: Program | None = None
        self.known = False  # leads to a plan
        # For an input: the form of the value met here last if it was without gradients, whether it counts for the bound
        # on traces, and the extents before it.
        self.form: Any = NO_FORM
        self.leaf_form: Any = NO_FORM  # the same of a leaf that gradients are asked for
        self.counted = False
        self.before: Ext | None = None
        self.first: Any = NONE  # of a root: where the last trace began that no sync foretold
        self.again: Any = None  # what the last sync here did, False if it is nothing to repeat (see replay.py)
        self.like: tuple[Slot, ...] = ()  # for a backward: the values its results have the shapes of
        self.leaves: Any = None  # memo of what a backward from here reaches
        self.pulled: Any = None  # for a plain `backward()`: what it was called with, and the places of its leaves
        self.view: Any = None  # how the view that was made here last is seen in its storage
        self.call: Any = NO_CALL  # the public call that took it last (see call_cache.py)
        self.known_calls: dict[Any, Any] | None = None  # what functions recorded from here on (see known_calls.py)
        self.consumed: Any = None  # memo: the steps whose graph a backward up to here has freed
        # Memo: for values that a sync leaves with a graph, what their derivatives keep (see autograd/saved_segment.py).
        self.kept: dict[tuple[Slot, ...], Any] = {}

    def look_at_scalar(self) -> None:
        """Let no call take this step unseen if its dtype is the file's to say: an operand alone has no axes."""
        if len(self.operands) == 2 and _meets_scalar(*self.operands):
            self.a = _UNORDERED

    @property
    def program(self) -> Program:
        """The program that ends in this step."""
        found = self._program
        if found is None:
            calls: list[Step] = []
            s = self
            while s.parent is not None:
                calls.append(s)
                s = s.parent
            found = self._program = Program(calls[::-1], self.number)
        return found

    @property
    def number(self) -> int:
        """The number of that program, found when it is asked for: what a step gives is complete then."""
        if self._number:
            return self._number
        todo: list[Step] = []
        s = self
        while not s._number and s.parent is not None:
            todo.append(s)
            s = s.parent
        if not s._number:
            s._number = number_of(0, (s.mode,))
        n = s._number
        for s in reversed(todo):
            n = s._number = number_of(n, key_of(s, position))
        return n

    @property
    def ends(self) -> bool:
        """Whether a plan was asked for of the program that ends here."""
        return self._program is not None and self._program.plans is not None

    def steps(self) -> list[Step]:
        """The steps from the root's child to this one."""
        return self.program.calls


class _No:
    """The step that is never predicted right."""

    __slots__ = ("a", "b", "call", "ext", "form", "key", "leaf_form", "op", "pulled", "statics", "view")

    def __init__(self) -> None:
        self.call = NO_CALL
        self.leaf_form = NO_FORM
        self.op = self.a = self.b = self.ext = self.key = self.statics = self.pulled = self.view = None
        self.form = NO_FORM


NONE: Any = _No()


# Held while the values of a trace are computed and put behind their holders, and by a thread other than its own that
# changes who holds one.
holding = OrderedLock(SYNC)
if hasattr(os, "register_at_fork"):
    # A child has no thread that would let go of it, nor of the locks of what is running: a fork waits for a sync.
    os.register_at_fork(before=holding.acquire, after_in_parent=holding.release, after_in_child=holding.release)

# Threads that are about to write what another has pending: the others' writes wait for their turn (see inplace.py).
waiting: set[int] = set()
# Whether values may be shared: empty until a second thread records.
several: list[bool] = []


def _count_unheld() -> int:
    """What `getrefcount` says of an object that only a list and a copy of it hold, counted as in `Trace.alive`."""
    results = [object()]
    copy = results[:]
    return next(count for _, count in enumerate(map(getrefcount, copy)))


_UNHELD = _count_unheld()


class Several(tuple[Any, ...]):
    """Weak references to the holders of a step's several values; called like one, gives a list of those alive."""

    __slots__ = ()

    def __call__(self) -> list[Any] | None:
        return [h for r in self if (h := r()) is not None] or None


trace_numbers = itertools.count(1)
# Begins the next trace in `tr`: `Trace._restart` and the functions of replays are made of this line.
NEW_TRACE = (
    "tr.ext, tr.inputs, tr.number, tr.nbytes, tr.started, tr.bound = tr.ext_root, fresh, number, 0, 0.0, FIRST_BOUND"
)
_RESTART = f"""
def restart(tr, root, blank, span, parts):
    # NOTE: no call in here.
    number, fresh, refs, metas, more = parts
    {NEW_TRACE}
    if tr.refs:
        # NOTE: kept for one trace more, because a weak reference that is there costs less than a new one.
        tr.last_refs, tr.refs = tr.refs, refs
    if tr.metas:
        tr.metas = metas
    if more is not None:
        tr.more = False
        tr.polled = 0
        tr.replayed, tr.slot_hooks, tr.retained, tr.customs, tr.foreign = more
    tr.ended = None
    tr.pos = root
    # Last: what dies here may be somebody's who is told, and who records.
    tr.results[span] = blank
"""


def _restarting() -> Callable[..., None]:
    space: dict[str, Any] = {}
    exec(compile(_RESTART, "<lazyt restart>", "exec"), globals(), space)
    found: Callable[..., None] = space["restart"]
    return uninterrupted(found)


_restart = _restarting()


def whole_array(x: Any) -> Any:
    """The array of NumPy that x is a view of, if it is one."""
    while (base := x.base) is not None and type(base) is type(x):
        x = base
    return x


class Trace:
    """The pending program of one thread."""

    __slots__ = (
        "_roots", "bound", "busy", "called", "computing", "culprits", "customs", "cut_site", "dropped", "eager",
        "effects", "ended", "expectations", "ext", "ext_root", "failed", "foreign", "history", "hosts", "impure",
        "inner", "inputs", "last_refs", "left", "metas", "mode", "more", "n_new", "n_steps", "nbytes", "number",
        "polled", "pos", "refs", "replayed", "report", "restarts", "results", "retained", "scalars", "slot_hooks",
        "started", "syncs_forbidden", "turned", "watched",
    )  # fmt: skip

    def __init__(self) -> None:
        self.mode = DEFAULT
        self.eager = False
        self.watched = False  # whether `eager` is asked after each operation: then none takes the shortest way
        # Whether an operation is being recorded, the trace being computed: who records or reads then is a handler of
        # signals or a finalizer, and the trace does not end for it.
        self.busy = self.computing = False
        self.restarts = 0  # attempts at recording an operation that such a one has interrupted
        self.inner: Trace | None = None
        self.failed = False  # whether it was left, because its values could not be computed (see `leave`)
        self.culprits: Sequence[Step] = ()  # the steps that failed then
        self.cut_site: Site | None = None
        self.pos: Step = Step(None, None, (), (), ())
        # Who holds each step's values, by step index. What an operation returns is held here as well, and what is met
        # as an input without gradients: counting its references at the sync costs less than a weak reference (see
        # `alive`). A record of gradients must die with its tensor, and a storage, or what a write moved to another
        # step, is not one step's: such are held weakly. Behind the trace's last step there may be handles of an earlier
        # trace that nobody held: without value, storage or gradients, for the steps to come (see replay.py).
        self.results: list[Any] = [None] * _FIRST_RESULTS
        self.refs: dict[int, Any] = {}
        self.last_refs: dict[int, Any] = {}
        self.report: Any = None  # what the last sync did, or what that of a repeated one is written from
        self.ended: Any = None  # how the last trace ended, if as before (see replay.py)
        self.scalars: list[Any] = [0] * _FIRST_RESULTS
        self.syncs_forbidden: list[Any] = []
        self.expectations: list[Any] = []
        # While a function under `jit` is called: what it did that its steps do not tell.
        self.impure: list[str] | None = None
        self.hosts: list[Any] = []  # arrays of NumPy that it made tensors of
        self.metas: dict[int, Any] = {}  # index of an input step -> weak reference to its gradient record
        self.more = False  # whether there is anything in one of these
        self.replayed: dict[Any, dict[Slot, Slot]] = {}  # segments recorded again on this trace
        self.slot_hooks: dict[Slot, list[Any]] = {}  # hooks on intermediate values
        # Records of intermediate values that keep their gradient, and where they are.
        self.retained: dict[Any, Slot] = {}
        self.history: Any = None  # what a trace has freed and overwritten (see autograd/reachability.py)
        self.customs: dict[Step, Any] = {}  # calls of custom functions, and what becomes of their cotangents
        self.effects: dict[str, Any] = {}  # by device, the token of the last effect, held so that a sync computes it
        self.called: Any = None  # which effects were called (see runtime/effect_calls.py)
        self.foreign: dict[int, Slot] = {}  # id of a Data that several threads know -> the input it is here
        self.polled = 0  # how often another thread has computed values of this trace
        self.ext_root = self.ext = Ext()
        self.inputs: list[Any] = []  # Data bound so far, by their index
        self.bound = FIRST_BOUND  # the step at which it is asked whether the trace goes round a loop
        self.left = 0, 0  # a trace that does, by its number, and how many steps its iteration had left
        self.number = 0  # which trace of the process this is
        self.nbytes = 0  # of input buffers that only the trace may hold
        self.started = 0.0  # when its first step was recorded
        self._roots: dict[Mode, Step] = {}
        self.turned: dict[Step, Step] = {}  # from root to root, where only the grad mode differs (see current.py)
        self.n_steps = self.n_new = 0  # steps of the trie, and those since the last sync that was planned
        self.dropped = -1  # how often plans had been dropped then; -1 before the first
        self.reset_trie()

    def look_at_scalars(self) -> None:
        """Have all known steps looked at whose dtype a file may have a say in."""
        todo = [*self._roots.values()]
        while todo:
            s = todo.pop()
            s.look_at_scalar()
            todo += s.children.values()

    def reset_trie(self) -> None:
        """Forget every program seen (the bound on the trie); only between traces."""
        self._forget(iter(()))

    def _forget(self, assignments: Iterable[Any]) -> None:
        """A new trace in an empty trie, and some assignments with that."""
        mode, results, ext_root, fresh = self.mode, [None] * _FIRST_RESULTS, Ext(), self._fresh()
        root, nothing = self._new_root(mode), slice(0)
        trie = {mode: root}
        turned: dict[Step, Step] = {}
        before = self.results
        # NOTE: no call from here on but of what is entered without a look at signals.
        carry_out(assignments)
        self._roots, self.n_steps, self.results, self.ext_root, self.turned = trie, 0, results, ext_root, turned
        self.history = None
        _restart(self, root, [], nothing, fresh)
        del before  # what nobody else held dies when all is done

    def root(self, mode: Mode) -> Step:
        """Where traces in a mode begin."""
        found = self._roots.get(mode)
        if found is None:
            found = self._roots[mode] = self._new_root(mode)
            self.n_new += 1
        return found

    def _new_root(self, mode: Mode) -> Step:
        root = Step(None, None, (), (), ())
        root.owner, root.mode, root.device = self, mode, mode.device
        return root

    def start(self) -> None:
        """Return to the root: a new, empty program."""
        at, root, blank = self.pos, self.root(self.mode), [None] * self.n_results()
        root.next = NONE
        self.begin(root, blank, at)

    def begin(self, root: Step, blank: list[None], at: Step) -> None:
        """A new trace from `root`, over the results of the last one, which ended `at`: as many as are in `blank`."""
        span, fresh = slice(len(blank)), self._fresh()
        # NOTE: what a handler of signals has recorded meanwhile, here or on the way here, is pending: then the trace
        # goes on.
        if at is self.pos:
            _restart(self, root, blank, span, fresh)

    def _fresh(self) -> tuple[Any, ...]:
        """What a new trace needs, made before the last one is left."""
        return next(trace_numbers), [], {}, {}, ({}, {}, {}, {}, {}) if self.more else None

    def leave(self, culprits: Sequence[Step] = ()) -> None:
        """End this trace where it stands, for values of it that cannot be computed now: whoever wants one tries again.

        What is recorded goes to a `Trace` of its own, as if another thread had recorded it, and the trie with it.
        culprits: the steps that failed.
        """
        other = Trace()
        other.failed, other.culprits = True, culprits
        other.pos, other.ext, other.inputs = self.pos, self.ext, self.inputs
        other.scalars = self.scalars[:]
        # What a later backward through these values asks for (see `Segment`).
        held = {i: weakref.ref(self.results[i]) for i in self.held_results()}
        other.refs, other.results = {**self.refs, **held}, [None] * self.n_results()
        other.metas, other.more, other.replayed = self.metas, self.more, dict(self.replayed)
        other.slot_hooks, other.retained, other.customs = dict(self.slot_hooks), dict(self.retained), dict(self.customs)
        # What it was to do for its effects is done, or cannot be (see runtime/effect_calls.py).
        self.effects = {}
        # NOTE: all steps, or none: a program in two traces could never be computed.
        self._forget(prepared((s, "owner", other) for s in self.pos.steps()))

    def aside(self) -> Trace:
        """The trace of what records on this thread while this one is computed; nothing is pending there."""
        other = self.inner
        if other is None or other.pos.parent is not None or other.mode is not self.mode:
            other = Trace()
            other.mode = self.mode
            other.start()
            self.inner = other
        return other

    def n_results(self) -> int:
        """How many entries of `results` belong to this trace; an interrupted call may have left one more."""
        return self.pos.index + 2

    def held_places(self, first: int = 0) -> list[int]:
        """Where, from `first` on, `results` has something that is held by somebody else, ascending; None always is."""
        results = self.results[first : self.pos.index + 2]
        return [i for i, count in enumerate(map(getrefcount, results), first) if count > _UNHELD]

    def held_results(self, first: int = 0) -> list[int]:
        """The indices, from `first` on, of the results that somebody else holds, ascending."""
        results = self.results
        return [i for i in self.held_places(first) if results[i] is not None]

    def let_go(self) -> list[int]:
        """Forget those met as inputs that nobody else holds: results may take the memory of their values.

        Returns where they were.
        """
        results = self.results[: self.pos.index + 2]
        unheld = [i for i, count in enumerate(map(getrefcount, results)) if count <= _UNHELD]
        inputs = [i for i in unheld if results[i]._buffer is not None]
        for i in inputs:
            self.results[i] = None
        return inputs

    def alive(self, first: int = 0) -> list[tuple[int, Any]]:
        """Who holds values of each step from `first` on, in no order: (step index, holder)."""
        found = [(i, self.results[i]) for i in self.held_results(first)]
        refs = self.refs
        # NOTE: another thread may add to refs meanwhile.
        for i, r in [(i, refs.get(i)) for i in range(first, self.n_results())] if first else list(refs.items()):
            h = None if r is None else r()
            if h is None:
                continue
            if type(h) is list:
                found += [(i, x) for x in h]
            else:
                found.append((i, h))
        return found

    def holder(self, slot: Slot) -> Any:
        """Who holds a value of this trace; None when nobody does."""
        i = slot.step.index
        h = self.results[i]
        if h is not None:
            return h
        r = self.refs.get(i)
        if type(r) is Several:
            r = r[slot.k]
        return None if r is None else r()

    @property
    def empty(self) -> bool:
        return self.pos.parent is None


class _Local(threading.local):
    def __init__(self) -> None:
        self.trace = _adopt()


_free: list[Trace] = []
_adopted = itertools.count()


class _Owner:
    """Dies with its thread's local storage and gives the trie back for the next thread."""

    __slots__ = ("__weakref__", "trace")

    def __init__(self, trace: Trace) -> None:
        self.trace = trace


def _adopt() -> Trace:
    """A trace for a new thread: one whose thread is gone (its trie knows programs already), or a new one."""
    trace = _free.pop() if _free else Trace()
    if FIRST[0] is not trace.mode:
        # NOTE: the first step finds that the root is of another mode.
        trace.mode, trace.pos.next, trace.pos.again = FIRST[0], NONE, None
    if next(_adopted):
        several[:] = [True]
    owner = _Owner(trace)
    _owners.value = owner
    weakref.finalize(owner, _return, trace)
    return trace


def _return(trace: Trace) -> None:
    trace.effects = {}
    # NOTE: what is pending here may still be read by other threads; then the trace must stay as it is.
    if len(_free) < 64 and not trace.alive():
        trace.mode = DEFAULT
        trace.eager = trace.watched = False
        # NOTE: blocks that were entered and not left end with the thread.
        trace.syncs_forbidden, trace.expectations, trace.impure, trace.report = [], [], None, None
        trace.start()
        _free.append(trace)


_owners = threading.local()
local = _Local()
