"""Functions that give a value without a derivative say so where a gradient is asked for, and work where none is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import AutogradError, ShapeError

WHICH = lt.asarray([0, 1, 1, 3])
# By the name in the error: of a vector of four, or of a matrix.
VECTORS: dict[str, Callable[[Any], Any]] = {
    "bincount": lambda x: lt.bincount(WHICH, weights=x),
    "unique": lt.unique,
    "unique_values": lt.unique_values,
    "unique_counts": lt.unique_counts,
    "unique_inverse": lt.unique_inverse,
    "unique_all": lt.unique_all,
    "union1d": lambda x: lt.union1d([9.0], x),
    "intersect1d": lambda x: lt.intersect1d(x, x),
    "setdiff1d": lambda x: lt.setdiff1d(x, [9.0]),
    "setxor1d": lambda x: lt.setxor1d(x, [9.0]),
    "numpy.histogram_bin_edges": lambda x: lt.histogram_bin_edges(x, "auto"),
    "numpy.histogramdd": lambda x: lt.histogramdd([x, x]),
}
MATRICES: dict[str, Callable[[Any], Any]] = {
    "linalg.eig": lt.linalg.eig,
    "linalg.eigvals": lt.linalg.eigvals,
    "linalg.lstsq": lambda m: lt.linalg.lstsq(m, m[0]),
}


@pytest.mark.parametrize("name", [*VECTORS, *MATRICES])
@pytest.mark.parametrize("leaf", [True, False])
def test_a_gradient_is_refused(name, leaf):
    f = {**VECTORS, **MATRICES}[name]
    data = np.array([1.0, 2.0, 2.0, 4.0])
    x = lt.tensor(data if name in VECTORS else data.reshape(2, 2) + np.eye(2), requires_grad=True)
    with pytest.raises(AutogradError, match=rf"^{name}: not supported: a gradient through it"):
        f(x if leaf else x * 1)
    with lt.no_grad():
        f(x)
    f(x.detach())


@pytest.mark.parametrize(("a", "b"), [((2, 3, 3), (2, 3, 1)), ((3,), (3,)), ((3, 2), (4,)), ((3, 2), (3, 1, 1))])
def test_lstsq_says_which_shapes_it_takes(a, b):
    with pytest.raises(ShapeError, match=r"^linalg\.lstsq: a matrix \(m, n\) and a vector"):
        lt.linalg.lstsq(lt.ones(a), lt.ones(b))
