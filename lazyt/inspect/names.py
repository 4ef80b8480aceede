"""Who holds a value: the names that the user's frames have for it. Looking keeps nothing alive."""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

from lazyt.tracing.tensor_state import Handle, Holder, Storage
from lazyt.tracing.trace import Trace

Names = dict[int, list[str]]


def names_in_frames(frame: FrameType | None) -> Names:
    """The variables of the frames outside lazyt that hold a tensor: id -> names, the innermost first."""
    names: Names = {}
    spaces: set[int] = set()
    while frame is not None:
        module = frame.f_globals.get("__name__") or ""
        if module != "lazyt" and not module.startswith("lazyt."):
            if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
                _collect(_locals(frame), names)
            if id(frame.f_globals) not in spaces:
                spaces.add(id(frame.f_globals))
                _collect(frame.f_globals.items(), names)
        frame = frame.f_back
    _collect([("_", getattr(builtins, "_", None))], names)  # what a prompt showed last
    for value in _in_traceback():
        names.setdefault(id(value), ["the last traceback"])
    return names


def _in_traceback() -> list[Handle]:
    """The tensors that the frames of a prompt's last error keep."""
    found: list[Handle] = []
    traceback = getattr(sys, "last_traceback", None)
    while traceback is not None:
        found += [v for v in traceback.tb_frame.f_locals.values() if issubclass(type(v), Handle)]
        traceback = traceback.tb_next
    return found


def _locals(frame: FrameType) -> list[tuple[str, Any]]:
    """A function's variables.

    NOTE: before Python 3.13 `f_locals` is a copy that the frame keeps, which would keep tensors alive after `del`:
    it is emptied, unless a debugger looks at it too.
    """
    space = frame.f_locals
    found = list(space.items())
    if sys.version_info < (3, 13) and frame.f_trace is None:
        space.clear()
    return found


def _collect(items: Any, names: Names) -> None:
    # The global space may change under the loop when other threads run.
    for name, value in list(items):
        # NOTE: `isinstance` would ask proxies for their class, and so wake them.
        if issubclass(type(value), Handle) and name.isidentifier():
            known = names.setdefault(id(value), [])
            if name not in known:
                known.append(name)


def holders_text(holder: Holder, names: Names, gradients: Names) -> str:
    """Who holds a value: `y, view v`, `the gradient of w`, or `a tensor` where nobody here has a name for it."""
    aliases = [h for r in holder.aliases if (h := r()) is not None] if isinstance(holder, Storage) else [holder]
    bases = [h for h in aliases if not isinstance(h, Handle) or h._view is None]
    views = [h for h in aliases if isinstance(h, Handle) and h._view is not None]
    words = _named(bases, names, gradients) or ["a tensor"] * bool(bases)
    if views:
        words.append(f"{'views' if len(views) > 1 else 'view'} {', '.join(_named(views, names, gradients)) or 'of it'}")
    return ", ".join(words)


def _named(handles: Sequence[Holder], names: Names, gradients: Names) -> list[str]:
    known = [n for h in handles for n in (*names.get(id(h), ()), *gradients.get(id(h), ()))]
    # A prompt's `_` is worth a word only where there is no other name.
    return list(dict.fromkeys(n for n in known if n.strip("_"))) or known[:1]


def gradients_of(tr: Trace, names: Names) -> Names:
    """The tensors that are gradients of leaves of this trace: id -> which."""
    out: Names = {}
    for index, r in tr.metas.items():
        meta, leaf = r(), tr.refs[index]()
        if meta is not None and meta.grad is not None:
            known = names.get(id(leaf)) or [f"%{index}"]
            out.setdefault(id(meta.grad), []).append(f"the gradient of {known[0]}")
    return out
