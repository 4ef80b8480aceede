"""Every function that NumPy has too, on a million elements: lazyt beside NumPy, in one process.

    python -m benchmarks.functions                          all of them: the ten worst ratios, and how many are slower
    python -m benchmarks.functions --only sort cumsum --list --json found.json

Each call is made until it is in its steady state; its result must agree with NumPy's; then the two take turns. What is
more than 5 % slower than NumPy takes turns three times more, and counts as slower only if it is so each time.

What is compared: from the arrays in memory to the result in memory. lazyt's time is the call and `lazyt.sync()`. Where
NumPy answers with a view of an operand, which is no work, both times have a copy of the result in them: NumPy's
`.copy()`, and `lazyt.copy` before the sync. lazyt's copy of an array that nobody has written is that array, shared
until somebody writes, and so is another shape of it: `copy(x)` or `expand_dims(x, 1)` there show what recording costs
against NumPy's copy, not a faster one.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import lazyt as lt
from benchmarks.__main__ import machine
from benchmarks.function_cases import Array, Case, arrays, cases
from benchmarks.measure import now
from benchmarks.worker import limit_processors

SLOWER = 1.05
RERUNS = 3
LONG = 0.01
SETTLE = 8  # calls of a turn before the timed ones
WARM_UP = 4  # calls before any is timed: programs settle in their second, pages are touched
# Of the largest magnitude of the result, by the size of its real dtype in bytes.
TOLERANCE = {2: 2e-3, 4: 2e-4, 8: 1e-8, 16: 1e-8}
# Products of a million factors near 1, in float32: lazyt's sixteen lanes start anew at 1 every so many factors, and
# near 1 what rounding loses has a sign (1 + a times 1 - b lies between two neighbours, and -ab decides), 4e-10 each.
PRODUCTS = 1e-3


@dataclasses.dataclass
class Found:
    """What a call took; times are in microseconds. `ratios` has the survey's and those of each re-run."""

    name: str
    label: str
    lazyt: float = 0.0
    numpy: float = 0.0
    ratios: list[float] = dataclasses.field(default_factory=list)
    failure: str = ""

    @property
    def ratio(self) -> float:
        """The one that counts: the median of the re-runs, the survey's where there was no need of them."""
        return statistics.median(self.ratios[1:] or self.ratios or [0.0])

    @property
    def slower(self) -> bool:
        """Whether the survey and every re-run say so."""
        return bool(self.ratios) and min(self.ratios) > SLOWER


# Functions whose results NumPy gives in any order.
UNORDERED = {"partition", "argpartition", "argsort", "unique_values"}


def _put(a: Any, key: Any, value: Any) -> Any:
    b = a.copy() if isinstance(a, np.ndarray) else lt.copy(a)
    b[key] = value
    return b


def _add_at(a: Array, key: Any, values: Any) -> Array:
    b = a.copy()
    np.add.at(b, key, values)
    return b


def _put_along_axis(a: Array, index: Array, values: Array, axis: int) -> Array:
    b = a.copy()
    np.put_along_axis(b, index, values, axis)
    return b


def _flat(result: Any) -> list[Any]:
    if isinstance(result, tuple | list):
        return [r for x in result for r in _flat(x)]
    return [result]


class Pair:
    """A case on both libraries: two calls that return when their result is in memory."""

    def __init__(self, case: Case, given: dict[str, Any], tensors: dict[str, Any]) -> None:
        self.case, self.given = case, list(given.values())
        side = len(given["x"])
        common = {"np": np, "put": _put, "side": side, "size": side * side}
        extra = {"rng": np.random.default_rng(3), "add_at": _add_at, "put_along_axis": _put_along_axis}
        of_lazyt = eval(f"lambda: {case.lazyt}", common | {"xp": lt} | tensors)
        of_numpy = eval(f"lambda: {case.numpy}", common | {"xp": np} | extra | given)
        self.of_lazyt: Callable[[], Any] = of_lazyt
        self.of_numpy: Callable[[], Any] = of_numpy
        # A view is no work: where NumPy answers with one, both are timed with a copy of it.
        self.copies = False
        self.long = False

    def lazyt(self) -> Any:
        result = self.of_lazyt()
        if self.copies:
            result = [lt.copy(x) for x in _flat(result)]
        lt.sync()
        return result

    def numpy(self) -> Any:
        result = self.of_numpy()
        return [x.copy() for x in _flat(result)] if self.copies else result

    def check(self) -> None:
        """AssertionError where results disagree; makes the calls that are to settle."""
        want = _flat(self.of_numpy())
        self.copies = any(isinstance(x, np.ndarray) and _is_view(x, self.given) for x in want)
        for _ in range(WARM_UP):
            t0 = time.perf_counter()
            result = self.lazyt()
            self.long = time.perf_counter() - t0 > LONG
        got = [x.numpy() if hasattr(x, "numpy") else np.asarray(x) for x in _flat(result)]
        assert len(got) == len(want), f"{len(got)} results, NumPy has {len(want)}"
        for g, w in zip(got, map(np.asarray, want), strict=True):
            anyhow = self.case.name in UNORDERED and "stable" not in self.case.lazyt
            _agree(*((np.sort(g), np.sort(w)) if anyhow else (g, w)), self.case)

    def turns(self, rounds: int, seconds: float) -> tuple[float, float, float]:
        """Medians of both, in microseconds, and the median of the ratios of neighbouring turns.

        Calls of more than a hundredth of a second take three turns at most.
        """
        times: list[tuple[float, float]] = []
        if self.long:
            rounds = min(rounds, 3)
        gc.disable()
        for i in range(rounds):
            first, second = (self.lazyt, self.numpy) if i % 2 else (self.numpy, self.lazyt)
            a = turn(first, seconds, self.long)
            rest()
            b = turn(second, seconds, self.long)
            rest()
            times.append((a, b) if i % 2 else (b, a))
        gc.enable()
        mine, theirs = (statistics.median(t) for t in zip(*times, strict=True))
        return mine * 1e6, theirs * 1e6, statistics.median(a / b for a, b in times)


def _is_view(x: Array, given: Iterable[Any]) -> bool:
    """Whether an answer is some array that was given, looked at in another way."""
    plain = x.flags.c_contiguous or x.flags.f_contiguous
    return not plain or any(isinstance(a, np.ndarray) and np.may_share_memory(x, a) for a in given)


def rest(pause: float = 0.012, longest: float = 0.3) -> None:
    """Wait until no thread of this process is busy: those of NumPy's BLAS wait for their next call by spinning, about
    a tenth of a second, on a processor that the other's turn needs.

    The time of a thread that runs elsewhere is known once a tick of the system's clock, 4 ms: pauses are longer.
    """
    stop = time.perf_counter() + longest
    busy = pause
    while busy > pause / 4 and time.perf_counter() < stop:
        before = time.process_time()
        time.sleep(pause)
        busy = time.process_time() - before


def turn(call: Callable[[], Any], seconds: float, long: bool) -> float:
    """The median time of calls for so long, after some that are not timed unless they are long: the caches have the
    other's data, and a few megabytes take about eight calls to come back.
    """
    for _ in range(0 if long else SETTLE):
        call()
    times: list[float] = []
    stop = time.perf_counter() + seconds
    while not times or (time.perf_counter() < stop and len(times) < 15):
        t0 = time.perf_counter()
        call()
        times.append(time.perf_counter() - t0)
    return statistics.median(times)


def _agree(got: Array, want: Array, case: Case) -> None:
    assert got.shape == want.shape, f"shape {got.shape}, NumPy's is {want.shape}"
    if case.name.endswith(("empty", "empty_like")):
        return
    if case.name.startswith("random."):
        for f in (np.mean, np.std):
            a, b = (float(f(x.astype(np.float64))) for x in (got, want))
            assert abs(a - b) <= 0.2 * max(abs(a), abs(b), 0.2), f"{f.__name__} {a}, NumPy's is {b}"
        return
    if want.dtype.kind not in "fc":
        assert np.array_equal(got, want), f"{np.mean(got != want):.2%} of the elements differ"
        return
    real = got.real.dtype.itemsize if got.dtype.kind in "fc" else 8
    g, w = got.astype(np.result_type(want, np.float64)), want.astype(np.result_type(want, np.float64))
    finite = np.isfinite(w)
    scale = float(np.abs(w[finite]).max()) if finite.any() else 0.0
    off = float(np.abs(g[finite] - w[finite]).max()) if finite.any() else 0.0
    allowed = TOLERANCE[min(real, want.real.dtype.itemsize)]
    if case.name == "prod" and want.dtype == np.float32:
        allowed = PRODUCTS
    assert off <= allowed * scale, f"off by {off:.3g}, the largest is {scale:.3g}"
    same = np.isnan(g) == np.isnan(w) if want.dtype.kind == "f" else np.isfinite(g) == finite
    assert same.all(), "another NaN or infinity"


def survey(chosen: Sequence[Case], quick: bool, tell: Callable[[Found], None]) -> list[Found]:
    """Each case checked, timed, and timed again where it seems slower; `tell` is called with each."""
    results: list[Found] = []
    rounds, seconds = (1, 0.0) if quick else (3, 0.002)
    for dtype in dict.fromkeys(c.dtype for c in chosen):
        given = arrays(dtype, quick)
        tensors = {k: lt.asarray(v) for k, v in given.items()}
        lt.sync()
        given["N"] = tensors["N"] = given["x"]
        for case in (c for c in chosen if c.dtype == dtype):
            found = Found(case.name, case.label)
            results.append(found)
            pair = Pair(case, given, tensors)
            try:
                pair.check()
            except Exception as e:  # noqa: BLE001 - whatever a call raises is its result
                found.failure = f"{type(e).__name__}: {e}".splitlines()[0][:200]
            while not found.failure and (not found.ratios or (found.slower and len(found.ratios) <= RERUNS)):
                again = bool(found.ratios)
                found.lazyt, found.numpy, ratio = pair.turns(7 if again else rounds, seconds * (4 if again else 1))
                found.ratios.append(ratio)
                if quick:
                    break
            tell(found)
    return results


def line(x: Found) -> str:
    if x.failure:
        return f"  FAILED {x.label}: {x.failure}"
    doubt = "  (not each time)" if x.ratio > SLOWER and not x.slower else ""
    return f"{x.ratio:8.2f}  {x.lazyt:10,.0f}  {x.numpy:10,.0f}  {x.label}{doubt}"


def report(results: Sequence[Found]) -> str:
    """The worst ten, what failed, and how many are slower."""
    timed = sorted((x for x in results if not x.failure), key=lambda x: (-x.slower, -x.ratio))
    failed = [x for x in results if x.failure]
    slower = sum(x.slower for x in timed)
    lines = [f"{'ratio':>8}  {'lazyt us':>10}  {'NumPy us':>10}  the ten worst"]
    lines += [line(x) for x in [*timed[:10], *failed]]
    names = len({x.name for x in results})
    if timed:
        mean = statistics.geometric_mean(x.ratio for x in timed)
        lines.append(
            f"{len(timed)} calls of {names} functions: {slower} slower than NumPy by more than 5 %; mean {mean:.2f}"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """The exit status: 1 where a result is wrong or a call fails."""
    ap = argparse.ArgumentParser(prog="python -m benchmarks.functions", description=(__doc__ or "").splitlines()[0])
    ap.add_argument("--only", nargs="+", metavar="NAME", help="functions, as NumPy names them")
    ap.add_argument("--dtypes", default="", help="NumPy's characters: fdli?FD; default: all")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--quick", action="store_true", help="a thousand elements, one call of each: that all of it works")
    ap.add_argument("--list", action="store_true", help="print every ratio as it is found")
    ap.add_argument("--json", type=Path, metavar="FILE", help="write what was found there too")
    args = ap.parse_args(argv)
    every = cases()
    names = {c.name for c in every}
    if unknown := [n for n in args.only or () if n not in names]:
        ap.error(f"unknown functions {', '.join(unknown)}; known: {', '.join(sorted(names))}")
    chosen = [c for c in every if (not args.only or c.name in args.only) and c.dtype in (args.dtypes or c.dtype)]
    limit_processors(args.threads)
    lt.set_num_threads(args.threads)
    where, began, t0 = machine(args.threads), now(), time.perf_counter()
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = survey(chosen, args.quick, lambda x: print(line(x), flush=True) if args.list else None)
    print(report(results))
    print(f"{time.perf_counter() - t0:.0f} s on {where['cpu']}, {args.threads} threads")
    if args.json:
        found = [dataclasses.asdict(x) | {"ratio": x.ratio, "slower": x.slower} for x in results]
        args.json.write_text(json.dumps({"machine": where, "began": began, "functions": found}, indent=1) + "\n")
    return 1 if any(x.failure for x in results) else 0


if __name__ == "__main__":
    sys.exit(main())
