"""The two protocols: each library alone (the survey), then lazyt and the best peer taking turns (the duel)."""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from benchmarks.core import LIMITS, Duel, Inputs, Result, Workload, in_float64
from benchmarks.process import Others, Starter, Worker, WorkerFailed
from benchmarks.stats import bounds, disturbed, quartiles
from benchmarks.targets import TARGETS
from benchmarks.worker import Spec, save_reference

TRIES = 3  # how often lazyt and the best peer take their turns again, where others disturb them
# A product that takes so many times its best of the run says that the machine is slow: its host gives both virtual
# processors one core for some seconds, or lowers the clock. How long a row waits for it to be over, and looks again.
SLOW = 1.3
PATIENCE = 60.0
PAUSE = 0.5


@dataclass(frozen=True)
class Setting:
    """How to measure. Seconds are of one survey, and of one turn of a duel."""

    threads: int = 2
    quick: bool = False
    repeats: int = 15
    timeout: float = 300.0
    survey_seconds: float = 1.0
    turn_seconds: float = 0.03
    convolutions: str = "highest"


@dataclass
class Ceiling:
    """What the machine can do: the process that measures it, what a call of it moves or computes, the best time."""

    process: Worker
    amount: float
    best: float

    def take(self, seconds: float) -> float:
        """The best time of another turn of its own."""
        found = min(self.process.turn(1, 1, seconds))
        self.process.pause()
        self.best = min(self.best, found)
        return found

    @property
    def rate(self) -> float:
        """Bytes or operations a second."""
        return self.amount / self.best


def launch(w: Workload, peer: str, setting: Setting, directory: str) -> Worker | Starter:
    """A process for one library on one workload, not waited for."""
    spec = Spec(peer, w.name, setting.threads, setting.quick, directory, setting.convolutions)
    return Starter(spec, setting.timeout, w.start == "warm") if w.start else Worker(spec, setting.timeout)


def survey(
    w: Workload, peer: str, setting: Setting, directory: str, inputs: Inputs
) -> tuple[Result, Worker | Starter | None]:
    """What one library finds alone, and its process, stopped; None where it failed."""
    process = launch(w, peer, setting, directory)
    notes = {}
    try:
        if isinstance(process, Worker):
            process.wait_first()
        result = process.wait_ready()
        if isinstance(process, Starter):
            # The checked start was a cold one; it is enough where starts are slow.
            cold = w.start == "cold"
            times = [result.first] if cold and result.first > 5 else process.turn(0, 1 if setting.quick else 3, 0)
        elif w.fresh:
            times = process.turn(0, 3, 0)
        else:
            times, notes = process.turn_with_notes(0, 3 if setting.quick else 5, setting.survey_seconds)
    except WorkerFailed as e:
        process.close()
        return Result(w.name, peer, failure=str(e)), None
    process.pause()
    unit = w.scale / w.per(inputs)
    low, median, high = (t * unit for t in quartiles(times))
    found = {"best": min(times) * unit, "median": median, "low": low, "high": high, "calls": len(times)}
    return dataclasses.replace(result, **found, notes=notes), process


def duel(
    w: Workload,
    lazyt: Worker | Starter,
    peer: Worker | Starter,
    ceilings: Sequence[Ceiling],
    setting: Setting,
    inputs: Inputs,
    pace: Ceiling | None = None,
) -> Duel:
    """Turns of both, in an order that turns around each time; the machine's limits are measured in between.

    A pair of turns that `pace`, one of the ceilings, finds the machine slow behind is taken again, for as long as the
    row's patience lasts.
    """
    turns: dict[str, list[float]] = {"lazyt": [], "peer": []}
    processes = {"lazyt": lazyt, "peer": peer}
    others = Others([lazyt, peer, *(c.process for c in ceilings)], setting.threads)
    slow, stop = 0, time.perf_counter() + PATIENCE
    while (i := len(turns["peer"])) < setting.repeats:
        order = ("lazyt", "peer") if i % 2 == 0 else ("peer", "lazyt")
        pair = {who: _turn(w, processes[who], setting) for who in order}
        taken = [ceiling.take(setting.turn_seconds) for ceiling in ceilings]
        if pace is not None and taken[ceilings.index(pace)] > SLOW * pace.best:
            if time.perf_counter() < stop:
                time.sleep(PAUSE)
                continue
            slow += 1
        for who in order:
            turns[who].append(pair[who])
    share = others.share()
    ratios = [a / b for a, b in zip(turns["lazyt"], turns["peer"], strict=True)]
    lower, ratio, upper = bounds(ratios)
    unit = w.scale / w.per(inputs)
    target = None if setting.quick else TARGETS.get(w.name)  # it is of the full sizes
    times = (statistics.median(turns[who]) * unit for who in ("lazyt", "peer"))
    slow_share = slow / setting.repeats
    return Duel(w.name, peer.spec.peer, *times, ratios, ratio, lower, upper, target, others=share, slow=slow_share)


def undisturbed(run: Callable[[], Duel], tries: int) -> Duel:
    """The first duel that others leave alone, else the least disturbed of so many."""
    found: list[Duel] = []
    while len(found) < tries and not (found and not disturbed(found[-1].others, found[-1].slow)):
        found.append(run())
    return min(found, key=lambda d: max(d.others, d.slow))


def _turn(w: Workload, process: Worker | Starter, setting: Setting) -> float:
    """The median of a turn's calls, at least three. The one before them is not timed: caches have the other's data."""
    if w.fresh or w.start:
        times = process.turn(0, 1, 0.0)
    else:
        times = process.turn(1, 1 if setting.quick else 3, setting.turn_seconds)
    process.pause()
    return statistics.median(times)


def measure(
    w: Workload, peers: Sequence[str], setting: Setting, limits: Callable[[str], Ceiling | None], against: str = ""
) -> tuple[list[Result], Duel | None]:
    """All of a workload: the reference, every peer alone, then lazyt and the best of them (or `against`) in turns."""
    results: list[Result] = []
    lazyt: Worker | Starter | None = None
    best: tuple[float, Worker | Starter] | None = None
    found: Duel | None = None
    with tempfile.TemporaryDirectory(prefix="lazyt-bench-") as directory:
        inputs = w.inputs(setting.quick)
        save_reference(directory, w.reference(in_float64(inputs)))
        try:
            for name in peers:
                if name not in w.builds:
                    continue
                result, process = survey(w, name, setting, directory, inputs)
                results.append(result)
                if process is None:
                    continue
                if name == "lazyt":
                    lazyt = process
                elif (not against or name == against) and (best is None or result.best < best[0]):
                    # By its best call, which a busy machine spoils least.
                    if best is not None:
                        best[1].close()
                    best = (result.best, process)
                else:
                    process.close()
            if lazyt is not None and best is not None:
                copy = limits("copy") if w.nbytes else None
                pace = None if setting.quick else limits("product")
                product = (pace or limits("product")) if w.flops else None
                ceilings = [c for c in (copy, pace or product) if c is not None]
                tries = 1 if w.fresh or setting.quick else TRIES
                try:
                    found = undisturbed(lambda: duel(w, lazyt, best[1], ceilings, setting, inputs, pace), tries)
                except WorkerFailed as e:
                    results.append(Result(w.name, f"lazyt and {best[1].spec.peer} in turns", failure=str(e)))
                else:
                    found.limit_time = limit_seconds(w, inputs, copy, product) * w.scale / w.per(inputs)
        finally:
            for process in (lazyt, best[1] if best else None):
                if process is not None:
                    process.close()
    return results, found


def limit_seconds(w: Workload, inputs: Inputs, copy: Ceiling | None, product: Ceiling | None) -> float:
    """What the workload takes where nothing is in the way of its bytes or its operations; 0 where neither is stated."""
    moved = w.nbytes(inputs) / copy.rate if w.nbytes and copy else 0.0
    computed = w.flops(inputs) / product.rate if w.flops and product else 0.0
    return max(moved, computed)


class Limits:
    """The machine's ceilings: of each the fastest library's process, kept for the whole run. A context manager."""

    def __init__(self, peers: Sequence[str], setting: Setting) -> None:
        self.peers = ["numpy", *(p for p in peers if p != "numpy")]  # it is always there
        self.setting = setting
        self.found: dict[str, Ceiling | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for ceiling in self.found.values():
            if ceiling is not None:
                ceiling.process.close()

    def __call__(self, name: str) -> Ceiling | None:
        """The ceiling of that name, measured when it is first asked for; None where no library could."""
        if name not in self.found:
            self.found[name] = self._fastest(LIMITS[f"limit_{name}"])
        return self.found[name]

    def _fastest(self, w: Workload) -> Ceiling | None:
        best: Ceiling | None = None
        with tempfile.TemporaryDirectory(prefix="lazyt-bench-") as directory:
            inputs = w.inputs(self.setting.quick)
            save_reference(directory, w.reference(in_float64(inputs)))
            amount = w.nbytes or w.flops
            assert amount is not None, f"{w.name} states neither bytes nor operations"
            for name in self.peers:
                if name not in w.builds:
                    continue
                result, process = survey(w, name, self.setting, directory, inputs)
                if process is None:
                    continue
                assert isinstance(process, Worker), "a limit is no start of a process"
                ceiling = Ceiling(process, amount(inputs), result.best / w.scale)
                if best is None or ceiling.rate > best.rate:
                    best, ceiling = ceiling, best
                if ceiling is not None:
                    ceiling.process.close()
        return best


def now() -> str:
    """When a run began, for its record."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
