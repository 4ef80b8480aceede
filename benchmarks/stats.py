"""The statistics of repeated timings: medians, what bounds them, and what they say about a target."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from benchmarks.targets import TIE

RESAMPLES = 10_000
DISTURBED = 0.2


def bounds(ratios: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """The lower bound, the median and the upper bound of ratios, each bound one-sided at `level`.

    A percentile bootstrap: the median of as many ratios, drawn anew with replacement, 10,000 times, from one seed.

    >>> bounds([0.5] * 15)
    (0.5, 0.5, 0.5)
    """
    assert len(ratios) > 0, "no ratios"
    r = np.asarray(ratios, float)
    drawn = np.random.default_rng(0).integers(0, len(r), (RESAMPLES, len(r)))
    low, high = np.quantile(np.median(r[drawn], axis=1), [1 - level, level])
    return float(low), float(np.median(r)), float(high)


def quartiles(times: Sequence[float]) -> tuple[float, float, float]:
    """The lower quartile, the median and the upper quartile.

    >>> quartiles([4.0, 1.0, 2.0, 3.0, 5.0])
    (2.0, 3.0, 4.0)
    """
    low, median, high = np.quantile(np.asarray(times, float), [0.25, 0.5, 0.75])
    return float(low), float(median), float(high)


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive numbers.

    >>> geometric_mean([0.5, 2.0])
    1.0
    """
    assert min(values, default=0) > 0, f"no geometric mean of {values}"
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def standing(median: float, upper: float) -> str:
    """Where lazyt stands beside the peer: ahead only where the upper bound is.

    >>> standing(0.8, 0.9), standing(0.9, 1.1), standing(1.2, 1.3), standing(1.4, 1.5)
    ('ahead', 'tie', 'tie', 'behind')
    """
    return "ahead" if upper < 1 else "tie" if median <= TIE else "behind"


def disturbed(others: float, slow: float = 0.0) -> bool:
    """Whether times say nothing: others had so much of the processors that spinning threads are ten times slower, or
    the machine was slow behind so many of the turns.

    >>> disturbed(0.1), disturbed(0.3), disturbed(0.0, 0.3)
    (False, True, True)
    """
    return max(others, slow) >= DISTURBED


def verdict(median: float, upper: float, target: float | None) -> str:
    """Whether a target is reached. Only the upper bound counts; a median below it alone is not enough.

    >>> verdict(0.4, 0.44, 0.45), verdict(0.4, 0.5, 0.45), verdict(0.6, 0.7, 0.45), verdict(0.6, 0.7, None)
    ('reached', 'open', 'missed', '')
    """
    if target is None:
        return ""
    return "reached" if upper <= target else "open" if median <= target else "missed"
