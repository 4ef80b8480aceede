"""Which results may stand where a leaf's value was: no launch reads the leaf after its first element is overwritten.

    p' = p - lr * g  (a map)                p is read by that map alone, at the place that it writes, or before
    c' = update(c, v)  (copy, then part)    the copy falls away when c' stands where c was, if all else reads c before

Whether nobody else holds the leaf is known at run time only; see the backend.
"""

from __future__ import annotations

from dataclasses import dataclass

from lazyt.ir import graph as g
from lazyt.ir import kernel as k
from lazyt.ir.extents import Dim
from lazyt.ir.graph import Node
from lazyt.ir.kernelize import AccessArg, KernelCall
from lazyt.ir.reuse import evaluated
from lazyt.ir.schedule import Launch, MatmulCall, Schedule, nbytes


@dataclass(frozen=True)
class Donation:
    """An output that may take a leaf's memory; `copy` is the launch that is then left out.

    The leaf is overwritten in the region of that number. A leaf must outlive all that can fail.
    """

    leaf: int
    output: Node
    region: int
    copy: KernelCall | None = None


def donations(sched: Schedule) -> list[Donation]:
    """All that are possible, the likely ones first; a run chooses one for a leaf and an output."""
    region = {id(c): i for i, calls in enumerate(sched.regions) for c in calls}
    readers: dict[Node, list[Launch]] = {}
    writers: dict[Node, list[Launch]] = {}
    for c in sched.launches:
        for n in c.reads:
            readers.setdefault(n, []).append(c)
        for n in c.writes:
            writers.setdefault(n, []).append(c)
    kept = {n for n in sched.outputs if n.op == "leaf"}
    found: list[Donation] = []
    for output in dict.fromkeys(n for n in sched.outputs if n.op != "leaf"):
        last = writers.get(output, [])
        if not last or len(last) > 2 or output in readers:
            continue
        call, copy = last[-1], last[0] if len(last) == 2 else None
        kernel = _writer(call, output)
        if kernel is None:
            continue
        candidates = kernel.reads
        if copy is not None:
            if not isinstance(copy, KernelCall) or not _is_copy(copy):
                continue
            candidates = copy.reads
        own = _origin(output)
        for leaf in sorted((n for n in candidates if n.op == "leaf"), key=lambda n: (n is not own, n.serial)):
            others = [c for c in readers[leaf] if c is not call and c is not copy]
            before = all(region[id(c)] < region[id(call)] for c in others)
            fits = leaf.dtype == output.dtype and _equal(nbytes(leaf), nbytes(output))
            if leaf not in kept and before and fits and not _multiplies(call, leaf) and _in_place(kernel, leaf, output):
                assert isinstance(leaf.attrs, g.Leaf)
                found.append(Donation(leaf.attrs.index, output, region[id(call)], copy))
    return found


def _writer(call: Launch, output: Node) -> KernelCall | None:
    """The kernel that writes an output: a launch of its own, or the epilogue of a product."""
    kernel = call.epilogue if isinstance(call, MatmulCall) else call
    return kernel if isinstance(kernel, KernelCall) and output in kernel.writes else None


def _multiplies(call: Launch, leaf: Node) -> bool:
    """Whether a product reads the leaf: all of it, for as long as there are blocks to be finished."""
    return isinstance(call, MatmulCall) and any(x is leaf for x, _, _ in call.operands)


def _origin(n: Node) -> Node:
    """What a value is made from in the first place: of p - lr * g it is p."""
    while n.operands:
        n = n.operands[0]
    return n


def _equal(a: int | Dim, b: int | Dim) -> bool:
    return a == b or (isinstance(a, Dim) and a.scope.known_equal(a, b))


def _is_copy(call: KernelCall) -> bool:
    """Whether a kernel only copies one buffer to another, element by element."""
    kernel = call.kernel
    (stage,) = kernel.stages if len(kernel.stages) == 1 else (None,)
    return (
        stage is not None
        and not kernel.rows
        and [type(v) for v in kernel.values] == [k.Load]
        and len(stage.stores) == 1
        and len(call.accesses) == 2
        and _same_place(call.accesses[0], call.accesses[1])
    )


def _same_place(a: AccessArg, b: AccessArg) -> bool:
    strides = zip(a.strides, b.strides, strict=True)
    return a.itemsize == b.itemsize and _equal(a.offset, b.offset) and all(_equal(x, y) for x, y in strides)


def _in_place(call: KernelCall, leaf: Node, output: Node) -> bool:
    """Whether each point reads the leaf only where it writes the output itself, and not after it did.

    NOTE: a stage before the last may write there too, what later stages read back (`reuse.py`).
    """
    pairs = list(zip(call.accesses, call.kernel.accesses, strict=True))
    stores = [i for i, (a, x) in enumerate(pairs) if x.writes and a.buffer is output]
    if len(stores) != 1 or all(s.access != stores[0] for s in call.kernel.stages[-1].stores):
        return False
    store, kernel = call.accesses[stores[0]], call.kernel
    gathered = {v.access for v in kernel.values if isinstance(v, k.Gather)}
    reads = [i for i, (a, x) in enumerate(pairs) if not x.writes and a.buffer is leaf]
    first = next(i for i, stage in enumerate(kernel.stages) if any(s.access == stores[0] for s in stage.stores))
    after = [kernel.values[v] for stage in kernel.stages[first + 1 :] for v in evaluated(kernel, stage)]
    if any(isinstance(v, k.Load) and v.access in reads for v in after):
        return False
    return all(i not in gathered and _same_place(call.accesses[i], store) for i in reads)
