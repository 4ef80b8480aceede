"""Every rule of the verifier refuses a graph that breaks it."""

from __future__ import annotations

import numpy as np
import pytest

from lazyt.errors import LazytInternalError
from lazyt.ir import dtypes, graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.graph import Graph, Node
from lazyt.ir.passes.verify import verify
from lazyt.ir.symbolic import Scope

F, INT, B = dtypes.float32, dtypes.int64, dtypes.bool_


def leaf(shape, dtype=F):
    return Node("input", (), g.Input(0), shape, dtype, 0, None)


def node(op, *operands, attrs=None, shape=(2, 3), dtype=F):
    return Node(op, operands, attrs, shape, dtype, 1, None)


X = leaf((2, 3))
V = leaf((3,))
IMAGES, FILTERS = leaf((2, 3, 6, 7)), leaf((5, 3, 3, 3))
PLAIN = g.Convolution((3, 3), (1, 1), (1, 1), 1, (0, 0))
INDEX = leaf((4,), INT)
CALL = node("opaque", X, attrs=g.Opaque("argsort", (0, False), (((2, 3), INT),)), shape=(), dtype=B)

INVALID = {
    "unknown primitive": node("frobnicate", X),
    "add has attrs of type NoneType": node("add", X, X, attrs=g.Axis(0)),
    "add takes 2 operands, got 1": node("add", X),
    "concat takes 1 operands, got 0": node("concat", attrs=g.Axis(0)),
    "dtype complex256 is not supported": node("cast", X, dtype=np.dtype("complex256")),
    "has a negative extent": node("cast", leaf((-1,)), shape=(-1,)),
    "read through item": node("cast", CALL, shape=(), dtype=B),
    "operands must have the node's shape": node("add", X, V),
    "random_bits takes uint64": node("random_bits", X, X, X, dtype=dtypes.uint64),
    "random_bits gives uint64": node(
        "random_bits", *(leaf((2, 3), d) for d in (dtypes.uint64, dtypes.uint64, INT)), dtype=INT
    ),
    "sub is not defined for bool": node("sub", *[leaf((2, 3), B)] * 2, dtype=B),
    "select takes": node("select", X, X, X),
    "operands must share one dtype": node("add", X, leaf((2, 3), INT), dtype=INT),
    "lt gives bool": node("lt", X, X),
    "constant is 0-d": node("constant", attrs=g.Constant(1.0, "1.0")),
    "scalar is 0-d": node("scalar", attrs=g.Scalar(0)),
    "extent is 0-d": node("extent", attrs=g.ExtentValue(1), dtype=INT),
    "iota axis is out of range": node("iota", attrs=g.Axis(2), dtype=INT),
    "iota gives int64": node("iota", attrs=g.Axis(0)),
    "cast keeps the shape": node("cast", V),
    "stop keeps the shape": node("stop", V),
    "stop keeps the dtype": node("stop", X, dtype=INT),
    "permute keeps the dtype": node("permute", X, attrs=g.Axes((0, 1)), dtype=INT),
    "permute axes must be a permutation": node("permute", X, attrs=g.Axes((0, 0))),
    "permute permutes the shape": node("permute", X, attrs=g.Axes((1, 0))),
    "reshape keeps the element count": node("reshape", X, shape=(5,)),
    "expand grows axes of extent 1 only": node("expand", X, shape=(4, 3)),
    "slice has one start": node("slice", X, attrs=g.Slice((0,), (1,))),
    "slice steps are not 0": node("slice", X, attrs=g.Slice((0, 0), (1, 0))),
    "slice start 1 step 1 size 3 leaves an axis of 3": node("slice", X, attrs=g.Slice((0, 1), (1, 1))),
    "update keeps shape and dtype": node("update", X, leaf((1, 1), INT), attrs=g.Slice((0, 0), (1, 1))),
    "update start 2 step -2 size 3": node("update", X, X, attrs=g.Slice((0, 2), (1, -2))),
    "pad takes x and a 0-d value": node("pad", X, V, attrs=g.Pad((0, 0))),
    "pad only grows": node("pad", X, leaf(()), attrs=g.Pad((0, 1))),
    "concat operands have one rank": node("concat", X, V, attrs=g.Axis(0)),
    "concat extents do not add up": node("concat", X, X, attrs=g.Axis(0), shape=(3, 3)),
    "concat operands differ along its axis only": node("concat", X, X, attrs=g.Axis(0), shape=(4, 4)),
    "concat operands share one dtype": node("concat", X, leaf((2, 3), INT), attrs=g.Axis(0), shape=(4, 3)),
    "window has one size": node("window", X, attrs=g.Window((0,), (1, 1), (1,), (1,))),
    "strides and dilations positive": node("window", X, attrs=g.Window((0,), (1,), (0,), (1,))),
    "window gives": node("window", X, attrs=g.Window((1,), (2,), (1,), (1,))),
    "reduction axes must be sorted": node("sum", X, attrs=g.Axes((1, 0)), shape=()),
    "reduction axes are removed": node("sum", X, attrs=g.Axes((0,))),
    "any takes bool": node("any", X, attrs=g.Axes((0,)), shape=(3,)),
    "argmax has one axis and gives int64": node("argmax", X, attrs=g.Axes((0,)), shape=(3,)),
    "sum keeps the dtype": node("sum", X, attrs=g.Axes((0,)), shape=(3,), dtype=INT),
    r"matmul takes \(": node("matmul", X, V),
    "matmul extents do not match": node("matmul", X, X),
    "convolve has a size, a dilation, a stride and a padding for each axis": node(
        "convolve", IMAGES, FILTERS, attrs=g.Convolution((3,), (1,), (1,), 1, (0,))
    ),
    "convolve keeps a real dtype": node(
        "convolve", IMAGES, FILTERS, attrs=PLAIN, shape=(2, 5, 4, 5), dtype=dtypes.float64
    ),
    "convolve keeps a real dtype, or gives float32 of bfloat16": node(
        "convolve", leaf((2, 3, 6, 7), dtypes.bfloat16), FILTERS, attrs=PLAIN, shape=(2, 5, 4, 5), dtype=dtypes.float32
    ),
    r"convolve takes \(N, C": node("convolve", IMAGES, IMAGES, attrs=PLAIN, shape=(2, 5, 4, 5)),
    r"convolve_filter takes \(N, C": node("convolve_filter", IMAGES, FILTERS, attrs=PLAIN, shape=(3, 3, 3, 5)),
    r"convolve_image takes \(N, C": node(
        "convolve_image", leaf((2, 5, 4, 4)), FILTERS, attrs=PLAIN, shape=(2, 3, 6, 7)
    ),
    "convolve has channels and features in equal groups": node(
        "convolve", IMAGES, FILTERS, attrs=g.Convolution((3, 3), (1, 1), (1, 1), 2, (0, 0)), shape=(2, 5, 4, 5)
    ),
    "convolve_image has a size, a dilation, a stride and a padding": node(
        "convolve_image", leaf((2, 5, 4, 5)), FILTERS, attrs=g.Convolution((3, 3), (1, 1), (1, 0), 1, (0, 0))
    ),
    "matmul keeps the dtype": node("matmul", X, leaf((3, 3), INT)),
    "gather has one index an axis": node("gather", X, INDEX, attrs=g.Axes((0, 1)), shape=(4,)),
    "gather indices are int64": node("gather", X, leaf((4,)), attrs=g.Axes((0,)), shape=(4, 3)),
    r"gather values are indices \+ the other axes": node("gather", X, INDEX, attrs=g.Axes((0,)), shape=(4, 2)),
    "scatter keeps shape and dtype": node("scatter", X, leaf((4, 3), INT), INDEX, attrs=g.Scatter((0,), "set")),
    "scatter mode 'max'": node("scatter", X, leaf((4, 3)), INDEX, attrs=g.Scatter((0,), "max")),
    "opaque function nowhere is not registered": node("opaque", X, attrs=g.Opaque("nowhere", (), ()), shape=()),
    "item reads an output of an opaque call": node("item", CALL, attrs=g.Item(1), dtype=INT),
    "item 0 is int64": node("item", CALL, attrs=g.Item(0)),
}


@pytest.mark.parametrize("why", INVALID)
def test_an_invalid_node_is_refused(why):
    n = INVALID[why]
    operands = [o for call in n.operands for o in (*call.operands, call)]
    graph = Graph(list(dict.fromkeys([*operands, n])), [n])
    with pytest.raises(LazytInternalError, match=f"invalid graph: .*({why})"):
        verify(graph)


def test_order_and_membership():
    y = node("neg", X)
    with pytest.raises(LazytInternalError, match="operand used before it is defined"):
        verify(Graph([y, X], [y]))
    with pytest.raises(LazytInternalError, match="an output is not a node of it"):
        verify(Graph([X], [y]))


def test_what_the_builder_makes_is_valid():
    scope = Scope()
    n = scope.symbol(0, 4)
    b = Builder(scope)
    x = b.input(0, (n, 3), F)
    y = b.matmul(x, b.permute(x, (1, 0)))
    z = b.update(y, b.slice(y, (0, 0), (2, n), (1, 1)), (0, 0), (2, 1))
    w = b.window(b.pad(z, (1, 0), (n + 2, n), b.constant(0.0, F)), (0,), (3,), (1,), (1,))
    order = b.opaque("argsort", (w,), (0, False), [(w.shape, INT)])[0]
    picked = b.gather(x, [b.reshape(order, (n * n * 3,))], (0,))
    verify(Graph(b.nodes, [picked, b.concat([z, y], 0), b.reduce("argmax", x, (0,))]))
