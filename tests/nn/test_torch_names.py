"""Every public name of PyTorch's for training is here under the same path, or has a reason in one table.

`tests/golden/torch_names.json` has the names (`python -m tools.torch_golden names` writes it), and
`torch_names_absent.json` the reasons, each with the names that it is for.
"""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Any

import lazyt as lt

HERE = Path(__file__).parent
NAMES: dict[str, list[str]] = json.loads((HERE.parent / "golden" / "torch_names.json").read_text())
ABSENT: dict[str, list[str]] = json.loads((HERE / "torch_names_absent.json").read_text())


def has(path: str) -> bool:
    """Whether lazyt has `torch.nn.Linear` as `lazyt.nn.Linear`."""
    found: Any = reduce(lambda o, name: getattr(o, name, None), path.split(".")[1:], lt)
    return found is not None


def test_every_name_of_pytorch_is_here_or_has_a_reason() -> None:
    every = [f"{space}.{name}" for space, names in NAMES.items() for name in names]
    excused = [path for paths in ABSENT.values() for path in paths]
    missing = sorted(path for path in every if not has(path) and path not in excused)
    assert not missing, f"lazyt has neither these nor a reason: {missing}"
    stale = sorted(path for path in excused if has(path))
    assert not stale, f"these are there by now: take them out of torch_names_absent.json: {stale}"
    unknown = sorted(set(excused) - set(every))
    assert not unknown, f"PyTorch has no such names: {unknown}"
    assert len(excused) == len(set(excused)), "a name has one reason"


def test_there_are_few_reasons() -> None:
    assert len(ABSENT) < 10
