"""The long search: random programs until the time is over, in processes that may crash; failures are reduced."""

from __future__ import annotations

import faulthandler
import gc
import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TextIO

from lazyt.testing.kinds import KINDS, is_known, kind_of_lines, modules
from lazyt.testing.seeds import Coverage, Found, small, small_of, try_seed
from lazyt.testing.statements import Failure, Stopped, check

# A program that takes longer than this hangs.
HANGS = 180.0
# Seeds that a process tries before it reports.
BATCH = 32
# Space for the statements of the running program.
TEXT = 1 << 16
# Memory of a process that no program needs; a process that has this much after many programs is replaced.
GROWS, FULL = 4 << 30, 2 << 30


class Board:
    """What a process tries at the moment, in memory that outlives it: a seed and the statements that run."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.seed = context.Value("q", -1, lock=False)
        self.size = context.Value("q", 0, lock=False)
        self.text = context.Array("c", TEXT, lock=False)

    def tell(self, lines: list[str]) -> None:
        """These statements run next."""
        data = "\n".join(lines).encode()[:TEXT]
        self.size.value = 0
        self.text[: len(data)] = data
        self.size.value = len(data)

    @property
    def lines(self) -> list[str]:
        """The statements that ran last."""
        return bytes(self.text[: self.size.value]).decode().split("\n") if self.size.value else []


def _worker(pipe: Any, board: Board, stacks: str, kind: str, kinds: list[str]) -> None:
    """Try the seeds that come, until None. A crash, and SIGUSR1, write every thread's stack into the file `stacks`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in kinds:
        importlib.import_module(module)
    known: set[tuple[str, ...]] = set()
    with open(stacks, "w") as log:
        faulthandler.enable(log)
        faulthandler.register(signal.SIGUSR1, log)
        gc.freeze()  # programs collect often: what was imported is not looked at each time
        while (task := pipe.recv()) is not None:
            asked, what = task
            if asked == "seeds":
                covered = Coverage()
                for seed in what:
                    board.seed.value = seed
                    found = try_seed(seed, tell=board.tell, covered=covered, known=known, kind=kind)
                    if found is not None:
                        pipe.send(("found", found))
                pipe.send(("done", covered))
            else:
                try:
                    of = KINDS.get(kind) or kind_of_lines(what)
                    pipe.send(("done", check(what) if of is None else of.check(what)))
                except (Stopped, SyntaxError):
                    pipe.send(("done", None))


class Worker:
    """A process that tries one program at a time."""

    def __init__(self, kind: str = "") -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.board = Board()
        handle, self.log = tempfile.mkstemp(".stacks")
        os.close(handle)
        about = (theirs, self.board, self.log, kind, modules())
        self.process = context.Process(target=_worker, args=about, daemon=True)
        self.process.start()
        theirs.close()
        self.seeds: list[int] = []  # what it was given
        self.at = -1  # the seed that it tries
        self.waited = 0.0  # for its program

    def start(self, seeds: list[int]) -> None:
        """Try some seeds."""
        self.seeds, self.at, self.waited = seeds, -1, 0.0
        self.board.seed.value = seeds[0]
        self.pipe.send(("seeds", seeds))

    def left(self) -> list[int]:
        """The seeds that come after the one that it tries."""
        return [s for s in self.seeds if s > self.board.seed.value]

    def wait(self, seconds: float) -> bool:
        """Whether its program runs for too long, once it was waited for so much longer."""
        if self.board.seed.value != self.at:
            self.at, self.waited = self.board.seed.value, 0.0
        self.waited += seconds
        return self.waited > HANGS + 60

    def resident(self) -> int:
        """Bytes of memory that the process has; 0 where the system does not say."""
        try:
            return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0  # it ended just now, or this is no Linux

    def stacks(self, ask: bool = False) -> str:
        """What every thread did when the process crashed, or does now."""
        if ask and self.process.is_alive() and self.process.pid is not None:
            os.kill(self.process.pid, signal.SIGUSR1)
            time.sleep(1.0)
        return Path(self.log).read_text()[-20000:]

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()
        Path(self.log).unlink(missing_ok=True)

    def ended(self) -> str:
        """How the process died."""
        self.process.join()
        code = self.process.exitcode or 0
        return f"the process died of {signal.Signals(-code).name}" if code < 0 else f"the process ended with {code}"


def check_apart(lines: list[str], seconds: float = HANGS, kind: str = "") -> Failure | None:
    """Check a program in a process of its own, because it crashes or hangs."""
    w = Worker(kind)
    w.pipe.send(("lines", lines))
    try:
        # NOTE: many short waits: time in which the machine, or all of its processes, stood still does not count.
        if not any(w.pipe.poll(1.0) for _ in range(max(int(seconds), 1))):
            return Failure("hangs", "", f"no result after {seconds:.0f} s\n{w.stacks(ask=True)}")
        answer: Failure | None = w.pipe.recv()[1]
        return answer
    except EOFError:
        return Failure("crashes", "", f"{w.ended()}\n{w.stacks()}")
    finally:
        w.stop()


@dataclass
class Search:
    """A search under way: what has been tried and found."""

    seed: int
    jobs: int = 1
    kind: str = ""  # of all programs, a registered one; otherwise each seed says its own
    out: TextIO = field(default_factory=lambda: sys.stdout)
    found: list[Found] = field(default_factory=list)
    covered: Coverage = field(default_factory=Coverage)
    again: int = 0  # findings like one before
    known: int = 0  # findings that stand in the table of known ones
    shown: float = 0.0
    quiet: bool = False
    counts: bool = True  # what was covered is printed at the end
    lines: list[str] = field(default_factory=list)  # of the last program
    slowest: tuple[float, int] = (0.0, -1)  # seconds, seed

    @property
    def tried(self) -> int:
        """How many programs were tried."""
        return sum(n for kind, n in self.covered.programs.items() if kind not in ("refused", "at a kink"))

    def run(self, seconds: float, most: int | None = None) -> list[Found]:
        """Try seeds until `seconds` are over or `most` were tried; what was found."""
        began = time.monotonic()
        end = began + seconds
        given = 0
        left: list[int] = []  # of processes that died
        workers: list[Worker] = []

        def batch() -> list[int]:
            nonlocal given, left
            if time.monotonic() >= end:
                return []
            if left:
                out, left = left, []
                return out
            n = BATCH if most is None else min(BATCH, most - given)
            given += n
            return list(range(self.seed + given - n, self.seed + given))

        try:
            while True:
                if len(workers) < self.jobs and (seeds := batch()):
                    workers.append(Worker(self.kind))
                    workers[-1].start(seeds)
                    continue
                busy = [w for w in workers if w.seeds]
                if not busy:
                    return self.found
                asked = time.monotonic()
                ready = wait([w.pipe for w in busy], timeout=1.0)
                passed = min(time.monotonic() - asked, 2.0)
                for w in busy:
                    self.slowest = max(self.slowest, (w.waited, w.at))
                    hangs = w.wait(passed) or (w.board.size.value and w.resident() > GROWS)
                    if w.pipe not in ready and not hangs:
                        continue
                    if self._take(w, w.pipe in ready):
                        left += w.left()
                        workers.remove(w)
                    elif not w.seeds and w.resident() > FULL:
                        self.covered.programs["processes replaced"] += 1
                        w.stop()
                        workers.remove(w)
                    elif not w.seeds and (seeds := batch()):
                        w.start(seeds)
                self._progress(time.monotonic() - began, seconds)
        finally:
            for w in workers:
                self.lines = w.board.lines
                w.stop()
            self._progress(time.monotonic() - began, seconds, last=True)

    def _take(self, w: Worker, done: bool) -> bool:
        """What a worker has to say; whether its process is gone."""
        if done:
            try:
                what, told = w.pipe.recv()
            except EOFError:
                self.lines = w.board.lines
                self.covered.programs["crashes"] += 1
                self._report(self._apart(w, Failure("crashes", "", f"{w.ended()}\n{w.stacks()}")))
                w.stop()
                return True
            if what == "found":
                self._report(told)
            else:
                self.covered.add(told)
                w.seeds = []
            return False
        if w.resident() > GROWS:
            self.covered.programs["memory"] += 1
            failure = Failure("memory", "", f"the process has {w.resident() >> 20:,} MB\n{w.stacks(ask=True)}")
            self._report(Found(w.board.seed.value, w.board.lines, w.board.lines, failure))
            w.stop()
            return True
        self.covered.programs["hangs"] += 1
        stacks = w.stacks(ask=True)
        w.stop()
        failure = check_apart(w.board.lines, kind=self.kind) or Failure("hangs once", "", f"and not again\n{stacks}")
        self._report(self._apart(w, failure))
        return True

    def _apart(self, w: Worker, failure: Failure) -> Found:
        """A program that kills its process, made small in processes of its own."""
        if is_known(failure, w.board.lines):
            return Found(w.board.seed.value, w.board.lines, w.board.lines, failure)
        seed, lines = w.board.seed.value, w.board.lines
        again = lambda x: check_apart(x, 30.0, self.kind)
        kind = KINDS.get(self.kind) or kind_of_lines(lines)
        if kind is None:
            return small(seed, lines, failure, again, 120.0)
        return small_of(kind, seed, lines, failure, again, 120.0)

    def _report(self, found: Found) -> None:
        if is_known(found.failure, found.small):
            self.known += 1
            return
        signature = found.signature()
        if any(signature == f.signature() for f in self.found):
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
        known = f", {self.known} known" if self.known else ""
        slow = f"; seed {self.slowest[1]} took {self.slowest[0]:.0f} s" if self.slowest[0] > 20 else ""
        found = f"{len(self.found)} found{twice}{known}"
        text = f"{self.tried:,} programs, {found}, {_clock(now)} of {_clock(seconds)}{slow}"
        print(f"\r{text}" if tty else text, end="" if tty and not last else "\n", file=self.out, flush=True)
        if last and self.counts:
            print(self.covered, file=self.out, flush=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def replay(seed: int, out: Any = None, kind: str = "") -> Found | None:
    """Print the program of a seed, run it, and print it small if it fails."""
    out = out or sys.stdout
    search = Search(seed, kind=kind, out=out, quiet=True)
    search.run(HANGS + 60, most=1)
    print("\n".join(search.lines), file=out, flush=True)
    if not search.found:
        of = KINDS.get(kind) or kind_of_lines(search.lines)
        print(f"\nlazyt agrees with {'NumPy, in every mode' if of is None else of.agrees}", file=out)
        return None
    found = search.found[0]
    print(f"\n{found.failure.message}\n\n{found.script()}", file=out)
    return found
