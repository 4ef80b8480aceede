"""What a trace is made of beside operations, how its next step is found, and what recording asks of packages above."""

from __future__ import annotations

import weakref
from itertools import repeat, starmap
from typing import TYPE_CHECKING, Any

from lazyt.interrupts import uninterrupted
from lazyt.tracing.call_site import user_site
from lazyt.tracing.program import MODE, Key, Slot
from lazyt.tracing.tensor_state import Inference, Storage
from lazyt.tracing.trace import NONE, Several, Step, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np

    from lazyt.tracing.mode import Mode
    from lazyt.tracing.tensor_state import Data, Handle, Holder


class Moved(Exception):
    """A signal's handler, or a finalizer, changed what an operation was changing: the operation begins again."""


class Hooks:
    """What recording asks of the packages above it: tensor.py and sync.py fill it in."""

    tensor: type[Handle]
    # New tensors without any state: `next` of it costs less than `object.__new__`.
    made: Iterator[Handle]
    tensor_of_slot: Callable[[Slot], Handle]
    as_tensor: Callable[[Any, Any, Sequence[Any]], Handle]  # of host data, on a device, beside other operands
    over_data: Callable[[Data], Handle]
    over_array: Callable[[np.ndarray[Any, Any]], Handle]
    sync: Callable[[Trace, str, Any], None]
    iteration_left: Callable[[Trace], int | None]
    may_end: Callable[[Trace], bool]
    sync_for: Callable[[Trace, Handle], None]
    compute_foreign: Callable[[Holder], Data]
    view_again: Callable[
        [Trace, Handle, Slot, int], Slot
    ]  # what a derived view is, of a tensor with a record of its own
    give_up: Callable[[Holder], None]
    publish: Callable[[Trace], None]
    # What looks at each step that is new, in modes that report what operations make.
    made_step: Callable[[Step], None] | None = None

    def use(self, tensor: type[Handle]) -> None:
        """The class that handles are of."""
        self.tensor = tensor
        self.made = starmap(object.__new__, repeat((tensor,)))


hooks = Hooks()


def new_tensor(slot: Slot) -> Handle:
    """A handle on a value of this trace."""
    return hooks.tensor_of_slot(slot)


def tensor_over(data: Data) -> Any:
    """A handle on a computed value."""
    h = object.__new__(hooks.tensor)
    h._slot = h._storage = h._view = h._meta = None
    h._buffer = data
    h._writes = 0
    return h


def new_storage(x: Handle) -> Storage | None:
    """The value of x moves to a storage; None, and nothing done, if x was changed meanwhile."""
    st = object.__new__(Storage)
    st.aliases = [weakref.ref(x)]
    if Inference.known(x):
        Inference.mark(st)
    slot, writes = x._slot, x._writes
    if slot is None:
        # NOTE: no call from here on: an interrupt, or another thread, comes before all of this or after it.
        if x._slot is not None or x._storage is not None:
            return None
        st._slot, st._buffer, st._meta, st._writes, st.shared = None, x._buffer, x._meta, x._writes, 0
        x._storage = st
        x._buffer = None
        return st
    i, owner = slot.step.index, slot.step.owner
    results = owner.results
    held = owner.refs.get(i)
    if type(held) is Several:
        held = Several(weakref.ref(st) if k == slot.k else r for k, r in enumerate(held))
    else:
        held = weakref.ref(st)
    # NOTE: no call from here on, as above.
    if x._slot is not slot or x._writes != writes or x._storage is not None:
        return None
    st._slot, st._buffer, st._meta, st._writes, st.shared = slot, x._buffer, x._meta, writes, 0
    owner.refs[i] = held
    x._storage = st
    x._buffer = None
    results[i] = None
    return st


def run_sync(tr: Trace, cause: str, site: Any = None) -> None:
    """Compute what is pending in this trace."""
    hooks.sync(tr, cause, site)


def other_root(tr: Trace, mode: Mode) -> Step:
    """Where a trace begins in another mode than the last one ended.

    NOTE: what is recorded first there is no way on from the root that the last sync left: it may be what was first
    there the last time.
    """
    root, tr.ended = tr.root(mode), None
    root.next = root.first
    return root


def mode_step(tr: Trace, mode: Mode) -> Step:
    """The step that changes the mode in the middle of a trace; it is not taken yet."""
    key: Key = (MODE, mode)
    s = child(tr.pos, key)
    if s is None:
        pos = tr.pos
        s = Step(pos, MODE, (), (mode,), key)
        # NOTE: the device of the step before: a change of mode has no value, so it mixes no devices.
        s.mode, s.device, s.info = mode, pos.device, pos.mode.difference(mode)
        s.site = user_site()
        insert(tr, s, key)
    return s


def settle(tr: Trace) -> None:
    """Take the trace to where the mode is: what restored that had to do it before any call."""
    while True:
        pos, mode = tr.pos, tr.mode
        if pos.mode is mode:
            return
        s = other_root(tr, mode) if pos.parent is None else mode_step(tr, mode)
        # NOTE: no call from here on.
        if pos is tr.pos and tr.mode is mode:
            enter_mode(tr, s)
            return


@uninterrupted
def enter_mode(tr: Trace, s: Step) -> None:
    """Go on in another mode."""
    # NOTE: no call in here. What dies in `results` comes last: somebody may be told, and record.
    if s.parent is None:
        tr.pos = s
    else:
        s.ext, tr.pos = tr.ext, s
        tr.results[s.index] = None


def follow(tr: Trace, key: Key) -> Step | None:
    """The known child for this key; in a fresh trace the caller's line is part of the key."""
    pos = tr.pos
    if pos.mode is not tr.mode:
        settle(tr)
    return child(tr.pos, key)


def child(pos: Step, key: Key) -> Step | None:
    """The known step for this key behind another step."""
    nxt = pos.next
    if nxt is not NONE and nxt.key == key:
        return nxt
    s = pos.children.get(key)
    if s is not None and pos.parent is not None and not pos.cut:
        pos.next = s
    return s


def new_step(
    pos: Step, op: Any, operands: tuple[Any, ...], statics: tuple[Any, ...], key: Key, values: int
) -> Step:  # fmt: skip
    """Makes a step behind another one, on the user's line, with `values` slots; `insert` makes it known."""
    s = Step(pos, op, operands, statics, key)
    s.site = user_site()
    s.give(values)
    return s


def insert(tr: Trace, step: Step, key: Key) -> None:
    """Make a finished step known. NOTE: an interrupt may come after any call, so what others see comes last.

    It follows its parent: the trace may have been taken elsewhere since it was made.
    """
    pos = step.parent
    assert pos is not None, "a step follows another one"
    step.mixed = pos.mixed or (pos.parent is not None and step.device != pos.device)
    if step.index >= len(tr.results) - 2:
        tr.results.extend([None] * len(tr.results))
    while step.scalar_start + step.n_scalars >= len(tr.scalars) - 2:
        tr.scalars.extend([0] * len(tr.scalars))
    tr.n_steps += 1
    tr.n_new += 1
    pos.children[key] = step
    if pos.parent is not None and not pos.cut:
        pos.next = step
