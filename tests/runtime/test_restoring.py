"""After an error of data a model is what it was: what its step would have made is overwritten, and not computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn


def broken() -> Any:
    """A value that cannot be computed, tried once."""
    found = nn.functional.cross_entropy(lt.ones((2, 3)), lt.asarray(np.array([0, 5])))
    with pytest.raises(lt.IndexOutOfRange, match="target 5 is out of bounds"):
        found.item()
    return found


@pytest.mark.parametrize("how", ["a clone", "an array"])
@pytest.mark.parametrize("kind", [lt.optim.SGD, lt.optim.Adam])
@pytest.mark.parametrize("read", ["item", "sync"])
def test_a_model_goes_back_to_its_last_state(kind: Any, how: str, read: str) -> None:
    def train(fails: bool) -> list[Any]:
        lt.random.seed(0)
        net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        optimizer = kind(net.parameters(), lr=0.1)
        x = lt.asarray(np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32))

        def step(label: int) -> Any:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), lt.asarray(np.array([0, label])))
            loss.backward()
            optimizer.step()
            return loss

        for _ in range(3):
            step(1).item()
        if fails:
            of: Any = (lambda v: v.clone()) if how == "a clone" else (lambda v: v.detach().numpy(copy=True))
            kept = {k: of(v) for k, v in net.state_dict().items()}
            loss = step(5)
            with pytest.raises(lt.IndexOutOfRange, match="target 5"):
                loss.item() if read == "item" else lt.sync()
            net.load_state_dict(kept)
        optimizer = kind(net.parameters(), lr=0.1)
        for _ in range(3):
            step(2).item()
        assert all(p.requires_grad and p.is_leaf for p in net.parameters())
        return [v.detach().numpy() for v in net.state_dict().values()]

    for a, b in zip(train(True), train(False), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_whole_write_computes_nothing_of_what_failed() -> None:
    w = lt.ones(3)
    bad = nn.functional.cross_entropy(lt.ones((2, 3)), lt.asarray(np.array([0, 5])))
    w += bad
    view = w[1:]
    with pytest.raises(lt.IndexOutOfRange):
        w.numpy()
    with pytest.raises(lt.IndexOutOfRange):
        w[0] = 1.0  # the other two are of what failed
    with lt.no_sync():
        w[...] = 0.0
        w[1] = 2.0
    np.testing.assert_array_equal(w.numpy(), [0, 2, 0])
    np.testing.assert_array_equal(view.numpy(), [2, 0])


def test_a_value_that_is_written_may_not_be_what_failed() -> None:
    w, bad = lt.ones(3), broken()
    with pytest.raises(lt.IndexOutOfRange):
        w[...] = bad
    np.testing.assert_array_equal(w.numpy(), [1, 1, 1])


def test_no_sync_says_what_would_be_computed() -> None:
    bad = broken()
    text = r"cause: a value that could not be computed, at .*test_restoring\.py"
    with lt.no_sync(), pytest.raises(lt.SyncError, match=text):
        bad + 1
