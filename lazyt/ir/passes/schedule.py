"""From a fused graph to a schedule: calls in order, regions that run together, and which buffers live when.

Units are ordered by their longest path to the end, so that each runs as late as its readers allow; units at one level
do not depend on each other and form one region (an optimizer's updates over a hundred tensors are one launch).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field

from lazyt.forking import cached_property
from lazyt.ir import dtypes, graph as g
from lazyt.ir.attention import is_attention
from lazyt.ir.graph import Graph, Node
from lazyt.ir.passes.call_operands import (
    View,
    attention_operands,
    buffer_of,
    bytes_hint,
    fill,
    is_delayed_copy,
    is_on_host,
    operands_of_call,
    single,
)
from lazyt.ir.passes.equal_groups import Kernels
from lazyt.ir.passes.fusion_result import Call, Fused, Group
from lazyt.ir.passes.kernelize import KernelCall, ScalarArg
from lazyt.ir.passes.memory_order import order_for_memory
from lazyt.ir.passes.offload import fetched_ahead, has_moves, linger
from lazyt.ir.prims import CONVOLUTIONS
from lazyt.ir.records import dataclass
from lazyt.ir.scan import BLOCK, SCANS
from lazyt.ir.symbolic import Dim, Scope, product
from lazyt.ir.target import Target


@dataclass(eq=False)
class MatmulCall:
    """C = A @ B: stored operands with strides (last two, then batch), in elements; then a kernel on what that gives.

    A convolution is one too: see `matrix_shape`, and `operands_of_call` for its operands. An operand that is a half may
    be read from the float32 input that it was cast from: the product rounds it.
    """

    node: Node
    operands: tuple[View, ...]
    epilogue: KernelCall | None = None  # a map over the elements of the product: see epilogue.py
    kept: bool = True  # whether other launches read the product itself; otherwise only its epilogue does
    # Whether the choice of its code counts with an epilogue; None: as it has one. See recompute.py.
    charged: bool | None = None

    @cached_property
    def reads(self) -> frozenset[Node]:
        """Buffers that it reads, and its epilogue of others."""
        own = frozenset([b for b, _, _ in self.operands])
        return own if self.epilogue is None else own | (self.epilogue.reads - {self.node})

    @cached_property
    def writes(self) -> frozenset[Node]:
        """Its own buffer, and those of its epilogue."""
        own = frozenset([self.node])
        return own if self.epilogue is None else own | self.epilogue.writes


@dataclass(eq=False)
class LibraryCall:
    """A call on whole arrays: an opaque function."""

    node: Node
    operands: tuple[Node, ...]
    results: tuple[Node | None, ...]  # the items that are read
    scratch: Node | None = None  # of a scan: two numbers a block, for a backend that divides an axis

    @cached_property
    def reads(self) -> frozenset[Node]:
        """Buffers that it reads."""
        return frozenset([buffer_of(x) for x in self.operands])

    @cached_property
    def writes(self) -> frozenset[Node]:
        """Buffers of the results that somebody reads, and of its scratch."""
        return frozenset([r for r in (*self.results, self.scratch) if r is not None])


@dataclass(eq=False)
class AttentionCall(LibraryCall):
    """Attention or its gradient by code of a backend's own: arrays with strides and offsets, in elements."""

    views: tuple[tuple[Node, tuple[int | Dim, ...], int | Dim], ...] = ()

    @cached_property
    def reads(self) -> frozenset[Node]:
        """Buffers that it reads."""
        return frozenset([base for base, _, _ in self.views])

    @property
    def scalars(self) -> list[ScalarArg]:
        """Its number, unless that is a constant."""
        by = self.node.operands[-1]
        return [ScalarArg(by.attrs.position, "", True)] if isinstance(by.attrs, g.Scalar) else []


@dataclass(eq=False)
class ScatterCall:
    """Rows of v put or added at positions into a copy of x, in order. x is None for one constant, `fill`.

    `single`: v is one element, for every place. `scratch` holds a backend's lists of updates: a number
    a destination, then one an update; there is none where lists would cost more than they save.
    """

    node: Node
    x: Node | None
    fill: Node | None
    v: Node
    at: Node
    scratch: Node | None

    @property
    def single(self) -> bool:
        return self.v.ndim != self.node.ndim or product(self.v.shape) == 1

    @property
    def operands(self) -> tuple[Node, ...]:
        return (*(() if self.x is None else (self.x,)), self.v, self.at)

    @cached_property
    def reads(self) -> frozenset[Node]:
        """Buffers that it reads."""
        return frozenset([buffer_of(x) for x in self.operands])

    @cached_property
    def writes(self) -> frozenset[Node]:
        """Its own buffer, and that of its scratch."""
        return frozenset([self.node] if self.scratch is None else [self.node, self.scratch])


Launch = KernelCall | MatmulCall | LibraryCall | ScatterCall


@dataclass(frozen=True)
class Donation:
    """An output that may take an input's memory; `copy` is the launch that is then left out.

    The input is overwritten in the region of that number. An input must outlive all that can fail.
    """

    donor: int
    output: Node
    region: int
    copy: KernelCall | None = None


@dataclass
class Schedule:
    """The program that a backend runs: regions of independent launches, in order."""

    regions: list[list[Launch]]
    graph: Graph
    outputs: list[Node]  # the stored node behind each output of the graph
    stored: list[Node]  # every node with a buffer that this plan allocates
    lives: dict[Node, tuple[int, int]] = field(default_factory=dict)  # temporary -> first and last region that uses it
    on_host: dict[Node, tuple[int, int]] = field(default_factory=dict)  # the same, of values in the host's memory
    in_place: dict[Node, Node] | None = None  # temporary -> the one whose memory it takes, once an executable asked
    arranged: bool = False  # whether its kernels have the form that a backend's code generator takes
    donations: list[Donation] | None = None  # which results may take an input's memory, once a backend asked
    proved: bool = True  # whether all of it is valid for all sizes, once that was asked: see verify_schedule.py
    # Whether operands may stay packed from run to run: not of training steps, nor under a memory budget.
    keeps: bool = False

    @property
    def launches(self) -> list[Launch]:
        return [c for r in self.regions for c in r]

    @property
    def kernels(self) -> list[KernelCall]:
        """Every kernel, those that are epilogues of a product too."""
        found = (c.epilogue if isinstance(c, MatmulCall) else c for c in self.launches)
        return [c for c in found if isinstance(c, KernelCall)]


def kernelized(graph: Graph, fused: Fused, scope: Scope | None, target: Target, fusing: bool) -> list[Launch]:
    """The launches of the units, in their order. fusing: kernels that may become epilogues are written as such."""
    epilogues = fusing and target.epilogues
    items: dict[Node, list[Node]] = {n: [] for n in graph.nodes if n.op == "opaque"}
    for n in graph.nodes:
        if n.op == "item" and n in fused.stored:
            items[n.operands[0]].append(n)
    launches: list[Launch] = []
    products: dict[Node, int] = {}  # -> their order
    kernels = Kernels(scope, target.stage_reuse, fused.groups)
    for u in fused.units:
        if isinstance(u, Group):
            kernel = fused.kernels.get(u)
            if kernel is None or (epilogues and any(b in products for b in kernel.reads)):
                kernel = kernels.of(u, fused.stored, products if epilogues else None)
            launches.append(kernel)
        else:
            launches.append(_call(u, scope, target, items))
            if u.node.op in ("matmul", "convolve", "convolve_image"):
                products[u.node] = len(products)
    return launches


def ordered(graph: Graph, fused: Fused, launches: Sequence[Launch], memory: bool = False) -> Schedule:
    """Order the launches and find lifetimes; with `memory`, in the order of the lowest peak that is known."""
    outputs = [buffer_of(n) for n in graph.outputs]
    _mark_phases(launches)
    regions = _levels(launches, set(outputs), memory, bool(graph.kept))
    stored = sorted(fused.stored - {n for n in fused.stored if n.op == "opaque"}, key=lambda n: n.serial)
    stored += [c.scratch for c in launches if isinstance(c, ScatterCall | LibraryCall) and c.scratch is not None]
    kept = set(outputs)
    moves = has_moves(launches)
    if moves:
        regions = fetched_ahead(regions, kept)
    lives: dict[Node, tuple[int, int]] = {}
    on_host: dict[Node, tuple[int, int]] = {}
    for i, region in enumerate(regions):
        for call in region:
            for n in call.writes | call.reads:
                if n.op != "input" and n not in kept:
                    those = on_host if moves and is_on_host(n) else lives
                    first, _ = those.get(n, (i, i))
                    those[n] = (first, i)
    if moves:
        linger(regions, lives)
    return Schedule(regions, graph, outputs, stored, lives, on_host)


def _mark_phases(launches: Sequence[Launch]) -> None:
    """Find kernels that only reduce the row results of a row kernel (a loss over the rows of a batch)."""
    writers: dict[Node, KernelCall] = {n: c for c in launches if isinstance(c, KernelCall) for n in c.writes}
    for c in launches:
        if isinstance(c, KernelCall) and c.kernel.rows and _single(c):
            made = {writers[n] for n in c.reads if n in writers}
            mains = [m for m in made if m.kernel.rows and m.phase_of is None and not _single(m)]
            if len(mains) == 1:
                c.phase_of = mains[0]


def _single(c: KernelCall) -> bool:
    """Whether a kernel reduces everything to single values."""
    return all(isinstance(e, int) and e == 1 for e in c.extents[: c.kernel.outer])


def _call(u: Call, scope: Scope | None, target: Target, items: dict[Node, list[Node]]) -> Launch:
    n = u.node
    if n.op == "matmul" or n.op in CONVOLUTIONS:
        return MatmulCall(n, tuple(operands_of_call(scope, n, target)))
    if n.op == "scatter":
        return _scatter(n)
    assert isinstance(n.attrs, g.Opaque)
    results: list[Node | None] = [None] * len(n.attrs.outputs)
    for item in items[n]:
        assert isinstance(item.attrs, g.Item)
        results[item.attrs.index] = item
    if is_attention(n):
        return AttentionCall(n, n.operands[:-1], tuple(results), views=tuple(attention_operands(scope, n)))
    scratch = None
    if n.attrs.fn in SCANS and n.operands[0].ndim:
        x = n.operands[0]
        axis = n.attrs.statics[0] % x.ndim
        blocks = (x.shape[axis] + (BLOCK - 1)) // BLOCK
        size = 2 * blocks * product(x.shape[:axis])
        scratch = Node("scratch", (), None, (size,), dtypes.int64, n.serial, n.site)
    return LibraryCall(n, n.operands, tuple(results), scratch)


def _scatter(n: Node) -> ScatterCall:
    x, v, at = n.operands
    constant = fill(x)
    assert isinstance(n.attrs, g.Scatter)
    # Elements one by one need no lists, unless a sum is wider than they are.
    wide = n.attrs.mode == "add" and dtypes.of(n.dtype).narrow
    scratch = None
    if n.ndim > 1 or wide:
        size = n.shape[0] + at.shape[0]
        scratch = Node("scratch", (), None, (size,), dtypes.int64, n.serial, n.site)
    return ScatterCall(n, x if constant is None else None, constant, single(v), at, scratch)


def _levels(launches: Sequence[Launch], outputs: Collection[Node], memory: bool, keeps: bool) -> list[list[Launch]]:
    """Regions by longest path to the end, or for a low peak; library calls are regions of their own.

    memory: the lowest peak was asked for. keeps: the order of the launches is one that keeps little in memory.
    """
    level: dict[int, int] = {}
    readers: dict[Node, int] = {}  # stored node -> highest level among those that need it written first
    for i in range(len(launches) - 1, -1, -1):
        c = launches[i]
        at = max((readers[n] + 1 for n in c.writes if n in readers), default=0)
        level[i] = at
        for n in c.reads:
            readers[n] = max(readers.get(n, -1), at)
        for n in c.writes:
            # A later write into the same buffer (an update over a copy) waits for this one.
            readers[n] = max(readers.get(n, -1), at)
    order = sorted(range(len(launches)), key=lambda i: (-level[i], i))
    if keeps or any(isinstance(c, LibraryCall) and is_delayed_copy(c.node) for c in launches):
        # Memory was asked for: in the order of the program, what ends a lifetime (a weight's gradient) is not put off.
        order = [*range(len(launches))]
    regions = _regions(launches, order, level, None)
    found = order_for_memory(launches, regions, outputs, memory)
    if found is not None:
        regions = _regions(launches, found[0], level, found[1])
    return [[launches[i] for i in region] for region in regions]


def _regions(
    launches: Sequence[Launch], order: Sequence[int], level: dict[int, int], limit: int | None
) -> list[list[int]]:  # fmt: skip
    """The launches in an order, in regions of neighbours of one level; what writes more than the limit is alone."""
    regions: list[list[int]] = []
    last = -1
    for i in order:
        c = launches[i]
        alone = not isinstance(c, KernelCall) or (limit is not None and sum(bytes_hint(n) for n in c.writes) > limit)
        if alone or level[i] != last or not regions or not isinstance(launches[regions[-1][0]], KernelCall):
            regions.append([])
        regions[-1].append(i)
        last = -1 if alone else level[i]
    return regions
