"""What was found, for a person: a table for each workload, and the one of all of them."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.core import WORKLOADS, Duel, Result, Workload
from benchmarks.stats import disturbed, geometric_mean, standing, verdict
from benchmarks.targets import TARGET_MEAN, TARGETS

# The share of the processors from which on a reader should know that other programs had it.
BUSY = 0.05
# The memory of a training step is to be at most this library's.
MEMORY_PEER = "torch"


def number(x: float) -> str:
    """Three significant digits, no exponent.

    >>> number(1234.5), number(12.34), number(1.234), number(0.01234)
    ('1,234', '12.3', '1.23', '0.0123')
    """
    digits = 0 if x >= 100 else 1 if x >= 10 else 2 if x >= 1 else 3 if x >= 0.1 else 4
    return f"{x:,.{digits}f}"


def table(w: Workload, results: Sequence[Result]) -> str:
    """What each library found alone, fastest first, with its ratio to the best peer (lazyt's: below 1 is faster)."""
    best = min((r.median for r in results if r.peer != "lazyt" and not r.failure), default=0.0)
    lines = [f"{w.name}: {w.what}"]
    lines.append(
        f"  {'':14}{'median':>9}{'quartiles':>19}{'best':>9}  {w.unit:<9}{'to best':>8}"
        f"{'first call':>13}{'memory':>11}{'steady':>11}"
    )
    for r in sorted(results, key=lambda r: (bool(r.failure), r.median)):
        if r.failure:
            lines.append(f"  {r.peer:14}FAILED: {r.failure}")
            continue
        ratio = f"{r.median / best:.2f}" if best else "-"
        quartiles = f"{number(r.low)} .. {number(r.high)}"
        line = f"  {r.peer:14}{number(r.median):>9}{quartiles:>19}{number(r.best):>9}  {w.unit:<9}{ratio:>8}"
        line += f"{r.first * 1e3:>10,.1f} ms{r.peak / 1e6:>8,.0f} MB{r.steady / 1e6:>8,.0f} MB"
        line += f"    arrays {r.arrays / 1e6:,.0f} MB" if r.arrays else ""
        lines.append(line + "".join(f"    {k} {number(v)} {w.unit}" for k, v in r.notes.items()))
    if w.trains and (text := memory_line(results)):
        lines.append(text)
    return "\n".join(lines)


def memory_line(results: Sequence[Result]) -> str:
    """lazyt's memory beside PyTorch's; '' where one of them is missing."""
    found = {r.peer: r for r in results if not r.failure and r.peer in ("lazyt", MEMORY_PEER)}
    if len(found) < 2:
        return ""
    lazyt, torch = found["lazyt"], found[MEMORY_PEER]
    parts = [f"{r.peer} {max(r.peak, r.steady) / 1e6:,.0f} MB ({r.steady / 1e6:,.0f} steady)" for r in (lazyt, torch)]
    return f"  memory: {', '.join(parts)}: {memory_verdict(lazyt, torch)}"


def memory_verdict(lazyt: Result, torch: Result) -> str:
    """Whether a training step has at most the memory that PyTorch has, from its build on."""
    if max(lazyt.peak, lazyt.steady) <= max(torch.peak, torch.steady):
        return f"at most {MEMORY_PEER}'s"
    if lazyt.steady <= torch.steady:
        return f"at most {MEMORY_PEER}'s once it is compiled"
    return f"more than {MEMORY_PEER}'s"


def duel_line(w: Workload, d: Duel) -> str:
    """lazyt and the best peer in turns, in a line."""
    text = f"  in turns: lazyt {number(d.lazyt_time)}, {d.peer} {number(d.peer_time)} {w.unit}; "
    text += f"ratio {d.ratio:.2f} ({d.lower:.2f} .. {d.upper:.2f}), {standing(d.ratio, d.upper)}"
    if d.target is not None:
        text += f"; target {d.target:.2f}: {judged(d)}"
    if d.others >= BUSY:
        text += f"; others had {d.others:.0%} of the processors meanwhile"
    if d.slow >= BUSY:
        text += f"; the machine was slow behind {d.slow:.0%} of the turns"
    if d.limit_time:
        text += f"; limit {number(d.limit_time)} {w.unit}, lazyt {d.lazyt_time / d.limit_time:.1f} times"
    return text


def judged(d: Duel) -> str:
    """The verdict, where others left the processors alone and the machine kept its rate."""
    return "disturbed" if disturbed(d.others, d.slow) else verdict(d.ratio, d.upper, d.target)


def summary(duels: Sequence[Duel]) -> str:
    """The table of all workloads, as they ran in turns, and the geometric mean of best peer / lazyt."""
    heads = f"{'workload':20}{'lazyt':>9}{'best peer':>24}{'':9}{'ratio':>7}{'bound':>7}{'target':>8}"
    lines = [heads + f"  {'':10}{'':7}{'limit':>9}{'of limit':>10}"]
    for d in duels:
        w = WORKLOADS[d.workload]
        peer = f"{d.peer} {number(d.peer_time)}"
        target = "-" if d.target is None else f"{d.target:.2f}"
        line = f"{d.workload:20}{number(d.lazyt_time):>9}{peer:>24} {w.unit:8}{d.ratio:>7.2f}{d.upper:>7.2f}{target:>8}"
        line += f"  {judged(d):10}{'' if disturbed(d.others, d.slow) else standing(d.ratio, d.upper):7}"
        if d.limit_time:
            line += f"{number(d.limit_time):>9}{d.lazyt_time / d.limit_time:>9.1f}x"
        if d.others >= BUSY:
            line += f"  (others: {d.others:.0%})"
        if d.slow >= BUSY:
            line += f"  (slow: {d.slow:.0%})"
        lines.append(line.rstrip())
    rows = [d for d in duels if d.workload in TARGETS and not disturbed(d.others, d.slow)]
    if rows:
        mean = geometric_mean([1 / d.ratio for d in rows])
        reached = sum(judged(d) == "reached" for d in rows)
        lines.append(
            f"best peer / lazyt, geometric mean over {len(rows)} of the table's {len(TARGETS)} rows: {mean:.2f} "
            f"(target {TARGET_MEAN} over all); targets reached: {reached}"
        )
    return "\n".join(lines)
