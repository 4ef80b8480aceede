"""A worker from the outside: started, asked for turns, stopped while others have theirs.

Whoever waits for a turn is stopped by a signal, not asked to be quiet: the OpenMP threads of a library spin for some
milliseconds after their work, and a processor that spins is one that the other does not have. Each library so keeps
the waiting policy that its users get (a passive one costs PyTorch a fifth of its speed on a small network).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from benchmarks.core import Result
from benchmarks.peers import THREAD_VARIABLES, cache_variables
from benchmarks.worker import Spec, processors

TOP = Path(__file__).parent.parent
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class WorkerFailed(Exception):
    """A worker said that it cannot, died, or took too long."""


class Worker:
    """One process, from its start; `ready` is what it found of the first calls. A context manager."""

    def __init__(self, spec: Spec, timeout: float, caches: Path | None = None) -> None:
        self.spec, self.timeout = spec, timeout
        self._caches = tempfile.TemporaryDirectory(prefix="lazyt-bench-", ignore_cleanup_errors=True)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed in close()
        self._rest = b""
        self._stopped = False
        environment = {
            **os.environ,
            **dict.fromkeys(THREAD_VARIABLES, str(spec.threads)),
            **cache_variables(caches or Path(self._caches.name)),
            "PYTHONPATH": os.pathsep.join([str(TOP), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        # What is installed has its bytecode; a source tree has it from its second start on, if it may.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-m", "benchmarks.worker", json.dumps(dataclasses.asdict(spec))]
        self.started = time.perf_counter()
        self._process = subprocess.Popen(
            command, env=environment, cwd=TOP, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def wait_first(self) -> float:
        """Seconds from the process's start to the end of its first call."""
        self._answer("first")
        return time.perf_counter() - self.started

    def wait_ready(self) -> Result:
        """What was found, once results are checked."""
        return Result(**self._answer("ready"))

    def turn(self, untimed: int, least: int, seconds: float) -> list[float]:
        """Seconds of each call of a turn."""
        return self.turn_with_notes(untimed, least, seconds)[0]

    def turn_with_notes(self, untimed: int, least: int, seconds: float) -> tuple[list[float], dict[str, Any]]:
        """The same, and the workload's notes."""
        self.resume()
        request = json.dumps({"untimed": untimed, "least": least, "seconds": seconds})
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(request.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerFailed(self._why()) from None
        answer = self._answer("times", whole=True)
        return answer["times"], answer["notes"]

    def pause(self) -> None:
        """Stop it, all of its threads."""
        if not self._stopped and hasattr(signal, "SIGSTOP"):
            self._process.send_signal(signal.SIGSTOP)
            self._stopped = True

    def resume(self) -> None:
        """Let it run again."""
        if self._stopped:
            self._process.send_signal(signal.SIGCONT)
            self._stopped = False

    def processor_seconds(self) -> float:
        """What it has used of processors so far; 0 where the system does not tell."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / TICKS

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            assert stream is not None
            # NOTE: a request that a dead process did not read is written again when its pipe is closed.
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self._caches.cleanup()

    def _answer(self, key: str, whole: bool = False) -> Any:
        answer = json.loads(self._line())
        if "failure" in answer:
            raise WorkerFailed(answer["failure"])
        assert key in answer, f"the worker answered {sorted(answer)}, not {key}"
        return answer if whole else answer[key]

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        stop = time.monotonic() + self.timeout
        while b"\n" not in self._rest:
            left = stop - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise WorkerFailed(f"no answer in {self.timeout:.0f} s")
            some = os.read(self._process.stdout.fileno(), 1 << 16)
            if not some:
                raise WorkerFailed(self._why())
            self._rest += some
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _why(self) -> str:
        """The last line of what a dead process said."""
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return (lines or [f"exit status {status}"])[-1][:300]


class Others:
    """How much of the workers' processors programs have, other than this one and the workers, from here on."""

    def __init__(self, workers: Sequence[Worker | Starter], threads: int) -> None:
        self.workers = workers
        self.names = {f"cpu{i}" for i in processors(threads)}
        self.started, self.before = time.perf_counter(), self._seconds()

    def share(self) -> float:
        """What others had of them, and what the host gave to other guests; 0 where nobody tells."""
        elapsed = (time.perf_counter() - self.started) * max(len(self.names), 1)
        return max(0.0, self._seconds() - self.before) / elapsed

    def _seconds(self) -> float:
        try:
            lines = [x.split() for x in Path("/proc/stat").read_text().splitlines()]
        except FileNotFoundError:
            return 0.0
        # user, nice, system, (idle, waiting,) interrupts of two kinds, stolen
        busy = sum(int(x[i]) for x in lines if x and x[0] in self.names for i in (1, 2, 3, 6, 7, 8))
        mine = sum(os.times()[:4]) + sum(w.processor_seconds() for w in self.workers)
        return busy / TICKS - mine


class Starter:
    """The same turns where what is timed is a new process: from its start to its first result."""

    def __init__(self, spec: Spec, timeout: float, warm: bool) -> None:
        self.spec, self.timeout = spec, timeout
        self._caches = tempfile.TemporaryDirectory(prefix="lazyt-bench-", ignore_cleanup_errors=True)
        self._warm = Path(self._caches.name) if warm else None

    def wait_ready(self) -> Result:
        """One start, checked; it fills the caches for warm ones."""
        with Worker(self.spec, self.timeout, self._warm) as worker:
            first = worker.wait_first()
            return dataclasses.replace(worker.wait_ready(), first=first)

    def turn(self, untimed: int, least: int, seconds: float) -> list[float]:
        """Seconds of each start."""
        times: list[float] = []
        for _ in range(least):
            with Worker(self.spec, self.timeout, self._warm) as worker:
                times.append(worker.wait_first())
        return times

    def pause(self) -> None:
        """Between turns there is no process."""

    def processor_seconds(self) -> float:
        """They are ended before they are asked, so they are counted with what this process has waited for."""
        return 0.0

    def close(self) -> None:
        """Remove the caches."""
        self._caches.cleanup()
