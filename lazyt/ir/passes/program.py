"""The input and output of passes: a program between its graph and its schedule, and the options of a compilation."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from lazyt.ir.records import dataclass
from lazyt.ir.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.ir.graph import Graph
    from lazyt.ir.passes.fusion_result import Fused
    from lazyt.ir.passes.recomputation import Choice, Wish
    from lazyt.ir.passes.schedule import Launch, Schedule
    from lazyt.ir.residuals import Residuals
    from lazyt.ir.symbolic import Scope


# A device whose kernels and products have all forms that passes give them, and whose backend has no further code.
USUAL = Target(
    convolutions=True, epilogues=True, stage_reuse=True, joined_axes=True, vector_products=True, packed_products=True,
    half_products=True,
)  # fmt: skip


@dataclass(frozen=True)
class Options:
    """Options of a compilation: the target, and the passes and rewrites that are off."""

    target: Target = USUAL  # without what flags take away
    fused: bool = True  # kernels of many operations; otherwise each operation has a kernel of its own
    # Whether an unfused program becomes a fused one where fusion would divide it in the same way.
    settle: bool = False
    verify: bool = False  # check the program after each pass
    off: frozenset[str] = frozenset()  # flags of passes and of rewrites
    prefetch: Callable[[Graph, Scope | None, Target], None] | None = None  # begins to compile code early
    # So many outputs at the end are the gradients of those before them, (values, gradients), for a later backward.
    later: tuple[int, int] | None = None
    wish: Wish | None = None  # under a memory budget: what `recompute` and the order of launches aim at
    checked: bool = False  # check the schedule, also without `verify`


@dataclass(frozen=True)
class Program:
    """A program on its way through the pipeline: each level is there once its pass has run."""

    graph: Graph
    scope: Scope | None
    fused: bool  # whether its kernels are those of a fused program
    exact: bool = False  # nothing is kept in few bits, whatever it was recorded under
    choice: Choice | None = None  # which values are computed again in the backward
    division: Fused | None = None
    launches: tuple[Launch, ...] = field(default=())
    schedule: Schedule | None = None
    residuals: Residuals | None = None  # what computes the gradients of `Options.later`, and of which of the outputs
