"""Arguments by position are PyTorch's in `lazyt.torch.nn`, `optim` and what is in them."""

from __future__ import annotations

import importlib
import inspect
import json
from typing import Any

import pytest

from lazyt.torch.keywords import positions
from tests.support.golden_files import GOLDEN

EXPECTED: dict[str, dict[str, list[str]]] = json.loads((GOLDEN / "torch_signatures.json").read_text())
# What takes fewer arguments, or others, and why.
OTHERS = {
    # Made for lazyt's own use, or for a type that it has not.
    "BasePruningMethod",
    # min_value and max_value are old names, which warn.
    "Hardtanh",
    # One function for PyTorch's two, whose names of an argument differ.
    "functional_call",
    # No `out=`.
    "normalize",
    # They return indices always.
    *(f"max_pool{n}d_with_indices" for n in (1, 2, 3)),
    *(f"adaptive_max_pool{n}d_with_indices" for n in (1, 2, 3)),
}


def arguments_of(f: Any, is_method: bool) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = [p for p in inspect.signature(f).parameters.values() if p.kind in kinds and p.name != "self"]
    at = {
        where: name for name, where in positions(f, getattr(f, "__name__", "")).items() if name in ("input", "tensor")
    }
    if is_method:
        return [p.name for p in given]
    return [at.get(i, p.name) if p.name in ("x", "a") else p.name for i, p in enumerate(given)]


@pytest.mark.parametrize("space", EXPECTED)
def test_arguments_by_position_are_pytorchs(space: str) -> None:
    module = importlib.import_module(f"lazyt.{space}")
    different = {}
    for name, wanted in EXPECTED[space].items():
        outer, _, method = name.partition(".")
        made = getattr(module, outer, None)
        if made is None or outer in OTHERS:
            continue
        f = getattr(made, method) if method else made.__init__ if isinstance(made, type) else made
        found = arguments_of(f, bool(method))[: len(wanted)]
        first = {"input", "tensor"}
        if found[1:] != wanted[1:] or (found[:1] != wanted[:1] and not {*found[:1], *wanted[:1]} <= first):
            different[name] = (wanted, found)
    assert not different
