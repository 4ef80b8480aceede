"""Fixtures of more than one test file."""

from __future__ import annotations

import pytest

import lazyt as lt


@pytest.fixture(params=[1, 2, 4])
def threads(request: pytest.FixtureRequest):
    """Numbers of threads, set for the test."""
    before = lt.get_num_threads()
    lt.set_num_threads(request.param)
    yield request.param
    lt.set_num_threads(before)
