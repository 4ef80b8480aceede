"""Run the benchmarks: each library on each workload in a process of its own, then lazyt and the best one in turns.

    python -m benchmarks                                     every workload on every library that is installed
    python -m benchmarks --only softmax layernorm --peers numpy,torch --json found.json --picture found.png

lazyt is always among them. A time is printed only for results that agree with float64 NumPy. `first call` has whatever
is planned and compiled then (caches are empty). The ratio that counts is of turns: see docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import sys
from pathlib import Path

from benchmarks import picture, report
from benchmarks.core import WORKLOADS, Duel, Result
from benchmarks.measure import Limits, Setting, measure, now
from benchmarks.peers import PEERS
from benchmarks.targets import TARGETS
from benchmarks.workloads import FAMILIES

assert FAMILIES, "the workloads are registered when their families are imported"


def machine(threads: int) -> dict[str, object]:
    """Where this runs."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [x.split(":", 1)[1].strip() for x in info.read_text().splitlines() if x.startswith("model name")]
        model = names[0] if names else model
    return {"cpu": model, "cores": os.cpu_count(), "threads": threads, "python": platform.python_version()}


def arguments() -> argparse.ArgumentParser:
    """What can be asked for."""
    ap = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    ap.add_argument("--only", nargs="+", metavar="NAME", help=f"or the beginning of it: {', '.join(WORKLOADS)}")
    ap.add_argument("--peers", help=f"separated by commas; default: all that are installed of {', '.join(PEERS)}")
    ap.add_argument("--against", default="", metavar="PEER", help="take turns with this peer, not with the fastest")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--repeats", type=int, help="turns of each in the comparison that counts; default: 15")
    ap.add_argument("--timeout", type=float, default=300, help="seconds for one answer of one library")
    ap.add_argument("--convolutions", default="highest", choices=("highest", "high"), help="lazyt's precision of them")
    ap.add_argument("--quick", action="store_true", help="small sizes and few calls: that all of it works")
    ap.add_argument("--json", type=Path, metavar="FILE", help="write what was found there too")
    ap.add_argument("--picture", type=Path, metavar="FILE", help="draw the ratios there; needs matplotlib")
    return ap


def main(argv: list[str] | None = None) -> int:
    """The exit status: 1 when lazyt failed. What a peer cannot do, or gets wrong, is only printed."""
    ap = arguments()
    args = ap.parse_args(argv)
    wanted = list(PEERS) if args.peers is None else [p.strip() for p in args.peers.split(",") if p.strip()]
    if unknown := [p for p in [*wanted, *filter(None, [args.against])] if p not in PEERS]:
        ap.error(f"unknown peers {', '.join(unknown)}; known: {', '.join(PEERS)}")
    if args.picture and not picture.available():
        ap.error("--picture needs matplotlib: pip install 'lazyt[bench]'")
    only = [
        w
        for name in args.only or [""]
        for w in WORKLOADS
        if w == name or (name not in WORKLOADS and w.startswith(name))
    ]
    if not only:
        ap.error(f"--only: no workload is called {' or '.join(args.only)}; known: {', '.join(WORKLOADS)}")
    missing = [p for p in wanted if not PEERS[p].installed()]
    peers = [p for p in PEERS if (p in wanted or p == "lazyt") and p not in missing]
    short = {"repeats": 3, "survey_seconds": 0.02, "turn_seconds": 0.005} if args.quick else {"repeats": 15}
    setting = Setting(args.threads, args.quick, timeout=args.timeout, convolutions=args.convolutions, **short)
    if args.repeats:
        setting = dataclasses.replace(setting, repeats=args.repeats)

    where = machine(args.threads)
    began = now()
    print(f"{where['cpu']}, {where['cores']} cores, {args.threads} threads, Python {where['python']}")
    if missing:
        print(f"skipped, not installed: {', '.join(missing)}")

    results: list[Result] = []
    duels: list[Duel] = []
    with Limits(peers, setting) as limits:
        for name in only:
            w = WORKLOADS[name]
            found, duel = measure(w, peers, setting, limits, args.against)
            results += found
            print("\n" + report.table(w, found), flush=True)
            if duel is not None:
                duels.append(duel)
                print(report.duel_line(w, duel), flush=True)
        rates = {name: c.rate for name, c in limits.found.items() if c is not None}
    if duels:
        print("\n" + report.summary(duels))
        units = {"copy": "GB/s", "product": "GFLOP/s"}
        if rates:
            print("limits: " + ", ".join(f"{k} {report.number(v / 1e9)} {units[k]}" for k, v in rates.items()))
    if args.json:
        record = {"machine": where, "began": began, "skipped": missing, "setting": dataclasses.asdict(setting)}
        found_all = {"results": results, "duels": duels}
        record |= {k: [dataclasses.asdict(x) for x in v] for k, v in found_all.items()}
        record |= {"limits": rates, "targets": TARGETS}
        args.json.write_text(json.dumps(record, indent=1) + "\n")
    if args.picture and duels:
        picture.draw(duels, args.picture)
    return 1 if any(r.failure for r in results if r.peer.startswith("lazyt")) else 0


if __name__ == "__main__":
    sys.exit(main())
