"""The fast paths of recording are generated here, from fragments: bind the inputs, match the step, take it.

Recording one operation must cost no more than NumPy's dispatch, so the usual case is written out in each function: the
step that followed the last time is compared by identity, and taken. All else is for `record`. The operators
(functions/operators.py) and cached calls (call_cache.py) are made of the same fragments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from textwrap import indent
from typing import TYPE_CHECKING, Any

from lazyt.errors import ScalarRangeError
from lazyt.tracing.inputs import INPUT_CALLERS, bind_input  # noqa: F401 - as are the next ones: what is generated uses them
from lazyt.tracing.program import INPUT  # noqa: F401
from lazyt.tracing.record import MAX_BYTES, record, slot_of  # noqa: F401
from lazyt.tracing.steps import hooks
from lazyt.tracing.trace import local  # noqa: F401
from lazyt.tracing.tracebacks import filter_traceback  # noqa: F401

if TYPE_CHECKING:
    from lazyt.ops.definition import OpDef

# A new handle with nothing in it. NOTE: `next` would be a call, behind which CPython looks at signals.
NEW_HANDLE = """\
for h in made:
    break
h._buffer = h._meta = h._storage = h._view = None
h._writes = 0"""

# Take the step s, whose inputs match: its handle of the last trace, if nobody has that, or a new one.
TAKE = f"""\
h = tr.results[s.index]
if h is not None:
    h._slot = s
    tr.pos = s
    return h
{NEW_HANDLE}
if s.parent is tr.pos:
    tr.results[s.index] = h
    h._slot = s
    tr.pos = s
    return h"""


def bound(x: str, known: int) -> str:
    """The slot of a computed value, bound as an input. So many callers of `bind_input` are lazyt's."""
    return f"bind_input(tr, {x}, {known}) if {x}._storage is None else slot_of(tr, {x}, {known})"


def fill(template: str, **parts: str) -> str:
    """The template with fragments in place of `{name}`, each as far to the right as the name stands."""
    lines: list[str] = []
    for line in template.splitlines():
        name = line.strip()[1:-1]
        found = parts.get(name) if line.strip() == f"{{{name}}}" else None
        lines.append(line if found is None else indent(found, line[: len(line) - len(line.lstrip())]))
    return "\n".join(lines)


def guarded(text: str, handler: str = "filter_traceback(error)") -> str:
    """The text of a function, or of the one within another, as an API boundary: its body stands in a handler."""
    lines = text.strip("\n").splitlines()
    at = max(i for i, line in enumerate(lines) if line.lstrip().startswith("def "))
    margin = lines[at][: len(lines[at]) - len(lines[at].lstrip())] + "    "
    end = next((i for i in range(at + 1, len(lines)) if lines[i] and not lines[i].startswith(margin)), len(lines))
    body = [indent(line, "    ") for line in lines[at + 1 : end]]
    around = [
        f"{margin}try:",
        *body,
        f"{margin}except Exception as error:",
        f"{margin}    {handler}",
        f"{margin}    raise",
    ]
    return "\n".join([*lines[: at + 1], *around, *lines[end:]])


_ONE = """
if s.op is INPUT and x1._slot is None and not tr.watched and tr.nbytes < MAX_BYTES:
    {bind1}
    s = tr.pos.next
if s.op is op and s.a is x1._slot and s.ext is tr.ext:
    {take}
"""
_TWO = """
if s.op is INPUT and not tr.watched and tr.nbytes < MAX_BYTES:
    if x1._slot is None:
        {bind1}
    if kind is tensor and x2._slot is None:
        {bind2}
    s = tr.pos.next
if (
    s.op is op
    and s.a is x1._slot
    and s.ext is tr.ext
    and (s.b is x2._slot if kind is tensor else s.b is kind and s.low <= x2 <= s.high)
):
    if s.n_scalars:
        tr.scalars[s.scalar_start] = x2
    {take}
"""
_RECORD_ONE = """
def record_one(op, x1):
    tr, tensor, made = local.trace, hooks.tensor, hooks.made
    if type(x1) is tensor and not tr.watched:
        s = tr.pos.next
        {one}
    return record(op, (x1,))
"""
_RECORD_TWO = """
def record_two(op, x1, x2):
    tr, tensor, made, kind = local.trace, hooks.tensor, hooks.made, type(x2)
    if type(x1) is tensor and not tr.watched:
        s = tr.pos.next
        {two}
    return record(op, (x1, x2))
"""
_OF_ONE = """
def make(op, slow, tensor, made, name):
    def call(x1, /, out=None, **options):
        if type(x1) is tensor and out is None and not options:
            tr = local.trace
            s = tr.pos.next
            {one}
        return slow(x1, **options) if out is None else slow(x1, out, **options)
    return call
"""
_OF_TWO = """
def make(op, slow, tensor, made, name):
    def call(x1, x2, /, out=None, **options):
        if type(x1) is tensor and out is None and not options:
            tr, kind = local.trace, type(x2)
            s = tr.pos.next
            {two}
        return slow(x1, x2, **options) if out is None else slow(x1, x2, out, **options)
    return call
"""


def _generated(template: str, known: int, name: str = "make") -> Any:
    """A function of this module: over its names, so that who looks for the user's line knows it as lazyt's."""
    parts = {"bind1": bound("x1", known), "bind2": bound("x2", known), "take": TAKE}
    one, two = (fill(text.strip("\n"), **parts) for text in (_ONE, _TWO))
    space: dict[str, Any] = {}
    text = fill(template, one=one, two=two)
    if name == "make":
        text = guarded(text, "filter_traceback(error, True, name)")
    exec(compile(text, f"<lazyt {name}>", "exec"), globals(), space)
    return space[name]


record_one: Callable[[OpDef, Any], Any] = _generated(_RECORD_ONE, INPUT_CALLERS, "record_one")
record_one.__doc__ = "`record` of one operand and nothing else."
record_two: Callable[[OpDef, Any, Any], Any] = _generated(_RECORD_TWO, INPUT_CALLERS, "record_two")
record_two.__doc__ = "`record` of two operands and nothing else."
_one, _two = _generated(_OF_ONE, 2), _generated(_OF_TWO, 2)


def record_comparison(op: OpDef, x: Any, y: Any) -> Any:
    """`record_two`, and a Python integer that the array's dtype does not hold compares as infinity does."""
    try:
        return record_two(op, x, y)
    except ScalarRangeError:
        x, y = ((math.inf if v > 0 else -math.inf) if type(v) is int else v for v in (x, y))
        return record_two(op, x, y)


def of_one(op: OpDef, slow: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`record_one(op, x)` under NumPy's signature, without a function between; `slow` where it is asked for more."""
    call: Callable[..., Any] = _one(op, slow, hooks.tensor, hooks.made, name)
    return call


def of_two(op: OpDef, slow: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`record_two(op, x1, x2)` under NumPy's signature; `slow` where it is asked for more."""
    call: Callable[..., Any] = _two(op, slow, hooks.tensor, hooks.made, name)
    return call
