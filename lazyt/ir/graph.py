"""The graph IR: SSA values of few primitives, in recorded order; every public function is made of them.

    graph  := node*                       each node after its operands
    node   := Node(op, operands, attrs, shape, dtype)
    op     := input k | scalar k | constant v | extent e            sources
            | <elementwise>                                        see prims.ELEMENTWISE; operands share one shape
            | cast                                                 to the node's dtype
            | iota axis                                            int64 index along an axis
            | permute axes | reshape | expand | slice starts steps | pad lo | concat axis
            | window axes sizes strides dilations                  movement
            | sum | prod | max | min | any | all | argmax | argmin  reductions over `axes`, which are removed; `joined`:
                                                                   in the order of one axis in place of the last two
            | matmul                                               (..., m, k) @ (..., k, n), equal batch dims;
                                                                   of halves, float32, or the half of both
            | convolve c | convolve_filter c | convolve_image c    c: sizes, dilations, strides, groups, padding
            | gather axes | scatter axes mode | position sizes | update starts steps | opaque fn statics | item k
            | stop | track k | known | normalized axes             marks for autograd
    shape  := extent*                     ints or symbols (see symbolic.py)

expand      (.., 1, ..) -> (.., n, ..)            same rank; an axis stays or grows from 1
slice       y[i] = x[start + i * step]            one start and one int step an axis (steps may be negative)
pad v       y[i] = x[i - lo] if inside else v      lo and the node's shape say how much (v is a 0-d operand)
concat      operands end to end along `axis`
window      y[.., o, .., k] = x[.., o * stride + k * dilation, ..]   one new last axis for each of `axes`
convolve    y[n, o, i..] = sum of x[n, c, i.. * stride.. + k.. * dilation..] * w[o, c, k..] over c and k..: (N, C, ..),
            (O, C / groups, ..); c goes over the channels of o's group; x has `padding` zeros at both ends of each axis
convolve_filter  w[c, k.., o] = sum of x[n, c, i.. * stride.. + k.. * dilation..] * y[n, o, i..] over n and i..
convolve_image   x[n, c, i.. * stride.. + k.. * dilation..] = sum of y[n, o, i..] * w[o, c, k..] over o, i.. and k..
gather      y[i.., rest..] = x[at axes: idx_a[i..], other axes: rest..]   int64 indices, in [0, n): checked at run time
scatter     x with v[i.., rest..] put ('set') or added ('add') at idx, in index order; duplicates: the last wins
position    i0 * s1 * s2 + i1 * s2 + i2 for sizes (s0, s1, s2)     int64 indices, in [0, size): checked at run time
update      x with v put at x[start + i * step] (slice's inverse)
opaque      a library call on whole arrays; its outputs are read through `item k`. An effect (a function that is called
            for what it does) is one: its output is a token, which the next effect takes as its last operand, and that
            of the last effect is an output of the graph. So effects are not dropped, merged or moved across each other
stop        the operand; reverse mode must treat it as a constant
track       the operand, as a value of its own (identity k) that gradients are asked for
known y x   x, a stored copy of y: reading it costs nothing, and its gradient goes to y
normalized y x r   y, which is (x - mean x) * r over `axes`, with r = 1 / sqrt(variance of x + eps): its derivative with
            respect to x, that of the statistics included, is one formula of y and r
A scalar is a Python number of the recorded program, an argument of the plan: it has the node's dtype.
Complex arithmetic is on whole values here; code generation splits it into parts.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy as np

    from lazyt.ir.compression import Compression
    from lazyt.ir.symbolic import Dim

Shape = tuple["int | Dim", ...]


@dataclass(frozen=True, slots=True)
class Input:
    index: int


@dataclass(frozen=True, slots=True)
class Scalar:
    position: int


@dataclass(frozen=True, slots=True)
class Constant:
    value: bool | int | float | complex
    # 1 == 1.0 == True and 0.0 == -0.0: the spelling keeps them apart in keys.
    spelling: str


@dataclass(frozen=True, slots=True)
class ExtentValue:
    extent: int | Dim
    # Whether a number is an argument of kernels, too: those that differ in it alone are one.
    argument: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    axis: int


@dataclass(frozen=True, slots=True)
class Axes:
    axes: tuple[int, ...]
    joined: bool = False  # of a reduction: the operand's last two axes have the order of one (join_axes.py)


@dataclass(frozen=True, slots=True)
class Slice:
    starts: Shape
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pad:
    lo: Shape


@dataclass(frozen=True, slots=True)
class Window:
    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Convolution:
    """Ints for each axis after the first two."""

    sizes: tuple[int, ...]  # of the window
    dilations: tuple[int, ...]
    strides: tuple[int, ...]
    groups: int
    padding: tuple[int, ...]
    winograd: bool = False  # whether Winograd's algorithm may compute it

    @property
    def is_plain(self) -> bool:
        """Whether it has one group, stride 1 and no padding."""
        return self.groups == 1 and set(self.strides) == {1} and set(self.padding) == {0}

    @property
    def reach(self) -> tuple[int, ...]:
        """The distance from the first element of a window to the last."""
        return tuple((k - 1) * e for k, e in zip(self.sizes, self.dilations, strict=True))

    def counts(self, extents: Shape) -> Shape:
        """How many windows there are along each axis of an image."""
        rest = (d + 2 * p - r for d, p, r in zip(extents, self.padding, self.reach, strict=True))
        return tuple(d if s == 1 else (d - 1) // s + 1 for d, s in zip(rest, self.strides, strict=True))


@dataclass(frozen=True, slots=True)
class Scatter:
    axes: tuple[int, ...]
    mode: str  # 'set' | 'add'


@dataclass(frozen=True, slots=True)
class Sizes:
    sizes: Shape


@dataclass(frozen=True, slots=True)
class Opaque:
    fn: str  # a key of opaque.FUNCTIONS
    statics: tuple[Any, ...]
    outputs: tuple[tuple[Shape, np.dtype], ...]


@dataclass(frozen=True, slots=True)
class Item:
    index: int


@dataclass(frozen=True, slots=True)
class Identity:
    step: int
    value: int


Attrs = (
    Input
    | Scalar
    | Constant
    | ExtentValue
    | Axis
    | Axes
    | Slice
    | Pad
    | Window
    | Convolution
    | Scatter
    | Sizes
    | Opaque
    | Item
    | Identity
    | None
)


@dataclass(frozen=True, slots=True)
class Draw:
    """The compression that a step was recorded under, and the scalars of its program that rounding draws from."""

    settings: Compression
    seed: int  # positions among the program's scalars
    counter: int
    # Of a probe: for each rounded array its largest code, and what moves its counter. Of mixed bits: see `ops/`.
    told: Node | None = None
    averages: Shape = ()  # of mixed bits: the average of each array, in parts
    step: int = -1  # position of the draw in the program


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a node: a public operation at a user's line, or the pull-back of one."""

    name: str
    site: Any
    backward: bool = False
    step: int = -1  # position of the operation in the program: other programs with this plan have another line there
    again: bool = False  # computed a second time, in the backward: see passes/recompute.py
    # Of what pulls back: whether it is made of the forward pass' values alone, without a cotangent.
    local: bool = False
    draw: Draw | None = None  # whether, and how, a backward may read it in few bits
    construct: str = ""  # of a user's kernel: what may fail at the sync, and where it stands
    rounded: tuple[str, ...] = ()  # of what the operands may be rounded (see `Mode.rounded`)

    def __str__(self) -> str:
        return str(self.site)


def pulled(origin: Any, local: bool = False) -> Any:
    """The origin of the nodes that pull a cotangent back through a node of this origin (`local`: of those without)."""
    if not isinstance(origin, Origin):
        return origin
    return Origin(
        origin.name, origin.site, True, origin.step, local=local, draw=origin.draw, rounded=origin.rounded
    )  # fmt: skip


class Node:
    """One value. Frozen after construction; equality is identity (the builder hash-conses)."""

    __slots__ = ("attrs", "dtype", "op", "operands", "serial", "shape", "site")

    def __init__(
        self, op: str, operands: tuple[Node, ...], attrs: Attrs, shape: Shape, dtype: np.dtype, serial: int, site: Any
    ) -> None:
        self.op = op
        self.operands = operands
        self.attrs = attrs
        self.shape = shape
        self.dtype = dtype
        self.serial = serial  # position in its graph: operands have smaller ones
        self.site = site  # its Origin; None if no operation recorded it

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return node_line(self)


@dataclass
class Graph:
    """Nodes in order, and the wanted ones."""

    nodes: list[Node] = field(default_factory=list)
    outputs: list[Node] = field(default_factory=list)
    kept: frozenset[Node] = frozenset()  # stored as soon as they can be computed, and read from there
    rounded: tuple[Shape, ...] = ()  # the shapes of arrays that `kept` has estimates of, as they are numbered

    def __str__(self) -> str:
        return "\n".join(graph_lines(self))


def shape_text(shape: Shape) -> str:
    return "(" + ", ".join(str(d) for d in shape) + ("," if len(shape) == 1 else "") + ")"


def _attrs_text(attrs: Attrs) -> str:
    match attrs:
        case None:
            return ""
        case Constant():
            return f" {attrs.spelling}"
        case Input(index=k) | Scalar(position=k) | Item(index=k):
            return f" {k}"
        case ExtentValue(extent=e):
            return f" {e}"
        case Opaque():
            return f" {attrs.fn}" + "".join(f" {s!r}" for s in attrs.statics)
        case Axes(axes=axes):
            return f" axes={shape_text(axes)}" + " joined" * attrs.joined
        case _:
            names = attrs.__dataclass_fields__
            return "".join(f" {n}={shape_text(v) if isinstance(v := getattr(attrs, n), tuple) else v}" for n in names)


def node_line(node: Node, name: Any = lambda n: f"%{n.serial}") -> str:
    """`%3 = add %1, %2 : float32 (3, 4)`"""
    operands = ", ".join(name(o) for o in node.operands)
    body = f"{node.op}{_attrs_text(node.attrs)}{' ' if operands else ''}{operands}"
    return f"{name(node)} = {body} : {node.dtype} {shape_text(node.shape)}"


def graph_lines(graph: Graph) -> Iterator[str]:
    """One line a node, numbered in order whatever the serial numbers are."""
    number = {n: i for i, n in enumerate(graph.nodes)}

    def name(n: Node) -> str:
        return f"%{number[n]}" if n in number else f"%?{n.serial}"

    for n in graph.nodes:
        yield node_line(n, name)
    yield "return " + ", ".join(name(n) for n in graph.outputs)


def reachable(outputs: Iterable[Node], enters: Callable[[Node], bool] | None = None) -> list[Node]:
    """Every node that `outputs` need, in order (iterative: graphs may be 100,000 deep).

    With `enters`, not what is needed only by nodes for which that is false.
    """
    seen: set[Node] = set()
    todo = list(outputs)
    while todo:
        n = todo.pop()
        if n not in seen:
            seen.add(n)
            if enters is None or enters(n):
                todo.extend(n.operands)
    return sorted(seen, key=lambda n: n.serial)
