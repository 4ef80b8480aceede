"""A step length that fulfils the strong Wolfe conditions, by cubic interpolation. As PyTorch's `LBFGS` searches.

Nocedal, Wright: Numerical optimization, algorithms 3.5 and 3.6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple


class Point(NamedTuple):
    """A step length with the objective there, its slope along the direction, and the gradient."""

    t: float
    loss: float
    slope: float
    gradient: Any
    steepest: float  # the gradient's largest element


def cubic_minimum(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic through two points with their slopes is least, within bounds."""
    low, high = bounds or (min(a.t, b.t), max(a.t, b.t))
    middle = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = middle**2 - a.slope * b.slope
    if not square >= 0:  # NaN too
        return (low + high) / 2
    root = math.sqrt(square)
    left, right = (a, b) if a.t <= b.t else (b, a)
    span = right.slope - left.slope + 2 * root
    if span == 0:
        return (low + high) / 2
    at = right.t - (right.t - left.t) * ((right.slope + root - middle) / span)
    return min(max(at, low), high)


# Sufficient decrease, and how much flatter the slope must be.
DECREASE, CURVATURE = 1e-4, 0.9


def strong_wolfe(
    evaluate: Callable[[float], Point], start: Point, t: float, longest: float, tolerance: float, most: int
) -> tuple[Point, int]:
    """The point that was found, and how many evaluations it took; `longest` is the direction's largest element."""
    low, high, made, done = _bracket(evaluate, start, t, most)
    evaluations = made + 1
    if high is None:
        return low, evaluations
    stuck = False
    while not done and made < most:
        if abs(high.t - low.t) * longest < tolerance:
            break
        t, stuck = _inside(low, high, stuck)
        new = evaluate(t)
        evaluations += 1
        made += 1
        if new.loss > start.loss + DECREASE * t * start.slope or new.loss >= low.loss:
            low, high = (low, new) if low.loss <= new.loss else (new, low)
            continue
        if abs(new.slope) <= -CURVATURE * start.slope:
            done = True
        elif new.slope * (high.t - low.t) >= 0:
            high = low
        low = new
    return low, evaluations


def _bracket(
    evaluate: Callable[[float], Point], start: Point, t: float, most: int
) -> tuple[Point, Point | None, int, bool]:
    """Two points with a minimum between them, the lower first; or one that will do, and None."""
    before, new = start, evaluate(t)
    made = 0
    while made < most:
        rises = new.loss > start.loss + DECREASE * new.t * start.slope or (made > 1 and new.loss >= before.loss)
        if not rises and abs(new.slope) <= -CURVATURE * start.slope:
            return new, None, made, True
        if rises or new.slope >= 0:
            return (*((before, new) if before.loss <= new.loss else (new, before)), made, False)
        bounds = new.t + 0.01 * (new.t - before.t), new.t * 10
        t = cubic_minimum(before, new, bounds)
        before, new = new, evaluate(t)
        made += 1
    return (*((start, new) if start.loss <= new.loss else (new, start)), made, False)


def _inside(low: Point, high: Point, stuck: bool) -> tuple[float, bool]:
    """A step length between two, not too near to an end twice."""
    least, largest = min(low.t, high.t), max(low.t, high.t)
    t = cubic_minimum(low, high)
    margin = 0.1 * (largest - least)
    if min(largest - t, t - least) >= margin:
        return t, False
    if not (stuck or t >= largest or t <= least):
        return t, True
    return (largest - margin if abs(t - largest) < abs(t - least) else least + margin), False
