"""What fusion decides: groups of nodes that are one kernel each, calls between them, and which nodes are stored."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from lazyt.ir.graph import Node
from lazyt.ir.passes.index_maps import AxisVar, Index, Place, substitute
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    from lazyt.ir.passes.kernelize import KernelCall


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
    near: set[Node] = field(default_factory=set)  # what its roots are made from, a few steps back
    pair: AxisVar | None = None  # over the two words of each element: see complex_words.py
    piece: int = 0  # of a kernel that was divided: see divide_kernels.py

    @property
    def title(self) -> str:
        """What a person reads about its kernel."""
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
    """What fusion decided: units in order of execution, and which nodes have a buffer."""

    units: list[Unit]
    stored: set[Node]
    why: dict[Node, str]
    # The kernels of the groups, where somebody looked at them already: see divide_kernels.py.
    kernels: dict[Group, KernelCall] = field(default_factory=dict)

    @property
    def groups(self) -> list[Group]:
        return [u for u in self.units if isinstance(u, Group)]
