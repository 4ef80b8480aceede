"""bfloat16 beside float32: products, and training steps under autocast or rounding operands, lazyt's and PyTorch's.

    python -m benchmarks.halves [--peer PYTHON] [--threads 2] [--seconds 1] [--turns 3] [--only ROW ...] [--quick]

`--peer` is a Python that has PyTorch; by default this one, and PyTorch is skipped by name where it is not installed.
Each library runs in processes of its own, in turns, and each process times all three call by call, in turns; the best
of each counts. `medium` is float32 with the precision 'medium' of products and convolutions. `ratio` is bfloat16's time
over float32's. Where lazyt multiplies pairs of bfloat16 (by AMX, or AVX-512) it should be below 1, and at most 1.1
elsewhere: 1 is returned where lazyt's is not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from time import perf_counter
from typing import Any

from benchmarks.core import Inputs, seeded
from benchmarks.peers import PEERS, THREAD_VARIABLES
from benchmarks.workloads import gpt, mlp, networks, resnet, steps, unet

WAYS = ("float32", "medium", "bfloat16")
MOST = {True: 1.0, False: 1.1}  # by whether the processor multiplies pairs of bfloat16

Call = Callable[[], Any]


def _at(peer: Any, way: str, call: Call) -> Call:
    """The call, with the precision of its way."""
    m = peer.module

    def set_precision(precision: str) -> None:
        m.set_float32_matmul_precision(precision)
        if peer.name == "lazyt":
            m.set_float32_convolution_precision(precision)
        else:
            m.backends.mkldnn.conv.fp32_precision = "bf16" if precision == "medium" else "ieee"

    def timed() -> Any:
        set_precision("medium")
        try:
            return call()
        finally:
            set_precision("highest")

    return timed if way == "medium" else call


def _product(n: int) -> Callable[[Any, str, bool], tuple[Call, float]]:
    """n x n by n x n, of arrays in the dtype; the operations of a call."""

    def build(peer: Any, way: str, quick: bool) -> tuple[Call, float]:
        size, m = 32 if quick else n, peer.module
        half = getattr(m, "float32" if way == "medium" else way)
        x, y = (peer.array(seeded((size, size), i)) for i in (1, 2))
        x, y = (v.to(half) if hasattr(v, "to") else v.astype(half) for v in (x, y))
        return lambda: peer.wait(x @ y), 2.0 * size**3

    return build


def _step(
    inputs: Callable[[bool], Inputs], model: Callable[..., Any], loss: Callable[..., Any], flops: Any
) -> Callable[[Any, str, bool], tuple[Call, float]]:
    """A training step, its forward pass under autocast."""

    def build(peer: Any, way: str, quick: bool) -> tuple[Call, float]:
        found = inputs(quick)

        def under(module: Any, model: Any, *data: Any) -> Any:
            lower = way == "bfloat16"
            with module.amp.autocast("cpu", dtype=module.bfloat16) if lower else nullcontext():
                return loss(module, model, *data)

        return steps.ModulesStep(peer, found, model, under, steps.Optimizer(rate=3e-4), 2), flops(found)

    return build


def _network(network: networks.Network) -> Callable[[Any, str, bool], tuple[Call, float]]:
    """A training step of a convolutional network."""

    def model(module: Any, inputs: Inputs) -> Any:
        return network.module(module, network.chosen(inputs))

    return _step(network.inputs, model, networks._loss, lambda inputs: 3 * network.flops(inputs))


ROWS: dict[str, Callable[[Any, str, bool], tuple[Call, float]]] = {
    "product 512": _product(512),
    "product 1024": _product(1024),
    "mlp step": _step(mlp._inputs, mlp._model, mlp._loss, mlp._flops),
    "transformer step": _step(gpt._inputs(8, 128), gpt._model, gpt._loss, lambda inputs: 3 * gpt._flops(inputs)),
    "resnet step": _network(resnet.SMALL),
    "unet step": _network(unet.NETWORK),
}


def times(library: str, row: str, threads: int, seconds: float, quick: bool) -> dict[str, float]:
    """The best time of a call in each way, the ways taking turns; and the operations of a call."""
    peer = PEERS[library](threads)
    calls = {}
    for way in WAYS:
        call, flops = ROWS[row](peer, way, quick)
        calls[way] = _at(peer, way, call)
        for _ in range(4):
            calls[way]()
    best = dict.fromkeys(WAYS, float("inf"))
    end = perf_counter() + seconds
    while perf_counter() < end:
        for way, call in calls.items():
            call()  # the caches have another way's data
            for _ in range(2):
                start = perf_counter()
                call()
                best[way] = min(best[way], perf_counter() - start)
    return {**best, "flops": flops}


def measured(python: str, library: str, row: str, args: argparse.Namespace) -> dict[str, float] | None:
    """`times` in a process of its own; None where the library is missing."""
    asked = ["--one", library, row, "--threads", str(args.threads), "--seconds", str(args.seconds)]
    command = [python, "-m", "benchmarks.halves", *asked, *["--quick"] * args.quick]
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(args.threads))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    if "No module named 'torch'" in done.stderr:
        return None
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _how_pairs_are_multiplied() -> str:
    """'' if the elements are multiplied as float32."""
    from lazyt.backends.cpu.pair_products import dot_products  # here: the other Python has no lazyt

    return {"tiles": "AMX (tdpbf16ps)", "native": "AVX-512 (vdpbf16ps)"}.get(dot_products(), "")


def line_of(row: str, library: str, best: dict[str, float]) -> str:
    """What is printed of a library: its times, their ratio, and the rate of bfloat16."""
    single, _, half = (best[way] for way in WAYS)
    rate = best["flops"] / half / 1e9
    took = "  ".join(f"{way} {best[way] * 1e3:9.3f} ms" for way in WAYS)
    return f"{row:17} {library:6} {took}  ratio {half / single:5.2f}  {rate:7.1f} GFLOP/s"


def main(argv: list[str] | None = None) -> int:
    """1 where lazyt's bfloat16 is slower than it should be."""
    ap = argparse.ArgumentParser(prog="python -m benchmarks.halves", description=(__doc__ or "").splitlines()[0])
    ap.add_argument("--peer", default=sys.executable)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--seconds", type=float, default=1.0)
    ap.add_argument("--turns", type=int, default=3)
    ap.add_argument("--only", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="ROW")
    ap.add_argument("--quick", action="store_true", help="small sizes and few calls: that all of it works")
    ap.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = ap.parse_args(argv)
    if args.one:
        print(json.dumps(times(*args.one, args.threads, args.seconds, args.quick)))
        return 0
    if args.quick:
        args.seconds, args.turns = 0.01, 1
    by = _how_pairs_are_multiplied()
    print(f"pairs of bfloat16 are multiplied by {by}" if by else "bfloat16 is multiplied as float32")
    behind = 0
    for row in args.only:
        best: dict[str, dict[str, float]] = {}
        for _ in range(args.turns):
            for library, python in (("lazyt", sys.executable), ("torch", args.peer)):
                found = measured(python, library, row, args)
                if found is not None:
                    held = best.setdefault(library, found)
                    best[library] = {k: min(t, held[k]) for k, t in found.items()}
        for library, times_of in best.items():
            print(line_of(row, library, times_of), flush=True)
        if "torch" not in best:
            print(f"{row:17} torch is not installed")
        behind += best["lazyt"]["bfloat16"] > MOST[bool(by)] * best["lazyt"]["float32"]
    return int(behind > 0 and not args.quick)


if __name__ == "__main__":
    sys.exit(main())
