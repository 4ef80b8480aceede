"""Single convolutions of sixty shapes, forward and with both gradients: lazyt beside PyTorch and JAX, in one process.

    python -m benchmarks.convolutions                          all of them: the means and the ten worst
    python -m benchmarks.convolutions --only k3 --list         those with k3 in their names, each as it is found
    python -m benchmarks.convolutions --dtype bfloat16         of arrays in bfloat16, summed up in float32 by all

Results must agree with float64 NumPy's before they are timed. lazyt's time is the call and `lazyt.sync()`; PyTorch's
the call; JAX's that of a compiled function on images with channels last, until it is done. They take turns in orders
that turn around; a ratio is the median of the best peer's turns over lazyt's: above 1, lazyt is faster.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import lazyt as lt
from benchmarks.__main__ import machine
from benchmarks.convolution_cases import CASES, Array, Case, reference
from benchmarks.core import seeded
from benchmarks.functions import rest, turn
from benchmarks.measure import now
from benchmarks.peers import PEERS
from benchmarks.stats import geometric_mean
from benchmarks.worker import limit_processors
from lazyt.ir import dtypes

ROUNDS, SECONDS = 5, 0.05
TOLERANCE = {"float32": 1e-4, "bfloat16": 1e-2}  # of the largest magnitude
MODES = ("forward", "both")
Call = Callable[[], Any]


@dataclasses.dataclass
class Found:
    """What a convolution took, in microseconds, by library; `first` is lazyt's first call, in milliseconds."""

    name: str
    mode: str
    times: dict[str, float] = dataclasses.field(default_factory=dict)
    ratio: float = 0.0  # the best peer's time / lazyt's; 0 without peers
    peer: str = ""
    first: float = 0.0
    failure: str = ""


# --- the libraries: each gives calls, and their results as NumPy's arrays


def _lazyt(case: Case, mode: str, dtype: str, arrays: Sequence[Array]) -> tuple[Call, Call]:
    return _modules(lt, lt.sync, case, mode, dtype, arrays)


def _torch(case: Case, mode: str, dtype: str, arrays: Sequence[Array]) -> tuple[Call, Call]:
    torch = importlib.import_module("torch")
    importlib.import_module("torch.nn.functional")
    return _modules(torch, lambda: None, case, mode, dtype, arrays)


def _modules(
    m: Any, wait: Call, case: Case, mode: str, dtype: str, arrays: Sequence[Array]
) -> tuple[Call, Call]:  # fmt: skip
    """lazyt and PyTorch share their text."""
    x, w, g = (m.tensor(a).to(getattr(m, dtype)) for a in arrays)
    wait()
    f = m.nn.functional.conv_transpose2d if case.transposed else m.nn.functional.conv2d
    options = {"stride": case.stride, "padding": case.pad, "groups": case.groups, "dilation": case.dilation}

    def forward() -> Any:
        with m.no_grad():
            y = f(x, w, **options)
            wait()
        return [y]

    def both() -> Any:
        x.grad = w.grad = None
        y = f(x, w, **options)
        y.backward(g)
        wait()
        return [x.grad, w.grad]

    if mode == "both":
        x.requires_grad_(True)
        w.requires_grad_(True)
    call = forward if mode == "forward" else both
    return call, lambda: [y.detach().float().numpy() for y in call()]


def _jax(case: Case, mode: str, dtype: str, arrays: Sequence[Array]) -> tuple[Call, Call]:
    jax, m = importlib.import_module("jax"), importlib.import_module("jax.numpy")
    lax, names, left = jax.lax, ("NHWC", "HWIO", "NHWC"), case.dilation * (case.kernel - 1) - case.pad

    def f(x: Any, w: Any) -> Any:
        if case.transposed:
            pads = ((left, left),) * 2
            steps = (case.stride,) * 2
            return lax.conv_transpose(x, w, steps, pads, dimension_numbers=names, transpose_kernel=True)
        pads = ((case.pad, case.pad),) * 2
        return lax.conv_general_dilated(
            x, w, (case.stride,) * 2, pads, rhs_dilation=(case.dilation,) * 2, dimension_numbers=names,
            feature_group_count=case.groups,
        )  # fmt: skip

    orders = ((0, 2, 3, 1), (2, 3, 1, 0), (0, 2, 3, 1))
    images, filters, slopes = (
        m.asarray(a.transpose(order)).astype(dtype) for a, order in zip(arrays, orders, strict=True)
    )  # fmt: skip
    if mode == "forward":
        compiled = jax.jit(lambda x, w, g: [f(x, w)])
    else:
        compiled = jax.jit(lambda x, w, g: list(jax.vjp(f, x, w)[1](g)))
    call = lambda: jax.block_until_ready(compiled(images, filters, slopes))
    back = [(0, 3, 1, 2), (3, 2, 0, 1)]
    return call, lambda: [np.asarray(y, "f4").transpose(order) for y, order in zip(call(), back, strict=False)]


LIBRARIES = {"lazyt": _lazyt, "torch": _torch, "jax": _jax}


# --- measuring


def check(got: Sequence[Array], want: Sequence[Array], dtype: str = "float32") -> None:
    """AssertionError where results are wrong."""
    for y, r in zip(got, want, strict=True):
        assert y.shape == r.shape, f"shape {y.shape}, not {r.shape}"
        off, scale = float(np.abs(y - r).max()), float(np.abs(r).max())
        assert off <= TOLERANCE[dtype] * scale, f"off by {off:.3g}, the largest is {scale:.3g}"


def measure(case: Case, peers: Sequence[str], quick: bool, dtype: str = "float32") -> list[Found]:
    """Forward, and with both gradients."""
    chosen = case.quick() if quick else case
    shapes = (chosen.n, chosen.channels, chosen.size, chosen.size), chosen.filters, chosen.result
    # NOTE: all read the same numbers, so what is rounded is rounded here.
    arrays = [seeded(shape, i).astype(getattr(dtypes, dtype)).astype(np.float32) for i, shape in enumerate(shapes)]
    want = reference(chosen, *(a.astype(np.float64) for a in arrays))
    results = []
    for mode, right in zip(MODES, (want[:1], want[1:]), strict=True):
        found = Found(case.name, mode)
        results.append(found)
        calls: dict[str, Call] = {}
        for name in ("lazyt", *peers):
            call, values = LIBRARIES[name](chosen, mode, dtype, arrays)
            try:
                t0 = time.perf_counter()
                call()
                if name == "lazyt":
                    found.first = (time.perf_counter() - t0) * 1e3
                for _ in range(2):
                    check(values(), right, dtype)
            except Exception as e:  # noqa: BLE001 - whatever a call raises is its result
                found.failure += f"{name}: {type(e).__name__}: {e}".splitlines()[0][:200]
                continue
            calls[name] = call
        if "lazyt" in calls:
            take_turns(found, calls, 1 if quick else ROUNDS, 0.0 if quick else SECONDS)
    return results


def take_turns(found: Found, calls: dict[str, Call], rounds: int, seconds: float) -> None:
    """The medians of all, and the ratio to the best peer."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(rounds):
        for name in list(calls) if i % 2 == 0 else reversed(calls):
            calls[name]()  # the caches have the other's data
            times[name].append(turn(calls[name], seconds, long=True))
            rest()
    found.times = {name: statistics.median(t) * 1e6 for name, t in times.items()}
    others = [name for name in times if name != "lazyt"]
    if others:
        found.peer = min(others, key=lambda name: found.times[name])
        pairs = zip(times[found.peer], times["lazyt"], strict=True)
        found.ratio = statistics.median(peer / mine for peer, mine in pairs)


def line(x: Found) -> str:
    text = f"{x.ratio:6.2f}  {x.name:34}{x.mode:8}" if x.ratio else f"        {x.name:34}{x.mode:8}"
    text += "".join(f"{k:>7} {t:10,.0f} us" for k, t in x.times.items()) + f"  first {x.first:,.0f} ms"
    return text + (f"  FAILED {x.failure}" if x.failure else "")


def report(results: Sequence[Found]) -> str:
    """The geometric means and the ten worst; what failed."""
    timed = [x for x in results if x.ratio]
    lines = []
    if timed:
        lines.append("peer / lazyt, the ten worst:")
        lines += [line(x) for x in sorted(timed, key=lambda x: x.ratio)[:10]]
        for mode in MODES:
            ratios = [x.ratio for x in timed if x.mode == mode]
            lines.append(
                f"{mode}: geometric mean of best peer / lazyt {geometric_mean(ratios):.2f}, worst {min(ratios):.2f}, "
                f"{sum(r < 1 for r in ratios)} of {len(ratios)} behind"
            )
    return "\n".join([*lines, *(line(x) for x in results if x.failure)])


def main(argv: list[str] | None = None) -> int:
    """The exit status: 1 where lazyt fails or is wrong."""
    ap = argparse.ArgumentParser(prog="python -m benchmarks.convolutions", description=(__doc__ or "").splitlines()[0])
    ap.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="convolutions with this in their names")
    ap.add_argument("--peers", default="torch,jax", help="separated by commas; default: torch,jax")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--dtype", default="float32", choices=list(TOLERANCE), help="of the arrays; default: float32")
    ap.add_argument("--quick", action="store_true", help="few channels of small images, one call: that all of it works")
    ap.add_argument("--list", action="store_true", help="print each as it is found")
    ap.add_argument("--json", type=Path, metavar="FILE", help="write what was found there too")
    args = ap.parse_args(argv)
    wanted = [p for p in args.peers.split(",") if p and p != "lazyt"]
    if unknown := [p for p in wanted if p not in LIBRARIES]:
        ap.error(f"unknown peers {', '.join(unknown)}; known: torch, jax")
    peers = [p for p in wanted if PEERS[p].installed()]
    if missing := [p for p in wanted if p not in peers]:
        print(f"skipped, not installed: {', '.join(missing)}")
    chosen = [c for c in CASES if any(text in c.name for text in args.only)]
    if not chosen:
        ap.error(f"--only: no convolution has {' or '.join(args.only)} in its name")
    limit_processors(args.threads)
    for name in ("lazyt", *peers):
        PEERS[name](args.threads)
    where, began, t0, results = machine(args.threads), now(), time.perf_counter(), []
    for case in chosen:
        for found in measure(case, peers, args.quick, args.dtype):
            results.append(found)
            if args.list:
                print(line(found), flush=True)
    if text := report(results):
        print(text)
    took = f"{time.perf_counter() - t0:.0f} s on {where['cpu']}, {args.threads} threads"
    print(f"{len(results)} calls in {args.dtype}, {took}")
    if args.json:
        record = {"machine": where, "began": began, "convolutions": [dataclasses.asdict(x) for x in results]}
        args.json.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if any(x.failure.startswith("lazyt") for x in results) else 0


if __name__ == "__main__":
    sys.exit(main())
