"""`any` and `all` along a row end where they are decided: the same answers, wherever that is, and no check left out."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.codegen.emit_row import FAR, LOOK
from lazyt.backends.cpu.flags import switches

pytestmark = pytest.mark.usefixtures("planned")


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize(
    "shape",
    [(1,), (17,), (LOOK,), (2 * LOOK + 5,), (3, LOOK + 1), (5, 3, 700), (2 * FAR + LOOK + 5,), (1 << 19,), (1 << 22,)],
)
def test_wherever_the_decision_is(shape: tuple[int, ...], early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(switches, "early", early)
    size = int(np.prod(shape))
    for usual in (False, True):
        for place in (None, 0, size // 2, size - 1):
            a = np.full(shape, usual)
            if place is not None:
                a.flat[place] = not usual
            x = lt.asarray(a)
            for axis in (None, -1):
                both = lt.any(x, axis=axis), lt.all(x, axis=axis)  # one kernel: it ends where both are decided
                lt.sync()
                np.testing.assert_array_equal(both[0].numpy(), a.any(axis=axis))
                np.testing.assert_array_equal(both[1].numpy(), a.all(axis=axis))
                np.testing.assert_array_equal(lt.any(x, axis=axis).numpy(), a.any(axis=axis))
                np.testing.assert_array_equal(lt.all(x, axis=axis).numpy(), a.all(axis=axis))


def test_what_else_the_rows_give_is_complete() -> None:
    a = np.random.default_rng(0).standard_normal((4, 3 * LOOK)).astype("f4")
    x = lt.asarray(a)
    found, doubled, most = lt.any(x > 0, axis=1), x * 2, lt.max(x, axis=1)
    lt.sync()
    np.testing.assert_array_equal(found.numpy(), (a > 0).any(axis=1))
    np.testing.assert_array_equal(doubled.numpy(), a * 2)
    np.testing.assert_array_equal(most.numpy(), a.max(axis=1))


def test_an_index_behind_the_decision_is_checked() -> None:
    x, at = lt.ones(10), np.zeros(3 * LOOK, np.int64)
    at[-1] = 10
    found = lt.any(x[lt.asarray(at)] > 0)
    with pytest.raises(IndexError, match="10"):
        lt.sync()
    del found
