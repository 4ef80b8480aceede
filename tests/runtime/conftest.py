"""Fixtures of the runtime's tests."""

from __future__ import annotations

from typing import Any

import pytest

import lazyt as lt
from lazyt.config import general
from lazyt.runtime import replay


@pytest.fixture
def replays_on() -> None:
    """Skips the test where replays are switched off; nothing is pending when it begins."""
    if not general["repeat"] or general["interpret"]:
        pytest.skip("LAZYT_DEBUG=no-repeat or interpret")
    lt.sync()


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every sync that was a replay."""
    found: list[Any] = []
    written = replay._written

    def counting(tr: Any, again: Any, at: Any) -> Any:
        run = written(tr, again, at)

        def counted(*args: Any) -> bool:
            done = run(*args)
            if done:
                found.append(again)
            return done

        return counted

    monkeypatch.setattr(replay, "_written", counting)
    return found


@pytest.fixture
def seen() -> list[Any]:
    """What the callbacks of a test are given."""
    return []
