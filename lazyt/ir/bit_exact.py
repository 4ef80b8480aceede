"""Graphs that NumPy computes with the bits of kernels: each of their primitives has one correct result.

Primitives whose machine code has an approximation of its own (elementary functions, products, convolutions) are
excluded. Sums have the order of kernels (reduction_order.py). tests/ir/test_bit_exact.py compares each entry of `KINDS`
with compiled code.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.ir import dtypes, graph as g
from lazyt.ir.graph_interpreter import PRIMITIVES, Environment
from lazyt.ir.kernel import CHUNK
from lazyt.ir.passes.row_kernels import lanes_of
from lazyt.ir.prims import MOVEMENT, SOURCES
from lazyt.ir.reduction_order import summed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.ir.graph import Node

    Array = np.ndarray[Any, Any]
    Number = bool | int | float | complex
    Meaning = Callable[[Node, list[Any], Environment], Any]


def _kinds(*rows: tuple[str, str]) -> dict[str, str]:
    return {name: kinds for names, kinds in rows for name in names.split()}


# The kinds of dtypes for which a primitive is exact: those of its last operand, where it has one.
KINDS = _kinds(
    (" ".join((*SOURCES, *MOVEMENT)), "biufc"),
    ("iota position", "i"),
    ("cast update gather item", "biufc"),
    ("add", "biufc"),
    ("sub neg", "iufc"),
    ("mul", "biuf"),
    ("div copysign floor ceil trunc round sqrt signbit", "f"),
    ("floordiv rem fmod abs sign", "iuf"),
    ("pow shl shr", "iu"),
    ("maximum minimum lt le gt ge", "biuf"),
    ("eq ne select", "biufc"),
    ("and or xor not", "biu"),
    ("isnan isinf isfinite", "fc"),
    ("real imag conj", "c"),
    ("complex", "f"),
    ("random_bits", "i"),
    ("sum prod", "iuf"),
    ("max min argmax argmin", "biuf"),
    ("any all", "b"),
)
# Functions of `opaque` that kernels call, or compute in the same order.
FUNCTIONS = frozenset(("sort", "argsort", "topk", "searchsorted", "isin", "cumsum", "cumprod"))


class Form:
    """What a call's results are made of, over ints."""

    __slots__ = ("_steps", "outputs")

    def __init__(self, outputs: tuple[Node, ...]) -> None:
        self.outputs = outputs
        self._steps: list[tuple[Node, Meaning]] | None = None

    @property
    def exact(self) -> bool:
        """Whether NumPy gives the bits of all nodes that the results need."""
        if self._steps is None:
            nodes = g.reachable(self.outputs)
            exact = all(map(is_exact, nodes))
            self._steps = [(n, _ordered if _has_order(n) else PRIMITIVES[n.op]) for n in nodes] if exact else []
        return bool(self._steps)

    def values(self, inputs: Sequence[Any], scalars: Sequence[Number]) -> dict[Node, Array]:
        """The value of each node; an invalid operand (an index out of range) raises some error."""
        assert self.exact, "a part of it is not exact"
        env = Environment(inputs, scalars, None)
        values: dict[Node, Any] = {}
        with np.errstate(all="ignore"):
            for n, meaning in self._steps or ():
                values[n] = meaning(n, [values[x] for x in n.operands], env)
        return values


def is_exact(n: Node) -> bool:
    """Whether NumPy gives this node's bits from its operands' bits."""
    if n.op == "opaque":
        assert isinstance(n.attrs, g.Opaque)
        return n.attrs.fn in FUNCTIONS and all(dtypes.kind(x.dtype) != "c" for x in n.operands)
    if dtypes.kind((n.operands[-1] if n.operands else n).dtype) not in KINDS.get(n.op, ""):
        return False
    if n.op in ("max", "min"):
        return 0 not in n.operands[0].shape
    return not _has_order(n) or _rows(n)[-1] <= CHUNK


def _has_order(n: Node) -> bool:
    return n.op in ("sum", "prod") and dtypes.kind(n.dtype) == "f"


def _rows(n: Node) -> list[Any]:
    assert isinstance(n.attrs, g.Axes)
    sizes = [n.operands[0].shape[a] for a in n.attrs.axes]
    return [*sizes[:-2], math.prod(sizes[-2:])] if n.attrs.joined else sizes


def _ordered(n: Node, xs: list[Any], env: Environment) -> Array:
    assert isinstance(n.attrs, g.Axes)
    return summed(n.op, xs[0], n.attrs.axes, lanes_of(n))
