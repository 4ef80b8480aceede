"""Functions that a call ran, heard by a profile and a trace function: their lines, and those of C that users call.

It is the second net beside guards (call_guards.py): it tells which names a call used, and finds functions and builtins
that no walk through objects leads to.
"""

from __future__ import annotations

import dis
import gc
import os
import sys
import types
from time import thread_time
from typing import TYPE_CHECKING, Any

from lazyt.tracing.watchable import is_library, is_ours, is_pure, is_users_file, parts_of, refusal_of_function

if TYPE_CHECKING:
    from collections.abc import Iterable, Set as AbstractSet

    from lazyt.tracing.call_guards import Guards

# Functions of lazyt's that read or write what no step tells: by the file's name and the qualified name.
_GRADIENT = "it reads or sets a gradient (.grad)"
_RANDOM = "it reads or sets the state of random numbers"
_SETTING = "it reads or sets a setting of the process"
_STATE = {
    "tensor.Tensor.grad": _GRADIENT, "parameters.clear_gradient": _GRADIENT,
    "tensor.Tensor._version": "it reads a version",
    "tensor.Tensor.is_pending": "it reads whether a value is pending",
    "tensor_repr.tensor_repr": "it reads the text of a tensor", "context.last_sync": "it reads the report of a sync",
    "pending.pending": "it reads the pending program", "explain.explain": "it reads the pending program",
    **dict.fromkeys((f"random.{x}" for x in ("seed", "get_state", "set_state")), _RANDOM),
    **dict.fromkeys(
        (f"random.Generator.{x}" for x in ("manual_seed", "initial_seed", "step", "get_state", "set_state")), _RANDOM
    ),
    **dict.fromkeys(
        (
            f"context.{how}_{what}" for how in ("get", "set") for what in (
                "num_threads", "flush_denormal", "float32_matmul_precision", "float32_convolution_precision",
            )
        ), _SETTING,
    ),
}  # fmt: skip
_NAMES_OF_STATE = frozenset(x.partition(".")[2] for x in _STATE)
# What a tensor tells of itself without a step.
_METADATA = frozenset((
    "Tensor.shape", "Tensor.dtype", "Tensor.ndim", "Tensor.size", "Tensor.nbytes", "Tensor.itemsize", "Tensor.device",
    "Tensor.requires_grad", "Tensor.is_leaf", "Tensor.__len__",
))  # fmt: skip
_NAMED = frozenset((*dis.hasname, *dis.hasfree))
# Attributes by which a function leaves what guards watch.
_ESCAPES = frozenset((
    "__builtins__", "__globals__", "__subclasses__", "ag_frame", "cr_frame", "f_back", "f_globals", "f_locals",
    "gi_frame", "tb_frame",
))  # fmt: skip


_NEVER = object()


class Calls:
    """Functions that ran between `begin` and `end`, and which lines of the user's."""

    def __init__(self, tensors: AbstractSet[int]) -> None:
        self._tensors = tensors  # that were there before, by id
        # By the id of its code: the code, whether it is a user's, and its lines (None where a debugger hears those).
        self.codes: dict[int, tuple[types.CodeType, bool, set[int] | None]] = {}
        self.asked: dict[int, Any] = {}  # those of them whose shape or the like was asked for
        self.number = 0  # of calls
        self.took = 0.0  # seconds of the processor
        self.refused = ""
        self._outer: Any = _NEVER  # the profile function before
        self._traces = False
        self._collects = False  # whether the collector was on

    def begin(self) -> None:
        """Hear what the present thread calls from now on."""
        self.took = -thread_time()
        outer = sys.getprofile()
        if outer is not None and type(outer) is not Calls:
            self.refused = "it runs under a profiler, so what it calls is not seen"
            return
        trace = sys.gettrace()
        self._traces = trace is None or getattr(trace, "__func__", None) is Calls._enter_function
        if outer is not None:
            self._tensors = self._tensors | outer._tensors
        self._outer = outer
        # NOTE: callbacks of the collector, and finalizers that it calls, are not the function's.
        self._collects = gc.isenabled()
        gc.disable()
        if self._traces:
            sys.settrace(self._enter_function)
        sys.setprofile(self)

    def end(self) -> None:
        """Hear no more; a recording that this was part of has heard it too."""
        outer = self._outer
        if outer is _NEVER:
            return
        self._outer = _NEVER
        sys.setprofile(outer)
        if self._traces:
            sys.settrace(None if outer is None else outer._enter_function)
        if self._collects:
            gc.enable()
        self.took += thread_time()
        if outer is None:
            return
        outer.number += self.number
        outer.refused = outer.refused or self.refused
        outer.asked |= self.asked
        for i, found in self.codes.items():
            known = outer.codes.setdefault(i, found)
            if known[2] is not None and found[2] is not None:
                known[2].update(found[2])

    def __call__(self, frame: types.FrameType, event: str, function: Any) -> None:
        """The profile function."""
        if event == "call":
            self.number += 1
            code = frame.f_code
            if id(code) not in self.codes:
                self.codes[id(code)] = code, _is_users(frame), None
            name = code.co_qualname
            if name in _METADATA and "self" in code.co_varnames:
                x = frame.f_locals["self"]
                if id(x) in self._tensors:
                    self.asked[id(x)] = x
            elif name in _NAMES_OF_STATE and not self.refused:
                self.refused = _state_read(frame)
        elif event == "c_call" and not self.refused and _is_users(frame) and (what := refusal_of_function(function)):
            self.refused = using(what)

    def _enter_function(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        """The trace function."""
        code = frame.f_code
        known = self.codes.get(id(code))
        if known is None or known[2] is None:
            users = _is_users(frame)
            known = self.codes[id(code)] = code, users, set() if users else None
        return self._enter_line if known[1] else None

    def _enter_line(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        lines = self.codes[id(frame.f_code)][2]
        if lines is not None:
            lines.add(frame.f_lineno)
        return self._enter_line

    def refusal(self, guards: Guards, met: Iterable[Any]) -> str:
        """What the call used that guards do not watch; '' if nothing. The tensors that it `met` are known."""
        if self.refused:
            return self.refused
        known = {*map(id, met)}
        own = [x for i, x in self.asked.items() if i in guards.tensors and i not in known]
        if not known.issuperset([id(x._storage) for x in own]):
            return "it reads the shape, the dtype or the like of a tensor that it does not compute with"
        names: set[str] = set()
        for i, (code, users, lines) in self.codes.items():
            if i not in guards.codes:
                if not users:
                    continue
                return f"it calls {code.co_qualname!r}, which is not found among what it reads"
            found = _names_on(code, lines)
            if escapes := found & _ESCAPES:
                return f"it reads {min(escapes)!r}, through which changes are not seen"
            if imported := _imports(code, found):
                return imported
            names |= found
        what = guards.refusal(names)
        return using(what) if what else ""


def _names_on(code: types.CodeType, lines: set[int] | None) -> set[str]:
    """The names that some lines of a function use, and its own."""
    if lines is None:
        lines = {n for *_, n in code.co_lines() if n is not None}
    found = {code.co_name}
    for i in dis.get_instructions(code):
        at = i.positions.lineno if i.positions is not None else None
        if at is None or at in lines:
            if i.opcode in _NAMED:
                found.add(i.argval)
            elif i.opname == "MATCH_CLASS":
                found.add("getattr")
    return found


def _state_read(frame: types.FrameType) -> str:
    """What a function of lazyt's reads or writes that no step tells; '' for others, and where lazyt itself calls it."""
    file = frame.f_code.co_filename
    what = _STATE.get(f"{file.rpartition(os.sep)[2].removesuffix('.py')}.{frame.f_code.co_qualname}", "")
    caller = frame.f_back
    while caller is not None and caller.f_code.co_filename == "<lazyt boundary>":
        caller = caller.f_back
    by_user = caller is not None and is_users_file(caller.f_code.co_filename)
    return what if is_ours(file) and (by_user or what == _GRADIENT) else ""


def _is_users(frame: types.FrameType) -> bool:
    """Whether a user's function runs; generated code (of a dataclass or a named tuple) is its module's or caller's."""
    file = frame.f_code.co_filename
    if not file.startswith("<") or not is_users_file(file):
        return is_users_file(file)
    name = frame.f_globals.get("__name__")
    if name is None or name.startswith("namedtuple_"):
        return frame.f_back is not None and is_users_file(frame.f_back.f_code.co_filename) and name is None
    return not is_library(name)


def using(what: str) -> str:
    """The reason that names what a function uses."""
    return f"it uses {what}" if "whose changes" in what else f"it uses {what}, which is not known to be watched"


def _imports(code: types.CodeType, names: set[str]) -> str:
    """What a function imports inside that is not a library's without state; '' if nothing."""
    for i in dis.get_instructions(code):
        if i.opname == "IMPORT_NAME" and i.argval in names:
            module = sys.modules.get(i.argval)
            if module is None or not is_library(i.argval) or not is_pure(i.argval):
                return f"it imports {i.argval!r} inside: import that at the top of the file, and its changes are seen"
            for x in () if i.argval.startswith("lazyt") else parts_of(module, names).values():
                impure = isinstance(x, types.ModuleType) and not is_pure(x.__name__)
                function = "" if isinstance(x, type | types.ModuleType) else refusal_of_function(x)
                if what := f"the module {x.__name__!r}" if impure else function:
                    return using(what)
    return ""
