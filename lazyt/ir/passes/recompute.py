"""Under a memory budget, some saved values are computed again in the backward, from what is kept.

    h = gelu(x); y = h @ w               h = gelu(x); y = h @ w
    dw = transposed(h) @ dy        -->   again = gelu(x); dw = transposed(again) @ dy

The copies are nodes of their own, made just before their first reader and never shared with the originals; fusion
computes a cheap one inside the kernel that reads it. Each has its operation, its operands (or copies of them) and its
attributes, random numbers their counter too, so nothing changes a bit.

On a backend that can, a value may be moved to the host's memory instead (offload.py): then the copy is what comes back.

Which values: `checkpoint_search.solve`, on the values that are stored when everything is kept. It counts the time to
compute a value again by the rates below, which are constants: the same program has the same plan on every machine. What
may fail (an index that is data), what has an effect, and library calls other than attention are not done twice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from lazyt.ir import graph as g
from lazyt.ir.attention import is_attention
from lazyt.ir.builder import Builder
from lazyt.ir.graph import Graph, Node
from lazyt.ir.library_calls import TO_DEVICE, TO_HOST
from lazyt.ir.passes.call_operands import buffer_of, bytes_hint
from lazyt.ir.passes.checkpoint_search import solve
from lazyt.ir.passes.checkpointing import Problem, Value
from lazyt.ir.passes.fuse import fuse
from lazyt.ir.passes.moments import Held, ends_of_steps, moments
from lazyt.ir.passes.offload import LEAST, NANOSECONDS
from lazyt.ir.passes.recomputation import Again, Choice, Wish
from lazyt.ir.passes.rewriting import Rewriter, Rule, always, table
from lazyt.ir.passes.saved_values import SavedValue, Sides, saved_values, stored_operands
from lazyt.ir.prims import CONVOLUTIONS, ELEMENTWISE, MOVEMENT, SOURCES
from lazyt.ir.symbolic import hint, product

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyt.ir.passes.program import Program
    from lazyt.ir.target import Target

# Rates of one core, a nanosecond: multiply-adds of products count two operations.
PRODUCT_FLOPS = 50.0
MEMORY_BYTES = 10.0
OPERATIONS = 8.0  # of elementwise operations; one that is a polynomial counts as many as COSTLY
COSTLY = 12
REDUCED = 2  # operations of a reduction, for each element
NEVER = 1e18  # of what is not done twice
# What a policy says of values that are not computed again.
KEPT = frozenset({"keep", "compress", "offload"})

# Operations that are not done twice: they may fail for their data, or be anything.
ONCE = frozenset({"gather", "position", "scatter", "opaque"})


def recompute(p: Program, wish: Wish, target: Target) -> Program:
    """Choose what is kept, and write the backward that computes the rest again."""
    if not p.fused or not wish.once("sides", p.graph, lambda: Sides(p.graph)).backward:
        return p
    stored, sides, held, saved, model = wish.once("recompute", p.graph, lambda: _found(p, wish, target))
    keep = model.problem.all_kept if wish.limit is None else solve(model.problem, wish.limit)
    keep = (keep - model.asked - model.pressed) | {~i for i in model.pressed}
    numbers = {n: i for i, n in enumerate(p.graph.nodes)}
    moved = {n for i, n in enumerate(model.vertices) if i not in keep and ~i in keep}
    lost = {n for i, n in enumerate(model.vertices) if i not in keep and n not in moved}
    if not lost and not moved:
        return replace(p, choice=Choice(model.problem, keep, held=held, numbers=numbers))
    graph, held, numbers = _Recomputer(p.graph, stored, sides, lost, numbers, held.kept, moved).result()
    values = dict(zip(model.vertices, model.problem.values, strict=True))
    asked = {model.vertices[i] for i in model.asked | model.pressed}
    again = tuple(Again(s, values[s.node].cost, s.node in asked) for s in saved if s.node in lost)
    sent = tuple(Again(s, NANOSECONDS * bytes_hint(s.node), s.node in asked) for s in saved if s.node in moved)
    return replace(p, graph=graph, choice=Choice(model.problem, keep, again, held, numbers, sent))


def _found(p: Program, wish: Wish, target: Target) -> tuple[set[Node], Sides, Held, list[SavedValue], Model]:
    """What does not depend on the limit of a wish."""
    sides = wish.once("sides", p.graph, lambda: Sides(p.graph))
    held = Held(ends_of_steps(p.graph), moments=moments(p.graph, sides.backward))
    stored = fuse(p.graph, p.scope, target, held=held).stored
    saved = saved_values(p.graph, stored, sides)
    packing = None
    if target.offload:
        # On the device a value in the host's memory takes nothing until it is back; 0 would say that it may not move.
        sizes = {s.node: bytes_hint(s.node) for s in saved}
        packing = {n: Packing(1, size, NANOSECONDS * size) for n, size in sizes.items() if size > 1}
    model = Model(p.graph, stored, sides, saved, wish, packing, moving=target.offload)
    return stored, sides, held, saved, model


class Packing(NamedTuple):
    """What a value takes in few bits, or elsewhere: bytes, those while it is read, nanoseconds there and back."""

    nbytes: int
    unpacked: int
    nanoseconds: float


class Model:
    """The stored values of the forward as a problem of `checkpointing`; a vertex is a stored node."""

    def __init__(
        self, graph: Graph, stored: set[Node], sides: Sides, saved: Sequence[SavedValue], wish: Wish,
        packing: Mapping[Node, Packing] | None = None, moving: bool = False,
    ) -> None:  # fmt: skip
        """moving: `packing` is of values in the host's memory, not in few bits."""
        outputs = {buffer_of(n) for n in graph.outputs}
        forward = [n for n in graph.nodes if n in stored and n not in sides.backward and n.op != "opaque"]
        self.vertices = [n for n in forward if n.op not in SOURCES]
        number = {n: i for i, n in enumerate(self.vertices)}
        late = _Times(graph, stored, sides, outputs)
        reads = {s.node: tuple(sorted({late.at[r] for r in s.readers})) for s in saved}
        verdict = wish.verdict

        def under_budget(n: Node) -> bool:
            return isinstance(n.site, g.Origin) and n.site.step in wish.steps

        chosen = [s for s in saved if s.node not in graph.kept and under_budget(s.node)]
        verdicts = {} if verdict is None else {s.node: verdict(s) for s in chosen}
        way = "offload" if moving else "compress"  # what `packing` stands for
        values: list[Value] = []
        asked: set[int] = set()
        pressed: set[int] = set()
        told: set[int] = set()
        for i, n in enumerate(self.vertices):
            inner, once = _inside(n, stored)
            fixed = once or n in outputs or n in graph.kept or not under_budget(n)
            operands = tuple(sorted({number[x] for x in stored_operands(n, stored) if x in number and x is not n}))
            if not fixed and verdicts.get(n) == "recompute":
                asked.add(i)
            size = 0 if n in outputs else bytes_hint(n)
            few = packing.get(n) if packing and n not in outputs and n in reads else None
            said = verdicts.get(n)
            if moving and not (under_budget(n) and (size >= LEAST or said == way)):
                few = None
            if said == way and few is not None:
                pressed.add(i)
            if said in KEPT or few is None or few.nbytes >= size:
                fixed, few = fixed or said in KEPT, None if said != way else few
            told.update([i] if said in {"keep", "recompute", "offload"} - {way} else ())
            cost, times = sum(map(_nanoseconds, inner)), reads.get(n, ())
            if few is None:
                values.append(Value(size, cost, operands, times, fixed))
            else:
                cost = cost if not fixed else NEVER
                values.append(Value(size, cost, operands, times, False, fixed, *few, exact=moving))
        self.problem = Problem(tuple(values), late.base)
        self.asked = frozenset(asked)
        self.pressed, self.told = frozenset(pressed), frozenset(told)


class _Times:
    """When the nodes of the backward run, in its recorded order, and what it has in memory then."""

    def __init__(self, graph: Graph, stored: set[Node], sides: Sides, outputs: set[Node]) -> None:
        late = [n for n in graph.nodes if n in sides.backward]
        at: dict[Node, int] = {}
        last: dict[Node, int] = {}
        times = [n for n in late if n in stored and n.op != "opaque"]
        number = {n: i for i, n in enumerate(times)}
        made: dict[Node, int] = {}  # when all that a node is computed from is there
        for n in late:
            made[n] = number[n] if n in number else max((made.get(x, 0) for x in n.operands), default=0)
        # A node that is not stored is computed where it is read: at the first of those places. An update is computed as
        # soon as it can be.
        for n in reversed(late):
            mine = at[n] = number[n] if n in number else at.get(n, made[n])
            if isinstance(n.site, g.Origin) and not n.site.backward:
                continue
            for x in n.operands:
                x = buffer_of(x)
                at[x] = min(at.get(x, mine), mine)
                last[x] = max(last.get(x, mine), mine)
        self.at = at
        change = [0] * (len(times) + 2)
        for n, t in number.items():
            if n not in outputs:
                size = bytes_hint(n)
                change[t] += size
                change[max(last.get(n, t), t) + 1] -= size
        level, base = 0, []
        for c in change[: len(times) + 1]:
            level += c
            base.append(level)
        self.base = tuple(base)


def _inside(n: Node, stored: set[Node]) -> tuple[list[Node], bool]:
    """The nodes that n is computed by from stored ones, itself too; and whether one of them is not done twice."""
    out: dict[Node, None] = {}
    todo = [n]
    while todo:
        x = todo.pop()
        if x in out or x.op in SOURCES or (x is not n and x in stored and x.op != "opaque"):
            continue
        out[x] = None
        todo.extend(x.operands)
    return [*out], any(x.op in ONCE and not is_attention(x) for x in out)


def _nanoseconds(n: Node) -> float:
    """What it takes to compute a node, about."""
    size = hint(product(n.shape))
    if n.op == "matmul":
        return 2 * size * hint(n.operands[0].shape[-1]) / PRODUCT_FLOPS
    if n.op in CONVOLUTIONS:
        return 2 * size * hint(product(n.operands[1].shape[1:])) / PRODUCT_FLOPS
    if is_attention(n):
        q, k = n.operands[:2]
        scores = hint(product(q.shape[:-1])) * hint(k.shape[-2])
        return 4 * scores * hint(q.shape[-1]) / PRODUCT_FLOPS
    if n.op in MOVEMENT or n.op in ("iota", "item"):
        return size * n.dtype.itemsize / MEMORY_BYTES if n.op in ("concat", "update") else 0.0
    if n.op in ELEMENTWISE:
        work = COSTLY if ELEMENTWISE[n.op].costly or n.op == "random_bits" else 1
        return size * work / OPERATIONS
    return REDUCED * hint(product(n.operands[0].shape)) / OPERATIONS if n.operands else 0.0


class _Recomputer(Rewriter):
    """Writes the graph again, with copies of the values that are not kept."""

    def __init__(
        self, graph: Graph, stored: set[Node], sides: Sides, lost: set[Node], numbers: Mapping[Node, int],
        ends: frozenset[Node], moved: set[Node],
    ) -> None:  # fmt: skip
        super().__init__(graph, Builder(share=False))  # NOTE: a copy is never shared with the original.
        self.ends = ends  # they are stored, and so are copies of them
        self.stored, self.sides = stored, sides
        self.moved = moved  # what comes back from the host
        self.there: dict[Node, Node] = {}  # these in the host's memory
        self.numbers = dict(numbers)
        self.copies: dict[Node, Node] = {}
        self.kept: set[Node] = set()
        self.late: set[Node] = set()
        # Forward nodes that cannot be read in the backward: they are lost or moved, or computed from such.
        # NOTE: with the result of a call goes the call, for the copy: a call has one node for each of its results.
        self.gone: set[Node] = {n.operands[0] for n in lost if n.op == "item"}
        for n in graph.nodes:
            if n not in sides.backward and n.op not in SOURCES:
                through = n not in stored or n.op == "opaque"
                if n in lost or n in moved or (through and any(x in self.gone for x in n.operands)):
                    self.gone.add(n)

    def result(self) -> tuple[Graph, Held, dict[Node, int]]:
        """The graph, what fusion is to know of it, and the numbers of its nodes."""
        graph = self.run(_RULES)
        alive = {*graph.nodes}
        self.kept.update(x for n in self.ends for x in (self.new[n], self.copies.get(n)) if x in alive)
        copies = frozenset(self.copies.values())
        held = Held(frozenset(self.kept), frozenset(self.late), copies, moments(graph, self.late - copies))
        return graph, held, self.numbers

    def backward(self, n: Node, *_: Node) -> Node:
        """A node of the backward, of what it reads there."""
        operands = [self._read(x) for x in n.operands]
        self.b.site = n.site
        made = self.copy(n, *operands)
        self.late.add(made)
        return made

    def forward(self, n: Node, *operands: Node) -> Node:
        """A node of the forward as it is, and in the host's memory too where it moves."""
        made = self.copy(n, *operands)
        if n in self.moved:
            self.there[n] = self._move(TO_HOST, made, n)
        return made

    def copy(self, n: Node, *operands: Node) -> Node:
        made = super().copy(n, *operands)
        self.numbers[made] = self.numbers[n]
        return made

    def _move(self, fn: str, x: Node, of: Node) -> Node:
        """x on the other side."""
        (item,) = self.b.opaque(fn, (x,), (), [(x.shape, x.dtype)])
        self.numbers[item] = self.numbers[item.operands[0]] = self.numbers[of]
        return item

    def _read(self, x: Node) -> Node:
        """What the backward reads for x."""
        if x in self.sides.backward or x not in self.gone:
            self._keep(x)
            return self.new[x]
        todo = [x]
        while todo:
            n = todo[-1]
            needed = () if n in self.moved else n.operands
            missing = [y for y in needed if y in self.gone and y not in self.copies]
            if n in self.copies or not missing:
                todo.pop()
                if n not in self.copies:
                    self._copy(n)
            else:
                todo.extend(missing)
        return self.copies[x]

    def _copy(self, n: Node) -> None:
        site = n.site
        self.b.site = g.Origin(site.name, site.site, True, site.step, True) if isinstance(site, g.Origin) else site
        if n in self.moved:
            back = self.copies[n] = self._move(TO_DEVICE, self.there[n], n)
            self.late.update((back, back.operands[0]))
            return
        for y in n.operands:
            if y not in self.gone:
                self._keep(y)
        self.copies[n] = self.copy(n, *(self.copies[y] if y in self.gone else self.new[y] for y in n.operands))
        self.late.add(self.copies[n])

    def _keep(self, x: Node) -> None:
        """The stored values of the forward that x is computed from stay stored."""
        if x in self.sides.backward or x.op in SOURCES:
            return
        base = buffer_of(x)
        if base in self.stored and base.op not in (*SOURCES, "opaque"):
            self.kept.add(self.new[base])


_RULES = table(
    Rule("", lambda r, n, *_: n in r.sides.backward, _Recomputer.backward), Rule("", always, _Recomputer.forward)
)
