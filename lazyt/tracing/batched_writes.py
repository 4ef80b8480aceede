"""Writes of several tensors that become visible together: all of them, or none.

Each write is an `assign` step of its own. The steps are found one behind the other without being taken, and then the
trace, the tensors and whatever else changes with them (`items`) are updated by one call of `carry_out`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from operator import attrgetter, eq, is_, setitem
from typing import Any

from lazyt.ops.definition import OpDef
from lazyt.tracing.assignments import KEEPS_LEAF, PUT, find_assign, kept_of, put_back
from lazyt.tracing.commit import Change, carry_out, slot_held, storage_held, writes_held
from lazyt.tracing.current import restore_grad_mode, set_grad_mode
from lazyt.tracing.inplace import Item, check_legal, computed, give_up, set_items, take_over, update_whole, whole
from lazyt.tracing.program import INPUT, Slot
from lazyt.tracing.record import advance, operand_slots, own_slot
from lazyt.tracing.steps import Moved, settle
from lazyt.tracing.tensor_state import Handle, Holder, Storage, is_detached
from lazyt.tracing.trace import Step, Trace, holding, local, several

# An operation, the tensor that it is computed of and written to, its further operand.
Write = tuple[OpDef, Handle, Any]


class _Store:
    """What a holder gets in place of its value after `writes` writes."""

    __slots__ = ("holder", "keeps", "new", "old", "step", "writes")

    step: Step

    def __init__(self, holder: Holder, old: Slot, writes: int) -> None:
        self.holder, self.old, self.new, self.writes, self.keeps = holder, old, old, writes, ""


def _versions(targets: Iterable[Handle]) -> dict[int, int]:
    """How often each holder was written: looked at before its value is read, so that no write between is lost."""
    holders: list[Holder] = [x if x._storage is None else x._storage for x in targets]
    return {id(h): h._writes for h in holders}


def _put(
    tr: Trace, values: Sequence[tuple[Handle, Slot]], versions: dict[int, int], items: Sequence[Item],
    changes: Sequence[Change],
) -> None:  # fmt: skip
    """Make each value the new value of its tensor; `Moved`, and nothing done, if another write came between."""
    stores: dict[int, _Store] = {}
    seen: list[tuple[Handle, _Store, Slot]] = []
    for x, value in values:
        st = x._storage
        holder: Holder = x if st is None else st
        if id(holder) not in versions:
            raise Moved  # it has got a storage meanwhile
        before = set_grad_mode(tr.mode.grad and not is_detached(x))
        try:
            store = stores.get(id(holder))
            if store is None:
                store = stores[id(holder)] = _Store(holder, own_slot(tr, holder), versions[id(holder)])
            new = put_back(tr, x._view, store.new, value)
            store.new, store.keeps = kept_of(tr, holder, new, store.old)
        finally:
            restore_grad_mode(before)
        if st is not None:
            seen = [found for found in seen if found[1] is not store]
            seen.append((x, store, value))
    settle(tr)
    pos = s = tr.pos
    for store in stores.values():
        s = store.step = find_assign(tr, store.new, store.old, store.keeps, s)
    shown = []
    for x, store, value in seen:
        # As a write through one view: its gradient goes through what it views.
        flows = store.step.requires_grad or value.requires_grad
        same = store.step if x._view is None else None if flows else value
        shown.append((x, "_slot", same))
    _commit(tr, pos, [*stores.values()], items, [*shown, *changes])


def _commit(
    tr: Trace, pos: Step, stores: Sequence[_Store], items: Sequence[Item], changes: Sequence[Change]
) -> None:  # fmt: skip
    """Take the steps of all stores and let their holders have the values."""
    holders, steps = [x.holder for x in stores], [x.step for x in stores]
    references = [*map(weakref.ref, holders)]
    for h, r in zip(holders, references, strict=True) if several else ():
        pending = h._slot
        if pending is not None and pending.step.owner is not tr and pending.step.op is not INPUT:
            take_over(h, pending, r)
    # As after a write of one: what has a graph is no copy of a synced value any more.
    graphs = [x for x in stores if x.step.requires_grad and x.keeps != KEEPS_LEAF and x.holder._meta is not None]
    records: list[Any] = [x.holder._meta for x in graphs]
    after = [m.successor() for m in records]
    retained = [(m, x.step) for m, x in zip(after, graphs, strict=True) if m is not None]
    views = [y for h in holders if type(h) is Storage for _, y in h.alive()]
    results, indices = tr.results, [s.index for s in steps]
    places = [*indices, *(x.old.step.index for x in stores if results[x.old.step.index] is x.holder)]
    dying = [results[i] for i in places], [h._buffer for h in holders]  # after all is done
    unchanged = chain(
        map(is_, map(slot_held, holders), [*map(slot_held, holders)]),
        map(eq, map(writes_held, holders), [x.writes for x in stores]),
        map(is_, map(storage_held, [h for h in holders if type(h) is not Storage]), repeat(None)),
    )
    assignments = chain(
        map(setattr, steps, repeat("shape"), [x.new.shape for x in stores]),
        map(setattr, steps, repeat("ext"), repeat(tr.ext)),
        map(setitem, repeat(results), places, repeat(None)),
        map(setitem, repeat(tr.refs), indices, references),
        map(setattr, views, repeat("_slot"), repeat(None)),
        map(setattr, holders, repeat("_buffer"), repeat(None)),
        map(setattr, holders, repeat("_writes"), [x.writes + 1 for x in stores]),
        map(setattr, holders, repeat("_slot"), steps),
        map(setattr, [x.holder for x in graphs], repeat("_meta"), after),
        map(setattr, records, repeat("retains"), repeat(False)),
        map(setitem, repeat(tr.retained), *zip(*retained, strict=True)) if retained else (),
        map(setattr, repeat(tr, len(retained)), repeat("more"), repeat(True)),
        map(setattr, *zip(*changes, strict=True)) if changes else (),
        set_items(items),
        map(setattr, (tr,), ("pos",), (steps[-1],)),
    )
    # NOTE: no call from here on but of what is entered without a look at signals.
    if pos is not tr.pos or False in unchanged:
        raise Moved
    carry_out(assignments)
    del dying


def _at_once(attempt: Callable[..., None], a: Any, b: Any, c: Any = (), d: Any = (), e: Any = ()) -> None:
    if several:
        with holding:  # a sync of another thread's comes before all of it or after
            whole(attempt, a, b, c, d, e)
    else:
        whole(attempt, a, b, c, d, e)


def record_writes(writes: Sequence[Write], changes: Sequence[Change] = ()) -> None:
    """x = op(x, value), written into x, for each (op, x, value): all of them and `changes`, or nothing."""
    first: dict[int, Write] = {}
    # NOTE: what is written twice has the first write's value before the second: that is a write of its own.
    later = [w for w in writes if first.setdefault(id(w[1]._storage or w[1]), w) is not w]
    if first:
        _at_once(_record_writes, [*first.values()], () if later else changes)
    if later:
        record_writes(later, changes)


def _record_writes(tr: Trace, writes: Sequence[Write], changes: Sequence[Change], *_: Any) -> None:
    for op, x, _ in writes:
        if op is PUT:
            give_up(tr, x)
    versions = _versions(x for _, x, _ in writes)
    _put(tr, [(x, computed(tr, op, x, (value,), ())) for op, x, value in writes], versions, (), changes)


_view_held = attrgetter("_view")


def record_update(
    op: OpDef, operands: Sequence[Any], statics: tuple[Any, ...], targets: Sequence[Handle],
    items: Sequence[Item] = (),
) -> None:  # fmt: skip
    """Record op and write its outputs into `targets`: one step for an optimizer, however many tensors.

    All targets have their new values, and `items` are set, or nothing has changed.
    """
    attempt = update_whole
    if local.trace.mode.grad or [*map(_view_held, targets)].count(None) < len(targets):
        attempt = _update
    _at_once(attempt, op, operands, statics, targets, items)


def _update(
    tr: Trace, op: OpDef, operands: Sequence[Any], statics: tuple[Any, ...], targets: Sequence[Handle],
    items: Sequence[Item],
) -> None:  # fmt: skip
    """`update_whole` where a target is a view, or gradients are recorded: each target is written on its own."""
    versions = _versions(targets)
    slots, scalars = operand_slots(tr, operands)
    for t in targets:
        if tr.mode.grad or t._view is not None:
            check_legal(tr, op.name, t, False)
    s = advance(tr, op, slots, statics, None, None, scalars)
    _put(tr, [*zip(targets, s.slots, strict=True)], versions, items, ())
