"""What the text of a repeated sync spells out: conversions, moves, views that leave, checks (see test_replay.py)."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.runtime import replay

pytestmark = pytest.mark.usefixtures("replays_on")
X = np.arange(1, 9, dtype=np.float32)


@pytest.mark.parametrize("many", [False, True])
def test_scalars_are_converted_as_in_the_general_way(many: bool, repeated: list[Any]) -> None:
    x, z, n = lt.asarray(X), lt.asarray(X.astype(np.complex64)), lt.asarray(np.arange(8))
    values = [3, 2**53 + 1, True, -7, 5, 0, 1 << 40]
    for i in range(14):
        k = values[i % len(values)]
        results = [x.astype(np.float64) * k, z * complex(k, -0.0), n + k, lt.where(n > i, k, x)]
        want = [X.astype(np.float64) * k, X.astype(np.complex64) * complex(k, -0.0), np.arange(8) + k]
        want.append(np.where(np.arange(8) > i, np.float32(k), X))
        for j in range(replay.SPELLED if many else 0):
            results[0] = results[0] + k * j
            want[0] = want[0] + k * j
        lt.sync()
        for r, w in zip(results, want, strict=True):
            np.testing.assert_array_equal(r.numpy(), w)
    assert len(repeated) >= 4


def test_what_moves_is_found_again_where_it_is_now(repeated: list[Any]) -> None:
    x, base = lt.asarray(np.arange(20.0)), np.arange(20.0)
    for i in [0, 1, 2, 2, 2, 3, 16, 0, 0, 5]:
        part, back = x[i : i + 4] * 2.0, x[::-1][i:][:3] + 1
        lt.sync()
        np.testing.assert_array_equal(part.numpy(), base[i : i + 4] * 2)
        np.testing.assert_array_equal(back.numpy(), base[::-1][i:][:3] + 1)
    assert repeated


@pytest.mark.parametrize("views", [1, replay.SPELLED + 3])
def test_any_number_of_views_and_written_values_leave_the_trace(views: int, repeated: list[Any]) -> None:
    x, want = lt.asarray(X), X.copy()
    for i in range(9):
        y = x * 1.0
        seen = [y[k % 4 :] for k in range(views)]
        _ = [y[k % 3 :] for k in range(3)]  # nobody holds these
        seen[0] += float(i)
        if i > 5:
            seen[-1][0] = 9.0
        lt.sync()
        want = X + np.float32(i)
        if i > 5:
            want[(views - 1) % 4] = 9
        for k, v in enumerate([y[0:], *(v + 0.0 for v in seen)]):
            np.testing.assert_array_equal(v.numpy(), want[((k - 1) % 4) * (k > 0) :])
        assert y._storage is not None and len(y._storage.aliases) < 3 * (views + 8)
    assert repeated


def test_a_wrong_index_is_heard_of_where_another_thread_runs_the_same_plan() -> None:
    wrong, rounds, failures = [0], 60, []

    def work(number: int) -> None:
        x, at = lt.asarray(X), [lt.asarray(np.asarray([k, 1])) for k in (0, 9)]
        for i in range(rounds):
            bad = number == 0 and i % 5 == 4
            y = x[at[bad]]
            try:
                lt.sync()
            except IndexError:
                wrong[0] += 1
                if not bad:
                    failures.append("an error of another thread's")
                continue
            if bad or y.tolist() != [1.0, 2.0]:
                failures.append("no error, or a wrong value")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(before)
    assert not failures and wrong[0] == rounds // 5
