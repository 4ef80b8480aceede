"""Run the benchmarks: each library on each workload in a process of its own, one after the other.

    python -m benchmarks                                     every workload on every library that is installed
    python -m benchmarks --only softmax layernorm --peers numpy,torch --json found.json

lazyt is always among them. A time is printed only for results that agree with float64 NumPy. `first` is the first call,
with whatever is planned and compiled then (lazyt's disk cache is empty); the others are of the calls after some more.
A ratio is of medians: on a machine that is busy with other things, look at `best` too.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.core import Result, Workload
from benchmarks.peers import PEERS, THREAD_VARIABLES
from benchmarks.workloads import WORKLOADS

TOP = Path(__file__).parent.parent


def run_worker(peer: str, workload: str, threads: int, quick: bool, timeout: float) -> Result:
    """What one worker found; a crash and a time-out are results too."""
    with tempfile.TemporaryDirectory(prefix="lazyt-bench-") as cache:
        environment = {
            **os.environ,
            **dict.fromkeys(THREAD_VARIABLES, str(threads)),
            "LAZYT_CACHE_DIR": str(Path(cache) / "objects"),
            "PYTHONPATH": os.pathsep.join([str(TOP), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        command = [
            sys.executable,
            "-m",
            "benchmarks.worker",
            peer,
            workload,
            str(threads),
            "quick" if quick else "full",
        ]
        try:
            done = subprocess.run(
                command, env=environment, cwd=TOP, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            return Result(workload, peer, failure=f"no result after {timeout:.0f} s")
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        why = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        return Result(workload, peer, failure=why[0][:300])
    return Result(**json.loads(lines[-1]))


def number(x: float) -> str:
    """Three significant digits, no exponent."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}" if x >= 1 else f"{x:.3f}"


def table(w: Workload, results: list[Result]) -> str:
    """A workload's results, fastest first, each with its ratio to the best peer (lazyt's: below 1 is faster)."""
    peers = [r.median for r in results if r.peer != "lazyt" and not r.failure]
    best = min(peers, default=0.0)
    lines = [f"{w.name}: {w.what}"]
    lines.append(
        f"  {'':10}{'median':>10}{'quartiles':>20}{'best':>10}  {w.unit:<9}{'to best peer':>12}{'first call':>14}"
    )
    for r in sorted(results, key=lambda r: (bool(r.failure), r.median)):
        if r.failure:
            lines.append(f"  {r.peer:10}FAILED: {r.failure}")
            continue
        ratio = f"{r.median / best:.2f}" if best else "-"
        quartiles = f"{number(r.low)} .. {number(r.high)}"
        line = f"  {r.peer:10}{number(r.median):>10}{quartiles:>20}{number(r.best):>10}  {w.unit:<9}{ratio:>12}"
        line += f"{r.first * 1e3:>11,.1f} ms"
        more = [f"{number(r.rate)} GB/s"] if r.rate else []
        more += [f"{k} {number(v)} {w.unit}" for k, v in r.notes.items()]
        lines.append(line + ("    " + ", ".join(more) if more else ""))
    return "\n".join(lines)


def machine(threads: int) -> dict[str, object]:
    """Where this runs."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [x.split(":", 1)[1].strip() for x in info.read_text().splitlines() if x.startswith("model name")]
        model = names[0] if names else model
    return {"cpu": model, "cores": os.cpu_count(), "threads": threads, "python": platform.python_version()}


def main() -> int:
    """The exit status: 1 when lazyt failed. What a peer cannot do, or gets wrong, is only printed."""
    ap = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    ap.add_argument("--only", nargs="+", metavar="NAME", choices=list(WORKLOADS), help=", ".join(WORKLOADS))
    ap.add_argument("--peers", help=f"separated by commas; default: all that are installed of {', '.join(PEERS)}")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--timeout", type=float, default=300, help="seconds for one library on one workload")
    ap.add_argument("--quick", action="store_true", help="small sizes and few calls: that all of it works")
    ap.add_argument("--json", type=Path, metavar="FILE", help="write what was found there too")
    args = ap.parse_args()

    wanted = list(PEERS) if args.peers is None else [p.strip() for p in args.peers.split(",") if p.strip()]
    if unknown := [p for p in wanted if p not in PEERS]:
        ap.error(f"unknown peers {', '.join(unknown)}; known: {', '.join(PEERS)}")
    missing = [p for p in wanted if not PEERS[p].installed()]
    peers = [p for p in PEERS if (p in wanted or p == "lazyt") and p not in missing]
    where = machine(args.threads)
    print(f"{where['cpu']}, {where['cores']} cores, {args.threads} threads, Python {where['python']}")
    if missing:
        print(f"skipped, not installed: {', '.join(missing)}")

    found: list[Result] = []
    for name in args.only or WORKLOADS:
        w = WORKLOADS[name]
        results = [run_worker(p, name, args.threads, args.quick, args.timeout) for p in peers if p in w.builds]
        print("\n" + table(w, results), flush=True)
        found += results
    if args.json:
        record = {"machine": where, "skipped": missing, "quick": args.quick}
        args.json.write_text(json.dumps({**record, "results": [dataclasses.asdict(r) for r in found]}, indent=1) + "\n")
    return 1 if any(r.failure for r in found if r.peer == "lazyt") else 0


if __name__ == "__main__":
    sys.exit(main())
