"""Places of a run where CPython looks at signals inside lazyt, and what happens there.

CPython handles a signal at the start of a function, after a call into C, and at a backward jump. `Places` makes it look
at each of them: a trace function leaves a signal pending before every bytecode, from C and without a place of its own,
so the handler is called at exactly the places where a real signal may be. The k-th of them gets the interrupt.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import types
from collections.abc import Callable
from typing import Any


class _Pending:
    """`-pending` leaves SIGINT pending. An operator of a C function: CPython does not look at signals behind it."""

    __neg__ = ctypes.pythonapi.PyErr_SetInterrupt


pending = _Pending()
_HERE = os.path.dirname(__file__)


class Places:
    """Calls `act` at the k-th place of a run where CPython looks at signals inside lazyt; `seen` counts them."""

    def __init__(self, k: int, act: Callable[[], None]) -> None:
        self.k, self.act = k, act
        self.seen = 0
        self.at = ""
        self.on = False
        # NOTE: one object, held here: CPython 3.11 lets go of the trace function while it calls it.
        self._tracer = self._trace

    def _trace(self, frame: types.FrameType, event: str, arg: object) -> Any:
        if not self.on or frame.f_code.co_filename.startswith(_HERE):
            return None
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        _ = -pending  # type: ignore[operator]
        return self._tracer

    def _handle(self, signum: int, frame: types.FrameType | None) -> None:
        if not self.on or frame is None or frame.f_code.co_filename.startswith(_HERE):
            return
        self.seen += 1
        if self.seen == self.k:
            self.on = False
            code = frame.f_code
            self.at = f"{code.co_filename.rpartition('/')[2]}:{frame.f_lineno} {code.co_name}"
            self.act()

    def run(self, f: Callable[[], object]) -> None:
        """Run f; the handler of SIGINT is as it was afterwards."""
        before = signal.signal(signal.SIGINT, self._handle)
        # NOTE: other libraries' functions around a collection, as hypothesis's: CPython drops what is raised in them.
        callbacks, gc.callbacks[:] = gc.callbacks[:], []
        self.on = True
        sys.settrace(self._tracer)
        try:
            f()
        finally:
            self.on = False
            sys.settrace(None)
            gc.callbacks[:] = callbacks
            # What is still pending is handled here, by nothing.
            signal.signal(signal.SIGINT, lambda *_: None)
            signal.signal(signal.SIGINT, before)


class _In(Places):
    """Collects the places in the code of a file."""

    def __init__(self, filename: str) -> None:
        super().__init__(-1, lambda: None)
        self.filename, self.found = filename, list[int]()

    def _handle(self, signum: int, frame: types.FrameType | None) -> None:
        super()._handle(signum, frame)
        if self.on and frame is not None and frame.f_code.co_filename == self.filename:
            self.found.append(self.seen)


def places_in(filename: str, f: Callable[[], object]) -> list[int]:
    """The places of a run that are in the code of one file."""
    places = _In(filename)
    places.run(f)
    return places.found


def raises(error: type[BaseException]) -> Callable[[], None]:
    """An `act` that raises."""

    def act() -> None:
        raise error

    return act


class Interrupt(Places):
    """Raises KeyboardInterrupt at the n-th place where CPython looks for signals inside lazyt."""

    def __init__(self, n: int) -> None:
        super().__init__(n, raises(KeyboardInterrupt))

    @property
    def n(self) -> int:
        return self.k

    def run(self, f: Callable[[], object]) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            super().run(f)


def count(f: Callable[[], object]) -> int:
    """How many places a run of f has."""
    places = Places(0, lambda: None)
    places.run(f)
    return places.seen
