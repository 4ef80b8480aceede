"""The order in which an einsum of several operands contracts them, two at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.functions.arguments import record, tensor
from lazyt.ops import linear as ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.runtime.tensor import Tensor


def path_of(subscripts: str, operands: Sequence[Any], optimize: Any) -> list[tuple[int, ...]]:
    """A path as `numpy.einsum` takes it: given (with or without its heading), or 'greedy' or 'optimal', found now."""
    if isinstance(optimize, list | tuple) and not isinstance(optimize[0], str):
        path: Sequence[Any] = optimize
    elif isinstance(optimize, list | tuple) and optimize[0] == "einsum_path":
        path = optimize[1:]
    else:
        # Only shapes matter to it: nothing is allocated for them.
        shapes = [np.broadcast_to(np.zeros(()), tensor(x).shape) for x in operands]
        path = np.einsum_path(subscripts, *shapes, optimize=optimize)[0][1:]
    left = len(operands)
    steps = [tuple(int(i) for i in step) for step in path]
    for step in steps:
        if not step or len(set(step)) != len(step) or not all(0 <= i < left for i in step):
            raise ShapeError(f"einsum: path {steps} does not fit {len(operands)} operands")
        left -= len(step) - 1
    if left != 1:
        raise ShapeError(f"einsum: path {steps} leaves {left} operands of {len(operands)}")
    return steps


def along_path(subscripts: str, operands: Sequence[Any], optimize: Any) -> Tensor:
    """The einsum contracted along a path. Its letters are explicit: no ellipsis."""
    left, arrow, result = subscripts.partition("->")
    labels = left.split(",")
    if not arrow:
        result = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    values = list(operands)
    for step in path_of(subscripts, operands, optimize):
        taken = sorted(step, reverse=True)
        xs, names = [values.pop(i) for i in taken], [labels.pop(i) for i in taken]
        needed = set(result).union(*labels) if labels else set(result)
        kept = result if not labels else "".join(c for c in dict.fromkeys("".join(names)) if c in needed)
        values.append(record(ops.EINSUM, tuple(xs), (f"{','.join(names)}->{kept}",)))
        labels.append(kept)
    out: Tensor = values[0]
    return out
