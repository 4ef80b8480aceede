"""Other people's programs on tensors: their results are NumPy's, and the page says how often each computed.

`python -m tests.functions.protocols.test_ecosystem` writes the page's table anew.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import lazyt as lt
from tests.support.ecosystem_programs import PROGRAMS

TOP = Path(__file__).parents[3]
PAGE = TOP / "docs" / "ecosystem.md"
# What finds lazyt through the Array API's `__array_namespace__`.
BY_NAMESPACE = {"array_api_compat", "array_api_extra", "scipy", "sklearn"}
ROW = re.compile(r"^\| (\w+) \| `(.+)` \| (\d+) \| (tensors|arrays) \|$", re.M)
HEAD = "| package | program | syncs | gives |\n| --- | --- | --- | --- |\n"


@cache
def found(package: str) -> dict[str, Any]:
    """What the programs of a package did, in a process of its own."""
    got = subprocess.run(
        [sys.executable, "-m", "tests.support.ecosystem_programs", package],
        cwd=TOP, env={**os.environ, "PYTHONPATH": str(TOP)}, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert not got.returncode, got.stderr
    results: dict[str, Any] = json.loads(got.stdout)[package]
    return results


def written() -> dict[tuple[str, str], tuple[int, str]]:
    """The page's table."""
    return {(p, n): (int(syncs), kind) for p, n, syncs, kind in ROW.findall(PAGE.read_text())}


@pytest.mark.parametrize(("package", "name"), [(p, n) for p, programs in PROGRAMS.items() for n in programs])
def test_a_program_runs_on_tensors(package, name):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed (extras: test, interop)")
    if package in BY_NAMESPACE and not hasattr(lt.Tensor, "__array_namespace__"):
        pytest.skip("Tensor has no __array_namespace__, by which this library finds lazyt")
    result = found(package)[name]
    assert "error" not in result, result["error"]
    syncs, kind = written()[package, name]
    assert result["syncs"] <= syncs, (
        "the page says that it computes less often: python -m tests.functions.protocols.test_ecosystem"
    )
    assert kind == ("tensors" if result["tensor"] else "arrays")


def test_the_page_has_every_program():
    assert written().keys() == {(p, n) for p, programs in PROGRAMS.items() for n in programs}


def test_einops_finds_tensors_whichever_is_imported_first():
    pytest.importorskip("einops")
    check = "assert einops.rearrange(lazyt.ones((2, 3)), 'a b -> b a').shape == (3, 2)"
    for first, second in (("lazyt", "einops"), ("einops", "lazyt")):
        text = f"import sys, {first}; assert '{second}' not in sys.modules; import {second}; {check}"
        subprocess.run([sys.executable, "-c", text], cwd=TOP, check=True, env={**os.environ, "PYTHONPATH": str(TOP)})


def main() -> None:
    """Write the page's table from a run."""
    text = PAGE.read_text()
    rows = [
        f"| {p} | `{n}` | {r['syncs']} | {'tensors' if r['tensor'] else 'arrays'} |\n"
        for p in PROGRAMS
        for n, r in found(p).items()
    ]
    start = text.index(HEAD) + len(HEAD)
    end = text.index("\n\n", start) + 1 if "\n\n" in text[start:] else len(text)
    PAGE.write_text(text[:start] + "".join(rows) + text[end:])


if __name__ == "__main__":
    main()
