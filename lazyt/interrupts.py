"""Functions that a signal cannot interrupt when they are entered.

CPython looks at signals at the start of a function, after a call into C and at a backward jump. A function that has
none of the last two, and is `uninterrupted`, runs as a whole.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
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
