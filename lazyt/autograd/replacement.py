"""Tensors that take over the value of another one, of any dtype and on any device, and stay the tensors that they are.

That is PyTorch's `x.data = y`, for several at once. Views and what was detached stay with the value that was there.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from lazyt.tracing.commit import Change, carry_out, prepared, undisturbed
from lazyt.tracing.inplace import Item, set_items
from lazyt.tracing.record import begin
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import Trace, holding

# How often tensors were replaced: an optimizer that has noted their devices notes them again.
replaced = [0]


def replace_values(
    pairs: Sequence[tuple[Any, Any]], changes: Iterable[Change] = (), items: Iterable[Item] = ()
) -> None:
    """Let x have the value of y, for each (x, y): all of them, with `changes` and `items`, or nothing.

    y is new, no view, requires no grad, and is not used afterwards. A leaf x stays that leaf: what it requires, its
    gradient and its hooks are as before.
    """
    for x, y in pairs:
        meta = x._gradient()
        if meta is not None and meta.requires_grad:
            y.requires_grad_()
    replaced[0] += 1
    with holding:
        _replace(begin(), pairs, changes, items)


@undisturbed
def _replace(
    tr: Trace, pairs: Sequence[tuple[Handle, Handle]], changes: Iterable[Change], items: Iterable[Item]
) -> None:  # fmt: skip
    stores: list[Change] = []
    places: list[Item] = []
    for x, y in pairs:
        old = x if x._storage is None or x._view is not None else x._storage
        meta = y._meta if old._meta is None else old._meta
        before, after = x._slot, y._slot
        stores += [(x, "_writes", x._version), (x, "_view", None), (x, "_storage", None), (x, "_meta", meta)]
        stores += [(x, "_buffer", y._buffer), (x, "_slot", after)]
        if before is not None and before.step.owner is tr and tr.results[before.step.index] is x:
            places.append((tr.results, before.step.index, None))
        if after is not None:
            # The trace knows the new value as x's.
            i = after.step.index
            places += [(tr.refs, i, weakref.ref(x)), (tr.results, i, None)]
            if meta is not None:
                places.append((tr.metas, i, weakref.ref(meta)))
    dying = [(x._buffer, x._storage, x._view) for x, _ in pairs]  # after all is done
    carry_out(chain(prepared([*stores, *changes]), set_items([*places, *items])))
    del dying
