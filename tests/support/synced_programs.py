"""Programs as source text, synced at their end only, before each backward, after each statement, or at random."""

from __future__ import annotations

import random
import re
import textwrap
from typing import Any

import numpy as np

import lazyt as lt

REGIMES = ("never", "after each", "before backward", "random 1", "random 2")
# What asks for gradients, in source text.
BACKWARD = re.compile(r"backward\(|autograd\.grad\(")


def run(source: str, regime: str, **names: Any) -> dict[str, Any]:
    """Run the statements of `source`, each at top level, synced as the regime says."""
    lines = textwrap.dedent(source).strip().split("\n")
    blocks: list[str] = []
    for line in lines:
        if line.startswith(" "):
            blocks[-1] += "\n" + line
        else:
            blocks.append(line)
    choose = random.Random(regime)
    space: dict[str, Any] = {"lt": lt, "np": np, **names}
    for block in blocks:
        if regime == "before backward" and BACKWARD.search(block):
            lt.sync()
        exec(compile(block, f"<{block}>", "exec"), space)
        if regime == "after each" or (regime.startswith("random") and choose.random() < 0.4):
            lt.sync()
    return space


def check(space: dict[str, Any], expected: dict[str, Any]) -> None:
    """Each expression has the value that is expected."""
    for expression, want in expected.items():
        got = eval(expression, space)
        if isinstance(got, lt.Tensor):
            got = got.detach().tolist()
        assert got == want, f"{expression}: {got}, expected {want}"
