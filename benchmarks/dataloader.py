"""Samples a second through a DataLoader with a cheap dataset, beside PyTorch's.

    python -m benchmarks.dataloader [--peer PYTHON] [--workers 0 2 4] [--seconds 2] [--quick]

`--peer` is a Python that has PyTorch; by default this one, and PyTorch is skipped by name where it is not installed.
Each library runs in processes of its own, in turns; the best of each is compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from time import perf_counter
from typing import Any

import numpy as np

DATASETS = ("arrays", "rows")
N, FEATURES, BATCH = 20_000, 64, 64


class Arrays:
    """What users write: a row and a label, of NumPy's arrays."""

    def __init__(self) -> None:
        self.x = np.arange(N * FEATURES, dtype=np.float32).reshape(N, FEATURES)
        self.y = np.arange(N)

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        return self.x[i], self.y[i]


def loaded(library: str, dataset: str, workers: int) -> Any:
    """A DataLoader of `lazyt` or `torch`."""
    x = np.arange(N * FEATURES, dtype=np.float32).reshape(N, FEATURES)
    y = np.arange(N)
    more = {"num_workers": workers, "persistent_workers": True} if workers else {}
    if library == "torch":
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        made = Arrays() if dataset == "arrays" else TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
        return DataLoader(made, BATCH, shuffle=True, **more)
    import lazyt as lt

    made = Arrays() if dataset == "arrays" else lt.data.TensorDataset(lt.from_numpy(x), lt.from_numpy(y))
    return lt.data.DataLoader(made, BATCH, shuffle=True, **more)


def rate(library: str, dataset: str, workers: int, seconds: float) -> float:
    """Samples a second of whole epochs; the first, which starts the workers, does not count."""
    loader = loaded(library, dataset, workers)
    for _ in loader:
        pass
    n, t0 = 0, perf_counter()
    while perf_counter() - t0 < seconds:
        for x, _ in loader:
            n += x.shape[0]
    return n / (perf_counter() - t0)


def measured(python: str, library: str, dataset: str, workers: int, seconds: float) -> float | None:
    """`rate` in a process of its own; None where the library is missing."""
    args = [python, "-m", "benchmarks.dataloader", "--one", library, dataset, str(workers), str(seconds)]
    done = subprocess.run(args, capture_output=True, text=True, timeout=300, check=False)
    if "No module named 'torch'" in done.stderr:
        return None
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: float = json.loads(done.stdout.splitlines()[-1])
    return found


def main(argv: list[str] | None = None) -> int:
    """1 where lazyt is slower than PyTorch."""
    ap = argparse.ArgumentParser(prog="python -m benchmarks.dataloader", description=(__doc__ or "").splitlines()[0])
    ap.add_argument("--peer", default=sys.executable)
    ap.add_argument("--workers", type=int, nargs="+", default=[0, 2, 4])
    ap.add_argument("--seconds", type=float, default=2.0)
    ap.add_argument("--turns", type=int, default=3)
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    args = ap.parse_args(argv)
    if args.one:
        library, dataset, workers, seconds = args.one
        print(json.dumps(rate(library, dataset, int(workers), float(seconds))))
        return 0
    if args.quick:
        args.workers, args.seconds, args.turns = [0, 2], 0.1, 1
    behind = 0
    for dataset in DATASETS:
        for workers in args.workers:
            best: dict[str, float] = {}
            for _ in range(args.turns):
                for library, python in (("lazyt", sys.executable), ("torch", args.peer)):
                    found = measured(python, library, dataset, workers, args.seconds)
                    if found is not None:
                        best[library] = max(found, best.get(library, 0.0))
            line = f"{dataset:8} {workers} workers: " + ", ".join(f"{k} {v:10,.0f}/s" for k, v in best.items())
            if "torch" in best:
                ratio = best["lazyt"] / best["torch"]
                behind += ratio < 1
                line += f", ratio {ratio:.2f}"
            print(line if "torch" in best else f"{line} (torch is not installed)", flush=True)
    return int(behind > 0)


if __name__ == "__main__":
    sys.exit(main())
