"""What derivative rules are written in: `Value`, a node with arithmetic, and the shapes of rules.

A rule says how the cotangent of a result becomes the cotangents of its operands. For complex values the
convention is PyTorch's: the cotangent of z = x + iy is dL/dx + i dL/dy, so that a holomorphic f passes on
g * conj(f'(z)); a real operand takes the real part (which is what a cast to its dtype does).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lazyt.ir import dtypes, graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.graph import Node
from lazyt.ir.library_calls import FUNCTIONS
from lazyt.ir.symbolic import Dim

if TYPE_CHECKING:
    import numpy as np

# rule(b, node, its cotangent) -> one cotangent an operand; None where none passes.
Rule = Callable[[Builder, Node, Node], "tuple[Node | None, ...]"]
# The same for an opaque call: one cotangent an output, None for an output that nobody differentiates.
OpaqueRule = Callable[[Builder, Node, "tuple[Node | None, ...]"], "tuple[Node | None, ...]"]


class Value:
    """A node in a formula: `+ - * / @`, and any elementwise primitive as a method. Numbers become constants.

    With `library`, functions of complex values are the opaque `complex_<name>`, as they were in the primal.
    """

    __slots__ = ("b", "library", "node")

    def __init__(self, b: Builder, node: Node, library: bool = False) -> None:
        self.b = b
        self.node = node
        self.library = library

    def _node(self, x: Value | Node | complex) -> Node:
        if isinstance(x, Value):
            return x.node
        return x if isinstance(x, Node) else self.b.constant(x, self.node.dtype)

    def apply(self, name: str, *operands: Value | Node | complex) -> Value:
        """An elementwise function of these operands."""
        nodes = [self._node(x) for x in operands]
        fn = f"complex_{name}"
        if self.library and fn in FUNCTIONS and dtypes.kind(nodes[-1].dtype) == "c":
            whole = max(nodes, key=lambda n: n.ndim)
            nodes = [self.b.expand_to(n, whole.shape) for n in nodes]
            return self._like(call(self.b, fn, nodes, (), [(whole.shape, whole.dtype)])[0])
        return self._like(self.b.elementwise(name, *nodes))

    def _like(self, node: Node) -> Value:
        return Value(self.b, node, self.library)

    def __getattr__(self, name: str) -> Callable[..., Value]:
        return lambda *others: self.apply(name.rstrip("_"), self, *others)

    def __add__(self, other: Value | complex) -> Value:
        return self.apply("add", self, other)

    def __radd__(self, other: complex) -> Value:
        return self.apply("add", other, self)

    def __sub__(self, other: Value | complex) -> Value:
        return self.apply("sub", self, other)

    def __rsub__(self, other: complex) -> Value:
        return self.apply("sub", other, self)

    def __mul__(self, other: Value | complex) -> Value:
        return self.apply("mul", self, other)

    def __rmul__(self, other: complex) -> Value:
        return self.apply("mul", other, self)

    def __truediv__(self, other: Value | complex) -> Value:
        return self.apply("div", self, other)

    def __rtruediv__(self, other: complex) -> Value:
        return self.apply("div", other, self)

    def __neg__(self) -> Value:
        return self.apply("neg", self)

    def __matmul__(self, other: Value) -> Value:
        return self._like(self.b.matmul(self.node, other.node))

    def conj(self) -> Value:
        """The conjugate; a real value as it is."""
        return self.apply("conj", self) if is_complex(self.node) else self

    def where(self, condition: Value | Node, other: Value | complex) -> Value:
        """This where the condition holds, `other` elsewhere."""
        return self.apply("select", condition, self, other)

    def full(self, value: complex) -> Value:
        """This value's shape and dtype, filled with a number."""
        return self._like(full(self.b, value, self.node.shape, self.node.dtype))

    def cast(self, dtype: np.dtype[Any]) -> Value:
        return self._like(self.b.cast(self.node, dtype))

    @property
    def H(self) -> Value:  # noqa: N802 - the sign of mathematics
        """The conjugate transpose of the last two axes."""
        n = self.node.ndim
        return self._like(self.b.permute(self.node, (*range(n - 2), n - 1, n - 2))).conj()


def is_complex(n: Node) -> bool:
    return dtypes.kind(n.dtype) == "c"


def carries(n: Node) -> bool:
    """Whether a value of this dtype has a derivative at all."""
    return dtypes.kind(n.dtype) in "fc"


def working(b: Builder, *nodes: Node) -> tuple[Value, ...]:
    """The nodes to compute a formula with: the halves in float32, so that it rounds once at its end."""
    return tuple(Value(b, b.cast(n, dtypes.computed_in(n.dtype))) for n in nodes)


def full(b: Builder, value: complex, shape: g.Shape, dtype: np.dtype[Any]) -> Node:
    return b.expand_to(b.constant(value, dtype), shape)


def zeros(b: Builder, shape: g.Shape, dtype: np.dtype[Any]) -> Node:
    return full(b, 0, shape, dtype)


def spread(b: Builder, y: Node, shape: g.Shape, axes: Sequence[int]) -> Node:
    """Give back to `y` the `axes` that a reduction of `shape` removed."""
    kept = tuple(1 if i in axes else d for i, d in enumerate(shape))
    return b.expand(b.reshape(y, kept), shape)


def fit(b: Builder, x: Node, axis: int, size: int | Dim) -> Node:
    """Cut an axis at `size`, or pad it with zeros up to it: the adjoint of itself."""
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    origin = (0,) * x.ndim
    if b.at_least(x.shape[axis] - size, 0):
        return b.slice(x, origin, shape, (1,) * x.ndim)
    return b.pad(x, origin, shape, b.constant(0, x.dtype))


def call(
    b: Builder,
    fn: str,
    operands: Sequence[Node],
    statics: tuple[Any, ...],
    outputs: Sequence[tuple[g.Shape, np.dtype[Any]]],
) -> tuple[Node, ...]:
    """The outputs of a library call (the same nodes as the primal's, where it made this call)."""
    return b.opaque(fn, operands, statics, outputs)


def outputs_of(b: Builder, n: Node) -> tuple[Node, ...]:
    """The outputs of an opaque call that is already there."""
    assert isinstance(n.attrs, g.Opaque)
    return call(b, n.attrs.fn, n.operands, n.attrs.statics, n.attrs.outputs)


def statics_of(n: Node) -> tuple[Any, ...]:
    assert isinstance(n.attrs, g.Opaque)
    return n.attrs.statics
