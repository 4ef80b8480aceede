"""Values that are met together again: what a function under `jit` reads by itself, the parameters of a model.

One by one each is a call of `bind_input` (a microsecond). Met at the same place of a program, on the same extents, with
the forms that they had, they are bound by one function, which is written for their number and kinds: what it looks at
and what it stores is what `bind_input` does for each that was predicted.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any
from weakref import ref

from lazyt.tracing.program import INPUT
from lazyt.tracing.tensor_state import Inference, Storage
from lazyt.tracing.trace import NO_FORM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType

    from lazyt.tracing.program import Slot
    from lazyt.tracing.trace import Ext, Step, Trace

# For more values than this no function is written: to compile one takes a tenth of a millisecond a value.
SPELLED = 128

_TEXT = """
def bind(tr):
    number, inputs = tr.number, tr.inputs
    {data}
    {apart}
    results, refs, metas = tr.results, tr.refs, tr.metas
    # NOTE: no call from here on: an interrupt comes before all of this or after it, and so does another thread.
    if tr.pos is not start or tr.ext is not ext or tr.inputs is not inputs or tr.number != number:
        return False
    if {differs}:
        return False
    {stores}
    inputs += ({values},)
    tr.nbytes += {nbytes}
    tr.ext, tr.pos = after, s{last}
    return True
"""
_DATA = "d{n} = h{n}._buffer"
# NOTE: one value of two holders is one input. Of different forms they are two.
_APART = "if len({{{alike}}}) != {n}:\n        return False"
_STILL = "h{n}._buffer is not d{n} or "
_DIFFERS = (
    "d{n} is None or h{n}._slot is not None or h{n}._meta is not m{n}"
    " or h{n}._storage is not None or d{n}.form is not f{n} or s{n}.{form} is not f{n} or s{n}.before is not b{n}"
    " or d{n}.bound_in == number"
)
_FORM = "form", "leaf_form"
_LEAF = " or not m{n}.is_leaf or not m{n}.requires_grad"
# How a value is held: by a handle alone, by a storage, or by a leaf that gradients are asked for.
_STORES = {
    "handle": ("results[{at}] = h{n}",),
    "storage": ("refs[{at}] = w{n}", "results[{at}] = None"),
    "leaf": ("metas[{at}] = r{n}", "refs[{at}] = w{n}", "results[{at}] = None"),
}
_BOUND = ("d{n}.bound_in = number", "h{n}._slot = s{n}")


@functools.cache
def _code(first: int, held: tuple[str, ...], counted: tuple[bool, ...], alike: tuple[bool, ...]) -> CodeType:
    """The function for values that are held so; which count for the bound on traces, have a form that others have."""
    kinds = [*enumerate(held)]
    differs = [
        (_STILL * alike[n] + _DIFFERS + _LEAF * (kind == "leaf")).format(n=n, form=_FORM[kind == "leaf"])
        for n, kind in kinds
    ]
    stores = [x.format(n=n, at=first + n) for n, kind in kinds for x in (*_STORES[kind], *_BOUND)]
    text = _TEXT.format(
        last=len(held) - 1,
        apart=_apart(alike),
        data="\n    ".join(_DATA.format(n=n) for n, _ in kinds),
        values=", ".join(f"d{n}" for n, _ in kinds),
        differs=" or ".join(differs),
        stores="\n    ".join(stores),
        nbytes=" + ".join(f"d{n}.nbytes" for n, _ in kinds if counted[n]) or "0",
    )  # fmt: skip
    return compile(text, "<lazyt inputs>", "exec")


def _apart(alike: tuple[bool, ...]) -> str:
    """The lines that ask whether values are different ones; a call, so whether they are still there is asked behind."""
    some = [n for n, x in enumerate(alike) if x]
    return _APART.format(alike=", ".join(f"d{n}" for n in some), n=len(some)) if some else ""


class InputGroup:
    """Holders whose values were met one after another, and what is known of the steps."""

    __slots__ = ("leaves", "start", "steps", "write")

    def __init__(self, start: Step, ext: Ext, holders: Sequence[Any], steps: Sequence[Any]) -> None:
        self.start, self.steps = start, steps
        space: dict[str, Any] = {"start": start, "ext": ext, "after": steps[-1].ext}
        for n, (h, s) in enumerate(zip(holders, steps, strict=True)):
            m = h._meta
            own = {"h": h, "s": s, "b": s.before, "m": m, "f": s.form if m is None else s.leaf_form, "w": ref(h)}
            # NOTE: references are kept, because one that is there costs less than a new one.
            own["r"] = None if m is None else ref(m)
            space.update((f"{name}{n}", x) for name, x in own.items())
        self.leaves = [h for h in holders if h._meta is not None]
        held = tuple([_held(h) for h in holders])
        counted = tuple([s.counted or kind == "leaf" for s, kind in zip(steps, held, strict=True)])
        forms = [space[f"f{n}"] for n in range(len(held))]
        alike = tuple([forms.count(f) > 1 for f in forms])
        exec(_code(steps[0].index, held, counted, alike), space)
        self.write: Callable[[Trace], bool] = space["bind"]

    def bind(self, tr: Trace) -> bool:
        """Meet all of them, at the trace's end; False, and nothing done, where anything is not as it was."""
        # NOTE: of others the form of the value tells that it is an inference tensor.
        if Inference.used and any(map(Inference.known, self.leaves)):
            return False
        return self.start.mode is tr.mode and self.write(tr)


def _held(h: Any) -> str:
    return "leaf" if h._meta is not None else "storage" if type(h) is Storage else "handle"


def group_of(start: Step, ext: Ext, holders: Sequence[Any], slots: Sequence[Slot]) -> InputGroup | None:
    """The group of these holders, which have just been met behind `start`; None where one is no plain input of its own.

    NOTE: whoever keeps it holds them too: a record of gradients must die with its tensor.
    """
    if not 1 < len(holders) <= SPELLED or start.parent is None or any(map(Inference.known, holders)):
        return None
    s: Any = start
    for h, slot in zip(holders, slots, strict=True):
        meta, parent = h._meta, s
        s = slot.step
        form = s.form if meta is None else s.leaf_form
        plain = meta is None or (meta.is_leaf and meta.requires_grad)
        if s.op is not INPUT or s.parent is not parent or slot is not s or not plain or form is NO_FORM:
            return None
        if h._storage is not None or h._slot is not s or h._buffer is None or h._buffer.form is not form:
            return None
    return InputGroup(start, ext, holders, [slot.step for slot in slots])
