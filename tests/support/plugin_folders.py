"""Distributions with a plugin, as folders on the path: what pip leaves, without pip."""

from __future__ import annotations

import textwrap
from pathlib import Path

GOOD = """
from tests.support.interpreted_backend import InterpretedBackend


class Backend(InterpretedBackend):
    name = {name!r}
    interface_version = {version}
"""


# Two devices, and a name of its own beside those of every backend.
TWO = """
from tests.support.interpreted_backend import InterpretedBackend


class Backend(InterpretedBackend):
    name = {name!r}
    interface_version = {version}
    extensions = {{"answer": 42}}

    def device_count(self):
        return 2
"""


def distribution(
    folder: Path, name: str, code: str = GOOD, *, value: str = "", version: object = 1, dist: str = ""
) -> Path:
    """Write the module `plugin_<name>` and what its wheel says of it to a folder; gives the folder."""
    module = f"plugin_{dist or name}".replace("-", "_")
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(textwrap.dedent(code).format(name=name, version=version))
    info = folder / f"{dist or 'of_' + name}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist or 'of-' + name}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[lazyt.backends]\n{name} = {value or module + ':Backend'}\n")
    return folder
