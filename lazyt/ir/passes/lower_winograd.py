"""Convolutions with a window of 3 x 3 by Winograd's algorithm, where that was allowed and is worth it.

convolve x, w          -->  winograd_convolve(x, winograd_filters w)
convolve_filter x, y   -->  winograd_filter_slope(sum over chunks of winograd_filter_sums(x, y))     of many tiles, or
                            winograd_filter_slope(matmul(transposed winograd_tiles x, winograd_tiles y))

A derivative by the image is a convolution too. See `ir/winograd.py` for the calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.ir import graph as g
from lazyt.ir.passes.rewriting import Rule, replaced
from lazyt.ir.symbolic import hint, product
from lazyt.ir.winograd import CHUNKS, PANEL, PLACES, PLANES, WINDOW

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.rewriting import Rewriter
    from lazyt.ir.symbolic import Scope

# The cost, in multiply-adds: the products reach five sixths of the rate of a convolution's, and an element of what
# is between a call and a product takes so many to compute, write and read.
SLOWER = 1.2
MOVED = 22
# Channels and features of sums over tiles in machine code: whole vectors of any processor.
LANES = 16
# Elements of an image along an axis, at most: a unit keeps the rows of a tile (see backends/cpu/library/winograd.py).
WIDEST = 1024


def lower_winograd(graph: g.Graph, scope: Scope | None) -> g.Graph:
    """The graph with such convolutions as calls and products; the same graph if there are none."""
    if not any(_is_allowed(n) for n in graph.nodes):
        return graph
    return replaced(graph, scope, Rule("convolve convolve_filter", lambda r, n, x, y: _is_allowed(n), _by_winograd))


def _is_allowed(n: Node) -> bool:
    """Whether Winograd's algorithm may compute n, and can."""
    a = n.attrs
    if not (isinstance(a, g.Convolution) and a.winograd) or n.op == "convolve_image":
        return False
    if any(x.dtype != np.float32 for x in (n, *n.operands)):
        return False
    return a.sizes == (WINDOW, WINDOW) and a.groups == 1 and {*a.strides, *a.dilations} == {1}


def _by_winograd(r: Rewriter, n: Node, x: Node, y: Node) -> Node | None:
    """The value of the convolution n of these operands; None where another way is faster."""
    a, b = n.attrs, r.b
    assert isinstance(a, g.Convolution)
    places, features = (n.shape[2:], n.shape[1]) if n.op == "convolve" else (y.shape[2:], n.shape[-1])
    extents = tuple(map(hint, places))
    least = _least_images(hint(x.shape[1]), hint(features), extents)
    # NOTE: a plan is for one answer, so that bits do not depend on the batch that was planned first.
    if least is None or not b.at_least(x.shape[0], least):
        return None
    for d in (*places, *x.shape[2:], features):
        b.same(d, hint(d))  # the plan holds for these extents alone
    down, right = counts = tuple(-(-d // PLACES) for d in extents)
    tiles, channels = product((x.shape[0], down * right)), x.shape[1]

    def call(fn: str, operands: tuple[Node, ...], statics: tuple[Any, ...], shape: g.Shape) -> Node:
        return b.opaque(fn, operands, statics, ((shape, n.dtype),))[0]

    if n.op == "convolve":
        panels = -(-hint(features) // PANEL)
        filters = call("winograd_filters", (y,), (), (panels, PLANES, channels, PANEL))
        return call("winograd_convolve", (x, filters), (a.padding, counts, (hint(features), *extents)), n.shape)
    if _has_many_tiles(b, x, hint(features), down * right):
        parts = call("winograd_filter_sums", (x, y), (a.padding, counts), (CHUNKS, PLANES, channels, features))
        return call("winograd_filter_slope", (b.reduce("sum", parts, (0,)),), (), n.shape)
    read = call("winograd_tiles", (x,), ("image", a.padding, counts), (PLANES, tiles, channels))
    slopes = call("winograd_tiles", (y,), ("slope", (0, 0), counts), (PLANES, tiles, features))
    return call("winograd_filter_slope", (b.matmul(b.permute(read, (0, 2, 1)), slopes),), (), n.shape)


def _least_images(channels: int, features: int, extents: tuple[int, ...]) -> int | None:
    """From how many images on it takes less time than products over the window; None where it never does."""
    if not all(0 < d <= WIDEST for d in extents):
        return None
    height, width = extents
    tiles, pairs = -(-height // PLACES) * -(-width // PLACES), channels * features
    saved = WINDOW * WINDOW * height * width * pairs - SLOWER * PLANES * tiles * pairs
    saved -= MOVED * PLANES * tiles * (channels + features)
    return int(MOVED * PLANES * pairs / saved) + 1 if saved > 0 else None


def _has_many_tiles(b: Builder, x: Node, features: int, tiles: int) -> bool:
    """Whether what a derivative by the filters reads of tiles is more than the sums of its chunks."""
    channels = hint(x.shape[1])
    if channels % LANES or features % LANES:
        return False
    return b.at_least(x.shape[0], CHUNKS * channels * features // (tiles * (channels + features)) + 1)
