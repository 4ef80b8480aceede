"""Each page of examples begins as in a process of its own: nothing is pending of the pages that ran before it."""

from __future__ import annotations

import pytest

import lazyt as lt


@pytest.fixture(autouse=True)
def nothing_pending() -> None:
    lt.sync()
