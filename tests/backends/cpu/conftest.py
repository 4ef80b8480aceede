"""What tests of the CPU's code share as fixtures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lazyt.runtime import plan_cache
from tests.support.amx import WAYS, registers
from tests.support.plans import forget


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Pairs of bfloat16 are multiplied by AMX, or emulated."""
    with registers(request.param, monkeypatch):
        yield request.param


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs are planned whole from their first run on, and verified; no plan is there before or stays."""
    for name, value in {"tiers": False, "verify": True}.items():
        monkeypatch.setitem(plan_cache.settings, name, value)
    forget()
    yield
    forget()
