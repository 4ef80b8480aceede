"""What tests of compressed activations share: what the pending program keeps for its backward."""

from __future__ import annotations

from typing import NamedTuple

from lazyt.ir.passes import pipeline
from lazyt.ir.passes.compress import Cut
from lazyt.ir.passes.program import Options
from lazyt.ir.passes.schedule import nbytes
from lazyt.ir.symbolic import hint
from lazyt.runtime.liveness import wanted_of
from lazyt.tracing.lower import lower
from lazyt.tracing.trace import local


class Kept(NamedTuple):
    """Bytes of what crosses from forward to backward in few bits, and of the same arrays as they were."""

    packed: int
    whole: int
    arrays: list[tuple[str, int]]  # the operation that made each, and its bits
    full: list[str]  # the operations that made what crosses as it is, inputs and small arrays aside


def kept() -> Kept:
    """Of the pending program."""
    tr = local.trace
    low = lower(tr.pos.steps(), tr.ext.values, tr.scalars[: tr.pos.scalar_start + tr.pos.n_scalars])
    outputs = [low.nodes[s] for s in wanted_of(tr)[0]]
    before = pipeline.compile_graph(outputs, low.scope, Options(), until="collect_sums").graph
    cut = Cut(before)
    after = pipeline.compile_graph(outputs, low.scope, Options(verify=True), until="compress").graph
    return Kept(
        sum(hint(nbytes(n)) for n in after.kept),
        sum(hint(nbytes(n)) for n in cut.packs),
        sorted((n.site.name, bits) for n, bits in cut.packs.items()),
        sorted(n.site.name for n in cut.whole),
    )
