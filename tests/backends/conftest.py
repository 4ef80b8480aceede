"""Plugins in a folder of the test's own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lazyt as lt
from lazyt.backends import plugins, registry
from tests.support.plugin_folders import distribution


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Put a distribution with a plugin on the path; what was loaded is removed afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    plugins.installed(again=True)

    def put(name: str, *args: str, **options: object) -> None:
        distribution(folder, name, *args, **options)  # type: ignore[arg-type]
        plugins.installed(again=True)

    yield put
    lt.sync()
    for name in [n for n in registry.names() if n in registry._loaded and n not in ("cpu", "cuda")]:
        lt.backends.unregister(name)
    for name in [m for m in sys.modules if m.startswith("plugin_")]:
        del sys.modules[name]
    registry._removed.clear()
    monkeypatch.undo()
    plugins.installed(again=True)
