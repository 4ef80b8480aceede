"""The pipeline of passes: from the graph of a program to its schedule, for plans, first runs and inspection.

    outputs -> canonicalize -> collect_sums -> merge_axes -> join_axes -> pack_shared -> compress -> save_residuals
            -> phases -> winograd -> recompute -> prefetch -> fuse -> kernelize -> epilogues -> order
            -> Program.schedule

A pass is a function of a `Program` and the `Options` of the compilation. It maps a valid program to a valid one,
changes nothing in place, and returns the same object where nothing changes. With `Options.verify` each program is
checked after the pass that made it; with `Options.checked` the schedule is. A new pass is a file with such a function
and a line in `PASSES`; a library, or a test, adds one with `register`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from lazyt.errors import LazytInternalError
from lazyt.ir.graph import Graph, Origin, reachable
from lazyt.ir.passes.call_operands import buffer_of
from lazyt.ir.passes.canonicalize import canonicalize
from lazyt.ir.passes.collect_sums import collect_sums
from lazyt.ir.passes.compress import compress
from lazyt.ir.passes.compress_choice import compress_within
from lazyt.ir.passes.divide_kernels import fuse_bounded
from lazyt.ir.passes.epilogue import attach_epilogues, verify_epilogue
from lazyt.ir.passes.fuse import fuse
from lazyt.ir.passes.join_axes import join_axes
from lazyt.ir.passes.lower_winograd import lower_winograd
from lazyt.ir.passes.merge_axes import merge_axes
from lazyt.ir.passes.moments import NOTHING_HELD
from lazyt.ir.passes.pack_shared import pack_shared
from lazyt.ir.passes.phases import divide_short
from lazyt.ir.passes.program import Options, Program
from lazyt.ir.passes.recompute import recompute
from lazyt.ir.passes.same_division import divided_alike
from lazyt.ir.passes.save_residuals import save_residuals
from lazyt.ir.passes.schedule import MatmulCall, kernelized, ordered
from lazyt.ir.passes.verify import verify
from lazyt.ir.passes.verify_schedule import verify_schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Scope

    Run = Callable[[Program, Options], Program]


class Pass(NamedTuple):
    """A pass of the pipeline; it runs where `flag` is on, for targets that have the ability `needs` ('': always)."""

    name: str
    run: Run
    flag: str = ""
    needs: str = ""


def _if_fused(rewrite: Callable[[Graph, Scope | None], Graph]) -> Run:
    """The pass that rewrites the graph of a program whose operations share kernels."""
    return lambda p, options: replace(p, graph=rewrite(p.graph, p.scope)) if p.fused else p


# Rewrites that are part of fusion.
FUSES = frozenset({"cover", "turn", "vectors"})


def _canonicalize(p: Program, options: Options) -> Program:
    off = options.off if options.fused else options.off | FUSES
    return replace(p, graph=canonicalize(p.graph, p.scope, options.target, off))


def _recompute(p: Program, options: Options) -> Program:
    return p if options.wish is None else recompute(p, options.wish, options.target)


def _compress(p: Program, options: Options) -> Program:
    if p.exact:
        return p
    whole = options.later is None
    if options.wish is None:
        return replace(p, graph=compress(p.graph, p.scope, whole, moves=whole and options.target.offload))
    return replace(p, graph=compress_within(p.graph, p.scope, options.wish, options.target))


def _save_residuals(p: Program, options: Options) -> Program:
    if options.later is None:
        return p
    graph, residuals = save_residuals(p.graph, *options.later)
    return replace(p, graph=graph, residuals=residuals)


def _phases(p: Program, options: Options) -> Program:
    # NOTE: where a function says which convolutions are calls, a library computes these.
    return replace(p, graph=divide_short(p.graph, p.scope)) if options.target.convolutions is True else p


def _winograd(p: Program, options: Options) -> Program:
    return replace(p, graph=lower_winograd(p.graph, p.scope))


def _prefetch(p: Program, options: Options) -> Program:
    if options.prefetch is not None:
        options.prefetch(p.graph, p.scope, options.target)
    return p


def _fuse(p: Program, options: Options) -> Program:
    target = options.target
    if not p.fused:
        apart = fuse(p.graph, p.scope, target, False)
        alike = divided_alike(p.graph, p.scope, target, apart) if options.settle else None
        return replace(p, division=alike or apart, fused=alike is not None)
    held = NOTHING_HELD if p.choice is None else p.choice.held
    if target.share is None:
        return replace(p, division=fuse(p.graph, p.scope, target, held=held))
    return replace(p, division=fuse_bounded(p.graph, p.scope, target, held))


def _kernelize(p: Program, options: Options) -> Program:
    assert p.division is not None, "kernels are made of a division"
    return replace(p, launches=tuple(kernelized(p.graph, p.division, p.scope, options.target, options.fused)))


def _epilogues(p: Program, options: Options) -> Program:
    if not options.fused:
        return p
    outputs = {buffer_of(n) for n in p.graph.outputs}
    launches = attach_epilogues(list(p.launches), outputs)
    if p.choice is not None and options.wish is not None and options.wish.charged is not None:
        numbers, charged = p.choice.numbers, options.wish.charged
        for c in launches:
            if isinstance(c, MatmulCall):
                c.charged = numbers[c.node] in charged
    return replace(p, launches=tuple(launches))


def _order(p: Program, options: Options) -> Program:
    assert p.division is not None, "launches are ordered"
    schedule = ordered(p.graph, p.division, p.launches, options.wish is not None)
    trains = p.residuals is not None or any(isinstance(n.site, Origin) and n.site.backward for n in p.graph.nodes)
    schedule.keeps = not trains and options.wish is None
    return replace(p, schedule=schedule)


PASSES: list[Pass] = [
    Pass("canonicalize", _canonicalize),  # marks of autograd go, complex values become parts, dead code is dropped
    Pass("collect_sums", _if_fused(collect_sums)),  # what a loop adds up is one product, reduction or concatenation
    # A reduction over several axes reads what its operand is computed from ...
    Pass("merge_axes", _if_fused(merge_axes), flag="merge"),
    # ... or goes over those axes in the order of one, where that cannot be.
    Pass("join_axes", _if_fused(join_axes), needs="joined_axes"),
    # A weight that many products read transposed is copied so.
    Pass("pack_shared", _if_fused(pack_shared), needs="packed_products"),
    Pass("compress", _compress),  # what the backward reads is kept in few bits, where it was recorded so
    Pass("save_residuals", _save_residuals),  # a later backward's gradients give way to what it reads
    Pass("phases", _phases),  # transposed convolutions of short rows are a plain one for each phase
    Pass("winograd", _winograd, needs="winograd"),  # convolutions that Winograd's algorithm may compute are its calls
    Pass("recompute", _recompute),  # under a memory budget: what the backward computes again in place of keeping it
    Pass("prefetch", _prefetch),  # the backend compiles what it needs for certain, while this thread goes on
    Pass("fuse", _fuse),  # which nodes share a kernel, and which are stored
    Pass("kernelize", _kernelize),  # the kernel of each group; a library call or a product of each other unit
    Pass("epilogues", _epilogues, needs="epilogues"),  # kernels over a product's elements become part of it
    Pass("order", _order),  # regions of independent launches, and lifetimes
]


_BUILT_IN = tuple(PASSES)


def is_changed() -> bool:
    """Whether the passes are others than lazyt's own."""
    return tuple(PASSES) != _BUILT_IN


def register(new: Pass, after: str) -> Callable[[], None]:
    """Insert a pass after another one. Returns a function that removes it. Existing plans keep their schedules."""
    names = [p.name for p in PASSES]
    if new.name in names:
        raise ValueError(f"register: there is a pass {new.name!r} already")
    if after not in names:
        raise ValueError(f"register: there is no pass {after!r}; the passes are {', '.join(names)}")
    PASSES.insert(names.index(after) + 1, new)
    return lambda: PASSES.remove(new)


def compile_graph(outputs: Sequence[Node], scope: Scope | None, options: Options, until: str = "") -> Program:
    """Run the passes on the graph that `outputs` need, up to and including the pass `until` ('': all of them).

    Guards that passes rely on are left in `scope`.
    """
    graph = Graph(reachable(outputs), list(outputs))
    return continued(Program(graph, scope, options.fused), options, until=until)


def continued(p: Program, options: Options, after: str = "", until: str = "") -> Program:
    """Run the passes behind the pass `after` ('': all), up to and including the pass `until`."""
    if options.verify:
        verify(p.graph)
    begin = [step.name for step in PASSES].index(after) + 1 if after else 0
    for step in PASSES[begin:]:
        if step.flag not in options.off and (not step.needs or getattr(options.target, step.needs)):
            before, p = p, step.run(p, options)
            if options.verify or (options.checked and p.schedule is not before.schedule):
                _verify(step, before, p)
        if step.name == until:
            break
    return p


def _verify(step: Pass, before: Program, after: Program) -> None:
    """Check the levels that a pass changed. The error names the pass."""
    try:
        if after.graph is not before.graph:
            verify(after.graph)
        if after.launches is not before.launches:
            for c in after.launches:
                if isinstance(c, MatmulCall):
                    verify_epilogue(c)
        if after.schedule is not None and after.schedule is not before.schedule:
            after.schedule.proved = not verify_schedule(after.schedule, after.scope)
    except LazytInternalError as e:
        raise LazytInternalError(f"pass {step.name}: {e}") from None
