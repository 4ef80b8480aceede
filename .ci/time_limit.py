"""A pytest plugin that ends a run when LAZYT_TEST_SECONDS are over: for `.ci/quick`."""

from __future__ import annotations

import os
import time

import pytest

OVER = "the time is over; .ci/run tests the rest"
_ends = time.monotonic() + float(os.environ["LAZYT_TEST_SECONDS"]) if "LAZYT_TEST_SECONDS" in os.environ else None
_session: list[pytest.Session] = []


def pytest_sessionstart(session: pytest.Session) -> None:
    _session.append(session)


def pytest_runtest_logfinish() -> None:
    if _ends is not None and time.monotonic() > _ends:
        _session[-1].shouldstop = OVER


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What was stopped by the time alone has not failed."""
    if session.shouldstop == OVER and not session.testsfailed:
        session.exitstatus = pytest.ExitCode.OK
