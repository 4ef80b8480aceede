"""How sensitive gradients are to each array and sample that a compression rounds: what level "L3" remembers.

As ActNN: of each array the squared norm of what its values are multiplied with in the backward, from the step before;
of a sample that has an index, half of that and half of what it was before. A step's report is read when it has been
computed, and nothing waits for it: until then bits follow older steps, and the ranges of the arrays alone in the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.ir.bit_allocation import allocate
from lazyt.ir.compression import PARTS_OF_A_BIT

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

# Arrays that a first step reports of, and reports that are waited for.
MOST, WAITING = 256, 4
# Bits are divided among arrays after 1, 2, 4, ... steps, and then each time that so many have passed.
EVERY = 64
FINE = 16
UNSEEN = 1e-9


class Sensitivity:
    """Of one program, for one thread. average: bits of an element."""

    def __init__(self, average: float) -> None:
        self.average = average
        self.waiting: list[tuple[Tensor, np.ndarray | None]] = []
        self.steps = 0
        self._forget(0)

    def _forget(self, arrays: int) -> None:
        self.arrays = arrays
        self.latest = np.ones(arrays, np.float32)
        self.table = np.zeros((0, arrays), np.float32)
        self.seen = np.zeros(0, np.bool_)
        self.averages: tuple[int, ...] | None = None
        self.steps = 0

    def told(self, samples: np.ndarray | None) -> tuple[np.ndarray, tuple[int, ...] | None]:
        """What the next step is told: its input (4, arrays, samples), and the averages of its arrays."""
        self._take()
        columns = 1 if samples is None else len(samples)
        out = np.zeros((4, self.arrays or MOST, columns), np.float32)
        if not self.arrays:
            out[0] = 1
        elif samples is None:
            out[0] = self.latest[:, None]
        else:
            self._grow(samples)
            known = self.seen[samples]
            unseen = self.table[self.seen].mean(0) if self.seen.any() else self.latest
            out[0] = np.where(known[:, None], self.table[samples], unseen + np.float32(UNSEEN)).T
        out[0][~out[0].any(1)] = 1
        return out, self.averages

    def wait(self, report: Tensor, samples: np.ndarray | None) -> None:
        """The report of the step that was told last, pending."""
        self.waiting = [*self.waiting, (report, samples)][-WAITING:]

    def _take(self) -> None:
        """Read the reports that have been computed."""
        pending = []
        for report, samples in self.waiting:
            if report.is_pending:
                pending.append((report, samples))
            else:
                self.learn(report.numpy(), samples)
        self.waiting = pending

    def learn(self, report: Any, samples: np.ndarray | None) -> None:
        """What a step found out: (4, arrays, samples), as `lazyt.ops.compression` says."""
        norms, variances, sizes, counts = report
        arrays = int((sizes[:, 0] > 0).sum())
        # NOTE: a step without a backward has nothing to report, and an overflow says nothing.
        if not arrays or not np.isfinite(report).all():
            return
        if arrays != self.arrays:
            self._forget(arrays)
        norms = norms[:arrays]
        self.latest = norms.mean(1)
        if samples is not None:
            self._grow(samples)
            old = self.seen[samples, None]
            self.table[samples] = np.where(old, 0.5 * self.table[samples] + 0.5 * norms.T, norms.T)
            self.seen[samples] = True
        self.steps += 1
        if self.steps & (self.steps - 1) == 0 or self.steps % EVERY == 0:
            self._divide(variances[:arrays], sizes[:arrays, 0], counts[:arrays, 0])

    def _divide(self, variances: np.ndarray, sizes: np.ndarray, counts: np.ndarray) -> None:
        """Divide the bits of all samples of all arrays among them.

        An array of which no product is made has the bits of the one before it that has such: the error of a factor goes
        through the products behind it, and is not comparable. So the latter counts for the elements of both.
        """
        # NOTE: where all samples of an array count alike, as many parts of it as make an average fine enough.
        variances = np.repeat(variances, -(-FINE // variances.shape[1]), 1)
        columns = variances.shape[1]
        products = variances.sum(1) > 0
        if not products.any():
            return
        leader = np.maximum(np.cumsum(products) - 1, 0)
        elements = np.bincount(leader, sizes * counts / columns).astype(np.int64)
        weights = np.repeat(np.maximum(elements, 1), columns)
        bits = allocate(variances[products].ravel().tolist(), self.average * int(weights.sum()), weights.tolist())
        means = np.asarray(bits, np.float64).reshape(-1, columns).mean(1)[leader]
        self.averages = tuple(int(m * PARTS_OF_A_BIT) for m in means)

    def _grow(self, samples: np.ndarray) -> None:
        more = int(samples.max()) + 1 - len(self.seen)
        if more > 0:
            more = max(more, len(self.seen))
            self.table = np.concatenate([self.table, np.zeros((more, self.arrays), np.float32)])
            self.seen = np.concatenate([self.seen, np.zeros(more, np.bool_)])
