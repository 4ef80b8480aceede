"""The long search: random programs until the time is over, in processes that may crash; what is found is made small."""

from __future__ import annotations

import multiprocessing
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, TextIO

import numpy as np

from lazyt.testing import array_programs, mixed_programs, view_programs
from lazyt.testing.modes import EAGER, mode
from lazyt.testing.scripts import script
from lazyt.testing.shrink import shrink
from lazyt.testing.statements import MODES, Failure, Stopped, beside_numpy, check, in_modes

# A program that takes longer than this hangs.
HANGS = 180.0
LENGTH = 12


@dataclass(frozen=True)
class Found:
    """A failing program: as it was written, as it was made small, and how it fails."""

    seed: int
    lines: list[str]
    small: list[str]
    failure: Failure

    def script(self) -> str:
        """The small program as a script that shows NumPy's result and lazyt's, and exits with 1 while they differ."""
        return script(f"Seed {self.seed}", self.small, self.failure)


def write(seed: int, length: int = LENGTH, tell: Callable[[list[str]], None] | None = None) -> list[str]:
    """The statements of the program of a seed. Raises `Unwritten` where lazyt fails while it is being written.

    `tell` is called with the statements so far before each one is run.
    """
    rng = random.Random(seed)

    def pick(n: int) -> int:
        return rng.randrange(n)

    kind = seed % 6
    if kind == 5:
        views = view_programs.Writer(pick)
        with np.errstate(all="ignore"):
            views.program(length, syncs=True)
        return views.lines
    w = array_programs.Writer(pick) if kind == 4 else mixed_programs.MixedWriter(pick)
    w.tell = tell or w.tell
    with mode(EAGER):
        try:
            w.program(length)
        except Exception as e:
            tried = getattr(w, "trying", "")
            if not tried:
                raise
            raise Unwritten([*w.lines, tried], f"{type(e).__name__}: {e}") from e
    return w.lines


class Unwritten(Exception):
    """lazyt failed, and did not refuse, on the last of these statements."""

    def __init__(self, lines: list[str], why: str) -> None:
        super().__init__(why)
        self.lines = lines


def try_seed(seed: int, seconds: float = 60.0, tell: Callable[[list[str]], None] = lambda lines: None) -> Found | None:
    """Write the program of a seed, run it, and make it small if it fails; `tell` hears of what is run."""
    try:
        lines = write(seed, tell=tell)
    except Unwritten as e:
        lines = e.lines
    tell(lines)
    try:
        failure = check(lines)
    except Stopped:
        return None
    return None if failure is None else small(seed, lines, failure, lambda x: recheck(x, failure), seconds)


def small(
    seed: int, lines: list[str], failure: Failure, again: Callable[[list[str]], Failure | None], seconds: float
) -> Found:
    """The failing program, shrunk for as long as `again` gives a failure of the same kind."""
    # What follows the statement that failed has no part in it.
    known = lines[: failure.line + 1] if failure.kind in ("numpy", "raises") else lines
    best = shrink(known, lambda x: failure.same(again(x)), seconds)
    return Found(seed, lines, best, again(best) or failure)


def recheck(lines: Sequence[str], failure: Failure) -> Failure | None:
    """Run a program as far as it takes to see whether it fails in the same way."""
    try:
        values, first, tainted = beside_numpy(lines)
    except (Stopped, SyntaxError):
        return None
    if first is not None:
        return first
    same = [m for m in MODES if str(m) == failure.kind]
    return in_modes(lines, values, tainted, same)


# --- many programs ------------------------------------------------------------------------------------------------


def _worker(pipe: Connection) -> None:
    """Try the seeds that come, until None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while (task := pipe.recv()) is not None:
        kind, what = task
        if kind == "seed":
            pipe.send(("done", try_seed(what, tell=lambda lines: pipe.send(("runs", lines)))))
        else:
            try:
                pipe.send(("done", check(what)))
            except (Stopped, SyntaxError):
                pipe.send(("done", None))


class Worker:
    """A process that tries one program at a time."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_worker, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.seed = -1
        self.waited = 0.0  # for its program
        self.lines: list[str] = []  # what it runs

    def start(self, seed: int) -> None:
        """Try a seed."""
        self.seed, self.waited = seed, 0.0
        self.lines = []
        self.pipe.send(("seed", seed))

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def ended(self) -> str:
        """How the process died."""
        self.process.join()
        code = self.process.exitcode or 0
        return f"the process died of {signal.Signals(-code).name}" if code < 0 else f"the process ended with {code}"


def check_apart(lines: list[str], seconds: float = HANGS) -> Failure | None:
    """Check a program in a process of its own, because it crashes or hangs."""
    w = Worker()
    w.pipe.send(("lines", lines))
    try:
        # NOTE: many short waits: time in which the machine, or all of its processes, stood still does not count.
        if not any(w.pipe.poll(1.0) for _ in range(max(int(seconds), 1))):
            return Failure("hangs", "", f"no result after {seconds:.0f} s")
        answer: Failure | None = w.pipe.recv()[1]
        return answer
    except EOFError:
        return Failure("crashes", "", w.ended())
    finally:
        w.stop()


@dataclass
class Search:
    """A search under way: what has been tried and found."""

    seed: int
    jobs: int = 1
    out: TextIO = field(default_factory=lambda: sys.stdout)
    tried: int = 0
    found: list[Found] = field(default_factory=list)
    again: int = 0  # findings like one before
    shown: float = 0.0
    quiet: bool = False
    lines: list[str] = field(default_factory=list)  # of the last program

    def run(self, seconds: float, most: int | None = None) -> list[Found]:
        """Try seeds until `seconds` are over or `most` were tried; what was found."""
        began = time.monotonic()
        end = began + seconds
        nxt = self.seed
        workers: list[Worker] = []
        try:
            while True:
                more = time.monotonic() < end and (most is None or nxt - self.seed < most)
                if more and len(workers) < self.jobs:
                    workers.append(Worker())
                    workers[-1].start(nxt)
                    nxt += 1
                    continue
                busy = [w for w in workers if w.seed >= 0]
                if not busy:
                    return self.found
                asked = time.monotonic()
                ready = wait([w.pipe for w in busy], timeout=1.0)
                for w in busy:
                    done = w.pipe in ready
                    w.waited += min(time.monotonic() - asked, 2.0)
                    if done or w.waited > HANGS + 60:
                        gone = self._take(w, done)
                        if gone is None:
                            continue
                        if gone:
                            workers.remove(w)
                            continue
                        w.seed = -1
                        if time.monotonic() < end and (most is None or nxt - self.seed < most):
                            w.start(nxt)
                            nxt += 1
                self._progress(time.monotonic() - began, seconds)
        finally:
            for w in workers:
                w.stop()
            self._progress(time.monotonic() - began, seconds, last=True)

    def _take(self, w: Worker, done: bool) -> bool | None:
        """What a worker has to say: None while it goes on with its program, else whether the process is gone."""
        if done:
            try:
                what, found = w.pipe.recv()
            except EOFError:
                self.tried += 1
                self._report(self._apart(w, Failure("crashes", "", w.ended())))
                w.stop()
                return True
            if what == "runs":
                self.lines = w.lines = found
                return None
            self.tried += 1
            if found is not None:
                self._report(found)
            return False
        self.tried += 1
        w.stop()
        failure = check_apart(w.lines)
        if failure is not None:
            self._report(self._apart(w, failure))
        return True

    def _apart(self, w: Worker, failure: Failure) -> Found:
        """A program that kills its process, made small in processes of its own."""
        return small(w.seed, w.lines, failure, lambda x: check_apart(x, 30.0), 120.0)

    def _report(self, found: Found) -> None:
        signature = (found.failure.kind, _calls(found.small[-1]))
        if any(signature == (f.failure.kind, _calls(f.small[-1])) for f in self.found):
            self.again += 1
            return
        self.found.append(found)
        if self.quiet:
            return
        rule = "-" * 100
        print(
            f"{rule}\nfound: seed {found.seed}: {found.failure.message}\n\n{found.script()}\n{rule}",
            file=self.out,
            flush=True,
        )

    def _progress(self, now: float, seconds: float, last: bool = False) -> None:
        tty = self.out.isatty()
        if self.quiet or (not last and now - self.shown < (1 if tty else 30)):
            return
        self.shown = now
        twice = f" ({self.again} more of the same kind)" if self.again else ""
        text = f"{self.tried:,} programs, {len(self.found)} found{twice}, {_clock(now)} of {_clock(seconds)}"
        print(f"\r{text}" if tty else text, end="" if tty and not last else "\n", file=self.out, flush=True)


def _calls(line: str) -> tuple[str, ...]:
    return tuple(sorted(set(mixed_programs.CALLED.findall(line))))


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def replay(seed: int, out: Any = None) -> Found | None:
    """Print the program of a seed, run it, and print it small if it fails."""
    out = out or sys.stdout
    search = Search(seed, out=out, quiet=True)
    search.run(HANGS + 60, most=1)
    print("\n".join(search.lines), file=out, flush=True)
    if not search.found:
        print("\nlazyt agrees with NumPy, in every mode", file=out)
        return None
    found = search.found[0]
    print(f"\n{found.failure.message}\n\n{found.script()}", file=out)
    return found
