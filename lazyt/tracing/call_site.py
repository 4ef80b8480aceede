"""The user's line: where it is found, and what is kept of it."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import types


class Site:
    """A user's line, kept as (code, instruction offset); the line number is computed only for messages."""

    __slots__ = ("code", "lasti", "name")

    def __init__(self, code: types.CodeType, lasti: int, name: str = "") -> None:
        self.code = code
        self.lasti = lasti
        self.name = name  # of the function that the line called, where that may fail at the sync

    @property
    def line(self) -> int:
        for start, end, line in self.code.co_lines():
            if start <= self.lasti < end and line is not None:
                return line
        return self.code.co_firstlineno

    def __str__(self) -> str:
        return f"{self.code.co_filename}:{self.line}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Site) and self.code is other.code and self.lasti == other.lasti

    def __hash__(self) -> int:
        return hash((id(self.code), self.lasti))


_PACKAGE = __name__.partition(".")[0] + "."
_THROUGH = frozenset(("contextlib", "copy", "functools", "pickle"))
_users: dict[str, bool] = {}  # whether a module of this name is the user's


_inside: set[int] = set()  # ids of the global spaces of modules that are not the user's; they stay


def _is_users(name: str, space: dict[str, Any]) -> bool:
    found = _users.get(name)
    if found is None:
        inside = name.startswith(_PACKAGE) or name == _PACKAGE[:-1]
        found = (not inside and name not in _THROUGH) or name.startswith(_PACKAGE + "testing")
        if len(_users) < 1 << 14:
            _users[name] = found
    if not found and getattr(sys.modules.get(name), "__dict__", None) is space:
        _inside.add(id(space))
    return found


def user_frame(known: int) -> types.FrameType:
    """The innermost frame outside lazyt, and outside modules that only pass calls on.

    So many callers are `known` to be lazyt's: a frame that is looked at costs its function 0.3 us more.
    """
    f: types.FrameType | None = sys._getframe(known + 1)
    last = f
    while f is not None:
        space = f.f_globals
        if id(space) not in _inside:
            name = space.get("__name__") or ""
            if _users.get(name) or _is_users(name, space):
                return f
        last, f = f, f.f_back
    assert last is not None
    return last


def user_site(known: int = 0) -> Site:
    """The line of the user's that is running; so many callers, the nearest first, are `known` to be lazyt's."""
    f = user_frame(known + 1)
    return Site(f.f_code, f.f_lasti)


# Frames of lazyt's that only pass calls on, and what `x[i]` and `x[i] = y` are called in errors.
_PASSING = frozenset(("call", "array_function"))
_SUBSCRIPTS = dict.fromkeys(("getitem", "setitem", "index", "index_put"), "indexing")


def called_site(operation: str, known: int = 0) -> Site:
    """The user's line that is running, with the name of the function of lazyt's that it called.

    Where it called none by name (a module, `x[i]`) that of the operation.
    """
    f: types.FrameType | None = sys._getframe(known + 1)
    user, name, before = user_frame(known + 1), "", ""
    while f is not None and f is not user:
        here = f.f_code.co_name
        if here == "_dispatched":  # NumPy's function, by the call of an object
            name = before
        elif here not in _PASSING:
            before, name = name, here
        f = f.f_back
    name = operation if name.startswith(("_", "<")) or not name else name
    return Site(user.f_code, user.f_lasti, _SUBSCRIPTS.get(name, name))


def warn(text: str, category: type[Warning]) -> None:
    """A warning at the user's line, however far away that is."""
    f = user_frame(1)
    warnings.warn_explicit(
        text,
        category,
        f.f_code.co_filename,
        f.f_lineno,
        f.f_globals.get("__name__", "<string>"),
        f.f_globals.setdefault("__warningregistry__", {}),
    )


def user_line(known: int) -> tuple[int, int]:
    """The same line as part of a key, for a step that keeps its `user_site()`: so the code's id stays its own.

    Behind the caller come so many callers that are `known` to be lazyt's.
    """
    f = user_frame(known + 2)
    return id(f.f_code), f.f_lasti


def is_line(line: tuple[int, int], known: int) -> bool:
    """Whether `user_line(known)` is this; False where that is not found at once."""
    code, lasti = line
    f: types.FrameType | None = sys._getframe(known + 1)
    while f is not None:
        if f.f_lasti == lasti and id(f.f_code) == code:
            return True
        if id(f.f_globals) not in _inside:
            return False
        f = f.f_back
    return False
