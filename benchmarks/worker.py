"""One workload on one library, in a process of its own: `python -m benchmarks.worker PEER WORKLOAD` prints a JSON line.

The first call is timed apart. Its result, and that of the last warm-up call, is checked against the float64 reference;
only then does a time get out.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.core import WARM_UP, Result, Workload
from benchmarks.peers import PEERS, Peer
from benchmarks.workloads import WORKLOADS

LEAST_CALLS, MOST_CALLS = 15, 2000


def measure(peer: Peer, w: Workload, quick: bool) -> Result:
    """Check the workload on one library, then time it."""
    inputs = w.inputs(quick)
    want = w.reference({k: x.astype(np.float64) if x.dtype.kind == "f" else x for k, x in inputs.items()})
    call = w.builds[peer.name](peer, inputs)

    t0 = time.perf_counter()
    result = call()
    first = time.perf_counter() - t0
    error = 0.0 if w.stateful else check(peer, w, result, want)
    for _ in range(WARM_UP):
        result = call()
    error = max(error, check(peer, w, result, want))

    times = _times(call, 0.2 if quick else 2.0, WARM_UP if quick else LEAST_CALLS)
    unit = w.scale / w.per(inputs)
    low, median, high = (t * unit for t in statistics.quantiles(times, n=4))
    rate = 0.0 if w.nbytes is None else w.nbytes(inputs) / statistics.median(times) / 1e9
    notes = call.notes(unit) if hasattr(call, "notes") else {}
    best = min(times) * unit
    return Result(w.name, peer.name, peer.version, first, best, median, low, high, len(times), error, rate, notes)


def check(peer: Peer, w: Workload, result: Any, want: Any) -> float:
    """The largest error as a share of what is tolerated; AssertionError where it is more."""
    got = [peer.numpy(r) for r in (result if isinstance(result, tuple | list) else [result])]
    assert len(got) == len(want), f"{len(got)} results, not {len(want)}"
    worst = 0.0
    for g, r in zip(got, want, strict=True):
        assert g.shape == r.shape, f"shape {g.shape}, not {r.shape}"
        share = np.abs(g.astype(np.float64) - r) / (w.atol + w.rtol * np.abs(r))
        worst = max(worst, float(np.max(share, initial=0.0)))
    assert worst <= 1, f"wrong by {worst:.3g} times the tolerance (rtol {w.rtol}, atol {w.atol})"
    return worst


def _times(call: Callable[[], Any], seconds: float, least: int) -> list[float]:
    """Seconds of each call: for so long, at least so many."""
    times: list[float] = []
    gc.collect()
    gc.disable()  # as timeit does: what is measured is the call
    stop = time.perf_counter() + seconds
    while len(times) < least or (time.perf_counter() < stop and len(times) < MOST_CALLS):
        t0 = time.perf_counter()
        call()
        times.append(time.perf_counter() - t0)
    gc.enable()
    return times


def main(peer_name: str, workload_name: str, threads: int, quick: bool) -> Result:
    """Measure; what goes wrong in it is a failure in the result."""
    w = WORKLOADS[workload_name]
    try:
        return measure(PEERS[peer_name](threads), w, quick)
    except Exception as e:  # noqa: BLE001  whatever a library raises is its result
        return Result(w.name, peer_name, failure=f"{type(e).__name__}: {e}".splitlines()[0][:300])


def limit_processors(threads: int) -> None:
    """Keep this process to so many processors, where the system can: the one limit that every library obeys."""
    if hasattr(os, "sched_setaffinity"):
        mine = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, mine[:threads])


if __name__ == "__main__":
    _, peer_arg, workload_arg, threads_arg, quick_arg = sys.argv
    limit_processors(int(threads_arg))
    found = main(peer_arg, workload_arg, int(threads_arg), quick_arg == "quick")
    print("\n" + json.dumps(dataclasses.asdict(found)))
