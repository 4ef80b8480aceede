"""The dtypes of results under autocast are PyTorch's, function by function."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lazyt as lt
from tests.support.autocast_cases import CASES

GOLDEN: dict[str, list[str]] = json.loads(
    (Path(__file__).parent.parent / "golden" / "autocast_dtypes.json").read_text()
)
# Where lazyt differs, and why.
OTHER = {
    # PyTorch computes it of a decomposition in float32 and of products, which it casts.
    "t.linalg.pinv(a(3, 3))": {"float32": "float32"},
}


def _space(dtype: str) -> dict[str, Any]:
    def make(*shape: int) -> Any:
        return lt.full(shape, 0.5, dtype=dtype)

    return {
        "t": lt, "F": lt.nn.functional, "nn": lt.nn, "a": make, "f": lambda *shape: lt.full(shape, 0.5),
        "n": lambda *shape: lt.zeros(shape, dtype="int64"), "spd": lambda k: make(k, k) + 4 * lt.eye(k, dtype=dtype),
    }  # fmt: skip


@pytest.mark.parametrize(("text", "ours"), CASES, ids=[text for text, _ in CASES])
def test_dtypes_are_those_of_pytorch(text: str, ours: str) -> None:
    for dtype, expected in zip(("float32", "bfloat16"), GOLDEN[text], strict=True):
        expected = OTHER.get(ours, {}).get(dtype, expected)
        if expected == "error":  # PyTorch's: lazyt may do more
            continue
        with lt.autocast("cpu"):
            found = eval(ours, _space(dtype))
        assert str(found.dtype) == expected, f"{ours} on {dtype}"
