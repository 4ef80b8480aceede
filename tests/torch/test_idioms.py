"""Lines as programs of PyTorch's have them run as they are: each block of idioms.txt, in a file of its own.

Each was run with PyTorch 2.13 too. What calls give is compared in test_calls.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lazyt as lt

BLOCKS = (Path(__file__).parent / "idioms.txt").read_text().split("\n\n")
BEGINNING = """
import math
from collections import OrderedDict
import numpy as np
import lazyt.torch as torch
import lazyt.torch.nn as nn
import lazyt.torch.nn.functional as F
torch.manual_seed(0)
x = torch.randn(2, 5, 8)
B, T, C = x.size()
y = torch.randint(0, 3, (2, 5))
W = nn.Linear(8, 3)
"""


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0][:40])
def test_lines_run_as_they_are(block: str, tmp_path: Path) -> None:
    space: dict[str, Any] = {"__name__": "ported", "path": tmp_path / "saved.pt"}
    exec(compile(BEGINNING + block, "ported.py", "exec"), space)
    lt.sync()
