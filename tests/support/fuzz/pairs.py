"""`python -m tests.support.fuzz.pairs`: every pair of operations, and every pair of features, or a sample of them.

Each pair is visited once; or a sample, from a place that `--seed` gives: of `--minutes`, half of them for each kind, or
of `--count` pairs of operations and an eighth as many of features. Memory begins as NaN, plans are verified after each
pass, and code is compiled without optimization, which is most of the time else.
"""

from __future__ import annotations

import argparse
import os
import random
import sys

DEBUG = "poison,verify,no-stored,no-optimize"


def main(arguments: list[str] | None = None) -> int:
    """Run the search; 1 if something was found, 0 if not."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.fuzz.pairs", description="Pairs of what lazyt has.")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--minutes", type=float, help="take a sample that needs so long (default: all pairs)")
    parser.add_argument("--count", type=int, help="take a sample of so many programs")
    parser.add_argument("--seed", type=int, help="where a sample begins (default: anywhere)")
    parser.add_argument("--kind", choices=("pairs", "features"), help="of operations, or of features (default: both)")
    a = parser.parse_args(arguments)
    # NOTE: flags are read when lazyt is imported, here and in the processes of the search.
    os.environ["LAZYT_DEBUG"] = ",".join(filter(None, (os.environ.get("LAZYT_DEBUG", ""), DEBUG)))
    os.environ["LAZYT_CACHE_DIR"] = ""
    from lazyt.testing.fuzz import Search
    from tests.support.fuzz.feature_pairs import FeaturePairs
    from tests.support.fuzz.operation_pairs import OperationPairs

    kinds = [k for k in (OperationPairs, FeaturePairs) if a.kind in (None, k.name)]
    found = 0
    for kind in kinds:
        total = kind.total()
        most = total if a.count is None else a.count // (8 if kind is FeaturePairs else 1)
        whole = a.minutes is None and a.count is None
        seed = 0 if whole else random.randrange(total) if a.seed is None else a.seed
        seconds = 1e9 if a.minutes is None else a.minutes * 60 / len(kinds)
        print(f"{kind.name}: {total:,} programs, from seed {seed}", flush=True)
        search = Search(seed, max(a.jobs, 1), kind.name, counts=False)
        found += len(search.run(seconds, most))
        covered = search.covered
        for why, n in sorted(covered.families.items()):
            print(f"  refused: {why}{f' ({n} times)' * (n > 1)}")
        forms = ", ".join(f"{form} {n:,}" for form, n in covered.modes.most_common())
        visited, refused = covered.programs[kind.name], covered.programs["refused"] + covered.programs["at a kink"]
        print(
            f"{kind.name}: {visited:,} of {total:,} visited, {refused:,} of them refused; {forms};"
            f" {len(search.found)} found",
            flush=True,
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
