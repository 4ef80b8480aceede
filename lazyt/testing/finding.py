"""The report of a differential test: the first operation that differs, its line, operands and worst element."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.ir import dtypes

if TYPE_CHECKING:
    from lazyt.testing.closeness import Comparison


class Refused(Exception):
    """A way of looking that this program does not allow; says why."""


@dataclass(frozen=True)
class Finding:
    """The first operation, in recorded order, whose result differs."""

    operation: str  # exp
    line: str  # train.py:7
    operands: list[str]
    found: Comparison | str
    compared: str  # what was compared with what
    blame: str = ""  # which part of lazyt is wrong, if that was found
    near: list[str] = field(default_factory=list)  # the primitives, or the kernel, that it ran as

    def __str__(self) -> str:
        rows = [f"first difference: {self.operation}, at {self.line}"]
        rows += [f"  operand {i}: {text}" for i, text in enumerate(self.operands)]
        rows += ["  " + row for row in str(self.found).splitlines()]
        rows.append(f"  compared: {self.compared}")
        if self.blame:
            rows.append(f"  to blame: {self.blame}")
        return "\n".join(rows + [f"    {row}" for row in self.near])


def operand_text(a: Any) -> str:
    """`float32 (3, 4) in [-1.0, 2.5], 1 NaN`, or the values of a small array."""
    x = np.asarray(a)
    head = f"{x.dtype} {x.shape}"
    if x.size <= 8:
        return f"{head} {np.array2string(x, separator=', ', max_line_width=10000)}".replace("\n", "")
    if x.dtype not in dtypes.ALL or dtypes.kind(x.dtype) in "bc":
        return head
    with np.errstate(all="ignore"):
        odd = ~np.isfinite(x) if dtypes.kind(x.dtype) == "f" else np.zeros(x.shape, bool)
        rest = x[~odd]
    inside = f" in [{rest.min()}, {rest.max()}]" if rest.size else ""
    nans = int(np.isnan(x).sum()) if odd.any() else 0
    more = [f"{nans} NaN"] * (nans > 0) + [f"{int(odd.sum()) - nans} infinite"] * (int(odd.sum()) > nans)
    return head + inside + "".join(f", {m}" for m in more)
