"""Changes of state that nothing divides.

CPython looks at signals, and lets another thread run, at the start of a function, after a call into C and at a backward
jump; nowhere else. So what belongs together is prepared first and then stored by plain statements without a call
between them (`NOTE: no call from here on`). Where they are as many as there are tensors, one call of C stores them
all: `carry_out`; where the statements are known and only their number is not, a function of so many is written:
`writer`. A function that must do so as its first act, because it is called when something ends, is entered without a
look at signals: `uninterrupted`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from operator import attrgetter, eq, is_, setitem
from typing import Any, TypeVar

from lazyt.interrupts import uninterrupted

F = TypeVar("F", bound=Callable[..., Any])

# An object, the name of its attribute, the value.
Change = tuple[Any, str, Any]


def prepared(changes: Iterable[Change]) -> Iterable[Any]:
    """Assignments for `carry_out`, which makes all of them or none."""
    objects, names, values = [], [], []
    for o, name, value in changes:
        objects.append(o)
        names.append(name)
        values.append(value)
    return map(setattr, objects, names, values)


@uninterrupted
def carry_out(assignments: Iterable[Any]) -> None:
    """Make assignments: within one instruction, which asks all of them for a value that `setattr` never gives."""
    _ = 0 in assignments


_WRITER = """
def write(tr, s, targets, storages, before, writes):
    results, pos = tr.results, tr.pos
    {targets}= targets
    {storages}= storages
    {before}= before
    {writes}= writes
    {after}= s.slots
    {old}= s.targets
    {holders}
    if s.parent is not pos{differs}:
        return False
    {stores}
    return True
"""
_DIFFERS = " or t{n}._storage is not st{n} or h{n}._slot is not b{n} or h{n}._writes != w{n}"
_HOLDERS = "h{n} = t{n} if st{n} is None else st{n}"
_STORES = (
    "if results[o{n}.step.index] is h{n}:", "    results[o{n}.step.index] = None", "h{n}._buffer = None",
    "t{n}._slot = h{n}._slot = a{n}", "h{n}._writes = w{n} + 1",
)  # fmt: skip


# For more targets than this no function is written: it takes half a millisecond to compile for each.
SPELLED = 64


def writer(n: int) -> Callable[..., bool]:
    """A function that gives n targets of a step's their values after it, if all are as they were before.

    It takes the trace, the step, the targets, their storages, and the slots and counts of writes of what holds their
    values; False, and nothing done, where one of these is another by now. Nothing divides the looks from the writes.
    """
    return _spelled(n) if n <= SPELLED else _write_many


@functools.cache
def _spelled(n: int) -> Callable[..., bool]:
    def each(text: str, sep: str) -> str:
        return sep.join(text.format(n=k) for k in range(n))

    names = {"targets": "t", "storages": "st", "before": "b", "writes": "w", "after": "a", "old": "o"}
    parts = {k: each(v + "{n},", " ") for k, v in names.items()}
    parts["holders"] = each(_HOLDERS, "\n    ")
    parts["stores"] = each("\n    ".join(_STORES), "\n    ")
    space: dict[str, Any] = {"__name__": __name__}
    exec(_WRITER.format(**parts, differs=each(_DIFFERS, "")), space)
    write: Callable[..., bool] = uninterrupted(space["write"])
    return write


slot_held, storage_held, writes_held = attrgetter("_slot"), attrgetter("_storage"), attrgetter("_writes")


def _write_many(
    tr: Any, s: Any, targets: Sequence[Any], storages: Sequence[Any], before: Sequence[Any], writes: Sequence[int]
) -> bool:
    """`_spelled` by loops in C."""
    holders = [t if st is None else st for t, st in zip(targets, storages, strict=True)]
    results, pos = tr.results, tr.pos
    own = [i for i, h in zip([old.step.index for old in s.targets], holders, strict=True) if results[i] is h]
    unchanged = chain(
        map(is_, map(storage_held, targets), storages),
        map(is_, map(slot_held, holders), before),
        map(eq, map(writes_held, holders), writes),
    )
    assignments = chain(
        map(setattr, holders, repeat("_buffer"), repeat(None)),
        map(setattr, holders, repeat("_writes"), [n + 1 for n in writes]),
        map(setattr, holders, repeat("_slot"), s.slots),
        map(setattr, targets, repeat("_slot"), s.slots),
        map(setitem, repeat(results), own, repeat(None)),
    )
    # NOTE: no call from here on but of what is entered without a look at signals.
    if pos is not tr.pos or s.parent is not pos or False in unchanged:
        return False
    carry_out(assignments)
    return True


def undisturbed(f: F) -> F:
    """A function of a trace, its first argument: no sync of a signal handler ends the trace while it runs.

    For what records more than one step, or takes one for a value that it has looked up before.
    """

    @functools.wraps(f)
    def call(tr: Any, *args: Any) -> Any:
        busy = tr.busy
        tr.busy = True
        try:
            return f(tr, *args)
        finally:
            tr.busy = busy

    return call  # type: ignore[return-value]


def finish(act: Callable[[], None]) -> None:
    """What must be done before an interrupt goes on, whatever further one there is."""
    for _ in range(100):
        try:
            act()
            return
        except BaseException as e:  # noqa: BLE001 - the last one is raised
            error = e
    raise error
