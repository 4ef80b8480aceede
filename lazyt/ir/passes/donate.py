"""Which results may take the memory of an input: no launch reads the input after its first element is overwritten.

    p' = p - lr * g  (a map)                p is read by that map alone, at the place that it writes, or before
    c' = update(c, v)  (copy, then part)    the copy falls away when c' stands where c was, if all else reads c before

Whether nothing else refers to the input is known at run time only; see the backend.
"""

from __future__ import annotations

from lazyt.ir import graph as g, kernel as k
from lazyt.ir.graph import Node
from lazyt.ir.passes.call_operands import nbytes
from lazyt.ir.passes.kernelize import AccessArg, KernelCall
from lazyt.ir.passes.schedule import Donation, Launch, MatmulCall, Schedule
from lazyt.ir.passes.stage_reuse import evaluated
from lazyt.ir.symbolic import Dim


def donations(sched: Schedule) -> list[Donation]:
    """All possible donations, likely ones first; a run chooses at most one for each input and output."""
    region = {id(c): i for i, calls in enumerate(sched.regions) for c in calls}
    readers: dict[Node, list[Launch]] = {}
    writers: dict[Node, list[Launch]] = {}
    for c in sched.launches:
        for n in c.reads:
            readers.setdefault(n, []).append(c)
        for n in c.writes:
            writers.setdefault(n, []).append(c)
    kept = {n for n in sched.outputs if n.op == "input"}
    # NOTE: an optimizer's kernel has hundreds of inputs and outputs, so what is asked of each pair is little.
    kernels: dict[int, Accessed] = {}
    found: list[Donation] = []
    for output in dict.fromkeys(n for n in sched.outputs if n.op != "input"):
        last = writers.get(output, [])
        if not last or len(last) > 2 or output in readers:
            continue
        call, copy = last[-1], last[0] if len(last) == 2 else None
        writer = writer_of(call, output)
        if writer is None or (copy is not None and (not isinstance(copy, KernelCall) or not _is_copy(copy))):
            continue
        kernel = kernels.get(id(writer))
        if kernel is None:
            kernel = kernels[id(writer)] = Accessed(writer)
        store = kernel.store_of(output)
        if store is None:
            continue
        own = _origin(output)
        size = _normal(nbytes(output))
        candidates = [
            n
            for n in (writer if copy is None else copy).reads
            if n.op == "input" and n.dtype == output.dtype and kernel.reads_only_at(n, store)
        ]
        for donor in sorted(candidates, key=lambda n: (n is not own, n.serial)):
            if donor in kept or _normal(nbytes(donor)) != size or multiplies(call, donor):
                continue
            others = [c for c in readers[donor] if c is not call and c is not copy]
            if all(region[id(c)] < region[id(call)] for c in others):
                assert isinstance(donor.attrs, g.Input)
                found.append(Donation(donor.attrs.index, output, region[id(call)], copy))
    return found


def writer_of(call: Launch, output: Node) -> KernelCall | None:
    """The kernel that writes an output: a launch of its own, or the epilogue of a product."""
    kernel = call.epilogue if isinstance(call, MatmulCall) else call
    return kernel if isinstance(kernel, KernelCall) and output in kernel.writes else None


def multiplies(call: Launch, donor: Node) -> bool:
    """Whether a product reads the input: all of it, for as long as there are blocks to be finished."""
    return isinstance(call, MatmulCall) and any(x is donor for x, _, _ in call.operands)


def _origin(n: Node) -> Node:
    """The value that a chain of operations starts from: p for p - lr * g."""
    while n.operands:
        n = n.operands[0]
    return n


def _normal(a: int | Dim) -> int | Dim:
    return a.scope.normal(a) if isinstance(a, Dim) else a


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
        and _place(call.accesses[0]) == _place(call.accesses[1])
    )


def _place(a: AccessArg) -> tuple[object, ...]:
    """The element of its buffer that an access addresses at each point: equal places are equal for all extents."""
    return (a.itemsize, _normal(a.offset), *map(_normal, a.strides))


class Accessed:
    """Where a kernel reads and writes its buffers."""

    def __init__(self, call: KernelCall) -> None:
        self.kernel = kernel = call.kernel
        self.stores: dict[Node, list[int]] = {}
        self.reads: dict[Node, list[int]] = {}
        for i, (a, x) in enumerate(zip(call.accesses, kernel.accesses, strict=True)):
            (self.stores if x.writes else self.reads).setdefault(a.buffer, []).append(i)
        self._gathered = {v.access for v in kernel.values if isinstance(v, k.Gather)}
        self._accesses = call.accesses
        self._places: dict[int, tuple[object, ...] | None] = {}
        self.last = {s.access for s in kernel.stages[-1].stores}
        self._loaded: dict[int, set[int]] = {}

    def place(self, i: int) -> tuple[object, ...] | None:
        """The place of an access; None for one that data decides. NOTE: offsets in a long array are long themselves."""
        if i not in self._places:
            self._places[i] = None if i in self._gathered else _place(self._accesses[i])
        return self._places[i]

    def store_of(self, output: Node, anywhere: bool = False) -> int | None:
        """The one access that writes an output, in the last stage (or anywhere); None if there is none."""
        stores = self.stores.get(output, [])
        return stores[0] if len(stores) == 1 and (anywhere or stores[0] in self.last) else None

    def reads_only_at(self, donor: Node, store: int) -> bool:
        """Whether each point reads the input only where it writes the output itself, and not after it did.

        NOTE: a stage before the last may write there too, what later stages read back (`stage_reuse.py`).
        """
        own, after = self.place(store), self._loaded_after(store)
        return all(self.place(i) == own and i not in after for i in self.reads.get(donor, ()))

    def _loaded_after(self, store: int) -> set[int]:
        """The accesses that are read in stages after the first one that writes here."""
        kernel = self.kernel
        first = next(i for i, stage in enumerate(kernel.stages) if any(s.access == store for s in stage.stores))
        found = self._loaded.get(first)
        if found is None:
            values = [kernel.values[v] for stage in kernel.stages[first + 1 :] for v in evaluated(kernel, stage)]
            found = self._loaded[first] = {v.access for v in values if isinstance(v, k.Load)}
        return found
