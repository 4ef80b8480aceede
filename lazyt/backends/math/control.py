"""Control flow around vectors: rare branches, loops until no lane needs them, functions of vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.backends.math.vector import Vec, Vecs


def rarely(condition: Vec, usual: Vecs, write: Callable[[], Vecs]) -> Vecs:
    """`usual`, but where `condition` holds the vectors of `write`, run only if a lane needs it."""
    return condition.body.rarely(condition, usual, write)


def repeat(start: Vecs, step: Callable[..., tuple[Vecs, Vec]], times: int = 0) -> Vecs:
    """`step` over and over from `start`: it gives the next vectors and where more is needed.

    At least once, then as long as any lane needs more; `times` times if that is given.
    """
    return start[0].body.repeat(start, step, times)


def each_lane(x: Vec, results: Sequence[str], write: Callable[[Vec], Vecs]) -> Vecs:
    """What `write` makes of each lane of `x`, one after the other, as a scalar; `results` are the element types."""
    return x.body.each_lane(x, results, write)


def outlined(
    symbol: str, results: Sequence[str], operands: Vecs, write: Callable[..., Vecs], cold: bool = False
) -> Vecs:
    """What `write` makes of `operands`, as a call of a function that the module has once.

    `results` are the element types. For code that is too large, or too rarely run, to be
    repeated in every kernel that needs it. `symbol` is completed by the number of lanes. A `cold`
    call is laid out so that the code around it does not pay for it.
    """
    return operands[0].body.outlined(symbol, results, operands, write, cold)
