"""The pages for who comes from PyTorch and JAX are current, and what they name is there."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from tools.porting_pages import FOLDER, TITLES, page


@pytest.mark.parametrize("library", TITLES)
def test_the_page_has_every_name(library):
    shown = (FOLDER / "docs" / TITLES[library][0]).read_text()
    assert shown == page(library), "write it anew: python -m tools.porting_pages"


@pytest.mark.parametrize("library", TITLES)
def test_what_a_row_says_is_there(library):
    for path in re.findall(r"^\| `[\w.]+` \| `lt\.([\w.]+)", page(library), re.M):
        found: Any = lt
        for part in path.split("."):
            found = getattr(found, part)
    for method in re.findall(r"^\| `[\w.]+` \| `x\.(\w+)", page(library), re.M):
        assert hasattr(lt.Tensor, method)


x, y = lt.ones((2, 3)), lt.ones((4, 5))
far = lt.asarray([[7]])
square = lt.zeros((2, 2))
leaf = lt.ones(2).requires_grad_()
# What is wrong, as docs/from-pytorch.md says, and the class beside the builtin.
WRONG = {
    "operands": (lambda: x + y, lt.ShapeError, ValueError),
    "products": (lambda: x @ y, lt.ShapeError, ValueError),
    "reshape": (lambda: x.reshape(4), lt.ShapeError, ValueError),
    "concatenate": (lambda: lt.concatenate([x, y]), lt.ShapeError, ValueError),
    "einsum": (lambda: lt.einsum("ij,jk", x, y), lt.ShapeError, ValueError),
    "layer": (lambda: nn.Linear(4, 3)(x), lt.ShapeError, ValueError),
    "no square": (lambda: lt.linalg.inv(x), lt.ShapeError, ValueError),
    "axis": (lambda: x.sum(5), lt.AxisError, IndexError),
    "index": (lambda: x[5], lt.IndexOutOfRange, IndexError),
    "indices": (lambda: x[far].tolist(), lt.IndexOutOfRange, IndexError),
    "take": (lambda: lt.take(x, far).tolist(), lt.IndexOutOfRange, IndexError),
    "embedding": (lambda: nn.functional.embedding(far, x).tolist(), lt.IndexOutOfRange, IndexError),
    "class": (lambda: nn.functional.cross_entropy(x[:1], far[0]).item(), lt.IndexOutOfRange, IndexError),
    "gather": (lambda: lt.take_along_axis(x, far, 1).tolist(), lt.IndexOutOfRange, IndexError),
    "scatter_add": (lambda: lt.scatter_add(x, far, x[:1, :1], axis=1).tolist(), lt.IndexOutOfRange, IndexError),
    "singular": (lambda: lt.linalg.inv(square).tolist(), np.linalg.LinAlgError, ValueError),
    "cholesky": (lambda: lt.linalg.cholesky(square).tolist(), np.linalg.LinAlgError, ValueError),
    "svd": (lambda: lt.linalg.svdvals(square * lt.nan).tolist(), np.linalg.LinAlgError, ValueError),
    "dtype": (lambda: x & x, lt.DTypeError, TypeError),
    "booleans": (lambda: (x > 0) - (x > 0), lt.DTypeError, TypeError),
    "power": (lambda: far**-1, lt.DTypeError, TypeError),
    "bool": (lambda: bool(x), lt.NotOneElement, ValueError),
    "item": (lambda: x.item(), lt.ShapeError, ValueError),
    "leaf": (lambda: leaf.__iadd__(1), lt.AutogradError, RuntimeError),
    "no scalar": (lambda: (leaf * 2).backward(), lt.AutogradError, RuntimeError),
    "state": (lambda: nn.Linear(4, 3).load_state_dict({}), lt.StateError, RuntimeError),
    "file": (lambda: lt.load(io.BytesIO(b"nothing")), lt.StateError, ValueError),
    "device": (lambda: lt.device("nowhere"), lt.DeviceError, RuntimeError),
    "distribution": (lambda: lt.distributions.Normal(0.0, -1.0), lt.DistributionError, ValueError),
    "memory": (lambda: lt.ones(10**14).tolist(), lt.OutOfMemory, MemoryError),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_error_is_of_the_class_that_the_page_says(what):
    wrong, kind, builtin = WRONG[what]
    with pytest.raises(kind):
        wrong()
    assert issubclass(kind, builtin)
    assert f"lt.{kind.__name__}`, a" in page("torch") or f"numpy.linalg.{kind.__name__}`, a" in page("torch")


def test_what_the_page_says_is_not_looked_for():
    assert nn.functional.one_hot(lt.asarray([9]), 3).tolist() == [[0, 0, 0]]
    assert lt.multinomial(lt.asarray([-1.0, 2.0]), 1).tolist() == [1]
