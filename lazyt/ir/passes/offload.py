"""Saved values that lie in the host's memory between the forward pass and the backward pass.

    h = gelu(x); y = h @ w               h = gelu(x); there = move_to_host(h); y = h @ w
    dw = transposed(h) @ dy       -->    back = move_to_device(there); dw = transposed(back) @ dy

A backend that can (`Target.offload`) copies beside its kernels, so the time is hidden where there is other work
meanwhile. Values are chosen by a memory budget or its policy (recompute.py), or are the packed arrays of a compression
(compress.py). Here is what they become in a graph, and when they move: to the host as soon as they are made, back ahead
of need as long as that does not raise the peak. A move changes no bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir.library_calls import TO_DEVICE, TO_HOST
from lazyt.ir.passes.call_operands import bytes_hint, is_move, is_on_host

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.memory_order import Launch

    Lives = dict[Node, tuple[int, int]]

# Smaller values stay, unless a policy names them: a copy takes some microseconds whatever its size.
LEAST = 1 << 16
# What to move a byte there and back takes, in the nanoseconds of recompute.py, whose rates are those of a core. A GPU
# has hundreds of such, and a copy is as slow as ever: a product that adds up four thousand numbers for each element of
# float32 takes as long as to move it.
NANOSECONDS = 40.0
# A value is back at most so many regions of launches before it is read, and a copy to the host has as many to end.
AHEAD = 24


def moved(b: Builder, x: Node, site: Any, back: Any) -> Callable[[], Node]:
    """Move x to the host's memory; what makes it on the device again. The origins of both."""
    b.site = site
    there = b.opaque(TO_HOST, (x,), (), [(x.shape, x.dtype)])[0]

    def fetch() -> Node:
        b.site = back
        return b.opaque(TO_DEVICE, (there,), (), [(x.shape, x.dtype)])[0]

    return fetch


def _move(region: Sequence[Launch]) -> Node | None:
    """The call of a region that is a move; None for another one."""
    node = getattr(region[0], "node", None)
    return node if node is not None and is_move(node) else None


def has_moves(launches: Sequence[Launch]) -> bool:
    """Whether any launch moves a value."""
    return any(_move([c]) is not None for c in launches)


def fetched_ahead(regions: list[list[Any]], outputs: Collection[Node]) -> list[list[Any]]:
    """The regions, each fetch as far before its first reader as the peak has room for, at most `AHEAD` regions."""
    levels = _levels(_lives(regions, outputs), len(regions))
    peak = max(levels, default=0)
    made: dict[Node, int] = {}
    keys: list[tuple[int, int]] = []
    for i, region in enumerate(regions):
        for c in region:
            for n in c.writes:
                made[n] = i
        at, move = i, _move(region)
        if move is not None and move.attrs.fn == TO_DEVICE:  # type: ignore[union-attr]
            size, first = bytes_hint(move.operands[0]), max(made[move.operands[0]] + 1, i - AHEAD)
            while at > first and levels[at - 1] + size <= peak:
                at -= 1
                levels[at] += size
        keys.append((at, 0) if at < i else (i, 1))
    order = sorted(range(len(regions)), key=keys.__getitem__)
    return [regions[i] for i in order]


def linger(regions: Sequence[Sequence[Launch]], lives: Lives) -> None:
    """Have a value that was copied to the host outlive the next launches, if the peak has room: nothing waits then."""
    levels = _levels(lives, len(regions))
    peak = max(levels, default=0)
    for region in regions:
        move = _move(region)
        for x in region[0].reads if move is not None and move.attrs.fn == TO_HOST else ():  # type: ignore[union-attr]
            first, last = lives.get(x, (0, -1))
            size = bytes_hint(x)
            end = min(last + AHEAD, len(regions) - 1)
            while last >= 0 and last < end and levels[last + 1] + size <= peak:
                last += 1
                levels[last] += size
            if last >= 0:
                lives[x] = first, last


def _lives(regions: Sequence[Sequence[Launch]], outputs: Collection[Node]) -> Lives:
    lives: Lives = {}
    for i, region in enumerate(regions):
        for c in region:
            for n in c.writes | c.reads:
                if n.op != "input" and n not in outputs and not is_on_host(n):
                    lives[n] = lives.get(n, (i, i))[0], i
    return lives


def _levels(lives: Lives, count: int) -> list[int]:
    """The bytes that are live in each region."""
    change = [0] * (count + 1)
    for n, (first, last) in lives.items():
        change[first] += bytes_hint(n)
        change[last + 1] -= bytes_hint(n)
    level, out = 0, []
    for c in change[:-1]:
        level += c
        out.append(level)
    return out
