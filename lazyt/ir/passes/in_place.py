"""Which temporaries take the memory of another one that dies where they are made.

    dy = softmax(y) - t  (a kernel that reads y last)      -->      dy lies where y lay

The rule is that of results in place of inputs (donate.py): the kernel reads what is overwritten only at the place that
it writes, and not after it did. Nothing else may touch that memory meanwhile. That holds for all extents; whether the
memory is large enough is asked when a plan is bound.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lazyt.ir.passes.call_operands import bytes_hint
from lazyt.ir.passes.donate import Accessed, multiplies, writer_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import Launch


def in_place(regions: Sequence[Sequence[Launch]], lives: dict[Node, tuple[int, int]]) -> dict[Node, Node]:
    """A temporary -> the one whose memory it takes, which no other one does."""
    writers = Counter(n for region in regions for c in region for n in c.writes if n in lives)
    found: dict[Node, Node] = {}
    for i, region in enumerate(regions):
        dying = {n for c in region for n in c.reads if n in lives and lives[n][1] == i and lives[n][0] < i}
        if not dying:
            continue
        touched = Counter(n for c in region for n in c.reads | c.writes if n in dying)
        for c in region:
            made = [n for n in c.writes if n in lives and lives[n][0] == i and writers[n] == 1]
            donors = [n for n in c.reads if n in dying and touched[n] == 1 and not multiplies(c, n)]
            if made and donors:
                found.update(_matched(c, made, donors))
    return found


def _matched(call: Launch, made: Sequence[Node], donors: Sequence[Node]) -> dict[Node, Node]:
    """What a launch writes -> what it may write over, each once."""
    found: dict[Node, Node] = {}
    kernel = next((k for n in made if (k := writer_of(call, n)) is not None), None)
    if kernel is None:
        return found
    accessed = Accessed(kernel)
    # NOTE: a kernel may have hundreds of both, so they are found by their size and place.
    left: dict[tuple[int, object], list[Node]] = {}
    for x in sorted(donors, key=lambda n: -n.serial):
        places = {accessed.place(i) for i in accessed.reads.get(x, ())}
        if len(places) == 1:
            left.setdefault((bytes_hint(x), places.pop()), []).append(x)
    for n in sorted(made, key=lambda n: n.serial):
        store = accessed.store_of(n, anywhere=True)
        some = None if store is None else left.get((bytes_hint(n), accessed.place(store)))
        if store is not None and some and accessed.reads_only_at(some[-1], store):
            found[n] = some.pop()
    return found
