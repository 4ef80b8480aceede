"""The README shows what really happens: its example is run, and what it prints is compared.

`python -m tests.docs.test_readme` writes what the example prints now into the README.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]
README = TOP / "README.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def blocks(language: str) -> list[str]:
    """The fenced blocks in one language."""
    return [text for name, text in FENCE.findall(README.read_text()) if name == language]


def printed(folder: Path) -> str:
    """What the example prints, run as `example.py` in a process of its own."""
    (folder / "example.py").write_text(blocks("python")[0])
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    command = [sys.executable, "-W", "error", "example.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(f"{folder}{os.sep}", "")


def parts(output: str) -> list[str]:
    """The output of each `print` of the example: the graph, the kernel, the value."""
    graph, kernel, value = re.split(r"^(?=kernel )|^(?=\S+\n\Z)", output, flags=re.M)
    return [graph, kernel, value]


def test_the_example_prints_what_the_readme_shows(tmp_path):
    shown = blocks("text")
    assert parts(printed(tmp_path)) == shown, f"write it anew: python {Path(__file__).relative_to(TOP)}"


def test_the_example_is_short():
    assert len([line for line in blocks("python")[0].splitlines() if line]) <= 15


def test_the_first_two_commands_are_bash():
    run, test, *_ = blocks("bash")
    assert "examples/digits.py" in run
    assert "pytest" in test


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert target.startswith("https://") or (TOP / target).exists(), target


def _write() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        fresh = iter(parts(printed(Path(folder))))
    text = re.sub(r"^```text\n.*?^```$", lambda m: f"```text\n{next(fresh)}```", README.read_text(), flags=re.M | re.S)
    README.write_text(text)


if __name__ == "__main__":
    _write()
