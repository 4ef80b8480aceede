"""Fixtures of more than one test file."""

from __future__ import annotations

import pytest

import lazyt as lt
from lazyt.config import general
from lazyt.tracing.trace import local

# A failed assertion of a helper shows its values, as a test's own does.
pytest.register_assert_rewrite("tests.support")

# A mistake of lazyt's own in what it does again in short would go the general way, and nobody would hear of it.
general["strict"] = True


@pytest.fixture(autouse=True)
def nothing_pending():
    """A test begins with an empty walk, whatever ran before it in this process: what it records is all there is."""
    try:
        lt.sync()
    except Exception:  # noqa: BLE001 - an earlier test's mistake, which it has reported
        if not local.trace.empty:
            local.trace.leave()


@pytest.fixture(autouse=True)
def of_kernels(monkeypatch: pytest.MonkeyPatch):
    """Most tests run a tiny program once: they are of kernels. What interprets it first has tests that turn that on.

    NOTE: doctests outside of this folder, which may run in the same process, are as users have it.
    """
    monkeypatch.setitem(general, "first", False)


@pytest.fixture(params=[1, 2, 4])
def threads(request: pytest.FixtureRequest):
    """Numbers of threads, set for the test."""
    before = lt.get_num_threads()
    lt.set_num_threads(request.param)
    yield request.param
    lt.set_num_threads(before)
