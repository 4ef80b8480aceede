"""What tests of the CPU's code share as fixtures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.amx import WAYS, registers


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Pairs of bfloat16 are multiplied by AMX, or emulated."""
    with registers(request.param, monkeypatch):
        yield request.param
