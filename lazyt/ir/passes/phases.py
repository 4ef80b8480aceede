"""Convolutions whose result is computed phase by phase: transposed ones and input gradients, and those in groups.

convolve_image y, w    -->  convolve_image (y with zeros around it), w    so that every window lies in y
convolve_image y, w    -->  the places of a plain convolution for each phase, interleaved    of short rows
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from lazyt.ir import graph as g
from lazyt.ir.passes.rewriting import Rule, always, replaced
from lazyt.ir.symbolic import hint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.rewriting import Rewriter
    from lazyt.ir.symbolic import Scope

# Steps of a window, at most: a phase has code of its own.
STEPS = 8
# Places of a phase's row, at most, where phases are convolutions of their own: their vectors lie along the features.
SHORT = 8
# Elements of a depthwise window, at most: each is written out.
WEIGHTS = 64
# Elements of the rows that such a window meets, at most.
ROWS = 12000
# Reach of such a window along each axis, at most.
REACH = (32, 256)


def in_phases(n: Node) -> bool:
    """Whether a convolution is computed phase by phase, where a backend has code for that."""
    a, (_, w) = n.attrs, n.operands
    assert isinstance(a, g.Convolution)
    if len(a.sizes) > 2 or max(a.strides) > STEPS or is_depthwise(a, w.shape):
        return False
    return n.op == "convolve_image" or (
        n.op == "convolve" and a.groups > 1 and set(a.strides) == {1} and not any(a.padding)
    )


def divide_short(graph: g.Graph, scope: Scope | None) -> g.Graph:
    """The graph with transposed convolutions of short rows as plain ones; the same graph if there are none."""
    if not any(n.op == "convolve_image" for n in graph.nodes):
        return graph
    return replaced(graph, scope, Rule("convolve_image", always, _by_parts))


def _by_parts(r: Rewriter, n: Node, y: Node, w: Node) -> Node | None:
    """The transposed convolution n of short rows as plain convolutions, one a phase; None where it is none.

    With a step s, place s * m + r - padding is the sum over j of y[m - j] * w[r + s * j].
    """
    a, b = n.attrs, r.b
    assert isinstance(a, g.Convolution)
    if len(a.sizes) != 2 or a.groups > 1 or y.dtype != n.dtype or {*a.dilations} != {1} or max(a.strides) == 1:
        return None
    if any(k < s for k, s in zip(a.sizes, a.strides, strict=True)):
        return None
    if b.at_least(n.shape[-1], SHORT * a.strides[-1] + 1) or any(
        hint(d) % s or not hint(d) for d, s in zip(n.shape[2:], a.strides, strict=True)
    ):
        return None
    for d in (*n.shape[2:], *y.shape[2:]):
        b.same(d, hint(d))  # the plan holds for these extents alone
    counts = tuple(hint(d) // s for d, s in zip(n.shape[2:], a.strides, strict=True))
    down, right = (
        _phases(k, s, p) for k, s, p in zip(a.sizes, a.strides, a.padding, strict=True)
    )  # fmt: skip
    y, shift = _surrounded(b, y, (down, right), a, counts)
    rows = []
    for above in down:
        parts = [_part(b, a, y, w, (above, before), counts, shift) for before in right]
        rows.append(b.concat([b.reshape(z, (*z.shape[:3], 1, z.shape[3], 1)) for z in parts], 5))
    return b.reshape(b.concat(rows, 3), n.shape)


def _phases(size: int, step: int, padding: int) -> list[tuple[int, int]]:
    """Of each phase, in the order of first places: its first tap, and the element of y that those begin with."""
    found = []
    for tap in range(step):
        first = -((tap - padding) // step)
        found.append((step * first + tap - padding, tap, first))
    return [(tap, first) for _, tap, first in sorted(found)]


def _surrounded(
    b: Builder, y: Node, phases: Sequence[list[tuple[int, int]]], a: g.Convolution, counts: tuple[int, ...]
) -> tuple[Node, tuple[int, ...]]:
    """y with the zeros that any phase reads around it, and how many of them are before its first element."""
    before, wide = [], []
    for own, k, s, count, d in zip(phases, a.sizes, a.strides, counts, y.shape[2:], strict=True):
        low = min(0, *(first - _taps(tap, k, s) + 1 for tap, first in own))
        high = max(hint(d), *(first + count for _, first in own))
        before.append(-low)
        wide.append(high - low)
    shape = (*y.shape[:2], *wide)
    same = all(hint(p) == hint(q) for p, q in zip(shape, y.shape, strict=True))
    return (y if same else b.pad(y, (0, 0, *before), shape, b.constant(0, y.dtype))), tuple(before)


def _taps(tap: int, size: int, step: int) -> int:
    """How many taps a phase has."""
    return len(range(tap, size, step))


def _part(
    b: Builder, a: g.Convolution, y: Node, w: Node, phase: tuple[tuple[int, int], ...], counts: tuple[int, ...],
    shift: tuple[int, ...],
) -> Node:  # fmt: skip
    """The places of one phase: a plain convolution of what it reads of y, by its taps in reverse."""
    taps = tuple(_taps(tap, k, s) for (tap, _), k, s in zip(phase, a.sizes, a.strides, strict=True))
    starts = [first - j + 1 + at for (_, first), j, at in zip(phase, taps, shift, strict=True)]
    read = b.slice(
        y, (0, 0, *starts), (*y.shape[:2], *(n + j - 1 for n, j in zip(counts, taps, strict=True))), (1,) * 4
    )
    own = b.slice(w, (0, 0, *(tap for tap, _ in phase)), (*w.shape[:2], *taps), (1, 1, *a.strides))
    filters = b.flip(b.permute(own, (1, 0, 2, 3)), (2, 3))
    plain = g.Convolution(taps, (1, 1), (1, 1), 1, (0, 0))
    return b.make("convolve", (read, filters), plain, (y.shape[0], w.shape[1], *counts), y.dtype)


def by_planes(b: Builder, n: Node) -> bool:
    """Whether a convolution is computed plane by plane, where a backend has code for that."""
    a = n.attrs
    assert isinstance(a, g.Convolution)
    filters = (n.shape[-1], n.shape[0]) if n.op == "convolve_filter" else n.operands[1].shape
    if len(a.sizes) != 2 or max(a.strides) > STEPS or not is_depthwise(a, filters):
        return False
    if a.reach[0] >= REACH[0] or a.reach[1] >= REACH[1]:
        return False
    # The rows that a window meets are copied together.
    most = ROWS // (a.reach[0] + 1)
    image, result = (n, n.operands[0]) if n.op == "convolve_image" else (n.operands[0], n)
    return not b.at_least(image.shape[-1], most) and (
        n.op != "convolve_image" or not b.at_least(result.shape[-1], most)
    )


def is_depthwise(a: g.Convolution, filters: g.Shape) -> bool:
    """Whether each group has one channel and one feature, and a small window; filters: (O, C / groups, *sizes)."""
    return a.groups > 1 and math.prod(a.sizes) <= WEIGHTS and hint(filters[0]) == a.groups and hint(filters[1]) == 1


def framed(b: Builder, n: Node, y: Node, w: Node) -> Node:
    """The convolution n of these operands, which reads nothing beyond y.

    A place X of the image is the sum over taps k of y[(X + padding - k * dilation) / stride] where that is an integer.
    """
    a = n.attrs
    assert isinstance(a, g.Convolution)
    if n.op == "convolve":
        return b.make(n.op, (y, w), a, n.shape, n.dtype)
    frame = []
    for p, s, r, d, e in zip(a.padding, a.strides, a.reach, y.shape[2:], n.shape[2:], strict=True):
        behind = [i for i in range(s) if b.equal(e + 2 * p, (d - 1) * s + r + 1 + i)]
        beyond = behind[0] if behind else s - 1
        frame.append(max((r - p) // s, (r + beyond - p) // s, 0))
    if any(frame):
        wide = (*y.shape[:2], *(d + 2 * f for d, f in zip(y.shape[2:], frame, strict=True)))
        y = b.pad(y, (0, 0, *frame), wide, b.constant(0, y.dtype))
    padding = tuple(p + f * s for p, f, s in zip(a.padding, frame, a.strides, strict=True))
    return b.make(n.op, (y, w), replace(a, padding=padding), n.shape, n.dtype)
