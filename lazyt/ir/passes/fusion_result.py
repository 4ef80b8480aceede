"""The result of fusion: groups of nodes that are one kernel each, calls between them, and the stored nodes."""

from __future__ import annotations

from dataclasses import field

from lazyt.forking import cached_property
from lazyt.ir import kernel as k
from lazyt.ir.graph import Node
from lazyt.ir.passes.index_maps import AxisVar, Index, Place, substitute
from lazyt.ir.records import dataclass
from lazyt.ir.symbolic import Dim


@dataclass(eq=False, slots=True)
class Root:
    """A value stored by a group: into the buffer of `target` (usually itself), at an offset when it is a part."""

    node: Node
    place: Place  # over the group's axes; covers all of them, or the outer ones only
    target: Node
    at: Place | None = None  # where in the target each element goes; None: the same place


@dataclass(eq=False, slots=True)
class Group:
    """One kernel in the making."""

    number: int
    outer: list[AxisVar]
    rows: list[AxisVar] = field(default_factory=list)
    vector: str = "outer"
    roots: list[Root] = field(default_factory=list)
    reductions: dict[Node, Place] = field(default_factory=dict)  # reduction -> place of its operand
    why: str = ""  # why its roots are stored rather than inlined
    splits: list[tuple[AxisVar, Index]] = field(default_factory=list)
    size: int = 0
    costly: int = 0  # elementary functions among its operations
    near: set[Node] = field(default_factory=set)  # the values that its roots are computed from, a few steps back
    pair: AxisVar | None = None  # over the two words of each element: see complex_words.py
    late: bool = False  # whether it stores a node of the backward: see recompute.py
    moment: tuple[int, int] | None = None  # under a memory budget, when what it stores is there: see moments.py
    piece: int = 0  # number of the piece, for a kernel that was divided: see divide_kernels.py

    @property
    def title(self) -> str:
        """A description of its kernel, for people."""
        return "+".join(sorted({r.node.op for r in self.roots} | {r.op for r in self.reductions}))

    def normal(self, p: Place) -> Place:
        """`p` over the axes as they are now."""
        for axis, by in self.splits:
            p = substitute(p, axis, by)
        return p


@dataclass(eq=False, slots=True)
class Call:
    """A library call or a product: runs at its number's place in the order."""

    number: int
    node: Node


Unit = Group | Call


@dataclass
class Fused:
    """The result of fusion: units in order of execution, and the nodes that have a buffer."""

    units: list[Unit]
    stored: set[Node]
    why: dict[Node, str]
    # The kernels of the groups, where they were already made: see divide_kernels.py.
    kernels: dict[Group, KernelCall] = field(default_factory=dict)

    @property
    def groups(self) -> list[Group]:
        return [u for u in self.units if isinstance(u, Group)]


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """A scalar argument: a Python number of the trace (or its part), or an extent."""

    position: int = -1
    part: str = ""  # '' | 'real' | 'imag' | 'code' (of a check) | 'argument' (of `Builder.argument`)
    floating: bool = False
    extent: int | Dim | None = None


@dataclass(slots=True)
class AccessArg:
    """Where an access points: a buffer, an element offset, and a stride an axis."""

    buffer: Node
    offset: int | Dim
    strides: tuple[int | Dim, ...]
    itemsize: int


@dataclass(eq=False)
class KernelCall:
    """A kernel and the expressions of its arguments."""

    kernel: k.Kernel
    extents: tuple[int | Dim, ...]
    accesses: list[AccessArg]
    affines: list[tuple[tuple[int | Dim, ...], int | Dim]]
    scalars: list[ScalarArg]
    group: Group
    checks: list[Node] = field(default_factory=list)  # by code - 1: the gather that a status word names
    # The row kernel whose results this one only adds up: its second phase, not a kernel of its own.
    phase_of: KernelCall | None = None
    nodes: tuple[Node, ...] = ()  # what it computes
    # The product whose elements its points are, one axis a dimension, if it was made so: see epilogue.py.
    product: Node | None = None
    strategies: tuple[str, ...] = ()  # strategies that passes chose for it, for `explain()`

    # NOTE: found once. Passes change a call's axes and the order of its accesses, but not which buffers those are of.
    @cached_property
    def reads(self) -> frozenset[Node]:
        """Buffers of others that it reads (not what it wrote itself)."""
        both = zip(self.accesses, self.kernel.accesses, strict=True)
        return frozenset([a.buffer for a, x in both if not x.writes]) - self.writes

    @cached_property
    def writes(self) -> frozenset[Node]:
        """Buffers that it writes."""
        both = zip(self.accesses, self.kernel.accesses, strict=True)
        return frozenset([a.buffer for a, x in both if x.writes])
