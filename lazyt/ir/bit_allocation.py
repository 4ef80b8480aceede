"""Which array gets how many bits, so that the error of gradients is least within a budget.

Rounding x_i at random to b_i bits adds `c_i / (2 ** b_i - 1) ** 2` to the variance of a gradient, where c_i is how
sensitive that is to x_i. The sum of these is to be least, and `sum(w_i * b_i)` at most the budget, w_i elements having
b_i bits each. As ActNN and GACT: all begin with the most bits, and those are taken away whose loss does least harm for
what it saves. Both stop there; here what the last step saved too much is given back where it does most good, and pairs
are exchanged as long as that helps.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

EVERY = (1, 2, 3, 4, 5, 6, 7, 8)
# Beyond so many arrays (of samples) no pairs are exchanged: what is gained is less than one of them.
EXCHANGED = 64


def variance(sensitivity: Sequence[float], bits: Sequence[int]) -> float:
    """What rounding to these bits adds to the variance of a gradient."""
    return math.fsum(c * _share(b) for c, b in zip(sensitivity, bits, strict=True))


def _share(bits: int) -> float:
    return 1 / (2.0**bits - 1) ** 2


def allocate(
    sensitivity: Sequence[float], budget: float, weights: Sequence[int] | None = None, choices: Sequence[int] = EVERY
) -> list[int]:
    """The bits of each array: `choices`, ascending. Raises ValueError where the fewest are more than the budget.

    Arrays that are equally sensitive get equal bits, as far as the budget goes.
    """
    n = len(sensitivity)
    sizes = [1] * n if weights is None else [*weights]
    if any(not c >= 0 or math.isinf(c) for c in sensitivity):
        raise ValueError(f"allocate: sensitivities are finite and not negative, got {[*sensitivity]}")
    if choices[0] * sum(sizes) > budget:
        raise ValueError(f"allocate: {choices[0] * sum(sizes)} bits are the fewest, the budget is {budget}")
    at = [len(choices) - 1] * n  # position in `choices`
    used: float = choices[-1] * sum(sizes)
    heap = [_harm(sensitivity[i], sizes[i], choices, at[i], i) for i in range(n) if at[i]]
    heapq.heapify(heap)
    while used > budget:
        i = heapq.heappop(heap)[-1]
        used -= sizes[i] * (choices[at[i]] - choices[at[i] - 1])
        at[i] -= 1
        if at[i]:
            heapq.heappush(heap, _harm(sensitivity[i], sizes[i], choices, at[i], i))
    used = _give_back(sensitivity, sizes, choices, at, budget, used)
    if n <= EXCHANGED:
        _exchange(sensitivity, sizes, choices, at, budget, used)
    return [choices[k] for k in at]


def _harm(c: float, size: int, choices: Sequence[int], k: int, i: int) -> tuple[float, int, int]:
    """By what fewer bits add for each bit that they save; among equals, who has the most bits first."""
    more, fewer = choices[k], choices[k - 1]
    return c * (_share(fewer) - _share(more)) / (size * (more - fewer)), -more, i


def _give_back(
    sensitivity: Sequence[float],
    sizes: Sequence[int],
    choices: Sequence[int],
    at: list[int],
    budget: float,
    used: float,
) -> float:
    """Spend what is left where it lowers the variance most for its cost; what is used then."""
    waiting = [_harm(sensitivity[i], sizes[i], choices, k + 1, i) for i, k in enumerate(at) if k + 1 < len(choices)]
    heap = [(-harm, more, i) for harm, more, i in waiting]
    heapq.heapify(heap)
    while heap:
        i = heapq.heappop(heap)[-1]
        cost = sizes[i] * (choices[at[i] + 1] - choices[at[i]])
        if used + cost > budget:
            continue
        used += cost
        at[i] += 1
        if at[i] + 1 < len(choices):
            harm, more, _ = _harm(sensitivity[i], sizes[i], choices, at[i] + 1, i)
            heapq.heappush(heap, (-harm, more, i))
    return used


def _exchange(
    sensitivity: Sequence[float],
    sizes: Sequence[int],
    choices: Sequence[int],
    at: list[int],
    budget: float,
    used: float,
) -> None:
    """Give one array more bits, and others, the least harmed first, fewer, where that lowers the variance."""
    n = len(at)
    improved = True
    while improved:
        improved = False
        for i in range(n):
            if at[i] + 1 == len(choices):
                continue
            trial = [*at]
            trial[i] += 1
            now = used + sizes[i] * (choices[trial[i]] - choices[at[i]])
            while now > budget:
                able = [_harm(sensitivity[j], sizes[j], choices, trial[j], j) for j in range(n) if j != i and trial[j]]
                if not able:
                    break
                j = min(able)[-1]
                now -= sizes[j] * (choices[trial[j]] - choices[trial[j] - 1])
                trial[j] -= 1
            if now > budget:
                continue
            now = _give_back(sensitivity, sizes, choices, trial, budget, now)
            found, old = (variance(sensitivity, [choices[k] for k in ks]) for ks in (trial, at))
            if found < old * (1 - 1e-12):
                at[:], used, improved = trial, now, True
