"""`python -m lazyt.testing fuzz --minutes N`, `python -m lazyt.testing replay SEED`, `python -m lazyt.testing soak`."""

from __future__ import annotations

import argparse
import random
import sys

from lazyt.testing.fuzz import Search, replay
from lazyt.testing.kinds import KINDS
from lazyt.testing.soak import KINDS as DISTURBANCES, Soak


def main(arguments: list[str] | None = None) -> int:
    """Run a command; 1 if something was found, 0 if not."""
    parser = argparse.ArgumentParser(prog="python -m lazyt.testing", description="Random programs against NumPy.")
    commands = parser.add_subparsers(dest="command", required=True)
    fuzz = commands.add_parser(
        "fuzz", help="try random programs until the time is over; print what is found, made small"
    )
    fuzz.add_argument("--minutes", type=float, default=1.0, help="how long to go on (default: 1)")
    fuzz.add_argument("--seed", type=int, help="of the first program; the others follow (default: a new one)")
    fuzz.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    fuzz.add_argument("--programs", type=int, help="stop after so many programs")
    kinds = ["all", *KINDS]
    fuzz.add_argument("--kind", choices=kinds, default="all", help="of programs (default: what each seed says)")
    one = commands.add_parser("replay", help="run the program of a seed again")
    one.add_argument("seed", type=int)
    one.add_argument("--kind", choices=kinds, default="all")
    soak = commands.add_parser("soak", help="train, fail, interrupt; memory and latency must stay flat")
    soak.add_argument("--minutes", type=float, default=30.0, help="how long to go on (default: 30)")
    soak.add_argument("--seed", type=int, default=0)
    soak.add_argument("--interval", type=float, default=60.0, help="seconds between two lines (default: 60)")
    soak.add_argument("--without", nargs="*", choices=DISTURBANCES, default=[], help="leave these out")
    a = parser.parse_args(arguments)
    if a.command == "soak":
        return 1 if Soak(a.seed, frozenset(a.without)).run(a.minutes, a.interval) else 0
    kind = "" if a.kind == "all" else a.kind
    if a.command == "replay":
        return 1 if replay(a.seed, kind=kind) is not None else 0
    seed = random.randrange(1 << 30) if a.seed is None else a.seed
    print(f"seeds from {seed}", flush=True)
    found = Search(seed, max(a.jobs, 1), kind).run(a.minutes * 60, a.programs)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
