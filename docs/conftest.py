"""Each page of examples begins as in a process of its own: nothing is pending or known of what ran before it."""

from __future__ import annotations

import pytest

import lazyt as lt
from lazyt.runtime import first_run
from tests.support.plans import forget


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    lt.sync()
    forget()
    monkeypatch.setattr(first_run, "_kinds", {})
