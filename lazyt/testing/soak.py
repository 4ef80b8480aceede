"""A process that lives: it trains small models for as long as it is told, and its memory and latency must stay flat.

Meanwhile operations fail (when they are recorded, and at a sync), real signals interrupt training steps, handlers of
signals use lazyt, batches change their size, models are made and dropped, and threads come and go. After an interrupt
every parameter and its optimizer's state must stand at an edge of a step: the old one or the new one, which a twin
takes without an interrupt. Each interval prints memory and the percentiles of one step that is always the same.

Memory is judged twice: by what the process has, and by what is in use after all that is kept up to a bound (plans,
programs) was dropped, as it is at the end of some intervals. The second finds a leak of some hundred bytes a round.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TextIO

import numpy as np

import lazyt as lt
from lazyt.errors import IndexOutOfRange, LazytError, LazytInternalError, ShapeError
from lazyt.runtime.plan_cache import drop_all
from lazyt.tracing.program import _numbers as numbers
from lazyt.tracing.trace import _free as spare, local

Array = np.ndarray[Any, Any]
F = lt.nn.functional
# A round that takes longer than this hangs: every thread's stack is printed, and the process ends.
HANGS = 180.0
# Memory and latency are flat if the last third of the intervals is no further above an earlier third: for memory the
# second one, because the first fills what is kept up to a bound (plans, above all).
MORE_BYTES, MORE_MEMORY, MORE_TIME = 24 << 20, 1.1, 1.5
# All is dropped after one in so many intervals. What is in use then may be so much more in the last third of these
# measures than in the second. A block of the interpreter's has about so many bytes.
MEASURED, MORE_LEFT, BLOCK_BYTES = 3, 1 << 20, 80
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: lt.optim.SGD(p, lr=0.05),
    "momentum": lambda p: lt.optim.SGD(p, lr=0.05, momentum=0.9),
    "nesterov": lambda p: lt.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "Adam": lambda p: lt.optim.Adam(p, lr=0.02),
    "AdamW": lambda p: lt.optim.AdamW(p, lr=0.02),
    "RMSprop": lambda p: lt.optim.RMSprop(p, lr=0.02),
    "Adagrad": lambda p: lt.optim.Adagrad(p, lr=0.05),
}
KINDS = ("errors", "interrupts", "handlers", "threads", "shapes")


class Wrong(Exception):
    """What must hold does not."""


@dataclass
class Interval:
    """What one interval measured."""

    resident: int  # bytes
    wall: list[float]  # seconds of each probe
    busy: list[float]  # seconds of the thread's processor
    yard: list[float] = field(default_factory=list)  # of a yardstick beside it: other processes slow both down
    left: int = 0  # bytes in use after what is kept up to a bound was dropped, if it was

    def summed_up(self) -> None:
        """Keep the medians alone: what is measured must not grow by its measures."""
        self.wall, self.busy, self.yard = (
            [float(np.median(x))] if x else [] for x in (self.wall, self.busy, self.yard)
        )

    def __str__(self) -> str:
        a, b = (np.percentile(np.array(x or [0.0]) * 1e3, (50, 95, 99)) for x in (self.wall, self.busy))
        dropped = f", {self.left / 2**20:.1f} MB in use after a drop" if self.left else ""
        return (
            f"{self.resident / 2**20:.0f} MB{dropped}; a step p50 {a[0]:.2f} ms, p95 {a[1]:.2f}, p99 {a[2]:.2f}, "
            f"longest {max(self.wall, default=0) * 1e3:.1f} (processor {b[0]:.2f}, {b[1]:.2f}, {b[2]:.2f})"
        )


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class _Malloc(ctypes.Structure):
    """glibc's `struct mallinfo2`: bytes of blocks that have their own mapping, and of those in use."""

    _fields_: ClassVar = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def in_use() -> int:
    """Bytes of blocks in use, the interpreter's by their number and, where the C library is glibc, those of malloc."""
    found = sys.getallocatedblocks() * BLOCK_BYTES
    tell = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if tell is not None:
        tell.restype = _Malloc
        told = tell()
        found += told.uordblks + told.hblkhd
    return found


def forget() -> None:
    """Drop what is kept up to a bound: plans, and the programs of each thread's trie."""
    lt.sync()
    drop_all()
    numbers.clear()
    for trace in (local.trace, local.trace.inner, *spare):
        if trace is not None and trace.empty:
            trace.reset_trie()
            trace.report = trace.ended = None
    lt.memory.empty_cache()
    gc.collect()


def yardstick() -> float:
    """Work of the interpreter that has nothing to do with lazyt, of about a step's time."""
    met = {str(k): [k, float(k)] for k in range(800)}
    return sum(b for _, b in met.values())


class Training:
    """A model of a few layers, its optimizer, and its steps; the same from the same seed."""

    def __init__(self, name: str, layers: int, width: int, seed: int) -> None:
        self.made = name, layers, width, seed
        lt.random.seed(seed)
        some: list[Any] = []
        for _ in range(layers):
            some += [lt.nn.Linear(width, width), lt.nn.LayerNorm(width), lt.nn.Tanh()]
        self.model = lt.nn.Sequential(*some)
        self.optimizer = OPTIMIZERS[name](self.model.parameters())
        self.rng = np.random.default_rng(seed)
        self.width = width
        self.steps = 0

    def batch(self, n: int) -> tuple[Array, Array]:
        """Inputs and targets."""
        made = self.rng.standard_normal((2, n, self.width), np.float32)
        return made[0], made[1]

    def step(self, x: Array, y: Array, every: int = 0) -> None:
        """One training step; the loss is read in one of so many."""
        self.steps += 1
        self.optimizer.zero_grad()
        loss = ((self.model(lt.asarray(x)) - lt.asarray(y)) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        if every and self.steps % every == 0:
            loss.item()

    def state(self) -> dict[str, Array]:
        """Every parameter and what the optimizer knows of it."""
        found = {f"parameter {k}": np.array(v.numpy()) for k, v in self.model.state_dict().items()}
        for i, known in self.optimizer.state_dict()["state"].items():
            found |= {f"{k} of {i}": np.array(v.numpy() if hasattr(v, "numpy") else v) for k, v in known.items()}
        return found

    def twin(self) -> Training:
        """Another one that stands where this one does."""
        other = Training(*self.made)
        other.model.load_state_dict({k: lt.tensor(v.numpy()) for k, v in self.model.state_dict().items()})
        state = self.optimizer.state_dict()
        copied = {
            i: {k: lt.tensor(v.numpy()) if hasattr(v, "numpy") else v for k, v in known.items()}
            for i, known in state["state"].items()
        }
        other.optimizer.load_state_dict({**state, "state": copied})
        return other


def is_at(state: dict[str, Array], edge: dict[str, Array]) -> bool:
    """Whether all of a state is that of an edge of a step: products may group their sums otherwise."""
    return state.keys() == edge.keys() and all(
        state[k].shape == edge[k].shape and np.allclose(state[k], edge[k], 1e-4, 1e-5) for k in state
    )


@dataclass
class Soak:
    """A soak under way."""

    seed: int = 0
    without: frozenset[str] = frozenset()  # of KINDS
    out: TextIO = field(default_factory=lambda: sys.stdout)
    wrong: list[str] = field(default_factory=list)
    did: Counter[str] = field(default_factory=Counter)
    intervals: list[Interval] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.armed = ""  # what the next signal does: "interrupt", "handler"
        self.usual = 0.01  # seconds that a step takes, about
        self.probe = Training("Adam", 2, 16, 1)
        self.probed = self.probe.batch(32)
        self.trained: list[Training] = []

    def run(self, minutes: float, interval: float = 60.0) -> list[str]:
        """Live for so long; what was wrong."""
        usual = signal.signal(signal.SIGALRM, self._signalled)
        try:
            with self._interrupts_that_are_lost():
                for _ in range(20):
                    self._probe(Interval(0, [], []))
                end = time.monotonic() + minutes * 60
                while time.monotonic() < end and len(self.wrong) < 20:
                    self._interval(min(time.monotonic() + interval, end))
        finally:
            faulthandler.cancel_dump_traceback_later()
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, usual)
        self.wrong += self.growth()
        print("flat, and nothing wrong" if not self.wrong else f"{len(self.wrong)} wrong", file=self.out, flush=True)
        return self.wrong

    def growth(self) -> list[str]:
        """What is not flat over the intervals; the first one is left out, in which plans are made."""
        some = self.intervals[1:] if len(self.intervals) > 3 else self.intervals
        third = max(len(some) // 3, 1)
        if len(some) < 3:
            return []
        first, second, last = some[:third], some[third : 2 * third], some[-third:]
        found = []
        before, after = (float(np.median([i.resident for i in x])) for x in (second, last))
        if after > before * MORE_MEMORY and after > before + MORE_BYTES:
            found.append(
                f"memory grows: {before / 2**20:.0f} MB in the second third, {after / 2**20:.0f} MB in the last"
            )
        before, after = (float(np.median([t for i in x for t in i.busy])) for x in (first, last))
        slower = [float(np.median([t for i in x for t in i.yard] or [1.0])) for x in (first, last)]
        if after / slower[1] > before / slower[0] * MORE_TIME:
            found.append(
                f"a step takes longer: {before * 1e3:.2f} ms in the first third, {after * 1e3:.2f} ms in the last, "
                f"where a yardstick takes {slower[1] / slower[0]:.2f} of what it did"
            )
        left = [i.left for i in self.intervals if i.left]
        third = len(left) // 3
        if third:
            before, after = float(np.median(left[third : 2 * third])), float(np.median(left[-third:]))
            if after > before + MORE_LEFT:
                found.append(
                    f"what a drop leaves grows: {before / 2**20:.1f} MB in use in the second third, "
                    f"{after / 2**20:.1f} MB in the last"
                )
        for text in found:
            print(text, file=self.out, flush=True)
        return found

    def _interval(self, end: float) -> None:
        it = Interval(0, [], [])
        did = Counter(self.did)
        while time.monotonic() < end and len(self.wrong) < 20:
            faulthandler.dump_traceback_later(HANGS, exit=True, file=sys.__stderr__ or 2)
            try:
                self._round()
                for _ in range(5):
                    self._probe(it)
            except Exception as e:  # noqa: BLE001 - what is wrong is what is looked for; it is reported
                self._report(e)
        it.resident = resident()
        if (len(self.intervals) + 1) % MEASURED == 0:
            forget()
            it.left = in_use()
        self.intervals.append(it)
        counts = ", ".join(f"{n} {k}" for k, n in (self.did - did).items())
        print(f"{len(self.intervals)}: {it}; {counts}", file=self.out, flush=True)
        it.summed_up()

    def _report(self, e: BaseException) -> None:
        t, lines = e.__traceback__, []
        while t is not None:
            lines.append(f"    {t.tb_frame.f_code.co_filename}:{t.tb_lineno} {t.tb_frame.f_code.co_name}")
            t = t.tb_next
        text = f"{type(e).__name__}: {e}"
        self.wrong.append(text)
        print(f"wrong: {text}\n" + "\n".join(lines[-12:]), file=self.out, flush=True)
        self.trained.clear()

    def _probe(self, it: Interval) -> None:
        """The step that is always the same, timed."""
        wall, busy = time.perf_counter(), time.thread_time()
        self.probe.step(*self.probed, every=1)
        it.wall.append(time.perf_counter() - wall)
        it.busy.append(time.thread_time() - busy)
        busy = time.thread_time()
        yardstick()
        it.yard.append(time.thread_time() - busy)
        self.did["probes"] += 1
        self.usual = 0.9 * self.usual + 0.1 * it.wall[-1]

    def _round(self) -> None:
        """Some steps of one model, and one disturbance."""
        if len(self.trained) < 4 or self.rng.random() < 0.05:
            # NOTE: few forms of models and of rounds: each has plans of its own, a megabyte with their code, which are
            # kept. Memory is flat once every form was there.
            name = self.rng.choice(list(OPTIMIZERS))
            layers = 1 + list(OPTIMIZERS).index(name) % 2
            self.trained = [*self.trained[-3:], Training(name, layers, 8, self.rng.randrange(99))]
            self.did["models"] += 1
        t = self.rng.choice(self.trained)
        n = 4 if "shapes" in self.without else self.rng.choice((1, 2, 3, 8, 5))
        for _ in range(3):
            t.step(*t.batch(n), every=len(t.made[0]) % 3 + 1)
            self.did["steps"] += 1
        lt.sync()
        what = self.rng.choice(KINDS)
        if what not in self.without:
            self.did[what] += 1
            {
                "errors": self._errors, "interrupts": self._interrupted, "handlers": self._handled,
                "threads": self._threads, "shapes": self._shapes,
            }[what](t)  # fmt: skip
            lt.sync()
        if self.rng.random() < 0.02:
            gc.collect()

    def _errors(self, t: Training) -> None:
        """Operations that fail, with a step pending."""
        t.step(*t.batch(4))
        w = t.model.state_dict()["0.weight"]
        for fails, kind in (
            (lambda: w @ lt.ones((77, 9)), ShapeError),
            (lambda: lt.take(w * 2, lt.asarray([10**6]), axis=0).numpy(), IndexOutOfRange),
            (lambda: lt.linalg.inv(w * 0).numpy(), np.linalg.LinAlgError),
            (lambda: (w * 2)[lt.asarray([3, 99])].sum().item(), IndexOutOfRange),
        ):
            try:
                fails()
            except kind:
                continue
            raise Wrong(f"no {kind.__name__} was raised")

    def _shapes(self, t: Training) -> None:
        """Batches of sizes that were not there before, and an empty one."""
        for n in (self.rng.randrange(2, 40), 0, 1):
            x = lt.asarray(t.batch(n)[0])
            if t.model(x).shape != (n, t.width) or (n and not np.isfinite(float(t.model(x).sum()))):
                raise Wrong(f"a batch of {n} has another result")

    def _threads(self, t: Training) -> None:
        """Threads that compute of their own, and read what this one has pending."""
        shared = lt.asarray(np.arange(8.0)) * 2
        found: list[Any] = []

        def work(k: int) -> None:
            try:
                own = lt.asarray(np.arange(6.0)) + k
                for _ in range(3):
                    own = lt.tanh(own) * 0.5
                found.append(float(shared.sum()) + float((own * 0).sum()))
            except Exception as e:  # noqa: BLE001 - reported by the thread that waits
                found.append(e)

        some = [threading.Thread(target=work, args=(k,)) for k in range(3)]
        for each in some:
            each.start()
        t.step(*t.batch(3), every=1)
        for each in some:
            each.join()
        if found != [56.0] * 3:
            raise Wrong(f"threads read {found!r}, not 56.0 each")

    def _interrupted(self, t: Training) -> None:
        """An interrupt by a signal, anywhere in a step: all of the state is the old one or the new one."""
        self._signal(t, "interrupt")

    def _handled(self, t: Training) -> None:
        """A signal whose handler uses lazyt, anywhere in a step: it harms nothing."""
        self._signal(t, "handler")

    def _signal(self, t: Training, what: str) -> None:
        other, old = t.twin(), t.state()
        x, y = t.batch(self.rng.choice((2, 5)))
        interrupted = False
        try:
            self.armed = what
            signal.setitimer(signal.ITIMER_REAL, max(self.rng.random() * 2 * self.usual, 1e-5))
            t.step(x, y, every=self.rng.randrange(2))
            self.armed = ""
        except KeyboardInterrupt:
            interrupted = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.armed = ""
        self.did["interrupted"] += interrupted
        other.step(x, y)
        state, new = t.state(), other.state()
        if not (is_at(state, new) or (interrupted and is_at(state, old))):
            some = [k for k in state if k not in new or not is_at({k: state[k]}, {k: new[k]})]
            also = [k for k in state if k not in old or not is_at({k: state[k]}, {k: old[k]})]
            raise Wrong(
                f"{t.made[0]}: neither the old step ({also} differ) nor the new one ({some} differ) after {what}"
            )
        self.did["edges"] += 1

    def _signalled(self, number: int, frame: Any) -> None:
        what, self.armed = self.armed, ""
        if what == "interrupt":
            raise KeyboardInterrupt
        if what == "handler":
            try:
                found = float((lt.asarray([1.0, 2.0, 3.0]) * 2).sum())
            except LazytInternalError:
                raise
            except LazytError:
                return  # a clear refusal is as good
            if found != 12.0:
                raise Wrong(f"a handler computed {found}, not 12.0")

    @contextlib.contextmanager
    def _interrupts_that_are_lost(self) -> Iterator[None]:
        """Count the interrupts that fall into a `__del__` or a callback, where CPython drops them."""
        usual = sys.unraisablehook

        def hook(what: Any) -> None:
            if what.exc_type is KeyboardInterrupt:
                self.did["lost interrupts"] += 1
            else:
                usual(what)

        sys.unraisablehook = hook
        try:
            yield
        finally:
            sys.unraisablehook = usual
