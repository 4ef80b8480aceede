"""One workload on one library, in a process of its own: `python -m benchmarks.worker SPEC`, driven through its stdin.

It answers in lines of JSON: `{"first": seconds}` after the first call; then `{"ready": result}`, once that result and
the last warm-up call's agree with the float64 reference; then, for each request `{"untimed", "least", "seconds"}`, the
seconds of each of the calls that it made. A time of a wrong result never gets out. Times are taken one turn at a time,
so that two processes can take turns.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.core import LIMITS, WARM_UP, WORKLOADS, Array, Result, Workload
from benchmarks.peers import PEERS, Peer
from benchmarks.workloads import FAMILIES

assert FAMILIES, "the workloads are registered when their families are imported"
MOST_CALLS = 2000


@dataclasses.dataclass(frozen=True)
class Spec:
    """What one process is to measure; `directory` has the reference, `reference`-N.npy."""

    peer: str
    workload: str
    threads: int
    quick: bool
    directory: str
    convolutions: str = "highest"  # the precision of lazyt's


def find(name: str) -> Workload:
    """A workload or a limit by its name."""
    return WORKLOADS[name] if name in WORKLOADS else LIMITS[name]


class Memory:
    """The high-water mark of this process's resident memory, which can be set back on Linux. Elsewhere it is of all.

    NOTE: pages of files do not count: the code of a library that is loaded at its import, or at its first call.
    """

    def __init__(self) -> None:
        self.before = self._read("VmRSS") - self._read("RssFile")
        self.reset()

    def reset(self) -> None:
        """Forget the high-water mark."""
        if os.path.exists("/proc/self/clear_refs"):
            Path("/proc/self/clear_refs").write_text("5")

    def peak(self) -> float:
        """Bytes at the high-water mark, above what there was at the start; 0 where the system does not tell."""
        return max(0.0, self._read("VmHWM") - self._read("RssFile") - self.before)

    def _read(self, field: str) -> float:
        try:
            lines = Path("/proc/self/status").read_text().splitlines()
        except FileNotFoundError:
            return 0.0
        return next((float(x.split()[1]) * 1024 for x in lines if x.startswith(field + ":")), 0.0)


class Measurement:
    """A workload on a library: built, called, checked, then called for times."""

    def __init__(self, peer: Peer, w: Workload, inputs: dict[str, Array]) -> None:
        self.peer, self.w, self.inputs = peer, w, inputs
        self.memory = Memory()
        self.call = w.builds[peer.name](peer, inputs)
        self.first = 0.0

    def start(self) -> Any:
        """The first call."""
        t0 = time.perf_counter()
        result = self.call()
        self.first = time.perf_counter() - t0
        return result

    def warm_up(self, first: Any, want: Sequence[Array]) -> Result:
        """The other calls before times are taken, and the checks."""
        error = 0.0 if self.w.stateful else self.check(first, want)
        del first
        peak = self.memory.peak()
        self.memory.reset()
        self.peer.reset_peak()
        for _ in range(WARM_UP):
            result = self.call()
        steady, arrays = self.memory.peak(), self.peer.peak()
        error = max(error, self.check(result, want))
        found = {"error": error, "peak": peak, "steady": steady, "arrays": arrays}
        return Result(self.w.name, self.peer.name, self.peer.version, self.first, **found)

    def check(self, returned: Any, want: Sequence[Array]) -> float:
        """The largest error as a share of what is tolerated; AssertionError where it is more."""
        parts = self.call.results(returned) if hasattr(self.call, "results") else returned
        got = [self.peer.numpy(r) for r in (parts if isinstance(parts, tuple | list) else [parts])]
        return compare(self.w, got, want)

    def turn(self, untimed: int, least: int, seconds: float) -> list[float]:
        """Seconds of each call: at least so many, for so long, after some that are not timed."""
        times: list[float] = []
        gc.disable()  # as timeit does: what is measured is the call
        for _ in range(untimed):
            self.call()
        stop = time.perf_counter() + seconds
        while len(times) < least or (time.perf_counter() < stop and len(times) < MOST_CALLS):
            t0 = time.perf_counter()
            self.call()
            times.append(time.perf_counter() - t0)
        gc.enable()
        return times

    def notes(self) -> dict[str, Any]:
        """What the workload has to say besides, in its unit."""
        return self.call.notes(self.w.scale / self.w.per(self.inputs)) if hasattr(self.call, "notes") else {}


def compare(w: Workload, got: Sequence[Array], want: Sequence[Array]) -> float:
    """The largest error of results as a share of what is tolerated, but for the share of elements that may be off."""
    assert len(got) == len(want), f"{len(got)} results, not {len(want)}"
    worst = 0.0
    for i, (g, r) in enumerate(zip(got, want, strict=True)):
        assert g.shape == r.shape, f"result {i}: shape {g.shape}, not {r.shape}"
        if not r.size:
            continue
        share = np.atleast_1d(np.abs(g.astype(np.float64) - r) / (w.atol + w.rtol * np.abs(r)))
        share[np.isnan(share)] = np.inf
        if w.outside:
            kept = r.size - 1 - int(w.outside * r.size)
            error = float(np.partition(share.ravel(), kept)[kept])
        else:
            error = float(share.max())
        assert error <= 1, f"result {i} is wrong by {error:.3g} times the tolerance (rtol {w.rtol}, atol {w.atol})"
        worst = max(worst, error)
    return worst


def load_reference(directory: str) -> list[Array]:
    """The results that `save_reference` left."""
    paths = sorted(Path(directory).glob("reference-*.npy"))
    assert paths, f"no reference in {directory}"
    return [np.load(p) for p in paths]


def save_reference(directory: str, results: Sequence[Array]) -> None:
    """The float64 results of a workload, in files that sort in their order."""
    for i, r in enumerate(results):
        np.save(Path(directory) / f"reference-{i:04}.npy", r)


def processors(threads: int) -> list[int]:
    """The numbers of the processors that workers run on; none where the system does not let one choose."""
    return sorted(os.sched_getaffinity(0))[:threads] if hasattr(os, "sched_getaffinity") else []


def limit_processors(threads: int) -> None:
    """Keep this process to so many processors, where the system can: the one limit that every library obeys."""
    if chosen := processors(threads):
        os.sched_setaffinity(0, chosen)


def serve(spec: Spec, say: Callable[[dict[str, Any]], None]) -> None:
    """Measure, and answer requests until stdin ends; what goes wrong is an answer too."""
    try:
        w = find(spec.workload)
        peer = PEERS[spec.peer](spec.threads)
        if spec.peer == "lazyt":
            peer.module.set_float32_convolution_precision(spec.convolutions)
        measurement = Measurement(peer, w, w.inputs(spec.quick))
        first = measurement.start()
        say({"first": measurement.first})
        result = measurement.warm_up(first, load_reference(spec.directory))
        del first
        say({"ready": dataclasses.asdict(result)})
        gc.collect()
        for line in sys.stdin:
            request = json.loads(line)
            say({"times": measurement.turn(**request), "notes": measurement.notes()})
    except Exception as e:  # noqa: BLE001  whatever a library raises is its result
        say({"failure": f"{type(e).__name__}: {e}".splitlines()[0][:300]})


def main() -> None:
    spec = Spec(**json.loads(sys.argv[1]))
    limit_processors(spec.threads)
    # What libraries print goes to stderr: stdout is for the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    serve(spec, say)


if __name__ == "__main__":
    main()
