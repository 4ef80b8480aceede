"""`jit`: a function whose calls are recorded at once, without its Python."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any
from weakref import ref

from lazyt.autograd.functional import flatten, is_at_leaf, unflatten
from lazyt.config import general as settings
from lazyt.errors import LazytWarning, NotSupportedError
from lazyt.functions.jit_arguments import Arguments, Lifted, difference, refusal_of_result, with_marks, without_marks
from lazyt.tracing.call_events import Calls, using
from lazyt.tracing.call_guards import Guards, TooMany, watched
from lazyt.tracing.call_site import warn
from lazyt.tracing.input_groups import InputGroup, group_of
from lazyt.tracing.inputs import bind_input
from lazyt.tracing.known_calls import KnownCall, inside, read_before, remember, steps_since, written_over
from lazyt.tracing.program import INPUT, Slot
from lazyt.tracing.record import begin, slot_of
from lazyt.tracing.refusals import check_function
from lazyt.tracing.steps import hooks, settle
from lazyt.tracing.tensor_state import Storage
from lazyt.tracing.trace import local
from lazyt.tracing.tracebacks import filter_traceback, filters_itself

if TYPE_CHECKING:
    from lazyt.tracing.trace import Step, Trace

__all__ = ["jit"]

# Other arguments than tensors: so many sets of them are remembered.
MOST_KEYS = 256
# Who is lazyt's behind the functions that meet an argument: `bind_input`, `_met`, `_call` and `__call__`.
CALLERS = 4
# Frames of lazyt's around a function that calls itself.
FRAMES = 6
# What a function reads by itself is met together at so many places: a function is written for each.
MOST_GROUPS = 256
# What is done twice in a row is done each time.
TWICE = 2
# Calls in a row that may have arguments that are new, before the function is called plainly for a while.
FRESH = 32
# So often what the function reads may be found to have changed, before it is only called.
CHANGES = 16
_NEW = "arguments that are no tensors are new at each call; pass what changes as a tensor"
# A function that gains nothing from `jit` is called plainly so often, then tried again; each time twice as often.
FIRST_REST, LONGEST_REST = 16, 4096
# In microseconds: a call that is taken from memory, each value that it compares or meets, each result; and each step
# and each other call of a function that are saved. Where less is saved it is not worth it. What else a function does is
# seen in the time that its recording took, which is many times that of a plain call.
TAKEN, COMPARED, MET, RETURNED, STEP, SAVED = 1.6, 0.03, 0.5, 0.8, 0.33, 0.12
SLOWED = 100


def jit(f: Callable[..., Any]) -> Any:
    """A function that does what `f` does and calls it only where it must: else the steps of an earlier call are taken.

    lazyt plans and compiles without it. What it saves is Python: of a function that is called again at the same place
    of a program, on tensors of the same kind, none runs. Arguments and results are tensors, or nests (tuples, lists,
    dicts) of tensors and of anything else; what is no tensor decides by its value what is recorded, so pass what
    changes from call to call as a tensor. NumPy's arrays come to `f` as tensors.

    What `f` reads beside its arguments is read anew: parameters of a module, tensors of enclosing functions. When a
    name, a variable, an attribute, an element or a key that it reads has become another object or number, `f` is called
    again. What `f` writes in place is written again.

    `f` is called each time, as without `jit`, if it reads a value, draws random numbers, keeps a value in something
    else than its results (`backward()` does, `lt.grad` does not), writes into a tensor with gradients, runs hooks of
    modules, or uses anything that is not known to be watched: iterators, files, clocks, `print`, `os.environ`, random
    numbers of Python's and NumPy's, weak references, imports inside. A LazytWarning says so at the second such call. So
    a training step gains nothing; it records as it is. The same holds, without a warning, for results that share
    memory, and for custom functions and effects inside. A function that takes no longer than to look up what it did is
    called plainly too.

    `repr` says how many calls are remembered, and why the last one was not.

    As `jax.jit` and `mlx.core.compile`; a decorator of methods too.

    >>> import lazyt as lt
    >>> lt.jit(lambda x: x * 2)(lt.ones(2)).tolist()
    [2.0, 2.0]
    >>> @lt.jit
    ... def smooth(x, steps):
    ...     for _ in range(steps):
    ...         x = (x[1:] + x[:-1]) / 2
    ...     return x
    >>> smooth(lt.arange(5.0), 2).tolist()
    [1.0, 2.0, 3.0]
    """
    check_function("jit", f)
    return Jitted(f)


class Jitted:
    """A function under `jit`."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self.__wrapped__ = f
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            if hasattr(f, name):
                setattr(self, name, getattr(f, name))
        self._entries: dict[Any, _Entry] = {}
        self._changes = 0
        self._remembered = 0
        self._reason = ""
        self._row = 0  # refusals in a row
        self._warned = False
        self._small = False  # whether its Python takes no longer than a call that is remembered
        self._plain = 0  # how often it is called plainly from now on
        self._rest = 0
        self._fresh = 0  # new sets of arguments in a row
        self._recursive = False  # whether it calls itself
        self._called: dict[int, int] = {}  # traces that record it now, by id, and how deep it is in itself there

    def __repr__(self) -> str:
        why = f"; the last one was not: {self._reason}" if self._reason else ""
        if self._small and not why:
            why = "; it is called plainly, which takes no longer"
        return f"<jit of {self._name()}: {self._remembered} calls remembered{why}>"

    def _refuse(self, why: str, surely: bool = False) -> None:
        """Say why the function is called each time: once, and not where it may have been a handler of signals."""
        self._row += 1
        if (surely or self._row >= TWICE) and not self._warned:
            self._warned = True
            warn(f"jit: {self._name()} is called each time: {why}", LazytWarning)
        self._reason = why

    def _rest_a_while(self) -> None:
        """Call the function plainly for some time."""
        self._plain = self._rest = min(max(2 * self._rest, FIRST_REST), LONGEST_REST)

    def _name(self) -> str:
        return getattr(self.__wrapped__, "__qualname__", type(self.__wrapped__).__name__)

    def _enter(self, key: Any, call: Any, outer: list[Any]) -> str:
        """Have what the function reads watched from now on."""
        entry = self._entries.get(key)
        if entry is not None:
            self._changes += 1
            if self._changes > CHANGES:
                self._entries.clear()
                self._refuse(f"{entry.guards.changed()} changes from call to call", True)
                return self._reason
            if entry.holds():
                entry.outer = (*entry.outer, *outer)
                entry.groups = {}
                first = "it read something for the first time"
                return first if outer else "it writes what it reads, which is undone between its calls"
        elif self._changes > CHANGES:
            return self._reason
        else:
            self._fresh += 1
            if self._fresh > FRESH:
                self._refuse(_NEW, True)
                self._rest_a_while()
                return self._reason
        if len(self._entries) >= MOST_KEYS:
            self._entries.clear()
        objects = Arguments(*call).objects
        try:
            made = self._entries[key] = _Entry(watched([self.__wrapped__, *objects]), outer)
        except TooMany:
            self._changes = CHANGES + 1
            self._refuse("it reaches too many objects to see whether they change", True)
            return self._reason
        # NOTE: an argument that is an object lives no longer for this; another that has its id then has no entry.
        made.arguments = [_lasting(x, lambda _: self._entries.pop(key, None)) for x in objects]
        if what := made.guards.refusal(()):
            self._refuse(using(what))
            self._rest_a_while()
            return self._reason
        return "it was called for the first time" if entry is None else f"{entry.guards.changed()} has changed"

    def __reduce__(self) -> Any:
        found: Any = sys.modules.get(getattr(self, "__module__", ""))
        for name in getattr(self, "__qualname__", "").split("."):
            found = getattr(found, name, None)
        return self.__qualname__ if found is self else (jit, (self.__wrapped__,))

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    @filters_itself
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`f(*args, **kwargs)`, recorded at once where it was called so before."""
        try:
            plain = not kwargs
            for x in args:
                if type(x) is not hooks.tensor:
                    plain = False
                    break
            if plain:
                if self._plain and not self._recursive and not settings["verify"]:
                    self._plain -= 1
                    return self.__wrapped__(*args)
                tr = local.trace
                if self._called and id(tr) in self._called:
                    return self._again(args, kwargs)
                return self._call(tr, args, kwargs, args, len(args), None)
            given = Arguments(args, kwargs)
            if not given.arrays:
                return self._given(args, kwargs, given)
            lifted = Lifted(args, kwargs)
            try:
                return self._given(lifted.args, lifted.kwargs, Arguments(lifted.args, lifted.kwargs))
            finally:
                lifted.put_back()
        except Exception as error:
            filter_traceback(error, True, "jit")
            raise

    def _given(self, args: Any, kwargs: Any, given: Arguments) -> Any:
        tr = local.trace
        if self._called and id(tr) in self._called:
            return self._again(args, kwargs)
        return self._call(tr, args, kwargs, given.tensors, given.key, given)

    def _again(self, args: Any, kwargs: Any) -> Any:
        """The function, called by itself: lazyt's frames around it do not count for the limit on recursion."""
        self._recursive = True
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + FRAMES)
        try:
            return self.__wrapped__(*args, **kwargs)
        finally:
            sys.setrecursionlimit(limit)

    def _call(
        self, tr: Trace, args: tuple[Any, ...], kwargs: dict[str, Any], values: Sequence[Any], key: Any,
        given: Arguments | None,
    ) -> Any:  # fmt: skip
        if tr.watched or tr.eager or not settings["jit"]:
            return self.__wrapped__(*args, **kwargs)
        if self._plain and not settings["verify"]:
            self._plain -= 1
            return self._again(args, kwargs) if self._recursive else self.__wrapped__(*args, **kwargs)
        pos = tr.pos
        if pos.cut or pos.index >= tr.bound:
            begin()
        entry = self._entries.get(key)
        if entry is not None and not entry.guards.hold():
            entry = None
        known = None
        ours: Any = () if entry is None else entry.ours(values, given)
        busy = tr.busy
        tr.busy = True
        try:
            slots = _met(tr, values)
            if entry is not None and (outer := entry.outer):
                values = [*values, *outer]
                slots += entry.met(tr)
            start = tr.pos
            if start.mode is not tr.mode:
                settle(tr)
                start = tr.pos
            if entry is not None and start.known_calls is not None:
                known = start.known_calls.get((entry.token, tr.ext, *slots, *ours))
                if known is not None and not settings["verify"]:
                    made = known.take(tr, values)
                    if made is not None:
                        self._fresh = 0
                        if self._small:
                            self._rest_a_while()
                        out = made[0] if known.alone else unflatten(known.tree, made)
                        return out if given is None or not given.held else without_marks(out, given)
                    known = None
        finally:
            tr.busy = busy
        if tr.pos is not start:
            return self.__wrapped__(*args, **kwargs)  # a handler of signals has recorded meanwhile
        return _Recorded(self, tr, key, entry, values, slots, start, given, ours).call(args, kwargs, known)


class _Recorded:
    """A call of the function, from where its arguments were met."""

    def __init__(
        self, jitted: Jitted, tr: Trace, key: Any, entry: _Entry | None, values: Sequence[Any], slots: list[Slot],
        start: Step, given: Arguments | None, ours: Any,
    ) -> None:  # fmt: skip
        self.jitted, self.tr, self.key, self.entry = jitted, tr, key, entry
        self.values, self.slots, self.start, self.ext = values, slots, start, tr.ext
        self.given, self.ours = given, ours
        self.writes = [_holder(x)._writes for x in values]
        self.calls = Calls(frozenset() if entry is None else entry.guards.tensors)

    def call(self, args: Any, kwargs: Any, known: KnownCall | None) -> Any:
        """What the function returns; what it recorded is remembered when nothing new was met."""
        tr, jitted, f = self.tr, self.jitted, self.jitted.__wrapped__
        outer, number, mode = tr.impure, tr.number, tr.mode
        found: list[str] = []
        tr.impure = found
        jitted._called[id(tr)] = jitted._called.get(id(tr), 0) + 1
        try:
            if self.entry is not None:
                self.calls.begin()
            out = f(*args, **kwargs)
        finally:
            self.calls.end()
            tr.impure = outer
            jitted._called[id(tr)] -= 1
            if not jitted._called[id(tr)]:
                del jitted._called[id(tr)]
            if outer is not None:
                outer += found
        steps = steps_since(tr, self.start)
        if found:
            jitted._refuse(found[0])
            return out
        if tr.number != number:
            jitted._refuse("it computes what is pending, by a sync inside")
            return out
        if self.given is not None and not self.given.are(args, kwargs):
            jitted._refuse("it writes into a list, a dictionary or a set among its arguments")
            jitted._rest_a_while()
            return out
        if self.entry is not None and (why := self.calls.refusal(self.entry.guards, self.values)):
            jitted._refuse(why)
            if jitted._row >= TWICE:
                jitted._rest_a_while()
            return out
        marked = out if self.given is None or not self.given.held else with_marks(out, self.given)
        if self.entry is not None and (why := refusal_of_result(marked, self._was_there)):
            jitted._refuse(why)
            jitted._rest_a_while()
            return out
        if steps is None or self.start.parent is None or tr.mode is not mode:
            jitted._reason = "it begins a program without a tensor among its arguments, or changes a mode"
            return out
        results: list[Any] = []
        tree = flatten(marked, results)
        if within := inside(tr, self.start):
            jitted._reason = f"it has {within} inside"
            return out
        if kept := _kept(tr, self.start.index + 1, results):
            jitted._refuse(kept)
            return out
        if known is not None and known.last is not tr.pos:
            raise self._different("steps")
        made = self._known(steps, results, tree, (args, kwargs))
        if known is not None and isinstance(made, KnownCall) and (what := difference(known, made)):
            raise self._different(what)
        if isinstance(made, str):
            jitted._reason = made
        else:
            self._remember(made, known is None)
        return out

    def _different(self, what: str) -> NotSupportedError:
        return NotSupportedError(
            f"not supported: {self.jitted!r} recorded other {what} than before with the same arguments: it reads "
            "something whose changes are not seen; pass that as an argument"
        )

    def _remember(self, made: KnownCall, is_new: bool) -> None:
        jitted, entry = self.jitted, self.entry
        assert entry is not None
        jitted._reason = ""
        jitted._changes = 0
        jitted._row = 0
        jitted._remembered += is_new
        remember(self.start, (entry.token, self.ext, *self.slots, *self.ours), made)
        costs = TAKEN + COMPARED * entry.guards.size + MET * len(entry.outer) + RETURNED * len(made.results)
        steps, calls = len(made.steps), self.calls
        saved = STEP * steps + SAVED * max(calls.number - steps, 0)
        jitted._small = costs > max(saved, 1e6 * calls.took / SLOWED)
        if jitted._small:
            jitted._rest_a_while()
        else:
            jitted._rest = 0

    def _was_there(self, x: int) -> bool:
        """Whether an object, by its id, was there before the call."""
        given = self.given
        there = self.entry is not None and x in self.entry.guards.reached
        return there or (given is not None and x in map(id, given.objects))

    def _known(self, steps: list[Step], results: list[Any], tree: Any, call: Any) -> KnownCall | str:
        """The call, or why it is not remembered."""
        tr, jitted, entry = self.tr, self.jitted, self.entry
        outer = read_before(tr, self.start, steps, self.slots)
        if isinstance(outer, str):
            return outer
        if entry is None or outer or not entry.holds():
            return jitted._enter(self.key, call, outer)
        known = KnownCall(tr, self.start, steps, self.slots)
        for i, (x, slot, n) in enumerate(zip(self.values, self.slots, self.writes, strict=True)):
            h = _holder(x)
            if h._writes == n and (x._view is not None or h._slot is slot):
                continue
            if x._view is not None or h._slot is None or h._slot.step.index <= self.start.index:
                return "it writes through a view"
            if all(i < j or self.values[j] is not x for j, _, _ in known.writes):
                known.writes.append((i, h._slot, h._writes - n))
        return self._with_results(known, results, tree)

    def _with_results(self, known: KnownCall, results: list[Any], tree: Any) -> KnownCall | str:
        assert self.entry is not None
        tr, first = self.tr, self.start.index + 1
        shared: set[Any] = set()
        before: dict[int, int] = {}
        for k, h in enumerate(results):
            given = next((i for i, x in enumerate(self.values) if x is h), None)
            first_at = before.setdefault(id(h), k)
            if given is not None or first_at < k:
                known.results.append(-1 - first_at if given is None else given)
                continue
            slot, st = slot_of(tr, h), h._storage
            base = slot if st is None else st._slot
            if h._meta is not None or (st is not None and st._meta is not None) or type(h) is not hooks.tensor:
                return "a result is a leaf"
            if base is None or base.step.index < first or slot.step.index < first:
                return "a result was there before, or is a view of what was"
            if (slot if st is None else st) in shared:
                return "results share memory"
            shared.add(slot if st is None else st)
            known.results.append(slot)
        if known.last is not tr.pos:
            return "a result was derived anew"
        known.tree, known.alone = tree, is_at_leaf(tree)
        return known


class _Entry:
    """What the function reads beside its arguments, for some other arguments; calls are remembered under its token."""

    __slots__ = ("arguments", "formed", "groups", "guards", "outer", "token")

    def __init__(self, guards: Guards, outer: Sequence[Any]) -> None:
        self.guards = guards
        self.arguments: list[Any] = []  # references to objects among the other arguments
        self.outer = (*outer,)  # who holds the values that it reads by itself, in the order in which it did first
        self.token = object()
        self.groups: dict[tuple[Step, Any], InputGroup | None] = {}  # of `outer`, by where they were met
        self.formed = 0  # so many of them

    def holds(self) -> bool:
        """Whether all of it is what it was."""
        return self.guards.hold()

    def ours(self, values: Sequence[Any], given: Arguments | None) -> Sequence[Any]:
        """The ids of tensors and containers among the arguments that the function also reads by itself.

        What it does may depend on which they are (`x is w`).
        """
        tensors, found = self.guards.tensors, []
        if tensors and not tensors.isdisjoint(map(id, values)):
            found += [(i, id(x)) for i, x in enumerate(values) if id(x) in tensors]
        if given is not None and given.containers:
            found += [(n, x) for x, n in given.containers.items() if x in self.guards.reached]
        return found

    def met(self, tr: Trace) -> list[Slot]:
        """The slots of `outer` in this trace."""
        key = start, ext = tr.pos, tr.ext
        group = self.groups.get(key)
        if group is not None and group.bind(tr):
            return [*group.steps]
        slots = _met(tr, self.outer)
        if (key not in self.groups or (group is not None and group.steps != slots)) and self.formed < MOST_GROUPS:
            self.formed += 1
            self.groups[key] = group_of(start, ext, self.outer, slots)
        return slots


def _met(tr: Trace, values: Sequence[Any]) -> list[Slot]:
    """The slots of tensors in this trace, met by a call that its user's line makes."""
    found: list[Slot] = []
    for x in values:
        slot: Slot | None = x._slot
        if slot is None or slot.step.owner is not tr:
            slot = bind_input(tr, x, CALLERS) if slot is None and x._storage is None else slot_of(tr, x)
        found.append(slot)
    return found


def _lasting(x: Any, gone: Callable[[Any], Any]) -> Any:
    """A weak reference to an object, with a callback; the object where it has none."""
    try:
        return ref(x, gone)
    except TypeError:
        return x


def _kept(tr: Trace, first: int, results: Sequence[Any]) -> str:
    """What a call did to others than its results that cannot be done again; '' if nothing."""
    own = {id(h) for h in results} | {id(h._storage) for h in results}
    for i, h in tr.alive(first):
        slot = None if h is None else h._slot  # NOTE: a handler of signals may have written what was there
        if i < first or slot is None or slot.step.owner is not tr or slot.step.op is INPUT:
            continue
        # A view of what was there before is derived anew wherever it is read.
        st = None if type(h) is Storage else h._storage
        if st is not None and (st._slot is None or st._slot.step.index < first or st._slot.step.op is INPUT):
            continue
        if written_over(slot, first) is None:
            if id(h) not in own:
                return f"it keeps a value in something else than its results, recorded at {slot.step.site}"
        elif h._meta is not None or slot.requires_grad:
            return f"it writes into a tensor with gradients that it did not make, at {slot.step.site}"
    return ""


def _holder(x: Any) -> Any:
    return x if x._storage is None else x._storage
