"""Launches of a plan as one graph: from the second run on, a graph is launched with this run's arguments.

    launches between two calls that no graph can hold  -->  one graph; the next run changes the nodes whose arguments
                                                            differ (addresses, sizes that move, scalars), and no other

Results are where a run wants them, as without graphs: a graph holds no memory of a plan. Independent launches (a
region of the schedule) do not wait for each other.
"""

from __future__ import annotations

import ctypes
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lazyt.backends.cuda.driver_api import GraphError
from lazyt.backends.cuda.graph_nodes import KernelNode
from lazyt.config import cpu as switches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.backends.cuda.codegen.mapping import Mapping
    from lazyt.backends.cuda.device import Device
    from lazyt.backends.cuda.graph_nodes import Work
    from lazyt.backends.cuda.library.products import Product

    Array = np.ndarray[Any, Any]

# Fewer launches are as fast without a graph.
FEWEST = 2


class Function(Protocol):
    """Code on a device, and what a launch of it needs."""

    handle: Any
    mapping: Mapping
    entries: int
    shared: int


class Launch:
    """A kernel of a bound plan: the position of its arguments in the table, and its launch configuration.

    With a `choice` it is one of two kernels, which the entry behind its arguments says in each run.
    """

    __slots__ = ("at", "blocks", "choice", "function", "level", "node", "nodes", "parameters")

    def __init__(
        self, function: Function, at: int, blocks: int, level: int, choice: Callable[[bool], Function] | None = None
    ) -> None:
        self.function = function
        self.choice = choice
        self.at = at
        self.blocks = blocks
        self.level = level  # launches of one level are independent

    def place(self, table: Array) -> None:
        """The table does not move, so what is passed to the driver is made once."""
        self.parameters = (ctypes.c_void_p * 1)(table.ctypes.data + 8 * self.at)
        self.node = self._node(self.function)
        self.nodes: dict[bool, KernelNode] = {}

    def _node(self, f: Function) -> KernelNode:
        address = ctypes.addressof(self.parameters)
        return KernelNode(f.handle, self.blocks, f.mapping.threads, f.shared, address, f.entries)

    def works(self, table: Array) -> Sequence[Work]:
        if self.choice is None:
            return (self.node,)
        which = bool(table[self.at + self.function.entries])
        if which not in self.nodes:
            self.nodes[which] = self._node(self.choice(which))
        return (self.nodes[which],)

    @property
    def slots(self) -> range:
        """The positions of its arguments in the table."""
        return range(self.at, self.at + self.function.entries + (self.choice is not None))


class Launched:
    """Whether a graph was enqueued, as item 0: by the answer that the call itself leaves."""

    __slots__ = ("answers",)

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def __getitem__(self, i: int) -> bool:
        return bool(self.answers) and not self.answers[i]


class Segment:
    """Launches of a bound plan that follow one another: one by one the first time, then as a graph."""

    def __init__(self, where: Device, parts: Sequence[Launch | Product]) -> None:
        self.where = where
        self.parts = list(parts)
        self.runs = self.replays = 0
        self.graph: Any = None
        self.refused = ""  # why there is no graph
        self.divided: list[Segment] = []
        self.held = np.zeros(0, np.int64)  # the table of the graph's arguments

    def run(self, stream: Any, table: Array) -> None:
        """Enqueue all of it, with the arguments in the table."""
        self.runs += 1
        if self.runs > 1 and len(self.parts) >= FEWEST and switches["graphs"] and self.prepared(table):
            self.launch(stream, Launched())
            return
        if self.divided:
            for s in self.divided:
                s.run(stream, table)
            return
        driver = self.where.driver
        for part in self.parts:
            if type(part) is Launch:
                node = part.node if part.choice is None else part.works(table)[0]
                driver.launch(stream, node)  # type: ignore[arg-type]
            else:
                for product in part.works(table):
                    driver.multiply(self.where.number, stream, product)  # type: ignore[arg-type]

    def launch(self, stream: Any, launched: Launched) -> None:
        """Enqueue the graph that is `prepared`."""
        self.replays += 1
        self.where.driver.run_graph(stream, self.graph, launched.answers)

    def prepared(self, table: Array) -> bool:
        """Whether there is a graph with these arguments; makes or changes it."""
        if self.refused:
            return False
        driver = self.where.driver
        if self.graph is not None:
            changed = np.flatnonzero(self.held != table)
            # NOTE: what an interrupt leaves half changed is made again.
            graph, self.graph = self.graph, None
            try:
                for i in {i for readers in {*self.readers[changed].tolist()} for i in self.among[readers]}:
                    for node, work in zip(self.numbers[i], self.parts[i].works(table), strict=True):
                        driver.update(graph, node, work)
            except GraphError:
                pass  # other addresses may need another cuBLAS kernel: then it is made again too
            else:
                self.held[changed] = table[changed]
                self.graph = graph
                return True
        try:
            self._make(table)
        except GraphError as error:
            self.refused = str(error)
            self._divide()
            return False
        return True

    def _divide(self) -> None:
        """Go on with graphs of the kernels between products, if there are products."""
        groups = [list(some) for _, some in groupby(self.parts, lambda p: type(p) is Launch)]
        if len(groups) > 1:
            self.divided = [Segment(self.where, some) for some in groups]
            for s in self.divided:
                s.runs = self.runs
                if type(s.parts[0]) is not Launch:
                    s.refused = self.refused

    @property
    def graphs(self) -> list[Segment]:
        """The parts of it that run as graphs."""
        return [self] * (self.graph is not None) + [g for s in self.divided for g in s.graphs]

    def _make(self, table: Array) -> None:
        nodes: list[tuple[Work, tuple[int, ...]]] = []
        self.numbers: list[list[int]] = []
        readers: dict[int, tuple[int, ...]] = {}
        before: tuple[int, ...] = ()
        own: list[int] = []
        level: int | None = None
        for i, part in enumerate(self.parts):
            if part.level != level:
                before, own, level = tuple(own) or before, [], part.level
            numbers = []
            for work in part.works(table):
                nodes.append((work, before))
                numbers.append(len(nodes) - 1)
                if type(part) is not Launch:
                    # The calls of a product share cuBLAS's workspace.
                    before = (len(nodes) - 1,)
            self.numbers.append(numbers)
            own = [*own, *numbers] if type(part) is Launch else numbers[-1:]
            for slot in part.slots:
                readers[slot] = (*readers.get(slot, ()), i)
        # The parts that read an entry of the table, by the number of such a group of parts; none read those of others.
        self.among = list(dict.fromkeys([(), *readers.values()]))
        number = {parts: n for n, parts in enumerate(self.among)}
        self.readers = np.zeros(len(table), np.int64)
        for slot, parts in readers.items():
            self.readers[slot] = number[parts]
        graph = self.where.driver.graph(self.where.number, nodes)
        self.held = table.copy()
        self.graph = graph
