"""Runs of bound plans, one after another, as one native program: what one computes lies where a later one reads it.

    run 0: rows, table, patches by its own bases          one program, whose bases are those of all runs:
    run 1: rows, table, patches by its own bases    -->   inputs, results, one arena, scalars

A value that only later runs read lies in the arena, behind the temporaries, which all runs have in the same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.common.arena import MANY_BLOCKS, by_size, by_time
from lazyt.backends.common.executable import ScalarWords
from lazyt.backends.cpu.executor import Bound
from lazyt.backends.cpu.thread_pool import Program

if TYPE_CHECKING:
    from lazyt.backends.interface import Run

MAX_ROWS = 8192
# A replay spells out each base that moves.
MAX_MOVING = 1024
# Bytes of results that could take the memory of what a run reads: so few are sooner copied than run apart.
COPIED = 1 << 16


class Together:
    """What a replay asks of an executable: the scalars that runs read, each once, and the values of all expressions."""

    def __init__(self, runs: Sequence[Run]) -> None:
        found = {(run.scalars[p], part, floating) for run in runs for p, part, floating in run.bound.exe.scalars}
        self.scalars = sorted(found)
        self.words = ScalarWords(self.scalars)
        self.expressions = self
        self.moving = [run for run in runs if run.bound.moving]
        # Where the values of the expressions of each of these runs begin.
        counts = [len(run.bound.values) for run in self.moving]
        self.starts = dict(zip(map(id, self.moving), accumulate(counts, initial=0), strict=False))

    def evaluate(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> list[int]:
        """The values of the expressions of all runs that have bases that move."""
        values: list[int] = []
        for run in self.moving:
            values += run.bound.exe.expressions.evaluate(run.bound.extents, [scalars[p] for p in run.scalars])
        return values


class Linked(Bound):
    """Linked runs, as a binding that takes no memory of an input."""

    exe: Together  # type: ignore[assignment]

    def __init__(self, runs: Sequence[Run], n_inputs: int, wanted: Sequence[int], extents: tuple[int, ...]) -> None:
        self._begin(extents, np.zeros(3, np.int64))
        self.exe = Together(runs)
        self.runs = runs  # whose code runs
        self.n_inputs = n_inputs
        size = {v: n for run in runs for v, n in zip(run.outputs, run.bound.sizes, strict=True)}
        self.sizes = [size[v] for v in wanted]
        self.arena_base = n_inputs + len(wanted)
        self.status_base = self.arena_base + 1
        self.n_fixed = self.status_base + 1 + len(self.exe.scalars)
        self.donations, self.moving, self.kept = [], [], []
        # NOTE: of these a replay asks only whether one failed: the error is for the general way, part by part.
        self.checks = [node for run in runs for node in run.bound.checks]
        self.uses_blas, self.left_out, self.overwrites_from = False, None, 0
        # Base index and byte offset of each value.
        self.places = {v: (v, 0) for v in range(n_inputs)}
        self.places |= {v: (n_inputs + k, 0) for k, v in enumerate(wanted)}
        self.arena_size = self._lay({v: n for v, n in size.items() if v not in self.places})
        self.parts = [self._program()]

    def _lay(self, sizes: dict[int, int]) -> int:
        """Place what only later runs read; the size of the arena."""
        first = {v: i for i, run in enumerate(self.runs) for v in run.outputs}
        last = first | {v: i for i, run in enumerate(self.runs) for v in run.inputs if v in first}
        largest_first = sorted(sizes, key=lambda v: (-sizes[v], v))
        blocks = [(self.aligned(sizes[v]), first[v], last[v]) for v in largest_first]
        start = self.aligned(max(run.bound.arena_size for run in self.runs))
        offsets, top = (by_size if len(blocks) <= MANY_BLOCKS else by_time)(blocks)
        self.places |= {v: (self.arena_base, start + at) for v, at in zip(largest_first, offsets, strict=True)}
        return start + top

    def _program(self) -> Program:
        rows: list[Any] = []
        table: list[Any] = []
        patches: list[Any] = []
        scalar_base = {s: self.status_base + 1 + i for i, s in enumerate(self.exe.scalars)}
        for run in self.runs:
            if not run.bound.parts:
                continue
            program = run.bound.parts[0]
            own = [self.places[v] for v in (*run.inputs[: run.bound.n_inputs], *run.outputs)]
            own += [(self.arena_base, 0), (self.status_base, 0)]
            own += [(scalar_base[run.scalars[p], part, floating], 0) for p, part, floating in run.bound.exe.scalars]
            for base, byte, expression, itemsize in run.bound.moving:
                moves = (-1, 0) if base < 0 else own[base]
                own.append((self.n_fixed + len(self.moving), 0))
                self.moving.append((moves[0], byte + moves[1], expression + self.exe.starts[id(run)], itemsize))
            bases, bytes_ = np.array(own, np.int64).reshape(-1, 2).T
            moved, number = program.patches, len(table)
            patches.append(np.stack([moved[:, 0] + number, bases[moved[:, 1]], moved[:, 2] + bytes_[moved[:, 1]]], 1))
            rows.append(program.rows + np.array([0, number, 0, 0, 0]))
            table += program.table.tolist()
        return Program(np.concatenate(rows), table, np.concatenate(patches), self.n_fixed + len(self.moving))


def link(runs: Sequence[Run], n_inputs: int, wanted: Sequence[int], extents: tuple[int, ...]) -> Linked | None:
    """The runs as one; None where one is more than one native call, or there are too many."""
    n_rows = n_moving = 0
    for run in runs:
        b = run.bound
        # NOTE: one that gives what it was given has no part.
        if b.kept or b.uses_blas or len(b.parts) > 1 or any(type(p) is not Program for p in b.parts):
            return None
        if b.donations and sum(b.sizes) > COPIED:
            return None
        n_rows += sum(p.counts[0] for p in b.parts)
        n_moving += len(b.moving)
    return Linked(runs, n_inputs, wanted, extents) if 0 < n_rows <= MAX_ROWS and n_moving <= MAX_MOVING else None
