"""An index that is found to be outside at the sync names the function that the user called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.torch import functions as torch


def at() -> lt.Tensor:
    return lt.asarray([0, 5]) + 0


def below() -> lt.Tensor:
    return lt.asarray([[0], [5]]) + 0


def written(x: lt.Tensor) -> lt.Tensor:
    y = x + 0
    y[at()] = 1
    return y


CALLS: dict[str, tuple[str, Any]] = {
    "embedding": ("embedding", lambda x: lt.nn.functional.embedding(at(), x)),
    "Embedding": ("embedding", lambda x: lt.nn.Embedding.from_pretrained(x)(at())),
    "embedding_bag": ("embedding_bag", lambda x: lt.nn.functional.embedding_bag(lt.expand_dims(at(), 0), x)),
    "index_add": ("index_add", lambda x: lt.index_add(x, 0, at(), lt.ones((2, 4)))),
    "add_at": ("add_at", lambda x: lt.add_at(x, (at(),), 1)),
    "take": ("take", lambda x: lt.take(x, at(), axis=0)),
    "x.take": ("take", lambda x: x.take(at() * 100)),
    "np.take": ("take", lambda x: np.take(x, at(), axis=0)),
    "take_along_axis": ("take_along_axis", lambda x: lt.take_along_axis(x, below(), axis=0)),
    "put_along_axis": ("put_along_axis", lambda x: lt.put_along_axis(x, below(), lt.ones((2, 1)), axis=0)),
    "scatter_add": ("scatter_add", lambda x: lt.scatter_add(x, below(), lt.ones((2, 1)), axis=0)),
    "x[i]": ("indexing", lambda x: x[at()]),
    "x[i, j]": ("indexing", lambda x: x[at(), lt.asarray([0, 1])]),
    "x[i] = y": ("indexing", written),
    "torch.gather": ("gather", lambda x: torch.gather(x, 0, below())),
    "torch.index_select": ("index_select", lambda x: torch.index_select(x, 0, at())),
    "torch.index_add": ("index_add", lambda x: torch.index_add(x, 0, at(), lt.ones((2, 4)))),
    "torch.scatter": ("scatter", lambda x: torch.scatter(x, 0, below(), lt.ones((2, 1)))),
    "torch.take_along_dim": ("take_along_dim", lambda x: torch.take_along_dim(x, below(), 0)),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_error_names_what_was_called(call: str) -> None:
    name, f = CALLS[call]
    x = lt.asarray(np.arange(12.0).reshape(3, 4))
    # The first program is run step by step, the next ones by a plan, which programs share that are equal but for lines.
    for _ in range(3):
        y = f(x)
        with pytest.raises(
            lt.IndexOutOfRange, match=rf"^{name}: index 5\d* is out of .*\(recorded at .*test_index_err"
        ):
            y.numpy()
        del y


def test_programs_that_share_a_plan_have_names_of_their_own() -> None:
    x = lt.asarray(np.arange(12.0).reshape(3, 4))
    for _ in range(3):
        for call in ("take", "x[i]", "torch.index_select"):
            name, f = CALLS[call]
            y = f(x)
            with pytest.raises(lt.IndexOutOfRange, match=f"^{name}: index 5 "):
                y.numpy()
            del y
