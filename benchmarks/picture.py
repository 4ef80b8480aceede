"""The ratios as a picture, where matplotlib is installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from benchmarks.core import Duel
from benchmarks.report import judged

COLOURS = {"reached": "#2a9d5c", "open": "#e0a030", "missed": "#c8553d", "disturbed": "#bbbbbb", "": "#777777"}


def available() -> bool:
    """Whether there can be a picture."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(duels: Sequence[Duel], path: Path) -> None:
    """A bar for each workload: lazyt / best peer, with its bounds and its target. Left of 1 lazyt is faster."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    plt = importlib.import_module("matplotlib.pyplot")
    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.32 * len(duels)), layout="constrained")
    places = range(len(duels))
    axes.barh(
        places,
        [d.ratio for d in duels],
        xerr=[[d.ratio - d.lower for d in duels], [d.upper - d.ratio for d in duels]],
        color=[COLOURS[judged(d)] for d in duels],
        error_kw={"elinewidth": 1, "capsize": 2},
    )
    targets = [(i, d.target) for i, d in enumerate(duels) if d.target is not None]
    axes.scatter([t for _, t in targets], [i for i, _ in targets], marker="|", s=160, color="black", label="target")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(list(places), [f"{d.workload}  ({d.peer})" for d in duels])
    axes.invert_yaxis()
    axes.set_xlabel("time of lazyt / time of the best peer, with the bounds of the median at 95 %")
    if targets:
        axes.legend(loc="best")
    figure.savefig(path, dpi=120)
    plt.close(figure)
