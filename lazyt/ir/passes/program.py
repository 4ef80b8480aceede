"""The input and output of passes: a program between its graph and its schedule, and the options of a compilation."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from lazyt.forking import cached_property
from lazyt.ir.passes.call_operands import Reads
from lazyt.ir.passes.canonicalize import Rewrites
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Graph, Node
    from lazyt.ir.passes.canonicalize import Attention
    from lazyt.ir.passes.divide_kernels import Share
    from lazyt.ir.passes.fusion_result import Fused
    from lazyt.ir.passes.recomputation import Choice, Wish
    from lazyt.ir.passes.schedule import Launch, Schedule
    from lazyt.ir.residuals import Residuals
    from lazyt.ir.symbolic import Scope


@dataclass(frozen=True)
class Options:
    """How a graph is compiled: what the backend can do, and which passes and rewrites are off."""

    fused: bool = True  # kernels of many operations; otherwise each operation has a kernel of its own
    # Whether an unfused program becomes a fused one where fusion would divide it in the same way.
    settle: bool = False
    verify: bool = False  # check the program after each pass
    off: frozenset[str] = frozenset()  # flags of passes and of rewrites
    # Of the backend: which convolutions are calls, what calls attention becomes, the needs of a kernel's code as a
    # share of what is allowed (None: kernels are not bounded), and code that it may begin to compile early.
    convolutions: bool | Callable[[Node], bool] = True
    attention: Attention | None = None
    share: Share | None = None
    prefetch: Callable[[Graph, Scope | None, Reads], None] | None = None
    # Of products of halves: both operands are one half, and none is rounded while it is read.
    alike: bool = False
    # Of the backend, see `Rewrites`.
    half_convolutions: Callable[[Builder, Node], bool] | None = None
    rounded_products: Callable[[Builder, Node], bool] | None = None
    # So many outputs at the end are the gradients of those before them, (values, gradients), for a later backward.
    later: tuple[int, int] | None = None
    winograd: bool = False  # of the backend: it computes Winograd's convolutions
    views: bool = False  # of the backend: convolutions read operands through strides, see `Reads`
    light: bool = False  # of the backend: elementary functions take no longer than to read what they give
    offload: bool = False  # of the backend: values may lie in the host's memory between two launches
    wish: Wish | None = None  # under a memory budget: what `recompute` and the order of launches aim at
    checked: bool = False  # check the schedule, also without `verify`

    @cached_property
    def rewrites(self) -> Rewrites:
        """The rewrites of `canonicalize`."""
        cover, transpose, vectors = (self.fused and self.on(flag) for flag in ("cover", "turn", "vectors"))
        slices, halves = self.on("slices"), self.on("halves")
        return Rewrites(
            self.convolutions, self.attention, cover, transpose, vectors, slices, halves, halves and self.alike,
            self.half_convolutions if halves else None, self.rounded_products if halves else None,
        )  # fmt: skip

    @property
    def reads(self) -> Reads:
        """How products and convolutions read their operands."""
        return Reads(not self.alike, self.views and self.on("views"))

    def on(self, flag: str) -> bool:
        """Whether a flag is on."""
        return flag not in self.off


@dataclass(frozen=True)
class Program:
    """A program on its way through the pipeline: each level is there once its pass has run."""

    graph: Graph
    scope: Scope | None
    fused: bool  # whether its kernels are those of a fused program
    light: bool = False  # see `Options.light`
    exact: bool = False  # nothing is kept in few bits, whatever it was recorded under
    choice: Choice | None = None  # which values are computed again in the backward
    division: Fused | None = None
    launches: tuple[Launch, ...] = field(default=())
    schedule: Schedule | None = None
    residuals: Residuals | None = None  # what computes the gradients of `Options.later`, and of which of the outputs
