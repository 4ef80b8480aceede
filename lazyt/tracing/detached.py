"""Tensors that `detach` made: they share memory with what they were made of, and nothing of its graph.

A write of a value that gradients flow into gives such a tensor a graph, as in PyTorch. A storage has one graph, so from
that write on the tensor and its views have a storage to themselves. What they were detached from gets this value too,
without a gradient, and sees no later one. Whoever gives a tensor another value in place of a write (PyTorch's `x.data =
y`) has them apart too: what was detached before, and views, keep the old one.
"""

from __future__ import annotations

import weakref
from copy import copy
from itertools import chain, repeat
from operator import setitem
from typing import TYPE_CHECKING

from lazyt.tracing.assignments import assign_step, put_back
from lazyt.tracing.commit import carry_out, undisturbed
from lazyt.tracing.record import advance, own_slot
from lazyt.tracing.steps import Moved
from lazyt.tracing.tensor_state import Storage, detachment

if TYPE_CHECKING:
    from lazyt.tracing.program import Slot
    from lazyt.tracing.tensor_state import Handle, View
    from lazyt.tracing.trace import Trace


def _own_value(tr: Trace, x: Handle, value: Slot) -> Slot:
    """What the detached tensor that x views is, with a graph, after `value` is written to x."""
    st, cut = x._storage, detachment(x)
    assert st is not None
    assert cut is not None
    passed: list[View] = []
    view: View | None = cut
    while view is not None:
        passed.append(view)
        view = view.parent
    slot = own_slot(tr, st)
    for v in reversed(passed):
        slot = advance(tr, v.op, [slot], v.statics, v.ints, v.offsets, ())
    return put_back(tr, _below(x._view, cut, {}), slot, value)


def set_apart(tr: Trace, x: Handle, value: Slot) -> None:
    """Write `value` to x; the detached tensor that it is, or views, and all views of that get a storage of their own.

    `Moved`, and nothing is done, if another write came between.
    """
    st, cut = x._storage, detachment(x)
    assert st is not None
    writes = st._writes
    new = _own_value(tr, x, value)
    known: dict[View, View] = {}
    found = [(r, h) for r, h in st.alive() if _leads_through(h, cut)]
    handles = [h for _, h in found]
    views = [_below(h._view, cut, known) for h in handles]
    own = Storage()
    own.aliases, own._writes = [r for r, _ in found], writes + 1
    s = assign_step(tr, new, None, "")
    own._slot = s
    changes = chain(
        map(setitem, (tr.refs,), (s.index,), (weakref.ref(own),)),
        map(setattr, handles, repeat("_slot"), repeat(None)),
        map(setattr, handles, repeat("_storage"), repeat(own)),
        map(setattr, handles, repeat("_view"), views),
    )
    # NOTE: one call that no signal gets into: they are all apart, or none is.
    if tr.pos is not s or st._writes != writes:
        raise Moved
    carry_out(changes)


@undisturbed
def leave(tr: Trace, x: Handle) -> None:
    """Have the views of a base, and what was detached from it, keep its value: they get a storage of their own."""
    while x._view is None and (st := x._storage) is not None:
        writes = st._writes
        found = [(r, h) for r, h in st.alive() if h is not x]
        if not found:
            return
        handles = [h for _, h in found]
        own = Storage()
        own.aliases, own._writes = [r for r, _ in found], writes
        s = assign_step(tr, own_slot(tr, st), None, "")
        own._slot = s
        changes = chain(
            map(setitem, (tr.refs,), (s.index,), (weakref.ref(own),)),
            map(setattr, handles, repeat("_slot"), repeat(None)),
            map(setattr, handles, repeat("_storage"), repeat(own)),
        )
        # NOTE: one call that no signal gets into, as above.
        if tr.pos is s and st._writes == writes:
            carry_out(changes)


def _leads_through(h: Handle, cut: View | None) -> bool:
    view = h._view
    while view is not None and view is not cut:
        view = view.parent
    return view is cut


def _below(view: View | None, cut: View | None, known: dict[View, View]) -> View | None:
    """A view without what lies between the base and a `detach`."""
    if view is cut or view is None:
        return None
    found = known.get(view)
    if found is None:
        assert cut is not None
        found = known[view] = copy(view)
        found.parent = _below(view.parent, cut, known)
        found.key = found.moves = None
        # NOTE: below one made under no_grad nothing says which mode a view was made in.
        found.made_under_grad = view.made_under_grad or not cut.made_under_grad
        found.writable = view.op.write is not None and (found.parent is None or found.parent.writable)
    return found
