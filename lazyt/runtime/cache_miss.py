"""Reasons for a missing plan, as text: the first difference to the closest known program, the guard that fails, or the
values that are wanted now and were not. Found only when a plan is missing.

A program is *known* when it leads to a plan: planning marks the steps on its way. The closest known program is the one
with the longest common beginning, whichever lines recorded it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.ir.symbolic import Dim, text
from lazyt.tracing.printer import site_text
from lazyt.tracing.program import INPUT, Program
from lazyt.tracing.step_printer import call_text, value_name
from lazyt.tracing.trace import Step

if TYPE_CHECKING:
    from lazyt.ir import extent_source
else:
    extent_source = on_demand.module("lazyt.ir.extent_source")

Guard = tuple[str, int | Dim, int | Dim]
Why = Callable[[], str]
Wanted = tuple[tuple[int, int], ...]

# Most programs with the same beginning that are followed, and most steps behind one step that are looked at.
FOLLOWED = 64
LOOKED_AT = 1024
SEEN_AGAIN = "seen again: fused kernels take over"
OTHERS = "other values are wanted"
LATER = f"{OTHERS}: what a later backward reads"
OVER_BUDGET = "at these sizes the known plan needs more than the memory budget"
NEW = "a new program"


def mark_known(program: Program) -> None:
    """Marks the steps that lead to a planned program."""
    end = program.end
    if not isinstance(end, Step):
        return  # a part is on no path of the trie
    for s in reversed(program.calls):
        if s.known:
            break
        s.known = True
    program.calls[0].parent.known = True


def new_program(program: Program) -> Why:
    """The reason for a new program: the difference is found now, its text is written on demand."""
    difference = first_difference(program)

    def text() -> str:
        found = difference()
        return f"{NEW}: {found}" if found else NEW

    return text


def first_difference(program: Program) -> Why:
    """Text of the first step that differs from all known programs with the same beginning; '' if none has."""
    path, end = program.calls, program.end
    if not isinstance(end, Step):
        return str
    at: list[Step] = [path[0].parent]
    for s in path:
        known, number = [c for k in at for c in _known(k)], s.number
        same = [c for c in known if c.number == number]
        if not same:
            return _difference(s, known, any(k.ends for k in at))
        at = same[-FOLLOWED:]
    further = [c for k in at for c in _known(k)]
    if not further:
        return str
    return lambda: f"it ends after step {end.index}, where the closest known program goes on with {_named(further[-1])}"


def _known(s: Step) -> list[Step]:
    """The known steps behind another one, latest last."""
    latest = list(islice(reversed(s.children.values()), LOOKED_AT))
    return [c for c in reversed(latest) if c.known]


def _difference(s: Step, known: Sequence[Step], ended: bool) -> Why:
    """Text of the difference where this program goes on with `s` and the known ones do not."""
    same_line = [c for c in known if c.site is not None and c.site == s.site]
    if s.index == 0 and not same_line:
        return str
    near = same_line or [c for c in known if c.op is s.op]
    if near or (known and not ended):
        other = (near or known)[-1]
        return lambda: f"step {s.index} is {_named(s)}, where the closest known program has {_named(other)}"
    return lambda: f"it goes on with {_named(s)}, where the closest known program ends"


def _named(s: Step) -> str:
    return f"`{call_text(s)}`" + (f" at {site_text(s.site)}" if s.site is not None else "")


def guards_fail(guards: Sequence[Guard], extents: Sequence[int], program: Program) -> str:
    """Text of the first guard of a known plan that these extents break."""
    values = extent_source.Values(extents)
    for kind, a, b in guards:
        if not extent_source.HOLDS[kind](values.of(a), values.of(b)):
            found = " and ".join(str(values.of(x)) for x in (a, b) if isinstance(x, Dim))
            needs = f"{_extent(a, program)} {extent_source.SIGN[kind]} {_extent(b, program)}"
            return f"no plan's guards hold for these extents: the known plan needs {needs}, here {found}"
    return "no plan's guards hold for these extents"


def _extent(e: int | Dim, program: Program) -> str:
    def name(key: tuple[Any, ...]) -> str:
        k = key[1]
        s = next(s for s in reversed(program.calls) if s.ext_start <= k < s.ext_start + s.n_ints)
        what = "axis" if s.op is INPUT else "size"
        return f"{what} {k - s.ext_start} of {value_name(s)} ({s.op.name} at {site_text(s.site)})"

    return text(e, name, lambda n: "(...)")


def liveness(planned: Wanted, wanted: Wanted, program: Program) -> str:
    """Text of the first value that is wanted and not planned, or planned and not wanted."""
    path = program.calls
    words = []
    for names, what in ((set(wanted) - set(planned), "is"), (set(planned) - set(wanted), "is not")):
        if names:
            index, k = min(names)
            s = path[index]
            rest = f" and {len(names) - 1} more" if len(names) > 1 else ""
            words.append(f"{value_name(s.slots[k])} {s.op.name} at {site_text(s.site)}{rest} {what} alive now")
    return f"{OTHERS}: " + "; ".join(words)
