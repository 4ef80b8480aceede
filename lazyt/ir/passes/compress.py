"""Compressed activations: what a backward pass reads of the forward pass is kept in few bits.

    x: float32, recorded under compression    -->    unpack(keep(pack(x)))    where a cotangent is multiplied with it

A node *carries* where it is computed from a cotangent. A backward pass is linear in what carries, so what it reads
besides is replaced at exactly those edges (`cos(x)` and not the `x` that a rule computes it from): then an unbiased
estimate of what is read gives an unbiased gradient. From there the cut moves down through movement, casts, arithmetic
with small values and comparisons of places, which are computed again, so that what several readers make of one array is
packed once.

    kept as it is   inputs, parameters and what is made of them by movement; what somebody holds anyhow; small arrays;
                    integers of unknown range; what was not recorded under compression; what is cheap to make of inputs;
                    what is not read linearly, or twice (unbiased.py), and what lies in the same memory
    1 bit           booleans (ReLU, dropout); the least bits that hold them: integers of known range (max pooling)
    `bits`          real arrays: see quantize.py

What is packed is `Graph.kept`: fusion stores it by the kernel that makes the array or soon after, and no kernel is on
both sides of it. The pass changes no value of the forward pass.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from lazyt.ir import dtypes, graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.mixed_bits import Mixed, restored
from lazyt.ir.passes.call_operands import buffer_of
from lazyt.ir.passes.factor_slopes import factor_slopes
from lazyt.ir.passes.mixed_compression import Mixer, is_mixed
from lazyt.ir.passes.offload import LEAST, moved
from lazyt.ir.passes.rewriting import Rewriter, Rule, table
from lazyt.ir.passes.saved_values import carries
from lazyt.ir.passes.unbiased import met_twice, read_exactly
from lazyt.ir.prims import ELEMENTWISE, MOVEMENT, SOURCES
from lazyt.ir.quantize import Packed, exactly, quantized, unpacked
from lazyt.ir.symbolic import hint, product

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from lazyt.ir.graph import Draw, Graph, Node
    from lazyt.ir.symbolic import Scope

# Arrays of fewer bytes are kept as they are.
SMALL = 1024
# The steps whose saved arrays have `Compression.norm_bits`.
NORMS = frozenset({"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"})
# So many operations at most are repeated to make a mask of inputs.
CHEAP = 16

# The step whose second result is the report of mixed bits.
MIXED = "compress_mixed"

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
LINEAR = frozenset({"add", "sub", "mul", "div", "neg", "cast"})


def compress(
    graph: Graph, scope: Scope | None, mixes: bool = True, only: Collection[Node] | None = None, moves: bool = False
) -> Graph:  # fmt: skip
    """The graph with what its backward reads in few bits; the same graph where nothing was recorded so.

    mixes: whether samples may have bits of their own. moves: whether packed arrays may move to the host. only: of a
    graph that is `factored`, what is packed; by default all that may be.
    """
    if only is None:
        graph = factored(graph, scope)
    if not any(draw_of(n) for n in graph.nodes):
        return graph
    cut = Cut(graph, scope)
    if only is not None:
        cut.packs = {n: bits for n, bits in cut.packs.items() if n in only}
    return _Compressor(graph, scope, cut, mixes, moves).run(_RULES) if cut.packs else graph


def factored(graph: Graph, scope: Scope | None) -> Graph:
    """The graph with one slope where a cotangent is multiplied with several arrays that may be packed."""
    if not any(draw_of(n) for n in graph.nodes):
        return graph
    return factor_slopes(graph, scope, _at_hand(graph))


def _at_hand(graph: Graph) -> Callable[[Node], bool]:
    """What tells the values that are not kept in few bits whatever reads them."""
    free = free_values(graph)
    return lambda n: n in free or is_small(n) or draw_of(n) is None


def draw_of(n: Node) -> Draw | None:
    """The compression that a node was recorded under."""
    return n.site.draw if isinstance(n.site, g.Origin) else None


def size_of(n: Node) -> int:
    """Bytes, by the hint: another batch size is no other plan."""
    return hint(product(n.shape)) * n.dtype.itemsize


class Cut:
    """Which values of a graph are packed, in how many bits, and which are made again of packed ones."""

    def __init__(self, graph: Graph, scope: Scope | None) -> None:
        self.graph = graph
        self.exact = read_exactly(graph)
        self.packs: dict[Node, int] = {}
        self.through: set[Node] = set()
        self.whole: set[Node] = set()  # what is read as it is, and is not small
        self.free = free_values(graph)
        held = {*graph.outputs, *map(buffer_of, graph.outputs)}
        met: dict[Node, int] = {}
        todo = [(o, _bits_for(n)) for n in graph.nodes if carries(n) for o in n.operands if not carries(o)]
        while todo:
            n, bits = todo.pop()
            if met.get(n, -1) >= bits:
                continue
            met[n] = bits
            if n in self.free or n in held or is_small(n):
                continue
            if n in self.exact:
                self.whole.add(n)
                continue
            draw = draw_of(n)
            inner = self.moved(n) if draw is not None else None
            if inner is not None:
                self.through.add(n)
                todo.append((inner, bits))
            elif draw is not None and (least := self._bits(n, draw, bits)):
                self.packs[n] = least
            else:
                self.whole.add(n)

        self._keep(met_twice(graph, self.packs, self.source, Builder(scope)))
        bases = {_base(n) for n in self.whole}
        self._keep({n for n in self.packs if _base(n) in bases})

    def _keep(self, whole: Collection[Node]) -> None:
        """These are not packed."""
        self.packs = {n: bits for n, bits in self.packs.items() if n not in whole}
        self.whole.update(whole)

    def source(self, n: Node) -> Node:
        """What is packed where n is read."""
        while n in self.through and (inner := self.moved(n)) is not None:
            n = inner
        return n

    def moved(self, n: Node) -> Node | None:
        """The one operand that n is a linear function of, the others being small or free."""
        if n.op in MOVEMENT:
            # NOTE: filters that are transposed keep all their elements, and are parameters still.
            if n.op == "concat" or (n.op == "slice" and n.shape != n.operands[0].shape):
                return None
            return n.operands[0]
        if n.op in COMPARISONS and dtypes.kind(n.operands[0].dtype) in "iu":
            chosen = [x for x in n.operands if x not in self.free and not is_small(x)]
            return chosen[0] if len(chosen) == 1 and self._most(chosen[0]) is not None else None
        if n.op not in LINEAR or (n.op == "cast" and dtypes.kind(n.dtype) != "f"):
            return None
        large = [x for x in n.operands if not is_small(x)]
        if len(large) != 1 or (n.op == "div" and large[0] is n.operands[1]):
            return None
        x = large[0]
        # NOTE: an array that is not compressed gains nothing by being read in place of one that is.
        return x if x.op in MOVEMENT or (draw_of(x) is not None and x not in self.free and x.op != "input") else None

    def is_at_hand(self, n: Node) -> bool:
        """Whether n is in memory, or nearly, whatever is packed."""
        return n in self.free or is_small(n)

    def _bits(self, n: Node, draw: Draw, wanted: int) -> int:
        """Bits for an element of n; 0 to keep it."""
        kind = dtypes.kind(n.dtype)
        if kind == "b":
            return 1
        if kind == "f":
            bits = draw.settings.norm_bits if wanted == 0 else draw.settings.bits
            return bits if bits < 8 * n.dtype.itemsize else 0
        most = self._most(n) if kind in "iu" else None
        least = 0 if most is None else next((b for b in (1, 2, 4, 8) if most < 1 << b), 0)
        return least if least < 8 * n.dtype.itemsize else 0

    def _most(self, n: Node) -> int | None:
        """The greatest value of integers that are chosen among constants; None where they may be any, or negative."""
        most = 0
        todo, seen = [n], set()
        while todo:
            x = todo.pop()
            if x in seen:
                continue
            seen.add(x)
            if isinstance(x.attrs, g.Constant):
                if x.attrs.value < 0:  # type: ignore[operator]
                    return None
                most = max(most, int(x.attrs.value))  # type: ignore[arg-type]
            elif x.op == "select":
                todo += x.operands[1:]
            elif x.op == "pad":
                todo += x.operands
            elif x.op in ("expand", "reshape", "permute", "cast") and dtypes.kind(x.operands[0].dtype) in "iu":
                todo.append(x.operands[0])
            else:
                return None
        return most


def is_small(n: Node) -> bool:
    """Whether an array is made of few bytes."""
    while n.op in ("expand", "reshape"):
        n = n.operands[0]
    return (n.op in SOURCES and n.op != "input") or size_of(n) < SMALL


def _base(n: Node) -> Node:
    """What lies in memory where n is read through strides."""
    while n.op in ("expand", "permute", "reshape", "slice"):
        n = n.operands[0]
    return n


def _bits_for(reader: Node) -> int:
    """0 where a normalization reads, 1 elsewhere: an array that both read has the bits of the latter."""
    return 0 if isinstance(reader.site, g.Origin) and reader.site.name in NORMS else 1


def free_values(graph: Graph) -> set[Node]:
    """What is made of inputs by so little that it is not worth keeping: their movement, and masks by comparisons."""
    cost: dict[Node, int] = {}
    for n in graph.nodes:
        if n.op in SOURCES or n.op == "iota":
            cost[n] = 0
        elif all(o in cost for o in n.operands) and n.op not in ("window", "concat"):
            if n.op in MOVEMENT:
                cost[n] = sum(cost[o] for o in n.operands)
            elif n.op == "cast" or (n.op in ELEMENTWISE and not ELEMENTWISE[n.op].costly):
                found = 1 + sum(cost[o] for o in n.operands)
                if found <= CHEAP:
                    cost[n] = found
    return {*cost}


def _reported(n: Node) -> int:
    """The step whose mixed bits are reported here; -1: another value."""
    is_report = isinstance(n.site, g.Origin) and n.site.name == MIXED and len(n.shape) == 3
    return n.site.step if is_report else -1


def _ordered(graph: Graph, cut: Cut) -> list[Node]:
    """The nodes of the graph, what is packed and belongs to a rule's own computation as soon as it can be."""
    early: set[Node] = set()
    for n in reversed(graph.nodes):
        local = isinstance(n.site, g.Origin) and n.site.local
        if (local and n in cut.packs) or n in early:
            early.add(n)
            early.update(o for o in n.operands if isinstance(o.site, g.Origin) and o.site.local)
    key: dict[Node, int] = {}
    for n in graph.nodes:
        key[n] = max((key[o] for o in n.operands), default=0) if n in early else n.serial
    return sorted(graph.nodes, key=lambda n: (key[n], n.serial))


class _Compressor(Rewriter):
    def __init__(self, graph: Graph, scope: Scope | None, cut: Cut, mixes: bool, moves: bool) -> None:
        super().__init__(replace(graph, nodes=_ordered(graph, cut)), Builder(scope))
        self.cut = cut
        self.packed: dict[Node, Packed | Mixed] = {}
        rounded = [n for n in cut.packs if dtypes.kind(n.dtype) == "f"]
        self.rounded = {n: i for i, n in enumerate(sorted(rounded, key=lambda n: (n.site.step, n.serial)))}
        # Of each draw: whatever else is in the program, its arrays have the same random numbers.
        self.ordinals: dict[Node, int] = {}
        of_draw: Counter[int] = Counter()
        for n in self.rounded:
            draw = draw_of(n)
            assert draw is not None, "only such are packed"
            self.ordinals[n] = of_draw[draw.step]
            of_draw[draw.step] += 1
        self.again: dict[Node, Node] = {}  # what carries reads in place of a value
        self.moves = moves
        self.fetches: dict[Node, dict[Node, Callable[[], Node]]] = {}  # of what is packed: its parts that lie elsewhere
        self.mixer = Mixer(self.b, [n for n in self.rounded if mixes and is_mixed(n)])

    def written(self, outputs: list[Node]) -> Graph:
        reports = self.mixer.reports()
        outs = [reports.get(_reported(n), x) for n, x in zip(self.graph.outputs, outputs, strict=True)]
        nodes = g.reachable(outs)
        alive = {*nodes}
        kept = frozenset(n for p in self.packed.values() for n in p.stored if n in alive)
        return g.Graph(nodes, outs, kept, tuple(n.shape for n in self.rounded))

    def carry(self, n: Node, *_: Node) -> Node:
        """Copies a node that carries estimates, on estimates."""
        operands = [self.new[o] if carries(o) else self._read(o) for o in n.operands]
        self.b.site = n.site
        found = self.copy(n, *operands)
        self._weigh(n)
        return found

    def pack(self, n: Node, *operands: Node) -> Node:
        """Copies a node exactly and packs it; `_read` gives the estimate."""
        x = self.copy(n, *operands)
        draw = draw_of(n)
        assert draw is not None, "only such are packed"
        b, bits = self.b, self.cut.packs[n]
        b.site = g.Origin(n.site.name, n.site.site, step=n.site.step)
        if n in self.mixer.numbers:
            seed, counter = (b.scalar(p, dtypes.uint64) for p in (draw.seed, draw.counter))
            self.packed[n] = self.mixer.pack(n, x, (seed, counter, self.ordinals[n]))
        elif dtypes.kind(n.dtype) == "f":
            number, table = self.rounded[n], draw.settings.table
            bits = table[number] if len(table) == len(self.rounded) else bits
            seed, counter = (b.scalar(p, dtypes.uint64) for p in (draw.seed, draw.counter))
            top, ordinal = None, self.ordinals[n]
            if draw.settings.probes and draw.told is not None:
                top, more = (self._told(draw.told, row, number) for row in (0, 1))
                ordinal = number  # all draws of a probe have one counter
                bits, counter = 8, b.add(counter, b.cast(more, dtypes.uint64))
            self.packed[n] = quantized(b, x, bits, seed, counter, ordinal, top)
        else:
            self.packed[n] = exactly(b, x, bits)
        if self.moves and draw.settings.moves:
            back = g.pulled(n.site)
            large = [part for part in self.packed[n].stored if size_of(part) >= LEAST]
            self.fetches[n] = {part: moved(b, part, b.site, back) for part in large}
        return x

    def _weigh(self, n: Node) -> None:
        """What carries, and a value of mixed bits is multiplied with: the error of that counts by how large it is."""
        for operand in n.operands:
            x = self.cut.source(operand)
            if x in self.mixer.numbers and not carries(x):
                # NOTE: what is in memory at this place anyhow.
                others = [o for o in n.operands if o is not operand and (carries(o) or self.cut.is_at_hand(o))]
                self.mixer.weigh(x, n, [self.new[o] for o in others])

    def _told(self, tops: Node, row: int, number: int) -> Node:
        """A number of an input that says how each array is rounded."""
        b = self.b
        given = b.make("input", (), tops.attrs, tops.shape, tops.dtype)
        return b.reshape(b.slice(given, (row, number), (1, 1), (1, 1)), ())

    def _fetched(self, x: Node) -> Packed | Mixed:
        """What x is packed as, where the backward reads it."""
        p = self.packed[x]
        back = {part: fetch() for part, fetch in self.fetches.get(x, {}).items()}
        names = [f.name for f in fields(p) if getattr(p, f.name) in back] if back else ()
        changed: dict[str, Any] = {name: back[getattr(p, name)] for name in names}
        return replace(p, **changed) if back else p

    def _read(self, n: Node) -> Node:
        """The value in place of n that what carries reads: in few bits, or made again of what is."""
        todo = [n]
        while todo:
            x = todo[-1]
            if x in self.again:
                todo.pop()
            elif x in self.packed:
                self.b.site = g.pulled(x.site)
                p = self._fetched(x)
                self.again[x] = restored(self.b, p) if isinstance(p, Mixed) else unpacked(self.b, p)
            elif x in self.cut.through and (inner := self.cut.moved(x)) is not None:
                if inner in self.again:
                    self.b.site = g.pulled(x.site)
                    self.again[x] = self.copy(x, *(self.again[o] if o is inner else self.new[o] for o in x.operands))
                else:
                    todo.append(inner)
            else:
                self.again[x] = self.new[x]
        return self.again[n]


_RULES = table(
    Rule("", lambda c, n, *_: carries(n), _Compressor.carry),
    Rule("", lambda c, n, *_: n in c.cut.packs, _Compressor.pack),
)
