"""A program with loops, run as users run it and without any cached state: all bits agree.

`loop_programs.py` writes such programs. They report results with `see` (values, which are computed), `note` (what is
known without a sync), `look` (memory that is read again in the end) and `finish`; each of these is one event.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.errors import is_ours
from lazyt.ir import dtypes
from lazyt.testing.array_programs import leaf
from lazyt.testing.choices import choices_of
from lazyt.testing.closeness import same_bits
from lazyt.testing.kinds import Kind, register
from lazyt.testing.mixed_programs import sample
from lazyt.testing.modes import Mode, mode
from lazyt.testing.statements import Failure
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import local
from tests.support.fuzz.loop_programs import LoopWriter
from tests.support.fuzz.shrink_source import shrink_lines

Array = np.ndarray[Any, Any]
# Every switch of what is done in short because it was done before; see docs/architecture.md.
REMEMBERING = ("repeat", "calls", "shapes", "rebind", "jit")
# NOTE: BLAS has its own order of sums, and which products are its depends on strides, thus on what is fused.
GENERAL = Mode("the general way", tiers=True, off=(*REMEMBERING, "blas"))
AS_USED = Mode("as used", tiers=True, off=("blas",), short=True)
FINE = Mode("as used, inputs overwritten", tiers=True, off=("blas",), short=True, fine=True)
LOOP = "for k in turns("


@dataclass
class Event:
    """What a program told: where, in which turn, and what."""

    what: str
    line: int
    turn: int
    values: list[Any]
    ours: bool = False  # an error of lazyt's own

    def __str__(self) -> str:
        return f"line {self.line}, turn {self.turn}: {self.what} {', '.join(map(_text, self.values))}"


def _text(x: Any) -> str:
    return f"{x.dtype} {np.array2string(x, separator=', ')}" if isinstance(x, np.ndarray) else str(x)


@dataclass
class Run:
    """One run of a program, and what it told."""

    events: list[Event] = field(default_factory=list)
    looked: list[Array] = field(default_factory=list)
    turn: int = -1

    def space(self) -> dict[str, Any]:
        """The names that a program uses."""
        return {
            "lt": lt, "np": np, "leaf": leaf, "sample": sample, "new": lambda x: x, "same": nullcontext, "data": _data,
            "param": _param, "mask": _mask, "apart": _apart, "see": self.see, "note": self.note, "look": self.look,
            "retain": _retain, "on_gradient": self.on_gradient, "turns": self.turns, "finish": self.finish,
            "__name__": "program",
        }  # fmt: skip

    def turns(self, n: int) -> Iterator[int]:
        """The turns of the loop."""
        for self.turn in range(n):
            yield self.turn
        self.turn = -1

    def tell(self, what: str, values: list[Any], ours: bool = False) -> None:
        """An event, at the line of the program."""
        f: Any = sys._getframe(2)
        while f is not None and f.f_globals.get("__name__") != "program":
            f = f.f_back
        line = f.f_lineno if f is not None else 0
        self.events.append(Event(what, line, self.turn, values, ours))

    def see(self, *xs: Any) -> None:
        """Values are computed, and told."""
        self.tell("see", [_value(x) for x in xs])

    def note(self, *xs: Any) -> None:
        """What is known of a value without a sync; an error with its message."""
        self.tell("note", [_known(x) for x in xs], any(map(_is_mistake, xs)))

    def look(self, x: Any) -> None:
        """Look at the memory of a value now and once more in the end: nobody may write there."""
        a = np.asarray(x)
        self.looked.append(a)
        self.tell("see", [a.copy()])

    def on_gradient(self, x: Any) -> Any:
        """A hook on a value, if it can have one."""

        def twice(g: Any) -> Any:
            self.note(g.shape)
            return g * 2

        return x.register_hook(twice) if x is not None and x.requires_grad else None

    def finish(self, *xs: Any) -> None:
        """Tell everything that is left, each by itself: some of it may fail."""
        for x in xs:
            for y in x if isinstance(x, list) else [x]:
                try:
                    self.tell("see", [_value(y)])
                except Exception as e:  # noqa: BLE001 - told, and compared
                    self.tell("note", [_known(e)], _is_mistake(e))
        self.tell("look", [a.copy() for a in self.looked])


def _data(shape: tuple[int, ...], seed: int) -> Any:
    return lt.asarray(np.random.default_rng(seed).standard_normal(shape).astype("float32"))


def _param(shape: tuple[int, ...], seed: int) -> Any:
    return _data(shape, seed).requires_grad_()


def _mask(t: Any) -> Array:
    return np.arange(t.shape[0] * t.shape[1]).reshape(t.shape) % 3 > 0


def _retain(x: Any) -> None:
    if x is not None and x.requires_grad:
        x.retain_grad()


def _apart(f: Callable[[], Any]) -> Any:
    """Run a function in another thread, and wait for it; what it raises is raised here."""

    def run() -> Any:
        lt.random.set_state((8, 0))  # otherwise each thread has numbers of its own
        return f()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()


def _value(x: Any) -> Any:
    if isinstance(x, Handle):
        return np.array((x.detach() if x.requires_grad else x).numpy())
    if isinstance(x, list):
        return [_value(y) for y in x]
    if isinstance(x, np.ndarray):
        return x.copy()
    return x if isinstance(x, bool | int | float | complex | str | np.generic | None) else type(x).__name__


def _known(x: Any) -> Any:
    if isinstance(x, Handle):
        grad = x.grad if x.is_leaf else None
        shape = None if grad is None else grad.shape
        return f"{x.dtype} {x.shape} requires_grad={x.requires_grad} is_leaf={x.is_leaf} grad={shape}"
    return f"{type(x).__name__}: {x}" if isinstance(x, Exception) else repr(x)


def _is_mistake(x: Any) -> bool:
    """Whether this is an error that no program causes; a TypeError may be one's own, as of `float` of a complex."""
    return isinstance(x, BaseException) and is_ours(x) and not isinstance(x, TypeError)


def events(code: Any, way: Mode) -> list[Event]:
    """What a program tells when it is run in a way; an error that it does not catch is the last event."""
    run = Run()
    with warnings.catch_warnings(), np.errstate(all="ignore"), mode(way):
        warnings.simplefilter("ignore")
        space, state = run.space(), lt.random.get_state()
        lt.random.set_state((7, 0))
        try:
            exec(code, space)
        except Exception as e:  # noqa: BLE001 - told, and compared
            run.tell("raises", [_known(e)], _is_mistake(e))
            del e
        space.clear()
        try:
            lt.sync()
        except Exception as e:  # noqa: BLE001 - as above
            run.tell("raises", [_known(e)], _is_mistake(e))
            local.trace.reset_trie()
        lt.random.set_state(state)
    return run.events


def check_loop(lines: Sequence[str] | str, ways: Sequence[Mode] = (AS_USED, FINE)) -> Failure | None:
    """Run a program in the general way and in these: the first event that differs, or None.

    SyntaxError for what is no program.
    """
    text = lines if isinstance(lines, str) else "\n".join(lines)
    code = compile(text, "<program>", "exec")
    want = events(code, GENERAL)
    for way in (GENERAL, *ways):
        got = want if way is GENERAL else events(code, way)
        wrong = next((e for e in got if e.ours), None)
        if wrong is not None:
            return Failure(f"loops, {way}: an error of lazyt's own", "", f"{way}: {_short(wrong)}", line=wrong.turn)
        for e, a in zip(want, got, strict=False):
            if not _same(e, a):
                kind = f"loops, {way}: {e.what if e.what == a.what else 'other events'}"
                return Failure(kind, e.what, f"{way}: {_short(a)}\n  {GENERAL}: {_short(e)}", line=a.turn)
        if len(want) != len(got):
            return Failure(f"loops, {way}: end", "", f"{way}: {len(got)} events, not {len(want)}")
    return None


def _short(e: Event) -> str:
    text = str(e)
    return text if len(text) < 2000 else text[:2000] + "..."


def _same(e: Event, a: Event) -> bool:
    return (e.what, e.line, e.turn, len(e.values)) == (a.what, a.line, a.turn, len(a.values)) and all(
        _same_value(x, y) for x, y in zip(e.values, a.values, strict=True)
    )


def _same_value(e: Any, a: Any) -> bool:
    if isinstance(e, np.ndarray | np.generic) and isinstance(a, np.ndarray | np.generic):
        x, y = np.asarray(e), np.asarray(a)
        return same_bits(x, y) if dtypes.kind(x.dtype) in "fc" else (x.dtype, x.tolist()) == (y.dtype, y.tolist())
    if isinstance(e, list) and isinstance(a, list):
        return len(e) == len(a) and all(map(_same_value, e, a))
    if isinstance(e, float) and isinstance(a, float):
        return same_bits(np.float64(e), np.float64(a))  # type: ignore[arg-type]
    return type(e) is type(a) and (e == a or (e != e and a != a))


def again_loop(lines: Sequence[str], failure: Failure) -> Failure | None:
    """Run a program as far as it takes to see whether it fails in the same way."""
    ways = [m for m in (AS_USED, FINE) if failure.kind.startswith(f"loops, {m}:")]
    try:
        return check_loop(lines, ways)
    except SyntaxError:
        return None


_SCRIPT = '''"""{title}: a loop that tells something else when lazyt does again in short what it did."""
from tests.support.fuzz.loops import check_loop

failure = check_loop("""
{lines}
""")
assert failure is None, failure.message
'''


def loop_script(title: str, lines: Sequence[str]) -> str:
    """A script that runs a program in both ways, and fails while they differ."""
    return _SCRIPT.format(title=title, lines="\n".join(lines).replace("\\", "\\\\"))


def is_loop(lines: Sequence[str]) -> bool:
    """Whether a program is one of these."""
    return any(line.lstrip().startswith(LOOP) for line in lines)


class Loops(Kind):
    """Loops whose iterations are alike but for a schedule."""

    name = "loops"
    agrees = "itself in the general way"

    def write(self, seed: int, tell: Callable[[list[str]], None]) -> LoopWriter:
        """The writer of the program of a seed, done."""
        w = LoopWriter(random.Random(seed).randrange, choices_of(seed))
        w.tell = tell
        w.program()
        return w

    def run(self, seed: int, writer: LoopWriter, covered: Any) -> Failure | None:
        """Run it as used, and without any cached state."""
        covered.modes["loops, as used and in the general way"] += 1
        return check_loop(writer.lines)

    check = staticmethod(check_loop)
    again = staticmethod(again_loop)
    shrink = staticmethod(shrink_lines)
    script = staticmethod(loop_script)
    includes = staticmethod(is_loop)


LOOPS = Loops()
register(LOOPS, 71, 227)
