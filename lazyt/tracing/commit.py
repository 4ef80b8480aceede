"""Changes of state that nothing divides.

CPython looks at signals, and lets another thread run, at the start of a function, after a call into C and at a backward
jump; nowhere else. So what belongs together is prepared first and then stored by plain statements without a call
between them (`NOTE: no call from here on`). Where they are as many as there are tensors, one call of C stores them
all: `carry_out`. A function that must do so as its first act, because it is called when something ends, is entered
without a look at signals: `uninterrupted`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from opcode import opmap
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

# An instruction that begins a function looks at signals if its operand is below 2: it is 2 where a generator goes on.
_BEGIN, _QUIETLY = opmap.get("RESUME"), 2


def uninterrupted(f: F) -> F:
    """f, entered without a look at signals. Elsewhere than in CPython f as it is."""
    if sys.implementation.name != "cpython" or _BEGIN is None:
        return f
    code = f.__code__
    text = bytearray(code.co_code)
    at = next((i for i in range(0, len(text), 2) if text[i] == _BEGIN), -1)
    assert at >= 0, "a function begins with an instruction of its own"
    assert text[at + 1] == 0, "a function that is no generator"
    text[at + 1] = _QUIETLY
    f.__code__ = code.replace(co_code=bytes(text))
    return f


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


def finish(act: Callable[[], None]) -> None:
    """What must be done before an interrupt goes on, whatever further one there is."""
    for _ in range(100):
        try:
            act()
            return
        except BaseException as e:  # noqa: BLE001 - the last one is raised
            error = e
    raise error
