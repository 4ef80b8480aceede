"""Errors of a run, with the line that recorded the operation: values that are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lazyt.errors import LOOKED_UP, REFUSALS, IndexOutOfRange, LazytError, Recorded, recorded_at
from lazyt.ir import graph as g

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.graph import Node


def line_of(n: Node) -> Recorded:
    """The user's line that a node comes from, the step of the program, and whether it is of its derivative."""
    site = getattr(n.site, "site", None)
    return Recorded(getattr(site, "site", site), getattr(n.site, "step", -1), getattr(n.site, "backward", False))


def named(e: np.linalg.LinAlgError, n: Node) -> None:
    """Has an error say which operation failed, and where that was recorded."""
    assert isinstance(n.attrs, g.Opaque)
    name = getattr(n.site, "name", n.attrs.fn)
    e.args = (f"{name}: {e} (recorded at {n.site}; found at the sync)",)


def index_error(n: Node, index: int, sizes: Sequence[int]) -> LazytError:
    """The error for an index read from data, into axes of these sizes, with the line that recorded it."""
    name = getattr(n.site, "name", "")
    # Which axis refused it is not known: those that would. A negative index had the size added when it was recorded.
    refusing = sorted({s for s in sizes if not 0 <= index < s} or {sizes[0]})
    each = " or ".join(str(s) for s in refusing)
    given = str(index) if index >= 0 else " or ".join(str(index - s) for s in refusing)
    construct = getattr(n.site, "construct", "")
    found = f"at {n.site}; found at the sync{f', by {construct}' * bool(construct)}"
    called = getattr(line_of(n)[0], "name", "") or name or "indexing"
    error: LazytError = IndexOutOfRange(
        f"{called}: index {given} is out of bounds for an axis of size {each} (recorded {found})"
    )
    if name in LOOKED_UP:
        error = IndexOutOfRange(
            f"{name}: {LOOKED_UP[name]} {index} is out of bounds for {each} classes (recorded {found})"
        )
    elif name in REFUSALS:
        refused, why = REFUSALS[name]
        error = refused(f"{name}: {why} (recorded {found})")
    recorded_at(error, *line_of(n))
    return error


# What NumPy says of a matrix for which a function of `linalg` fails.
_REFUSED = {
    "linalg_cholesky": "Matrix is not positive definite",
    "linalg_eigh": "Eigenvalues did not converge",
    "linalg_eigvalsh": "Eigenvalues did not converge",
    "linalg_svd": "SVD did not converge",
    "linalg_svdvals": "SVD did not converge",
}
_SINGULAR = "Singular matrix"


def matrix_error(n: Node, reason: int) -> np.linalg.LinAlgError:
    """The error for a matrix that a function of linear algebra refuses, with the line that recorded it.

    reason: 1 for infinities in a matrix whose bases are asked for.
    """
    assert isinstance(n.attrs, g.Opaque)
    why = _REFUSED.get(n.attrs.fn, _SINGULAR)
    error = np.linalg.LinAlgError(f"{why}: the matrix holds infinities" if reason else why)
    recorded_at(error, *line_of(n))
    named(error, n)
    return error
