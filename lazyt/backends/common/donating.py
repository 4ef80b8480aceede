"""Which results of a run take the memory of inputs: of those that nothing else refers to, by their reference counts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import Donation

# Smaller results do not take the memory of inputs: the check would cost as much as the copy.
DONATED = 1 << 14
MANY = 4  # ... unless there are at least so many
MAX_VARIANTS = 8  # combinations of omitted copies that a plan keeps tables for

References = tuple[list[int], list[int], list[type]]


def references(values: Sequence[Any]) -> References:
    """The reference counts of each of `values` and its buffer, and the kind of that buffer."""
    buffers = [v.buffer for v in values]
    return list(map(sys.getrefcount, values)), list(map(sys.getrefcount, buffers)), list(map(type, buffers))


class _Value:
    def __init__(self, buffer: object) -> None:
        self.buffer = buffer


# What `references` gives for a value that only the list holds, and a buffer that only the value holds. Interpreters
# without a global lock count in other ways: there no value is ever alone.
_ALONE = references([_Value(object())])
COUNTED = getattr(sys, "_is_gil_enabled", lambda: True)()


def is_alone(found: References, i: int, kind: type) -> bool:
    """Whether only the list refers to value i, and only the value to its buffer, which is of this kind."""
    return COUNTED and found[0][i] == _ALONE[0][0] and found[1][i] == _ALONE[1][0] and found[2][i] is kind


def worthwhile(donations: list[Donation], nbytes: Callable[[Node], int]) -> list[Donation]:
    """These donations; none where they would save too little."""
    outputs = {d.output for d in donations}
    return donations if len(outputs) >= MANY or sum(map(nbytes, outputs)) >= DONATED else []


def placed(donated: Sequence[Donation], outputs: Sequence[Node]) -> tuple[frozenset[int], list[int]]:
    """The ids of the copies that are not needed then, and the input of each output, -1 for one in fresh memory."""
    of = {d.output: d.donor for d in donated}
    return frozenset(id(d.copy) for d in donated if d.copy is not None), [of.get(n, -1) for n in outputs]


def chosen(donations: Sequence[Donation], inputs: References | None, kind: type) -> list[Donation]:
    """The donations of a plan from inputs that nothing else refers to (None: all), one for each input and output."""
    found: list[Donation] = []
    given: set[int] = set()
    served: set[Node] = set()
    for d in donations:
        if d.donor not in given and d.output not in served and (inputs is None or is_alone(inputs, d.donor, kind)):
            given.add(d.donor)
            served.add(d.output)
            found.append(d)
    return found
