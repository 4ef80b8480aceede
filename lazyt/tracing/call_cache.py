"""A public call as it was made here the last time: its step is taken without asking again what the call means.

What a function makes of its arguments depends on nothing but them and the place in the program. So a step remembers
the call that led to it: which function, on which values (compared as slots), with which other arguments (compared as
objects, if these are numbers, texts, dtypes or tuples of them; as numbers, if they are integers that were made anew).
When that comes again under the same extents, the step is taken, whatever there was to make regular, to check and to
infer; all else is for the function itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import update_wrapper
from sys import _getframe  # noqa: F401 - for the functions written out
from textwrap import indent
from time import perf_counter  # noqa: F401
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.config import general as settings
from lazyt.tracing.commit import slot_held  # noqa: F401
from lazyt.tracing.fast_paths import NEW_HANDLE, bound, fill, guarded
from lazyt.tracing.inputs import bind_input  # noqa: F401
from lazyt.tracing.program import Slot
from lazyt.tracing.public_names import keyword_error  # noqa: F401
from lazyt.tracing.record import MAX_BYTES, share, slot_of  # noqa: F401
from lazyt.tracing.steps import hooks
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import NO_CALL, Trace, local  # noqa: F401
from lazyt.tracing.tracebacks import filter_traceback, filters_itself  # noqa: F401

if TYPE_CHECKING:
    from lazyt.tracing.trace import Step

Function = Callable[..., Any]

# Functions of which a call is mostly one step, by how many of their arguments come first and are operands, or may be.
# Those with -1 take a sequence of them.
OPERANDS = {
    **dict.fromkeys(("arange", "eye", "full", "linspace", "ones", "zeros"), 0),
    **dict.fromkeys(
        (
            "all", "amax", "amin", "any", "argmax", "argmin", "argpartition", "argsort", "broadcast_to",
            "count_nonzero", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "diagonal", "expand_dims",
            "flatten", "flip", "log_softmax", "logsumexp", "matrix_transpose", "max", "mean", "min", "moveaxis",
            "pad", "partition", "permute", "permute_dims", "prod", "ravel", "repeat", "reshape", "roll", "softmax",
            "sort", "squeeze", "std", "sum", "swapaxes", "tile", "trace", "transpose", "tril", "triu", "unsqueeze",
            "var", "view",
        ), 1),
    **dict.fromkeys(("dot", "isclose", "matmul", "outer", "take_along_axis", "vdot", "vecdot"), 2),
    **dict.fromkeys(("clamp", "clip", "where"), 3),
    **dict.fromkeys(("concat", "concatenate", "stack"), -1),
}  # fmt: skip
# So many times a step takes another call for the one that it remembers.
CHANGES = 8

MISSING = object()
_PLAIN = (int, float, complex, bool, str, type(None), type(Ellipsis), type, np.dtype)
ref = weakref.ref


class Call:
    """A call that took a step. With `binds`, at a step before that: a call of `f` bound its operands here."""

    __slots__ = (
        "after", "before", "binds", "code", "f", "ids", "key", "lasti", "left", "names", "parent", "place", "scalars",
        "view", "x1", "x2", "x3",
    )  # fmt: skip

    def __init__(self, f: Any, left: int, binds: bool = False) -> None:
        self.f = f
        self.left = left  # how often it may be another one
        self.binds = binds
        # The extents before and behind the step. NOTE: no trace has these.
        self.before: Any = NO_CALL
        self.after: Any = NO_CALL
        # The first arguments, slots for tensors; all others, their ids, and the names of the last of them.
        self.x1: Any = MISSING
        self.x2: Any = MISSING
        self.x3: Any = MISSING
        self.key: Any = ()
        self.ids: list[int] = []
        self.names: tuple[str, ...] = ()
        # How the operand is seen in its storage, and the result, if that is a view.
        self.parent: Any = None
        self.view: Any = None
        # The scalars of the step and their place, and the user's line where that is part of the program.
        self.scalars: list[Any] = []
        self.place = slice(0, 0)
        self.code: Any = None
        self.lasti = -1


_ONCE, _NEVER = Call(None, 1), Call(None, 0)


def plain(x: Any) -> bool:
    """Whether an argument means the same whenever it is the same object."""
    return x is MISSING or isinstance(x, _PLAIN) or (type(x) is tuple and all(map(plain, x)))


def alike(known: tuple[Any, ...], found: tuple[Any, ...]) -> bool:
    """Whether arguments mean the same: the same objects, or equal integers (sizes worked out anew), in tuples too."""
    return len(known) == len(found) and all(
        a is b or (type(a) is type(b) and ((type(a) is int and a == b) or (type(a) is tuple and alike(a, b))))
        for a, b in zip(known, found)  # noqa: B905 - as many
    )


def noted(
    f: Function, tr: Trace, start: Step, ext: Any, slots: list[Any], others: tuple[Any, ...], h: Any,
    viewed: Any = None,
) -> Any:  # fmt: skip
    """The call of `f` that went from `start` to here and gave `h`, if it is one step on these values; else None.

    `viewed`: the operand that it may be a view of. NOTE: the first call is only counted: what comes once costs no more.
    """
    s = tr.pos
    known = s.call
    if known is NO_CALL:
        s.call = _ONCE
        return None
    s.call = _NEVER
    if not settings["calls"] or type(h) is not hooks.tensor or h._slot is not s or len(s.slots) != 1:
        return None
    if slots != [x for x in s.operands if isinstance(x, Slot)] or not all(map(plain, others)):
        return None
    # Between are inputs, and views that were derived anew: the operands.
    bound_at: list[Step] = []
    p: Any = s.parent
    while p is not start and p is not None:
        bound_at.append(p)
        p = p.parent
    if p is None:
        return None
    c = Call(f, known.left - 1 if known.f is f else CHANGES)
    c.before, c.after = bound_at[0].ext if bound_at else ext, tr.ext
    c.key = others
    c.parent = None if viewed is None else viewed._view
    c.view = h._view
    if c.view is not None and (viewed is None or c.view is not s.view or c.view.parent is not c.parent):
        return None
    c.place = slice(s.scalar_start, s.scalar_start + s.n_scalars)
    c.scalars = tr.scalars[c.place]
    if s.op.fallible or s.index == 0:
        assert s.site is not None, "an operation has a line"
        c.code, c.lasti = s.site.code, s.key[-1]
    s.call = c
    for p in bound_at:
        if p.call.left and not (p.call.binds and p.call.f is f):
            p.call = Call(f, p.call.left - 1 if p.call.f is not None else CHANGES, binds=True)
    return c


def given(tr: Trace, c: Call, s: Step, x: Any) -> Any:
    """Take the step that a call took: its result, which may be a view of x; None if the trace is elsewhere by now."""
    for h in hooks.made:  # noqa: B007 - as in `record`
        break
    h._buffer = h._meta = None
    h._writes = 0
    if c.view is not None:
        st = h._storage = x._storage or share(tr, x)
        h._view = c.view
        reference = ref(h)
        aliases = st.aliases
        aliases.append(reference)
        if len(aliases) > 64 and len(aliases) & (len(aliases) - 1) == 0:
            st.prune()
    else:
        h._storage = h._view = reference = None
    # NOTE: no call from here on.
    if s.parent is not tr.pos:
        h._slot = None
        return None
    if c.scalars:
        tr.scalars[c.place] = c.scalars
    if reference is None:
        tr.results[s.index] = h
        h._slot = s
    else:
        tr.refs[s.index] = reference
        tr.results[s.index] = None
        # What another thread has written meanwhile is seen anew, as in `record_view`.
        h._slot = s if x._slot is c.x1 else None
    tr.ext = c.after
    tr.pos = s
    return h


# --- the functions in short

_TEXT = """
def make(f, slow, note, Tensor, tensors, made, name):
    def call({parameters}*rest, **options):
        tr = local.trace
        s = tr.pos.next
        c = s.call
        if c.f is f{fits}:
            if c.binds:
                if not tr.watched and tr.nbytes < MAX_BYTES:
{binds}
                s = tr.pos.next
                c = s.call if s.call.f is f else NO_CALL
            if (
                c.before is tr.ext and c.after is s.ext{same}
                and ((c.ids == [*map(id, rest), *map(id, options.values())]
                      or alike(c.key, (*rest, *options.values()))) and c.names == (*options,)
                     if rest or options else not c.ids)
                and (c.code is None or ((here := _getframe(1)).f_lasti == c.lasti and here.f_code is c.code))
            ):
{first}
{take}
        start, ext = tr.pos, tr.ext
        operands = {operands}
        try:
            h = slow(*operands, *rest, **options)
        except TypeError as error:
            hint = keyword_error(error, slow.__name__, options)
            if hint is None:
                raise
            raise hint from None
        s = tr.pos
        if s.call.left and s is not start:
            note(f, tr, start, ext, operands, rest, options, h)
        return h
    return call
"""
_TAKE = fill(
    """\
h = tr.results[s.index]
if h is None:
    {new_handle}
if s.parent is tr.pos:
    if c.scalars:
        tr.scalars[c.place] = c.scalars
    tr.results[s.index] = h
    h._slot = s
    tr.ext = c.after
    tr.pos = s
    return h""",
    new_handle=NEW_HANDLE,
)
# NOTE: what was a view is a view or is recorded at length: taken as any result it would not share x1's storage.
_TAKE_VIEW = f"""\
if c.view is None:
{indent(_TAKE, "    ")}
elif (h := given(tr, c, s, x1)) is not None:
    return h"""
# Found in this trace, from the user's line: so many callers are lazyt's.
_BIND = f"""
                    if {{test}}{{x}}._slot is None:
                        {bound("{x}", 2)}"""
_BIND_ALL = f"""
                    for x in x1:
                        if x._slot is None:
                            {bound("x", 2)}"""
# What has no operand may be the first step of a trace.
_FIRST = """
                if not s.index:
                    tr.started = perf_counter()"""


def _text(n: int) -> str:
    """The function in short for one with so many operands (see `OPERANDS`)."""
    names = [f"x{i + 1}" for i in range(abs(n))]
    listed = "".join(f"{x}, " for x in names)
    parts = {
        "parameters": "".join(f"{x}=MISSING, " for x in names) + "/, " * bool(names),
        "operands": f"({listed}) if {names[-1]} is not MISSING else _given({listed})" if names else "()",
        "fits": "", "same": "", "binds": "                    pass", "first": "",
        "take": indent(_TAKE_VIEW if n == 1 else _TAKE, " " * 16),
    }  # fmt: skip
    if n == 0:
        parts.update(fits=" and not tr.watched", first=_FIRST)
    elif n == 1:
        parts.update(fits=" and type(x1) is Tensor", binds=_BIND.format(test="", x="x1"))
        parts["same"] = " and c.x1 is x1._slot and c.parent is x1._view"
    elif n > 1:
        # NOTE: kinds before identities: a tensor that no trace has met has None for a slot, which is an argument too.
        same = " and (c.{x} is {x}._slot is not None if type({x}) is Tensor else c.{x} is {x})"
        parts["same"] = "".join(same.format(x=x) for x in names)
        parts["binds"] = "".join(_BIND.format(test=f"type({x}) is Tensor and ", x=x) for x in names)
    else:
        parts.update(fits=" and type(x1) in (list, tuple) and {*map(type, x1)} == tensors", binds=_BIND_ALL)
        parts["same"] = " and (*map(slot_held, x1),) == s.operands"
    return guarded(_TEXT.format(**parts), "filter_traceback(error, True, name)")


def _maker(n: int) -> Function:
    space: dict[str, Any] = {}
    # NOTE: over the names of this module, so that who looks for the user's line knows the function as lazyt's.
    exec(compile(_text(n), "<lazyt call>", "exec"), globals(), space)
    make: Function = space["make"]
    return make


_makers = {n: _maker(n) for n in {*OPERANDS.values()}}


def _given(*operands: Any) -> tuple[Any, ...]:
    return tuple(x for x in operands if x is not MISSING)


def _note(
    f: Function, tr: Trace, start: Step, ext: Any, operands: Any, rest: tuple[Any, ...], options: dict[str, Any], h: Any
) -> None:  # fmt: skip
    slots = [x._slot if isinstance(x, Handle) else x for x in operands]
    tensors = [x for x in slots if isinstance(x, Slot)]
    if operands and not tensors:
        return
    others = (*(x for x in slots if not isinstance(x, Slot)), *rest, *options.values())
    viewed = operands[0] if len(operands) == 1 and tensors else None
    c = noted(f, tr, start, ext, tensors, others, h, viewed)
    if c is not None:
        for name, x in zip(("x1", "x2", "x3"), slots, strict=False):
            setattr(c, name, x)
        # NOTE: as long as the key is kept, so are the ids of what is in it.
        c.key = (*rest, *options.values())
        c.ids, c.names = [*map(id, c.key)], tuple(options)


def _note_many(
    f: Function, tr: Trace, start: Step, ext: Any, operands: Any, rest: tuple[Any, ...], options: dict[str, Any], h: Any
) -> None:  # fmt: skip
    xs = operands[0] if operands and type(operands[0]) in (list, tuple) else ()
    others = (*rest, *options.values())
    c = noted(f, tr, start, ext, [x._slot for x in xs if isinstance(x, Handle)], others, h)
    if c is not None:
        c.ids, c.names = [*map(id, others)], tuple(options)


def in_short(name: str, f: Function, slow: Function) -> Function:
    """`slow`, which calls f if it is not asked for more than f can, with what f was called with here the last time."""
    n = OPERANDS.get(name)
    if n is None:
        return slow
    tensor = hooks.tensor
    note = _note if n >= 0 else _note_many
    call: Function = update_wrapper(_makers[n](f, slow, note, tensor, {tensor}, hooks.made, name), slow)
    return filters_itself(call)
