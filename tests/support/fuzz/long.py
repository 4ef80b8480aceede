"""A long program, run with its values unread and synced after each turn: all bits agree, and nothing is left behind.

`long_programs.py` writes such programs. The reference is the general way, synced after each turn, where nothing is
remembered; beside it the program runs unread as users run it, again with its plans known, fused at once, a kernel an
operation, in the interpreter of the graph IR, with threads and inputs overwritten, and synced at random turns; where
NumPy has all of it, NumPy runs it too. In the end the program's values must be released, and the thread must go on.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
import random
import re
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.errors import REFUSALS, IndexOutOfRange
from lazyt.ir import dtypes
from lazyt.runtime import memory, sync
from lazyt.runtime.replay import SHARED_BYTES
from lazyt.testing.closeness import same_bits
from lazyt.testing.kinds import Kind, register
from lazyt.testing.modes import Mode, mode
from lazyt.testing.numpy_names import reference
from lazyt.testing.statements import Failure
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import local
from tests.support.fuzz.long_programs import LOOP, LongWriter
from tests.support.fuzz.loops import REMEMBERING, Event, Run, _is_mistake, _known, _short, _value
from tests.support.fuzz.shrink_source import shrink_lines

NEVER, EACH, RANDOM = "never", "each", "random"
# What a sync raises for a program's data.
OF_DATA: tuple[type[Exception], ...] = (
    IndexOutOfRange,
    np.linalg.LinAlgError,
    *(kind for kind, _ in REFUSALS.values()),
)
# How far values may be apart where sums are grouped otherwise (products, segments of a graph), by dtype. Under autocast
# those of float32 are as far apart as the halves inside.
APART = {"float16": 0.1, "bfloat16": 0.3, "float32": 5e-3, "float64": 1e-6, "complex64": 5e-3, "complex128": 1e-6}
# Sums that a plan may group otherwise, and what makes large differences of small ones.
INEXACT = re.compile(r" @ |matmul|einsum|linear\(|net\(|Linear|linalg")
JUMPS = re.compile(r"sort|argmax|round|sign|fmod|median|float16|astype|[xyztupgvw01)] [<>]|\*\* 2 %|compress|packed")
# Failures at a sync: the interpreter does not report the line, so the whole trace stays pending.
FAILS = re.compile(r"10 ?\*\* ?6|linalg|average")
# What no NumPy reference is there for.
OF_LAZYT = re.compile(r"\blt\.|param\(|pickle|settle|apart|fails|\.is_pending|detach|random")


@dataclass(frozen=True)
class Way:
    """One way to run a long program: a mode, and after which turns it is synced."""

    mode: Mode
    turns: str = NEVER
    seed: int = 0

    def __str__(self) -> str:
        return self.mode.name


def _way(name: str, turns: str = NEVER, seed: int = 0, off: tuple[str, ...] = (), **options: Any) -> Way:
    # NOTE: BLAS has its own order of sums, and which products are its depends on what is fused.
    return Way(Mode(name, off=("blas", *off), short=True, **options), turns, seed)


# The reference takes each turn as the first of its kind: nothing is planned, and little compiled.
EACH_TURN = Way(Mode("synced each turn, as if for the first time", tiers=True, off=("blas",)), EACH)
INTERPRETED_EACH = _way("interpreted, synced each turn", EACH, interpret=True)
INTERPRETED = _way("interpreted, unread", interpret=True)
NUMPY = Way(Mode("NumPy"))
# What each program runs through, beside one of the others.
LIGHT = (_way("unread", tiers=True),)
OTHERS = (
    _way("synced each turn", EACH, tiers=True),
    _way("unread, run again", tiers=True, repeat=2),
    _way("unread, fused at once"),
    _way("synced at random turns", RANDOM, 3, tiers=True),
    _way("synced at random turns, its plans known", RANDOM, 4, tiers=True, repeat=3),
    _way("unread, a kernel an operation", fuse=False),
    _way("unread, two threads, inputs overwritten", threads=2, fine=True),
    _way("synced each turn, inputs overwritten", EACH, fine=True, tiers=True),
    _way("unread, in the general way", off=REMEMBERING, tiers=True, repeat=2),
    *(_way(f"unread, no-{name}", off=(name,)) for name in
      ("wide", "tile", "pairs", "reuse", "native", "epilogues", "cover", "turn", "vectors", "gemm", "shapes", "calls")),
)  # fmt: skip
# Sums over the iterations of a divided backward have another order.
DIVIDED = _way("unread, divided as far longer programs are", tiers=True, divided=True, repeat=2)
WAYS = (*LIGHT, DIVIDED, INTERPRETED, NUMPY, *OTHERS)


def ways_of(seed: int) -> tuple[Way, ...]:
    """The ways that the program of a seed is run in."""
    rng = random.Random(seed + 1)
    light = (*LIGHT, NUMPY) if rng.random() < 0.5 else (*LIGHT, INTERPRETED, NUMPY)
    light = (*light, DIVIDED) if rng.random() < 0.5 else light
    return (*light, rng.choice(OTHERS)) if rng.random() < 0.25 else light


class LongRun(Run):
    """One run of a long program; what it tells."""

    def __init__(self, way: Way, xp: Any = lt) -> None:
        super().__init__()
        self.way = way
        self.xp = xp
        self.last: list[Callable[[], None]] = []
        self.rng = random.Random(way.seed)

    def space(self) -> dict[str, Any]:
        """The names that a program uses."""
        own = {
            "xp": self.xp, "data": self.data, "param": lambda *a: self.data(*a).requires_grad_(), "unread": self.unread,
            "settle": _settle, "fails": self.fails, "at_end": self.last.append, "gc": gc, "copy": copy,
            "pickle": pickle, "weakref": weakref, "j": 0, "checkpoint": lt.utils.checkpoint.checkpoint,
        }  # fmt: skip
        return super().space() | own

    def data(self, shape: tuple[int, ...], seed: int, dtype: str = "float32", scale: float = 1.0) -> Any:
        """An input: the same values each time."""
        a = (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)
        return a if self.xp is reference else lt.tensor(a, dtype=dtype)

    def unread(self, n: int) -> Iterator[int]:
        """The turns of the loop, synced where the way says."""
        for self.turn in range(n):
            yield self.turn
            if self.way.turns == EACH or (self.way.turns == RANDOM and self.rng.random() < 0.3):
                _settle()
        self.turn = -1

    def see(self, *xs: Any) -> None:
        """Values are computed, and told; so is the kind of error that some of them raise."""
        for x in xs:
            for y in _parts(x):
                try:
                    self.tell("see", [_value(y)])
                except Exception as e:  # noqa: BLE001 - told, and compared
                    self.failed(e)

    def failed(self, e: BaseException) -> None:
        """An error: what kind it is. What it says may name what was synced."""
        self.tell("error", [type(e).__name__ if not _is_mistake(e) else _known(e)], _is_mistake(e))

    def note(self, *xs: Any) -> None:
        """What is known of a value without a sync; of an error its kind."""
        for x in xs:
            if isinstance(x, BaseException):
                self.failed(x)
            elif self.xp is lt:
                super().note(x)

    def fails(self, f: Callable[[], Any]) -> None:
        """Call what fails mostly; its error is told."""
        try:
            f()
        except Exception as e:  # noqa: BLE001 - told, and compared
            self.failed(e)

    def finish(self, *xs: Any) -> None:
        """Tell everything that is left."""
        for f in self.last:
            f()
        self.see(*xs)
        self.tell("look", [a.copy() for a in self.looked])


def _parts(x: Any) -> list[Any]:
    return [z for y in x for z in _parts(y)] if isinstance(x, list | tuple) else [x]


def _settle(*xs: Any) -> None:
    """Sync; what fails because of its data stays pending."""
    with contextlib.suppress(*OF_DATA):
        lt.sync(*[x for x in xs if isinstance(x, Handle)])


@contextlib.contextmanager
def _segments(found: list[int]) -> Iterator[None]:
    """Count the syncs that keep a graph: the parts of a cotangent are added in another order behind them."""
    usual: Any = sync.differentiable

    def counted(*args: Any) -> Any:
        segment = usual(*args)
        if segment is not None:
            found.append(1)
        return segment

    module: Any = sync
    module.differentiable = counted
    try:
        yield
    finally:
        module.differentiable = usual


def long_events(code: Any, way: Way) -> tuple[list[Event], bool]:
    """What a program tells when it is run in a way, and whether a sync kept a graph behind values."""
    if way is NUMPY:
        run = LongRun(way, reference)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            _run(code, run)
        return run.events, False
    found: list[int] = []
    with warnings.catch_warnings(), np.errstate(all="ignore"), mode(way.mode), _segments(found):
        warnings.simplefilter("ignore")
        state = lt.random.get_state()
        gc.collect()
        before = memory.allocated()
        for _ in range(way.mode.repeat):
            run = LongRun(way)
            lt.random.set_state((7, 0))
            _run(code, run)
            try:
                lt.sync()
            except OF_DATA:
                pass
            except Exception as e:  # noqa: BLE001 - told, and compared
                run.failed(e)
        _afterwards(run, before)
        lt.random.set_state(state)
    return run.events, bool(found)


def _run(code: Any, run: LongRun) -> None:
    space = run.space()
    try:
        exec(code, space)
    except Exception as e:  # noqa: BLE001 - told, and compared
        run.failed(e)
        del e
    space.clear()
    run.last.clear()
    run.looked.clear()


def _afterwards(run: LongRun, before: int) -> None:
    """The thread goes on, and what the program held is let go."""
    try:
        two = lt.tensor([1.0, 2.0], dtype=lt.float64)
        run.tell("goes on", [float((two * 2).sum() + lt.tanh(two * 0)[0])])
        del two
    except Exception as e:  # noqa: BLE001 - told, and compared
        run.failed(e)
    local.trace.reset_trie()
    gc.collect()
    left = memory.allocated() - before
    run.tell("bytes left", [left if left > SPARE else 0], left > SPARE)


# The state that a thread may keep for its next trace, and the memory that replays have in common for temporaries.
SPARE = (1 << 16) + 2 * SHARED_BYTES


def is_long(lines: Sequence[str]) -> bool:
    """Whether a program is one of these."""
    return any(line.lstrip().startswith(LOOP) for line in lines)


def check_long(lines: Sequence[str] | str, ways: Sequence[Way] = WAYS) -> Failure | None:
    """Run a program synced each turn and in these ways: the first event that differs, or None.

    SyntaxError for what is no program.
    """
    text = lines if isinstance(lines, str) else "\n".join(lines)
    code = compile(text, "<program>", "exec")
    want, kept = long_events(code, EACH_TURN)
    interpreted: list[Event] = []
    failure = _mistake(EACH_TURN, want)
    if failure is not None:
        return failure
    for way in ways:
        if way.mode.interpret and FAILS.search(text):
            continue
        if way is NUMPY and (OF_LAZYT.search(text) or JUMPS.search(text)):
            continue
        got, kept_here = long_events(code, way)
        expected = want
        if way.mode.interpret:
            expected = interpreted = interpreted or long_events(code, INTERPRETED_EACH)[0]
        loose = 0.0
        if kept or kept_here or way is NUMPY or way is DIVIDED or INEXACT.search(text):
            loose = APART["bfloat16"] if "autocast" in text else APART["float64"]
        failure = _mistake(way, got) or _difference(way, expected, got, loose, bool(JUMPS.search(text)))
        if failure is not None:
            return failure
    return None


def _mistake(way: Way, got: Sequence[Event]) -> Failure | None:
    wrong = next((e for e in got if e.ours), None)
    if wrong is None:
        return None
    what = "memory" if wrong.what == "bytes left" else "an error of lazyt's own"
    return Failure(f"long, {way}: {what}", "", f"{way}: {_short(wrong)}", line=wrong.turn)


def _difference(way: Way, want: list[Event], got: list[Event], loose: float, jumps: bool) -> Failure | None:
    if way is NUMPY:
        want, got = ([e for e in events if e.what == "see"] for events in (want, got))
    for e, a in zip(want, got, strict=False):
        if (e.what, e.line, e.turn, len(e.values)) != (a.what, a.line, a.turn, len(a.values)):
            return Failure(f"long, {way}: other events", e.what, f"{way}: {_short(a)}\n  expected: {_short(e)}")
        if not all(_agree(x, y, loose, jumps, way is NUMPY) for x, y in zip(e.values, a.values, strict=True)):
            text = f"{way}: {_short(a)}\n  expected: {_short(e)}"
            return Failure(f"long, {way}: {e.what}", e.what, text, line=a.turn)
    if len(want) != len(got):
        return Failure(f"long, {way}: end", "", f"{way}: {len(got)} events, not {len(want)}")
    return None


def _agree(e: Any, a: Any, loose: float, jumps: bool, of_numpy: bool) -> bool:
    numbers = (np.ndarray, np.generic, float)
    if isinstance(e, numbers) and isinstance(a, numbers) and (of_numpy or type(e) is type(a)):
        x, y = np.asarray(e), np.asarray(a)
        if of_numpy and x.shape == y.shape and dtypes.kind(x.dtype) == dtypes.kind(y.dtype) == "f":
            x, y = np.float64(x), np.float64(y)  # type: ignore[assignment]
            wide = isinstance(e, np.ndarray | np.generic) and e.dtype == np.float64
            return _close(x, y, APART["float64" if wide else "float32"])
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            return False
        if dtypes.kind(x.dtype) not in "fc":
            return x.tolist() == y.tolist() or bool(loose and jumps)
        return same_bits(x, y) or bool(loose and (jumps or _close(x, y, max(loose, APART[str(x.dtype)]))))
    if isinstance(e, list) and isinstance(a, list):
        return len(e) == len(a) and all(_agree(x, y, loose, jumps, of_numpy) for x, y in zip(e, a, strict=True))
    if isinstance(e, str) and loose:
        return isinstance(a, str)
    return type(e) is type(a) and (e == a or (e != e and a != a))


def _close(x: Any, y: Any, apart: float) -> bool:
    x, y = np.asarray(x, np.complex128), np.asarray(y, np.complex128)
    if not np.array_equal(np.isfinite(x), np.isfinite(y)):
        return False
    fine = np.isfinite(x)
    scale = max(1.0, float(np.max(np.abs(x[fine]), initial=0)))
    return bool(np.all(np.abs(x[fine] - y[fine]) <= apart * scale))


# NOTE: what is known to be wrong, and is not reported: a pattern of the failure, one of the program, and why.
KNOWN: tuple[tuple[re.Pattern[str], re.Pattern[str], str], ...] = ()


def is_known(failure: Failure, lines: Sequence[str]) -> bool:
    """Whether a failure stands in the table of known ones."""
    what, text = f"{failure.kind} {failure.message}", "\n".join(lines)
    return any(of.search(what) and program.search(text) for of, program, _ in KNOWN)


def again_long(lines: Sequence[str], failure: Failure) -> Failure | None:
    """Run a program as far as it takes to see whether it fails in the same way."""
    ways = [w for w in WAYS if failure.kind.startswith(f"long, {w}:")]
    try:
        return check_long(lines, ways)
    except SyntaxError:
        return None


_SCRIPT = '''"""{title}: a long program that tells something else when nobody reads it for a while."""
from tests.support.fuzz.long import check_long

failure = check_long("""
{lines}
""")
assert failure is None, failure.message
'''


def long_script(title: str, lines: Sequence[str]) -> str:
    """A script that runs a program in every way, and fails while they differ."""
    return _SCRIPT.format(title=title, lines="\n".join(lines).replace("\\", "\\\\"))


class Long(Kind):
    """Loops whose values go unread for a while."""

    name = "long"
    agrees = "itself, synced each iteration"

    def write(self, seed: int, tell: Callable[[list[str]], None]) -> LongWriter:
        """The writer of the program of a seed, done."""
        w = LongWriter(random.Random(seed).randrange)
        w.program()
        return w

    def run(self, seed: int, writer: LongWriter, covered: Any) -> Failure | None:
        """Run it in the ways of its seed."""
        covered.modes.update(f"long, {way}" for way in ways_of(seed))
        covered.families[writer.family] += 1
        return check_long(writer.lines, ways_of(seed))

    check = staticmethod(check_long)
    again = staticmethod(again_long)
    shrink = staticmethod(shrink_lines)
    script = staticmethod(long_script)
    includes = staticmethod(is_long)

    def is_known(self, failure: Failure, lines: Sequence[str]) -> bool:
        """Whether a failure stands in the table of known ones."""
        return is_known(failure, lines)


LONG = Long()
register(LONG)
